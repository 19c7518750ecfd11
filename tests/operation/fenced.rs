//! Two projectors on one log: each event once, in order, whatever is killed.

use serde_json::json;
use signalbox::serve::{Role, Service};
use signalbox_projections::checkpoint::{advance, position};
use signalbox_projections::{VIEWS, sqlx};
use signalbox_projector::rebuild;
use signalbox_tests::World;
use std::time::Duration;

/// A checkpoint only moves from where it is said to be, and never back: a number that comes late is never passed over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_checkpoint_is_a_contiguous_prefix() {
    let world = World::ready(1).await;
    let db = &world.services[0].db;
    sqlx::query("INSERT INTO checkpoint VALUES ('a_v1', 0, 10, now(), 0)").execute(db).await.unwrap();
    let mut connection = db.acquire().await.unwrap();
    // 12 is done before 11: whoever has 12 would move from 11, and the checkpoint is at 10.
    assert!(!advance(&mut connection, "a_v1", 0, 11, 12).await.unwrap());
    assert_eq!(position(db, "a_v1", 0).await.unwrap(), 10);
    assert!(advance(&mut connection, "a_v1", 0, 10, 11).await.unwrap());
    assert!(!advance(&mut connection, "a_v1", 0, 10, 11).await.unwrap(), "once");
    assert!(advance(&mut connection, "a_v1", 0, 11, 12).await.unwrap());
    assert!(!advance(&mut connection, "a_v1", 0, 12, 5).await.unwrap(), "never back");
    drop(connection);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_projectors_take_each_event_once() {
    let world = World::ready(1).await;
    let second = Service::start(&world.config, &[Role::Projector]).await.unwrap();
    let db = world.services[0].db.clone();
    for n in 0..200 {
        let spec = json!({"kind": "endpoint", "url": "http://127.0.0.1:9/v1", "model": "m"});
        world.admin.post("/v1/workloads", json!({"name": format!("w{n}"), "spec": spec})).await.ok();
        if n % 20 == 10 {
            // Whoever holds the partition's lock loses it, in the middle of things.
            let sql = "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) AND pid <> pg_backend_pid()";
            sqlx::query(sql).execute(&db).await.unwrap();
        }
    }
    let last = world.services[0].ledger.journal().tail(0).await.unwrap().last;
    for _ in 0..1000 {
        if position(&db, "workload_list_v1", 0).await.unwrap() >= last {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    for view in VIEWS {
        let rebuilt = rebuild(&world.services[0].ledger, &db, view).await.unwrap();
        assert!(rebuilt.equal(), "{}: {rebuilt:?}", view.name());
    }
    second.stop().await;
    world.stop().await;
}
