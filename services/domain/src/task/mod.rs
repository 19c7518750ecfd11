//! The law of tasks: sent upstream at most once a redeemed token, and never again while its fate is unknown.

mod accept;
mod cancel;
mod end;
mod expire;
pub mod invariant;
mod lease;
mod redeem;
mod report;
mod resolve;
mod route;
#[cfg(test)]
mod scenarios;
pub mod table;
mod wait;

use crate::{Code, Context, Decider, Rejection};
pub(crate) use accept::check_kind;
pub use accept::{Accept, kind_matches};
pub use cancel::Cancel;
pub use end::{BecomeUnknown, End, Ending};
pub use expire::{Expire, Release};
pub use lease::Lease as Grant;
pub use redeem::Redeem;
pub use report::{Acknowledge, NotSent, Reject};
pub use resolve::{Requeue, Resolve, Revive};
pub use route::{Reroute, Route, RouteFailed};
use serde::{Deserialize, Serialize};
use signalbox_events::task::{Event, Mode, RunMode, State as Phase, Target};
use signalbox_events::{Fact, IncarnationId, Micros, Noun, PoolId, PrincipalId, WorkerId};
use uuid::Uuid;
pub use wait::{RetryDue, StartDeadline};

/// Lease tries after which an unsent task is a dead letter.
pub const MOST_LEASES: u32 = 20;
/// Refusals after which a task is a dead letter.
pub const MOST_RETRIES: u32 = 10;

/// A task as its rules see it. `None` before it was accepted.
pub type State = Option<Existing>;

/// A task that was taken on. Holds no text.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Existing {
    /// Events so far: the next lease's epoch is one more.
    pub version: u64,
    /// Whose it is.
    pub owner: PrincipalId,
    /// What is to be done.
    pub kind: String,
    /// Whether a caller waits.
    pub mode: Mode,
    /// Whether anything is sent.
    pub run_mode: RunMode,
    /// 0 to 9.
    pub priority: u8,
    /// Whether the answer is wanted piece by piece.
    pub streaming: bool,
    /// Where it is to be sent.
    pub target: Option<Target>,
    /// Keyed digest of the canonical request.
    pub digest: [u8; 32],
    /// The pool that the caller asked for.
    pub wanted_pool: Option<PoolId>,
    /// The pool whose queue it is, or was last, in.
    pub pool: Option<PoolId>,
    /// When it must have been leased.
    pub start_deadline: Option<Micros>,
    /// Whether its kind may be sent twice without harm.
    pub idempotent: bool,
    /// Where it stands.
    pub state: Phase,
    /// The last lease, live only in `leased` and `executing`.
    pub lease: Option<Lease>,
    /// Epochs and token hashes of earlier leases, to tell a late token from a forged one.
    pub past: Vec<Past>,
    /// Leases so far.
    pub attempts: u32,
    /// Leases since it was accepted or revived.
    pub leases: u32,
    /// Refusals since it was accepted or revived.
    pub retries: u32,
    /// Redemptions so far.
    pub redemptions: u32,
    /// The upstream's id of the last submission, where it was told.
    pub upstream_id: Option<String>,
    /// When a refused task is tried again.
    pub retry_at: Option<Micros>,
    /// Whether a cancel waits for evidence.
    pub cancel_waits: bool,
}

/// A lease as the rules see it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Lease {
    /// The version of the event that granted it.
    pub epoch: u64,
    /// Which try, from 1.
    pub attempt: u32,
    /// The pool.
    pub pool: PoolId,
    /// The worker.
    pub worker: WorkerId,
    /// Which start of it.
    pub incarnation: IncarnationId,
    /// SHA-256 of the token.
    pub token_hash: [u8; 32],
    /// When it ends unless it is renewed.
    pub expires_at: Micros,
    /// The mark of its redemption, where it was redeemed.
    pub nonce: Option<Uuid>,
}

/// A lease that was followed by another.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Past {
    /// Its epoch.
    pub epoch: u64,
    /// SHA-256 of its token.
    pub token_hash: [u8; 32],
    /// Whose it was.
    pub incarnation: IncarnationId,
    /// Whether it was redeemed.
    pub redeemed: bool,
    /// Whether its late result is kept already.
    pub kept: bool,
}

