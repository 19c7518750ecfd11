//! Conversations and their turns.

mod cancel;
mod claim;
mod history;
mod lost;
mod resume;
mod stream;
