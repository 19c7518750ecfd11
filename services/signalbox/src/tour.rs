//! The main job, told as it happens. Everything printed is read back from the API or from the log.

#![expect(clippy::print_stdout, reason = "a story is told on standard output")]

use crate::client::Client;
use crate::config::{Config, key};
use crate::{Error, serve};
use ed25519_dalek::SigningKey;
use reqwest::Method;
use serde_json::{Value, json};
use signalbox_auditor::{Folder, verify};
use signalbox_journal::nats::Nats;
use std::io::Write;
use std::time::{Duration, Instant};

/// What the user asks in the tour.
const QUESTION: &str = "What is a railway signal box? Answer in one sentence.";
/// How long the model may take to run.
const PATIENCE: Duration = Duration::from_secs(180);

fn chapter(number: u32, title: &str) {
    println!("\n{number}. {title}");
}

fn line(text: impl std::fmt::Display) {
    println!("   {text}");
}

/// Does the main job through the API at `url`. Answers with its last line.
pub async fn tour(url: &str, secret: &str, config: &Config, no_model: bool) -> Result<Value, Error> {
    let api = Client::new(url, secret)?;
    let started = Instant::now();
    // The key was stated a moment ago; the view that knows it follows.
    until("the key works", async || Ok(api.get("/v1/settings").await.ok())).await?;
    let calls_before = model_calls(&api).await?;

    chapter(1, "Turn on inference");
    let done = api.send(Method::PUT, "/v1/settings/platform/inference", Some(json!({"enabled": true}))).await?;
    line(format!("inference_enabled: {} at position {}", api.get("/v1/settings").await?["inference_enabled"], shown(&done["position"])));

    let runtime = if no_model { "echo" } else { "llama" };
    chapter(2, &format!("Deploy {} as local-inference", if no_model { "the echo test runtime" } else { "SmolLM2-135M-Instruct" }));
    let spec = json!({"kind": "local-inference", "runtime": runtime});
    let name = if no_model { "tour-echo" } else { "tour-smollm2" };
    let body = json!({"name": name, "spec": spec});
    // A second tour on the same folder shows the deployment of the first: the same key deploys once, for ever.
    let mut done = api.send_once(Method::POST, "/v1/workloads", Some(body.clone()), Some(name)).await?;
    let gone = |done: &Value| format!("/v1/workloads/{}", done["id"].as_str().unwrap_or_default());
    if done["stated"] == false && api.get(&gone(&done)).await.is_err() {
        done = api.send(Method::POST, "/v1/workloads", Some(body)).await?;
    }
    let workload = text(&done["id"])?;
    let stated = if done["stated"] == true { "stated" } else { "was stated before," };
    line(format!("workload {workload} {stated} at position {}", shown(&done["position"])));
    let mut last = String::new();
    let row = until("the deployment runs", async || {
        let row = api.get(&format!("/v1/workloads/{workload}?after={}", text(&done["position"])?)).await?;
        let state = format!("{} ({})", row["state"].as_str().unwrap_or_default(), row["reason"].as_str().unwrap_or_default());
        if state != last {
            line(format!("{:>6.2} s  {state}", started.elapsed().as_secs_f64()));
            last = state;
        }
        match row["state"].as_str() {
            Some("running") => Ok(Some(row)),
            Some("failed") => Err(format!("the deployment has failed: {}", row["detail"]["log_tail"]).into()),
            _ => Ok(None),
        }
    })
    .await?;
    line(format!("requests name it {}", shown(&row["route_name"])));

    chapter(3, "Open a conversation and say something");
    let done = api.send(Method::POST, "/v1/conversations", Some(json!({"workload": workload}))).await?;
    let conversation = text(&done["id"])?;
    line(format!("conversation {conversation}"));
    line(format!("user: {QUESTION}"));
    let turns = format!("/v1/conversations/{conversation}/turns");
    let body = json!({"client_turn_id": "tour-1", "content": QUESTION, "max_tokens": 60, "temperature": 0, "stream": true});
    print!("   assistant: ");
    let mut streamed = String::new();
    let mut first_delta = None;
    let mut ending = Value::Null;
    let mut deltas = 0;
    let asked = Instant::now();
    api.stream(&turns, body.clone(), &mut |event| {
        if let Some(piece) = event.data["delta"]["content"].as_str().filter(|_| event.name == "delta") {
            first_delta.get_or_insert_with(|| asked.elapsed());
            deltas += usize::from(!piece.is_empty());
            streamed.push_str(piece);
            print!("{}", piece.replace('\n', "\n   "));
            let _ = std::io::stdout().flush();
        } else if event.name != "delta" {
            ending = json!({"event": event.name, "turn": event.data});
        }
    })
    .await?;
    println!();
    let turn = &ending["turn"];
    line(format!(
        "{}: {deltas} deltas, the first after {} ms, {} + {} tokens",
        ending["event"].as_str().unwrap_or("no ending"),
        first_delta.unwrap_or_default().as_millis(),
        turn["usage"]["prompt_tokens"],
        turn["usage"]["completion_tokens"],
    ));
    if turn["state"] != "completed" {
        return Err(format!("the turn is {}", turn["state"]).into());
    }

    chapter(4, "Ask the same again with the same client_turn_id");
    let mut again = body;
    again["stream"] = false.into();
    let second = api.send(Method::POST, &turns, Some(again)).await?;
    let calls = model_calls(&api).await? - calls_before;
    line(format!("same turn {}, same answer: {}, model calls: {calls}", shown(&second["turn_id"]), second["answer"]["content"] == streamed));
    if second["turn_id"] != turn["turn_id"] || second["answer"]["content"] != streamed || calls != 1 {
        return Err("the second request was not answered by the first turn".into());
    }

    chapter(5, "The unified list");
    let list = api.get("/v1/workloads").await?;
    for row in items(&list) {
        line(format!(
            "{}  {:<16} {:<12} {:<10} {}/{} replicas, revision {}",
            row["id"].as_str().unwrap_or_default(),
            row["kind"].as_str().unwrap_or_default(),
            row["display_name"].as_str().unwrap_or_default(),
            row["state"].as_str().unwrap_or_default(),
            row["replicas"]["ready"],
            row["replicas"]["desired"],
            row["revision"],
        ));
    }

    chapter(6, "The events of both");
    for path in [format!("/v1/workloads/{workload}/events"), format!("/v1/conversations/{conversation}/events")] {
        for event in items(&api.get(&path).await?) {
            let data = event["data"].to_string();
            let short: String = data.chars().take(90).collect();
            line(format!(
                "{:>6}  {:<28} {}{}",
                event["position"].as_str().unwrap_or_default(),
                event["type"].as_str().unwrap_or_default(),
                short,
                if short.len() < data.len() { ".." } else { "" },
            ));
        }
    }

    chapter(7, "Verify the log with a credential that cannot append");
    let journal = Nats::open(serve::audit_options(config)?).await?;
    let signer = SigningKey::from_bytes(&key("checkpoint", &config.keys.checkpoint)?);
    let verdict = verify(journal.as_ref(), &Folder(config.checkpoints.clone()), &signer.verifying_key()).await?;
    line(serde_json::to_string(&verdict)?);
    if !verdict.ok {
        return Err("the log does not verify".into());
    }
    println!();
    Ok(json!({
        "tour": "ok",
        "events": verdict.events,
        "model_calls": calls,
        "deltas": deltas,
        "first_delta_ms": u64::try_from(first_delta.unwrap_or_default().as_millis()).unwrap_or(u64::MAX),
        "workload": workload,
        "conversation": conversation,
        "seconds": (started.elapsed().as_secs_f64() * 100.0).round() / 100.0,
    }))
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list["items"].as_array().into_iter().flatten()
}

/// A value without JSON's quotes.
fn shown(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn text(value: &Value) -> Result<String, Error> {
    value.as_str().map(str::to_owned).ok_or_else(|| "an answer lacks a field".into())
}

/// Asks until there is an answer.
async fn until<T>(what: &str, mut ask: impl AsyncFnMut() -> Result<Option<T>, Error>) -> Result<T, Error> {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = ask().await? {
            return Ok(found);
        }
        if Instant::now() > end {
            return Err(format!("gave up after {} s waiting until {what}", PATIENCE.as_secs()).into());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Calls that went out to models, as the service counts them.
async fn model_calls(api: &Client) -> Result<u64, Error> {
    let metrics = api.text("/metrics").await?;
    let count = metrics.lines().find_map(|line| line.strip_prefix("signalbox_model_calls_total "));
    Ok(count.and_then(|count| count.parse().ok()).unwrap_or(0))
}
