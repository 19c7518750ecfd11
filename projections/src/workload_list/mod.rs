//! The unified list: jobs and deployments in one table.

mod apply;
mod query;
mod row;
#[cfg(test)]
mod tests;

use crate::{ApplyError, Projection};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
pub use query::{Cursor, Error, Filter, Page, by_route, deployments, find, list};
pub use row::{Replicas, Revision, Row};
use signalbox_events::{Noun, Recorded};
use sqlx::PgConnection;

/// The view.
pub struct View;

impl Projection for View {
    fn name(&self) -> &'static str {
        "workload_list"
    }
    fn version(&self) -> u32 {
        1
    }
    fn nouns(&self) -> &'static [Noun] {
        &[Noun::Workload]
    }
    fn tables(&self) -> &'static [(&'static str, &'static str)] {
        &[(row::TABLE, "id")]
    }
    fn ddl(&self) -> &'static str {
        include_str!("../../../migrations/0004_workload_list_v1.up.sql")
    }
    fn apply<'a>(&'a self, db: &'a mut PgConnection, events: &'a [&'a Recorded]) -> BoxFuture<'a, Result<(), ApplyError>> {
        apply::apply(db, events).boxed()
    }
}
