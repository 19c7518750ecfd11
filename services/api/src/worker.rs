//! Workers: list and drain. They appear by their own hello.

use crate::auth::Caller;
use crate::pool::Operated;
use crate::problem::{Problem, ProblemBody};
use crate::request::{Asked, wait_for};
use crate::state::App;
use axum::Json;
use axum::extract::{Path, Query, State};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use signalbox_domain::worker::{Command, Worker};
use signalbox_events::work::{Beat, Form};
use signalbox_events::worker::State as Seen;
use signalbox_events::{Aggregate, IncarnationId, WorkerId};
use signalbox_journal::{Request, Store};
use signalbox_projections::worker::{self, Row, View};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

/// A worker.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct WorkerView {
    id: String,
    pool: String,
    /// Its last start.
    incarnation: Uuid,
    /// The version of the worker protocol that it speaks.
    protocol: u16,
    /// Its own version.
    version: String,
    /// Kinds of tasks that it takes.
    kinds: Vec<String>,
    streaming: bool,
    /// Tasks that it executes at once.
    slots: u32,
    /// `ready`, `draining`, `not_consuming`, `lost` or `gone`.
    state: &'static str,
    /// Tasks that it held at its last heartbeat.
    leases: Vec<Uuid>,
    last_heartbeat_at: Option<DateTime<Utc>>,
    started_at: DateTime<Utc>,
}

impl WorkerView {
    fn new(row: Row, beat: Option<Beat>) -> Self {
        Self {
            id: row.id,
            pool: row.pool,
            incarnation: row.incarnation,
            protocol: row.protocol,
            version: row.version,
            kinds: row.capabilities.kinds,
            streaming: row.capabilities.streaming,
            slots: row.slots,
            state: row.state.as_str(),
            leases: beat.iter().flat_map(|beat| beat.leases.iter().map(|(task, _)| task.0)).collect(),
            last_heartbeat_at: beat.map(|beat| beat.at.into()),
            started_at: row.started_at,
        }
    }
}

/// Which workers.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct ListQuery {
    /// Of this pool.
    pool: Option<String>,
    /// A position that the view must have reached.
    after: Option<String>,
}

/// Workers.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct WorkerList {
    items: Vec<WorkerView>,
}

/// Lists workers
#[utoipa::path(get, path = "/v1/workers", tag = "pool", params(ListQuery), security(("key" = [])),
    responses((status = 200, body = WorkerList), (status = "4XX", body = ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn list(State(app): State<App>, caller: Caller, Query(query): Query<ListQuery>) -> Result<Json<WorkerList>, Problem> {
    caller.must_be_platform_admin()?;
    wait_for(&app, &View, query.after.as_deref()).await?;
    let mut items = Vec::new();
    for row in worker::list(&app.db, query.pool.as_deref()).await? {
        let kept = app.ledger.journal().get(Store::Workers, &format!("{}.{}", row.pool, row.id)).await?;
        let beat = kept.and_then(|bytes| Form::MessagePack.read::<Beat>(&bytes).ok());
        let mut beat = beat.filter(|beat| beat.incarnation == IncarnationId(row.incarnation));
        // What one that is over said last is no longer so.
        if let Some(beat) = beat.as_mut().filter(|_| matches!(row.state, Seen::Gone | Seen::Lost)) {
            beat.leases.clear();
        }
        items.push(WorkerView::new(row, beat));
    }
    Ok(Json(WorkerList { items }))
}

/// Drains a worker: it ends what it has, claims nothing new, and says good-bye
#[utoipa::path(post, path = "/v1/workers/{id}/drain", tag = "pool", params(("id" = String, Path)), security(("key" = [])),
    responses((status = 200, body = Operated), (status = "4XX", body = ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn drain(State(app): State<App>, asked: Asked, Path(id): Path<String>) -> Result<Json<Operated>, Problem> {
    asked.caller.must_be_platform_admin()?;
    let id: WorkerId = id.parse().map_err(|_| Problem::not_found())?;
    let request = Request { aggregate: Aggregate::worker(&id), command: Command::Drain, requester: asked.requester() };
    let done = app.ledger.execute::<Worker>(request).await?;
    Ok(Json(Operated { id: id.to_string(), position: done.position.to_string(), stated: done.stated.is_some() }))
}
