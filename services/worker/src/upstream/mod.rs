//! Calls to models: out with the caller's request, back with what arrives, however it is cut into pieces.

mod answer;
mod call;
mod parser;

pub use answer::Answer;
pub use call::{CallError, Chunks, Fault, Marks, Reply, as_chunk, call, client};
