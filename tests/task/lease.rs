//! Leases: one holder at a time, closed when they are closed, and gone with the incarnation that had them.

use super::{reaches, submit};
use serde_json::json;
use signalbox_events::work::{Form, Outcome};
use signalbox_tests::{World, worker::Bare};
use std::time::{Duration, Instant};

/// A worker is killed and comes back under its name: what it held unsent goes to the new start, and the old token is void.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reused_name_does_not_hide_what_its_former_start_held() {
    let world = World::pools(1).await;
    let old = Bare::hello(&world, "eu", "gpu-01", 1).await;
    let task = submit(&world.admin, "eu").await;
    let held = old.claim(25_000).await.unwrap();
    assert_eq!(held.task.to_string(), task);
    let began = Instant::now();
    let fresh = Bare::hello(&world, "eu", "gpu-01", 2).await;
    let again = fresh.claim(25_000).await.expect("the task comes to the new start");
    assert!(began.elapsed() < Duration::from_secs(35), "{:?}", began.elapsed());
    assert_eq!((again.task, again.attempt), (held.task, 2));
    assert!(again.epoch > held.epoch);
    assert_eq!(old.redeem(&held, 1).await.unwrap_err(), "incarnation_retired");
    assert_eq!(fresh.redeem(&held, 1).await.unwrap_err(), "lease_superseded");
    assert_eq!(old.report(&held, Outcome::Succeeded).await.unwrap_err(), "lease_superseded");
    fresh.redeem(&again, 1).await.unwrap();
    fresh.report(&again, Outcome::Succeeded).await.unwrap();
    assert_eq!(reaches(&world.admin, &task, "succeeded").await["attempt"], 2);
    world.stop().await;
}

/// A renewal that comes after the end is no loss: the lease is closed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewal_behind_the_end_finds_the_lease_closed() {
    let world = World::pools(1).await;
    let worker = Bare::hello(&world, "eu", "gpu-01", 1).await;
    let task = submit(&world.admin, "eu").await;
    let held = worker.claim(25_000).await.unwrap();
    assert_eq!(worker.renew(&held).await.state, "live");
    assert_eq!(worker.report(&held, Outcome::Succeeded).await.unwrap_err(), "token_not_redeemed");
    worker.redeem(&held, 1).await.unwrap();
    assert_eq!(worker.renew(&held).await.state, "live");
    worker.report(&held, Outcome::Acknowledged).await.unwrap();
    worker.report(&held, Outcome::Succeeded).await.unwrap();
    assert_eq!(worker.renew(&held).await.state, "lease_closed");
    // The answer was lost and the report comes again: it adds nothing.
    let before = world.log().await.len();
    worker.report(&held, Outcome::Succeeded).await.unwrap();
    assert_eq!(world.log().await.len(), before);
    let done = reaches(&world.admin, &task, "succeeded").await;
    assert_eq!((&done["attempt"], &done["upstream_id"]), (&json!(1), &json!("up-1")));
    world.stop().await;
}

/// The whole protocol in JSON, and refusals of what has no business here.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn json_is_spoken_too_and_strangers_are_refused() {
    let world = World::pools(1).await;
    let mut worker = Bare::hello(&world, "eu", "gpu-01", 1).await;
    worker.form = Form::Json;
    let task = submit(&world.admin, "eu").await;
    let held = worker.claim(25_000).await.unwrap();
    assert_eq!(held.payload.as_deref(), Some("{\"say\":\"hello\"}"));
    worker.redeem(&held, 1).await.unwrap();
    worker.report(&held, Outcome::NotSent).await.unwrap();
    assert_eq!(reaches(&world.admin, &task, "retry_wait").await["code"], "test");
    // It is due after about a second, and is not lost on the way.
    let held = worker.claim(25_000).await.expect("the task is tried again");
    worker.redeem(&held, 1).await.unwrap();
    worker.report(&held, Outcome::Succeeded).await.unwrap();
    reaches(&world.admin, &task, "succeeded").await;

    let stranger = Bare::silent(&world, "us", "gpu-11", 5).await;
    assert_eq!(stranger.redeem(&held, 1).await.unwrap_err(), "incarnation_retired");
    let moved = Bare::hello(&world, "us", "gpu-11", 5).await;
    assert_eq!(moved.redeem(&held, 1).await.unwrap_err(), "wrong_worker");
    // Two workers want one task: one gets it.
    let second = Bare::hello(&world, "eu", "gpu-02", 6).await;
    let task = submit(&world.admin, "eu").await;
    let (holder, held) = tokio::select! {
        held = worker.claim(25_000) => (&worker, held.unwrap()),
        held = second.claim(25_000) => (&second, held.unwrap()),
    };
    assert_eq!((held.task.to_string(), held.attempt), (task, 1));
    // A pool that drains gives nothing out; what was leased is still redeemed; one that is disabled lets nothing go.
    world.admin.send(reqwest::Method::PUT, "/v1/pools/eu/state", json!({"state": "disabled"})).await.ok();
    assert_eq!(holder.redeem(&held, 1).await.unwrap_err(), "pool_not_enabled");
    world.admin.send(reqwest::Method::PUT, "/v1/pools/eu/state", json!({"state": "draining"})).await.ok();
    holder.redeem(&held, 1).await.unwrap();
    let refused = world.admin.send(reqwest::Method::DELETE, "/v1/pools/eu", json!({})).await;
    assert_eq!((refused.status, &refused.json()["code"]), (409, &json!("pool_not_empty")));
    world.stop().await;
}
