//! `POST /v1/conversations/{id}/turns/{turn}/cancel`: ends a turn, wherever it is executed.

use super::get::visible_turn;
use super::{TurnView, ended_row};
use crate::auth::Caller;
use crate::executor;
use crate::problem::{Problem, ProblemBody};
use crate::state::App;
use axum::Json;
use axum::extract::{Path, State};
use signalbox_domain::Code;

/// Cancels a turn
#[utoipa::path(post, path = "/v1/conversations/{id}/turns/{turn}/cancel", tag = "turn", params(("id" = String, Path), ("turn" = String, Path)), security(("key" = [])),
    responses((status = 200, body = TurnView, description = "The turn, cancelled with what had arrived, or as it had ended before"),
        (status = "4XX", body = ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn cancel(
    State(app): State<App>,
    caller: Caller,
    Path((conversation, turn)): Path<(String, String)>,
) -> Result<Json<TurnView>, Problem> {
    let (_, _, turn, found) = visible_turn(&app, &caller, &conversation, &turn).await?;
    if !found.state.is_terminal() {
        executor::cancel(&app, &found.executor, turn).await;
    }
    match ended_row(&app, turn).await? {
        Some(row) => Ok(Json(TurnView::new(row))),
        None => Err(Problem {
            retry_after: Some(5),
            ..Problem::new(Code::Unavailable, "the turn's executor has not answered; the turn ends when it is given up as lost")
        }),
    }
}
