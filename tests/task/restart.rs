//! Replicas come and go, servers restart: timers and leases go on.

use super::{reaches, submit};
use serde_json::json;
use signalbox::serve::{Role, Service};
use signalbox_events::work::Outcome;
use signalbox_tests::{World, worker::Bare};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Two replicas answer claims for the same tasks: each task is leased once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_replicas_lease_each_task_once() {
    let world = World::pools(2).await;
    let (one, other) = (Bare::hello(&world, "eu", "gpu-01", 1).await, Bare::hello(&world, "eu", "gpu-02", 2).await);
    let mut submitted = BTreeSet::new();
    for _ in 0..30 {
        submitted.insert(submit(&world.admin, "eu").await);
    }
    let done = AtomicUsize::new(0);
    let until = Instant::now() + Duration::from_secs(60);
    let work = async |worker: &Bare| {
        let mut leased = Vec::new();
        while done.load(Ordering::SeqCst) < 30 && Instant::now() < until {
            let Some(task) = worker.claim(500).await else { continue };
            worker.redeem(&task, 1).await.unwrap();
            worker.report(&task, Outcome::Succeeded).await.unwrap();
            done.fetch_add(1, Ordering::SeqCst);
            leased.push(task.task.to_string());
        }
        leased
    };
    let (first, second) = tokio::join!(work(&one), work(&other));
    assert!(one.claim(500).await.is_none() && other.claim(500).await.is_none(), "none is left, and none comes twice");
    let all: Vec<String> = first.into_iter().chain(second).collect();
    assert_eq!(all.len(), 30, "none twice");
    assert_eq!(all.into_iter().collect::<BTreeSet<_>>(), submitted, "none lost");
    for task in &submitted {
        assert_eq!(reaches(&world.admin, task, "succeeded").await["attempt"], 1);
    }
    world.stop().await;
}

/// The role is stopped with a task that waits for its next try, one that is leased and one with a deadline: its successor
/// goes on with all three.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn timers_and_leases_outlive_the_role() {
    let mut world = World::pools(1).await;
    let worker = Bare::hello(&world, "eu", "gpu-01", 1).await;
    let (refused, held) = (submit(&world.admin, "eu").await, submit(&world.admin, "eu").await);
    let mut claimed = [worker.claim(25_000).await.unwrap(), worker.claim(25_000).await.unwrap()];
    claimed.sort_by_key(|task| task.task.to_string() != refused);
    worker.redeem(&claimed[0], 1).await.unwrap();
    worker.report(&claimed[0], Outcome::NotSent).await.unwrap();
    let late = json!({"kind": "chat", "payload": {}, "pool": "us", "start_within_seconds": 2});
    let late = world.admin.post("/v1/tasks", late).await.ok()["id"].as_str().unwrap().to_owned();
    reaches(&world.admin, &refused, "retry_wait").await;
    world.services.pop().unwrap().stop().await;
    let service = Service::start(&world.config, &[Role::All]).await.unwrap();
    world.admin.url = format!("http://{}", service.address.unwrap());
    world.services.push(service);
    assert_eq!(reaches(&world.admin, &late, "failed").await["code"], "start_deadline_exceeded");
    // The lease of before is still its holder's.
    assert_eq!(worker.renew(&claimed[1]).await.state, "live");
    worker.redeem(&claimed[1], 1).await.unwrap();
    worker.report(&claimed[1], Outcome::Succeeded).await.unwrap();
    reaches(&world.admin, &held, "succeeded").await;
    let again = worker.claim(25_000).await.expect("the refused one is tried again");
    assert_eq!((again.task.to_string(), again.attempt), (refused, 2));
    world.stop().await;
}
