//! Deltas leave as they arrive; whatever happens, one terminal event says how it ended.

use serde_json::json;
use signalbox_tests::answer::Events;
use signalbox_tests::{Behaviour, World};
use std::collections::HashSet;
use std::time::{Duration, Instant};

/// 49 deltas, 24 ms apart, arrive apart.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deltas_arrive_one_by_one() {
    let world = World::ready(1).await;
    let words: Vec<String> = (1..=49).map(|n| format!("t{n:02} ")).collect();
    let (model, workload, route) = world.model(Behaviour::Deltas(words.clone(), Duration::from_millis(24))).await;
    let conversation = world.admin.conversation(&workload).await;
    let turn = json!({"client_turn_id": "a", "content": "hi", "stream": true});
    let response = world.admin.request(reqwest::Method::POST, &format!("/v1/conversations/{conversation}/turns")).json(&turn).send().await.unwrap();
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    assert_eq!(response.headers()["x-accel-buffering"], "no");
    assert_eq!(response.headers()["cache-control"], "no-cache");
    let events = Events::new(response).rest().await;
    let pieces: Vec<_> = events.iter().filter(|event| event.data["delta"]["content"].as_str().is_some_and(|text| !text.is_empty())).collect();
    assert_eq!(pieces.iter().map(|event| event.data["delta"]["content"].as_str().unwrap()).collect::<String>(), words.concat());
    arrive_apart(&pieces.iter().map(|event| event.at).collect::<Vec<_>>(), &model.sent());
    let ids: Vec<_> = events.iter().map(|event| event.id.clone()).collect();
    assert_eq!(ids.iter().collect::<HashSet<_>>().len(), ids.len(), "each event has an id of its own");
    assert_eq!(events.iter().filter(|event| event.name == "completed").count(), 1);
    assert_eq!(events.last().unwrap().name, "completed");

    let sent_before = model.sent().len();
    let body = json!({"model": route, "messages": [{"role": "user", "content": "hi"}], "stream": true});
    let events = world.admin.stream("/v1/chat/completions", body).await.rest().await;
    let pieces: Vec<_> =
        events.iter().filter(|event| event.data["choices"][0]["delta"]["content"].as_str().is_some_and(|text| !text.is_empty())).collect();
    arrive_apart(&pieces.iter().map(|event| event.at).collect::<Vec<_>>(), &model.sent()[sent_before..]);
    assert_eq!(events.last().unwrap().data, "[DONE]");
    world.stop().await;
}

fn arrive_apart(arrived: &[Instant], sent: &[Instant]) {
    assert_eq!(arrived.len(), 49);
    let distinct = arrived.windows(2).filter(|pair| pair[1] - pair[0] >= Duration::from_millis(2)).count() + 1;
    assert!(distinct >= 45, "{distinct} distinct arrival times");
    // A busy test machine may hold up single ones; as a rule a delta is passed on at once.
    let mut late: Vec<Duration> = arrived.iter().zip(sent).map(|(arrived, sent)| arrived.saturating_duration_since(*sent)).collect();
    late.sort();
    assert!(late[late.len() / 2] <= Duration::from_millis(50), "median delay {:?}", late[late.len() / 2]);
}

