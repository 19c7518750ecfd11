//! Tasks that a caller waits for: the result as the answer, or a refusal at once.

use super::reaches;
use futures_util::FutureExt;
use reqwest::Method;
use serde_json::{Value, json};
use signalbox_tests::answer::{Answer, Events};
use signalbox_tests::{World, worker};
use signalbox_worker::{Done, Evidence};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

fn task(kind: &str) -> Value {
    json!({"kind": kind, "payload": {"say": "hello"}, "pool": "eu", "mode": "sync"})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_gets_the_result_or_a_refusal() {
    let world = World::pools(2).await;
    let before = world.log().await.len();
    // Nobody is there: refused at once, and nothing is stored.
    let asked = Instant::now();
    let refused = world.admin.post("/v1/tasks", task("test.say")).await;
    refused.refused(503, "no_worker_available");
    assert!(asked.elapsed() < Duration::from_secs(5));
    assert_eq!(world.log().await.len(), before);
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    let (stop, running) = worker::start(&world, "eu", "gpu-01", 1, move |job| {
        let calls = counted.clone();
        async move {
            job.redeem().await.unwrap();
            calls.fetch_add(1, Ordering::SeqCst);
            match job.assignment().kind.as_str() {
                "test.slow" => tokio::time::sleep(Duration::from_secs(2)).await,
                "test.refused" => {
                    let (evidence, code, detail) = (Evidence::Rejected, "too_many_requests".to_owned(), Some("slow down".to_owned()));
                    let upstream_status = Some(429);
                    return Done::Broken { evidence, code, retryable: true, upstream_status, retry_after_seconds: Some(7), partial: None, detail };
                }
                _ => {}
            }
            if job.assignment().streaming {
                for word in ["a", "b"] {
                    job.delta(json!({"word": word}).to_string().into()).await;
                }
            }
            Done::Succeeded { result: json!({"said": "hello"}).to_string(), usage: None }
        }
        .boxed()
    });
    world.claims("gpu-01").await;
    for replica in 0..2 {
        let done = world.admin_at(replica).post("/v1/tasks", task("test.say")).await;
        assert_eq!((done.status, &done.json()["state"], &done.json()["result"]), (200, &json!("succeeded"), &json!({"said": "hello"})));
        let row = reaches(&world.admin, done.json()["id"].as_str().unwrap(), "succeeded").await;
        assert_eq!((&row["mode"], &row["redemptions"]), (&json!("sync"), &json!(1)));
    }
    // Deltas, then the result, then the mark that OpenAI's clients look for.
    let mut body = task("test.say");
    body["streaming"] = true.into();
    let response = world.admin.request(Method::POST, "/v1/tasks").json(&body).send().await.unwrap();
    let events: Vec<Value> = Events::new(response).rest().await.into_iter().map(|event| event.data).collect();
    assert_eq!((&events[0]["delta"]["word"], &events[1]["delta"]["word"]), (&json!("a"), &json!("b")), "{events:?}");
    assert_eq!((&events[2]["state"], &events[2]["result"]["said"], &events[3]), (&json!("succeeded"), &json!("hello"), &json!("[DONE]")));
    // A refusal is the caller's to repeat: the task does not try again by itself.
    let refused = world.admin.post("/v1/tasks", task("test.refused")).await.refused(429, "too_many_requests");
    assert_eq!(refused["detail"], "slow down");
    assert_eq!(reaches(&world.admin, refused["task"].as_str().unwrap(), "failed").await["upstream_status"], 429);
    // The same key waits for the same task, whichever replica it comes to.
    let before = calls.load(Ordering::SeqCst);
    let asked = (0..8).map(|index| {
        let caller = world.admin_at(index % 2);
        async move {
            let request = caller.request(Method::POST, "/v1/tasks").header("idempotency-key", "once").json(&task("test.slow"));
            Answer::read(request.send().await.unwrap()).await.ok()
        }
    });
    let answers = futures_util::future::join_all(asked).await;
    assert!(answers.iter().all(|answer| *answer == answers[0]), "{answers:?}");
    assert_eq!(calls.load(Ordering::SeqCst), before + 1);
    stop.cancel();
    running.await.unwrap().unwrap();
    world.stop().await;
}

/// Every slot is taken: the caller is not kept waiting for more than it wants.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn busy_workers_are_a_refusal_after_a_moment() {
    let world = World::pools(1).await;
    let (stop, running) = worker::start(&world, "eu", "gpu-01", 1, |job| {
        async move {
            job.redeem().await.unwrap();
            job.cancelled().cancelled_owned().await;
            Done::Cancelled { partial: None, usage: None }
        }
        .boxed()
    });
    world.claims("gpu-01").await;
    let busy: Vec<_> = futures_util::future::join_all((0..8).map(|_| super::submit(&world.admin, "eu"))).await;
    for task in &busy {
        reaches(&world.admin, task, "executing").await;
    }
    let asked = Instant::now();
    let refused = world.admin.post("/v1/tasks", task("test.say")).await.refused(503, "no_worker_available");
    assert!(asked.elapsed() >= Duration::from_millis(900));
    assert_eq!(reaches(&world.admin, refused["task"].as_str().unwrap(), "failed").await["code"], "start_deadline_exceeded");
    // Who leaves without a key to come back with has no more use for it.
    let mut body = task("test.say");
    body["start_within_seconds"] = 60.into();
    let request = world.admin.request(Method::POST, "/v1/tasks").json(&body).timeout(Duration::from_millis(500));
    assert!(request.send().await.is_err());
    let until = Instant::now() + Duration::from_secs(20);
    while world.admin.get("/v1/tasks?state=cancelled").await.ok()["items"].as_array().unwrap().is_empty() {
        assert!(Instant::now() < until, "the task waits on");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    for task in &busy {
        world.admin.post(&format!("/v1/tasks/{task}/cancel"), json!({})).await.ok();
        reaches(&world.admin, task, "cancelled").await;
    }
    stop.cancel();
    running.await.unwrap().unwrap();
    world.stop().await;
}
