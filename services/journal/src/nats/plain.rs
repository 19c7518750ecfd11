//! Messages that are no events: sent once, kept nowhere.

use super::read::failed;
use crate::journal::StoreError;
pub use async_nats::HeaderMap;
use async_nats::{Client, Request, Subscriber};
use bytes::Bytes;
use futures_util::StreamExt;
use std::time::Duration;

/// Plain NATS.
#[derive(Clone)]
pub struct Plain {
    client: Client,
}

/// Messages as they come.
pub struct PlainMessages(Subscriber);

impl Plain {
    pub(super) fn new(client: Client) -> Self {
        Self { client }
    }

    /// Sends a message.
    pub async fn publish(&self, subject: &str, payload: Bytes) -> Result<(), StoreError> {
        self.client.publish(subject.to_owned(), payload).await.map_err(failed)
    }

    /// Asks, and waits for the one answer: its headers and its bytes.
    pub async fn request(&self, subject: &str, payload: Bytes, patience: Duration) -> Result<(HeaderMap, Bytes), StoreError> {
        let request = Request::new().payload(payload).timeout(Some(patience));
        let answer = self.client.send_request(subject.to_owned(), request).await.map_err(failed)?;
        Ok((answer.headers.unwrap_or_default(), answer.payload))
    }

    /// Answers a request.
    pub async fn answer(&self, reply: String, headers: HeaderMap, payload: Bytes) -> Result<(), StoreError> {
        self.client.publish_with_headers(reply, headers, payload).await.map_err(failed)
    }

    /// Hears requests; of several that hear with the same `group` one gets each.
    pub async fn serve(&self, subject: &str, group: &str) -> Result<PlainRequests, StoreError> {
        self.client.queue_subscribe(subject.to_owned(), group.to_owned()).await.map(PlainRequests).map_err(failed)
    }

    /// Hears messages.
    pub async fn subscribe(&self, subject: &str) -> Result<PlainMessages, StoreError> {
        self.client.subscribe(subject.to_owned()).await.map(PlainMessages).map_err(failed)
    }
}

/// A request that waits for an answer.
#[derive(Debug)]
pub struct PlainRequest {
    /// Where it was sent: permissions of the server bind who may send there.
    pub subject: String,
    /// Where the answer goes.
    pub reply: String,
    /// Its bytes.
    pub payload: Bytes,
    /// Its headers.
    pub headers: HeaderMap,
}

/// Requests as they come.
pub struct PlainRequests(Subscriber);

impl PlainRequests {
    /// The next request; `None` when the connection is gone. Messages that want no answer are passed over.
    pub async fn next(&mut self) -> Option<PlainRequest> {
        loop {
            let message = self.0.next().await?;
            if let Some(reply) = message.reply {
                let (subject, headers) = (message.subject.to_string(), message.headers.unwrap_or_default());
                return Some(PlainRequest { subject, reply: reply.to_string(), payload: message.payload, headers });
            }
        }
    }
}

impl PlainMessages {
    /// The next message; `None` when the connection is gone.
    pub async fn next(&mut self) -> Option<Bytes> {
        self.0.next().await.map(|message| message.payload)
    }
}
