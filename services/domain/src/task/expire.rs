//! Ends a lease without a result: given back, expired, or lost with its worker.

use super::{Existing, Holder, MOST_LEASES, closed, held};
use crate::{Code, Context, Rejection};
use signalbox_events::Micros;
use signalbox_events::task::{Event, LeaseExpired, LeaseLost, LeaseReleased, State, WorkerLost};

/// The holder gives the task back, unsent.
#[derive(Debug, Clone)]
pub struct Release {
    /// Who.
    pub holder: Holder,
    /// A stable word.
    pub reason: String,
}

/// The coordinator finds a lease without a living holder.
#[derive(Debug, Clone)]
pub struct Expire {
    /// The lease that it found so: another one stays untouched.
    pub epoch: u64,
    /// Until when it was renewed, where it was.
    pub renewed_until: Option<Micros>,
    /// The incarnation is known to be over: the lease ends at once.
    pub retired: bool,
}

/// After too many tries a task is given up.
fn back(task: &Existing) -> State {
    if task.leases >= MOST_LEASES { State::DeadLettered } else { State::Queued }
}

pub(super) fn release(task: &Existing, command: &Release) -> Result<Option<Event>, Rejection> {
    let lease = held(task, &command.holder)?;
    match task.state {
        State::Leased => Ok(Some(LeaseReleased { epoch: lease.epoch, reason: command.reason.clone(), to: back(task) }.into())),
        // Its answer was lost and it asks again.
        State::Queued if lease.nonce.is_none() => Ok(None),
        State::Executing => Err(Rejection::new(Code::TokenAlreadyRedeemed, "the token is redeemed: report what became of it")),
        state => Err(closed(state)),
    }
}

pub(super) fn expire(task: &Existing, command: &Expire, ctx: &Context) -> Result<Option<Event>, Rejection> {
    // Compare and set on what the sweeper saw: a task that has moved on is none of its business.
    let Some(lease) = task.live_lease().filter(|lease| lease.epoch == command.epoch) else { return Ok(None) };
    let until = lease.expires_at.max(command.renewed_until.unwrap_or(lease.expires_at));
    if !command.retired && Micros::from(ctx.now) < until {
        return Err(Rejection::new(Code::LeaseLive, "the lease has not expired"));
    }
    let epoch = lease.epoch;
    Ok(Some(match (task.state, command.retired) {
        (State::Executing, true) => WorkerLost { epoch }.into(),
        (State::Executing, false) => LeaseLost { epoch }.into(),
        (_, retired) => {
            let reason = if retired { "incarnation_retired" } else { "expired" };
            LeaseExpired { epoch, reason: reason.to_owned(), to: back(task) }.into()
        }
    }))
}
