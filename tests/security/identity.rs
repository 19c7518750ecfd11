//! Who someone is comes from the credential alone.

use reqwest::Method;
use reqwest::header::{AUTHORIZATION, HeaderValue};
use serde_json::json;
use signalbox_tests::{Answer, World};
use std::time::{Duration, Instant};

/// Whatever is wrong with a key, the answer is the same, and takes as long.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_keys_are_all_alike() {
    let world = World::start(1).await;
    let long = format!("Bearer {}", "k".repeat(60_000));
    let bad: Vec<HeaderValue> = ["Bearer x' OR '1'='1' --", "Bearer \\u0000", &long, "Bearer %s%s", "Bearer ", "Basic eDp5", "sbk_x"]
        .iter()
        .map(|text| HeaderValue::from_str(text).unwrap())
        .chain([HeaderValue::from_bytes(b"Bearer \xff\xfe").unwrap()])
        .collect();
    let url = format!("{}/v1/settings", world.admin.url);
    let mut bodies = Vec::new();
    // One after the other, again and again, and of each the shortest: what else the machine does hits all alike.
    let mut shortest = vec![Duration::MAX; bad.len()];
    for _ in 0..25 {
        for (header, shortest) in bad.iter().zip(&mut shortest) {
            let since = Instant::now();
            let answer = Answer::read(world.admin.http.get(&url).header(AUTHORIZATION, header.clone()).send().await.unwrap()).await;
            *shortest = since.elapsed().min(*shortest);
            answer.refused(401, "unauthenticated");
            bodies.push(answer.text);
        }
    }
    let twice = world.admin.http.get(&url).header(AUTHORIZATION, format!("Bearer {}", world.admin.key)).header(AUTHORIZATION, "Bearer x");
    bodies.push(Answer::read(twice.send().await.unwrap()).await.text);
    bodies.push(Answer::read(world.admin.http.get(&url).send().await.unwrap()).await.text);
    assert!(bodies.iter().all(|body| *body == bodies[0]));
    let spread = *shortest.iter().max().unwrap() - *shortest.iter().min().unwrap();
    assert!(spread < Duration::from_millis(5), "{shortest:?}");
    world.stop().await;
}

/// Headers and fields that claim another identity change nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claims_of_identity_are_not_believed() {
    let world = World::ready(1).await;
    let victim = world.stranger("victim").await;
    let account = victim.get("/v1/accounts/current").await.ok()["id"].as_str().unwrap().to_owned();
    let body = json!({"name": "a", "spec": {"kind": "endpoint", "url": "http://127.0.0.1:9/v1", "model": "m"}});
    let claimed = world
        .admin
        .request(Method::POST, "/v1/workloads")
        .header("nats-request-info", "x")
        .header("x-tenant", &account)
        .header("x-forwarded-user", &account);
    Answer::read(claimed.json(&body).send().await.unwrap()).await.ok();
    assert_eq!(victim.get("/v1/workloads?scope=account").await.ok()["items"], json!([]));
    for name in ["account", "tenant_id"] {
        let mut body = body.clone();
        body[name] = account.as_str().into();
        assert_eq!(world.admin.post("/v1/workloads", body).await.refused(403, "account_mismatch")["field"], name);
    }
    for stored in world.log().await {
        assert!(!stored.payload.windows(9).any(|part| part == b"forwarded"), "headers are not copied into events");
    }
    world.stop().await;
}

/// No field of a body chooses where a request, and so a credential, goes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_cannot_redirect_the_call() {
    let world = World::ready(1).await;
    let trap = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", trap.local_addr().unwrap());
    let (model, workload, route) = world.model(signalbox_tests::Behaviour::Deltas(vec!["x".to_owned()], Duration::ZERO)).await;
    let conversation = world.admin.conversation(&workload).await;
    for name in ["api_base", "base_url", "endpoint", "extra_headers", "proxy"] {
        let mut body = json!({"model": route, "messages": [{"role": "user", "content": "hi"}]});
        body[name] = url.as_str().into();
        assert_eq!(world.admin.post("/v1/chat/completions", body).await.refused(400, "unknown_field")["field"], name);
        let mut turn = json!({"client_turn_id": name, "content": "hi"});
        turn[name] = url.as_str().into();
        world.admin.post(&format!("/v1/conversations/{conversation}/turns"), turn).await.refused(400, "unknown_field");
    }
    // Nested it is the model's own data, and goes nowhere.
    let nested = json!({"model": route, "messages": [{"role": "user", "content": "hi"}], "metadata": {"base_url": url}});
    world.admin.post("/v1/chat/completions", nested).await.ok();
    assert_eq!(model.calls(), 1);
    assert!(tokio::time::timeout(Duration::from_millis(100), trap.accept()).await.is_err(), "nothing connects to the trap");
    world.stop().await;
}
