//! What a model's name in a request stands for: a deployment of the account, or `<upstream>/<model>`.

use crate::conversation::no_model;
use crate::problem::Problem;
use crate::setting::Switches;
use crate::state::App;
use signalbox_domain::Code;
use signalbox_domain::task::kind_matches;
use signalbox_domain::workload::{Existing, Workload};
use signalbox_events::setting::Transport;
use signalbox_events::task::Target;
use signalbox_events::{AccountId, Aggregate, UpstreamId, WorkloadId};
use signalbox_projections::{upstream, workload_list};

/// What serves a call.
pub(crate) struct Served {
    /// For a worker.
    pub target: Target,
    /// Where the gateway itself can call, and the model's name there.
    pub address: Option<(String, String)>,
    /// How it is called.
    pub transport: Transport,
}

impl Served {
    /// A deployment that serves now; `None`: it does not.
    pub fn deployment(app: &App, aggregate: &Aggregate, workload: &Existing, transport: Transport) -> Option<Self> {
        let address = crate::workload::target(app, workload).filter(|_| !workload.suspended)?;
        let workload: WorkloadId = aggregate.id.parse().ok()?;
        let target = Target { account: aggregate.account, workload: Some(workload), upstream: None, model: address.1.clone() };
        Some(Self { target, address: Some(address), transport })
    }
}

/// What a task of `kind` for the model `name` goes to, whether it serves now or not.
pub(crate) async fn target(app: &App, account: AccountId, kind: &str, name: &str) -> Result<Target, Problem> {
    if let Some(row) = workload_list::by_route(&app.db, account.0, name).await? {
        return Ok(Target { account, workload: Some(WorkloadId(row.id)), upstream: None, model: name.to_owned() });
    }
    let Some((upstream, model)) = name.split_once('/') else { return Err(no_model(name)) };
    let row = upstream::by_name(&app.db, account.0, upstream).await?.ok_or_else(|| no_model(name))?;
    let found = row.models.iter().find(|known| known.name == model).ok_or_else(|| no_model(name))?;
    if !found.kinds.iter().any(|pattern| kind_matches(pattern, kind)) {
        return Err(Problem { field: Some("model".to_owned()), ..Problem::new(Code::ModelNotFound, format!("the model does not serve `{kind}`")) });
    }
    if !row.enabled {
        return Err(Problem { retry_after: Some(10), ..Problem::new(Code::WorkloadNotReady, format!("the upstream `{upstream}` is switched off")) });
    }
    Ok(Target { account: AccountId(row.account), workload: None, upstream: Some(UpstreamId(row.id)), model: model.to_owned() })
}

/// What serves a call of `kind` to the model `name` now.
pub(crate) async fn serve(app: &App, account: AccountId, switches: &Switches, kind: &str, name: &str) -> Result<Served, Problem> {
    let target = target(app, account, kind, name).await?;
    let Some(workload) = target.workload else { return Ok(Served { target, address: None, transport: Transport::Lease }) };
    let aggregate = Aggregate::workload(account, workload);
    let workload = app.ledger.load::<Workload>(&aggregate).await?.filter(|workload| !workload.deleted && !workload.deleting);
    let workload = workload.ok_or_else(|| no_model(name))?;
    let not_ready = || Problem::new(Code::WorkloadNotReady, format!("the deployment is {}", workload.phase()));
    Served::deployment(app, &aggregate, &workload, switches.transport(kind)).ok_or_else(not_ready)
}
