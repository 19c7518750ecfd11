//! Workloads: commands, list and detail.

pub(crate) mod commands;
pub(crate) mod deploy;
pub(crate) mod get;
pub(crate) mod list;
pub(crate) mod logs;
mod shown;

use crate::auth::Caller;
use crate::problem::Problem;
use crate::setting::Switches;
use crate::state::App;
use serde::Serialize;
pub(crate) use shown::Workload;
use signalbox_domain::workload::{self, Existing};
use signalbox_events::workload::Category;
use signalbox_events::{AccountId, Aggregate, Position, WorkloadId};
use signalbox_projections::workload_list;
use std::sync::atomic::Ordering;
use utoipa::ToSchema;
use uuid::Uuid;

/// A command was carried out.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Stated {
    /// The thing that it concerned.
    pub id: Uuid,
    /// The place of its last event: pass it as `after` to see the outcome in a query.
    #[schema(value_type = String, example = "0.17")]
    pub position: String,
    /// Whether this request stated something new; `false`: it was so already.
    pub stated: bool,
}

impl Stated {
    pub fn new(id: Uuid, position: Position, stated: bool) -> Self {
        Self { id, position: position.to_string(), stated }
    }
}

/// The id in a path. Any other spelling than the canonical one is a thing that does not exist.
pub(crate) fn id<T: std::str::FromStr>(text: &str) -> Result<T, Problem> {
    text.parse().map_err(|_| Problem::not_found())
}

/// A workload that the caller may know of.
pub(crate) async fn visible(app: &App, caller: &Caller, text: &str) -> Result<(Aggregate, Existing), Problem> {
    let id: WorkloadId = id(text)?;
    let mut aggregate = Aggregate::workload(caller.account, id);
    let mut state = app.ledger.load::<workload::Workload>(&aggregate).await?;
    if state.is_none() && caller.is_platform_admin() {
        let Some(row) = workload_list::find(&app.db, id.0).await? else { return Err(Problem::not_found()) };
        aggregate = Aggregate::workload(AccountId(row.account), id);
        state = app.ledger.load::<workload::Workload>(&aggregate).await?;
    }
    let workload = state.filter(|workload| !workload.deleted && caller.sees(aggregate.account, workload.owner));
    Ok((aggregate, workload.ok_or_else(Problem::not_found)?))
}

/// Refuses what concerns deployments while inference is off for the account.
pub(crate) async fn gate(app: &App, account: AccountId, category: Category) -> Result<(), Problem> {
    if category == Category::Job { Ok(()) } else { Switches::load(app, account).await?.must_serve() }
}

/// Where a deployment can be called now, and the model's name there.
pub(crate) fn target(app: &App, workload: &Existing) -> Option<(String, String)> {
    workload.destination(app.turn_of.fetch_add(1, Ordering::Relaxed))
}
