//! The contract: everything that can have happened. No logic, no I/O.
//!
//! An event on the log is an [`envelope::Envelope`] (positional MessagePack, append-only) whose `data` is one
//! plain struct of a noun's module, encoded with field names. [`codec`] joins the two.

pub mod account;
pub mod codec;
pub mod conversation;
pub mod envelope;
pub mod facts;
pub mod id;
pub mod json;
pub mod pool;
pub mod position;
pub mod setting;
pub mod subject;
pub mod task;
pub mod text;
pub mod time;
pub mod upstream;
pub mod work;
pub mod worker;
pub mod workload;

pub use codec::{DecodeError, EncodeError, Encoded, Fact, Recorded};
pub use envelope::Envelope;
pub use id::{
    AccountId, CommandId, ConversationId, EventId, IncarnationId, KeyId, PoolId, PrincipalId, TaskId, TurnId, UpstreamId, WorkerId, WorkloadId,
};
pub use position::Position;
pub use subject::{Aggregate, Noun};
pub use text::{Sealed, Text};
pub use time::Micros;
