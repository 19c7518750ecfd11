//! Facts about tasks. Where a fact can lead to more than one state, it says which: `to`.

use crate::conversation::Usage;
use crate::facts::{facts, words};
use crate::id::{AccountId, IncarnationId, PoolId, PrincipalId, UpstreamId, WorkerId, WorkloadId};
use crate::text::Text;
use crate::time::Micros;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

facts! {
    Accepted = "task.accepted" v 1 [payload],
    Routed = "task.routed" v 1,
    RouteUnavailable = "task.route_unavailable" v 1,
    Rerouted = "task.rerouted" v 1,
    Leased = "task.leased" v 1,
    LeaseReleased = "task.lease_released" v 1,
    LeaseExpired = "task.lease_expired" v 1,
    StartDeadlineExceeded = "task.start_deadline_exceeded" v 1,
    TokenRedeemed = "task.token_redeemed" v 1,
    SubmissionAcknowledged = "task.submission_acknowledged" v 1,
    NotSent = "task.not_sent" v 1,
    UpstreamRejected = "task.upstream_rejected" v 1 [detail],
    RetryDue = "task.retry_due" v 1,
    Succeeded = "task.succeeded" v 1 [result],
    Failed = "task.failed" v 1 [partial, detail],
    Cancelled = "task.cancelled" v 1 [partial],
    LeaseLost = "task.lease_lost" v 1,
    WorkerLost = "task.worker_lost" v 1,
    SubmissionBecameUnknown = "task.submission_became_unknown" v 1 [partial],
    LateResult = "task.late_result" v 1 [result],
    StaleResultKept = "task.stale_result_kept" v 1 [result],
    Requeued = "task.requeued" v 1,
    Resolved = "task.resolved" v 1 [result],
    CancelRequested = "task.cancel_requested" v 1,
    Revived = "task.revived" v 1,
}

words! {
    /// Where a task stands.
    State {
        /// Taken on; no pool yet.
        Accepted = "accepted",
        /// In a pool's queue.
        Queued = "queued",
        /// A worker holds it and has not sent it.
        Leased = "leased",
        /// The token is redeemed: it may have been sent.
        Executing = "executing",
        /// It may have been sent, and nobody knows what became of it. It is never sent again by itself.
        SubmissionUnknown = "submission_unknown",
        /// It was not taken upstream; it is tried again later.
        RetryWait = "retry_wait",
        /// Ended with a result.
        Succeeded = "succeeded",
        /// Ended with an error.
        Failed = "failed",
        /// Ended on demand.
        Cancelled = "cancelled",
        /// Given up; an operator can revive it.
        DeadLettered = "dead_lettered",
    }
}

words! {
    /// Whether a caller waits.
    Mode {
        /// A caller waits for the answer.
        Sync = "sync",
        /// The result is fetched later.
        Async = "async",
    }
}

words! {
    /// Whether anything is sent upstream.
    RunMode {
        /// For real.
        Live = "live",
        /// Routing is bypassed and nothing is sent.
        Simulation = "simulation",
    }
}

words! {
    /// What an operator knows of a submission whose fate was unknown.
    Resolution {
        /// It went through; the result is given.
        Succeeded = "succeeded",
        /// It went through and failed.
        Failed = "failed",
        /// It no longer matters.
        Cancelled = "cancelled",
        /// The upstream never got it: it may be sent again.
        ConfirmedNotSubmitted = "confirmed_not_submitted",
        /// It may be sent again although it might be paid twice.
        AcceptDuplicate = "accept_duplicate",
    }
}

impl State {
    /// Whether the task has ended. A dead letter has, until an operator revives it.
    pub fn is_terminal(self) -> bool {
        match self {
            Self::Accepted | Self::Queued | Self::Leased | Self::Executing | Self::SubmissionUnknown | Self::RetryWait => false,
            Self::Succeeded | Self::Failed | Self::Cancelled | Self::DeadLettered => true,
        }
    }
}

/// What can serve a task: a deployment or an upstream, and the model's name there.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Target {
    /// Whose deployment or upstream it is.
    pub account: AccountId,
    /// The deployment.
    pub workload: Option<WorkloadId>,
    /// The upstream.
    pub upstream: Option<UpstreamId>,
    /// The model's name there.
    pub model: String,
}

/// A task was taken on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Accepted {
    /// Whose it is.
    pub owner: PrincipalId,
    /// The owner's name at that time.
    pub owner_name: String,
    /// What is to be done: a dotted word, `chat.completions`.
    pub kind: String,
    /// What it is to be done with: a JSON object.
    pub payload: Text,
    /// Keyed digest of the canonical request.
    #[serde(with = "serde_bytes")]
    pub digest: [u8; 32],
    /// Whether a caller waits.
    pub mode: Mode,
    /// Whether anything is sent.
    pub run_mode: RunMode,
    /// 0 to 9; the higher is served first.
    pub priority: u8,
    /// Whether the answer is wanted piece by piece.
    pub streaming: bool,
    /// Where it is to be sent, where its kind is sent anywhere.
    pub target: Option<Target>,
    /// The pool that the caller asked for.
    pub wanted_pool: Option<PoolId>,
    /// The pool whose queue it is in; `None`: it is not routed yet.
    pub pool: Option<PoolId>,
    /// When it must have been leased.
    pub start_deadline: Option<Micros>,
    /// Whether its kind may be sent twice without harm.
    pub idempotent: bool,
    /// `queued`, or `accepted` without a pool.
    pub to: State,
}

/// A pool was chosen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Routed {
    /// The pool.
    pub pool: PoolId,
    /// Why this one.
    pub reason: String,
}

/// No pool could be found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouteUnavailable {
    /// Why none.
    pub reason: String,
    /// When it is worth another try.
    pub retry_after_seconds: u32,
}

