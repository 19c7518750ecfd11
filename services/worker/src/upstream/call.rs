//! One call to a model, and what can go wrong with it.

use super::parser::Parser;
use crate::job::Evidence;
use bytes::Bytes;
use reqwest::header::HeaderValue;
use reqwest::redirect::Policy;
use reqwest::{Client, Response};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::time::Duration;

/// How long a model may take to its first byte, and between two.
const SILENCE: Duration = Duration::from_secs(300);
/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(5);
/// Largest whole answer that is kept.
const MOST_BYTES: usize = 32 * 1024 * 1024;
/// Longest piece of a model's own error text that is passed on.
const MOST_MESSAGE: usize = 500;

/// What went wrong with a call, in a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It could not be reached.
    Unreachable,
    /// It refused the request.
    Rejected,
    /// It refused our credential.
    AuthFailed,
    /// It wants to be left alone for a while.
    TooManyRequests,
    /// It did not answer in time.
    Timeout,
    /// Its answer broke off.
    Disconnected,
    /// Its answer is not valid.
    Protocol,
}

impl Fault {
    /// The stable word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unreachable => "upstream_unreachable",
            Self::Rejected => "upstream_rejected",
            Self::AuthFailed => "upstream_auth_failed",
            Self::TooManyRequests => "too_many_requests",
            Self::Timeout => "upstream_timeout",
            Self::Disconnected => "upstream_disconnected",
            Self::Protocol => "upstream_protocol",
        }
    }

    fn title(self) -> &'static str {
        match self {
            Self::Unreachable => "The model could not be reached.",
            Self::Rejected => "The model refused the request.",
            Self::AuthFailed => "The model refused our credential.",
            Self::TooManyRequests => "Too many requests.",
            Self::Timeout => "The model did not answer in time.",
            Self::Disconnected => "The model's answer broke off.",
            Self::Protocol => "The model's answer is not valid.",
        }
    }
}

/// Why a call brought no whole answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallError {
    /// A stable reason.
    pub fault: Fault,
    /// What the caller may know.
    pub detail: String,
    /// The status that the model answered, where it did.
    pub status: Option<u16>,
    /// How certain it is that nothing was, or that something was, sent.
    pub evidence: Evidence,
    /// How long the model wants to be left alone.
    pub retry_after_seconds: Option<u32>,
}

impl CallError {
    /// Once a byte may have left, nobody knows; what is known better is said by its maker.
    fn new(fault: Fault, detail: impl Into<String>) -> Self {
        Self { fault, detail: detail.into(), status: None, evidence: Evidence::Unknown, retry_after_seconds: None }
    }

    fn unsent(fault: Fault, detail: &str) -> Self {
        Self { evidence: Evidence::NotSent, ..Self::new(fault, detail) }
    }
}

/// A model's answer whose head has come.
pub enum Reply {
    /// It streams.
    Stream(Chunks),
    /// It is whole.
    Whole(Value),
}

/// What goes with a request beside its body.
#[derive(Default, Clone)]
pub struct Marks {
    /// The idempotency key.
    pub once: Option<String>,
    /// The upstream's credential: a header's name and value. The caller has seen that it belongs to the URL's origin.
    pub credential: Option<(String, String)>,
}

/// Sends `body` and waits for the answer's head.
async fn open(http: &Client, url: &str, body: String, marks: &Marks) -> Result<Response, CallError> {
    let mut request = http.post(url).header("content-type", "application/json").header("accept", "text/event-stream, application/json");
    if let Some(key) = &marks.once {
        request = request.header("idempotency-key", key);
    }
    if let Some((name, value)) = &marks.credential {
        let mut value = HeaderValue::from_str(value).map_err(|_| CallError::unsent(Fault::Protocol, "the credential is no header"))?;
        value.set_sensitive(true);
        request = request.header(name, value);
    }
    let sent = tokio::time::timeout(SILENCE, request.body(body).send()).await;
    let response = sent.map_err(|_| CallError::new(Fault::Timeout, "the model did not answer in time"))?.map_err(|error| {
        if error.is_connect() {
            // No connection, no byte.
            CallError::unsent(Fault::Unreachable, "the model could not be reached")
        } else {
            CallError::new(Fault::Disconnected, "the connection to the model broke before its answer")
        }
    })?;
    if response.status().is_success() { Ok(response) } else { Err(refused(response).await) }
}

/// Calls a model at `url`; an answer is taken in either form, whichever was asked for.
pub async fn call(http: &Client, url: &str, body: String, marks: &Marks) -> Result<Reply, CallError> {
    let response = open(http, url, body, marks).await?;
    let kind = response.headers().get("content-type").and_then(|value| value.to_str().ok()).unwrap_or_default();
    if kind.trim_start().starts_with("text/event-stream") {
        return Ok(Reply::Stream(Chunks { response, parser: Parser::default(), ready: VecDeque::new(), ended: false }));
    }
    let bytes = read(response, MOST_BYTES).await?;
    let value = serde_json::from_slice(&bytes).map_err(|_| CallError::new(Fault::Protocol, "the model's answer is not JSON"))?;
    Ok(Reply::Whole(value))
}

