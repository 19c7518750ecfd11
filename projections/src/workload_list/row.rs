//! One row of the unified list.

use crate::rows::Column;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use signalbox_events::workload::{Category, Kind, Spec, State, Trigger};
use std::collections::BTreeMap;
use uuid::Uuid;

pub(super) const TABLE: &str = "workload_list_v1";

pub(super) const COLUMNS: [Column; 39] = [
    ("id", "uuid"),
    ("account", "uuid"),
    ("kind", "text"),
    ("category", "text"),
    ("provider", "text"),
    ("display_name", "text"),
    ("object_name", "text"),
    ("owner_id", "uuid"),
    ("owner_name", "text"),
    ("job_type", "text"),
    ("schedule_type", "text"),
    ("queue", "text"),
    ("state", "text"),
    ("reason", "text"),
    ("trigger", "text"),
    ("since", "timestamptz"),
    ("revision", "integer"),
    ("replicas_desired", "integer"),
    ("replicas_ready", "integer"),
    ("nodes", "json"),
    ("resources", "json"),
    ("gpu", "text"),
    ("model", "text"),
    ("route_name", "text"),
    ("endpoint", "text"),
    ("labels", "json"),
    ("locked_until", "timestamptz"),
    ("cost_micro_points", "bigint"),
    ("created_at", "timestamptz"),
    ("started_at", "timestamptz"),
    ("ended_at", "timestamptz"),
    ("deleted", "boolean"),
    ("spec", "json"),
    ("revisions", "json"),
    ("exit_code", "integer"),
    ("log_tail", "json"),
    ("partition", "integer"),
    ("sequence", "bigint"),
    ("suspended", "boolean"),
];

/// A deployment or a job. Columns that a kind does not know are null or empty.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Its id.
    pub id: Uuid,
    /// The account.
    pub account: Uuid,
    /// Its kind.
    pub kind: Kind,
    /// Job or deployment.
    pub category: Category,
    /// The role that makes it real.
    pub provider: String,
    /// The name that people see.
    pub display_name: String,
    /// The name outside.
    pub object_name: String,
    /// Whose it is.
    pub owner_id: Uuid,
    /// The owner's name.
    pub owner_name: String,
    /// The job's type, for kinds that have one.
    pub job_type: Option<String>,
    /// The job's schedule, for kinds that have one.
    pub schedule_type: Option<String>,
    /// The queue that it waits or waited in.
    pub queue: Option<String>,
    /// Where it stands.
    pub state: State,
    /// Why, as a stable word.
    pub reason: String,
    /// Who or what moved it there.
    pub trigger: Trigger,
    /// Since when.
    pub since: DateTime<Utc>,
    /// The revision that is wanted.
    pub revision: u32,
    /// Replicas wanted.
    pub replicas_desired: u32,
    /// Replicas that serve.
    pub replicas_ready: u32,
    /// Where it runs.
    pub nodes: Vec<String>,
    /// What it asks for, by resource name.
    pub resources: BTreeMap<String, String>,
    /// The GPU model that it asks for.
    pub gpu: Option<String>,
    /// The model that it serves, as its runtime knows it.
    pub model: Option<String>,
    /// The model's name in requests.
    pub route_name: Option<String>,
    /// Where it can be called from this machine, while it can.
    pub endpoint: Option<String>,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Until when it is locked.
    pub locked_until: Option<DateTime<Utc>>,
    /// What it has cost, in millionths of a point.
    pub cost_micro_points: i64,
    /// When it was asked for.
    pub created_at: DateTime<Utc>,
    /// When it first ran.
    pub started_at: Option<DateTime<Utc>>,
    /// When it ended.
    pub ended_at: Option<DateTime<Utc>>,
    /// Whether it is gone.
    pub deleted: bool,
    /// What is wanted.
    pub spec: Value,
    /// Every revision.
    pub revisions: Vec<Revision>,
    /// The exit code of a process that ended.
    pub exit_code: Option<i32>,
    /// The last lines that a process wrote before it ended badly.
    pub log_tail: Vec<String>,
    /// The partition of its events.
    pub partition: u16,
    /// The last event in the row.
    pub sequence: u64,
    /// Whether it shall stand still.
    pub suspended: bool,
}

/// A recorded revision.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Revision {
    /// Its number, from 1.
    pub revision: u32,
    /// What was wanted.
    pub spec: Value,
    /// Since when.
    pub at: DateTime<Utc>,
    /// The revision that it repeats, where it is a rollback.
    pub rolled_back_to: Option<u32>,
}

/// Replicas of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replicas {
    /// Wanted.
    pub desired: u32,
    /// Serving.
    pub ready: u32,
}

/// A spec as people see it: flat, with its kind.
pub(super) fn spec_json(spec: &Spec) -> Value {
    let mut fields = Map::new();
    fields.insert("kind".to_owned(), spec.kind().as_str().into());
    match spec {
        Spec::LocalInference { runtime, parameters, replicas } => {
            fields.insert("runtime".to_owned(), runtime.as_str().into());
            fields.insert("parameters".to_owned(), object(parameters));
            fields.insert("replicas".to_owned(), (*replicas).into());
        }
        Spec::LocalJob { runtime, parameters } => {
            fields.insert("runtime".to_owned(), runtime.as_str().into());
            fields.insert("parameters".to_owned(), object(parameters));
        }
        Spec::Endpoint { url, model } => {
            fields.insert("url".to_owned(), url.as_str().into());
            fields.insert("model".to_owned(), model.as_str().into());
        }
    }
    Value::Object(fields)
}

fn object(parameters: &BTreeMap<String, String>) -> Value {
    Value::Object(parameters.iter().map(|(key, value)| (key.clone(), value.as_str().into())).collect())
}
