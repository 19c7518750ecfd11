//! The `echo` runtime: a test runtime. A small OpenAI-compatible server that answers with what it was told, for
//! machines without a model and for tests. It is no model and says so.

use axum::body::Body;
use axum::extract::State;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::net::TcpListener;

/// How the server answers.
#[derive(Debug, Clone)]
pub struct Options {
    /// The model's name.
    pub model: String,
    /// Pause before each word.
    pub delay: Duration,
}

struct Echo {
    options: Options,
    calls: AtomicU64,
}

/// Serves on `listener` until the process ends.
pub async fn serve(listener: TcpListener, options: Options) -> std::io::Result<()> {
    let echo = Arc::new(Echo { options, calls: AtomicU64::new(0) });
    let router = Router::new()
        .route("/health", get(|| async { Json(json!({"status": "ok"})) }))
        .route("/v1/models", get(models))
        .route("/v1/chat/completions", post(chat))
        // Completions so far, probes apart: tests ask how often a model was really called.
        .route("/calls", get(|State(echo): State<Arc<Echo>>| async move { Json(json!({"calls": echo.calls.load(Ordering::SeqCst)})) }))
        .with_state(echo);
    axum::serve(listener, router).await
}

async fn models(State(echo): State<Arc<Echo>>) -> Json<Value> {
    Json(json!({"object": "list", "data": [{"id": echo.options.model, "object": "model", "owned_by": "signalbox test runtime"}]}))
}

async fn chat(State(echo): State<Arc<Echo>>, headers: axum::http::HeaderMap, Json(body): Json<Value>) -> Response {
    if !headers.contains_key("x-signalbox-probe") {
        echo.calls.fetch_add(1, Ordering::SeqCst);
    }
    let words = words(&body);
    let usage = usage(&body, words.len());
    let head = json!({"id": "chatcmpl-echo", "created": 0, "model": echo.options.model, "object": "chat.completion.chunk"});
    if body["stream"] != true {
        tokio::time::sleep(echo.options.delay * u32::try_from(words.len()).unwrap_or(u32::MAX)).await;
        let message = json!({"role": "assistant", "content": words.concat()});
        let choice = json!({"index": 0, "message": message, "finish_reason": "stop"});
        return Json(json!({"id": "chatcmpl-echo", "object": "chat.completion", "created": 0, "model": echo.options.model, "choices": [choice], "usage": usage}))
            .into_response();
    }
    let chunk = move |delta: Value, finish: Value| {
        let mut chunk = head.clone();
        chunk["choices"] = json!([{"index": 0, "delta": delta, "finish_reason": finish}]);
        chunk
    };
    let mut chunks = vec![chunk(json!({"role": "assistant", "content": ""}), Value::Null)];
    chunks.extend(words.iter().map(|word| chunk(json!({"content": word}), Value::Null)));
    chunks.push(chunk(json!({}), json!("stop")));
    if body["stream_options"]["include_usage"] == true {
        let mut last = chunk(Value::Null, Value::Null);
        last["choices"] = json!([]);
        last["usage"] = usage;
        chunks.push(last);
    }
    let delay = echo.options.delay;
    let frames = stream::iter(chunks).then(move |chunk| async move {
        let words = chunk["choices"][0]["delta"]["content"].as_str().is_some_and(|text| !text.is_empty());
        if words {
            tokio::time::sleep(delay).await;
        }
        Ok::<_, std::io::Error>(Bytes::from(format!("data: {chunk}\n\n")))
    });
    let done = stream::once(async { Ok(Bytes::from_static(b"data: [DONE]\n\n")) });
    ([(CONTENT_TYPE, "text/event-stream"), (CACHE_CONTROL, "no-cache")], Body::from_stream(frames.chain(done))).into_response()
}

/// The answer: the last message's words, behind a notice of what is answering.
fn words(body: &Value) -> Vec<String> {
    let last = body["messages"].as_array().and_then(|messages| messages.last());
    let text = last.map(signalbox_domain::conversation::message::text_of).unwrap_or_default();
    let text = format!("This is the echo test runtime, not a model. You said: {text}");
    let most = body["max_tokens"].as_u64().and_then(|most| usize::try_from(most).ok()).unwrap_or(usize::MAX);
    text.split_inclusive(' ').take(most).map(str::to_owned).collect()
}

fn usage(body: &Value, written: usize) -> Value {
    let count = |message: &Value| signalbox_domain::conversation::message::text_of(message).split_whitespace().count();
    let read: usize = body["messages"].as_array().map(|messages| messages.iter().map(count).sum()).unwrap_or_default();
    json!({"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written})
}
