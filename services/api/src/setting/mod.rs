//! Switches of the platform and of the caller's account.

use crate::auth::Caller;
use crate::body::Body;
use crate::problem::{Problem, ProblemBody};
use crate::request::Asked;
use crate::state::App;
use axum::Json;
use axum::extract::{Path, State};
use serde::{Deserialize, Serialize};
use signalbox_domain::setting::{self, AcceptGap, SetTransport, Setting, Switch};
use signalbox_domain::{Code, Rejection};
use signalbox_events::setting::Transport;
use signalbox_events::{AccountId, Aggregate, Position};
use signalbox_journal::{Failure, Request};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// The switches of the platform and of one account.
pub(crate) struct Switches {
    platform: setting::State,
    account: setting::State,
}

impl Switches {
    pub async fn load(app: &App, account: AccountId) -> Result<Self, Failure> {
        let (platform, own) = (Aggregate::setting(AccountId::PLATFORM), Aggregate::setting(account));
        let (platform, account) = tokio::try_join!(app.ledger.load::<Setting>(&platform), app.ledger.load::<Setting>(&own))?;
        Ok(Self { platform, account })
    }

    /// Whether inference is served.
    pub fn inference_enabled(&self) -> bool {
        setting::inference_enabled(&self.platform, &self.account)
    }

    /// How calls of a kind reach models.
    pub fn transport(&self, kind: &str) -> Transport {
        setting::transport_of(&self.platform, &self.account, kind)
    }

    /// Refuses inference where it is switched off.
    pub fn must_serve(&self) -> Result<(), Problem> {
        if self.inference_enabled() {
            return Ok(());
        }
        Err(Problem::new(Code::FeatureDisabled, "inference is switched off here; a platform admin can switch it on"))
    }
}

/// Whether inference is served in an account.
pub(crate) async fn inference_enabled(app: &App, account: AccountId) -> Result<bool, Problem> {
    Ok(Switches::load(app, account).await?.inference_enabled())
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
    /// How calls that someone waits for reach models, by kind; `*` stands for every kind that is not named. What is in neither
    /// list goes `direct`.
    platform_transports: BTreeMap<String, &'static str>,
    /// The same for the account; it goes before the platform's.
    account_transports: BTreeMap<String, &'static str>,
}

fn transports(state: &setting::State) -> BTreeMap<String, &'static str> {
    let shown = |kind: &String| if kind.is_empty() { "*".to_owned() } else { kind.clone() };
    state.transports.iter().map(|(kind, transport)| (shown(kind), transport.as_str())).collect()
}

/// Shows the settings
#[utoipa::path(get, path = "/v1/settings", tag = "setting", security(("key" = [])),
    responses((status = 200, body = Settings), (status = "4XX", body = ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn get(State(app): State<App>, caller: Caller) -> Result<Json<Settings>, Problem> {
    let switches = Switches::load(&app, caller.account).await?;
    Ok(Json(Settings {
        inference_enabled: switches.inference_enabled(),
        platform_inference_enabled: switches.platform.inference_enabled,
        account_inference_enabled: switches.account.inference_enabled,
        platform_transports: transports(&switches.platform),
        account_transports: transports(&switches.account),
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
    let account = scope_of(&asked, &scope)?;
    let SwitchBody { enabled } = body.of(&asked.caller)?.read()?;
    state(&app, &asked, account, Switch { enabled }).await
}

fn scope_of(asked: &Asked, scope: &str) -> Result<AccountId, Problem> {
    match scope {
        "platform" => Ok(AccountId::PLATFORM),
        "account" => Ok(asked.caller.account),
        _ => Err(Problem::not_found()),
    }
}

async fn state(app: &App, asked: &Asked, account: AccountId, command: impl Into<setting::Command>) -> Result<Json<Switched>, Problem> {
    let request = Request { aggregate: Aggregate::setting(account), command: command.into(), requester: asked.requester() };
    let done = app.ledger.execute::<Setting>(request).await?;
    Ok(Json(Switched { position: done.position.to_string(), stated: done.stated.is_some() }))
}

/// How calls that someone waits for reach models.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TransportBody {
    /// `direct`: the gateway calls; `lease`: a worker of a pool calls; `unset`: as if it had never been set.
    transport: String,
    /// The kind, `chat.completions`; else every kind that has none of its own.
    kind: Option<String>,
}

/// Sets how calls that someone waits for reach models: chat completions and turns of conversations
#[utoipa::path(put, path = "/v1/settings/{scope}/transport", tag = "setting", security(("key" = [])), request_body = TransportBody,
    params(("scope" = String, Path, description = "`platform` or `account` (the caller's own); for platform admins")),
    responses((status = 200, body = Switched), (status = "4XX", body = ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn set_transport(State(app): State<App>, asked: Asked, Path(scope): Path<String>, body: Body) -> Result<Json<Switched>, Problem> {
    asked.caller.must_be_platform_admin()?;
    let account = scope_of(&asked, &scope)?;
    let TransportBody { transport, kind } = body.of(&asked.caller)?.read()?;
    let transport = match transport.as_str() {
        "unset" => None,
        word => Some(word.parse().map_err(|_| Rejection::field("transport", "must be `direct`, `lease` or `unset`"))?),
    };
    state(&app, &asked, account, SetTransport { kind, transport }).await
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
    state(&app, &asked, AccountId::PLATFORM, command).await
}
