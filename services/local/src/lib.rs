//! Role: makes workloads real with processes of this machine, and watches endpoints that run already.
//!
//! The same contract as a cluster's operator: sees what is wanted, makes it so, reports what it observes as a command.

pub mod echo;
mod endpoint;
mod inference;
mod job;
mod probe;
mod replica;
mod report;
mod role;
pub mod runtime;

pub use role::Local;
