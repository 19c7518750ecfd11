//! Facts about workers: their starts, their ends, and changes of what they are seen to do. Heartbeats are no facts.

use crate::facts::{facts, words};
use crate::id::{IncarnationId, PoolId};
use serde::{Deserialize, Serialize};

facts! {
    Registered = "worker.registered" v 1,
    Observed = "worker.observed" v 1,
    DrainRequested = "worker.drain_requested" v 1,
    Retired = "worker.retired" v 1,
}

words! {
    /// What a worker is seen to do.
    State {
        /// It claims and renews.
        Ready = "ready",
        /// It ends what it has and claims nothing new.
        Draining = "draining",
        /// It renews, and has free slots, but has not claimed for 30 s.
        NotConsuming = "not_consuming",
        /// It has not renewed for 60 s.
        Lost = "lost",
        /// It has said good-bye.
        Gone = "gone",
    }
}

/// What a worker can do.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Capabilities {
    /// Kinds of tasks: exact, `*`, or `x.*` for every kind that begins with `x.`.
    pub kinds: Vec<String>,
    /// Whether it can stream an answer while it arrives.
    pub streaming: bool,
}

/// A worker has started: whatever an earlier incarnation of it held is no longer its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registered {
    /// Its pool.
    pub pool: PoolId,
    /// This start.
    pub incarnation: IncarnationId,
    /// The version of the worker protocol that it speaks.
    pub protocol: u16,
    /// The worker's own version, for people.
    pub version: String,
    /// What it can do.
    pub capabilities: Capabilities,
    /// Tasks that it executes at once.
    pub slots: u32,
    /// The X25519 key of this start, for what only it may read.
    #[serde(default, with = "serde_bytes", skip_serializing_if = "Option::is_none")]
    pub public_key: Option<[u8; 32]>,
}

/// A worker is seen to do something else than before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Observed {
    /// Which start of it.
    pub incarnation: IncarnationId,
    /// What it does.
    pub state: State,
}

/// An operator wants a worker to end what it has and claim nothing new.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainRequested {
    /// Which start of it.
    pub incarnation: IncarnationId,
}

/// An incarnation is fenced: nothing that it says counts any more, save results of what it had redeemed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retired {
    /// Which start of it.
    pub incarnation: IncarnationId,
    /// Why: `bye`, or `lost`.
    pub reason: String,
}
