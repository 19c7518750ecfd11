//! A model that a test can make misbehave: an OpenAI-compatible server on loopback that counts its calls.

use axum::body::Body;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::net::TcpListener;

/// What the model does when it is called.
#[derive(Debug, Clone)]
pub enum Behaviour {
    /// Answers with these deltas, a pause before each, and ends well.
    Deltas(Vec<String>, Duration),
    /// Sends these deltas, then the connection breaks.
    Breaks(Vec<String>),
    /// Streams although it was not asked to.
    AlwaysStreams(Vec<String>),
    /// Answers whole although it was asked to stream.
    NeverStreams(String),
    /// Refuses with a status and a body.
    Refuses(u16, Value),
    /// Sends the caller elsewhere.
    Redirects(String),
    /// Takes the request and never answers.
    Hangs,
}

/// A running model.
#[derive(Clone)]
pub struct Model {
    pub url: String,
    inner: Arc<Inner>,
}

struct Inner {
    behaviour: Mutex<Behaviour>,
    calls: AtomicUsize,
    /// Bodies that came, the oldest first.
    bodies: Mutex<Vec<Value>>,
    /// Headers that came with them.
    headers: Mutex<Vec<HeaderMap>>,
    /// When each delta left.
    sent: Mutex<Vec<Instant>>,
    /// Calls whose caller has left before the end.
    abandoned: AtomicUsize,
}

impl Model {
    pub async fn start(behaviour: Behaviour) -> Self {
        let inner = Arc::new(Inner {
            behaviour: Mutex::new(behaviour),
            calls: AtomicUsize::new(0),
            bodies: Mutex::default(),
            headers: Mutex::default(),
            sent: Mutex::default(),
            abandoned: AtomicUsize::new(0),
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        let router = Router::new()
            .route("/v1/models", get(|| async { Json(json!({"object": "list", "data": [{"id": "fake", "object": "model"}]})) }))
            .route("/v1/chat/completions", post(chat))
            .layer(axum::extract::DefaultBodyLimit::disable())
            .with_state(inner.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { url, inner }
    }

    pub fn behave(&self, behaviour: Behaviour) {
        *self.inner.behaviour.lock().unwrap() = behaviour;
    }

    pub fn calls(&self) -> usize {
        self.inner.calls.load(Ordering::SeqCst)
    }

    pub fn abandoned(&self) -> usize {
        self.inner.abandoned.load(Ordering::SeqCst)
    }

    pub fn bodies(&self) -> Vec<Value> {
        self.inner.bodies.lock().unwrap().clone()
    }

    pub fn headers(&self) -> Vec<HeaderMap> {
        self.inner.headers.lock().unwrap().clone()
    }

    pub fn sent(&self) -> Vec<Instant> {
        self.inner.sent.lock().unwrap().clone()
    }
}

async fn chat(State(model): State<Arc<Inner>>, headers: HeaderMap, Json(body): Json<Value>) -> Response {
    model.calls.fetch_add(1, Ordering::SeqCst);
    let streams = body["stream"] == true;
    model.bodies.lock().unwrap().push(body);
    model.headers.lock().unwrap().push(headers);
    let behaviour = model.behaviour.lock().unwrap().clone();
    match behaviour {
        Behaviour::Deltas(deltas, pause) if streams => stream_of(&model, deltas, pause, false),
        Behaviour::Deltas(deltas, _) => whole(&deltas.concat()),
        Behaviour::Breaks(deltas) => stream_of(&model, deltas, Duration::ZERO, true),
        Behaviour::AlwaysStreams(deltas) => stream_of(&model, deltas, Duration::ZERO, false),
        Behaviour::NeverStreams(text) => whole(&text),
        Behaviour::Refuses(status, body) => (StatusCode::from_u16(status).unwrap(), Json(body)).into_response(),
        Behaviour::Redirects(to) => (StatusCode::TEMPORARY_REDIRECT, [("location", to)]).into_response(),
        Behaviour::Hangs => std::future::pending().await,
    }
}

fn whole(text: &str) -> Response {
    let choice = json!({"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"});
    let usage = json!({"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7});
    Json(json!({"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "fake", "choices": [choice], "usage": usage})).into_response()
}

/// Notes when a caller leaves before the end.
struct Watch {
    model: Arc<Inner>,
    ended: bool,
}

impl Drop for Watch {
    fn drop(&mut self) {
        if !self.ended {
            self.model.abandoned.fetch_add(1, Ordering::SeqCst);
        }
    }
}

fn stream_of(model: &Arc<Inner>, deltas: Vec<String>, pause: Duration, breaks: bool) -> Response {
    let chunk = |delta: Value, finish: Value| {
        json!({"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "fake",
            "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})
    };
    let mut frames = vec![(false, Ok(format!("data: {}\n\n", chunk(json!({"role": "assistant", "content": ""}), Value::Null))))];
    frames.extend(deltas.iter().map(|delta| (true, Ok(format!("data: {}\n\n", chunk(json!({"content": delta}), Value::Null))))));
    if breaks {
        frames.push((false, Err(std::io::Error::other("the connection breaks"))));
    } else {
        let usage = json!({"prompt_tokens": 3, "completion_tokens": deltas.len(), "total_tokens": 3 + deltas.len()});
        let mut last = chunk(Value::Null, Value::Null);
        last["choices"] = json!([]);
        last["usage"] = usage;
        frames.push((false, Ok(format!("data: {}\n\ndata: {last}\n\ndata: [DONE]\n\n", chunk(json!({}), json!("stop"))))));
    }
    let watch = Watch { model: model.clone(), ended: false };
    let frames = stream::unfold((frames.into_iter(), watch), move |(mut frames, mut watch)| async move {
        let (is_delta, frame) = frames.next()?;
        if is_delta {
            tokio::time::sleep(pause).await;
            watch.model.sent.lock().unwrap().push(Instant::now());
        }
        if frames.len() == 0 {
            watch.ended = true;
        }
        if frame.is_err() {
            // What was sent before reaches the caller first.
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Some((frame.map(Bytes::from), (frames, watch)))
    });
    ([(CONTENT_TYPE, "text/event-stream")], Body::from_stream(frames.boxed())).into_response()
}
