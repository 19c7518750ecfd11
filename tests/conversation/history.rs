//! What the model is given: finished turns, unchanged.

use serde_json::json;
use signalbox_tests::{Behaviour, World};
use std::time::Duration;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_finished_turns_join_the_history_and_parts_stay_as_they_were() {
    let world = World::ready(1).await;
    let answer = || Behaviour::Deltas(vec!["four".to_owned()], Duration::ZERO);
    let (model, workload, route) = world.model(answer()).await;
    let conversation = world.admin.conversation(&workload).await;
    let path = format!("/v1/conversations/{conversation}/turns");
    world.admin.post(&path, json!({"client_turn_id": "a", "content": "2+2?"})).await.ok();
    model.behave(Behaviour::Breaks(vec!["half".to_owned()]));
    world.admin.post(&path, json!({"client_turn_id": "b", "content": "lost"})).await.refused(502, "upstream_disconnected");
    model.behave(answer());
    // Escaped letters that only look like NUL are text; numbers keep their digits.
    let parts = json!([{"type": "text", "text": "why? \\u0000"}, {"type": "image_url", "image_url": {"url": "data:,"}}]);
    let body =
        json!({"client_turn_id": "c", "messages": [{"role": "user", "content": parts}], "seed": 1_000_000_000_000_000_i64, "unknown": {"x": 1.0}});
    world.admin.post(&path, body).await.ok();
    let sent = model.bodies().pop().unwrap();
    let expected = json!([
        {"role": "user", "content": "2+2?"},
        {"role": "assistant", "content": "four"},
        {"role": "user", "content": parts},
    ]);
    assert_eq!(sent["messages"], expected);
    assert_eq!(sent["seed"].to_string(), "1000000000000000");
    assert_eq!(sent["unknown"].to_string(), r#"{"x":1.0}"#);
    let shown = world.admin.get(&format!("/v1/conversations/{conversation}")).await.ok();
    assert_eq!(shown["turns"][2]["messages"][0]["content"], parts);
    assert_eq!(shown["title"], "2+2?");

    // A bare completion passes history through as it came: assistant parts, tool calls, tool answers.
    let call = json!({"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}});
    let history = json!([
        {"role": "user", "content": "2+2?"},
        {"role": "assistant", "content": [{"type": "text", "text": "4"}]},
        {"role": "assistant", "content": null, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "ok"}]},
        {"role": "user", "content": "why?"},
    ]);
    world.admin.post("/v1/chat/completions", json!({"model": route, "messages": history})).await.ok();
    assert_eq!(model.bodies().pop().unwrap()["messages"], history);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conversations_are_listed_renamed_and_deleted() {
    let world = World::ready(1).await;
    let (_model, workload, _) = world.model(Behaviour::Hangs).await;
    let first = world.admin.conversation(&workload).await;
    let second = world.admin.conversation(&workload).await;
    let done = world.admin.send(reqwest::Method::PATCH, &format!("/v1/conversations/{first}"), json!({"title": "Mine"})).await.ok();
    let position = done["position"].as_str().unwrap();
    let page = world.admin.get(&format!("/v1/conversations?limit=1&after={position}")).await.ok();
    assert_eq!((&page["items"][0]["id"], &page["items"][0]["title"]), (&json!(first), &json!("Mine")));
    let cursor = page["next_cursor"].as_str().unwrap();
    let page = world.admin.get(&format!("/v1/conversations?limit=1&cursor={cursor}")).await.ok();
    assert_eq!((&page["items"][0]["id"], &page["next_cursor"]), (&json!(second), &json!(null)));
    let done = world.admin.send(reqwest::Method::DELETE, &format!("/v1/conversations/{second}"), json!({})).await.ok();
    world.admin.get(&format!("/v1/conversations/{second}")).await.refused(404, "not_found");
    let page = world.admin.get(&format!("/v1/conversations?after={}", done["position"].as_str().unwrap())).await.ok();
    assert_eq!(page["items"].as_array().unwrap().len(), 1);
    world.stop().await;
}
