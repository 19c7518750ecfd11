//! What a request says beside its body: who repeats it, what it is part of, which position it wants to see.

use crate::auth::Caller;
use crate::problem::Problem;
use crate::state::App;
use axum::extract::FromRequestParts;
use axum::http::HeaderMap;
use axum::http::request::Parts;
use signalbox_domain::conversation::check_key;
use signalbox_domain::{Code, Rejection};
use signalbox_events::{CommandId, Position};
use signalbox_journal::Requester;
use signalbox_projections::{Projection, checkpoint};
use std::time::{Duration, Instant};
use uuid::Uuid;

/// How long a query waits for its view.
const PATIENCE: Duration = Duration::from_secs(2);

/// The caller with the request's own marks.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub caller: Caller,
    route: String,
    key: Option<String>,
    traceparent: Option<String>,
}

impl FromRequestParts<App> for Asked {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let caller = Caller::from_request_parts(parts, app).await?;
        let key = text(&parts.headers, "idempotency-key");
        if let Some(key) = &key {
            check_key("Idempotency-Key", key)?;
        }
        let traceparent = text(&parts.headers, "traceparent").filter(|text| is_traceparent(text));
        Ok(Self { caller, route: format!("{} {}", parts.method, parts.uri.path()), key, traceparent })
    }
}

fn text(headers: &HeaderMap, name: &str) -> Option<String> {
    headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned)
}

/// W3C trace context: `00-<32 hex>-<16 hex>-<2 hex>`.
fn is_traceparent(text: &str) -> bool {
    let parts: Vec<_> = text.split('-').collect();
    let hex = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
    parts.len() == 4 && [2, 32, 16, 2].iter().zip(&parts).all(|(length, part)| part.len() == *length && hex(part))
}

impl Asked {
    /// The id of something to create: the same for ever for the same key of the same caller on the same route.
    pub fn new_id(&self, app: &App) -> Uuid {
        self.deterministic("creation").unwrap_or_else(|| app.context().id)
    }

    /// Whether the caller can repeat the request.
    pub fn has_key(&self) -> bool {
        self.key.is_some()
    }

    fn deterministic(&self, purpose: &str) -> Option<Uuid> {
        let key = self.key.as_ref()?;
        let name = format!("{}\n{}\n{}\n{purpose}\n{key}", self.caller.account, self.caller.principal, self.route);
        Some(Uuid::new_v5(&Uuid::NAMESPACE_OID, name.as_bytes()))
    }

    pub fn requester(&self) -> Requester {
        Requester {
            actor: format!("key:{}", self.caller.key),
            on_behalf_of: Some(format!("principal:{}", self.caller.principal)),
            command_id: self.deterministic("command").map(CommandId),
            correlation_id: None,
            causation_id: None,
            traceparent: self.traceparent.clone(),
        }
    }
}

/// Waits until the view shows what the caller has seen stated.
pub(crate) async fn wait_for(app: &App, view: &dyn Projection, after: Option<&str>) -> Result<(), Problem> {
    let Some(after) = after else { return Ok(()) };
    let wanted: Position = after.parse().map_err(|_| bad_position())?;
    if wanted.partition >= app.ledger.journal().partitions() {
        return Err(bad_position().into());
    }
    match checkpoint::reached(&app.db, &view.id(), wanted, PATIENCE).await? {
        Ok(()) => Ok(()),
        Err(at) => Err(Problem {
            retry_after: Some(1),
            more: vec![("wanted", wanted.to_string().into()), ("reached", at.to_string().into())],
            ..Problem::new(Code::ViewBehind, format!("the view has reached {at}, not yet {wanted}"))
        }),
    }
}

/// The row of a thing that the log knows: the view follows within milliseconds, and until then it is not missing but late.
pub(crate) async fn row<T, E, F>(mut find: impl FnMut() -> F) -> Result<T, Problem>
where
    E: Into<Problem>,
    F: Future<Output = Result<Option<T>, E>>,
{
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(row) = find().await.map_err(Into::into)? {
            return Ok(row);
        }
        if Instant::now() > until {
            return Err(Problem { retry_after: Some(1), ..Problem::new(Code::ViewBehind, "it exists, but the view does not show it yet") });
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn bad_position() -> Rejection {
    Rejection { code: Code::InvalidQuery, detail: "`after` must be a position as an answer gave it".to_owned(), field: Some("after".to_owned()) }
}
