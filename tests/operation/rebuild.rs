//! A view rebuilt from the first event equals the live one.

use reqwest::Method;
use serde_json::json;
use signalbox_events::work::Outcome;
use signalbox_projections::{VIEWS, sqlx};
use signalbox_projector::rebuild;
use signalbox_tests::{Behaviour, World, worker::Bare};
use std::time::Duration;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rebuilt_view_equals_the_live_one_and_replaces_it() {
    let world = World::pools(1).await;
    world.admin.send(Method::PUT, "/v1/settings/platform/inference", json!({"enabled": true})).await.ok();
    let (_model, workload, _) = world.model(Behaviour::Deltas(vec!["ok".to_owned()], Duration::ZERO)).await;
    let conversation = world.admin.conversation(&workload).await;
    for n in 0..5 {
        let turn = json!({"client_turn_id": format!("t{n}"), "content": "hi"});
        world.admin.post(&format!("/v1/conversations/{conversation}/turns"), turn).await.ok();
    }
    let worker = Bare::hello(&world, "eu", "gpu-01", 1).await;
    world.admin.post("/v1/tasks", json!({"kind": "test.say", "payload": {}, "pool": "eu"})).await.ok();
    let task = worker.claim(25_000).await.unwrap();
    worker.redeem(&task, 1).await.unwrap();
    worker.report(&task, Outcome::Succeeded).await.unwrap();
    let upstream = json!({"name": "a", "base_url": "http://127.0.0.1:9", "models": [{"name": "m"}]});
    world.admin.post("/v1/upstreams", upstream).await.ok();
    let db = world.services[0].db.clone();
    for view in VIEWS {
        let rebuilt = rebuild(&world.services[0].ledger, &db, view).await.unwrap();
        assert!(rebuilt.equal(), "{}: {rebuilt:?}", view.name());
        assert!(rebuilt.tables.iter().any(|table| table.rows > 0), "{rebuilt:?}");
    }
    // A row that was tampered with is found, and put right.
    sqlx::query("UPDATE workload_list_v1 SET display_name = 'forged'").execute(&db).await.unwrap();
    let rebuilt = rebuild(&world.services[0].ledger, &db, signalbox_projections::view("workload_list").unwrap()).await.unwrap();
    assert_eq!((rebuilt.equal(), rebuilt.tables[0].different), (false, 1));
    assert_eq!(world.admin.get(&format!("/v1/workloads/{workload}")).await.ok()["display_name"], "fake");
    // The live projector goes on with the new tables.
    world.admin.send(Method::DELETE, &format!("/v1/workloads/{workload}"), json!({})).await.ok();
    world.admin.reaches(&workload, "deleted").await;
    world.stop().await;
}
