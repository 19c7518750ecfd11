//! Payloads and results that are too large for a message.

use super::reaches;
use futures_util::FutureExt;
use serde_json::json;
use signalbox_events::work::*;
use signalbox_tests::worker::{Bare, lease};
use signalbox_tests::{World, worker};
use signalbox_worker::Done;

/// Three-byte characters, so that pieces end within some.
fn large(bytes: usize) -> String {
    "\u{20ac}".repeat(bytes / 3)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_payloads_and_results_arrive_whole() {
    let world = World::pools(2).await;
    let (stop, running) = worker::start(&world, "eu", "gpu-01", 1, |job| {
        async move {
            let inline = job.assignment().payload.is_some();
            let payload = job.payload().await.unwrap();
            assert_eq!((payload.len() as u64, inline), (job.assignment().payload_bytes, payload.len() <= MOST_INLINE));
            job.redeem().await.unwrap();
            Done::Succeeded { result: payload, usage: None }
        }
        .boxed()
    });
    for bytes in [300_000, MOST_INLINE - 20, MOST_INLINE + 20, 5_000_000] {
        let payload = json!({"text": large(bytes)});
        let body = json!({"kind": "test.say", "payload": payload, "pool": "eu"});
        let task = world.admin.post("/v1/tasks", body).await.ok()["id"].as_str().unwrap().to_owned();
        reaches(&world.admin, &task, "succeeded").await;
        assert_eq!(world.admin.get(&format!("/v1/tasks/{task}/result")).await.ok(), payload, "{bytes}");
    }
    stop.cancel();
    running.await.unwrap().unwrap();
    world.stop().await;
}

/// Pieces are the holder's to read and to hand in, and only while that can count.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pieces_belong_to_the_lease() {
    let world = World::pools(1).await;
    let holder = Bare::hello(&world, "eu", "gpu-01", 1).await;
    let other = Bare::hello(&world, "eu", "gpu-02", 2).await;
    let body = json!({"kind": "test.say", "payload": {"text": large(1_000_000)}, "pool": "eu"});
    let task = world.admin.post("/v1/tasks", body).await.ok()["id"].as_str().unwrap().to_owned();
    let held = holder.claim(25_000).await.unwrap();
    assert_eq!(held.payload, None);
    let fetch = |worker: &Bare, offset| Fetch { incarnation: worker.incarnation, lease: lease(&held), offset };
    let store = |worker: &Bare, part, text: &str| StorePart { incarnation: worker.incarnation, lease: lease(&held), part, text: text.to_owned() };
    let piece: Fetched = holder.ask(Verb::Fetch, &fetch(&holder, 0)).await.unwrap();
    assert!(piece.text.len() <= MOST_PIECE && piece.next == Some(piece.text.len() as u64) && piece.total == held.payload_bytes);
    for bad in [11, held.payload_bytes + 1, u64::MAX] {
        assert_eq!(holder.ask::<Fetched>(Verb::Fetch, &fetch(&holder, bad)).await.err().as_deref(), Some("invalid_field"), "{bad}");
    }
    assert_eq!(other.ask::<Fetched>(Verb::Fetch, &fetch(&other, 0)).await.err().as_deref(), Some("wrong_worker"));
    assert_eq!(holder.ask::<Kept>(Verb::Store, &store(&holder, 0, "x")).await.err().as_deref(), Some("token_not_redeemed"));
    holder.redeem(&held, 1).await.unwrap();
    assert_eq!(other.ask::<Kept>(Verb::Store, &store(&other, 0, "x")).await.err().as_deref(), Some("wrong_worker"));
    let too_large = "x".repeat(MOST_PIECE + 1);
    assert_eq!(holder.ask::<Kept>(Verb::Store, &store(&holder, 0, &too_large)).await.err().as_deref(), Some("invalid_field"));
    // A piece that was handed in twice counts once; one that is missing is named, and nothing is half-stored.
    for text in ["{\"a\":", "{\"a\":"] {
        holder.ask::<Kept>(Verb::Store, &store(&holder, 0, text)).await.unwrap();
    }
    let report = |parts| Report {
        incarnation: holder.incarnation,
        lease: lease(&held),
        outcome: Outcome::Succeeded,
        code: None,
        upstream_status: None,
        upstream_id: None,
        retryable: false,
        retry_after_seconds: None,
        result: None,
        parts: Some(parts),
        detail: None,
        usage: None,
    };
    assert_eq!(holder.ask::<Taken>(Verb::Report, &report(2)).await.err().as_deref(), Some("invalid_field"));
    holder.ask::<Kept>(Verb::Store, &store(&holder, 1, "1}")).await.unwrap();
    holder.ask::<Taken>(Verb::Report, &report(2)).await.unwrap();
    // The answer was lost: the same report adds nothing.
    holder.ask::<Taken>(Verb::Report, &report(2)).await.unwrap();
    assert_eq!(world.admin.get(&format!("/v1/tasks/{task}/result")).await.ok(), json!({"a": 1}));
    assert_eq!(holder.ask::<Kept>(Verb::Store, &store(&holder, 0, "x")).await.err().as_deref(), Some("lease_closed"));
    assert_eq!(holder.ask::<Fetched>(Verb::Fetch, &fetch(&holder, 0)).await.err().as_deref(), Some("lease_closed"));
    world.stop().await;
}
