//! Deltas of running turns: not events, but kept a while so that any replica can serve or resume any turn.

use super::read::{direct_batch, failed};
use super::{Nats, PATIENCE};
use crate::journal::StoreError;
use async_nats::header::HeaderMap;
use async_nats::jetstream::stream::{Config, DiscardPolicy, PersistenceMode, StorageType};
use async_nats::{Client, Subscriber};
use bytes::Bytes;
use futures_util::StreamExt;
use std::collections::VecDeque;
use std::time::Duration;

/// The stream that captures every delta.
const STREAM: &str = "DELTAS";
/// How long a delta can be read again.
const KEPT: Duration = Duration::from_secs(15 * 60);
/// The header that holds a delta's number within its turn.
const NUMBER: &str = "Signalbox-Seq";
/// Deltas of one read.
const BATCH: usize = 1000;

/// One piece of a running answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delta {
    /// Its number within the turn, gapless from 1.
    pub number: u64,
    /// Its bytes; empty: the turn has ended, and the log says how.
    pub payload: Bytes,
}

/// Publishes and reads deltas.
#[derive(Clone)]
pub struct Deltas {
    client: Client,
}

impl Deltas {
    /// Opens the stream, making it where it is missing.
    pub async fn open(nats: &Nats) -> Result<Self, StoreError> {
        let config = Config {
            name: STREAM.to_owned(),
            subjects: vec!["stream.>".to_owned()],
            description: Some("Deltas of running turns, kept for 15 minutes.".to_owned()),
            // On disk, so that what had arrived outlives a crash of everything; not synced, since the log has the truth.
            storage: StorageType::File,
            persist_mode: Some(PersistenceMode::Async),
            discard: DiscardPolicy::Old,
            max_age: KEPT,
            // A bound in bytes would be reserved, and refused on a small disk.
            max_messages: 1_000_000,
            num_replicas: 1,
            allow_direct: true,
            // An acknowledgement goes to the reply subject of the message, which a worker chooses: on this stream alone a
            // worker could have the server write `{"stream":"DELTAS",..}` into the log.
            no_ack: true,
            ..Default::default()
        };
        let found = nats.jetstream.get_or_create_stream(config.clone()).await.map_err(failed)?;
        if !found.cached_info().config.no_ack {
            nats.jetstream.update_stream(config).await.map_err(failed)?;
        }
        Ok(Self { client: nats.client.clone() })
    }

    /// Publishes a delta without waiting: its readers check the numbers.
    pub async fn publish(&self, subject: &str, delta: Delta) -> Result<(), StoreError> {
        let mut headers = HeaderMap::new();
        headers.insert(NUMBER, delta.number.to_string());
        self.client.publish_with_headers(subject.to_owned(), headers, delta.payload).await.map_err(failed)
    }

    /// What is kept of a turn behind delta `after`.
    pub async fn kept(&self, subject: &str, after: u64) -> Result<Vec<Delta>, StoreError> {
        let mut found: Vec<Delta> = Vec::new();
        let mut sequence = 0;
        loop {
            let (batch, more) = direct_batch(&self.client, "$JS.API", STREAM, subject, sequence, BATCH).await?;
            sequence = batch.last().map_or(sequence, |message| message.sequence);
            found.extend(batch.into_iter().filter_map(|message| {
                let number = message.headers.get(NUMBER)?.as_str().parse().ok()?;
                (number > after).then_some(Delta { number, payload: message.payload })
            }));
            if !more {
                return Ok(found);
            }
        }
    }

    /// Follows a turn behind delta `after`, from the first that is kept.
    pub async fn follow(&self, subject: &str, after: u64) -> Result<DeltaReader, StoreError> {
        // Live first, then what is kept: nothing falls between the two.
        let live = self.client.subscribe(subject.to_owned()).await.map_err(failed)?;
        // A publish of ours that is behind the subscription on this connection reaches it.
        let ready = self.kept(subject, after).await?.into();
        Ok(DeltaReader { deltas: self.clone(), subject: subject.to_owned(), last: after, ready, live })
    }
}

/// A reader of one turn: each delta once, in order.
pub struct DeltaReader {
    deltas: Deltas,
    subject: String,
    last: u64,
    ready: VecDeque<Delta>,
    live: Subscriber,
}

impl DeltaReader {
    /// The deltas that are there already.
    pub fn ready(&mut self) -> Vec<Delta> {
        let found: Vec<Delta> = self.ready.drain(..).collect();
        self.last = found.last().map_or(self.last, |delta| delta.number);
        found
    }

    /// The next delta, or `None` when `patience` passed without one.
    pub async fn next(&mut self, patience: Duration) -> Result<Option<Delta>, StoreError> {
        let until = tokio::time::Instant::now() + patience;
        loop {
            if let Some(delta) = self.ready.pop_front() {
                if delta.number <= self.last {
                    continue;
                }
                self.last = delta.number;
                return Ok(Some(delta));
            }
            let message = match tokio::time::timeout_at(until, self.live.next()).await {
                Err(_) => return Ok(None),
                Ok(None) => return Err(StoreError::Failed("the connection closed".to_owned())),
                Ok(Some(message)) => message,
            };
            let number = message.headers.as_ref().and_then(|headers| headers.get(NUMBER)).and_then(|text| text.as_str().parse().ok());
            let Some(number) = number else { continue };
            if number > self.last + 1 {
                self.fill_gap(number).await?;
            }
            self.ready.push_back(Delta { number, payload: message.payload });
        }
    }

    /// Messages were dropped on the way to us: the stream has them, a moment later at the latest.
    async fn fill_gap(&mut self, before: u64) -> Result<(), StoreError> {
        let until = tokio::time::Instant::now() + PATIENCE;
        loop {
            let kept = self.deltas.kept(&self.subject, self.last).await?;
            let complete = kept.iter().filter(|delta| delta.number < before).count() as u64 == before - self.last - 1;
            if complete || tokio::time::Instant::now() > until {
                self.ready.extend(kept);
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}