/// Who speaks of a lease: checked against the lease, never believed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// The lease's epoch.
    pub epoch: u64,
    /// The worker, by the subject that it may use.
    pub worker: WorkerId,
    /// Which start of it.
    pub incarnation: IncarnationId,
}

impl Existing {
    /// The lease that is live.
    pub fn live_lease(&self) -> Option<&Lease> {
        self.lease.as_ref().filter(|_| matches!(self.state, Phase::Leased | Phase::Executing))
    }
}

macro_rules! commands {
    ($($name:ident),+) => {
        /// What can be asked of a task.
        #[derive(Debug, Clone)]
        #[expect(missing_docs, reason = "each command is documented at its struct")]
        pub enum Command { $($name($name)),+ }
        $(impl From<$name> for Command {
            fn from(command: $name) -> Self { Self::$name(command) }
        })+
    };
}
commands!(
    Accept,
    Route,
    RouteFailed,
    Reroute,
    Grant,
    Release,
    Expire,
    StartDeadline,
    Redeem,
    Acknowledge,
    NotSent,
    Reject,
    RetryDue,
    End,
    BecomeUnknown,
    Requeue,
    Resolve,
    Cancel,
    Revive
);

/// The law.
pub struct Task;

impl Decider for Task {
    const NOUN: Noun = Noun::Task;
    const FOLD: u32 = 2;
    const SEALED: bool = true;
    type State = State;
    type Command = Command;
    type Event = Event;

    fn event(fact: &Fact) -> Option<&Event> {
        if let Fact::Task(event) = fact { Some(event) } else { None }
    }

    fn evolve(state: &mut State, event: &Event) {
        if let Event::Accepted(fact) = event {
            *state = Some(Existing {
                version: 1,
                owner: fact.owner,
                kind: fact.kind.clone(),
                mode: fact.mode,
                run_mode: fact.run_mode,
                priority: fact.priority,
                streaming: fact.streaming,
                target: fact.target.clone(),
                digest: fact.digest,
                wanted_pool: fact.wanted_pool.clone(),
                pool: fact.pool.clone(),
                start_deadline: fact.start_deadline,
                idempotent: fact.idempotent,
                state: fact.to,
                lease: None,
                past: vec![],
                attempts: 0,
                leases: 0,
                retries: 0,
                redemptions: 0,
                upstream_id: None,
                retry_at: None,
                cancel_waits: false,
            });
        } else if let Some(task) = state {
            evolve_existing(task, event);
        }
    }

    fn decide(state: &State, command: &Command, ctx: &Context) -> Result<Option<Event>, Rejection> {
        let decided = match command {
            Command::Accept(command) => accept::decide(state.as_ref(), command, ctx),
            Command::Route(command) => route::route(existing(state)?, command),
            Command::RouteFailed(command) => route::failed(existing(state)?, command),
            Command::Reroute(command) => route::reroute(existing(state)?, command),
            Command::Grant(command) => lease::decide(existing(state)?, command, ctx),
            Command::Release(command) => expire::release(existing(state)?, command),
            Command::Expire(command) => expire::expire(existing(state)?, command, ctx),
            Command::StartDeadline(StartDeadline {}) => wait::start_deadline(existing(state)?, ctx),
            Command::Redeem(command) => redeem::decide(existing(state)?, command, ctx),
            Command::Acknowledge(command) => report::acknowledge(existing(state)?, command),
            Command::NotSent(command) => report::not_sent(existing(state)?, command, ctx),
            Command::Reject(command) => report::reject(existing(state)?, command, ctx),
            Command::RetryDue(RetryDue {}) => wait::retry_due(existing(state)?, ctx),
            Command::End(command) => end::end(existing(state)?, command),
            Command::BecomeUnknown(command) => end::become_unknown(existing(state)?, command),
            Command::Requeue(Requeue {}) => resolve::requeue(existing(state)?),
            Command::Resolve(command) => resolve::resolve(existing(state)?, command),
            Command::Cancel(Cancel {}) => cancel::decide(existing(state)?),
            Command::Revive(command) => resolve::revive(existing(state)?, command),
        }?;
        // The table has the last word: a rule that slipped past it states nothing.
        match decided {
            Some(event) if !table::allows(state.as_ref().map(|task| task.state), &event) => {
                Err(Rejection::new(Code::Internal, "the transition table does not have this step"))
            }
            other => Ok(other),
        }
    }
}

