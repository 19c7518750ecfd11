//! A task's whole life, and who may see it.

use super::{reaches, submit};
use futures_util::FutureExt;
use serde_json::json;
use signalbox_tests::{World, worker};
use signalbox_worker::{Done, Job};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

async fn answer(job: &mut Job, calls: &AtomicUsize) -> Done {
    let said: serde_json::Value = serde_json::from_str(job.assignment().payload.as_deref().unwrap()).unwrap();
    if let Err(error) = job.redeem().await {
        return Done::Released(error.to_string().split_whitespace().next().unwrap_or("refused").to_lowercase());
    }
    calls.fetch_add(1, Ordering::SeqCst);
    Done::Succeeded { result: json!({"heard": said["say"]}).to_string(), usage: None }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_is_executed_once_and_its_result_is_its_owners() {
    let world = World::pools(1).await;
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    let (stop, running) = worker::start(&world, "eu", "gpu-01", 1, move |job| {
        let calls = counted.clone();
        async move { answer(job, &calls).await }.boxed()
    });
    let task = submit(&world.admin, "eu").await;
    let done = reaches(&world.admin, &task, "succeeded").await;
    assert_eq!((&done["worker"], &done["attempt"], &done["redemptions"]), (&json!("gpu-01"), &json!(1), &json!(1)), "{done}");
    let path = format!("/v1/tasks/{task}/result");
    assert_eq!(world.admin.get(&path).await.ok(), json!({"heard": "hello"}));
    assert_eq!(world.admin.get(&format!("{path}/download")).await.ok(), json!({"heard": "hello"}));
    let events = world.admin.get(&format!("/v1/tasks/{task}/events")).await.ok();
    let kinds: Vec<_> = events["items"].as_array().unwrap().iter().map(|event| event["type"].as_str().unwrap().to_owned()).collect();
    assert_eq!(kinds, ["task.accepted", "task.leased", "task.token_redeemed", "task.succeeded"]);

    // Someone else's task is one that does not exist, in any spelling.
    let stranger = world.stranger("Bob").await;
    let unknown = "0190f3a8-7b1c-7def-8abc-0123456789ab";
    for tail in ["", "/result", "/result/download", "/events"] {
        let foreign = stranger.get(&format!("/v1/tasks/{task}{tail}")).await;
        let missing = stranger.get(&format!("/v1/tasks/{unknown}{tail}")).await;
        assert_eq!((foreign.status, &foreign.json()["code"]), (404, &json!("not_found")));
        assert_eq!(foreign.json(), missing.json());
        for spelling in [task.to_uppercase(), format!("%7B{task}%7D"), format!("{task}%2F")] {
            assert_eq!(stranger.get(&format!("/v1/tasks/{spelling}{tail}")).await.status, 404);
        }
    }
    for command in ["cancel", "resolve", "revive"] {
        let refused = stranger.post(&format!("/v1/tasks/{task}/{command}"), json!({"reason": "x", "resolution": "failed"})).await;
        assert!(matches!(refused.status, 403 | 404), "{command}");
    }
    assert_eq!(stranger.get("/v1/tasks").await.ok()["items"], json!([]));

    // Many at once: each exactly once, whatever the order.
    let tasks = futures_util::future::join_all((0..40).map(|_| submit(&world.admin, "eu"))).await;
    for task in &tasks {
        reaches(&world.admin, task, "succeeded").await;
    }
    assert_eq!(calls.load(Ordering::SeqCst), 41);
    let page = world.admin.get("/v1/tasks?state=succeeded&pool=eu&worker=gpu-01&limit=200").await.ok();
    let ids: BTreeSet<_> = page["items"].as_array().unwrap().iter().map(|task| task["id"].as_str().unwrap().to_owned()).collect();
    assert_eq!(ids.len(), 41);

    // A drained worker ends by itself and says good-bye.
    world.admin.post("/v1/workers/gpu-01/drain", json!({})).await.ok();
    running.await.unwrap().unwrap();
    drop(stop);
    let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
    loop {
        let shown = world.admin.get("/v1/workers?pool=eu").await.ok()["items"][0].clone();
        assert_eq!(shown["id"], "gpu-01");
        if shown["state"] == "gone" {
            break;
        }
        assert!(std::time::Instant::now() < until, "{shown}");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_submission_is_checked_and_repeated_without_effect() {
    let world = World::pools(1).await;
    let good = json!({"kind": "test.say", "payload": {"say": "hello"}});
    let bad = [
        (json!({"payload": {}}), 400, "missing_field", "kind"),
        (json!({"kind": "Chat", "payload": {}}), 400, "invalid_field", "kind"),
        (json!({"kind": "chat", "payload": []}), 400, "invalid_field", "payload"),
        (json!({"kind": "chat", "payload": {}, "priority": 10}), 400, "invalid_field", "priority"),
        (json!({"kind": "chat", "payload": {}, "pool": "mars"}), 400, "invalid_field", "pool"),
        (json!({"kind": "chat", "payload": {}, "run_mode": "dry"}), 400, "invalid_field", "run_mode"),
        (json!({"kind": "chat", "payload": {}, "start_within_seconds": 0}), 400, "invalid_field", "start_deadline"),
        (json!({"kind": "chat", "payload": {}, "base_url": "http://127.0.0.1:9/"}), 400, "unknown_field", "base_url"),
        (json!({"kind": "chat", "payload": {}, "mode": "later"}), 400, "invalid_field", "mode"),
    ];
    for (body, status, code, field) in bad {
        let refused = world.admin.post("/v1/tasks", body).await;
        let said = refused.json();
        assert_eq!((refused.status, &said["code"], &said["field"]), (status, &json!(code), &json!(field)), "{said}");
    }
    let before = world.log().await.len();
    let send = async |key: &str, body: &serde_json::Value| {
        let request = world.admin.request(reqwest::Method::POST, "/v1/tasks").header("idempotency-key", key).json(body);
        signalbox_tests::Answer::read(request.send().await.unwrap()).await
    };
    let (first, again) = (send("k1", &good).await.ok(), send("k1", &good).await.ok());
    assert_eq!((&first["id"], &again["stated"]), (&again["id"], &json!(false)));
    let other = send("k1", &json!({"kind": "test.other", "payload": {}})).await;
    assert_eq!((other.status, &other.json()["code"]), (409, &json!("idempotency_key_conflict")));
    assert_eq!(world.log().await.len(), before + 1);
    // A cordoned pool takes no new tasks, and the next one in order is the default.
    world.admin.send(reqwest::Method::PUT, "/v1/pools/eu/state", json!({"state": "cordoned", "reason": "upgrade"})).await.ok();
    let refused = world.admin.post("/v1/tasks", json!({"kind": "chat", "payload": {}, "pool": "eu"})).await;
    assert_eq!((refused.status, &refused.json()["code"]), (409, &json!("pool_not_enabled")));
    // Nobody takes it in time.
    let late = json!({"kind": "chat", "payload": {}, "pool": "us", "start_within_seconds": 1});
    let late = world.admin.post("/v1/tasks", late).await.ok()["id"].as_str().unwrap().to_owned();
    assert_eq!(reaches(&world.admin, &late, "failed").await["code"], "start_deadline_exceeded");
    world.stop().await;
}
