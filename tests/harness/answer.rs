//! Answers of the API as tests look at them.

use futures_util::StreamExt;
use reqwest::Response;
use reqwest::header::HeaderMap;
use serde_json::Value;
use std::time::{Duration, Instant};

/// An answer, read whole.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub text: String,
}

/// An event of a stream with its time of arrival.
#[derive(Debug, Clone)]
pub struct Event {
    pub id: String,
    pub name: String,
    pub data: Value,
    pub at: Instant,
}

impl Answer {
    pub async fn read(response: Response) -> Self {
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        Self { status, headers, text: response.text().await.unwrap() }
    }

    /// The body as JSON; null where it is none.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or(Value::Null)
    }

    /// The body of an answer that must be a success.
    #[track_caller]
    pub fn ok(&self) -> Value {
        assert!((200..300).contains(&self.status), "{} {}", self.status, self.text);
        self.json()
    }

    /// The problem of an answer that must be this refusal.
    #[track_caller]
    pub fn refused(&self, status: u16, code: &str) -> Value {
        let body = self.json();
        assert_eq!((self.status, body["code"].as_str()), (status, Some(code)), "{}", self.text);
        assert_eq!(body["error"]["code"], code);
        assert_eq!(self.headers["content-type"], "application/problem+json");
        body
    }
}

/// A stream that is read as it arrives.
pub struct Events {
    bytes: std::pin::Pin<Box<dyn futures_util::Stream<Item = reqwest::Result<bytes::Bytes>> + Send>>,
    pending: String,
}

impl Events {
    pub fn new(response: Response) -> Self {
        Self { bytes: Box::pin(response.bytes_stream()), pending: String::new() }
    }

    /// The next event; `None` at the end of the stream.
    pub async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(end) = self.pending.find("\n\n") {
                let frame: String = self.pending.drain(..end + 2).collect();
                let field = |name: &str| frame.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": ")).unwrap_or_default().to_owned();
                let data = field("data");
                if data.is_empty() {
                    continue;
                }
                let data = serde_json::from_str(&data).unwrap_or(Value::String(data));
                return Some(Event { id: field("id"), name: field("event"), data, at: Instant::now() });
            }
            let chunk = tokio::time::timeout(Duration::from_secs(60), self.bytes.next()).await.expect("the stream fell silent")?;
            self.pending.push_str(&String::from_utf8_lossy(&chunk.ok()?));
        }
    }

    /// Everything up to the end.
    pub async fn rest(mut self) -> Vec<Event> {
        let mut events = Vec::new();
        while let Some(event) = self.next().await {
            events.push(event);
        }
        events
    }
}
