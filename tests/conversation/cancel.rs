//! A client that leaves, and one that cancels.

use serde_json::json;
use signalbox_tests::{Behaviour, World};
use std::time::{Duration, Instant};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leaving_cancels_or_continues_as_asked() {
    let world = World::ready(1).await;
    let words: Vec<String> = (0..60).map(|n| format!("w{n} ")).collect();
    let (model, workload, route) = world.model(Behaviour::Deltas(words.clone(), Duration::from_millis(20))).await;
    let conversation = world.admin.conversation(&workload).await;
    let path = format!("/v1/conversations/{conversation}/turns");
    for (policy, expected) in [("cancel", "cancelled"), ("continue", "completed")] {
        let body = json!({"client_turn_id": policy, "content": "hi", "stream": true, "on_disconnect": policy});
        let mut stream = world.admin.stream(&path, body).await;
        for _ in 0..4 {
            stream.next().await.unwrap();
        }
        drop(stream);
        let left = Instant::now();
        let turn = loop {
            let shown = world.admin.get(&format!("/v1/conversations/{conversation}")).await.ok();
            let turn = shown["turns"].as_array().unwrap().last().unwrap().clone();
            if turn["state"] != "running" {
                break turn;
            }
            assert!(left.elapsed() < Duration::from_secs(20));
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        assert_eq!(turn["state"], expected);
        if expected == "cancelled" {
            assert!(left.elapsed() < Duration::from_secs(2));
            assert!(turn["partial"].as_str().unwrap().starts_with("w0 w1 "));
            assert!(turn["usage"]["total_tokens"].as_u64().unwrap() > 0 && turn["usage"]["estimated"] == true);
            assert_eq!(model.abandoned(), 1, "the model's call has ended");
        } else {
            assert_eq!(turn["answer"]["content"], words.concat());
        }
    }
    // A bare completion ends with its client.
    let body = json!({"model": route, "messages": [{"role": "user", "content": "hi"}], "stream": true});
    let mut stream = world.admin.stream("/v1/chat/completions", body).await;
    stream.next().await.unwrap();
    drop(stream);
    let until = Instant::now() + Duration::from_secs(2);
    while model.abandoned() < 2 {
        assert!(Instant::now() < until, "the model's call goes on");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(model.calls(), 3);
    world.stop().await;
}

/// A turn is cancelled through any replica.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_replica_can_cancel() {
    let world = World::ready(2).await;
    let (_model, workload, _) = world.model(Behaviour::Deltas((0..500).map(|n| format!("w{n} ")).collect(), Duration::from_millis(20))).await;
    let conversation = world.admin.conversation(&workload).await;
    let path = format!("/v1/conversations/{conversation}/turns");
    let mut stream = world.admin.stream(&path, json!({"client_turn_id": "a", "content": "hi", "stream": true})).await;
    let turn = stream.next().await.unwrap().id.split(':').next().unwrap().to_owned();
    let cancelled = world.admin_at(1).post(&format!("{path}/{turn}/cancel"), json!({})).await.ok();
    assert_eq!(cancelled["state"], "cancelled");
    let rest = stream.rest().await;
    assert_eq!(rest.last().unwrap().name, "cancelled");
    world.stop().await;
}
