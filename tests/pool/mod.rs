//! Pools: what operators make of them, and what everyone else may not.

mod watch;

use reqwest::Method;
use serde_json::json;
use signalbox_tests::World;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pool_is_created_described_switched_and_deleted_by_operators() {
    let world = World::start(1).await;
    let refused = world.admin.post("/v1/tasks", json!({"kind": "chat", "payload": {}})).await;
    assert_eq!((refused.status, &refused.json()["code"]), (409, &json!("pool_not_enabled")), "there is no pool yet");
    let body = json!({"id": "eu", "description": "Frankfurt", "priority": 3, "labels": {"region": "eu"}});
    let made = world.admin.post("/v1/pools", body.clone()).await.ok();
    assert_eq!((&made["id"], &made["stated"]), (&json!("eu"), &json!(true)));
    assert_eq!(world.admin.post("/v1/pools", body).await.ok()["stated"], false);
    for (id, code, field) in [("gateway", "invalid_field", "id"), ("EU", "invalid_field", "id"), ("", "invalid_field", "id")] {
        let refused = world.admin.post("/v1/pools", json!({"id": id})).await.json();
        assert_eq!((&refused["code"], &refused["field"]), (&json!(code), &json!(field)));
    }
    assert_eq!(world.admin.post("/v1/pools", json!({"id": "eu"})).await.json()["code"], "pool_exists");
    let changed = world.admin.send(Method::PATCH, "/v1/pools/eu", json!({"tier": 2})).await.ok();
    let shown = world.admin.get(&format!("/v1/pools/eu?after={}", changed["position"].as_str().unwrap())).await.ok();
    assert_eq!((&shown["tier"], &shown["priority"], &shown["description"]), (&json!(2), &json!(3), &json!("Frankfurt")));
    let switched = world.admin.send(Method::PUT, "/v1/pools/eu/state", json!({"state": "cordoned", "reason": "upgrade"})).await.ok();
    let shown = world.admin.get(&format!("/v1/pools?after={}", switched["position"].as_str().unwrap())).await.ok();
    assert_eq!((&shown["items"][0]["state"], &shown["items"][0]["reason"]), (&json!("cordoned"), &json!("upgrade")));
    let bad = world.admin.send(Method::PUT, "/v1/pools/eu/state", json!({"state": "off"})).await;
    assert_eq!((bad.status, &bad.json()["field"]), (400, &json!("state")));

    let member = world.stranger("Bob").await;
    for (method, path) in
        [(Method::POST, "/v1/pools"), (Method::PATCH, "/v1/pools/eu"), (Method::PUT, "/v1/pools/eu/state"), (Method::DELETE, "/v1/pools/eu")]
    {
        let refused = member.send(method, path, json!({"id": "x", "state": "enabled"})).await;
        assert_eq!((refused.status, &refused.json()["code"]), (403, &json!("forbidden")), "{path}");
    }
    assert_eq!(member.get("/v1/workers").await.status, 403);
    assert_eq!(member.get("/v1/pools").await.ok()["items"].as_array().unwrap().len(), 1);

    let gone = world.admin.send(Method::DELETE, "/v1/pools/eu", json!({})).await.ok();
    assert_eq!(world.admin.get(&format!("/v1/pools/eu?after={}", gone["position"].as_str().unwrap())).await.status, 404);
    world.stop().await;
}
