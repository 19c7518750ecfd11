//! What operators decide of tasks: the fate of an unknown submission, another try for a dead letter.

use super::{carry_out, visible};
use crate::body::Body;
use crate::problem::{Problem, ProblemBody};
use crate::request::Asked;
use crate::state::App;
use crate::workload::Stated;
use axum::Json;
use axum::extract::{Path, State};
use serde::Deserialize;
use serde_json::Value;
use signalbox_domain::Rejection;
use signalbox_domain::task::{Resolve, Revive};
use utoipa::ToSchema;

/// What is known of a submission.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ResolveBody {
    /// `succeeded` (with `result`), `failed`, `cancelled`; or `confirmed_not_submitted` or `accept_duplicate`, which send it again.
    resolution: String,
    /// Why, 1 to 1,024 characters; kept in the log.
    reason: String,
    /// The result, with `succeeded` alone.
    #[schema(value_type = Option<Object>)]
    result: Option<Value>,
}

/// Says what became of a task whose submission is unknown
#[utoipa::path(post, path = "/v1/tasks/{id}/resolve", tag = "task", params(("id" = String, Path)), request_body = ResolveBody, security(("key" = [])),
    responses((status = 200, body = Stated), (status = "4XX", body = ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn resolve(State(app): State<App>, asked: Asked, Path(text): Path<String>, body: Body) -> Result<Json<Stated>, Problem> {
    asked.caller.must_be_platform_admin()?;
    let (aggregate, _) = visible(&app, &asked.caller, &text).await?;
    let ResolveBody { resolution, reason, result } = body.of(&asked.caller)?.read()?;
    let words = "must be `succeeded`, `failed`, `cancelled`, `confirmed_not_submitted` or `accept_duplicate`";
    let resolution = resolution.parse().map_err(|_| Rejection::field("resolution", words))?;
    carry_out(&app, &asked, aggregate, Resolve { resolution, reason, result: result.map(|result| result.to_string()) }).await
}

/// Why a dead letter is worth another try.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReviveBody {
    /// 1 to 1,024 characters; kept in the log.
    reason: String,
}

/// Tries a dead letter again from the beginning
#[utoipa::path(post, path = "/v1/tasks/{id}/revive", tag = "task", params(("id" = String, Path)), request_body = ReviveBody, security(("key" = [])),
    responses((status = 200, body = Stated), (status = "4XX", body = ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn revive(State(app): State<App>, asked: Asked, Path(text): Path<String>, body: Body) -> Result<Json<Stated>, Problem> {
    asked.caller.must_be_platform_admin()?;
    let (aggregate, _) = visible(&app, &asked.caller, &text).await?;
    let ReviveBody { reason } = body.of(&asked.caller)?.read()?;
    carry_out(&app, &asked, aggregate, Revive { reason }).await
}
