//! The log: append, load, follow, and `execute`, which runs the law against it.
//!
//! [`Journal`] is the log's contract, kept by NATS JetStream ([`nats`]) and by memory ([`memory`]) and checked by one
//! conformance suite. [`Ledger`] puts the law, the keys and a cache on top.

#[cfg(test)]
mod conformance;
pub mod gate;
mod journal;
mod ledger;
pub mod memory;
pub mod nats;
mod vault;

pub use journal::{Append, AppendError, Journal, Store, StoreError, Stored, Tail};
pub use ledger::{Entry, EntryError, Executed, Failure, FollowError, Follower, Ledger, Piece, Request, Requester};
pub use vault::{MasterKey, Vault, VaultError};
