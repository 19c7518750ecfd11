//! `POST /v1/tasks`: takes a task on and puts it into a pool's queue.

use crate::body::Body;
use crate::conversation::{gate, no_model};
use crate::problem::{Problem, ProblemBody};
use crate::request::Asked;
use crate::state::App;
use crate::turn::submit::check_redirecting;
use crate::workload::Stated;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Deserialize;
use serde_json::{Map, Value};
use signalbox_domain::pool::Pool;
use signalbox_domain::task::{Accept, Task};
use signalbox_domain::{Code, Rejection};
use signalbox_events::pool::State as PoolState;
use signalbox_events::task::{Mode, RunMode, Target};
use signalbox_events::work::MOST_INLINE;
use signalbox_events::{Aggregate, Micros, PoolId, TaskId, WorkloadId};
use signalbox_journal::Request;
use signalbox_projections::{pool, workload_list};
use signalbox_worker::openai::OpenAi;
use utoipa::ToSchema;

/// A task.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SubmitBody {
    /// What is to be done: dotted words, `chat.completions`.
    kind: String,
    /// What it is to be done with, at most 640 KiB as JSON. `chat.completions`, `completions` and `embeddings` name a deployment of
    /// the account by `model`, and are sent to it.
    #[schema(value_type = Object)]
    payload: Map<String, Value>,
    /// 0 to 9, the higher first; 5 where it is not given.
    priority: Option<u8>,
    /// Whether deltas are wanted.
    streaming: Option<bool>,
    /// The pool that shall execute it; else the first that is enabled.
    pool: Option<String>,
    /// Give up if no worker took it within so many seconds.
    start_within_seconds: Option<u32>,
    /// `live` (the default), or `simulation`: nothing is sent.
    run_mode: Option<String>,
}

/// Submits a task
#[utoipa::path(post, path = "/v1/tasks", tag = "task", request_body = SubmitBody, security(("key" = [])),
    params(("Idempotency-Key" = Option<String>, Header, description = "The same key submits once, for ever")),
    responses((status = 202, body = Stated), (status = "4XX", body = ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn submit(State(app): State<App>, asked: Asked, body: Body) -> Result<(StatusCode, Json<Stated>), Problem> {
    asked.caller.must_be_member()?;
    let body = body.of(&asked.caller)?;
    let canonical = Value::Object(body.0.clone()).to_string();
    let body: SubmitBody = body.read()?;
    let target = target(&app, &asked, &body.kind, &body.payload).await?;
    let payload = Value::Object(body.payload).to_string();
    if payload.len() > MOST_INLINE {
        return Err(Problem { field: Some("payload".to_owned()), ..Problem::new(Code::BodyTooLarge, format!("has at most {MOST_INLINE} bytes")) });
    }
    let run_mode = match body.run_mode.as_deref() {
        None => RunMode::Live,
        Some(text) => text.parse().map_err(|_| Rejection::field("run_mode", "must be `live` or `simulation`"))?,
    };
    let wanted = body.pool.map(|text| text.parse::<PoolId>().map_err(|_| no_pool())).transpose()?;
    let pool = match &wanted {
        Some(pool) => pool.clone(),
        None => default_pool(&app).await?,
    };
    let state = app.ledger.load::<Pool>(&Aggregate::pool(&pool)).await?.ok_or_else(no_pool)?.state;
    if state != PoolState::Enabled {
        return Err(Problem::new(Code::PoolNotEnabled, format!("the pool `{pool}` is {state} and takes no new tasks")));
    }
    let now = Micros::from(app.context().now);
    let id = TaskId(asked.new_id(&app));
    let command = Accept {
        owner: asked.caller.principal,
        owner_name: asked.caller.name.clone(),
        kind: body.kind,
        payload,
        canonical,
        mode: Mode::Async,
        run_mode,
        priority: body.priority.unwrap_or(5),
        streaming: body.streaming.unwrap_or(false),
        target,
        wanted_pool: wanted,
        pool: Some(pool),
        start_deadline: body.start_within_seconds.map(|seconds| Micros(now.0 + i64::from(seconds) * 1_000_000)),
    };
    // The task's own digest tells a repeated request from another body under the same key.
    let mut requester = asked.requester();
    requester.command_id = None;
    let done = app.ledger.execute::<Task>(Request { aggregate: Aggregate::task(asked.caller.account, id), command, requester }).await?;
    Ok((StatusCode::ACCEPTED, Json(Stated::new(id.0, done.position, done.stated.is_some()))))
}

/// What a task of a kind that is sent to models is sent to: the deployment that `payload.model` names.
async fn target(app: &App, asked: &Asked, kind: &str, payload: &Map<String, Value>) -> Result<Option<Target>, Problem> {
    if !OpenAi::KINDS.iter().any(|(known, _)| *known == kind) {
        return Ok(None);
    }
    gate(app, &asked.caller).await?;
    check_redirecting(payload).map_err(|rejection| Rejection { field: rejection.field.map(|field| format!("payload.{field}")), ..rejection })?;
    let name = payload.get("model").and_then(Value::as_str).ok_or_else(|| Rejection::missing("payload.model"))?;
    let account = asked.caller.account;
    let row = workload_list::by_route(&app.db, account.0, name).await?;
    let row = row.ok_or_else(|| Problem { field: Some("payload.model".to_owned()), ..no_model(name) })?;
    Ok(Some(Target { account, workload: Some(WorkloadId(row.id)), upstream: None, model: name.to_owned() }))
}

fn no_pool() -> Rejection {
    Rejection::field("pool", "there is no such pool")
}

/// The first pool that takes new tasks: by tier, then priority.
async fn default_pool(app: &App) -> Result<PoolId, Problem> {
    let pools = pool::list(&app.db).await?;
    let first = pools.into_iter().find(|pool| pool.state == PoolState::Enabled).and_then(|pool| pool.id.parse().ok());
    first.ok_or_else(|| Problem::new(Code::PoolNotEnabled, "there is no pool that takes new tasks; a platform admin creates one with POST /v1/pools"))
}
