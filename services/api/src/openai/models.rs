//! `GET /v1/models`: what the caller can name as `model`.

use crate::auth::Caller;
use crate::problem::{Problem, ProblemBody};
use crate::setting::inference_enabled;
use crate::state::App;
use axum::Json;
use axum::extract::{Path, State};
use serde::Serialize;
use signalbox_events::AccountId;
use signalbox_projections::upstream;
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
    /// Where its deployment stands; of a model of an upstream: `enabled` or `disabled`.
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

    /// The models of an upstream.
    fn of_upstream(row: upstream::Row) -> Vec<Self> {
        let state = if row.enabled { "enabled" } else { "disabled" };
        let model = |model: signalbox_events::upstream::Model| Self {
            id: format!("{}/{}", row.name, model.name),
            object: "model",
            created: row.created_at.timestamp(),
            owned_by: row.provider.clone(),
            name: model.name,
            state,
        };
        row.models.into_iter().map(model).collect()
    }
}

/// What the account can name.
async fn known(app: &App, account: AccountId) -> Result<Vec<Model>, Problem> {
    let rows = workload_list::deployments(&app.db, account.0).await?;
    let mut models: Vec<Model> = rows.into_iter().filter_map(Model::new).collect();
    for model in upstream::list(&app.db, account.0).await?.into_iter().flat_map(Model::of_upstream) {
        // An upstream of the account's own hides everyone's of the same name.
        if models.iter().all(|known| known.id != model.id) {
            models.push(model);
        }
    }
    Ok(models)
}

/// Lists the models of the caller's account
#[utoipa::path(get, path = "/v1/models", tag = "openai", security(("key" = [])),
    responses((status = 200, body = ModelList), (status = "4XX", body = ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn list(State(app): State<App>, caller: Caller) -> Result<Json<ModelList>, Problem> {
    let enabled = inference_enabled(&app, caller.account).await?;
    let data = if enabled { known(&app, caller.account).await? } else { vec![] };
    Ok(Json(ModelList { object: "list", data }))
}

/// Shows a model
#[utoipa::path(get, path = "/v1/models/{model}", tag = "openai", params(("model" = String, Path)), security(("key" = [])),
    responses((status = 200, body = Model), (status = "4XX", body = ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn get(State(app): State<App>, caller: Caller, Path(model): Path<String>) -> Result<Json<Model>, Problem> {
    crate::conversation::gate(&app, &caller).await?;
    let found = known(&app, caller.account).await?.into_iter().find(|known| known.id == model);
    found.map(Json).ok_or_else(|| crate::conversation::no_model(&model))
}
