//! Ends a task on demand: at once where nothing can have been sent, by evidence where it can.

use super::Existing;
use crate::{Code, Rejection};
use signalbox_events::task::{CancelRequested, Event, State};

/// Cancel a task.
#[derive(Debug, Clone)]
pub struct Cancel {}

pub(super) fn decide(task: &Existing) -> Result<Option<Event>, Rejection> {
    match task.state {
        State::Accepted | State::Queued | State::Leased | State::RetryWait => Ok(Some(CancelRequested { to: State::Cancelled }.into())),
        State::Executing | State::SubmissionUnknown if task.cancel_waits => Ok(None),
        State::Executing | State::SubmissionUnknown => Ok(Some(CancelRequested { to: task.state }.into())),
        State::Cancelled => Ok(None),
        State::Succeeded | State::Failed | State::DeadLettered => Err(Rejection::new(Code::TaskEnded, format!("the task is {}", task.state))),
    }
}
