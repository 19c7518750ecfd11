//! A workload as answers show it.

use chrono::{DateTime, Utc};
use serde::Serialize;
use serde_json::Value;
use signalbox_events::Position;
use signalbox_projections::workload_list::Row;
use std::collections::BTreeMap;
use utoipa::ToSchema;
use uuid::Uuid;

/// A deployment or a job. Fields that its kind does not know are null or empty.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Workload {
    pub id: Uuid,
    /// `local-inference`, `local-job`, `endpoint`.
    pub kind: &'static str,
    /// `job` or `deployment`.
    pub category: &'static str,
    /// The role that makes it real.
    pub provider: String,
    /// The name that people see.
    pub display_name: String,
    /// The name outside, unique.
    pub object_name: String,
    pub account: Uuid,
    pub owner: Owner,
    pub job_type: Option<String>,
    pub schedule_type: Option<String>,
    pub queue: Option<String>,
    /// Where it stands.
    pub state: &'static str,
    /// Why, as a stable word.
    pub reason: String,
    /// `command` or `provider`.
    pub trigger: &'static str,
    /// When the state was entered.
    pub since: DateTime<Utc>,
    /// The revision that is wanted.
    pub revision: u32,
    pub replicas: Replicas,
    /// Where it runs.
    pub nodes: Vec<String>,
    /// What it asks for: quantities by resource name.
    pub resources: BTreeMap<String, String>,
    pub gpu: Option<String>,
    /// The model that it serves, as its runtime knows it.
    pub model: Option<String>,
    /// The model's name in requests.
    pub route_name: Option<String>,
    /// A base URL at which it can be called from the machine that it runs on.
    pub endpoint: Option<String>,
    pub labels: BTreeMap<String, String>,
    pub locked_until: Option<DateTime<Utc>>,
    /// Millionths of a point.
    pub cost_micro_points: i64,
    pub created_at: DateTime<Utc>,
    pub started_at: Option<DateTime<Utc>>,
    pub ended_at: Option<DateTime<Utc>>,
    pub detail_path: String,
    /// The last event that is shown here.
    pub position: String,
    /// Whether it was told to stand still.
    pub suspended: bool,
    /// The exit code of a process that ended.
    pub exit_code: Option<i32>,
    /// Only in the detail.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<Detail>,
}

/// Whose it is.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Owner {
    pub id: Uuid,
    pub name: String,
}

/// Counts of processes.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Replicas {
    pub desired: u32,
    pub ready: u32,
}

/// What the list leaves out.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Detail {
    /// What is wanted now.
    pub spec: Value,
    /// Every revision: `{revision, spec, at, rolled_back_to}`.
    pub revisions: Value,
    /// The last lines that a process wrote before it ended badly.
    pub log_tail: Vec<String>,
}

impl Workload {
    pub fn new(row: Row, detail: bool) -> Self {
        let shown =
            || Detail { spec: row.spec.clone(), revisions: serde_json::to_value(&row.revisions).unwrap_or_default(), log_tail: row.log_tail.clone() };
        let detail = detail.then(shown);
        Self {
            id: row.id,
            kind: row.kind.as_str(),
            category: row.category.as_str(),
            provider: row.provider,
            display_name: row.display_name,
            object_name: row.object_name,
            account: row.account,
            owner: Owner { id: row.owner_id, name: row.owner_name },
            job_type: row.job_type,
            schedule_type: row.schedule_type,
            queue: row.queue,
            state: row.state.as_str(),
            reason: row.reason,
            trigger: row.trigger.as_str(),
            since: row.since,
            revision: row.revision,
            replicas: Replicas { desired: row.replicas_desired, ready: row.replicas_ready },
            nodes: row.nodes,
            resources: row.resources,
            gpu: row.gpu,
            model: row.model,
            route_name: row.route_name,
            endpoint: row.endpoint,
            labels: row.labels,
            locked_until: row.locked_until,
            cost_micro_points: row.cost_micro_points,
            created_at: row.created_at,
            started_at: row.started_at,
            ended_at: row.ended_at,
            detail_path: format!("/v1/workloads/{}", row.id),
            position: Position::new(row.partition, row.sequence).to_string(),
            suspended: row.suspended,
            exit_code: row.exit_code,
            detail,
        }
    }
}
