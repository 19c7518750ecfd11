//! The views: rows, how events become them, and the queries that read them. All SQL is here and in `migrations/`.

pub mod account;
pub mod checkpoint;
pub mod conversation;
mod migrate;
mod projection;
mod rows;
pub mod setting;
#[cfg(test)]
mod testing;
pub mod workload_list;

pub use migrate::{down, up};
pub use projection::{ApplyError, Projection, VIEWS, view};
pub use sqlx;
