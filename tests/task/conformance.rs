//! One test for every worker that speaks the protocol: the one that ships, and the one in Python.

use super::reaches;
use reqwest::Method;
use serde_json::{Value, json};
use signalbox_embedded::nats::write_worker_seed;
use signalbox_embedded::testing::secrets;
use signalbox_events::work::MOST_INLINE;
use signalbox_tests::answer::Events;
use signalbox_tests::{Behaviour, Model, World, python};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};
use tokio::process::{Child, Command};

const SECRET: &str = "sk-canary-9876543210";

/// The product's own worker, built beside the tests.
fn shipped() -> Command {
    let mut path = std::env::current_exe().unwrap();
    path.pop();
    path.pop();
    let path = path.join("signalbox");
    assert!(path.exists(), "{} is not built: run the tests with --workspace", path.display());
    let mut command = Command::new(path);
    command.args(["worker", "run"]);
    command
}

/// The one in `examples/python-worker`.
async fn in_python() -> Command {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("examples/python-worker");
    let requirements = std::fs::read_to_string(folder.join("requirements.txt")).unwrap();
    let packages: Vec<&str> = requirements.lines().collect();
    let mut command = Command::new(python::with_packages("test-python-worker", &packages).await);
    command.arg("-B").arg(folder.join("main.py"));
    command
}

struct Driven {
    world: World,
    model: Model,
    child: Child,
    log: std::path::PathBuf,
}

impl Driven {
    async fn start(mut command: Command) -> Self {
        let world = World::pools(2).await;
        world.admin.send(Method::PUT, "/v1/settings/platform/inference", json!({"enabled": true})).await.ok();
        let model = Model::start(words()).await;
        let body = json!({"name": "example", "base_url": model.url, "models": [{"name": "m", "kinds": ["chat.completions"]}]});
        let upstream = world.admin.post("/v1/upstreams", body).await.ok()["id"].as_str().unwrap().to_owned();
        let set = world.admin.send(Method::PUT, &format!("/v1/upstreams/{upstream}/credential"), json!({"secret": SECRET})).await.ok();
        world.admin.get(&format!("/v1/upstreams?after={}", set["position"].as_str().unwrap())).await.ok();
        let seed = write_worker_seed(&secrets(), world.scratch.path(), "gpu-01").unwrap();
        let log = world.scratch.path().join("worker.log");
        command.args(["--pool", "eu", "--id", "gpu-01", "--nats", &world.config.nats.url, "--seed-file"]).arg(seed);
        let out = std::fs::File::create(&log).unwrap();
        command.stdin(Stdio::null()).stdout(out.try_clone().unwrap()).stderr(out).kill_on_drop(true);
        let child = command.spawn().unwrap();
        let driven = Self { world, model, child, log };
        driven.world.claims("gpu-01").await;
        driven
    }

    async fn submit(&self, payload: Value, more: Value) -> String {
        let mut body = json!({"kind": "chat.completions", "payload": payload, "pool": "eu"});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        self.world.admin.post("/v1/tasks", body).await.ok()["id"].as_str().unwrap().to_owned()
    }

    async fn ends(&self, task: &str, state: &str) -> Value {
        reaches(&self.world.admin, task, state).await
    }
}

fn words() -> Behaviour {
    Behaviour::Deltas(["The ", "cat ", "\u{20ac}"].map(str::to_owned).to_vec(), Duration::from_millis(5))
}

