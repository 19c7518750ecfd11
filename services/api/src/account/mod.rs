//! Accounts, members and API keys.

use crate::auth::{self, Caller};
use crate::body::Body;
use crate::problem::{Problem, ProblemBody};
use crate::request::Asked;
use crate::state::App;
use crate::workload::{Stated, id};
use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use signalbox_domain::account::{Account, AddMember, Command, Create, IssueKey, RevokeKey};
use signalbox_events::account::Role;
use signalbox_events::{AccountId, Aggregate, KeyId, Micros, PrincipalId};
use signalbox_journal::Request;
use signalbox_projections::account;
use utoipa::ToSchema;
use uuid::Uuid;

/// What API keys begin with, so that a scanner for leaked secrets can tell them.
pub(crate) const KEY_PREFIX: &str = "sbk_";

/// The account that a path names: the caller's own as `current`, or any for platform admins.
fn account_of(caller: &Caller, text: &str) -> Result<AccountId, Problem> {
    let account = if text == "current" { caller.account } else { id(text)? };
    if account == caller.account || caller.is_platform_admin() { Ok(account) } else { Err(Problem::not_found()) }
}

async fn carry_out(app: &App, asked: &Asked, account: AccountId, about: Uuid, command: impl Into<Command>) -> Result<Stated, Problem> {
    let request = Request { aggregate: Aggregate::account(account), command: command.into(), requester: asked.requester() };
    let done = app.ledger.execute::<Account>(request).await?;
    Ok(Stated::new(about, done.position, done.stated.is_some()))
}

/// A new account.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CreateBody {
    /// 1 to 128 characters.
    name: String,
}

/// Creates an account
#[utoipa::path(post, path = "/v1/accounts", tag = "account", request_body = CreateBody, security(("key" = [])),
    responses((status = 201, body = Stated), (status = "4XX", body = ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn create(State(app): State<App>, asked: Asked, body: Body) -> Result<(StatusCode, Json<Stated>), Problem> {
    asked.caller.must_be_platform_admin()?;
    let CreateBody { name } = body.read()?;
    let account = AccountId(asked.new_id(&app));
    Ok((StatusCode::CREATED, Json(carry_out(&app, &asked, account, account.0, Create { name }).await?)))
}

/// An account with its members.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AccountView {
    id: Uuid,
    name: String,
    created_at: DateTime<Utc>,
    members: Vec<MemberView>,
}

/// A member.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct MemberView {
    principal: Uuid,
    name: String,
    #[schema(value_type = Vec<String>)]
    roles: Vec<Role>,
    added_at: DateTime<Utc>,
}

/// Shows an account
#[utoipa::path(get, path = "/v1/accounts/{account}", tag = "account", security(("key" = [])),
    params(("account" = String, Path, description = "An id, or `current`")),
    responses((status = 200, body = AccountView), (status = "4XX", body = ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn get(State(app): State<App>, caller: Caller, Path(account): Path<String>) -> Result<Json<AccountView>, Problem> {
    let account = account_of(&caller, &account)?;
    let found = account::find(&app.db, account.0).await?.ok_or_else(Problem::not_found)?;
    let members = account::members(&app.db, account.0).await?;
    let members = members.into_iter().map(|member| MemberView {
        principal: member.principal,
        name: member.name,
        roles: member.roles,
        added_at: member.added_at,
    });
    Ok(Json(AccountView { id: found.id, name: found.name, created_at: found.created_at, members: members.collect() }))
}

/// Accounts.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AccountList {
    /// At most 1,000, the oldest first.
    items: Vec<AccountSummary>,
}

/// An account.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AccountSummary {
    id: Uuid,
    name: String,
    created_at: DateTime<Utc>,
}

