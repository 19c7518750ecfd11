//! `POST /v1/tasks`: takes a task on and puts it into a pool's queue.

use crate::body::Body;
use crate::call::leased::{Ended, Leased, Step, Submission};
use crate::call::{self, CallError};
use crate::conversation::gate;
use crate::pool::first_enabled;
use crate::problem::{Problem, ProblemBody};
use crate::request::Asked;
use crate::sse::{self, KeepAlive};
use crate::state::App;
use crate::turn::submit::check_redirecting;
use crate::workload::Stated;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use signalbox_domain::pool::Pool;
use signalbox_domain::task::{Accept, Task};
use signalbox_domain::{Code, Rejection};
use signalbox_events::pool::State as PoolState;
use signalbox_events::task::{Mode, RunMode, State as TaskState, Target};
use signalbox_events::{Aggregate, Micros, PoolId, TaskId};
use signalbox_journal::Request;
use signalbox_worker::openai::OpenAi;
use std::time::Duration;
use utoipa::ToSchema;
use uuid::Uuid;

/// How old may be what is known of the pool.
const RECENT: Duration = Duration::from_millis(250);

/// A task.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SubmitBody {
    /// What is to be done: dotted words, `chat.completions`.
    kind: String,
    /// What it is to be done with. `chat.completions`, `completions` and `embeddings` name by `model` a deployment of the account, or
    /// `<upstream>/<model>`, and are sent to it.
    #[schema(value_type = Object)]
    payload: Map<String, Value>,
    /// 0 to 9, the higher first; 5 where it is not given.
    priority: Option<u8>,
    /// Whether deltas are wanted.
    streaming: Option<bool>,
    /// `async` (the default): answered at once, the result is fetched later. `sync`: answered with the result, or with deltas and
    /// the result as `text/event-stream` where `streaming` is true; refused at once where no worker takes it.
    mode: Option<String>,
    /// The pool that shall execute it; else the first that is enabled.
    pool: Option<String>,
    /// Give up if no worker took it within so many seconds.
    start_within_seconds: Option<u32>,
    /// `live` (the default), or `simulation`: nothing is sent.
    run_mode: Option<String>,
}

/// The result of a synchronous task.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Finished {
    id: Uuid,
    /// `succeeded`; anything else is an error.
    state: &'static str,
    /// The result as the worker reported it.
    #[schema(value_type = Object)]
    result: Value,
}

