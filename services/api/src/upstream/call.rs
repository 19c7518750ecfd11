//! One call to a model, and what can go wrong with it.

use super::parser::Parser;
use crate::problem::Problem;
use bytes::Bytes;
use reqwest::{Client, Response};
use serde_json::{Value, json};
use signalbox_domain::Code;
use std::collections::VecDeque;
use std::time::Duration;

/// How long a model may take to its first byte, and between two.
const SILENCE: Duration = Duration::from_secs(300);
/// Largest whole answer that is kept.
const MOST_BYTES: usize = 32 * 1024 * 1024;
/// Longest piece of a model's own error text that is passed on.
const MOST_MESSAGE: usize = 500;

/// Why a call brought no whole answer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CallError {
    /// A stable reason.
    pub code: Code,
    /// What the caller may know.
    pub detail: String,
    /// The status that the model answered, where it did.
    pub status: Option<u16>,
}

impl CallError {
    fn new(code: Code, detail: impl Into<String>) -> Self {
        Self { code, detail: detail.into(), status: None }
    }

    pub fn problem(&self) -> Problem {
        // A refusal of the request is the caller's to mend, so the model's status reaches the caller.
        let status = self.status.filter(|_| self.code == Code::UpstreamRejected);
        Problem { status, ..Problem::new(self.code, self.detail.clone()) }
    }
}

/// A model's answer whose head has come.
pub(crate) enum Reply {
    /// It streams.
    Stream(Chunks),
    /// It is whole.
    Whole(Value),
}

/// Sends `body` and waits for the answer's head.
async fn open(http: &Client, base: &str, path: &str, body: String) -> Result<Response, CallError> {
    let request =
        http.post(format!("{base}{path}")).header("content-type", "application/json").header("accept", "text/event-stream, application/json");
    let sent = tokio::time::timeout(SILENCE, request.body(body).send()).await;
    let response = sent.map_err(|_| CallError::new(Code::UpstreamTimeout, "the model did not answer in time"))?.map_err(|error| {
        if error.is_connect() {
            CallError::new(Code::UpstreamUnreachable, "the model could not be reached")
        } else {
            CallError::new(Code::UpstreamDisconnected, "the connection to the model broke before its answer")
        }
    })?;
    if response.status().is_success() { Ok(response) } else { Err(refused(response).await) }
}

/// Calls a model for a chat completion; an answer is taken in either form, whichever was asked for.
pub(crate) async fn call(http: &Client, base: &str, body: String) -> Result<Reply, CallError> {
    let response = open(http, base, "/chat/completions", body).await?;
    let kind = response.headers().get("content-type").and_then(|value| value.to_str().ok()).unwrap_or_default();
    if kind.trim_start().starts_with("text/event-stream") {
        return Ok(Reply::Stream(Chunks { response, parser: Parser::default(), ready: VecDeque::new(), ended: false }));
    }
    let bytes = read(response, MOST_BYTES).await?;
    let value = serde_json::from_slice(&bytes).map_err(|_| CallError::new(Code::UpstreamProtocol, "the model's answer is not JSON"))?;
    Ok(Reply::Whole(value))
}

async fn read(mut response: Response, most: usize) -> Result<Vec<u8>, CallError> {
    let mut bytes = Vec::new();
    loop {
        let chunk = tokio::time::timeout(SILENCE, response.chunk()).await;
        match chunk.map_err(|_| CallError::new(Code::UpstreamTimeout, "the model fell silent"))? {
            Ok(Some(chunk)) if bytes.len() + chunk.len() > most => {
                return Err(CallError::new(Code::UpstreamProtocol, "the model's answer is too large"));
            }
            Ok(Some(chunk)) => bytes.extend_from_slice(&chunk),
            Ok(None) => return Ok(bytes),
            Err(_) => return Err(CallError::new(Code::UpstreamDisconnected, "the model's answer broke off")),
        }
    }
}

/// What an answer that is no success means. A model's complaint about our own credential stays with us: its text may
/// hold a piece of it.
async fn refused(response: Response) -> CallError {
    let status = response.status().as_u16();
    let code = match status {
        401 | 403 => Code::UpstreamAuthFailed,
        400 | 404 | 405 | 409 | 413 | 415 | 422 => Code::UpstreamRejected,
        429 => Code::TooManyRequests,
        _ => Code::UpstreamUnreachable,
    };
    let detail = if code == Code::UpstreamRejected {
        let bytes = read(response, 64 * 1024).await.unwrap_or_default();
        let said = serde_json::from_slice::<Value>(&bytes).ok();
        let text = said.as_ref().and_then(|said| said["error"]["message"].as_str().or(said["message"].as_str()).or(said.as_str()));
        match text {
            Some(text) => format!("the model refused the request: {}", text.chars().take(MOST_MESSAGE).collect::<String>()),
            None => format!("the model refused the request with status {status}"),
        }
    } else {
        code.title().to_owned()
    };
    CallError { code, detail, status: Some(status) }
}

/// The chunks of a streamed answer.
pub(crate) struct Chunks {
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
                    let chunk: Value = serde_json::from_str(&data)
                        .map_err(|_| CallError::new(Code::UpstreamProtocol, "a piece of the model's answer is not JSON"))?;
                    if !chunk["error"].is_null() {
                        return Err(CallError::new(Code::UpstreamDisconnected, "the model broke off its answer with an error"));
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
            .map_err(|_| CallError::new(Code::UpstreamTimeout, "the model fell silent"))?
            .map_err(|_| CallError::new(Code::UpstreamDisconnected, "the model's answer broke off"))?;
        let Some(chunk) = chunk else {
            return Err(CallError::new(Code::UpstreamDisconnected, "the model's answer ended before its end mark"));
        };
        let events = self.parser.feed(&chunk).map_err(|_| CallError::new(Code::UpstreamProtocol, "a piece of the model's answer is too large"))?;
        self.ready.extend(events);
        Ok(())
    }
}

/// A whole answer as the one chunk of a stream.
pub(crate) fn as_chunk(whole: &Value) -> Value {
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
