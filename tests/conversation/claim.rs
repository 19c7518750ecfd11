//! Of any number of equal requests one calls the model.

use futures_util::future::join_all;
use serde_json::json;
use signalbox_tests::{Behaviour, World};
use std::collections::HashSet;
use std::time::Duration;

fn deltas(count: usize) -> Behaviour {
    Behaviour::Deltas((0..count).map(|n| format!("t{n} ")).collect(), Duration::from_millis(5))
}

/// 50 equal requests over three replicas: one event claims, one call, one turn, fifty answers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_equal_turns_make_one_call() {
    let world = World::ready(3).await;
    let (model, workload, _) = world.model(deltas(20)).await;
    let conversation = world.admin.conversation(&workload).await;
    let path = format!("/v1/conversations/{conversation}/turns");
    // Keys in another order, and half of them streamed: still the same request.
    let requests = (0..50).map(|n| {
        let caller = world.admin_at(n % 3);
        let body = if n % 2 == 0 {
            r#"{"client_turn_id": "ct-2", "content": "hi", "temperature": 0}"#
        } else {
            r#"{"temperature":0,"content":"hi","client_turn_id":"ct-2","stream":true}"#
        };
        let request = caller.request(reqwest::Method::POST, &path).header("content-type", "application/json").body(body);
        async move { signalbox_tests::Answer::read(request.send().await.unwrap()).await }
    });
    let answers = join_all(requests).await;
    let mut turns = HashSet::new();
    for (n, answer) in answers.iter().enumerate() {
        assert_eq!(answer.status, 200, "{}", answer.text);
        let expected: String = (0..20).map(|n| format!("t{n} ")).collect();
        if n % 2 == 0 {
            let turn = answer.json();
            assert_eq!(turn["answer"]["content"], expected);
            turns.insert(turn["turn_id"].as_str().unwrap().to_owned());
        } else {
            turns.insert(answer.headers["x-signalbox-turn"].to_str().unwrap().to_owned());
            assert!(answer.text.contains("event: completed"), "{}", answer.text);
        }
    }
    assert_eq!(turns.len(), 1);
    assert_eq!(model.calls(), 1);
    let claims = world.log().await.iter().filter(|stored| stored.payload.windows(27).any(|part| part == b"conversation.turn_submitted")).count();
    assert_eq!(claims, 1);
    // The same key with another body is another request, and refused.
    let other = json!({"client_turn_id": "ct-2", "content": "something else"});
    world.admin.post(&path, other).await.refused(409, "idempotency_key_conflict");
    world.stop().await;
}

/// The same key in two accounts is two turns; naming another's conversation changes nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_do_not_meet_across_accounts() {
    let world = World::ready(1).await;
    let (model, workload, _) = world.model(deltas(2)).await;
    let other = world.stranger("b").await;
    let (their_workload, _) = other.endpoint(&model).await;
    let (mine, theirs) = (world.admin.conversation(&workload).await, other.conversation(&their_workload).await);
    let turn = json!({"client_turn_id": "ct-0001", "content": "hi"});
    let first = world.admin.post(&format!("/v1/conversations/{mine}/turns"), turn.clone()).await.ok();
    let second = other.post(&format!("/v1/conversations/{theirs}/turns"), turn.clone()).await.ok();
    assert_ne!(first["turn_id"], second["turn_id"]);
    let before = world.log().await.len();
    for path in [format!("/v1/conversations/{mine}/turns"), format!("/v1/conversations/{mine}/turns/")] {
        assert_eq!(other.post(&path, turn.clone()).await.status, 404);
    }
    other.get(&format!("/v1/conversations/{mine}")).await.refused(404, "not_found");
    other.get(&format!("/v1/conversations/{mine}/turns/{}", first["turn_id"].as_str().unwrap())).await.refused(404, "not_found");
    other.get(&format!("/v1/conversations/{mine}/events")).await.refused(404, "not_found");
    other.post("/v1/conversations", json!({"workload": workload})).await.refused(400, "invalid_field");
    assert_eq!(world.log().await.len(), before, "nothing was stated");
    assert_eq!(model.calls(), 2);
    world.stop().await;
}

/// A second, different turn waits for the first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_turn_runs_at_a_time() {
    let world = World::ready(1).await;
    let (_model, workload, _) = world.model(Behaviour::Hangs).await;
    let conversation = world.admin.conversation(&workload).await;
    let path = format!("/v1/conversations/{conversation}/turns");
    let first = world.admin.clone();
    let running = path.clone();
    let first = tokio::spawn(async move { first.post(&running, json!({"client_turn_id": "a", "content": "hi"})).await });
    let turn = loop {
        let shown = world.admin.get(&format!("/v1/conversations/{conversation}")).await.ok();
        if shown["turns"][0]["state"] == "running" {
            break shown["turns"][0]["turn_id"].as_str().unwrap().to_owned();
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    let second = world.admin.post(&path, json!({"client_turn_id": "b", "content": "hi"})).await;
    second.refused(409, "turn_in_progress");
    assert!(second.headers.contains_key("retry-after"));
    let cancelled = world.admin.post(&format!("{path}/{turn}/cancel"), json!({})).await.ok();
    assert_eq!(cancelled["state"], "cancelled");
    first.await.unwrap().refused(502, "turn_failed");
    world.stop().await;
}
