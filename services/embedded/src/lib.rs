//! The embedded default: fetches and runs a real nats-server and a real PostgreSQL on this machine.
//!
//! Knows nothing of events, commands or views; roles and tests get addresses and credentials from it.

pub mod folder;
pub mod nats;
pub mod postgres;
pub mod process;
pub mod provision;
mod supervise;
pub mod testing;

/// Something of the embedded default cannot be had or started.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// What to do about it is in the text.
    #[error("{0}")]
    Advice(String),
    /// The system said no.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// What the system said.
        source: std::io::Error,
    },
}

impl Error {
    /// Names what was tried.
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }
}
