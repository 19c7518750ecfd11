//! The log on NATS JetStream.

mod append;
mod connect;
mod deltas;
mod plain;
mod read;
mod store;

use crate::journal::{Append, AppendError, Journal, Store, StoreError, Stored, Tail};
use async_nats::Client;
use async_nats::jetstream::{self, Context};
use bytes::Bytes;
#[cfg(test)]
pub(crate) use connect::stream_config as stream_config_for_tests;
pub use connect::{Credentials, OpenError, Options, connect};
pub use deltas::{Delta, DeltaReader, Deltas};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
pub use plain::{HeaderMap, Plain, PlainMessages, PlainRequest, PlainRequests};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// No wait for the server is longer than this.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

/// The log on a NATS server or cluster.
pub struct Nats {
    client: Client,
    jetstream: Context,
    partitions: u16,
    replicas: usize,
    /// `$JS.API`, or the prefix under which another account imports it.
    api: String,
    stores: HashMap<Store, store::Bucket>,
    /// One signal a partition, raised when a message was published to it.
    signals: Vec<watch::Receiver<u64>>,
}

impl Nats {
    /// Messages beside the log.
    pub fn plain(&self) -> Plain {
        Plain::new(self.client.clone())
    }

    /// Opens the log: creates its streams and stores where `options` says so, passes the start-up gate, listens.
    pub async fn open(options: Options) -> Result<Arc<Self>, OpenError> {
        connect::open(options).await
    }
}

impl Journal for Nats {
    fn partitions(&self) -> u16 {
        self.partitions
    }

    fn reads_may_lag(&self) -> bool {
        self.replicas > 1
    }

    fn append(&self, message: Append) -> BoxFuture<'_, Result<u64, AppendError>> {
        append::append(&self.client, message).boxed()
    }

    fn read<'a>(&'a self, partition: u16, filter: &'a str, after: u64, most: usize) -> BoxFuture<'a, Result<(Vec<Stored>, bool), StoreError>> {
        read::read(&self.client, &self.api, partition, filter, after, most).boxed()
    }

    fn head<'a>(&'a self, partition: u16, subject: &'a str) -> BoxFuture<'a, Result<u64, StoreError>> {
        read::head(&self.client, &self.api, partition, subject).boxed()
    }

    fn tail(&self, partition: u16) -> BoxFuture<'_, Result<Tail, StoreError>> {
        read::tail(&self.jetstream, partition).boxed()
    }

    fn signal(&self, partition: u16) -> watch::Receiver<u64> {
        // A partition that does not exist never changes.
        self.signals.get(usize::from(partition)).cloned().unwrap_or_else(|| watch::channel(0).1)
    }

    fn get<'a>(&'a self, store: Store, key: &'a str) -> BoxFuture<'a, Result<Option<Bytes>, StoreError>> {
        async move { store::bounded(self.bucket(store)?.get(key)).await }.boxed()
    }

    fn put<'a>(&'a self, store: Store, key: &'a str, value: Bytes) -> BoxFuture<'a, Result<(), StoreError>> {
        async move { store::bounded(self.bucket(store)?.put(key, value)).await }.boxed()
    }

    fn create<'a>(&'a self, store: Store, key: &'a str, value: Bytes) -> BoxFuture<'a, Result<bool, StoreError>> {
        async move { store::bounded(self.bucket(store)?.create(key, value)).await }.boxed()
    }

    fn delete<'a>(&'a self, store: Store, key: &'a str) -> BoxFuture<'a, Result<(), StoreError>> {
        async move { store::bounded(self.bucket(store)?.delete(key)).await }.boxed()
    }

    fn probe(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        self.put(Store::Heartbeats, "probe", Bytes::from_static(b"1"))
    }
}

impl Nats {
    fn bucket(&self, store: Store) -> Result<&store::Bucket, StoreError> {
        self.stores.get(&store).ok_or_else(|| StoreError::Failed(format!("no store {} with these credentials", store.bucket())))
    }
}

/// The JetStream error code inside an error of the client.
pub(crate) fn jetstream_code(error: &(dyn std::error::Error + 'static)) -> Option<u64> {
    let mut current = Some(error);
    while let Some(error) = current {
        if let Some(error) = error.downcast_ref::<jetstream::Error>() {
            return Some(error.error_code().0);
        }
        current = error.source();
    }
    None
}
