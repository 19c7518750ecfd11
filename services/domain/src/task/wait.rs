//! Timers of waiting tasks: the next try is due, the start deadline has passed.

use super::Existing;
use crate::{Context, Rejection};
use signalbox_events::Micros;
use signalbox_events::task::{self, Event, StartDeadlineExceeded, State};

/// Try again, if it is time.
#[derive(Debug, Clone)]
pub struct RetryDue {}

/// Give up, if nobody took the task in time.
#[derive(Debug, Clone)]
pub struct StartDeadline {}

pub(super) fn retry_due(task: &Existing, ctx: &Context) -> Result<Option<Event>, Rejection> {
    let due = task.retry_at.is_none_or(|at| at <= Micros::from(ctx.now));
    Ok(task.pool.clone().filter(|_| task.state == State::RetryWait && due).map(|pool| task::RetryDue { pool }.into()))
}

pub(super) fn start_deadline(task: &Existing, ctx: &Context) -> Result<Option<Event>, Rejection> {
    let passed = task.start_deadline.is_some_and(|at| at <= Micros::from(ctx.now));
    Ok((task.state == State::Queued && passed).then(|| StartDeadlineExceeded {}.into()))
}
