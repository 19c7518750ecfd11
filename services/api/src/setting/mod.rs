//! Switches of the platform and of the caller's account.

use crate::auth::Caller;
use crate::body::Body;
use crate::problem::{Problem, ProblemBody};
use crate::request::Asked;
use crate::state::App;
use axum::Json;
use axum::extract::{Path, State};
use serde::{Deserialize, Serialize};
use signalbox_domain::Rejection;
use signalbox_domain::setting::{self, AcceptGap, Setting, Switch};
use signalbox_events::{AccountId, Aggregate, Position};
use signalbox_journal::Request;
use utoipa::ToSchema;

/// Whether inference is served in an account.
pub(crate) async fn inference_enabled(app: &App, account: AccountId) -> Result<bool, Problem> {
    let platform = app.ledger.load::<Setting>(&Aggregate::setting(AccountId::PLATFORM)).await?;
    let own = app.ledger.load::<Setting>(&Aggregate::setting(account)).await?;
    Ok(setting::inference_enabled(&platform, &own))
}

/// The switches as they stand.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Settings {
    /// Whether inference is served in the caller's account.
    inference_enabled: bool,
    /// The platform's own switch; null: never set, which counts as off.
    platform_inference_enabled: Option<bool>,
    /// The account's own switch; null: never set. It can only take away.
    account_inference_enabled: Option<bool>,
}

/// Shows the settings
#[utoipa::path(get, path = "/v1/settings", tag = "setting", security(("key" = [])),
    responses((status = 200, body = Settings), (status = "4XX", body = ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn get(State(app): State<App>, caller: Caller) -> Result<Json<Settings>, Problem> {
    let platform = app.ledger.load::<Setting>(&Aggregate::setting(AccountId::PLATFORM)).await?;
    let own = app.ledger.load::<Setting>(&Aggregate::setting(caller.account)).await?;
    Ok(Json(Settings {
        inference_enabled: setting::inference_enabled(&platform, &own),
        platform_inference_enabled: platform.inference_enabled,
        account_inference_enabled: own.inference_enabled,
    }))
}

/// A switch's new position.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SwitchBody {
    /// On or off.
    enabled: bool,
}

/// What a switch came to.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Switched {
    /// The place of the setting's last event.
    position: String,
    /// Whether this request changed anything.
    stated: bool,
}

/// Switches inference on or off
#[utoipa::path(put, path = "/v1/settings/{scope}/inference", tag = "setting", security(("key" = [])), request_body = SwitchBody,
    params(("scope" = String, Path, description = "`platform` (platform admins) or `account` (the caller's own)")),
    responses((status = 200, body = Switched), (status = "4XX", body = ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn put(State(app): State<App>, asked: Asked, Path(scope): Path<String>, body: Body) -> Result<Json<Switched>, Problem> {
    asked.caller.must_be_platform_admin()?;
    let account = match scope.as_str() {
        "platform" => AccountId::PLATFORM,
        "account" => asked.caller.account,
        _ => return Err(Problem::not_found()),
    };
    let SwitchBody { enabled } = body.of(&asked.caller)?.read()?;
    let request = Request { aggregate: Aggregate::setting(account), command: Switch { enabled }, requester: asked.requester() };
    let done = app.ledger.execute::<Setting>(request).await?;
    Ok(Json(Switched { position: done.position.to_string(), stated: done.stated.is_some() }))
}

/// A loss that is known.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct GapBody {
    /// The first missing place of the log, as `log_gap` names it.
    position: String,
    /// Why the loss is acceptable, 1 to 1,024 characters.
    reason: String,
}

/// States that a loss of the log is known, so that the views go on behind it
#[utoipa::path(post, path = "/v1/audit/accepted-gaps", tag = "operation", security(("key" = [])), request_body = GapBody,
    responses((status = 200, body = Switched), (status = "4XX", body = ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn accept_gap(State(app): State<App>, asked: Asked, body: Body) -> Result<Json<Switched>, Problem> {
    asked.caller.must_be_platform_admin()?;
    let GapBody { position, reason } = body.read()?;
    let position: Position = position.parse().map_err(|_| Rejection::field("position", "must be a position, `<partition>.<sequence>`"))?;
    let found = app.ledger.journal().read(position.partition, ">", position.sequence.saturating_sub(1), 1).await?.0;
    // Nothing behind it: it is not missing, it has not come yet.
    if found.first().is_none_or(|stored| stored.sequence == position.sequence) {
        return Err(Rejection::field("position", "is not missing: `log_gap` and `audit verify` name the first missing position").into());
    }
    let command = AcceptGap { partition: position.partition, sequence: position.sequence, reason };
    let request = Request { aggregate: Aggregate::setting(AccountId::PLATFORM), command, requester: asked.requester() };
    let done = app.ledger.execute::<Setting>(request).await?;
    Ok(Json(Switched { position: done.position.to_string(), stated: done.stated.is_some() }))
}
