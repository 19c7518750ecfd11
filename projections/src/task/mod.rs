//! The view of tasks. Payloads and results stay in the log; the row knows their lengths.

mod apply;
mod query;
#[cfg(test)]
mod tests;

use crate::rows::Column;
use crate::{ApplyError, Projection};
use chrono::{DateTime, Utc};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
pub use query::{Error, Filter, count_open_in_pool, find, list, open};
use serde::{Deserialize, Serialize};
use signalbox_events::task::{Mode, RunMode, State};
use signalbox_events::{Noun, Recorded};
use sqlx::PgConnection;
use uuid::Uuid;

const TABLE: &str = "task_v1";

/// The view.
pub struct View;

macro_rules! row {
    ($($(#[$meta:meta])* $name:ident: $type:ty = $column:literal),+ $(,)?) => {
        /// A task.
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        pub struct Row { $($(#[$meta])* pub $name: $type),+ }

        const COLUMNS: &[Column] = &[$((stringify!($name), $column)),+];
    };
}

row! {
    /// Its id.
    id: Uuid = "uuid",
    /// The account.
    account: Uuid = "uuid",
    /// Whose it is.
    owner_id: Uuid = "uuid",
    /// The owner's name.
    owner_name: String = "text",
    /// What is to be done.
    kind: String = "text",
    /// Whether a caller waits.
    mode: Mode = "text",
    /// Whether anything is sent.
    run_mode: RunMode = "text",
    /// 0 to 9, the higher first.
    priority: u8 = "integer",
    /// Whether the answer is wanted piece by piece.
    streaming: bool = "boolean",
    /// Whether its kind may be sent twice without harm.
    idempotent: bool = "boolean",
    /// The model's name where it is sent.
    model: Option<String> = "text",
    /// The deployment that it is sent to.
    workload: Option<Uuid> = "uuid",
    /// The upstream that it is sent to.
    upstream: Option<Uuid> = "uuid",
    /// Where it stands.
    state: State = "text",
    /// Whether a cancel waits for evidence.
    cancel_waits: bool = "boolean",
    /// The pool that the caller asked for.
    wanted_pool: Option<String> = "text",
    /// The pool whose queue it is, or was last, in.
    pool: Option<String> = "text",
    /// The worker of the last lease.
    worker: Option<String> = "text",
    /// Which start of it.
    incarnation: Option<Uuid> = "uuid",
    /// The fence of the last lease.
    epoch: Option<u64> = "bigint",
    /// Leases so far.
    attempt: u32 = "integer",
    /// Redeemed tokens so far.
    redemptions: u32 = "integer",
    /// Refusals so far.
    retries: u32 = "integer",
    /// Why it failed, was refused or became unknown.
    code: Option<String> = "text",
    /// The status that the upstream answered.
    upstream_status: Option<u16> = "integer",
    /// The upstream's id of it.
    upstream_id: Option<String> = "text",
    /// What an unknown submission is known by.
    evidence: Option<String> = "text",
    /// What an operator knew.
    resolution: Option<String> = "text",
    /// An operator's words.
    reason: Option<String> = "text",
    /// Length of the payload.
    payload_characters: u64 = "bigint",
    /// Length of the result, where there is one.
    result_characters: Option<u64> = "bigint",
    /// Tokens read.
    prompt_tokens: Option<u64> = "bigint",
    /// Tokens written.
    completion_tokens: Option<u64> = "bigint",
    /// Whether the tokens were estimated.
    usage_estimated: Option<bool> = "boolean",
    /// When it was taken on.
    accepted_at: DateTime<Utc> = "timestamptz",
    /// Since when it waits, or last waited, in a queue.
    queued_at: Option<DateTime<Utc>> = "timestamptz",
    /// When it was leased last.
    leased_at: Option<DateTime<Utc>> = "timestamptz",
    /// The end of the last lease as granted; renewals are not events.
    lease_expires_at: Option<DateTime<Utc>> = "timestamptz",
    /// When a token was redeemed last.
    redeemed_at: Option<DateTime<Utc>> = "timestamptz",
    /// When it must have been leased.
    start_deadline: Option<DateTime<Utc>> = "timestamptz",
    /// When it is tried again.
    retry_at: Option<DateTime<Utc>> = "timestamptz",
    /// Since when its submission is unknown, while it is.
    unknown_since: Option<DateTime<Utc>> = "timestamptz",
    /// When it ended.
    ended_at: Option<DateTime<Utc>> = "timestamptz",
    /// Its last event.
    updated_at: DateTime<Utc> = "timestamptz",
    /// The partition of its events.
    partition: u16 = "integer",
    /// The last event in the row.
    sequence: u64 = "bigint",
}

impl Projection for View {
    fn name(&self) -> &'static str {
        "task"
    }
    fn version(&self) -> u32 {
        1
    }
    fn nouns(&self) -> &'static [Noun] {
        &[Noun::Task]
    }
    fn tables(&self) -> &'static [(&'static str, &'static str)] {
        &[(TABLE, "id")]
    }
    fn ddl(&self) -> &'static str {
        include_str!("../../../migrations/0006_task_v1.up.sql")
    }
    fn apply<'a>(&'a self, db: &'a mut PgConnection, events: &'a [&'a Recorded]) -> BoxFuture<'a, Result<(), ApplyError>> {
        apply::apply(db, events).boxed()
    }
}
