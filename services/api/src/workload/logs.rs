//! `GET /v1/workloads/{id}/logs`: the last lines of a workload that ended badly, as its provider reported them.

use super::{gate, visible};
use crate::auth::Caller;
use crate::problem::{Problem, ProblemBody};
use crate::state::App;
use axum::Json;
use axum::extract::{Path, State};
use serde::Serialize;
use utoipa::ToSchema;

/// Lines.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Logs {
    /// At most 80, the oldest first. Empty while the workload is healthy.
    lines: Vec<String>,
    /// The exit code of the process, where it ended.
    exit_code: Option<i32>,
}

/// Shows a workload's last words
#[utoipa::path(get, path = "/v1/workloads/{id}/logs", tag = "workload", params(("id" = String, Path)), security(("key" = [])),
    responses((status = 200, body = Logs), (status = "4XX", body = ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn logs(State(app): State<App>, caller: Caller, Path(id): Path<String>) -> Result<Json<Logs>, Problem> {
    let (aggregate, workload) = visible(&app, &caller, &id).await?;
    if let Some(kind) = workload.kind().filter(|_| !caller.is_platform_admin()) {
        gate(&app, aggregate.account, kind.category()).await?;
    }
    let observed = workload.observed;
    Ok(Json(Logs {
        exit_code: observed.as_ref().and_then(|observed| observed.exit_code),
        lines: observed.map(|observed| observed.log_tail).unwrap_or_default(),
    }))
}
