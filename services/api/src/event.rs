//! The events of a workload, a conversation or a task, as people read them.

use crate::auth::Caller;
use crate::problem::{Problem, ProblemBody};
use crate::state::App;
use axum::Json;
use axum::extract::{Path, State};
use chrono::{DateTime, Utc};
use serde::Serialize;
use serde_json::Value;
use signalbox_events::{Aggregate, Recorded, json};
use utoipa::ToSchema;
use uuid::Uuid;

/// An event. Sealed texts show their length alone.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct EventView {
    position: String,
    #[serde(rename = "type")]
    kind: String,
    /// Its count within its aggregate, from 1.
    version: u64,
    at: DateTime<Utc>,
    actor: String,
    on_behalf_of: Option<String>,
    event_id: Uuid,
    command_id: Uuid,
    data: Value,
}

/// Events in order.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct EventList {
    items: Vec<EventView>,
}

impl EventView {
    fn new(event: Recorded) -> Self {
        let envelope = event.envelope;
        Self {
            position: event.position.to_string(),
            data: json::data(&envelope.data).unwrap_or(Value::Null),
            kind: envelope.kind,
            version: envelope.version,
            at: envelope.at.into(),
            actor: envelope.actor,
            on_behalf_of: envelope.on_behalf_of,
            event_id: envelope.event_id,
            command_id: envelope.command_id,
        }
    }
}

async fn events(app: &App, aggregate: &Aggregate) -> Result<Json<EventList>, Problem> {
    let events = app.ledger.raw_history(aggregate, 0).await?;
    Ok(Json(EventList { items: events.into_iter().map(EventView::new).collect() }))
}

/// Shows a workload's events
#[utoipa::path(get, path = "/v1/workloads/{id}/events", tag = "workload", params(("id" = String, Path)), security(("key" = [])),
    responses((status = 200, body = EventList), (status = "4XX", body = ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn of_workload(State(app): State<App>, caller: Caller, Path(id): Path<String>) -> Result<Json<EventList>, Problem> {
    let (aggregate, workload) = crate::workload::visible(&app, &caller, &id).await?;
    if let Some(kind) = workload.kind().filter(|_| !caller.is_platform_admin()) {
        crate::workload::gate(&app, aggregate.account, kind.category()).await?;
    }
    events(&app, &aggregate).await
}

/// Shows a conversation's events
#[utoipa::path(get, path = "/v1/conversations/{id}/events", tag = "conversation", params(("id" = String, Path)), security(("key" = [])),
    responses((status = 200, body = EventList), (status = "4XX", body = ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn of_conversation(State(app): State<App>, caller: Caller, Path(id): Path<String>) -> Result<Json<EventList>, Problem> {
    crate::conversation::gate(&app, &caller).await?;
    let (aggregate, _) = crate::conversation::visible(&app, &caller, &id).await?;
    events(&app, &aggregate).await
}

/// Shows a task's events
#[utoipa::path(get, path = "/v1/tasks/{id}/events", tag = "task", params(("id" = String, Path)), security(("key" = [])),
    responses((status = 200, body = EventList), (status = "4XX", body = ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn of_task(State(app): State<App>, caller: Caller, Path(id): Path<String>) -> Result<Json<EventList>, Problem> {
    let (aggregate, _) = crate::task::visible(&app, &caller, &id).await?;
    events(&app, &aggregate).await
}
