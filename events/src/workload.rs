//! Facts about deployments and jobs.

use crate::facts::{facts, words};
use crate::id::PrincipalId;
use crate::time::Micros;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

facts! {
    Deployed = "workload.deployed" v 1,
    Updated = "workload.updated" v 1,
    RolledBack = "workload.rolled_back" v 1,
    Scaled = "workload.scaled" v 1,
    Suspended = "workload.suspended" v 1,
    Resumed = "workload.resumed" v 1,
    DeletionRequested = "workload.deletion_requested" v 1,
    Observed = "workload.observed" v 1,
    Deleted = "workload.deleted" v 1,
}

words! {
    /// How a workload is made and watched.
    Kind {
        /// A supervised local process that serves an OpenAI-compatible endpoint.
        LocalInference = "local-inference",
        /// A supervised local process that runs to its end.
        LocalJob = "local-job",
        /// An OpenAI-compatible endpoint that runs already.
        Endpoint = "endpoint",
    }
}

words! {
    /// The two halves of the unified list.
    Category {
        /// Runs to its end.
        Job = "job",
        /// Runs until it is stopped.
        Deployment = "deployment",
    }
}

words! {
    /// Where a workload stands.
    State {
        /// Stated, not yet seen by its provider.
        Submitted = "submitted",
        /// Waits for quota.
        Queued = "queued",
        /// Waits for a place to run.
        Scheduling = "scheduling",
        /// Fetches its model.
        Downloading = "downloading",
        /// Started, not ready yet.
        Starting = "starting",
        /// Serves, or works.
        Running = "running",
        /// Serves with fewer replicas than wanted.
        Degraded = "degraded",
        /// Stopped on demand, can be resumed.
        Suspended = "suspended",
        /// A new revision replaces the old one.
        Updating = "updating",
        /// Ended badly.
        Failed = "failed",
        /// A job that ended well.
        Succeeded = "succeeded",
        /// On its way out.
        Deleting = "deleting",
        /// Gone.
        Deleted = "deleted",
        /// The provider has not been heard for too long.
        Unknown = "unknown",
    }
}

words! {
    /// Who or what moved the state.
    Trigger {
        /// A command of a person or program.
        Command = "command",
        /// The provider saw a change.
        Provider = "provider",
    }
}

impl Kind {
    /// The half of the list that it stands in.
    pub fn category(self) -> Category {
        match self {
            Self::LocalInference | Self::Endpoint => Category::Deployment,
            Self::LocalJob => Category::Job,
        }
    }

    /// The role that makes it real.
    pub fn provider(self) -> &'static str {
        match self {
            Self::LocalInference | Self::LocalJob => "local",
            Self::Endpoint => "static",
        }
    }
}

impl State {
    /// Whether a job in this state has ended.
    pub fn is_final(self) -> bool {
        match self {
            Self::Succeeded | Self::Failed | Self::Deleted => true,
            Self::Submitted
            | Self::Queued
            | Self::Scheduling
            | Self::Downloading
            | Self::Starting
            | Self::Running
            | Self::Degraded
            | Self::Suspended
            | Self::Updating
            | Self::Deleting
            | Self::Unknown => false,
        }
    }
}

/// What is wanted, by kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Spec {
    /// For [`Kind::LocalInference`].
    LocalInference {
        /// A runtime that the operator's configuration names.
        runtime: String,
        /// Values of the runtime's declared parameters.
        parameters: BTreeMap<String, String>,
        /// Processes wanted.
        replicas: u32,
    },
    /// For [`Kind::LocalJob`].
    LocalJob {
        /// A runtime that the operator's configuration names.
        runtime: String,
        /// Values of the runtime's declared parameters.
        parameters: BTreeMap<String, String>,
    },
    /// For [`Kind::Endpoint`].
    Endpoint {
        /// The base URL, up to and including `/v1`.
        url: String,
        /// The model name that the endpoint knows.
        model: String,
    },
}

impl Spec {
    /// The kind that this is the spec of.
    pub fn kind(&self) -> Kind {
        match self {
            Self::LocalInference { .. } => Kind::LocalInference,
            Self::LocalJob { .. } => Kind::LocalJob,
            Self::Endpoint { .. } => Kind::Endpoint,
        }
    }

    /// Replicas that this spec asks for.
    pub fn replicas(&self) -> u32 {
        match self {
            Self::LocalInference { replicas, .. } => *replicas,
            Self::LocalJob { .. } | Self::Endpoint { .. } => 1,
        }
    }

    /// The runtime that it names, for kinds that have one.
    pub fn runtime(&self) -> Option<&str> {
        match self {
            Self::LocalInference { runtime, .. } | Self::LocalJob { runtime, .. } => Some(runtime),
            Self::Endpoint { .. } => None,
        }
    }
}

/// Someone asked for a workload. Revision 1.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deployed {
    /// The name that people see.
    pub name: String,
    /// The unique name by which routers and object stores know it; also the model's name in requests.
    pub object_name: String,
    /// What is wanted.
    pub spec: Spec,
    /// Whose it is.
    pub owner: PrincipalId,
    /// The owner's name at that time.
    pub owner_name: String,
    /// Labels of the caller.
    pub labels: BTreeMap<String, String>,
}

/// Another spec is wanted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Updated {
    /// The number of the new revision.
    pub revision: u32,
    /// What is wanted from now on.
    pub spec: Spec,
}

/// A recorded revision is wanted again, as a new one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RolledBack {
    /// The number of the new revision.
    pub revision: u32,
    /// The revision whose spec it repeats.
    pub to: u32,
    /// That spec.
    pub spec: Spec,
}

/// Another count of replicas is wanted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scaled {
    /// Replicas wanted, 1 or more.
    pub replicas: u32,
}

/// The workload shall stop but stay.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Suspended {}

/// The workload shall run again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resumed {}

/// The workload shall go.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeletionRequested {}

/// The provider saw something that matters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Observed {
    /// The state that it amounts to.
    pub state: State,
    /// Why, as a stable word: `process_started`, `crash_loop`, ..
    pub reason: String,
    /// The revision that was seen.
    pub revision: u32,
    /// Replicas that serve.
    pub ready: u32,
    /// Where it runs.
    pub nodes: Vec<String>,
    /// Base URLs at which it can be called, up to and including `/v1`; one a ready replica.
    pub endpoints: Vec<String>,
    /// The exit code of a process that ended.
    pub exit_code: Option<i32>,
    /// The last lines that a process wrote before it ended badly; at most 80.
    pub log_tail: Vec<String>,
    /// When the provider saw it.
    pub seen_at: Micros,
}

/// Nothing of the workload is left.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deleted {}
