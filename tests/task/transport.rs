//! Calls that someone waits for, directly and through a worker: the same answers, errors and streams.

use reqwest::Method;
use serde_json::{Value, json};
use signalbox_tests::answer::{Answer, Events};
use signalbox_tests::{Behaviour, Caller, World, worker};
use std::time::{Duration, Instant};

async fn transport(world: &World, transport: &str) {
    world.admin.send(Method::PUT, "/v1/settings/account/transport", json!({"transport": transport})).await.ok();
}

fn words() -> Vec<String> {
    ["The ", "cat ", "sat"].map(str::to_owned).to_vec()
}

/// What a client sees, less what differs from call to call.
fn seen(answer: &Answer) -> (u16, Value) {
    (answer.status, answer.json())
}

async fn streamed(caller: &Caller, body: &Value) -> (u16, Vec<Value>) {
    let response = caller.request(Method::POST, "/v1/chat/completions").json(body).send().await.unwrap();
    if response.status() != 200 {
        let answer = Answer::read(response).await;
        return (answer.status, vec![answer.json()]);
    }
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    (200, Events::new(response).rest().await.into_iter().map(|event| event.data).collect())
}

/// Every behaviour of a model, whole and streamed, with and without usage: a client cannot tell the transports apart.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_cannot_tell_the_transports_apart() {
    let world = World::pools(1).await;
    world.admin.send(Method::PUT, "/v1/settings/platform/inference", json!({"enabled": true})).await.ok();
    let (model, workload, route) = world.model(Behaviour::Deltas(words(), Duration::ZERO)).await;
    let (stop, running) = worker::reference(&world, "eu", "gpu-01", 1).await;
    let behaviours = [
        Behaviour::Deltas(words(), Duration::ZERO),
        Behaviour::NeverStreams("whole".to_owned()),
        Behaviour::Breaks(words()),
        Behaviour::Refuses(400, json!({"error": {"message": "max_tokens is too large"}})),
        Behaviour::Refuses(401, json!({"error": {"message": "bad key sk-1234"}})),
        Behaviour::Refuses(429, json!({"error": {"message": "slow down"}})),
        Behaviour::Refuses(500, json!({"error": {"message": "broken"}})),
    ];
    for (index, behaviour) in behaviours.into_iter().enumerate() {
        model.behave(behaviour.clone());
        let plain = json!({"model": route, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 5});
        let mut stream = plain.clone();
        stream["stream"] = true.into();
        let mut usage = stream.clone();
        usage["stream_options"] = json!({"include_usage": true});
        let mut answers = Vec::new();
        for kind in ["direct", "lease"] {
            transport(&world, kind).await;
            let before = model.bodies().len();
            let whole = seen(&world.admin.post("/v1/chat/completions", plain.clone()).await);
            let chunks = (streamed(&world.admin, &stream).await, streamed(&world.admin, &usage).await);
            let conversation = world.admin.conversation(&workload).await;
            let turn = json!({"client_turn_id": "a", "content": "hi", "stream": true});
            let events = world.admin.stream(&format!("/v1/conversations/{conversation}/turns"), turn).await.rest().await;
            let events: Vec<(String, Value)> = events.into_iter().map(|event| (event.name, without_ids(event.data))).collect();
            answers.push((whole, chunks, events, model.bodies()[before..].to_vec()));
        }
        assert_eq!(answers[0], answers[1], "behaviour {index}: {behaviour:?}");
    }
    stop.cancel();
    running.await.unwrap().unwrap();
    world.stop().await;
}

fn without_ids(mut value: Value) -> Value {
    if let Some(fields) = value.as_object_mut() {
        fields.retain(|name, _| !name.ends_with("_id") && !name.ends_with("_at") && name != "id" && name != "created");
    }
    value
}

/// Deltas come one by one through a worker, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deltas_arrive_as_they_are_made() {
    let world = World::pools(2).await;
    world.admin.send(Method::PUT, "/v1/settings/platform/inference", json!({"enabled": true})).await.ok();
    let pause = Duration::from_millis(40);
    let (model, _, route) = world.model(Behaviour::Deltas(vec!["x ".to_owned(); 20], pause)).await;
    let (stop, running) = worker::reference(&world, "eu", "gpu-01", 1).await;
    transport(&world, "lease").await;
    for replica in 0..2 {
        let before = model.sent().len();
        let body = json!({"model": route, "messages": [{"role": "user", "content": "hi"}], "stream": true});
        let events = world.admin_at(replica).stream("/v1/chat/completions", body).await.rest().await;
        let at: Vec<Instant> = events.iter().filter(|event| event.data["choices"][0]["delta"]["content"] == "x ").map(|event| event.at).collect();
        let mut late: Vec<Duration> = at.iter().zip(&model.sent()[before..]).map(|(at, sent)| at.saturating_duration_since(*sent)).collect();
        late.sort();
        assert_eq!(late.len(), 20);
        assert!(late[10] < pause * 2, "median delay {:?}", late[10]);
    }
    stop.cancel();
    running.await.unwrap().unwrap();
    world.stop().await;
}

/// Whoever leaves, or cancels a turn, ends the worker's call; and without a worker the answer is a typed refusal.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leaving_ends_the_call_and_nobody_is_a_refusal() {
    let world = World::pools(1).await;
    world.admin.send(Method::PUT, "/v1/settings/platform/inference", json!({"enabled": true})).await.ok();
    let (model, workload, route) = world.model(Behaviour::Deltas(vec!["x ".to_owned(); 400], Duration::from_millis(50))).await;
    transport(&world, "lease").await;
    let body = json!({"model": route, "messages": [{"role": "user", "content": "hi"}], "stream": true});
    let refused = world.admin.post("/v1/chat/completions", body.clone()).await;
    refused.refused(503, "no_worker_available");
    let (stop, running) = worker::reference(&world, "eu", "gpu-01", 1).await;
    let mut events = world.admin.stream("/v1/chat/completions", body).await;
    events.next().await.unwrap();
    drop(events);
    let abandoned = async |count: usize| {
        let until = Instant::now() + Duration::from_secs(20);
        while model.abandoned() < count {
            assert!(Instant::now() < until, "the worker does not break the call off");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    abandoned(1).await;
    let conversation = world.admin.conversation(&workload).await;
    let path = format!("/v1/conversations/{conversation}/turns");
    let mut events = world.admin.stream(&path, json!({"client_turn_id": "a", "content": "hi", "stream": true})).await;
    let turn = loop {
        let event = events.next().await.unwrap();
        if event.name == "delta" {
            break event.id.split(':').next().unwrap().to_owned();
        }
    };
    world.admin.post(&format!("{path}/{turn}/cancel"), json!({})).await.ok();
    assert_eq!(events.rest().await.last().unwrap().name, "cancelled");
    abandoned(2).await;
    // The workers report that they broke off.
    let until = Instant::now() + Duration::from_secs(20);
    while world.admin.get("/v1/tasks?state=cancelled").await.ok()["items"].as_array().unwrap().len() < 2 {
        assert!(Instant::now() < until, "the tasks are not cancelled");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    stop.cancel();
    running.await.unwrap().unwrap();
    world.stop().await;
}