/// Lists accounts
#[utoipa::path(get, path = "/v1/accounts", tag = "account", security(("key" = [])),
    responses((status = 200, body = AccountList), (status = "4XX", body = ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn list(State(app): State<App>, caller: Caller) -> Result<Json<AccountList>, Problem> {
    caller.must_be_platform_admin()?;
    let items = account::list(&app.db, 1000).await?;
    Ok(Json(AccountList { items: items.into_iter().map(|of| AccountSummary { id: of.id, name: of.name, created_at: of.created_at }).collect() }))
}

/// A new member.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct MemberBody {
    /// An existing principal, to change its name or roles; else a new one is made.
    principal: Option<Uuid>,
    /// 1 to 128 characters.
    name: String,
    /// At least one of `platform_admin`, `account_admin`, `member`, `auditor`, `worker`.
    #[schema(value_type = Vec<String>)]
    roles: Vec<Role>,
}

/// Adds a member
#[utoipa::path(post, path = "/v1/accounts/{account}/members", tag = "account", params(("account" = String, Path)), request_body = MemberBody, security(("key" = [])),
    responses((status = 201, body = Stated), (status = "4XX", body = ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn add_member(
    State(app): State<App>,
    asked: Asked,
    Path(account): Path<String>,
    body: Body,
) -> Result<(StatusCode, Json<Stated>), Problem> {
    asked.caller.must_be_account_admin()?;
    let account = account_of(&asked.caller, &account)?;
    let body: MemberBody = body.read()?;
    let principal = PrincipalId(body.principal.unwrap_or_else(|| asked.new_id(&app)));
    let command = AddMember { principal, name: body.name, roles: body.roles, granter: asked.caller.roles.clone() };
    Ok((StatusCode::CREATED, Json(carry_out(&app, &asked, account, principal.0, command).await?)))
}

/// A new key.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct KeyBody {
    /// The member whose key it is; the caller where it is not given.
    principal: Option<Uuid>,
    /// What it is for, 1 to 128 characters.
    label: String,
    /// A subset of the member's roles.
    #[schema(value_type = Vec<String>)]
    roles: Vec<Role>,
    /// After this it is refused.
    expires_at: Option<DateTime<Utc>>,
}

/// A key with its secret, which is shown this once.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct IssuedKey {
    id: Uuid,
    /// Send it as `Authorization: Bearer <secret>`.
    secret: String,
    position: String,
}

/// Issues an API key
#[utoipa::path(post, path = "/v1/accounts/{account}/keys", tag = "account", params(("account" = String, Path)), request_body = KeyBody, security(("key" = [])),
    responses((status = 201, body = IssuedKey), (status = "4XX", body = ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn issue_key(
    State(app): State<App>,
    asked: Asked,
    Path(account): Path<String>,
    body: Body,
) -> Result<(StatusCode, Json<IssuedKey>), Problem> {
    asked.caller.must_be_account_admin()?;
    let account = account_of(&asked.caller, &account)?;
    let body: KeyBody = body.read()?;
    let ctx = app.context();
    let secret = format!("{KEY_PREFIX}{}", hex::encode(ctx.random));
    let key = KeyId(ctx.id);
    let mut hash = [0; 32];
    // The hash is hex of 32 bytes by construction.
    let _ = hex::decode_to_slice(auth::hash(secret.as_bytes()), &mut hash);
    let command = IssueKey {
        key,
        principal: body.principal.map_or(asked.caller.principal, PrincipalId),
        label: body.label,
        hash,
        roles: body.roles,
        expires_at: body.expires_at.map(Micros::from),
        granter: asked.caller.roles.clone(),
    };
    // Each request makes a secret of its own: a repeated one must not be answered with a secret that was never stored.
    let request = Request {
        aggregate: Aggregate::account(account),
        command: Command::IssueKey(command),
        requester: signalbox_journal::Requester { command_id: None, ..asked.requester() },
    };
    let done = app.ledger.execute::<Account>(request).await?;
    Ok((StatusCode::CREATED, Json(IssuedKey { id: key.0, secret, position: done.position.to_string() })))
}

/// Keys of an account.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct KeyList {
    items: Vec<KeyView>,
}

/// A key, without its secret.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct KeyView {
    id: Uuid,
    principal: Uuid,
    label: String,
    #[schema(value_type = Vec<String>)]
    roles: Vec<Role>,
    expires_at: Option<DateTime<Utc>>,
    revoked_at: Option<DateTime<Utc>>,
    issued_at: DateTime<Utc>,
}

/// Lists API keys
#[utoipa::path(get, path = "/v1/accounts/{account}/keys", tag = "account", params(("account" = String, Path)), security(("key" = [])),
    responses((status = 200, body = KeyList), (status = "4XX", body = ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn list_keys(State(app): State<App>, caller: Caller, Path(account): Path<String>) -> Result<Json<KeyList>, Problem> {
    caller.must_be_account_admin()?;
    let account = account_of(&caller, &account)?;
    let keys = account::keys(&app.db, account.0).await?.into_iter().map(|key| KeyView {
        id: key.id,
        principal: key.principal,
        label: key.label,
        roles: key.roles,
        expires_at: key.expires_at,
        revoked_at: key.revoked_at,
        issued_at: key.issued_at,
    });
    Ok(Json(KeyList { items: keys.collect() }))
}

/// Revokes an API key
#[utoipa::path(delete, path = "/v1/accounts/{account}/keys/{key}", tag = "account", params(("account" = String, Path), ("key" = String, Path)), security(("key" = [])),
    responses((status = 200, body = Stated), (status = "4XX", body = ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn revoke_key(State(app): State<App>, asked: Asked, Path((account, key)): Path<(String, String)>) -> Result<Json<Stated>, Problem> {
    asked.caller.must_be_account_admin()?;
    let account = account_of(&asked.caller, &account)?;
    let key: KeyId = id(&key)?;
    let done = carry_out(&app, &asked, account, key.0, RevokeKey { key }).await?;
    app.credentials.forget();
    Ok(Json(done))
}