/// Submits a task
#[utoipa::path(post, path = "/v1/tasks", tag = "task", request_body = SubmitBody, security(("key" = [])),
    params(("Idempotency-Key" = Option<String>, Header, description = "The same key submits once, for ever. A synchronous task without one is \
        cancelled when its caller leaves; with one it goes on, and the same key waits for it again")),
    responses((status = 202, body = Stated), (status = 200, body = Finished, description = "A synchronous task has succeeded"),
        (status = "4XX", body = ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn submit(State(app): State<App>, asked: Asked, body: Body) -> Result<Response, Problem> {
    asked.caller.must_be_member()?;
    let body = body.of(&asked.caller)?;
    let canonical = Value::Object(body.0.clone()).to_string();
    let body: SubmitBody = body.read()?;
    let target = target(&app, &asked, &body.kind, &body.payload).await?;
    let payload = Value::Object(body.payload).to_string();
    let run_mode = match body.run_mode.as_deref() {
        None => RunMode::Live,
        Some(text) => text.parse().map_err(|_| Rejection::field("run_mode", "must be `live` or `simulation`"))?,
    };
    let mode = match body.mode.as_deref() {
        None => Mode::Async,
        Some(text) => text.parse().map_err(|_| Rejection::field("mode", "must be `async` or `sync`"))?,
    };
    let wanted = body.pool.map(|text| text.parse::<PoolId>().map_err(|_| no_pool())).transpose()?;
    let pool = match &wanted {
        Some(pool) => pool.clone(),
        None => first_enabled(&app).await?.ok_or_else(|| {
            Problem::new(Code::PoolNotEnabled, "there is no pool that takes new tasks; a platform admin creates one with POST /v1/pools")
        })?,
    };
    // Claims look again.
    let state = app.ledger.load_recent::<Pool>(&Aggregate::pool(&pool), RECENT).await?.ok_or_else(no_pool)?.state;
    if state != PoolState::Enabled {
        return Err(Problem::new(Code::PoolNotEnabled, format!("the pool `{pool}` is {state} and takes no new tasks")));
    }
    let now = Micros::from(app.context().now);
    let task = TaskId(asked.new_id(&app));
    let accept = Accept {
        owner: asked.caller.principal,
        owner_name: asked.caller.name.clone(),
        kind: body.kind,
        payload,
        canonical,
        mode,
        run_mode,
        priority: body.priority.unwrap_or(5),
        streaming: body.streaming.unwrap_or(false),
        target,
        wanted_pool: wanted,
        pool: Some(pool),
        start_deadline: body.start_within_seconds.map(|seconds| Micros(now.0 + i64::from(seconds) * 1_000_000)),
    };
    let aggregate = Aggregate::task(asked.caller.account, task);
    // The task's own digest tells a repeated request from another body under the same key.
    let mut requester = asked.requester();
    requester.command_id = None;
    if mode == Mode::Sync {
        let start_within = body.start_within_seconds.map(|seconds| Duration::from_secs(u64::from(seconds)));
        let cancel_when_left = !asked.has_key();
        let streaming = accept.streaming;
        let submission = Submission { aggregate, task, accept, requester, start_within, cancel_when_left };
        return finish(&app, task, streaming, submission).await;
    }
    let done = app.ledger.create::<Task>(Request { aggregate, command: accept, requester }).await?;
    Ok((StatusCode::ACCEPTED, Json(Stated::new(task.0, done.position, done.stated.is_some()))).into_response())
}

/// Waits for the end of a synchronous task, and answers with it.
async fn finish(app: &App, task: TaskId, streaming: bool, submission: Submission) -> Result<Response, Problem> {
    let named = |error: CallError| Problem { more: vec![("task", task.to_string().into())], ..error.problem() };
    let mut leased = Leased::submit(app, submission).await.map_err(named)?;
    if !streaming {
        let ended = leased.whole().await.map_err(named)?;
        return Ok(Json(finished(task, &ended)).into_response());
    }
    // An error before the first delta is answered as one.
    let first = leased.delta().await.map_err(named)?;
    let frames = stream::unfold(Some((leased, first)), move |state| async move {
        let (mut leased, step) = state?;
        match step {
            Step::Delta(delta) => {
                let frame = sse::data(&json!({"id": task.0, "delta": delta}));
                match leased.delta().await {
                    Ok(next) => Some((frame, Some((leased, next)))),
                    Err(error) => {
                        let last = sse::data(&json!({"id": task.0, "error": error.problem().openai()}));
                        Some(([frame, last, sse::done()].concat().into(), None))
                    }
                }
            }
            Step::End(ended) => Some(([sse::data(&json!(finished(task, &ended))), sse::done()].concat().into(), None)),
        }
    });
    Ok(sse::response(app, frames, KeepAlive::Frame, vec![("x-signalbox-task", task.to_string())]))
}

fn finished(task: TaskId, ended: &Ended) -> Finished {
    // What a worker reported need not be JSON.
    let result = serde_json::from_str(&ended.result).unwrap_or_else(|_| Value::String(ended.result.clone()));
    Finished { id: task.0, state: TaskState::Succeeded.as_str(), result }
}

/// What a task of a kind that is sent to models is sent to: the deployment that `payload.model` names.
async fn target(app: &App, asked: &Asked, kind: &str, payload: &Map<String, Value>) -> Result<Option<Target>, Problem> {
    if !OpenAi::KINDS.iter().any(|(known, _)| *known == kind) {
        return Ok(None);
    }
    gate(app, &asked.caller).await?;
    check_redirecting(payload).map_err(|rejection| Rejection { field: rejection.field.map(|field| format!("payload.{field}")), ..rejection })?;
    let name = payload.get("model").and_then(Value::as_str).ok_or_else(|| Rejection::missing("payload.model"))?;
    let found = call::target(app, asked.caller.account, kind, name).await;
    Ok(Some(found.map_err(|problem| match problem.field.as_deref() {
        Some("model") => Problem { field: Some("payload.model".to_owned()), ..problem },
        _ => problem,
    })?))
}

fn no_pool() -> Rejection {
    Rejection::field("pool", "there is no such pool")
}
