//! Pools: create, list, show, describe, switch, delete. What they are is everyone's to see, what becomes of them the operators'.

use crate::auth::Caller;
use crate::body::Body;
use crate::problem::{Problem, ProblemBody};
use crate::request::{Asked, wait_for};
use crate::state::App;
use axum::Json;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use signalbox_domain::pool::{Command, Pool, RESERVED};
use signalbox_domain::{Code, Rejection};
use signalbox_events::pool::Profile;
use signalbox_events::pool::State::Enabled;
use signalbox_events::worker::State as Seen;
use signalbox_events::{Aggregate, PoolId};
use signalbox_journal::Request;
use signalbox_projections::pool::{self, Row, View};
use signalbox_projections::{sqlx, task, worker};
use std::collections::BTreeMap;
use utoipa::{IntoParams, ToSchema};

/// A pool.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PoolView {
    id: String,
    description: String,
    /// Pools of a lower tier are used first.
    tier: u32,
    /// Among equals of a tier the higher one is used.
    priority: i32,
    labels: BTreeMap<String, String>,
    /// `enabled`, `cordoned`, `draining` or `disabled`.
    state: &'static str,
    /// An operator's words on the state.
    reason: Option<String>,
    created_at: DateTime<Utc>,
    updated_at: DateTime<Utc>,
}

impl PoolView {
    fn new(row: Row) -> Self {
        let Row { id, description, tier, priority, labels, state, reason, created_at, updated_at, .. } = row;
        Self { id, description, tier, priority, labels, state: state.as_str(), reason, created_at, updated_at }
    }
}

/// A command about a pool or a worker was carried out.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Operated {
    /// The pool or worker.
    pub id: String,
    /// The place of its last event: pass it as `after` to see the outcome in a query.
    pub position: String,
    /// Whether this request stated something new; `false`: it was so already.
    pub stated: bool,
}

/// The first pool that takes new tasks: by tier, then priority.
pub(crate) async fn first_enabled(app: &App) -> sqlx::Result<Option<PoolId>> {
    let pools = pool::list(&app.db).await?;
    Ok(pools.into_iter().find(|pool| pool.state == Enabled).and_then(|pool| pool.id.parse().ok()))
}

async fn carry_out(app: &App, asked: &Asked, id: &PoolId, command: Command) -> Result<Json<Operated>, Problem> {
    let request = Request { aggregate: Aggregate::pool(id), command, requester: asked.requester() };
    let done = app.ledger.execute::<Pool>(request).await?;
    Ok(Json(Operated { id: id.to_string(), position: done.position.to_string(), stated: done.stated.is_some() }))
}

fn parse(text: &str) -> Result<PoolId, Problem> {
    text.parse().map_err(|_| Problem::not_found())
}

/// A new pool.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CreateBody {
    /// Once and for ever: `^[a-z0-9][a-z0-9-]{0,62}$`, and not `gateway`. Workers' permissions spell it.
    id: String,
    #[serde(default)]
    description: String,
    /// 0 to 100; 0 where it is not given.
    #[serde(default)]
    tier: u32,
    /// -1,000 to 1,000; 0 where it is not given.
    #[serde(default)]
    priority: i32,
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

/// Creates a pool
#[utoipa::path(post, path = "/v1/pools", tag = "pool", request_body = CreateBody, security(("key" = [])),
    responses((status = 201, body = Operated), (status = "4XX", body = ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn create(State(app): State<App>, asked: Asked, body: Body) -> Result<(StatusCode, Json<Operated>), Problem> {
    asked.caller.must_be_platform_admin()?;
    let CreateBody { id, description, tier, priority, labels } = body.of(&asked.caller)?.read()?;
    let id: PoolId = id.parse().map_err(|_| Rejection::field("id", "must match ^[a-z0-9][a-z0-9-]{0,62}$"))?;
    if id.as_str() == RESERVED {
        return Err(Rejection::field("id", format!("`{RESERVED}` is reserved")).into());
    }
    let done = carry_out(&app, &asked, &id, Command::Create(Profile { description, tier, priority, labels })).await?;
    Ok((StatusCode::CREATED, done))
}

/// How fresh.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct FreshQuery {
    /// A position that the view must have reached.
    pub after: Option<String>,
}

/// Every pool.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PoolList {
    items: Vec<PoolView>,
}

