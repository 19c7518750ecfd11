//! Puts a task into a pool's queue, or says that there is none for it.

use super::Existing;
use crate::{Code, Rejection};
use signalbox_events::PoolId;
use signalbox_events::task::{Event, Rerouted, RouteUnavailable, Routed, State};

/// A pool was chosen.
#[derive(Debug, Clone)]
pub struct Route {
    /// The pool.
    pub pool: PoolId,
    /// Why this one.
    pub reason: String,
}

/// No pool could be found.
#[derive(Debug, Clone)]
pub struct RouteFailed {
    /// Why none.
    pub reason: String,
    /// When it is worth another try.
    pub retry_after_seconds: u32,
}

/// A task that waits goes elsewhere.
#[derive(Debug, Clone)]
pub struct Reroute {
    /// The pool.
    pub pool: PoolId,
    /// Why.
    pub reason: String,
}

pub(super) fn route(task: &Existing, command: &Route) -> Result<Option<Event>, Rejection> {
    match task.state {
        State::Accepted => Ok(Some(Routed { pool: command.pool.clone(), reason: command.reason.clone() }.into())),
        State::Queued if task.pool.as_ref() == Some(&command.pool) => Ok(None),
        state => Err(assigned(state)),
    }
}

pub(super) fn failed(task: &Existing, command: &RouteFailed) -> Result<Option<Event>, Rejection> {
    match task.state {
        State::Accepted => {
            let fact = RouteUnavailable { reason: command.reason.clone(), retry_after_seconds: command.retry_after_seconds };
            Ok(Some(fact.into()))
        }
        state => Err(assigned(state)),
    }
}

pub(super) fn reroute(task: &Existing, command: &Reroute) -> Result<Option<Event>, Rejection> {
    match task.state {
        State::Queued if task.pool.as_ref() == Some(&command.pool) => Ok(None),
        State::Queued => Ok(Some(Rerouted { pool: command.pool.clone(), reason: command.reason.clone() }.into())),
        state => Err(assigned(state)),
    }
}

/// Why a task cannot be assigned in a state: a second assignment is refused with what stands in its way.
pub(super) fn assigned(state: State) -> Rejection {
    match state {
        State::Leased | State::Executing => Rejection::new(Code::TaskAlreadyLeased, "a worker holds the task"),
        State::SubmissionUnknown => Rejection::new(Code::SubmissionStateUnknown, "the task may have been sent; an operator resolves it"),
        State::Accepted | State::Queued | State::RetryWait => Rejection::new(Code::TaskNotQueued, format!("the task is {state}")),
        State::Cancelled => Rejection::new(Code::TaskCancelled, "the task is cancelled"),
        State::Succeeded | State::Failed | State::DeadLettered => Rejection::new(Code::TaskEnded, format!("the task is {state}")),
    }
}