/// The model's connection breaks after two deltas: failed, with the text that had come, and never a success.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broken_model_fails_the_turn_with_its_partial_text() {
    let world = World::ready(1).await;
    let (model, workload, route) = world.model(Behaviour::Breaks(vec!["The ".to_owned(), "cat ".to_owned()])).await;
    let conversation = world.admin.conversation(&workload).await;
    let path = format!("/v1/conversations/{conversation}/turns");
    let events = world.admin.stream(&path, json!({"client_turn_id": "a", "content": "hi", "stream": true})).await.rest().await;
    let last = events.last().unwrap();
    assert_eq!((last.name.as_str(), &last.data["code"]), ("failed", &json!("upstream_disconnected")));
    let shown = world.admin.get(&format!("/v1/conversations/{conversation}")).await.ok();
    let turn = &shown["turns"][0];
    assert_eq!((&turn["state"], &turn["partial"], &turn["finish_reason"]), (&json!("failed"), &json!("The cat "), &json!(null)));
    // In the profile for OpenAI's clients: an error, then the end mark.
    let compatible = json!({"client_turn_id": "b", "content": "hi", "stream": true, "profile": "compatible"});
    let events = world.admin.stream(&path, compatible).await.rest().await;
    let errors: Vec<_> = events.iter().filter(|event| !event.data["error"].is_null()).collect();
    assert_eq!(errors.len(), 1);
    assert_eq!(errors[0].data["error"]["code"], "upstream_disconnected");
    assert_eq!(events.last().unwrap().data, "[DONE]");
    // The bare completion says so, too.
    let body = json!({"model": route, "messages": [{"role": "user", "content": "hi"}], "stream": true});
    let events = world.admin.stream("/v1/chat/completions", body).await.rest().await;
    assert_eq!(events[events.len() - 2].data["error"]["code"], "upstream_disconnected");
    assert_eq!(events.last().unwrap().data, "[DONE]");
    assert_eq!(model.calls(), 3, "nothing was sent again");
    world.stop().await;
}

/// A model that answers whole although it was asked to stream, and one that streams although it was not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn either_form_of_answer_is_taken() {
    let world = World::ready(1).await;
    let (model, workload, route) = world.model(Behaviour::NeverStreams("all at once".to_owned())).await;
    let conversation = world.admin.conversation(&workload).await;
    let path = format!("/v1/conversations/{conversation}/turns");
    let turn = world.admin.post(&path, json!({"client_turn_id": "a", "content": "hi"})).await.ok();
    assert_eq!((&turn["state"], &turn["answer"]["content"], &turn["usage"]["total_tokens"]), (&json!("completed"), &json!("all at once"), &json!(7)));
    model.behave(Behaviour::AlwaysStreams(vec!["a ".to_owned(), "b ".to_owned(), "c".to_owned()]));
    let body = json!({"model": route, "messages": [{"role": "user", "content": "hi"}], "stream": false});
    let whole = world.admin.post("/v1/chat/completions", body).await.ok();
    assert_eq!((&whole["object"], &whole["choices"][0]["message"]["content"]), (&json!("chat.completion"), &json!("a b c")));
    assert_eq!(whole["choices"][0]["finish_reason"], "stop");
    world.stop().await;
}

/// A refusal before the first byte reaches the caller as its status; one that concerns our own credential does not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refusals_of_the_model_are_told_without_our_secrets() {
    let world = World::ready(1).await;
    let canary = "Incorrect API key provided: sk-test-CANARY-1. See http://10.0.0.5/";
    let (model, workload, route) = world.model(Behaviour::Refuses(401, json!({"error": {"message": canary}}))).await;
    let conversation = world.admin.conversation(&workload).await;
    let body = json!({"model": route, "messages": [{"role": "user", "content": "hi"}]});
    let answer = world.admin.post("/v1/chat/completions", body.clone()).await;
    answer.refused(502, "upstream_auth_failed");
    assert!(!answer.text.contains("CANARY") && !answer.text.contains("10.0.0.5"));
    let answer = world.admin.post(&format!("/v1/conversations/{conversation}/turns"), json!({"client_turn_id": "a", "content": "hi"})).await;
    answer.refused(502, "upstream_auth_failed");
    let metrics = world.admin.get("/metrics").await.text;
    let events = world.admin.get(&format!("/v1/conversations/{conversation}/events")).await.text;
    for text in [&answer.text, &metrics, &events] {
        assert!(!text.contains("CANARY") && !text.contains("10.0.0.5"));
    }
    model.behave(Behaviour::Refuses(400, json!({"error": {"message": "too long"}})));
    let answer = world.admin.post("/v1/chat/completions", body).await;
    answer.refused(400, "upstream_rejected");
    assert!(answer.text.contains("too long"));
    world.stop().await;
}
