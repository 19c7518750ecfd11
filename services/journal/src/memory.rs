//! The log in memory: the contract without its durability, for tests of rules and roles.

use crate::journal::{Append, AppendError, Journal, Store, StoreError, Stored, Tail};
use bytes::Bytes;
use chrono::DateTime;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, ready};
use signalbox_events::Aggregate;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

/// A log that lives as long as the process.
pub struct Memory {
    state: Mutex<State>,
    partitions: u16,
    changed: watch::Sender<u64>,
}

#[derive(Default)]
struct State {
    logs: HashMap<u16, Vec<Stored>>,
    heads: HashMap<String, u64>,
    stores: HashMap<(Store, String), Bytes>,
}

impl Memory {
    /// An empty log of `partitions`.
    pub fn new(partitions: u16) -> Self {
        Self { state: Mutex::default(), partitions, changed: watch::channel(0).0 }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every change below is complete before the guard is dropped, so a poisoned state is still whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Journal for Memory {
    fn partitions(&self) -> u16 {
        self.partitions
    }

    fn reads_may_lag(&self) -> bool {
        false
    }

    fn append(&self, message: Append) -> BoxFuture<'_, Result<u64, AppendError>> {
        let outcome = Aggregate::parse(&message.subject)
            .map_err(|_| AppendError::Refused { code: 0, description: "not a subject of the log".to_owned() })
            .and_then(|(partition, _)| {
                let mut state = self.state();
                if state.heads.get(&message.subject).copied().unwrap_or(0) != message.expected {
                    return Err(AppendError::Stale);
                }
                let log = state.logs.entry(partition).or_default();
                let sequence = log.len() as u64 + 1;
                log.push(Stored { sequence, subject: message.subject.clone(), payload: message.payload });
                state.heads.insert(message.subject, sequence);
                Ok(sequence)
            });
        self.changed.send_modify(|count| *count += 1);
        ready(outcome).boxed()
    }

    fn read<'a>(&'a self, partition: u16, filter: &'a str, after: u64, most: usize) -> BoxFuture<'a, Result<(Vec<Stored>, bool), StoreError>> {
        let state = self.state();
        let all = state.logs.get(&partition).map(Vec::as_slice).unwrap_or_default();
        let from = usize::try_from(after).unwrap_or(usize::MAX).min(all.len());
        let mut matching = all[from..].iter().filter(|stored| filter == ">" || stored.subject == filter);
        let found = matching.by_ref().take(most).cloned().collect();
        ready(Ok((found, matching.next().is_some()))).boxed()
    }

    fn head<'a>(&'a self, _: u16, subject: &'a str) -> BoxFuture<'a, Result<u64, StoreError>> {
        ready(Ok(self.state().heads.get(subject).copied().unwrap_or(0))).boxed()
    }

    fn tail(&self, partition: u16) -> BoxFuture<'_, Result<Tail, StoreError>> {
        let last = self.state().logs.get(&partition).map_or(0, |log| log.len() as u64);
        ready(Ok(Tail { created: DateTime::UNIX_EPOCH, first: 1, last })).boxed()
    }

    fn signal(&self, _: u16) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    fn get<'a>(&'a self, store: Store, key: &'a str) -> BoxFuture<'a, Result<Option<Bytes>, StoreError>> {
        ready(Ok(self.state().stores.get(&(store, key.to_owned())).cloned())).boxed()
    }

    fn put<'a>(&'a self, store: Store, key: &'a str, value: Bytes) -> BoxFuture<'a, Result<(), StoreError>> {
        self.state().stores.insert((store, key.to_owned()), value);
        ready(Ok(())).boxed()
    }

    fn create<'a>(&'a self, store: Store, key: &'a str, value: Bytes) -> BoxFuture<'a, Result<bool, StoreError>> {
        let mut state = self.state();
        let entry = state.stores.entry((store, key.to_owned()));
        let vacant = matches!(entry, std::collections::hash_map::Entry::Vacant(_));
        entry.or_insert(value);
        ready(Ok(vacant)).boxed()
    }

    fn delete<'a>(&'a self, store: Store, key: &'a str) -> BoxFuture<'a, Result<(), StoreError>> {
        self.state().stores.remove(&(store, key.to_owned()));
        ready(Ok(())).boxed()
    }

    fn probe(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        ready(Ok(())).boxed()
    }
}
