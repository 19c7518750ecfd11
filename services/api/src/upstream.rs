//! Upstreams: register, list, show, describe, give a credential, switch, delete. A credential is never shown again.

use crate::auth::Caller;
use crate::body::Body;
use crate::pool::FreshQuery;
use crate::problem::{Problem, ProblemBody};
use crate::request::{Asked, wait_for};
use crate::state::App;
use crate::workload::{Stated, id};
use axum::Json;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use signalbox_domain::upstream::{Command, Existing, Upstream, id_of};
use signalbox_events::upstream::{Model, Profile};
use signalbox_events::{AccountId, Aggregate, UpstreamId};
use signalbox_journal::Request;
use signalbox_projections::upstream::{self, Row, View};
use utoipa::ToSchema;
use uuid::Uuid;

/// An upstream.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct UpstreamView {
    id: Uuid,
    /// The account; `platform`: everyone may use it.
    account: String,
    /// The first part of its models' names: `<name>/<model>`.
    name: String,
    owner_name: String,
    provider: String,
    protocol: String,
    base_url: String,
    models: Vec<ModelView>,
    enabled: bool,
    /// An operator's words on the state.
    reason: Option<String>,
    /// What is known of its credential; null: it has none.
    credential: Option<CredentialView>,
    created_at: DateTime<Utc>,
    updated_at: DateTime<Utc>,
}

/// A model of an upstream.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ModelView {
    /// Its name there, 1 to 256 characters.
    name: String,
    /// Kinds of tasks that it serves: exact, `*`, or `x.*`; `chat.completions` where none is given.
    #[serde(default = "chat")]
    kinds: Vec<String>,
}

fn chat() -> Vec<String> {
    vec!["chat.completions".to_owned()]
}

/// What is known of a credential.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CredentialView {
    /// The header that it goes into.
    header: String,
    /// The only origin that it is sent to.
    origin: String,
    set_at: DateTime<Utc>,
}

impl UpstreamView {
    fn new(row: Row) -> Self {
        let credential = match (row.credential_header, row.credential_origin, row.credential_set_at) {
            (Some(header), Some(origin), Some(set_at)) => Some(CredentialView { header, origin, set_at }),
            _ => None,
        };
        Self {
            id: row.id,
            account: AccountId(row.account).to_string(),
            name: row.name,
            owner_name: row.owner_name,
            provider: row.provider,
            protocol: row.protocol,
            base_url: row.base_url,
            models: row.models.into_iter().map(|Model { name, kinds }| ModelView { name, kinds }).collect(),
            enabled: row.enabled,
            reason: row.reason,
            credential,
            created_at: row.created_at,
            updated_at: row.updated_at,
        }
    }
}

fn models(models: Vec<ModelView>) -> Vec<Model> {
    models.into_iter().map(|ModelView { name, kinds }| Model { name, kinds }).collect()
}

/// An upstream that the caller may change: their account's for its admins, everyone's for platform admins.
async fn changeable(app: &App, caller: &Caller, text: &str) -> Result<(Aggregate, Existing), Problem> {
    caller.must_be_account_admin()?;
    let id: UpstreamId = id(text)?;
    for account in [caller.account, AccountId::PLATFORM] {
        let aggregate = Aggregate::upstream(account, id);
        if let Some(found) = app.ledger.load::<Upstream>(&aggregate).await? {
            if account == AccountId::PLATFORM {
                caller.must_be_platform_admin()?;
            }
            return Ok((aggregate, found));
        }
    }
    Err(Problem::not_found())
}

async fn carry_out(app: &App, asked: &Asked, aggregate: Aggregate, command: Command) -> Result<Json<Stated>, Problem> {
    let about: UpstreamId = id(&aggregate.id)?;
    let done = app.ledger.execute::<Upstream>(Request { aggregate, command, requester: asked.requester() }).await?;
    Ok(Json(Stated::new(about.0, done.position, done.stated.is_some())))
}

/// A new upstream.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RegisterBody {
    /// `^[a-z0-9][a-z0-9-]{0,62}$`, unique in the account.
    name: String,
    /// Whose platform it is, for people and policies; the name where it is not given.
    provider: Option<String>,
    /// What it speaks: `openai`, the default.
    protocol: Option<String>,
    /// Its base URL, without a slash at its end: `https://api.example.com/v1`.
    base_url: String,
    /// 1 to 1,000 models.
    models: Vec<ModelView>,
    /// Whether every account may use it; for platform admins.
    #[serde(default)]
    shared: bool,
}

