//! Calls to models: out with the caller's request, back with what arrives, however it is cut into pieces.

mod answer;
mod call;
mod parser;

pub(crate) use answer::Answer;
pub(crate) use call::{CallError, Chunks, Reply, as_chunk, call};
