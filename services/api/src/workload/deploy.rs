//! `POST /v1/workloads`: deploys a model or starts a job.

use super::{Stated, gate};
use crate::body::Body;
use crate::problem::Problem;
use crate::request::Asked;
use crate::state::App;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Deserialize;
use signalbox_domain::kind;
use signalbox_domain::workload::{Deploy, Workload};
use signalbox_domain::{Code, Rejection};
use signalbox_events::workload::Spec;
use signalbox_events::{Aggregate, WorkloadId};
use signalbox_journal::Request;
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// What to deploy.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DeployBody {
    /// The name that people see, 1 to 253 characters.
    name: String,
    spec: SpecBody,
    /// At most 64 labels.
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

/// What is wanted. Which fields there are depends on the kind.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SpecBody {
    /// `local-inference`, `local-job` or `endpoint`.
    kind: String,
    /// A configured runtime, for local kinds.
    runtime: Option<String>,
    /// Values of the runtime's declared parameters.
    parameters: Option<BTreeMap<String, String>>,
    /// Processes wanted, 1 to 16; default 1.
    replicas: Option<u32>,
    /// The base URL of an endpoint, up to and including `/v1`.
    url: Option<String>,
    /// The model's name at an endpoint.
    model: Option<String>,
}

impl SpecBody {
    /// The spec of its kind; fields that belong to another kind are refused.
    pub fn spec(self) -> Result<Spec, Rejection> {
        use signalbox_events::workload::Kind;
        let kind: Kind = self.kind.parse().map_err(|_| {
            let known: Vec<_> = Kind::ALL.iter().map(|kind| kind.as_str()).collect();
            Rejection::field("spec.kind", format!("must be one of {}", known.join(", ")))
        })?;
        let local = [("runtime", self.runtime.is_some()), ("parameters", self.parameters.is_some())];
        let inference = [("replicas", self.replicas.is_some())];
        let endpoint = [("url", self.url.is_some()), ("model", self.model.is_some())];
        let refused: Vec<(&str, bool)> = match kind {
            Kind::LocalInference => endpoint.to_vec(),
            Kind::LocalJob => [&inference[..], &endpoint].concat(),
            Kind::Endpoint => [&local[..], &inference].concat(),
        };
        if let Some((name, _)) = refused.into_iter().find(|(_, given)| *given) {
            let detail = format!("a workload of kind {kind} has no `{name}`");
            return Err(Rejection { code: Code::UnknownField, detail, field: Some(format!("spec.{name}")) });
        }
        let needed = |value: Option<String>, name: &str| value.ok_or_else(|| Rejection::missing(format!("spec.{name}")));
        Ok(match kind {
            Kind::LocalInference => Spec::LocalInference {
                runtime: needed(self.runtime, "runtime")?,
                parameters: self.parameters.unwrap_or_default(),
                replicas: self.replicas.unwrap_or(1),
            },
            Kind::LocalJob => Spec::LocalJob { runtime: needed(self.runtime, "runtime")?, parameters: self.parameters.unwrap_or_default() },
            Kind::Endpoint => Spec::Endpoint { url: needed(self.url, "url")?, model: needed(self.model, "model")? },
        })
    }
}

/// Deploys a workload
#[utoipa::path(post, path = "/v1/workloads", tag = "workload", request_body = DeployBody, security(("key" = [])),
    params(("Idempotency-Key" = Option<String>, Header, description = "The same key deploys once, for ever")),
    responses((status = 202, body = Stated), (status = "4XX", body = crate::problem::ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn deploy(State(app): State<App>, asked: Asked, body: Body) -> Result<(StatusCode, Json<Stated>), Problem> {
    asked.caller.must_be_member()?;
    let body: DeployBody = body.of(&asked.caller)?.read()?;
    let spec = body.spec.spec()?;
    kind::validate(&spec, "spec", &app.catalog)?;
    gate(&app, asked.caller.account, spec.kind().category()).await?;
    let id = WorkloadId(asked.new_id(&app));
    let command = Deploy { id, name: body.name, spec, owner: asked.caller.principal, owner_name: asked.caller.name.clone(), labels: body.labels };
    // The id is deterministic already, so that another body under the same key is seen and refused.
    let mut requester = asked.requester();
    requester.command_id = None;
    let aggregate = Aggregate::workload(asked.caller.account, id);
    let done = app.ledger.execute::<Workload>(Request { aggregate, command, requester }).await?;
    Ok((StatusCode::ACCEPTED, Json(Stated::new(id.0, done.position, done.stated.is_some()))))
}