/// Lists the pools: by tier, then priority
#[utoipa::path(get, path = "/v1/pools", tag = "pool", params(FreshQuery), security(("key" = [])),
    responses((status = 200, body = PoolList), (status = "4XX", body = ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn list(State(app): State<App>, _: Caller, Query(query): Query<FreshQuery>) -> Result<Json<PoolList>, Problem> {
    wait_for(&app, &View, query.after.as_deref()).await?;
    Ok(Json(PoolList { items: pool::list(&app.db).await?.into_iter().map(PoolView::new).collect() }))
}

/// Shows a pool
#[utoipa::path(get, path = "/v1/pools/{id}", tag = "pool", params(("id" = String, Path), FreshQuery), security(("key" = [])),
    responses((status = 200, body = PoolView), (status = "4XX", body = ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn get(
    State(app): State<App>,
    _: Caller,
    Path(id): Path<String>,
    Query(query): Query<FreshQuery>,
) -> Result<Json<PoolView>, Problem> {
    wait_for(&app, &View, query.after.as_deref()).await?;
    let found = pool::find(&app.db, parse(&id)?.as_str()).await?;
    found.map(|row| Json(PoolView::new(row))).ok_or_else(Problem::not_found)
}

/// What changes; the rest stays.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct UpdateBody {
    description: Option<String>,
    tier: Option<u32>,
    priority: Option<i32>,
    /// All labels from now on.
    labels: Option<BTreeMap<String, String>>,
}

/// Describes a pool anew
#[utoipa::path(patch, path = "/v1/pools/{id}", tag = "pool", params(("id" = String, Path)), request_body = UpdateBody, security(("key" = [])),
    responses((status = 200, body = Operated), (status = "4XX", body = ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn update(State(app): State<App>, asked: Asked, Path(id): Path<String>, body: Body) -> Result<Json<Operated>, Problem> {
    asked.caller.must_be_platform_admin()?;
    let id = parse(&id)?;
    let UpdateBody { description, tier, priority, labels } = body.of(&asked.caller)?.read()?;
    if (&description, tier, priority, &labels) == (&None, None, None, &None) {
        return Err(Problem::new(Code::MissingField, "give at least one of `description`, `tier`, `priority` and `labels`"));
    }
    let now = app.ledger.load::<Pool>(&Aggregate::pool(&id)).await?.ok_or_else(Problem::not_found)?.profile;
    let profile = Profile {
        description: description.unwrap_or(now.description),
        tier: tier.unwrap_or(now.tier),
        priority: priority.unwrap_or(now.priority),
        labels: labels.unwrap_or(now.labels),
    };
    carry_out(&app, &asked, &id, Command::Update(profile)).await
}

/// What a pool takes on.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SwitchBody {
    /// `enabled`; `cordoned`: no new tasks; `draining`: no claims either; `disabled`: no redemptions either.
    state: String,
    /// Why, at most 1,024 characters.
    #[serde(default)]
    reason: String,
}

/// Enables, cordons, drains or disables a pool
#[utoipa::path(put, path = "/v1/pools/{id}/state", tag = "pool", params(("id" = String, Path)), request_body = SwitchBody, security(("key" = [])),
    responses((status = 200, body = Operated), (status = "4XX", body = ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn switch(State(app): State<App>, asked: Asked, Path(id): Path<String>, body: Body) -> Result<Json<Operated>, Problem> {
    asked.caller.must_be_platform_admin()?;
    let SwitchBody { state, reason } = body.of(&asked.caller)?.read()?;
    let state = state.parse().map_err(|_| Rejection::field("state", "must be `enabled`, `cordoned`, `draining` or `disabled`"))?;
    carry_out(&app, &asked, &parse(&id)?, Command::Switch(state, reason)).await
}

/// Deletes a pool without workers and tasks
#[utoipa::path(delete, path = "/v1/pools/{id}", tag = "pool", params(("id" = String, Path)), security(("key" = [])),
    responses((status = 200, body = Operated), (status = "4XX", body = ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn delete(State(app): State<App>, asked: Asked, Path(id): Path<String>) -> Result<Json<Operated>, Problem> {
    asked.caller.must_be_platform_admin()?;
    let id = parse(&id)?;
    let live = worker::list(&app.db, Some(id.as_str())).await?;
    let live = live.iter().filter(|worker| !matches!(worker.state, Seen::Gone | Seen::Lost)).count();
    let open = task::count_open_in_pool(&app.db, id.as_str()).await?;
    carry_out(&app, &asked, &id, Command::Delete { empty: live == 0 && open == 0 }).await
}
