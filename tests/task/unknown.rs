//! Submissions whose fate is unknown: never sent again by themselves.

use super::{reaches, submit};
use serde_json::json;
use signalbox_events::work::Outcome;
use signalbox_tests::{World, worker::Bare};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_may_have_been_sent_waits_for_evidence_or_an_operator() {
    let world = World::pools(1).await;
    let old = Bare::hello(&world, "eu", "gpu-01", 1).await;
    let (first, second) = (submit(&world.admin, "eu").await, submit(&world.admin, "eu").await);
    let mut held = [old.claim(25_000).await.unwrap(), old.claim(25_000).await.unwrap()];
    held.sort_by_key(|task| task.task.to_string() != first);
    for task in &held {
        old.redeem(task, 1).await.unwrap();
    }
    // The worker is gone in the middle of it.
    let fresh = Bare::hello(&world, "eu", "gpu-01", 2).await;
    for task in [&first, &second] {
        let row = reaches(&world.admin, task, "submission_unknown").await;
        assert_eq!((&row["evidence"], row["unknown_since"].is_string()), (&json!("worker_lost"), true), "{row}");
    }
    assert!(fresh.claim(1_500).await.is_none(), "nothing is sent again by itself");
    let page = world.admin.get("/v1/tasks?state=submission_unknown&scope=all").await.ok();
    assert_eq!(page["items"].as_array().unwrap().len(), 2);

    // Its own holder knows after all.
    old.report(&held[0], Outcome::Succeeded).await.unwrap();
    reaches(&world.admin, &first, "succeeded").await;
    assert_eq!(world.admin.get(&format!("/v1/tasks/{first}/result")).await.ok(), json!({"by": "bare"}));

    // An operator accepts that it may be paid twice; the old holder's result is evidence only.
    let path = format!("/v1/tasks/{second}/resolve");
    let refused = world.admin.post(&path, json!({"resolution": "accept_duplicate", "reason": " "})).await;
    assert_eq!((refused.status, &refused.json()["field"]), (400, &json!("reason")));
    world.admin.post(&path, json!({"resolution": "accept_duplicate", "reason": "asked the provider"})).await.ok();
    let again = fresh.claim(25_000).await.expect("it is sent again");
    old.report(&held[1], Outcome::Succeeded).await.unwrap();
    assert_eq!(old.report(&held[1], Outcome::Succeeded).await.unwrap_err(), "lease_superseded");
    assert_eq!(reaches(&world.admin, &second, "leased").await["epoch"], again.epoch);
    fresh.redeem(&again, 1).await.unwrap();
    fresh.report(&again, Outcome::Unknown).await.unwrap();
    reaches(&world.admin, &second, "submission_unknown").await;
    let resolved = json!({"resolution": "succeeded", "reason": "found in the bill", "result": {"by": "operator"}});
    world.admin.post(&path, resolved).await.ok();
    let done = reaches(&world.admin, &second, "succeeded").await;
    assert_eq!((&done["resolution"], &done["redemptions"]), (&json!("succeeded"), &json!(2)), "{done}");
    assert_eq!(world.admin.get(&format!("/v1/tasks/{second}/result")).await.ok(), json!({"by": "operator"}));
    world.stop().await;
}
