//! The unified list.

use reqwest::Method;
use serde_json::json;
use signalbox_projections::sqlx::{self, Connection, PgConnection};
use signalbox_tests::{Behaviour, Model, World};
use std::collections::BTreeSet;

/// Rows of the same second, and of the same microsecond, each appear once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_lose_no_row_of_the_same_moment() {
    let world = World::ready(1).await;
    let model = Model::start(Behaviour::Hangs).await;
    let spec = json!({"kind": "endpoint", "url": model.url, "model": "fake"});
    let mut position = String::new();
    for n in 0..17 {
        position =
            world.admin.post("/v1/workloads", json!({"name": format!("w{n}"), "spec": spec})).await.ok()["position"].as_str().unwrap().to_owned();
    }
    world.admin.get(&format!("/v1/workloads?after={position}")).await.ok();
    let mut db = PgConnection::connect(&world.config.database_url).await.unwrap();
    // Fifteen at .123456 of one second, one a microsecond later, one before.
    let sql = "UPDATE workload_list_v1 SET created_at = '2026-03-01T00:00:00.123456Z'::timestamptz
        + CASE display_name WHEN 'w15' THEN interval '1 microsecond' WHEN 'w16' THEN interval '-1 microsecond' ELSE interval '0' END";
    sqlx::query(sql).execute(&mut db).await.unwrap();
    let mut seen = Vec::new();
    let mut cursor = String::new();
    let mut pages = Vec::new();
    loop {
        let page = world.admin.get(&format!("/v1/workloads?limit=10{cursor}")).await.ok();
        let rows = page["items"].as_array().unwrap();
        pages.push(rows.len());
        seen.extend(rows.iter().map(|row| row["display_name"].as_str().unwrap().to_owned()));
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(pages, [10, 7], "and no third page");
    assert_eq!(seen.iter().collect::<BTreeSet<_>>().len(), 17);
    assert_eq!((seen[0].as_str(), seen[16].as_str()), ("w15", "w16"));
    // Cursors that were not given for this list.
    let good = world.admin.get("/v1/workloads?limit=10").await.ok()["next_cursor"].as_str().unwrap().to_owned();
    let other = world.stranger("b").await;
    for bad in [&good[..good.len() - 1], "e30", "eyJjcmVhdGVkIjoieCJ9", &"A".repeat(10_240)] {
        world.admin.get(&format!("/v1/workloads?cursor={bad}")).await.refused(400, "invalid_cursor");
    }
    other.get(&format!("/v1/workloads?cursor={good}")).await.refused(400, "invalid_cursor");
    world.admin.get(&format!("/v1/workloads?scope=account&cursor={good}")).await.refused(400, "invalid_cursor");
    for bad in ["limit=0", "limit=201", "limit=x", "category=y", "scope=z", "state=nope", "unknown=1"] {
        world.admin.get(&format!("/v1/workloads?{bad}")).await.refused(400, "invalid_query");
    }
    world.stop().await;
}

/// Nobody sees what is not theirs; switched off, deployments vanish but for the admins.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scopes_and_the_gate_hide_rows() {
    let world = World::ready(1).await;
    let (_model, workload, route) = world.model(Behaviour::Hangs).await;
    let other = world.stranger("b").await;
    assert_eq!(other.get("/v1/workloads").await.ok()["items"], json!([]));
    assert_eq!(other.get("/v1/workloads?scope=account").await.ok()["items"], json!([]));
    other.get("/v1/workloads?scope=all").await.refused(403, "forbidden");
    assert_eq!(world.admin.get("/v1/workloads?scope=all").await.ok()["items"].as_array().unwrap().len(), 1);
    let missing = other.get(&format!("/v1/workloads/{}", uuid::Uuid::nil())).await;
    for path in [format!("/v1/workloads/{workload}"), format!("/v1/workloads/{workload}/logs"), format!("/v1/workloads/{workload}/events")] {
        let foreign = other.get(&path).await;
        assert_eq!((foreign.status, &foreign.text), (missing.status, &missing.text), "foreign is as nonexistent");
    }
    for spelling in [workload.to_uppercase(), format!("{workload}/"), format!("%7B{workload}%7D")] {
        assert_eq!(world.admin.get(&format!("/v1/workloads/{spelling}")).await.status, 404);
    }
    // Off for the other's account: their own, too, are gone.
    let (theirs, _) = other.endpoint(&_model).await;
    assert_eq!(other.get("/v1/workloads").await.ok()["items"].as_array().unwrap().len(), 1);
    world.admin.send(Method::PUT, "/v1/settings/platform/inference", json!({"enabled": false})).await.ok();
    assert_eq!(other.get("/v1/workloads").await.ok()["items"], json!([]));
    assert_eq!(other.get("/v1/models").await.ok()["data"], json!([]));
    other.get(&format!("/v1/workloads/{theirs}")).await.refused(409, "feature_disabled");
    other.post("/v1/conversations", json!({"workload": theirs})).await.refused(409, "feature_disabled");
    let body = json!({"model": route, "messages": [{"role": "user", "content": "hi"}]});
    world.admin.post("/v1/chat/completions", body).await.refused(409, "feature_disabled");
    let spec = json!({"kind": "endpoint", "url": _model.url, "model": "fake"});
    world.admin.post("/v1/workloads", json!({"name": "x", "spec": spec})).await.refused(409, "feature_disabled");
    // Admins still list and delete.
    assert_eq!(world.admin.get("/v1/workloads?scope=all").await.ok()["items"].as_array().unwrap().len(), 2);
    world.admin.send(Method::DELETE, &format!("/v1/workloads/{theirs}"), json!({})).await.ok();
    world.stop().await;
}

/// The same key deploys once; another body under it is refused; a view that lags says so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn creations_are_idempotent_for_ever() {
    let world = World::ready(2).await;
    let body = |name: &str| json!({"name": name, "spec": {"kind": "endpoint", "url": "http://127.0.0.1:9/v1", "model": "m"}});
    let send = async |replica: usize, name: &str| {
        let request = world.admin_at(replica).request(Method::POST, "/v1/workloads").header("idempotency-key", "k-1");
        signalbox_tests::Answer::read(request.json(&body(name)).send().await.unwrap()).await
    };
    let first = send(0, "a").await.ok();
    for replica in [0, 1] {
        let again = send(replica, "a").await.ok();
        assert_eq!((&again["id"], &again["stated"]), (&first["id"], &json!(false)));
    }
    send(1, "b").await.refused(409, "idempotency_key_conflict");
    let behind = world.admin.get("/v1/workloads?after=0.999999").await;
    let problem = behind.refused(425, "view_behind");
    assert_eq!(problem["wanted"], "0.999999");
    world.admin.get("/v1/workloads?after=x").await.refused(400, "invalid_query");
    world.stop().await;
}
