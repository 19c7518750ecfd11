//! `GET /v1/tasks/{id}/result`: what came of a task, read from the log, where it is sealed.

use super::visible;
use crate::auth::Caller;
use crate::problem::{Problem, ProblemBody};
use crate::state::App;
use axum::extract::{Path, State};
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use signalbox_domain::Code;
use signalbox_events::Fact;
use signalbox_events::task::{Event, State as Phase};

/// The result's JSON as it was reported.
async fn text(app: &App, caller: &Caller, id: &str) -> Result<String, Problem> {
    let (aggregate, task) = visible(app, caller, id).await?;
    if task.state != Phase::Succeeded {
        return Err(Problem::new(Code::TaskNotEnded, format!("the task is {}", task.state)));
    }
    let events = app.ledger.history(&aggregate, 0).await?;
    let found = events.iter().rev().find_map(|recorded| match &recorded.fact {
        Fact::Task(Event::Succeeded(fact)) => fact.result.plain().map(str::to_owned),
        Fact::Task(Event::LateResult(fact)) => fact.result.as_ref()?.plain().map(str::to_owned),
        Fact::Task(Event::Resolved(fact)) => fact.result.as_ref()?.plain().map(str::to_owned),
        _ => None,
    });
    found.ok_or_else(Problem::not_found)
}

/// Shows the result of a task
#[utoipa::path(get, path = "/v1/tasks/{id}/result", tag = "task", params(("id" = String, Path)), security(("key" = [])),
    responses((status = 200, body = Object, description = "The result as the worker reported it"),
        (status = "4XX", body = ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn result(State(app): State<App>, caller: Caller, Path(id): Path<String>) -> Result<Response, Problem> {
    Ok(([(CONTENT_TYPE, "application/json")], text(&app, &caller, &id).await?).into_response())
}

/// Downloads the result of a task as a file
#[utoipa::path(get, path = "/v1/tasks/{id}/result/download", tag = "task", params(("id" = String, Path)), security(("key" = [])),
    responses((status = 200, body = Object, description = "The result as an attachment"),
        (status = "4XX", body = ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn download(State(app): State<App>, caller: Caller, Path(id): Path<String>) -> Result<Response, Problem> {
    let text = text(&app, &caller, &id).await?;
    let name = format!("attachment; filename=\"task-{id}.json\"");
    Ok(([(CONTENT_TYPE, "application/json".to_owned()), (CONTENT_DISPOSITION, name)], text).into_response())
}
