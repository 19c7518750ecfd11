//! A library for workers in Rust: it speaks the worker protocol, renews leases, fences itself, and drains on demand.
//!
//! A [`Handler`] does the work of one [`Job`]. It validates, connects, and calls [`Job::redeem`] as the last step before the
//! first byte leaves; without that `Ok` nothing may be sent, and with it only once.

mod job;
mod link;
pub mod openai;
mod run;
pub mod upstream;

pub use job::{Credential, Done, Evidence, Handler, Job, NotRedeemed, Unreadable};
pub use link::CallError;
pub use run::{Error, Options, run};
pub use signalbox_events::work::{Assignment, Outcome, Refusal};
pub use signalbox_events::worker::Capabilities;
