//! The reference worker as a process: tasks of OpenAI's kinds reach the deployment once, and it drains on demand.

use super::reaches;
use serde_json::{Value, json};
use signalbox_embedded::nats::write_worker_seed;
use signalbox_embedded::testing::secrets;
use signalbox_tests::{Behaviour, Caller, World};
use std::process::Stdio;
use std::time::{Duration, Instant};
use tokio::process::{Child, Command};

/// The product's own binary, built beside the tests.
fn binary() -> std::path::PathBuf {
    let mut path = std::env::current_exe().unwrap();
    path.pop();
    path.pop();
    let path = path.join("signalbox");
    assert!(path.exists(), "{} is not built: run the tests with --workspace", path.display());
    path
}

fn start(world: &World) -> Child {
    let seed = write_worker_seed(&secrets(), world.scratch.path(), "gpu-01").unwrap();
    let mut command = Command::new(binary());
    command.args(["worker", "run", "--pool", "eu", "--id", "gpu-01", "--nats", &world.config.nats.url, "--seed-file"]).arg(seed);
    command.stdin(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true).spawn().unwrap()
}

async fn submit(caller: &Caller, payload: Value, streaming: bool) -> String {
    let body = json!({"kind": "chat.completions", "payload": payload, "pool": "eu", "streaming": streaming});
    caller.post("/v1/tasks", body).await.ok()["id"].as_str().unwrap().to_owned()
}

fn deltas() -> Behaviour {
    Behaviour::Deltas(["The ", "cat"].map(str::to_owned).to_vec(), Duration::ZERO)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_reference_worker_sends_each_task_once() {
    let world = World::pools(1).await;
    world.admin.send(reqwest::Method::PUT, "/v1/settings/platform/inference", json!({"enabled": true})).await.ok();
    let (model, _, route) = world.model(deltas()).await;
    let mut worker = start(&world);
    let asked = json!({"model": route, "messages": [{"role": "user", "content": "hello"}]});
    for streaming in [false, true] {
        let before = model.calls();
        let task = submit(&world.admin, asked.clone(), streaming).await;
        let done = reaches(&world.admin, &task, "succeeded").await;
        assert_eq!((&done["worker"], &done["redemptions"]), (&json!("gpu-01"), &json!(1)), "{done}");
        let result = world.admin.get(&format!("/v1/tasks/{task}/result")).await.ok();
        assert!(result["choices"][0]["message"]["content"].as_str().is_some_and(|text| !text.is_empty()), "{result}");
        assert_eq!(model.calls(), before + 1);
    }
    let refused = world.admin.post("/v1/tasks", json!({"kind": "embeddings", "payload": {"model": "nobody"}, "pool": "eu"})).await;
    assert_eq!((refused.status, &refused.json()["code"]), (404, &json!("model_not_found")));
    let redirected = json!({"model": route, "messages": [], "base_url": "http://127.0.0.1:9/"});
    let refused = world.admin.post("/v1/tasks", json!({"kind": "chat.completions", "payload": redirected, "pool": "eu"})).await;
    assert_eq!((refused.status, &refused.json()["field"]), (400, &json!("payload.base_url")));
    // A refusal is evidence that nothing was done; a stream that breaks is a failure with what had come.
    model.behave(Behaviour::Refuses(429, json!({"error": {"message": "slow down"}})));
    let task = submit(&world.admin, asked.clone(), false).await;
    let row = reaches(&world.admin, &task, "retry_wait").await;
    assert_eq!((&row["code"], &row["upstream_status"]), (&json!("too_many_requests"), &json!(429)), "{row}");
    model.behave(deltas());
    assert_eq!(reaches(&world.admin, &task, "succeeded").await["redemptions"], 2);
    model.behave(Behaviour::Breaks(vec!["The ".to_owned()]));
    let task = submit(&world.admin, asked.clone(), true).await;
    assert_eq!(reaches(&world.admin, &task, "failed").await["code"], "upstream_disconnected");
    // It is killed while a call is out, and comes back under its name: the task is not sent again.
    model.behave(Behaviour::Hangs);
    let before = model.calls();
    let task = submit(&world.admin, asked.clone(), false).await;
    let until = Instant::now() + Duration::from_secs(20);
    while model.calls() == before {
        assert!(Instant::now() < until, "the task is not sent");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    worker.kill().await.unwrap();
    let mut worker = start(&world);
    assert_eq!(reaches(&world.admin, &task, "submission_unknown").await["evidence"], "worker_lost");
    model.behave(deltas());
    let next = submit(&world.admin, asked, false).await;
    reaches(&world.admin, &next, "succeeded").await;
    assert_eq!(model.calls(), before + 2, "one that hangs, one that was submitted after it");
    assert_eq!(reaches(&world.admin, &task, "submission_unknown").await["redemptions"], 1);
    // It ends in order when it is asked to.
    let id = i32::try_from(worker.id().unwrap()).unwrap();
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(id), nix::sys::signal::Signal::SIGTERM).unwrap();
    assert!(worker.wait().await.unwrap().success());
    world.stop().await;
}
