//! Frames of Server-Sent Events, and the answer that carries them.

use crate::state::App;
use axum::body::Body;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderName, HeaderValue};
use axum::response::Response;
use bytes::Bytes;
use futures_util::Stream;
use serde_json::Value;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, Sleep};

/// A comment goes out after this long without an event.
const KEEP_ALIVE: Duration = Duration::from_secs(12);

/// A frame with nothing but data: what every client of OpenAI's reads.
pub(crate) fn data(value: &Value) -> Bytes {
    format!("data: {value}\n\n").into()
}

/// The frame that ends a stream for OpenAI's clients.
pub(crate) fn done() -> Bytes {
    Bytes::from_static(b"data: [DONE]\n\n")
}

/// A frame with an id to resume behind, and a name.
pub(crate) fn event(id: &str, name: &str, value: &Value) -> Bytes {
    format!("id: {id}\nevent: {name}\ndata: {value}\n\n").into()
}

/// How a stream stays alive between events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeepAlive {
    /// A comment frame of its own, only ever between events.
    Frame,
    /// A comment line that is glued to the next frame: a frame of nothing but a comment behind an `id:` line breaks
    /// the official Python client.
    Glued,
}

/// The answer that streams `frames`.
pub(crate) fn response(
    app: &App,
    frames: impl Stream<Item = Bytes> + Send + 'static,
    keep_alive: KeepAlive,
    headers: Vec<(&'static str, String)>,
) -> Response {
    app.metrics.streams.inc();
    let stream = Alive { frames: Box::pin(frames), keep_alive, timer: Box::pin(tokio::time::sleep(KEEP_ALIVE)), app: app.clone() };
    let mut response = Response::new(Body::from_stream(stream));
    let out = response.headers_mut();
    out.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    out.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    out.insert("x-accel-buffering", HeaderValue::from_static("no"));
    for (name, value) in headers {
        if let Ok(value) = HeaderValue::from_str(&value) {
            out.insert(HeaderName::from_static(name), value);
        }
    }
    response
}

/// Frames with comments in the silences.
struct Alive {
    frames: Pin<Box<dyn Stream<Item = Bytes> + Send>>,
    keep_alive: KeepAlive,
    timer: Pin<Box<Sleep>>,
    app: App,
}

impl Stream for Alive {
    type Item = Result<Bytes, std::convert::Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Poll::Ready(frame) = self.frames.as_mut().poll_next(context) {
            self.timer.as_mut().reset(Instant::now() + KEEP_ALIVE);
            return Poll::Ready(frame.map(Ok));
        }
        if self.timer.as_mut().poll(context).is_ready() {
            self.timer.as_mut().reset(Instant::now() + KEEP_ALIVE);
            let _ = self.timer.as_mut().poll(context);
            let comment: &'static [u8] = match self.keep_alive {
                KeepAlive::Frame => b": keep-alive\n\n",
                KeepAlive::Glued => b": keep-alive\n",
            };
            return Poll::Ready(Some(Ok(Bytes::from_static(comment))));
        }
        Poll::Pending
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        self.app.metrics.streams.dec();
    }
}
