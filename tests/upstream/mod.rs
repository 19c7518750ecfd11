//! Upstreams: what they are, who may use them, and where their credentials go.

use reqwest::Method;
use serde_json::{Value, json};
use signalbox_tests::{Behaviour, Caller, Model, World, worker};
use std::time::Duration;

const SECRET: &str = "sk-canary-0123456789";

fn answers() -> Behaviour {
    Behaviour::Deltas(["The ", "cat"].map(str::to_owned).to_vec(), Duration::ZERO)
}

async fn register(caller: &Caller, name: &str, base_url: &str, shared: bool) -> String {
    let body = json!({"name": name, "base_url": base_url, "models": [{"name": "m", "kinds": ["chat.completions"]}], "shared": shared});
    let done = caller.post("/v1/upstreams", body).await.ok();
    let after = done["position"].as_str().unwrap();
    caller.get(&format!("/v1/upstreams?after={after}")).await.ok();
    done["id"].as_str().unwrap().to_owned()
}

async fn with_credential(caller: &Caller, id: &str) {
    let done = caller.send(Method::PUT, &format!("/v1/upstreams/{id}/credential"), json!({"secret": SECRET})).await.ok();
    caller.get(&format!("/v1/upstreams?after={}", done["position"].as_str().unwrap())).await.ok();
}

fn chat(model: &str) -> Value {
    json!({"model": model, "messages": [{"role": "user", "content": "hi"}]})
}

