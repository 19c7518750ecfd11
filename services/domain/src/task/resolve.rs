//! What operators decide: the fate of an unknown submission, and whether a dead letter is tried again.

use super::{Existing, MOST_LEASES};
use crate::account::plain_name;
use crate::{Code, Rejection};
use signalbox_events::task::{self, Event, Resolution, Resolved, Revived, State};

/// Say what became of an unknown submission.
#[derive(Debug, Clone)]
pub struct Resolve {
    /// What the operator knows.
    pub resolution: Resolution,
    /// Why, 1 to 1,024 characters.
    pub reason: String,
    /// The result, JSON; with `succeeded` alone.
    pub result: Option<String>,
}

/// Send an unknown submission of an idempotent kind again.
#[derive(Debug, Clone)]
pub struct Requeue {}

/// Try a dead letter again from the beginning.
#[derive(Debug, Clone)]
pub struct Revive {
    /// Why, 1 to 1,024 characters.
    pub reason: String,
}

fn unknown(task: &Existing) -> Result<u64, Rejection> {
    let epoch = task.lease.as_ref().filter(|_| task.state == State::SubmissionUnknown).map(|lease| lease.epoch);
    epoch.ok_or_else(|| Rejection::new(Code::TaskNotUnknown, format!("the task is {}", task.state)))
}

pub(super) fn resolve(task: &Existing, command: &Resolve) -> Result<Option<Event>, Rejection> {
    plain_name("reason", &command.reason, 1024)?;
    let epoch = unknown(task)?;
    let (wants_result, has_result) = (command.resolution == Resolution::Succeeded, command.result.is_some());
    if wants_result && !has_result {
        return Err(Rejection::missing("result"));
    }
    if has_result && !wants_result {
        return Err(Rejection::field("result", "goes with the resolution `succeeded` alone"));
    }
    let to = match command.resolution {
        Resolution::Succeeded => State::Succeeded,
        Resolution::Failed => State::Failed,
        Resolution::Cancelled => State::Cancelled,
        Resolution::ConfirmedNotSubmitted | Resolution::AcceptDuplicate if task.cancel_waits => {
            return Err(Rejection::new(Code::TaskCancelled, "a cancel waits: resolve it as `cancelled`, `failed` or `succeeded`"));
        }
        Resolution::ConfirmedNotSubmitted | Resolution::AcceptDuplicate => State::Queued,
    };
    let Resolve { resolution, reason, result } = command.clone();
    Ok(Some(Resolved { epoch, resolution, reason, result: result.map(Into::into), to }.into()))
}

pub(super) fn requeue(task: &Existing) -> Result<Option<Event>, Rejection> {
    let epoch = unknown(task)?;
    let again = task.idempotent && !task.cancel_waits && task.leases < MOST_LEASES;
    Ok(again.then(|| task::Requeued { epoch, reason: "idempotent_kind".to_owned() }.into()))
}

pub(super) fn revive(task: &Existing, command: &Revive) -> Result<Option<Event>, Rejection> {
    plain_name("reason", &command.reason, 1024)?;
    if task.state == State::DeadLettered {
        Ok(Some(Revived { reason: command.reason.clone() }.into()))
    } else {
        Err(Rejection::new(Code::TaskNotDeadLettered, format!("the task is {}", task.state)))
    }
}
