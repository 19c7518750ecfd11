//! Commands on a workload that exists.

use super::deploy::SpecBody;
use super::{Stated, gate, visible};
use crate::body::Body;
use crate::problem::{Problem, ProblemBody};
use crate::request::Asked;
use crate::state::App;
use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use serde::Deserialize;
use signalbox_domain::kind;
use signalbox_domain::workload::{self, Command, Delete, Existing, Resume, Rollback, Scale, Suspend, Update};
use signalbox_events::workload::Category;
use signalbox_events::{Aggregate, WorkloadId};
use signalbox_journal::Request;
use utoipa::ToSchema;

/// A new revision.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct UpdateBody {
    spec: SpecBody,
    /// Refuse where the workload has another revision than this.
    expected_revision: Option<u32>,
}

/// An old revision.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RollbackBody {
    /// The revision whose spec is wanted again.
    to: u32,
}

/// Another count of replicas.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ScaleBody {
    /// Processes wanted, 1 to 16.
    replicas: u32,
}

type Answer = Result<(StatusCode, Json<Stated>), Problem>;

async fn carry_out(app: &App, asked: &Asked, aggregate: Aggregate, command: impl Into<Command>) -> Answer {
    let id: WorkloadId = super::id(&aggregate.id)?;
    let request = Request { aggregate, command: command.into(), requester: asked.requester() };
    let done = app.ledger.execute::<workload::Workload>(request).await?;
    Ok((StatusCode::ACCEPTED, Json(Stated::new(id.0, done.position, done.stated.is_some()))))
}

async fn open(app: &App, asked: &Asked, id: &str) -> Result<Aggregate, Problem> {
    asked.caller.must_be_member()?;
    let (aggregate, workload) = visible(app, &asked.caller, id).await?;
    gate(app, aggregate.account, category(&workload)).await?;
    Ok(aggregate)
}

/// Admins can still stop what runs while inference is off.
async fn may_stop(app: &App, asked: &Asked, aggregate: &Aggregate, workload: &Existing) -> Result<(), Problem> {
    if asked.caller.is_platform_admin() { Ok(()) } else { gate(app, aggregate.account, category(workload)).await }
}

fn category(workload: &Existing) -> Category {
    workload.kind().map_or(Category::Deployment, |kind| kind.category())
}

/// Replaces what is wanted by a new revision
#[utoipa::path(put, path = "/v1/workloads/{id}", tag = "workload", params(("id" = String, Path)), request_body = UpdateBody, security(("key" = [])),
    responses((status = 202, body = Stated), (status = "4XX", body = ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn update(State(app): State<App>, asked: Asked, Path(id): Path<String>, body: Body) -> Answer {
    let aggregate = open(&app, &asked, &id).await?;
    let body: UpdateBody = body.of(&asked.caller)?.read()?;
    let spec = body.spec.spec()?;
    kind::validate(&spec, "spec", &app.catalog)?;
    carry_out(&app, &asked, aggregate, Update { spec, expected_revision: body.expected_revision }).await
}

/// Returns to a recorded revision
#[utoipa::path(post, path = "/v1/workloads/{id}/rollback", tag = "workload", params(("id" = String, Path)), request_body = RollbackBody, security(("key" = [])),
    responses((status = 202, body = Stated), (status = "4XX", body = ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn rollback(State(app): State<App>, asked: Asked, Path(id): Path<String>, body: Body) -> Answer {
    let aggregate = open(&app, &asked, &id).await?;
    let body: RollbackBody = body.of(&asked.caller)?.read()?;
    carry_out(&app, &asked, aggregate, Rollback { to: body.to }).await
}

/// Changes the count of replicas
#[utoipa::path(post, path = "/v1/workloads/{id}/scale", tag = "workload", params(("id" = String, Path)), request_body = ScaleBody, security(("key" = [])),
    responses((status = 202, body = Stated), (status = "4XX", body = ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn scale(State(app): State<App>, asked: Asked, Path(id): Path<String>, body: Body) -> Answer {
    let aggregate = open(&app, &asked, &id).await?;
    let body: ScaleBody = body.of(&asked.caller)?.read()?;
    carry_out(&app, &asked, aggregate, Scale { replicas: body.replicas }).await
}

/// Stops a deployment that stays
#[utoipa::path(post, path = "/v1/workloads/{id}/suspend", tag = "workload", params(("id" = String, Path)), security(("key" = [])),
    responses((status = 202, body = Stated), (status = "4XX", body = ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn suspend(State(app): State<App>, asked: Asked, Path(id): Path<String>) -> Answer {
    asked.caller.must_be_member()?;
    let (aggregate, workload) = visible(&app, &asked.caller, &id).await?;
    may_stop(&app, &asked, &aggregate, &workload).await?;
    carry_out(&app, &asked, aggregate, Suspend {}).await
}

/// Lets a suspended deployment run again
#[utoipa::path(post, path = "/v1/workloads/{id}/resume", tag = "workload", params(("id" = String, Path)), security(("key" = [])),
    responses((status = 202, body = Stated), (status = "4XX", body = ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn resume(State(app): State<App>, asked: Asked, Path(id): Path<String>) -> Answer {
    let aggregate = open(&app, &asked, &id).await?;
    carry_out(&app, &asked, aggregate, Resume {}).await
}

/// Asks for a workload's end
#[utoipa::path(delete, path = "/v1/workloads/{id}", tag = "workload", params(("id" = String, Path)), security(("key" = [])),
    responses((status = 202, body = Stated), (status = "4XX", body = ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn delete(State(app): State<App>, asked: Asked, Path(id): Path<String>) -> Answer {
    asked.caller.must_be_member()?;
    let (aggregate, workload) = visible(&app, &asked.caller, &id).await?;
    may_stop(&app, &asked, &aggregate, &workload).await?;
    carry_out(&app, &asked, aggregate, Delete {}).await
}
