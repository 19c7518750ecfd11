//! Tasks: submit, list, show, result, cancel; what operators decide.

pub(crate) mod list;
pub(crate) mod operate;
pub(crate) mod result;
pub(crate) mod submit;

use crate::auth::Caller;
use crate::problem::{Problem, ProblemBody};
use crate::request::{Asked, row, wait_for};
use crate::state::App;
use crate::workload::{Stated, id};
use axum::Json;
use axum::extract::{Path, Query, State};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use signalbox_domain::task::{Cancel, Command, Existing, Task};
use signalbox_events::{AccountId, Aggregate, TaskId};
use signalbox_journal::Request;
use signalbox_projections::task::{self, Row, View};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

/// A task that the caller may know of.
pub(crate) async fn visible(app: &App, caller: &Caller, text: &str) -> Result<(Aggregate, Existing), Problem> {
    let id: TaskId = id(text)?;
    let mut aggregate = Aggregate::task(caller.account, id);
    let mut state = app.ledger.load::<Task>(&aggregate).await?;
    if state.is_none() && caller.is_platform_admin() {
        let Some(row) = task::find(&app.db, id.0).await? else { return Err(Problem::not_found()) };
        aggregate = Aggregate::task(AccountId(row.account), id);
        state = app.ledger.load::<Task>(&aggregate).await?;
    }
    let found = state.filter(|task| caller.sees(aggregate.account, task.owner));
    Ok((aggregate, found.ok_or_else(Problem::not_found)?))
}

/// A task.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TaskView {
    id: Uuid,
    /// The account; `platform` for none.
    account: String,
    owner: Uuid,
    owner_name: String,
    /// What is to be done, `chat.completions`.
    kind: String,
    /// `sync` or `async`.
    mode: &'static str,
    /// `live` or `simulation`.
    run_mode: &'static str,
    /// 0 to 9, the higher first.
    priority: u8,
    streaming: bool,
    /// `accepted`, `queued`, `leased`, `executing`, `submission_unknown`, `retry_wait`, `succeeded`, `failed`, `cancelled` or
    /// `dead_lettered`.
    state: &'static str,
    /// Whether a cancel waits for evidence of what was sent.
    cancel_waits: bool,
    pool: Option<String>,
    /// The worker that leased it last.
    worker: Option<String>,
    /// The fence of the last lease.
    epoch: Option<u64>,
    /// Leases so far.
    attempt: u32,
    /// Tokens redeemed so far: requests that may have been sent.
    redemptions: u32,
    /// Why it failed, was refused or became unknown.
    code: Option<String>,
    upstream_status: Option<u16>,
    upstream_id: Option<String>,
    /// What an unknown submission is known by: `lease_lost`, `worker_lost` or `reported`.
    evidence: Option<String>,
    /// What an operator knew of it.
    resolution: Option<String>,
    /// An operator's words.
    reason: Option<String>,
    /// Length of the payload in characters.
    payload_characters: u64,
    /// Length of the result in characters, where there is one.
    result_characters: Option<u64>,
    prompt_tokens: Option<u64>,
    completion_tokens: Option<u64>,
    accepted_at: DateTime<Utc>,
    queued_at: Option<DateTime<Utc>>,
    leased_at: Option<DateTime<Utc>>,
    redeemed_at: Option<DateTime<Utc>>,
    start_deadline: Option<DateTime<Utc>>,
    retry_at: Option<DateTime<Utc>>,
    /// Since when its submission is unknown, while it is.
    unknown_since: Option<DateTime<Utc>>,
    ended_at: Option<DateTime<Utc>>,
}

impl TaskView {
    fn new(row: Row) -> Self {
        Self {
            id: row.id,
            account: AccountId(row.account).to_string(),
            owner: row.owner_id,
            owner_name: row.owner_name,
            kind: row.kind,
            mode: row.mode.as_str(),
            run_mode: row.run_mode.as_str(),
            priority: row.priority,
            streaming: row.streaming,
            state: row.state.as_str(),
            cancel_waits: row.cancel_waits,
            pool: row.pool,
            worker: row.worker,
            epoch: row.epoch,
            attempt: row.attempt,
            redemptions: row.redemptions,
            code: row.code,
            upstream_status: row.upstream_status,
            upstream_id: row.upstream_id,
            evidence: row.evidence,
            resolution: row.resolution,
            reason: row.reason,
            payload_characters: row.payload_characters,
            result_characters: row.result_characters,
            prompt_tokens: row.prompt_tokens,
            completion_tokens: row.completion_tokens,
            accepted_at: row.accepted_at,
            queued_at: row.queued_at,
            leased_at: row.leased_at,
            redeemed_at: row.redeemed_at,
            start_deadline: row.start_deadline,
            retry_at: row.retry_at,
            unknown_since: row.unknown_since,
            ended_at: row.ended_at,
        }
    }
}

/// How fresh.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct GetQuery {
    /// A position that the view must have reached.
    after: Option<String>,
}

/// Shows a task
#[utoipa::path(get, path = "/v1/tasks/{id}", tag = "task", params(("id" = String, Path), GetQuery), security(("key" = [])),
    responses((status = 200, body = TaskView), (status = "4XX", body = ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn get(
    State(app): State<App>,
    caller: Caller,
    Path(text): Path<String>,
    Query(query): Query<GetQuery>,
) -> Result<Json<TaskView>, Problem> {
    visible(&app, &caller, &text).await?;
    wait_for(&app, &View, query.after.as_deref()).await?;
    let id: TaskId = id(&text)?;
    Ok(Json(TaskView::new(row(|| task::find(&app.db, id.0)).await?)))
}

/// Cancels a task: at once where nothing can have been sent, else when it is known what became of it
#[utoipa::path(post, path = "/v1/tasks/{id}/cancel", tag = "task", params(("id" = String, Path)), security(("key" = [])),
    responses((status = 200, body = Stated), (status = "4XX", body = ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn cancel(State(app): State<App>, asked: Asked, Path(text): Path<String>) -> Result<Json<Stated>, Problem> {
    asked.caller.must_be_member()?;
    let (aggregate, _) = visible(&app, &asked.caller, &text).await?;
    carry_out(&app, &asked, aggregate, Cancel {}).await
}

async fn carry_out(app: &App, asked: &Asked, aggregate: Aggregate, command: impl Into<Command>) -> Result<Json<Stated>, Problem> {
    let about: TaskId = id(&aggregate.id)?;
    let done = app.ledger.execute::<Task>(Request { aggregate, command: command.into(), requester: asked.requester() }).await?;
    Ok(Json(Stated::new(about.0, done.position, done.stated.is_some())))
}
