//! Accounts, members and keys.

use reqwest::Method;
use serde_json::json;
use signalbox_tests::World;
use std::time::{Duration, Instant};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_are_issued_used_and_revoked_on_every_replica() {
    let world = World::start(2).await;
    let account = world.admin.get("/v1/accounts/current").await.ok();
    assert_eq!((&account["name"], &account["members"][0]["name"]), (&json!("default"), &json!("admin")));
    let issued = world.admin.post("/v1/accounts/current/keys", json!({"label": "laptop", "roles": ["member"]})).await.ok();
    let (id, secret) = (issued["id"].as_str().unwrap(), issued["secret"].as_str().unwrap());
    let second = world.caller(1, secret);
    wait(|| async { second.get("/v1/settings").await.status == 200 }).await;
    second.get("/v1/accounts").await.refused(403, "forbidden");
    second.post("/v1/accounts/current/keys", json!({"label": "x", "roles": ["member"]})).await.refused(403, "forbidden");
    second.send(Method::PUT, "/v1/settings/platform/inference", json!({"enabled": true})).await.refused(403, "forbidden");
    let listed = world.admin.get("/v1/accounts/current/keys").await;
    assert!(!listed.text.contains(secret) && listed.text.contains("laptop"));
    assert!(!world.log().await.iter().any(|stored| stored.payload.windows(secret.len()).any(|part| part == secret.as_bytes())));
    world.admin.send(Method::DELETE, &format!("/v1/accounts/current/keys/{id}"), json!({})).await.ok();
    let since = Instant::now();
    wait(|| async { second.get("/v1/settings").await.status == 401 }).await;
    assert!(since.elapsed() < Duration::from_secs(5));
    // An end in the past is refused; one in the future comes.
    let soon = (signalbox::clock::now() + chrono::Duration::seconds(1)).to_rfc3339();
    let issued = world.admin.post("/v1/accounts/current/keys", json!({"label": "short", "roles": ["member"], "expires_at": soon})).await.ok();
    let short = world.caller(1, issued["secret"].as_str().unwrap());
    wait(|| async { short.get("/v1/settings").await.status == 401 }).await;
    let past = json!({"label": "late", "roles": ["member"], "expires_at": "2020-01-01T00:00:00Z"});
    assert_eq!(world.admin.post("/v1/accounts/current/keys", past).await.refused(400, "invalid_field")["field"], "expires_at");
    world.stop().await;
}

/// An admin of one account is nobody in another.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn accounts_are_closed_to_each_other() {
    let world = World::start(1).await;
    let (a, b) = (world.stranger("a").await, world.stranger("b").await);
    let account = a.get("/v1/accounts/current").await.ok()["id"].as_str().unwrap().to_owned();
    for path in [format!("/v1/accounts/{account}"), format!("/v1/accounts/{account}/keys")] {
        b.get(&path).await.refused(404, "not_found");
        world.admin.get(&path).await.ok();
    }
    let member = json!({"name": "x", "roles": ["member"]});
    b.post(&format!("/v1/accounts/{account}/members"), member.clone()).await.refused(404, "not_found");
    let admin = json!({"name": "x", "roles": ["platform_admin"]});
    a.post("/v1/accounts/current/members", admin).await.refused(403, "forbidden");
    a.post("/v1/accounts/current/members", member).await.ok();
    world.stop().await;
}

async fn wait<F: Future<Output = bool>>(mut check: impl FnMut() -> F) {
    for _ in 0..500 {
        if check().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("it does not come about");
}
