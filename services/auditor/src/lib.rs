//! Role: reads the log with a credential that cannot append; signs checkpoints, verifies, shows.

mod checkpoint;
mod log;
mod sign;
mod verify;

pub use checkpoint::{Checkpoint, Folder, RunningHash};
pub use log::{Filter, Line, log};
pub use sign::Auditor;
pub use verify::{Finding, Verdict, verify};

/// The log or the checkpoints cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The log.
    #[error("the log cannot be read: {0}")]
    Store(#[from] signalbox_journal::StoreError),
    /// The checkpoints' folder.
    #[error("the checkpoints in {folder} cannot be read or written: {source}")]
    Folder {
        /// Where.
        folder: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// A checkpoint that is no checkpoint.
    #[error("{file} is no checkpoint: {reason}")]
    Checkpoint {
        /// The file.
        file: String,
        /// What is wrong.
        reason: String,
    },
}
