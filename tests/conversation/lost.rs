//! A replica that dies in the middle of an answer.

use serde_json::json;
use signalbox::serve::{Role, Service};
use signalbox_tests::{Behaviour, Caller, World, worker};
use std::time::{Duration, Instant};

/// A replica that can be lost at any moment.
struct Doomed(tokio::runtime::Runtime, Service);

impl Doomed {
    /// Torn down without a word.
    async fn now(self) {
        let Self(runtime, service) = self;
        let lost = tokio::task::spawn_blocking(move || {
            runtime.shutdown_background();
            std::mem::forget(service);
        });
        lost.await.unwrap();
    }
}

/// Starts one, in a runtime of its own.
fn doomed(world: &World) -> (Caller, Doomed) {
    let config = world.config.clone();
    let started = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let service = runtime.block_on(Service::start(&config, &[Role::Api])).unwrap();
        Doomed(runtime, service)
    });
    let doomed = started.join().unwrap();
    let url = format!("http://{}", doomed.1.address.unwrap());
    (Caller { url, ..world.admin.clone() }, doomed)
}

/// The executor's heartbeat ends; another replica states what that amounts to, with the text that had come.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_executor_leaves_an_interrupted_turn() {
    let world = World::ready(1).await;
    let (model, workload, _) = world.model(Behaviour::Deltas((0..10_000).map(|n| format!("w{n} ")).collect(), Duration::from_millis(20))).await;
    let (begun, silent) = (world.admin.conversation(&workload).await, world.admin.conversation(&workload).await);
    let (caller, lose) = doomed(&world);
    let mut stream =
        caller.stream(&format!("/v1/conversations/{begun}/turns"), json!({"client_turn_id": "a", "content": "hi", "stream": true})).await;
    for _ in 0..11 {
        stream.next().await.unwrap();
    }
    // A second turn, of which nothing has come: whether the model was paid is not known.
    model.behave(Behaviour::Hangs);
    let asked = caller.clone();
    let path = format!("/v1/conversations/{silent}/turns");
    tokio::spawn(async move { asked.request(reqwest::Method::POST, &path).json(&json!({"client_turn_id": "b", "content": "hi"})).send().await });
    loop {
        let shown = world.admin.get(&format!("/v1/conversations/{silent}")).await.ok();
        if shown["turns"][0]["state"] == "running" {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    lose.now().await;
    let since = Instant::now();
    let ended = async |conversation: &str| loop {
        let turn = world.admin.get(&format!("/v1/conversations/{conversation}")).await.ok()["turns"][0].clone();
        if turn["state"] != "running" {
            return turn;
        }
        // 20 s until the heartbeat is forgotten, and 30 s more.
        assert!(since.elapsed() < Duration::from_secs(50), "still running");
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    let turn = ended(&begun).await;
    assert_eq!(turn["state"], "interrupted");
    assert!(turn["partial"].as_str().unwrap().starts_with("w0 w1 w2 "), "{turn}");
    assert_eq!(ended(&silent).await["state"], "submission_unknown");
    assert_eq!(model.calls(), 2, "nothing is sent again by itself");
    // The conversation goes on with a turn of another key.
    model.behave(Behaviour::Deltas(vec!["ok".to_owned()], Duration::ZERO));
    world.admin.post(&format!("/v1/conversations/{begun}/turns"), json!({"client_turn_id": "c", "content": "again"})).await.ok();
    world.stop().await;
}

/// Where a worker calls the model, the loss of the gateway loses nothing: the worker ends the call, and the turn has its answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_ends_what_a_lost_gateway_began() {
    let world = World::pools(1).await;
    for (path, body) in [("inference", json!({"enabled": true})), ("transport", json!({"transport": "lease"}))] {
        world.admin.send(reqwest::Method::PUT, &format!("/v1/settings/platform/{path}"), body).await.ok();
    }
    let words: Vec<String> = (0..60).map(|n| format!("w{n} ")).collect();
    let (model, workload, _) = world.model(Behaviour::Deltas(words.clone(), Duration::from_millis(50))).await;
    let (stop, running) = worker::reference(&world, "eu", "gpu-01", 1).await;
    let conversation = world.admin.conversation(&workload).await;
    let (caller, lose) = doomed(&world);
    let path = format!("/v1/conversations/{conversation}/turns");
    let mut stream = caller.stream(&path, json!({"client_turn_id": "a", "content": "hi", "stream": true})).await;
    for _ in 0..11 {
        stream.next().await.unwrap();
    }
    lose.now().await;
    let since = Instant::now();
    let turn = loop {
        let turn = world.admin.get(&format!("/v1/conversations/{conversation}")).await.ok()["turns"][0].clone();
        if turn["state"] != "running" {
            break turn;
        }
        assert!(since.elapsed() < Duration::from_secs(60), "still running");
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    assert_eq!((&turn["state"], &turn["answer"]["content"]), (&json!("completed"), &json!(words.concat())), "{turn}");
    assert_eq!(model.calls(), 1);
    stop.cancel();
    running.await.unwrap().unwrap();
    world.stop().await;
}