/// Registers an upstream
#[utoipa::path(post, path = "/v1/upstreams", tag = "upstream", request_body = RegisterBody, security(("key" = [])),
    responses((status = 201, body = Stated), (status = "4XX", body = ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn register(State(app): State<App>, asked: Asked, body: Body) -> Result<(StatusCode, Json<Stated>), Problem> {
    asked.caller.must_be_account_admin()?;
    let body: RegisterBody = body.of(&asked.caller)?.read()?;
    let account = if body.shared { AccountId::PLATFORM } else { asked.caller.account };
    if body.shared {
        asked.caller.must_be_platform_admin()?;
    }
    let profile = Profile {
        provider: body.provider.unwrap_or_else(|| body.name.clone()),
        protocol: body.protocol.unwrap_or_else(|| "openai".to_owned()),
        base_url: body.base_url,
        models: models(body.models),
    };
    let aggregate = Aggregate::upstream(account, id_of(account, &body.name));
    let (owner, owner_name) = (asked.caller.principal, asked.caller.name.clone());
    let done = carry_out(&app, &asked, aggregate, Command::Register { owner, owner_name, name: body.name, profile }).await?;
    Ok((StatusCode::CREATED, done))
}

/// Upstreams.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct UpstreamList {
    items: Vec<UpstreamView>,
}

/// Lists the upstreams that the caller's account may use: its own, then everyone's
#[utoipa::path(get, path = "/v1/upstreams", tag = "upstream", params(FreshQuery), security(("key" = [])),
    responses((status = 200, body = UpstreamList), (status = "4XX", body = ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn list(State(app): State<App>, caller: Caller, Query(query): Query<FreshQuery>) -> Result<Json<UpstreamList>, Problem> {
    wait_for(&app, &View, query.after.as_deref()).await?;
    let rows = upstream::list(&app.db, caller.account.0).await?;
    Ok(Json(UpstreamList { items: rows.into_iter().map(UpstreamView::new).collect() }))
}

/// Shows an upstream
#[utoipa::path(get, path = "/v1/upstreams/{id}", tag = "upstream", params(("id" = String, Path), FreshQuery), security(("key" = [])),
    responses((status = 200, body = UpstreamView), (status = "4XX", body = ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn get(
    State(app): State<App>,
    caller: Caller,
    Path(text): Path<String>,
    Query(query): Query<FreshQuery>,
) -> Result<Json<UpstreamView>, Problem> {
    wait_for(&app, &View, query.after.as_deref()).await?;
    let id: UpstreamId = id(&text)?;
    let row = upstream::find(&app.db, id.0).await?;
    let row = row.filter(|row| row.account == caller.account.0 || row.account == AccountId::PLATFORM.0);
    row.map(|row| Json(UpstreamView::new(row))).ok_or_else(Problem::not_found)
}

/// What changes; the rest stays.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct UpdateBody {
    provider: Option<String>,
    /// Another origin than before takes the credential away: set it again.
    base_url: Option<String>,
    /// All models from now on.
    models: Option<Vec<ModelView>>,
}

/// Describes an upstream anew
#[utoipa::path(patch, path = "/v1/upstreams/{id}", tag = "upstream", params(("id" = String, Path)), request_body = UpdateBody, security(("key" = [])),
    responses((status = 200, body = Stated), (status = "4XX", body = ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn update(State(app): State<App>, asked: Asked, Path(text): Path<String>, body: Body) -> Result<Json<Stated>, Problem> {
    let (aggregate, found) = changeable(&app, &asked.caller, &text).await?;
    let body: UpdateBody = body.of(&asked.caller)?.read()?;
    if body.provider.is_none() && body.base_url.is_none() && body.models.is_none() {
        return Err(Problem::new(signalbox_domain::Code::MissingField, "give at least one of `provider`, `base_url` and `models`"));
    }
    let now = found.profile;
    let profile = Profile {
        provider: body.provider.unwrap_or(now.provider),
        protocol: now.protocol,
        base_url: body.base_url.unwrap_or(now.base_url),
        models: body.models.map_or(now.models, models),
    };
    carry_out(&app, &asked, aggregate, Command::Update(profile)).await
}

/// A credential.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CredentialBody {
    /// The secret, 1 to 8,192 visible ASCII characters. It is sealed, never shown again, and sent to the origin of the base URL alone.
    secret: String,
    /// The header that it goes into: `authorization` (the default, behind `Bearer `), `api-key` or an `x-` header.
    header: Option<String>,
}

/// Gives an upstream its credential
#[utoipa::path(put, path = "/v1/upstreams/{id}/credential", tag = "upstream", params(("id" = String, Path)), request_body = CredentialBody,
    security(("key" = [])),
    responses((status = 200, body = Stated), (status = "4XX", body = ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn set_credential(State(app): State<App>, asked: Asked, Path(text): Path<String>, body: Body) -> Result<Json<Stated>, Problem> {
    let (aggregate, _) = changeable(&app, &asked.caller, &text).await?;
    let CredentialBody { secret, header } = body.of(&asked.caller)?.read()?;
    let header = header.unwrap_or_else(|| "authorization".to_owned());
    carry_out(&app, &asked, aggregate, Command::SetCredential { header, secret }).await
}

/// Whether an upstream is used.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SwitchBody {
    enabled: bool,
    /// Why, at most 1,024 characters.
    #[serde(default)]
    reason: String,
}

/// Enables or disables an upstream
#[utoipa::path(put, path = "/v1/upstreams/{id}/state", tag = "upstream", params(("id" = String, Path)), request_body = SwitchBody, security(("key" = [])),
    responses((status = 200, body = Stated), (status = "4XX", body = ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn switch(State(app): State<App>, asked: Asked, Path(text): Path<String>, body: Body) -> Result<Json<Stated>, Problem> {
    let (aggregate, _) = changeable(&app, &asked.caller, &text).await?;
    let SwitchBody { enabled, reason } = body.of(&asked.caller)?.read()?;
    carry_out(&app, &asked, aggregate, Command::Switch(enabled, reason)).await
}

/// Deletes an upstream and its credential
#[utoipa::path(delete, path = "/v1/upstreams/{id}", tag = "upstream", params(("id" = String, Path)), security(("key" = [])),
    responses((status = 200, body = Stated), (status = "4XX", body = ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn delete(State(app): State<App>, asked: Asked, Path(text): Path<String>) -> Result<Json<Stated>, Problem> {
    let (aggregate, _) = changeable(&app, &asked.caller, &text).await?;
    carry_out(&app, &asked, aggregate, Command::Delete).await
}