async fn world() -> World {
    let world = World::pools(1).await;
    world.admin.send(Method::PUT, "/v1/settings/platform/inference", json!({"enabled": true})).await.ok();
    world
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_credential_reaches_its_own_host_and_nobody_else() {
    let world = world().await;
    let (model, thief) = (Model::start(answers()).await, Model::start(answers()).await);
    let id = register(&world.admin, "example", &model.url, false).await;
    with_credential(&world.admin, &id).await;
    let shown = world.admin.get(&format!("/v1/upstreams/{id}")).await;
    assert_eq!(shown.ok()["credential"]["header"], "authorization");
    let (stop, running) = worker::reference(&world, "eu", "gpu-01", 1).await;
    let answer = world.admin.post("/v1/chat/completions", chat("example/m")).await.ok();
    assert_eq!((&answer["choices"][0]["message"]["content"], &answer["model"]), (&json!("The cat"), &json!("example/m")));
    assert_eq!(model.headers()[0]["authorization"], format!("Bearer {SECRET}"));
    assert_eq!(model.bodies()[0]["model"], "m");
    let models = world.admin.get("/v1/models").await.ok();
    assert_eq!(models["data"][0]["id"], "example/m", "{models}");
    assert_eq!(world.admin.get("/v1/models/example%2Fm").await.ok()["state"], "enabled");
    // Whoever names another place in a body is refused before anything is looked up.
    for field in ["api_base", "base_url", "endpoint", "extra_headers", "proxy"] {
        let mut body = chat("example/m");
        body[field] = thief.url.clone().into();
        world.admin.post("/v1/chat/completions", body.clone()).await.refused(400, "unknown_field");
        let task = json!({"kind": "chat.completions", "payload": body});
        world.admin.post("/v1/tasks", task).await.refused(400, "unknown_field");
    }
    // Another origin: the credential stays behind.
    world.admin.send(Method::PATCH, &format!("/v1/upstreams/{id}"), json!({"base_url": thief.url})).await.ok();
    world.admin.post("/v1/chat/completions", chat("example/m")).await.ok();
    assert!(thief.headers().iter().all(|headers| !headers.contains_key("authorization")));
    assert_eq!((model.calls(), thief.calls()), (1, 1));
    world.admin.send(Method::PATCH, &format!("/v1/upstreams/{id}"), json!({"base_url": model.url})).await.ok();
    world.admin.post("/v1/chat/completions", chat("example/m")).await.ok();
    assert!(!model.headers()[1].contains_key("authorization"), "it does not come back by itself");
    // A redirect would take it elsewhere, and is not followed.
    with_credential(&world.admin, &id).await;
    model.behave(Behaviour::Redirects(thief.url.clone() + "/chat/completions"));
    world.admin.post("/v1/chat/completions", chat("example/m")).await.refused(502, "upstream_rejected");
    assert_eq!(thief.calls(), 1);
    // It is nowhere in the clear: not on the log, not in the views, not in an answer.
    for stored in world.log().await {
        assert!(!String::from_utf8_lossy(&stored.payload).contains(SECRET), "{}", stored.subject);
    }
    let events = world.admin.get("/v1/upstreams").await.text;
    assert!(!events.contains(SECRET));
    stop.cancel();
    running.await.unwrap().unwrap();
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn upstreams_are_their_accounts_or_everyones() {
    let world = world().await;
    let model = Model::start(answers()).await;
    let (ada, bob) = (world.stranger("Ada").await, world.stranger("Bob").await);
    let own = register(&ada, "mine", &model.url, false).await;
    let shared = register(&world.admin, "everyones", &model.url, true).await;
    let names = async |caller: &Caller| {
        let page = caller.get("/v1/upstreams").await.ok();
        page["items"].as_array().unwrap().iter().map(|row| row["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!((names(&ada).await, names(&bob).await), (vec!["mine".to_owned(), "everyones".to_owned()], vec!["everyones".to_owned()]));
    // Foreign is nonexistent, for every route; everyone's is not everyone's to change.
    let unknown = "0190f3a8-7b1c-7def-8abc-0123456789ab";
    for (method, tail, body) in [
        (Method::GET, "", json!({})),
        (Method::PATCH, "", json!({"provider": "x"})),
        (Method::DELETE, "", json!({})),
        (Method::PUT, "/credential", json!({"secret": "x"})),
        (Method::PUT, "/state", json!({"enabled": false})),
    ] {
        let foreign = bob.send(method.clone(), &format!("/v1/upstreams/{own}{tail}"), body.clone()).await;
        let missing = bob.send(method.clone(), &format!("/v1/upstreams/{unknown}{tail}"), body.clone()).await;
        assert_eq!((foreign.status, foreign.json()), (404, missing.json()), "{method} {tail}");
        if method != Method::GET {
            bob.send(method, &format!("/v1/upstreams/{shared}{tail}"), body).await.refused(403, "forbidden");
        }
    }
    let twice = json!({"name": "mine", "base_url": "https://other.example/v1", "models": [{"name": "m"}]});
    ada.post("/v1/upstreams", twice.clone()).await.refused(409, "already_exists");
    let body = json!({"name": "x", "base_url": "https://other.example/v1", "models": [{"name": "m"}], "shared": true});
    bob.post("/v1/upstreams", body).await.refused(403, "forbidden");
    let plain = json!({"name": "plain", "base_url": "http://models.example/v1", "models": [{"name": "m"}]});
    let plain = bob.post("/v1/upstreams", plain).await.ok()["id"].as_str().unwrap().to_owned();
    let refused = bob.send(Method::PUT, &format!("/v1/upstreams/{plain}/credential"), json!({"secret": "x"})).await.refused(400, "invalid_field");
    assert_eq!(refused["field"], "secret");
    // No worker: refused at once and nothing is stored. Nobody's model, a kind that it does not serve, one that is switched off.
    let before = world.log().await.len();
    let refused = bob.post("/v1/chat/completions", chat("everyones/m")).await;
    refused.refused(503, "no_worker_available");
    assert_eq!(refused.headers["retry-after"], "1");
    bob.post("/v1/chat/completions", chat("mine/m")).await.refused(404, "model_not_found");
    bob.post("/v1/chat/completions", chat("everyones/n")).await.refused(404, "model_not_found");
    let task = json!({"kind": "embeddings", "payload": {"model": "everyones/m", "input": "x"}});
    bob.post("/v1/tasks", task).await.refused(404, "model_not_found");
    assert_eq!(world.log().await.len(), before);
    let off = world.admin.send(Method::PUT, &format!("/v1/upstreams/{shared}/state"), json!({"enabled": false, "reason": "slow"})).await.ok();
    world.admin.get(&format!("/v1/upstreams?after={}", off["position"].as_str().unwrap())).await.ok();
    bob.post("/v1/chat/completions", chat("everyones/m")).await.refused(409, "workload_not_ready");
    world.stop().await;
}

/// A worker that could not read a credential gets no token redeemed: the task goes back unsent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_without_a_key_is_given_no_credential() {
    let world = world().await;
    let model = Model::start(answers()).await;
    let id = register(&world.admin, "example", &model.url, false).await;
    with_credential(&world.admin, &id).await;
    let bare = worker::Bare::hello(&world, "eu", "gpu-01", 1).await;
    let task = json!({"kind": "chat.completions", "payload": chat("example/m"), "pool": "eu"});
    let task = world.admin.post("/v1/tasks", task).await.ok()["id"].as_str().unwrap().to_owned();
    let held = bare.claim(25_000).await.unwrap();
    assert_eq!(held.destination.as_ref().unwrap().base_url, model.url);
    assert_eq!(bare.redeem(&held, 1).await, Err("public_key_missing".to_owned()));
    assert_eq!(world.admin.get(&format!("/v1/tasks/{task}")).await.ok()["redemptions"], 0);
    world.stop().await;
}
