//! `signalbox dev` as a process: one a folder, nothing left behind, and back after everything was killed.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use reqwest::{Client, Method};
use serde_json::{Value, json};
use signalbox_embedded::testing::Scratch;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

const BINARY: &str = env!("CARGO_BIN_EXE_signalbox");

/// A running `dev`.
struct Dev {
    child: Child,
    output: Lines<BufReader<ChildStdout>>,
    url: String,
    key: String,
    http: Client,
}

fn command(data: &Path, more: &[&str]) -> Command {
    let mut command = Command::new(BINARY);
    command.args(["dev", "--port", "0", "--no-model", "--data"]).arg(data).args(more);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    command
}

impl Dev {
    async fn start(data: &Path) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut child = command(data, &["--new-admin-key"]).spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut errors = BufReader::new(child.stderr.take().unwrap()).lines();
        let said = tokio::spawn(async move {
            let mut said = String::new();
            while let Ok(Some(line)) = errors.next_line().await {
                said = format!("{said}{line}\n");
            }
            said
        });
        let Some(line) = output.next_line().await.unwrap() else { panic!("dev did not start:\n{}", said.await.unwrap()) };
        let of = |name: &str| line.split_whitespace().find_map(|word| word.strip_prefix(name)).expect("an export line").to_owned();
        let (url, key) = (of("SIGNALBOX_URL="), of("SIGNALBOX_KEY="));
        let dev = Self { child, output, url, key, http: Client::builder().no_proxy().build().unwrap() };
        dev.until("the key works", async || dev.get("/v1/settings").await.get("inference_enabled").is_some()).await;
        dev
    }

    async fn call(&self, method: Method, path: &str, body: Value) -> Value {
        let request = self.http.request(method, format!("{}{path}", self.url)).bearer_auth(&self.key);
        request.json(&body).send().await.unwrap().json().await.unwrap()
    }

    async fn get(&self, path: &str) -> Value {
        self.http.get(format!("{}{path}", self.url)).bearer_auth(&self.key).send().await.unwrap().json().await.unwrap()
    }

    async fn until(&self, what: &str, mut check: impl AsyncFnMut() -> bool) {
        let end = Instant::now() + Duration::from_secs(90);
        while !check().await {
            assert!(Instant::now() < end, "gave up waiting until {what}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    async fn stop(mut self) -> ExitStatus {
        let id = i32::try_from(self.child.id().unwrap()).unwrap();
        kill(Pid::from_raw(id), Signal::SIGTERM).unwrap();
        while self.output.next_line().await.unwrap().is_some() {}
        self.child.wait().await.unwrap()
    }
}

/// Every process whose command line names the folder.
fn processes(data: &Path) -> Vec<i32> {
    let mark = data.canonicalize().unwrap_or(data.to_owned()).display().to_string();
    let all = std::fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let own = i32::try_from(std::process::id()).unwrap();
    let names = |id: &i32| std::fs::read(format!("/proc/{id}/cmdline")).is_ok_and(|line| String::from_utf8_lossy(&line).contains(&mark));
    all.filter(|id| *id != own).filter(names).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_dev_a_folder_and_nothing_left_behind() {
    let scratch = Scratch::new("dev");
    let data = scratch.path().join("data");
    let dev = Dev::start(&data).await;
    assert!(processes(&data).len() >= 3, "the service and two servers");
    let second = command(&data, &[]).output().await.unwrap();
    let said = String::from_utf8_lossy(&second.stderr);
    assert!(!second.status.success() && said.contains("is in use by another `signalbox dev`"), "{said}");
    let ready = dev.get("/readyz").await;
    assert_eq!(ready["ready"], true, "{ready}");
    assert!(dev.stop().await.success());
    assert_eq!(processes(&data), Vec::<i32>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_everything_was_killed_the_next_start_recovers() {
    let scratch = Scratch::new("killed");
    let data = scratch.path().join("data");
    let dev = Dev::start(&data).await;
    dev.call(Method::PUT, "/v1/settings/platform/inference", json!({"enabled": true})).await;
    let spec = json!({"kind": "local-inference", "runtime": "echo", "parameters": {"delay": "100"}});
    let workload = dev.call(Method::POST, "/v1/workloads", json!({"name": "slow", "spec": spec})).await["id"].as_str().unwrap().to_owned();
    let path = format!("/v1/workloads/{workload}");
    dev.until("it runs", async || dev.get(&path).await["state"] == "running").await;
    let conversation = dev.call(Method::POST, "/v1/conversations", json!({"workload": workload})).await["id"].as_str().unwrap().to_owned();
    let shown = format!("/v1/conversations/{conversation}");
    let body = json!({"client_turn_id": "a", "content": "word ".repeat(500), "stream": true});
    let mut stream = dev.http.post(format!("{}{shown}/turns", dev.url)).bearer_auth(&dev.key).json(&body).send().await.unwrap();
    let mut arrived = String::new();
    while !arrived.contains("runtime") {
        arrived.push_str(&String::from_utf8_lossy(&stream.chunk().await.unwrap().unwrap()));
    }
    for id in processes(&data) {
        let _ = kill(Pid::from_raw(id), Signal::SIGKILL);
    }
    drop((stream, dev));

    let dev = Dev::start(&data).await;
    dev.until("the turn has ended", async || dev.get(&shown).await["turns"][0]["state"] != "running").await;
    let turn = dev.get(&shown).await["turns"][0].clone();
    assert_eq!(turn["state"], "interrupted", "{turn}");
    assert!(turn["partial"].as_str().unwrap().starts_with("This is the echo test runtime"), "{turn}");
    dev.until("it runs again", async || dev.get(&path).await["state"] == "running").await;
    let said = dev.call(Method::POST, &format!("{shown}/turns"), json!({"client_turn_id": "b", "content": "again"})).await;
    assert_eq!(said["state"], "completed", "{said}");
    // Beside the running service: the views are what the log says, and the log is what was signed.
    for view in ["account", "setting", "workload_list", "conversation", "task", "pool", "worker"] {
        let rebuilt = Command::new(BINARY).args(["rebuild", view, "--data"]).arg(&data).output().await.unwrap();
        assert!(rebuilt.status.success(), "{}{}", String::from_utf8_lossy(&rebuilt.stdout), String::from_utf8_lossy(&rebuilt.stderr));
    }
    let verified = Command::new(BINARY).args(["audit", "verify", "--data"]).arg(&data).output().await.unwrap();
    let verdict: Value = serde_json::from_slice(&verified.stdout).unwrap();
    assert!(verified.status.success() && verdict["ok"] == true, "{verdict}");
    assert!(dev.stop().await.success());
    assert_eq!(processes(&data), Vec::<i32>::new());
}

/// The tour does the main job and ends with one line of JSON.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_tour_ends_with_its_summary() {
    let scratch = Scratch::new("tour");
    let data = scratch.path().join("data");
    let told = command(&data, &["--tour", "--exit"]).output().await.unwrap();
    let (story, errors) = (String::from_utf8_lossy(&told.stdout), String::from_utf8_lossy(&told.stderr));
    assert!(told.status.success(), "{story}\n{errors}");
    let summary: Value = serde_json::from_str(story.lines().last().unwrap()).unwrap();
    assert_eq!((&summary["tour"], &summary["model_calls"]), (&json!("ok"), &json!(1)));
    assert!(summary["events"].as_u64().unwrap() >= 12 && story.contains("echo test runtime"), "{story}");
    assert_eq!(processes(&data), Vec::<i32>::new());
}

/// Servers of the user's own: nothing is started, theirs are used.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn given_servers_are_used_and_none_is_started() {
    let nats = signalbox_embedded::testing::nats(|_| {}).await.unwrap();
    let database = tokio::task::spawn_blocking(signalbox_embedded::testing::postgres_url).await.unwrap();
    let secrets = signalbox_embedded::testing::secrets();
    let scratch = Scratch::new("given");
    let data = scratch.path().join("data");
    let mut command = command(&data, &["--tour", "--exit"]);
    command.env("NATS_URL", nats.server.url()).env("DATABASE_URL", database);
    for (name, value) in [
        ("NATS_USER", "signalbox"),
        ("NATS_PASSWORD", &secrets.nats),
        ("NATS_AUDITOR_USER", "auditor"),
        ("NATS_AUDITOR_PASSWORD", &secrets.nats_auditor),
        ("NATS_AUDITOR_API", "audit"),
        ("NATS_SYSTEM_USER", "gate"),
        ("NATS_SYSTEM_PASSWORD", &secrets.nats_gate),
    ] {
        command.env(name, value);
    }
    let told = command.output().await.unwrap();
    let story = String::from_utf8_lossy(&told.stdout);
    assert!(told.status.success(), "{story}\n{}", String::from_utf8_lossy(&told.stderr));
    assert!(!data.join("nats").exists() && !data.join("postgres").exists(), "nothing of ours was started");
    // Without the credentials the gate cannot prove the log's durability, and says what to give.
    let mut command = self::command(&scratch.path().join("other"), &[]);
    command
        .env("NATS_URL", nats.server.url())
        .env("DATABASE_URL", "postgres://nobody@127.0.0.1:1/x")
        .env("NATS_USER", "signalbox")
        .env("NATS_PASSWORD", &secrets.nats);
    let refused = command.output().await.unwrap();
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && said.contains("durability_unproven") && said.contains("system account"), "{said}");
}
