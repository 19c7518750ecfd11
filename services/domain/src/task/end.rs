//! The end of a task's execution, as its holder tells it; in time, late, or too late.

use super::{Existing, Holder, closed, held};
use crate::Rejection;
use signalbox_events::conversation::Usage;
use signalbox_events::task::{Cancelled, Event, Failed, LateResult, StaleResultKept, State, SubmissionBecameUnknown, Succeeded};

/// How it ended.
#[derive(Debug, Clone)]
pub enum Ending {
    /// With a result, JSON.
    Succeeded {
        /// What came of it.
        result: String,
    },
    /// With an error that another try would not mend.
    Failed {
        /// A stable word.
        code: String,
        /// The status that the upstream answered.
        upstream_status: Option<u16>,
        /// What had arrived.
        partial: Option<String>,
        /// What the upstream said.
        detail: Option<String>,
    },
    /// The holder broke the call off on demand.
    Cancelled {
        /// What had arrived.
        partial: Option<String>,
    },
}

/// The task has ended.
#[derive(Debug, Clone)]
pub struct End {
    /// Who.
    pub holder: Holder,
    /// How.
    pub ending: Ending,
    /// What it cost, where the kind counts tokens.
    pub usage: Option<Usage>,
}

/// Evidence E3: the holder itself does not know what became of it.
#[derive(Debug, Clone)]
pub struct BecomeUnknown {
    /// Who.
    pub holder: Holder,
    /// A stable word.
    pub code: String,
    /// What had arrived.
    pub partial: Option<String>,
}

impl Ending {
    fn state(&self) -> State {
        match self {
            Self::Succeeded { .. } => State::Succeeded,
            Self::Failed { .. } => State::Failed,
            Self::Cancelled { .. } => State::Cancelled,
        }
    }

    /// What came of it, whole or in part.
    fn text(&self) -> Option<String> {
        match self {
            Self::Succeeded { result } => Some(result.clone()),
            Self::Failed { partial, .. } | Self::Cancelled { partial } => partial.clone(),
        }
    }
}

pub(super) fn end(task: &Existing, command: &End) -> Result<Option<Event>, Rejection> {
    let (epoch, usage) = (command.holder.epoch, command.usage);
    let lease = match held(task, &command.holder) {
        Ok(lease) => lease,
        Err(refusal) => return too_late(task, command, refusal),
    };
    match (task.state, &command.ending) {
        (State::Executing, Ending::Succeeded { result }) => Ok(Some(Succeeded { epoch, result: result.clone().into(), usage }.into())),
        (State::Executing, Ending::Failed { code, upstream_status, partial, detail }) => {
            let (partial, detail) = (partial.clone().map(Into::into), detail.clone().map(Into::into));
            Ok(Some(Failed { epoch, code: code.clone(), upstream_status: *upstream_status, partial, usage, detail }.into()))
        }
        (State::Executing, Ending::Cancelled { partial }) => Ok(Some(Cancelled { epoch, partial: partial.clone().map(Into::into), usage }.into())),
        // Its own holder knows after all.
        (State::SubmissionUnknown, ending) => {
            let code = if let Ending::Failed { code, .. } = ending { Some(code.clone()) } else { None };
            Ok(Some(LateResult { epoch, to: ending.state(), code, result: ending.text().map(Into::into), usage }.into()))
        }
        // The answer to the first report was lost.
        (state, ending) if lease.nonce.is_some() && state == ending.state() => Ok(None),
        (state, _) => Err(closed(state)),
    }
}

/// A result of a lease that is no longer the task's: kept once as evidence where it may have been paid for, else refused.
fn too_late(task: &Existing, command: &End, refusal: Rejection) -> Result<Option<Event>, Rejection> {
    let Holder { epoch, incarnation, .. } = command.holder;
    let theirs = task.past.iter().find(|past| past.epoch == epoch && past.incarnation == incarnation && past.redeemed);
    match theirs {
        Some(past) if !past.kept => {
            let outcome = command.ending.state().as_str().to_owned();
            Ok(Some(StaleResultKept { epoch, incarnation, outcome, result: command.ending.text().map(Into::into) }.into()))
        }
        Some(_) | None => Err(refusal),
    }
}

pub(super) fn become_unknown(task: &Existing, command: &BecomeUnknown) -> Result<Option<Event>, Rejection> {
    let epoch = held(task, &command.holder)?.epoch;
    match task.state {
        State::Executing => {
            let partial = command.partial.clone().map(Into::into);
            Ok(Some(SubmissionBecameUnknown { epoch, code: command.code.clone(), partial }.into()))
        }
        State::SubmissionUnknown => Ok(None),
        state => Err(closed(state)),
    }
}
