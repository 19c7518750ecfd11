//! What the holder reports while a task is executed, short of its end.

use super::{Existing, Holder, MOST_RETRIES, closed, held};
use crate::{Context, Rejection};
use signalbox_events::Micros;
use signalbox_events::task::{self, Event, Mode, State, SubmissionAcknowledged, UpstreamRejected};

/// The upstream took the task.
#[derive(Debug, Clone)]
pub struct Acknowledge {
    /// Who.
    pub holder: Holder,
    /// The upstream's id of it.
    pub upstream_id: String,
}

/// Evidence E0: it failed before the first byte of the request.
#[derive(Debug, Clone)]
pub struct NotSent {
    /// Who.
    pub holder: Holder,
    /// A stable word.
    pub code: String,
    /// Whether another try can mend it.
    pub retryable: bool,
}

/// Evidence E1: a complete refusal.
#[derive(Debug, Clone)]
pub struct Reject {
    /// Who.
    pub holder: Holder,
    /// A stable word.
    pub code: String,
    /// The status that the upstream answered.
    pub upstream_status: Option<u16>,
    /// Whether another try can mend it.
    pub retryable: bool,
    /// How long the upstream wants to be left alone.
    pub retry_after_seconds: Option<u32>,
    /// What it said.
    pub detail: Option<String>,
}

pub(super) fn acknowledge(task: &Existing, command: &Acknowledge) -> Result<Option<Event>, Rejection> {
    let lease = held(task, &command.holder)?;
    match task.state {
        State::Executing if task.upstream_id.as_ref() == Some(&command.upstream_id) => Ok(None),
        State::Executing => Ok(Some(SubmissionAcknowledged { epoch: lease.epoch, upstream_id: command.upstream_id.clone() }.into())),
        state => Err(closed(state)),
    }
}

pub(super) fn not_sent(task: &Existing, command: &NotSent, ctx: &Context) -> Result<Option<Event>, Rejection> {
    let epoch = held(task, &command.holder)?.epoch;
    match task.state {
        State::Executing => {
            let (to, retry_at) = next(task, command.retryable, None, ctx);
            Ok(Some(task::NotSent { epoch, code: command.code.clone(), to, retry_at }.into()))
        }
        // The answer to the first report was lost.
        State::RetryWait | State::Queued | State::Failed | State::DeadLettered if reported(task) => Ok(None),
        state => Err(closed(state)),
    }
}

pub(super) fn reject(task: &Existing, command: &Reject, ctx: &Context) -> Result<Option<Event>, Rejection> {
    let epoch = held(task, &command.holder)?.epoch;
    match task.state {
        State::Executing => {
            let (to, retry_at) = next(task, command.retryable, command.retry_after_seconds, ctx);
            let detail = command.detail.clone().map(Into::into);
            Ok(Some(UpstreamRejected { epoch, code: command.code.clone(), upstream_status: command.upstream_status, to, retry_at, detail }.into()))
        }
        State::RetryWait | State::Queued | State::Failed | State::DeadLettered if reported(task) => Ok(None),
        state => Err(closed(state)),
    }
}

/// Whether the last lease was redeemed: its holder has then reported before.
fn reported(task: &Existing) -> bool {
    task.lease.as_ref().is_some_and(|lease| lease.nonce.is_some())
}

/// Where a task goes that was not taken, and when it is tried again: after 1, 2, 4 .. 60 s, give or take a fifth. Where a
/// caller waits it is the caller who tries again.
fn next(task: &Existing, retryable: bool, retry_after: Option<u32>, ctx: &Context) -> (State, Option<Micros>) {
    if task.cancel_waits {
        (State::Cancelled, None)
    } else if !retryable || task.mode == Mode::Sync {
        (State::Failed, None)
    } else if task.retries + 1 >= MOST_RETRIES {
        (State::DeadLettered, None)
    } else {
        let base = (1_i64 << task.retries.min(6)).min(60) * 1_000_000;
        // A fifth more or less, by two fresh random bytes.
        let spread = i64::from(u16::from_be_bytes([ctx.random[0], ctx.random[1]]));
        let jittered = base - base / 5 + base * 2 / 5 * spread / i64::from(u16::MAX);
        let asked = i64::from(retry_after.unwrap_or(0).min(3600)) * 1_000_000;
        (State::RetryWait, Some(Micros(Micros::from(ctx.now).0 + jittered.max(asked))))
    }
}