fn chat() -> Value {
    json!({"model": "example/m", "messages": [{"role": "user", "content": "hi"}]})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_shipped_worker_conforms() {
    conforms(Driven::start(shipped()).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_worker_in_python_conforms() {
    conforms(Driven::start(in_python().await).await).await;
}

async fn conforms(mut driven: Driven) {
    let admin = driven.world.admin.clone();
    // It is shown as it said hello.
    let shown = admin.get("/v1/workers").await.ok()["items"][0].clone();
    assert_eq!((&shown["pool"], &shown["protocol"], &shown["slots"]), (&json!("eu"), &json!(1), &json!(4)));
    assert_eq!(shown["kinds"], json!(["chat.completions", "completions", "embeddings"]));

    // Whole and streamed, with the upstream's credential and an idempotency key of the attempt.
    for streaming in [false, true] {
        let task = driven.submit(chat(), json!({"streaming": streaming})).await;
        let row = driven.ends(&task, "succeeded").await;
        assert_eq!((&row["redemptions"], &row["prompt_tokens"]), (&json!(1), &json!(3)), "{row}");
        let result = admin.get(&format!("/v1/tasks/{task}/result")).await.ok();
        let choice = &result["choices"][0];
        assert_eq!((&choice["message"]["content"], &choice["finish_reason"]), (&json!("The cat \u{20ac}"), &json!("stop")), "{result}");
    }
    let headers = driven.model.headers();
    assert!(headers.iter().all(|headers| headers["authorization"] == format!("Bearer {SECRET}")));
    assert_ne!(headers[0]["idempotency-key"], headers[1]["idempotency-key"]);
    assert_eq!(driven.model.bodies()[1]["stream_options"]["include_usage"], true);
    assert_eq!(driven.model.bodies()[1]["model"], "m");

    // Someone waits for it: deltas as they come.
    let body = json!({"kind": "chat.completions", "payload": chat(), "pool": "eu", "mode": "sync", "streaming": true});
    let response = admin.request(Method::POST, "/v1/tasks").json(&body).send().await.unwrap();
    let events: Vec<Value> = Events::new(response).rest().await.into_iter().map(|event| event.data).collect();
    let text: String = events.iter().filter_map(|event| event["delta"]["choices"][0]["delta"]["content"].as_str()).collect();
    assert_eq!(text, "The cat \u{20ac}", "{events:?}");

    // Every ending by what is known of it.
    let table = [
        (Behaviour::Refuses(400, json!({"error": {"message": "too long"}})), "failed", "upstream_rejected", Some(400)),
        (Behaviour::Refuses(401, json!({"error": {"message": "bad key sk-1"}})), "failed", "upstream_auth_failed", Some(401)),
        (Behaviour::Refuses(429, json!({})), "retry_wait", "too_many_requests", Some(429)),
        (Behaviour::Redirects("http://127.0.0.1:9/".to_owned()), "failed", "upstream_rejected", Some(307)),
        (Behaviour::Refuses(500, json!({})), "submission_unknown", "upstream_unreachable", None),
    ];
    for (behaviour, state, code, status) in table {
        driven.model.behave(behaviour.clone());
        let task = driven.submit(chat(), json!({})).await;
        let row = driven.ends(&task, state).await;
        assert_eq!((&row["code"], &row["upstream_status"]), (&json!(code), &json!(status)), "{behaviour:?}: {row}");
        admin.post(&format!("/v1/tasks/{task}/cancel"), json!({})).await;
    }
    let refused = json!({"kind": "chat.completions", "payload": chat(), "pool": "eu", "mode": "sync"});
    driven.model.behave(Behaviour::Refuses(400, json!({"error": {"message": "too long"}})));
    let said = admin.post("/v1/tasks", refused).await.refused(400, "upstream_rejected");
    assert_eq!(said["detail"], "the model refused the request: too long");
    driven.model.behave(Behaviour::Breaks(vec!["The ".to_owned()]));
    let task = driven.submit(chat(), json!({"streaming": true})).await;
    assert_eq!(driven.ends(&task, "failed").await["code"], "upstream_disconnected");
    let gone = json!({"name": "gone", "base_url": "http://127.0.0.1:9/v1", "models": [{"name": "m"}]});
    let gone = admin.post("/v1/upstreams", gone).await.ok();
    admin.get(&format!("/v1/upstreams?after={}", gone["position"].as_str().unwrap())).await.ok();
    let task = driven.submit(json!({"model": "gone/m", "messages": []}), json!({})).await;
    assert_eq!(driven.ends(&task, "retry_wait").await["code"], "upstream_unreachable");
    admin.post(&format!("/v1/tasks/{task}/cancel"), json!({})).await.ok();

    // Large texts, both ways.
    let large = "\u{20ac}".repeat(MOST_INLINE / 2);
    driven.model.behave(Behaviour::NeverStreams(large.clone()));
    let payload = json!({"model": "example/m", "messages": [{"role": "user", "content": large}]});
    let task = driven.submit(payload.clone(), json!({})).await;
    driven.ends(&task, "succeeded").await;
    assert_eq!(driven.model.bodies().last().unwrap()["messages"], payload["messages"]);
    let result = admin.get(&format!("/v1/tasks/{task}/result")).await.ok();
    assert_eq!(result["choices"][0]["message"]["content"], large);

    // Nothing is sent where nothing is to be.
    let before = driven.model.calls();
    let task = driven.submit(chat(), json!({"run_mode": "simulation"})).await;
    driven.ends(&task, "succeeded").await;
    assert_eq!(driven.model.calls(), before);

    // A cancel breaks the call off.
    driven.model.behave(Behaviour::Hangs);
    let task = driven.submit(chat(), json!({})).await;
    let until = Instant::now() + Duration::from_secs(30);
    while driven.model.calls() == before {
        assert!(Instant::now() < until, "the task is not sent");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    admin.post(&format!("/v1/tasks/{task}/cancel"), json!({})).await.ok();
    driven.ends(&task, "cancelled").await;

    // It drains in order: what runs goes on to its end.
    driven.model.behave(Behaviour::Deltas(vec!["x ".to_owned(); 20], Duration::from_millis(50)));
    let calls = driven.model.calls();
    let task = driven.submit(chat(), json!({"streaming": true})).await;
    while driven.model.calls() == calls {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let id = i32::try_from(driven.child.id().unwrap()).unwrap();
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(id), nix::sys::signal::Signal::SIGTERM).unwrap();
    assert!(driven.child.wait().await.unwrap().success(), "{}", std::fs::read_to_string(&driven.log).unwrap());
    driven.ends(&task, "succeeded").await;
    let until = Instant::now() + Duration::from_secs(20);
    while admin.get("/v1/workers").await.ok()["items"][0]["state"] != "gone" {
        assert!(Instant::now() < until, "it said no good-bye");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let log = std::fs::read_to_string(&driven.log).unwrap();
    assert!(!log.contains(SECRET) && !log.contains("The cat"), "{log}");
    driven.world.stop().await;
}