async fn read(mut response: Response, most: usize) -> Result<Vec<u8>, CallError> {
    let mut bytes = Vec::new();
    loop {
        let chunk = tokio::time::timeout(SILENCE, response.chunk()).await;
        match chunk.map_err(|_| CallError::new(Fault::Timeout, "the model fell silent"))? {
            Ok(Some(chunk)) if bytes.len() + chunk.len() > most => {
                return Err(CallError::new(Fault::Protocol, "the model's answer is too large"));
            }
            Ok(Some(chunk)) => bytes.extend_from_slice(&chunk),
            Ok(None) => return Ok(bytes),
            Err(_) => return Err(CallError::new(Fault::Disconnected, "the model's answer broke off")),
        }
    }
}

/// What an answer that is no success means. A model's complaint about our own credential stays with us: its text may
/// hold a piece of it.
async fn refused(response: Response) -> CallError {
    let status = response.status().as_u16();
    let retry_after = response.headers().get("retry-after").and_then(|value| value.to_str().ok()?.trim().parse::<u32>().ok());
    let fault = match status {
        401 | 403 => Fault::AuthFailed,
        // A redirect is not followed: it would take the request, and its credential, elsewhere.
        300..400 | 400 | 404 | 405 | 409 | 413 | 415 | 422 => Fault::Rejected,
        429 => Fault::TooManyRequests,
        _ => Fault::Unreachable,
    };
    let detail = if fault == Fault::Rejected && status >= 400 {
        let bytes = read(response, 64 * 1024).await.unwrap_or_default();
        let said = serde_json::from_slice::<Value>(&bytes).ok();
        let text = said.as_ref().and_then(|said| said["error"]["message"].as_str().or(said["message"].as_str()).or(said.as_str()));
        match text {
            Some(text) => format!("the model refused the request: {}", text.chars().take(MOST_MESSAGE).collect::<String>()),
            None => format!("the model refused the request with status {status}"),
        }
    } else {
        fault.title().to_owned()
    };
    // A whole refusal says that nothing was done; a server's own failure does not, save one that says when to come back.
    let evidence = if status < 500 || (status == 503 && retry_after.is_some()) { Evidence::Rejected } else { Evidence::Unknown };
    CallError { fault, detail, status: Some(status), evidence, retry_after_seconds: retry_after }
}

/// A client for calls to models: straight, without redirects.
pub fn client() -> reqwest::Result<Client> {
    Client::builder().no_proxy().redirect(Policy::none()).connect_timeout(CONNECT).build()
}

/// The chunks of a streamed answer.
pub struct Chunks {
    response: Response,
    parser: Parser,
    ready: VecDeque<String>,
    ended: bool,
}

impl Chunks {
    /// The next chunk; `None` at the model's own end mark. A stream that ends without one gives an error.
    pub async fn next(&mut self) -> Result<Option<Value>, CallError> {
        loop {
            match self.ready.pop_front() {
                Some(data) if data.trim() == "[DONE]" => self.ended = true,
                Some(data) => {
                    let chunk: Value =
                        serde_json::from_str(&data).map_err(|_| CallError::new(Fault::Protocol, "a piece of the model's answer is not JSON"))?;
                    if !chunk["error"].is_null() {
                        return Err(CallError::new(Fault::Disconnected, "the model broke off its answer with an error"));
                    }
                    return Ok(Some(chunk));
                }
                None if self.ended => return Ok(None),
                None => self.read().await?,
            }
        }
    }

    async fn read(&mut self) -> Result<(), CallError> {
        let chunk: Option<Bytes> = tokio::time::timeout(SILENCE, self.response.chunk())
            .await
            .map_err(|_| CallError::new(Fault::Timeout, "the model fell silent"))?
            .map_err(|_| CallError::new(Fault::Disconnected, "the model's answer broke off"))?;
        let Some(chunk) = chunk else {
            return Err(CallError::new(Fault::Disconnected, "the model's answer ended before its end mark"));
        };
        let events = self.parser.feed(&chunk).map_err(|_| CallError::new(Fault::Protocol, "a piece of the model's answer is too large"))?;
        self.ready.extend(events);
        Ok(())
    }
}

/// A whole answer as the one chunk of a stream.
pub fn as_chunk(whole: &Value) -> Value {
    let choices = whole["choices"].as_array().into_iter().flatten().map(|choice| {
        let mut choice = choice.clone();
        if let Some(fields) = choice.as_object_mut()
            && let Some(message) = fields.shift_remove("message")
        {
            fields.insert("delta".to_owned(), message);
        }
        choice
    });
    json!({"choices": choices.collect::<Vec<_>>(), "usage": whole["usage"]})
}
