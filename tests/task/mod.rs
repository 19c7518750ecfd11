//! Tasks: from their submission to their end, through workers of every temper.

mod cancel;
mod conformance;
mod lease;
mod life;
mod openai;
mod piece;
mod restart;
mod sync;
mod token;
mod transport;
mod unknown;

use serde_json::{Value, json};
use signalbox_tests::Caller;
use std::time::{Duration, Instant};

/// Submits a task to a pool.
pub async fn submit(caller: &Caller, pool: &str) -> String {
    let body = json!({"kind": "test.say", "payload": {"say": "hello"}, "pool": pool});
    caller.post("/v1/tasks", body).await.ok()["id"].as_str().unwrap().to_owned()
}

/// Waits until a task is in a state.
pub async fn reaches(caller: &Caller, task: &str, state: &str) -> Value {
    let until = Instant::now() + Duration::from_secs(60);
    let mut last = Value::Null;
    while Instant::now() < until {
        last = caller.get(&format!("/v1/tasks/{task}")).await.json();
        if last["state"] == state {
            return last;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("{task} does not become {state}: {last}");
}
