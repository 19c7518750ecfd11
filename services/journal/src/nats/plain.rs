//! Messages that are no events: sent once, kept nowhere.

use super::read::failed;
use crate::journal::StoreError;
use async_nats::{Client, Subscriber};
use bytes::Bytes;
use futures_util::StreamExt;

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

    /// Hears messages.
    pub async fn subscribe(&self, subject: &str) -> Result<PlainMessages, StoreError> {
        self.client.subscribe(subject.to_owned()).await.map(PlainMessages).map_err(failed)
    }
}

impl PlainMessages {
    /// The next message; `None` when the connection is gone.
    pub async fn next(&mut self) -> Option<Bytes> {
        self.0.next().await.map(|message| message.payload)
    }
}