fn evolve_existing(task: &mut Existing, event: &Event) {
    task.version += 1;
    match event {
        Event::Routed(fact) => task.pool = Some(fact.pool.clone()),
        Event::Rerouted(fact) => task.pool = Some(fact.pool.clone()),
        Event::RetryDue(fact) => task.pool = Some(fact.pool.clone()),
        Event::Leased(fact) => {
            if let Some(last) = task.lease.take() {
                task.past.push(Past {
                    epoch: last.epoch,
                    token_hash: last.token_hash,
                    incarnation: last.incarnation,
                    redeemed: last.nonce.is_some(),
                    kept: false,
                });
            }
            task.upstream_id = None;
            task.attempts = fact.attempt;
            task.leases += 1;
            task.lease = Some(Lease {
                epoch: fact.epoch,
                attempt: fact.attempt,
                pool: fact.pool.clone(),
                worker: fact.worker.clone(),
                incarnation: fact.incarnation,
                token_hash: fact.token_hash,
                expires_at: fact.expires_at,
                nonce: None,
            });
        }
        Event::TokenRedeemed(fact) => {
            task.redemptions += 1;
            if let Some(lease) = &mut task.lease {
                lease.nonce = Some(fact.nonce);
            }
        }
        Event::SubmissionAcknowledged(fact) => task.upstream_id = Some(fact.upstream_id.clone()),
        Event::NotSent(fact) => retry(task, fact.retry_at),
        Event::UpstreamRejected(fact) => retry(task, fact.retry_at),
        Event::CancelRequested(fact) => task.cancel_waits = !fact.to.is_terminal(),
        Event::StaleResultKept(fact) => {
            for past in task.past.iter_mut().filter(|past| past.epoch == fact.epoch) {
                past.kept = true;
            }
        }
        Event::Revived(_) => {
            task.leases = 0;
            task.retries = 0;
            task.cancel_waits = false;
        }
        Event::Accepted(_)
        | Event::RouteUnavailable(_)
        | Event::LeaseReleased(_)
        | Event::LeaseExpired(_)
        | Event::StartDeadlineExceeded(_)
        | Event::Succeeded(_)
        | Event::Failed(_)
        | Event::Cancelled(_)
        | Event::LeaseLost(_)
        | Event::WorkerLost(_)
        | Event::SubmissionBecameUnknown(_)
        | Event::LateResult(_)
        | Event::Requeued(_)
        | Event::Resolved(_) => {}
    }
    if let Some(to) = table::leads_to(event) {
        task.state = to;
    }
}

fn retry(task: &mut Existing, at: Option<Micros>) {
    task.retries += 1;
    task.retry_at = at;
}

fn existing(state: &State) -> Result<&Existing, Rejection> {
    state.as_ref().ok_or_else(Rejection::not_found)
}

/// The task's last lease, where `holder` is its holder. A lease that has ended is still theirs.
fn held<'a>(task: &'a Existing, holder: &Holder) -> Result<&'a Lease, Rejection> {
    let superseded = || Rejection::new(Code::LeaseSuperseded, "another lease has taken the place of this one");
    let lease = task.lease.as_ref().ok_or_else(superseded)?;
    if lease.epoch != holder.epoch {
        return Err(superseded());
    }
    if lease.worker == holder.worker && lease.incarnation == holder.incarnation {
        Ok(lease)
    } else {
        Err(Rejection::new(Code::WrongWorker, "the lease is another worker's, or another start of it has it"))
    }
}

/// Why nothing can be said of a live lease in a state without one.
fn closed(state: Phase) -> Rejection {
    match state {
        Phase::Cancelled => Rejection::new(Code::TaskCancelled, "the task is cancelled"),
        Phase::SubmissionUnknown => Rejection::new(Code::SubmissionStateUnknown, "the lease was lost after redemption; only an ending counts now"),
        Phase::Leased => Rejection::new(Code::TokenNotRedeemed, "redeem the token before anything is sent"),
        Phase::Accepted | Phase::Queued | Phase::Executing | Phase::RetryWait | Phase::Succeeded | Phase::Failed | Phase::DeadLettered => {
            Rejection::new(Code::LeaseClosed, "the lease has ended")
        }
    }
}
