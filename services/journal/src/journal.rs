//! The log's contract: one total order a partition, optimistic concurrency a subject, and small stores beside it.

use bytes::Bytes;
use chrono::{DateTime, Utc};
use futures_util::future::BoxFuture;
use std::time::Duration;
use tokio::sync::watch;

/// A message of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// Its place in the partition, from 1, without gaps.
    pub sequence: u64,
    /// Its subject.
    pub subject: String,
    /// Its bytes.
    pub payload: Bytes,
}

/// A message to append.
#[derive(Debug, Clone)]
pub struct Append {
    /// Its subject.
    pub subject: String,
    /// The sequence of the subject's last message, 0 for none: anything else refuses the append.
    pub expected: u64,
    /// Its bytes.
    pub payload: Bytes,
    /// The event's type, a convenience outside the hash chain.
    pub kind: &'static str,
    /// W3C trace context, likewise.
    pub traceparent: Option<String>,
}

/// Why a message was not appended, or may not have been.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    /// The subject has another last message than expected (JetStream 10071). Nothing was stored.
    #[error("the subject's head is not the expected one")]
    Stale,
    /// Another append to the subject is on its way (JetStream 10164). Nothing was stored.
    #[error("another append to this subject is in flight")]
    Busy,
    /// No answer came: the message may be stored, or may yet be.
    #[error("no answer came from the log")]
    Unknown,
    /// The log's storage is full. Nothing was stored.
    #[error("the log's storage is full")]
    Full,
    /// The log does not answer at all. Nothing was stored.
    #[error("the log is not available")]
    Unavailable,
    /// The log refused for another reason. Nothing was stored.
    #[error("the log refused the message: {description} ({code})")]
    Refused {
        /// JetStream's error code.
        code: u64,
        /// Its text.
        description: String,
    },
}

/// Why the log or a store could not be read or written.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// No answer in time.
    #[error("no answer in time")]
    Timeout,
    /// An answer that says no.
    #[error("{0}")]
    Failed(String),
}

/// A partition's extent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tail {
    /// When the partition was created: another time means another log.
    pub created: DateTime<Utc>,
    /// The first sequence that is there.
    pub first: u64,
    /// The last sequence that was given.
    pub last: u64,
}

/// Small stores beside the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Store {
    /// Wrapped keys of aggregates. Losing one is losing its texts.
    Keys,
    /// Folded states, disposable.
    Snapshots,
    /// Signs of life of executors, gone 20 s after the last.
    Heartbeats,
    /// What workers said at their last renewal, gone 10 minutes after it. On disk, so that leases outlive a restart.
    Workers,
    /// Sealed pieces of texts that are handed in one by one, gone an hour after they came.
    Pieces,
    /// Sealed texts that are too large for an event.
    Objects,
}

impl Store {
    /// Every store.
    pub const ALL: [Self; 6] = [Self::Keys, Self::Snapshots, Self::Heartbeats, Self::Workers, Self::Pieces, Self::Objects];

    /// The bucket's name.
    pub fn bucket(self) -> &'static str {
        match self {
            Self::Keys => "KEYS",
            Self::Snapshots => "SNAPSHOTS",
            Self::Heartbeats => "HEARTBEATS",
            Self::Workers => "WORKERS",
            Self::Pieces => "PIECES",
            Self::Objects => "TEXTS",
        }
    }

    /// How long an entry lives after it was written.
    pub fn max_age(self) -> Option<Duration> {
        match self {
            Self::Heartbeats => Some(Duration::from_secs(20)),
            Self::Workers => Some(Duration::from_secs(600)),
            Self::Pieces => Some(Duration::from_secs(3600)),
            Self::Keys | Self::Snapshots | Self::Objects => None,
        }
    }
}

/// The log. Every wait is bounded by the implementation.
pub trait Journal: Send + Sync + 'static {
    /// Count of partitions, fixed at installation.
    fn partitions(&self) -> u16;

    /// Whether a read may be answered by a replica that lags behind the leader.
    fn reads_may_lag(&self) -> bool;

    /// Appends one message and answers with its sequence.
    fn append(&self, message: Append) -> BoxFuture<'_, Result<u64, AppendError>>;

    /// Messages of `partition` with a sequence above `after` on subjects that match `filter`, in order, at most
    /// `most`; whether more are known to follow.
    fn read<'a>(&'a self, partition: u16, filter: &'a str, after: u64, most: usize) -> BoxFuture<'a, Result<(Vec<Stored>, bool), StoreError>>;

    /// The sequence of the subject's last message as the leader knows it; 0 for none.
    fn head<'a>(&'a self, partition: u16, subject: &'a str) -> BoxFuture<'a, Result<u64, StoreError>>;

    /// The partition's extent.
    fn tail(&self, partition: u16) -> BoxFuture<'_, Result<Tail, StoreError>>;

    /// Changes whenever a message may have been appended to `partition`. A hint that may come too early or never: the
    /// log is the truth, and a reader looks again at least every second.
    fn signal(&self, partition: u16) -> watch::Receiver<u64>;

    /// The entry of a store.
    fn get<'a>(&'a self, store: Store, key: &'a str) -> BoxFuture<'a, Result<Option<Bytes>, StoreError>>;

    /// Writes an entry, whatever was there.
    fn put<'a>(&'a self, store: Store, key: &'a str, value: Bytes) -> BoxFuture<'a, Result<(), StoreError>>;

    /// Writes an entry where there is none. `false`: there was one.
    fn create<'a>(&'a self, store: Store, key: &'a str, value: Bytes) -> BoxFuture<'a, Result<bool, StoreError>>;

    /// Removes an entry.
    fn delete<'a>(&'a self, store: Store, key: &'a str) -> BoxFuture<'a, Result<(), StoreError>>;

    /// Whether the log takes messages: a real write, since a server's own health page does not say so.
    fn probe(&self) -> BoxFuture<'_, Result<(), StoreError>>;
}
