//! Grants a lease: one worker incarnation may try the task for a while.

use super::Existing;
use super::route::assigned;
use crate::{Code, Context, Rejection};
use signalbox_events::task::{Event, Leased, State};
use signalbox_events::{IncarnationId, Micros, PoolId, WorkerId};

/// Grant a lease.
#[derive(Debug, Clone)]
pub struct Lease {
    /// The pool whose queue it is taken from.
    pub pool: PoolId,
    /// The worker.
    pub worker: WorkerId,
    /// Which start of it.
    pub incarnation: IncarnationId,
    /// SHA-256 of a token that only the worker will know.
    pub token_hash: [u8; 32],
    /// How long it lives unless it is renewed, in microseconds.
    pub ttl: i64,
}

pub(super) fn decide(task: &Existing, command: &Lease, ctx: &Context) -> Result<Option<Event>, Rejection> {
    if task.state != State::Queued {
        return Err(assigned(task.state));
    }
    if task.pool.as_ref() != Some(&command.pool) {
        return Err(Rejection::new(Code::TaskNotQueued, "the task waits in another pool's queue"));
    }
    let now = Micros::from(ctx.now);
    if task.start_deadline.is_some_and(|deadline| deadline <= now) {
        return Err(Rejection::new(Code::TaskNotQueued, "the task was to be begun earlier"));
    }
    let fact = Leased {
        attempt: task.attempts + 1,
        epoch: task.version + 1,
        pool: command.pool.clone(),
        worker: command.worker.clone(),
        incarnation: command.incarnation,
        token_hash: command.token_hash,
        expires_at: Micros(now.0 + command.ttl),
    };
    Ok(Some(fact.into()))
}
