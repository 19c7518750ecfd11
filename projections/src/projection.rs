//! What a view is, and which there are.

use crate::{account, conversation, pool, setting, task, upstream, worker, workload_list};
use futures_util::future::BoxFuture;
use signalbox_events::{Noun, Recorded};
use sqlx::PgConnection;

/// Events cannot be taken into a view.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// PostgreSQL said no.
    #[error("the database refused")]
    Database(#[from] sqlx::Error),
    /// A row does not have the shape that this build writes.
    #[error("a row cannot be read or written")]
    Row(#[from] serde_json::Error),
    /// The event makes no sense to the view.
    #[error("{0}")]
    Poison(String),
}

/// A view. A change of its tables or of `apply` raises `VERSION`: new tables are built beside the live ones.
pub trait Projection: Send + Sync + 'static {
    /// Its table, checkpoint row and URL noun.
    fn name(&self) -> &'static str;
    /// Its version.
    fn version(&self) -> u32;
    /// The nouns whose events it reads.
    fn nouns(&self) -> &'static [Noun];
    /// Its tables, each with its primary key.
    fn tables(&self) -> &'static [(&'static str, &'static str)];
    /// The DDL of its tables: what its migration runs.
    fn ddl(&self) -> &'static str;
    /// Takes in events, in order: folded in memory, written at once. The caller's transaction holds the checkpoint.
    fn apply<'a>(&'a self, db: &'a mut PgConnection, events: &'a [&'a Recorded]) -> BoxFuture<'a, Result<(), ApplyError>>;

    /// `<view>_v<N>`.
    fn id(&self) -> String {
        format!("{}_v{}", self.name(), self.version())
    }
}

/// Every view.
pub static VIEWS: [&dyn Projection; 8] =
    [&account::View, &setting::View, &workload_list::View, &conversation::View, &task::View, &pool::View, &worker::View, &upstream::View];

/// The view of a name.
pub fn view(name: &str) -> Option<&'static dyn Projection> {
    VIEWS.into_iter().find(|view| view.name() == name)
}
