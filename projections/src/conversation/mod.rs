//! The view of conversations with their turns.

mod apply;
mod query;
#[cfg(test)]
mod tests;

use crate::rows::Column;
use crate::{ApplyError, Projection};
use chrono::{DateTime, Utc};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
pub use query::{Error, find, list, open_turns, turn, turns};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use signalbox_events::conversation::TurnState;
use signalbox_events::{Noun, Recorded};
use sqlx::PgConnection;
use uuid::Uuid;

const TABLE: &str = "conversation_v1";
const TURN_TABLE: &str = "conversation_turn_v1";

/// The view.
pub struct View;

/// A conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// Its id.
    pub id: Uuid,
    /// The account.
    pub account: Uuid,
    /// Whose it is.
    pub owner_id: Uuid,
    /// The owner's name.
    pub owner_name: String,
    /// The deployment that it talks to.
    pub workload: Uuid,
    /// The model's name there.
    pub model: String,
    /// Its title, where it has one.
    pub title: Option<String>,
    /// Count of turns.
    pub turns: u32,
    /// When it was started.
    pub created_at: DateTime<Utc>,
    /// Its last event.
    pub updated_at: DateTime<Utc>,
    /// Whether it is hidden and closed.
    pub deleted: bool,
    /// The partition of its events.
    pub partition: u16,
    /// The last event in the row.
    pub sequence: u64,
}

const COLUMNS: [Column; 13] = [
    ("id", "uuid"),
    ("account", "uuid"),
    ("owner_id", "uuid"),
    ("owner_name", "text"),
    ("workload", "uuid"),
    ("model", "text"),
    ("title", "text"),
    ("turns", "integer"),
    ("created_at", "timestamptz"),
    ("updated_at", "timestamptz"),
    ("deleted", "boolean"),
    ("partition", "integer"),
    ("sequence", "bigint"),
];

/// A turn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TurnRow {
    /// Its id.
    pub id: Uuid,
    /// Its conversation.
    pub conversation: Uuid,
    /// Its place, from 1.
    pub number: u32,
    /// The caller's key.
    pub client_turn_id: String,
    /// Where it stands.
    pub state: TurnState,
    /// Why it failed.
    pub code: Option<String>,
    /// What the caller sent.
    pub messages: Value,
    /// The request's other fields.
    pub parameters: Value,
    /// The assistant's message, once whole.
    pub answer: Option<Value>,
    /// What had arrived of one that is not whole.
    pub partial: Option<String>,
    /// Why the model stopped.
    pub finish_reason: Option<String>,
    /// Tokens read.
    pub prompt_tokens: u64,
    /// Tokens written.
    pub completion_tokens: u64,
    /// Whether the tokens were estimated.
    pub usage_estimated: bool,
    /// Who calls the model.
    pub executor: Option<String>,
    /// The subject of its deltas.
    pub stream: Option<String>,
    /// When it was claimed.
    pub submitted_at: DateTime<Utc>,
    /// When the model was called.
    pub begun_at: Option<DateTime<Utc>>,
    /// When it ended.
    pub ended_at: Option<DateTime<Utc>>,
}

const TURN_COLUMNS: [Column; 19] = [
    ("id", "uuid"),
    ("conversation", "uuid"),
    ("number", "integer"),
    ("client_turn_id", "text"),
    ("state", "text"),
    ("code", "text"),
    ("messages", "json"),
    ("parameters", "json"),
    ("answer", "json"),
    ("partial", "text"),
    ("finish_reason", "text"),
    ("prompt_tokens", "bigint"),
    ("completion_tokens", "bigint"),
    ("usage_estimated", "boolean"),
    ("executor", "text"),
    ("stream", "text"),
    ("submitted_at", "timestamptz"),
    ("begun_at", "timestamptz"),
    ("ended_at", "timestamptz"),
];

impl Projection for View {
    fn name(&self) -> &'static str {
        "conversation"
    }
    fn version(&self) -> u32 {
        1
    }
    fn nouns(&self) -> &'static [Noun] {
        &[Noun::Conversation]
    }
    fn tables(&self) -> &'static [(&'static str, &'static str)] {
        &[(TABLE, "id"), (TURN_TABLE, "id")]
    }
    fn ddl(&self) -> &'static str {
        include_str!("../../../migrations/0005_conversation_v1.up.sql")
    }
    fn apply<'a>(&'a self, db: &'a mut PgConnection, events: &'a [&'a Recorded]) -> BoxFuture<'a, Result<(), ApplyError>> {
        apply::apply(db, events).boxed()
    }
}
