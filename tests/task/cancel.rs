//! Cancels: at once where nothing can have been sent, by the holder's word where it can.

use super::{reaches, submit};
use futures_util::FutureExt;
use serde_json::json;
use signalbox_tests::{World, worker};
use signalbox_worker::Done;
use std::time::Duration;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancel_ends_what_waits_and_tells_who_works() {
    let world = World::pools(1).await;
    let waiting = submit(&world.admin, "us").await;
    world.admin.post(&format!("/v1/tasks/{waiting}/cancel"), json!({})).await.ok();
    reaches(&world.admin, &waiting, "cancelled").await;
    // The library's worker hears of it while it works.
    let (stop, running) = worker::start(&world, "eu", "gpu-01", 1, |job| {
        async move {
            job.redeem().await.unwrap();
            tokio::time::timeout(Duration::from_secs(30), job.cancelled().cancelled_owned()).await.unwrap();
            Done::Cancelled { partial: Some("so far".to_owned()), usage: None }
        }
        .boxed()
    });
    let task = submit(&world.admin, "eu").await;
    reaches(&world.admin, &task, "executing").await;
    world.admin.post(&format!("/v1/tasks/{task}/cancel"), json!({})).await.ok();
    reaches(&world.admin, &task, "cancelled").await;
    let refused = world.admin.get(&format!("/v1/tasks/{task}/result")).await;
    assert_eq!((refused.status, &refused.json()["code"]), (409, &json!("task_not_ended")));
    stop.cancel();
    running.await.unwrap().unwrap();
    world.stop().await;
}
