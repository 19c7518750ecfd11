//! `GET /v1/models`: what the caller can name as `model`.

use crate::auth::Caller;
use crate::problem::{Problem, ProblemBody};
use crate::setting::inference_enabled;
use crate::state::App;
use axum::Json;
use axum::extract::{Path, State};
use serde::Serialize;
use signalbox_projections::workload_list::{self, Row};
use utoipa::ToSchema;

/// Models.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ModelList {
    object: &'static str,
    data: Vec<Model>,
}

/// A model, by the name that requests use.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Model {
    id: String,
    object: &'static str,
    /// Unix time.
    created: i64,
    owned_by: String,
    /// The name that people see.
    name: String,
    /// Where its deployment stands.
    state: &'static str,
}

impl Model {
    fn new(row: Row) -> Option<Self> {
        Some(Self {
            id: row.route_name?,
            object: "model",
            created: row.created_at.timestamp(),
            owned_by: row.owner_name,
            name: row.display_name,
            state: row.state.as_str(),
        })
    }
}

/// Lists the models of the caller's account
#[utoipa::path(get, path = "/v1/models", tag = "openai", security(("key" = [])),
    responses((status = 200, body = ModelList), (status = "4XX", body = ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn list(State(app): State<App>, caller: Caller) -> Result<Json<ModelList>, Problem> {
    let enabled = inference_enabled(&app, caller.account).await?;
    let rows = if enabled { workload_list::deployments(&app.db, caller.account.0).await? } else { vec![] };
    Ok(Json(ModelList { object: "list", data: rows.into_iter().filter_map(Model::new).collect() }))
}

/// Shows a model
#[utoipa::path(get, path = "/v1/models/{model}", tag = "openai", params(("model" = String, Path)), security(("key" = [])),
    responses((status = 200, body = Model), (status = "4XX", body = ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn get(State(app): State<App>, caller: Caller, Path(model): Path<String>) -> Result<Json<Model>, Problem> {
    crate::conversation::gate(&app, &caller).await?;
    let row = workload_list::by_route(&app.db, caller.account.0, &model).await?;
    let found = row.and_then(Model::new).ok_or_else(|| crate::conversation::no_model(&model))?;
    Ok(Json(found))
}
