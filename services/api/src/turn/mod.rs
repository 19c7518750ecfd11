//! Turns: submit and attach, show, stream, cancel.

pub(crate) mod cancel;
mod follow;
pub(crate) mod get;
mod render;
pub(crate) mod stream;
pub(crate) mod submit;

use crate::problem::Problem;
use crate::state::App;
use chrono::{DateTime, Utc};
use serde::Serialize;
use serde_json::Value;
use signalbox_events::TurnId;
use signalbox_projections::conversation::{self, TurnRow};
use std::time::{Duration, Instant};
use utoipa::ToSchema;
use uuid::Uuid;

/// A turn as answers show it.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TurnView {
    pub turn_id: Uuid,
    pub conversation_id: Uuid,
    /// Its place, from 1.
    pub number: u32,
    pub client_turn_id: String,
    /// `submitted`, `running`, `completed`, `failed`, `cancelled`, `interrupted` or `submission_unknown`.
    pub state: &'static str,
    /// Why it failed.
    pub code: Option<String>,
    /// What the caller sent.
    pub messages: Value,
    /// The assistant's message, once whole.
    pub answer: Option<Value>,
    /// What had arrived of an answer that is not whole.
    pub partial: Option<String>,
    /// Why the model stopped.
    pub finish_reason: Option<String>,
    pub usage: UsageView,
    pub submitted_at: DateTime<Utc>,
    pub begun_at: Option<DateTime<Utc>>,
    pub ended_at: Option<DateTime<Utc>>,
}

/// Tokens of a turn.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct UsageView {
    pub prompt_tokens: u64,
    pub completion_tokens: u64,
    pub total_tokens: u64,
    /// Whether they were estimated since the model gave none.
    pub estimated: bool,
}

impl TurnView {
    pub fn new(row: TurnRow) -> Self {
        Self {
            turn_id: row.id,
            conversation_id: row.conversation,
            number: row.number,
            client_turn_id: row.client_turn_id,
            state: row.state.as_str(),
            code: row.code,
            messages: row.messages,
            answer: row.answer,
            partial: row.partial,
            finish_reason: row.finish_reason,
            usage: UsageView {
                prompt_tokens: row.prompt_tokens,
                completion_tokens: row.completion_tokens,
                total_tokens: row.prompt_tokens + row.completion_tokens,
                estimated: row.usage_estimated,
            },
            submitted_at: row.submitted_at,
            begun_at: row.begun_at,
            ended_at: row.ended_at,
        }
    }
}

/// The row of a turn that has ended; the view follows the log by milliseconds.
async fn ended_row(app: &App, turn: TurnId) -> Result<Option<TurnRow>, Problem> {
    let until = Instant::now() + Duration::from_secs(5);
    let mut pause = Duration::from_millis(2);
    loop {
        let row = conversation::turn(&app.db, turn.0).await?;
        if let Some(row) = row.filter(|row| row.ended_at.is_some()) {
            return Ok(Some(row));
        }
        if Instant::now() > until {
            return Ok(None);
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_millis(50));
    }
}
