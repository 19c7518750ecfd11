//! What workers are seen to do: deaf ones, silent ones, and a service that stood still itself.

use serde_json::json;
use signalbox_events::work::{Renew, Renewed, Verb};
use signalbox_tests::World;
use signalbox_tests::worker::Bare;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

async fn shown(world: &World, worker: &str) -> String {
    let page = world.admin.get("/v1/workers").await.ok();
    let row = page["items"].as_array().unwrap().iter().find(|row| row["id"] == worker).unwrap().clone();
    row["state"].as_str().unwrap().to_owned()
}

async fn becomes(world: &World, bare: &Bare, state: &str) {
    let until = Instant::now() + Duration::from_secs(60);
    while shown(world, bare.worker.as_str()).await != state {
        assert!(Instant::now() < until, "{} does not become {state}", bare.worker);
        beat(bare).await;
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

async fn beat(bare: &Bare) {
    let renew = Renew { incarnation: bare.incarnation, free_slots: 4, leases: vec![] };
    bare.ask::<Renewed>(Verb::Renew, &renew).await.unwrap();
}

/// The heart beats, the ears are deaf. The work goes to whoever listens, and the deaf one is named.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_claims_nothing_is_not_consuming() {
    let (world, ahead) = World::clocked().await;
    let deaf = Bare::hello(&world, "eu", "gpu-01", 1).await;
    for _ in 0..50 {
        world.admin.post("/v1/tasks", json!({"kind": "test.say", "payload": {}, "pool": "eu"})).await.ok();
    }
    assert_eq!(shown(&world, "gpu-01").await, "ready");
    ahead.store(31, Ordering::SeqCst);
    becomes(&world, &deaf, "not_consuming").await;
    // It hears again.
    assert!(deaf.claim(1000).await.is_some());
    becomes(&world, &deaf, "ready").await;
    world.stop().await;
}

/// The service stood still for longer than a lease lives, so nine of nine heartbeats are late. Eight workers live: nothing
/// of theirs is given away. The ninth is really gone, and its task is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stall_of_the_service_is_not_held_against_its_workers() {
    let (world, ahead) = World::clocked().await;
    let mut workers = Vec::new();
    for number in 1..=9_u128 {
        let bare = Bare::hello(&world, "eu", &format!("gpu-{number:02}"), number).await;
        world.admin.post("/v1/tasks", json!({"kind": "test.say", "payload": {}, "pool": "eu"})).await.ok();
        let task = bare.claim(25_000).await.unwrap();
        assert_eq!(bare.renew(&task).await.state, "live");
        workers.push((bare, task));
    }
    // The first grace, after the start, must not be the one that is seen.
    tokio::time::sleep(Duration::from_secs(11)).await;
    ahead.store(35, Ordering::SeqCst);
    let until = Instant::now() + Duration::from_secs(60);
    let (gone, living) = workers.split_last().unwrap();
    loop {
        for (bare, task) in living {
            let state = bare.renew(task).await;
            assert_eq!(state.state, "live", "{} lost its lease to our own stall", bare.worker);
        }
        let row = world.admin.get(&format!("/v1/tasks/{}", gone.1.task)).await.ok();
        if row["state"] == "queued" {
            break;
        }
        assert!(Instant::now() < until, "the lease of the worker that is gone does not end: {row}");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    let page = world.admin.get("/v1/tasks?limit=50").await.ok();
    let attempts: Vec<_> = page["items"].as_array().unwrap().iter().map(|row| row["attempt"].as_u64().unwrap()).collect();
    assert_eq!(attempts, [1; 9], "nothing was leased anew");
    let states = page["items"].as_array().unwrap().iter().filter(|row| row["state"] == "leased").count();
    assert_eq!(states, 8);
    world.stop().await;
}
