//! The law run against the log: load, decide, append, retry on conflict.

mod execute;
mod fold;
mod follow;
mod history;
mod piece;

use crate::journal::{AppendError, Journal, StoreError};
use crate::vault::{Vault, VaultError};
use fold::Slot;
pub use follow::{Entry, EntryError, FollowError, Follower};
use lru::LruCache;
pub use piece::Piece;
use signalbox_domain::{Rejection, Source};
use signalbox_events::{Aggregate, CommandId, DecodeError, EncodeError, EventId, Position};
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError};
use uuid::Uuid;

/// Aggregates whose state is held in memory.
const CACHED: NonZeroUsize = NonZeroUsize::new(10_000).unwrap();

/// The log with the law, the keys and a cache of states.
pub struct Ledger {
    journal: Arc<dyn Journal>,
    vault: Vault,
    source: Source,
    /// A slot is also the lock that serialises commands on its aggregate within this process.
    slots: Mutex<LruCache<Aggregate, Arc<tokio::sync::Mutex<Slot>>>>,
}

/// Who asks, and why.
#[derive(Debug, Clone)]
pub struct Requester {
    /// `<kind>:<id>`.
    pub actor: String,
    /// For whom.
    pub on_behalf_of: Option<String>,
    /// The command's id where the caller can repeat it; else each call is a command of its own.
    pub command_id: Option<CommandId>,
    /// Joins all that one request set in motion.
    pub correlation_id: Option<Uuid>,
    /// The event that caused the command.
    pub causation_id: Option<EventId>,
    /// W3C trace context.
    pub traceparent: Option<String>,
}

impl Requester {
    /// A role of the service itself.
    pub fn role(name: &str) -> Self {
        Self { actor: format!("role:{name}"), on_behalf_of: None, command_id: None, correlation_id: None, causation_id: None, traceparent: None }
    }
}

/// A command for an aggregate.
#[derive(Debug, Clone)]
pub struct Request<C> {
    /// Whom it concerns.
    pub aggregate: Aggregate,
    /// What is asked.
    pub command: C,
    /// By whom.
    pub requester: Requester,
}

/// What a command came to.
#[derive(Debug, Clone)]
pub struct Executed<S> {
    /// The aggregate's state after it.
    pub state: S,
    /// The event that this very call stated; `None`: it was so already.
    pub stated: Option<EventId>,
    /// The place of the aggregate's last event: a view that has reached it shows the outcome.
    pub position: Position,
}

/// A command was not carried out.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The rules refuse it.
    #[error(transparent)]
    Rejected(#[from] Rejection),
    /// Conflict after conflict.
    #[error("too many writers on {0}")]
    Contended(Aggregate),
    /// The log does not take it.
    #[error("the log does not take the event")]
    Append(#[from] AppendError),
    /// The log or a store cannot be read.
    #[error("the log cannot be read")]
    Store(#[from] StoreError),
    /// Texts cannot be sealed or unsealed.
    #[error("texts cannot be sealed or unsealed")]
    Vault(#[from] VaultError),
    /// Stored bytes are no event.
    #[error("an event of {aggregate} cannot be read")]
    Decode {
        /// The aggregate.
        aggregate: Aggregate,
        /// Why.
        source: DecodeError,
    },
    /// The event cannot be written.
    #[error("the event cannot be written")]
    Encode(#[from] EncodeError),
    /// The aggregate's past is not whole: its hash chain or its versions break.
    #[error("the chain of {aggregate} breaks at {position}")]
    Broken {
        /// The aggregate.
        aggregate: Aggregate,
        /// The first bad place.
        position: Position,
    },
    /// The aggregate holds a fact that this build does not know.
    #[error("{aggregate} holds an event at {position} that this build does not know")]
    UnknownFact {
        /// The aggregate.
        aggregate: Aggregate,
        /// Its place.
        position: Position,
    },
}

impl Ledger {
    /// A ledger over `journal`.
    pub fn new(journal: Arc<dyn Journal>, vault: Vault, source: Source) -> Self {
        Self { journal, vault, source, slots: Mutex::new(LruCache::new(CACHED)) }
    }

    /// The log below.
    pub fn journal(&self) -> &Arc<dyn Journal> {
        &self.journal
    }

    /// The source of time, ids and random bits.
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// The position of `sequence` in the aggregate's partition.
    fn position(&self, aggregate: &Aggregate, sequence: u64) -> Position {
        Position::new(aggregate.partition(self.journal.partitions()), sequence)
    }

    fn slot(&self, aggregate: &Aggregate) -> Arc<tokio::sync::Mutex<Slot>> {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        slots.get_or_insert(aggregate.clone(), Arc::default).clone()
    }
}