/// A task that waits goes to another pool's queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rerouted {
    /// The pool.
    pub pool: PoolId,
    /// Why.
    pub reason: String,
}

/// A worker incarnation may try the task for a while.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leased {
    /// Which try, from 1.
    pub attempt: u32,
    /// This event's version: strictly rising, so a fence.
    pub epoch: u64,
    /// The pool.
    pub pool: PoolId,
    /// The worker.
    pub worker: WorkerId,
    /// Which start of it.
    pub incarnation: IncarnationId,
    /// SHA-256 of the execution token.
    #[serde(with = "serde_bytes")]
    pub token_hash: [u8; 32],
    /// When it ends unless it is renewed, on the clock of the leases role.
    pub expires_at: Micros,
}

/// The holder gives the task back, unsent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseReleased {
    /// The lease.
    pub epoch: u64,
    /// A stable word: `drained`, `no_slot`, ..
    pub reason: String,
    /// `queued`, or `dead_lettered` after too many tries.
    pub to: State,
}

/// The lease ended unredeemed: nothing was sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseExpired {
    /// The lease.
    pub epoch: u64,
    /// `expired`, or `incarnation_retired`.
    pub reason: String,
    /// `queued`, or `dead_lettered` after too many tries.
    pub to: State,
}

/// Nobody took the task in time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartDeadlineExceeded {}

/// The commit point: the holder may send, once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenRedeemed {
    /// The lease.
    pub epoch: u64,
    /// The holder's own mark of this redemption, so that a lost answer can be asked for again.
    pub nonce: Uuid,
}

/// The upstream took the task and gave it an id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubmissionAcknowledged {
    /// The lease.
    pub epoch: u64,
    /// The upstream's id of it.
    pub upstream_id: String,
}

/// Evidence E0: it failed before the first byte of the request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotSent {
    /// The lease.
    pub epoch: u64,
    /// A stable word.
    pub code: String,
    /// `retry_wait`, `failed`, `dead_lettered` or `cancelled`.
    pub to: State,
    /// When it is tried again.
    pub retry_at: Option<Micros>,
}

/// Evidence E1: a complete refusal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpstreamRejected {
    /// The lease.
    pub epoch: u64,
    /// A stable word.
    pub code: String,
    /// The status that the upstream answered.
    pub upstream_status: Option<u16>,
    /// `retry_wait`, `failed`, `dead_lettered` or `cancelled`.
    pub to: State,
    /// When it is tried again.
    pub retry_at: Option<Micros>,
    /// What the upstream said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<Text>,
}

/// It is tried again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RetryDue {
    /// The pool.
    pub pool: PoolId,
}

/// It is done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Succeeded {
    /// The lease.
    pub epoch: u64,
    /// What came of it: JSON.
    pub result: Text,
    /// What it cost, where the kind counts tokens.
    pub usage: Option<Usage>,
}

/// It ended with an error that another try would not mend.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failed {
    /// The lease.
    pub epoch: u64,
    /// A stable word.
    pub code: String,
    /// The status that the upstream answered.
    pub upstream_status: Option<u16>,
    /// What had arrived.
    pub partial: Option<Text>,
    /// What it cost so far.
    pub usage: Option<Usage>,
    /// What the upstream said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<Text>,
}

/// The holder ended the call on demand.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cancelled {
    /// The lease.
    pub epoch: u64,
    /// What had arrived.
    pub partial: Option<Text>,
    /// What it cost so far.
    pub usage: Option<Usage>,
}

/// The lease ended after redemption: whether the task was sent is not known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseLost {
    /// The lease.
    pub epoch: u64,
}

/// The holder's incarnation ended after redemption: whether the task was sent is not known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerLost {
    /// The lease.
    pub epoch: u64,
}

/// Evidence E3: the holder itself does not know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubmissionBecameUnknown {
    /// The lease.
    pub epoch: u64,
    /// A stable word: `timeout`, `reset`, `partial_write`, ..
    pub code: String,
    /// What had arrived.
    pub partial: Option<Text>,
}

/// What became of an unknown submission, told by its own holder after all.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LateResult {
    /// The lease.
    pub epoch: u64,
    /// `succeeded`, `failed` or `cancelled`.
    pub to: State,
    /// A stable word, where it failed.
    pub code: Option<String>,
    /// What came of it.
    pub result: Option<Text>,
    /// What it cost.
    pub usage: Option<Usage>,
}

/// The result of a lease that is no longer the task's. It changes nothing and is kept as evidence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StaleResultKept {
    /// The lease.
    pub epoch: u64,
    /// Which start of which worker.
    pub incarnation: IncarnationId,
    /// What it said: `succeeded`, `failed`, ..
    pub outcome: String,
    /// What came of it.
    pub result: Option<Text>,
}

/// An unknown submission of a kind that may be sent twice is sent again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Requeued {
    /// The lease whose fate is unknown.
    pub epoch: u64,
    /// Why that is allowed: `idempotent_kind`.
    pub reason: String,
}

/// An operator says what became of an unknown submission.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resolved {
    /// The lease.
    pub epoch: u64,
    /// What the operator knows.
    pub resolution: Resolution,
    /// Why, in the operator's words.
    pub reason: String,
    /// The result, where it succeeded.
    pub result: Option<Text>,
    /// `succeeded`, `failed`, `cancelled` or `queued`.
    pub to: State,
}

/// Someone wants the task to end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CancelRequested {
    /// `cancelled`, or the state as it was: the cancel then waits for evidence.
    pub to: State,
}

/// A dead letter is tried again from the beginning.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Revived {
    /// Why, in the operator's words.
    pub reason: String,
}
