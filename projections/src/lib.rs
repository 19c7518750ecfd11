//! The views: rows, how events become them, and the queries that read them. All SQL is here and in `migrations/`.

pub mod account;
pub mod checkpoint;
pub mod conversation;
mod migrate;
pub mod pool;
mod projection;
mod rows;
pub mod setting;
pub mod task;
#[cfg(test)]
mod testing;
pub mod upstream;
pub mod worker;
pub mod workload_list;

pub use migrate::{down, up};
pub use projection::{ApplyError, Projection, VIEWS, view};
pub use sqlx;
