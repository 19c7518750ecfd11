//! `GET /v1/conversations/{id}/turns/{turn}`: one turn.

use super::TurnView;
use crate::auth::Caller;
use crate::conversation::{gate, visible};
use crate::problem::{Problem, ProblemBody};
use crate::request::{row, wait_for};
use crate::state::App;
use crate::workload::get::After;
use crate::workload::id;
use axum::Json;
use axum::extract::{Path, Query, State};
use signalbox_domain::conversation::{Existing, Turn};
use signalbox_events::{Aggregate, TurnId};
use signalbox_projections::conversation::{self, View};

/// A turn of a conversation of the caller's.
pub(super) async fn visible_turn(app: &App, caller: &Caller, conversation: &str, turn: &str) -> Result<(Aggregate, Existing, TurnId, Turn), Problem> {
    gate(app, caller).await?;
    let (aggregate, existing) = visible(app, caller, conversation).await?;
    let turn: TurnId = id(turn)?;
    let found = existing.turns.get(&turn).cloned().ok_or_else(Problem::not_found)?;
    Ok((aggregate, existing, turn, found))
}

/// Shows a turn
#[utoipa::path(get, path = "/v1/conversations/{id}/turns/{turn}", tag = "turn", params(("id" = String, Path), ("turn" = String, Path), After), security(("key" = [])),
    responses((status = 200, body = TurnView), (status = "4XX", body = ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn get(
    State(app): State<App>,
    caller: Caller,
    Path((conversation, turn)): Path<(String, String)>,
    Query(query): Query<After>,
) -> Result<Json<TurnView>, Problem> {
    let (_, _, turn, _) = visible_turn(&app, &caller, &conversation, &turn).await?;
    wait_for(&app, &View, query.after.as_deref()).await?;
    let row = row(|| conversation::turn(&app.db, turn.0)).await?;
    Ok(Json(TurnView::new(row)))
}
