//! `GET /v1/workloads/{id}`: one workload in full.

use super::{Workload, gate, visible};
use crate::auth::Caller;
use crate::problem::{Problem, ProblemBody};
use crate::request::{row, wait_for};
use crate::state::App;
use axum::Json;
use axum::extract::{Path, Query, State};
use serde::Deserialize;
use signalbox_events::WorkloadId;
use signalbox_projections::workload_list::{self, View};
use utoipa::IntoParams;

/// How fresh the answer must be.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct After {
    /// A position that the view must have reached.
    pub after: Option<String>,
}

/// Shows a workload
#[utoipa::path(get, path = "/v1/workloads/{id}", tag = "workload", params(("id" = String, Path), After), security(("key" = [])),
    responses((status = 200, body = Workload), (status = "4XX", body = ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn get(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    Query(query): Query<After>,
) -> Result<Json<Workload>, Problem> {
    let (aggregate, workload) = visible(&app, &caller, &id).await?;
    if let Some(kind) = workload.kind().filter(|_| !caller.is_platform_admin()) {
        gate(&app, aggregate.account, kind.category()).await?;
    }
    wait_for(&app, &View, query.after.as_deref()).await?;
    let id: WorkloadId = super::id(&aggregate.id)?;
    let row = row(|| workload_list::find(&app.db, id.0)).await?;
    Ok(Json(Workload::new(row, true)))
}
