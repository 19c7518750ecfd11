//! What acceptance tests and benches start: real servers, the service itself, a model that misbehaves on demand.

pub mod answer;
pub mod invariants;
mod model;
pub mod python;
pub mod worker;
pub mod world;

pub use answer::{Answer, Event};
pub use model::{Behaviour, Model};
pub use world::{Caller, World};

/// TLS needs one provider a process; tests come here first.
pub fn ready() {
    let _ = rustls::crypto::ring::default_provider().install_default();
}
