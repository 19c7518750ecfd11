//! The law: pure rules that decide which fact a command states. No tokio, no clock, no randomness, no sockets.

pub mod account;
mod address;
pub mod context;
pub mod conversation;
pub mod decider;
#[cfg(test)]
mod given;
pub mod kind;
pub mod pool;
pub mod rejection;
pub mod setting;
pub mod task;
pub mod upstream;
pub mod worker;
pub mod workload;

pub use context::{Context, Source};
pub use decider::Decider;
pub use rejection::{Code, Rejection};
