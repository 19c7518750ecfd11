//! Ends a turn: exactly one of completed, failed, interrupted, cancelled or submission unknown.

use super::{Existing, Turn, turn};
use crate::{Code, Rejection};
use signalbox_events::TurnId;
use signalbox_events::conversation::{Event, TurnCancelled, TurnCompleted, TurnFailed, TurnInterrupted, TurnState, TurnSubmissionUnknown, Usage};

/// The model answered in full.
#[derive(Debug, Clone)]
pub struct Complete {
    /// The turn.
    pub turn: TurnId,
    /// The assistant's message, a JSON object.
    pub message: String,
    /// Why the model stopped.
    pub finish_reason: String,
    /// What it cost.
    pub usage: Usage,
}

/// The call ended with an error.
#[derive(Debug, Clone)]
pub struct Fail {
    /// The turn.
    pub turn: TurnId,
    /// A stable word.
    pub code: String,
    /// The upstream's HTTP status, where it answered one.
    pub upstream_status: Option<u16>,
    /// What had arrived.
    pub partial: Option<String>,
    /// What it cost so far.
    pub usage: Usage,
}

/// The executor was lost. What it amounts to depends on how far the turn had come.
#[derive(Debug, Clone)]
pub struct Interrupt {
    /// The turn.
    pub turn: TurnId,
    /// What had arrived; `None`: nothing.
    pub partial: Option<String>,
    /// What it cost so far.
    pub usage: Usage,
}

/// Someone wants the turn to end.
#[derive(Debug, Clone)]
pub struct Cancel {
    /// The turn.
    pub turn: TurnId,
    /// What had arrived.
    pub partial: Option<String>,
    /// What it cost so far.
    pub usage: Usage,
}

pub(super) fn complete(conversation: &Existing, command: &Complete) -> Result<Option<Event>, Rejection> {
    let turn = turn(conversation, command.turn)?;
    match turn.state {
        TurnState::Running => Ok(Some(
            TurnCompleted {
                turn: command.turn,
                message: command.message.clone().into(),
                finish_reason: command.finish_reason.clone(),
                usage: command.usage,
            }
            .into(),
        )),
        TurnState::Completed => Ok(None),
        TurnState::Submitted | TurnState::Failed | TurnState::Cancelled | TurnState::Interrupted | TurnState::SubmissionUnknown => {
            Err(not_running(turn))
        }
    }
}

pub(super) fn fail(conversation: &Existing, command: &Fail) -> Result<Option<Event>, Rejection> {
    let turn = turn(conversation, command.turn)?;
    match turn.state {
        TurnState::Submitted | TurnState::Running => Ok(Some(
            TurnFailed {
                turn: command.turn,
                code: command.code.clone(),
                upstream_status: command.upstream_status,
                partial: command.partial.clone().map(Into::into),
                usage: command.usage,
            }
            .into(),
        )),
        TurnState::Failed => Ok(None),
        TurnState::Completed | TurnState::Cancelled | TurnState::Interrupted | TurnState::SubmissionUnknown => Err(not_running(turn)),
    }
}

pub(super) fn interrupt(conversation: &Existing, command: &Interrupt) -> Result<Option<Event>, Rejection> {
    let turn = turn(conversation, command.turn)?;
    match turn.state {
        // Nothing was sent: the claim's holder was lost before it began.
        TurnState::Submitted => Ok(Some(
            TurnFailed { turn: command.turn, code: "not_sent".to_owned(), upstream_status: None, partial: None, usage: Usage::default() }.into(),
        )),
        TurnState::Running if command.partial.is_none() => Ok(Some(TurnSubmissionUnknown { turn: command.turn }.into())),
        TurnState::Running => {
            Ok(Some(TurnInterrupted { turn: command.turn, partial: command.partial.clone().map(Into::into), usage: command.usage }.into()))
        }
        TurnState::Completed | TurnState::Failed | TurnState::Cancelled | TurnState::Interrupted | TurnState::SubmissionUnknown => Ok(None),
    }
}

pub(super) fn cancel(conversation: &Existing, command: &Cancel) -> Result<Option<Event>, Rejection> {
    let turn = turn(conversation, command.turn)?;
    match turn.state {
        TurnState::Submitted | TurnState::Running => {
            Ok(Some(TurnCancelled { turn: command.turn, partial: command.partial.clone().map(Into::into), usage: command.usage }.into()))
        }
        TurnState::Cancelled => Ok(None),
        TurnState::Completed | TurnState::Failed | TurnState::Interrupted | TurnState::SubmissionUnknown => Err(not_running(turn)),
    }
}

fn not_running(turn: &Turn) -> Rejection {
    Rejection::new(Code::TurnEnded, format!("the turn is {}", turn.state))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::Command;
    use crate::conversation::fixtures::{TURN, made, running, waiting};

    const USAGE: Usage = Usage { prompt_tokens: 1, completion_tokens: 2, estimated: false };

    fn complete() -> Complete {
        Complete { turn: TURN, message: "{}".to_owned(), finish_reason: "stop".to_owned(), usage: USAGE }
    }

    fn fail() -> Fail {
        Fail { turn: TURN, code: "upstream_disconnected".to_owned(), upstream_status: None, partial: Some("The ".to_owned()), usage: USAGE }
    }

    fn interrupt() -> Interrupt {
        Interrupt { turn: TURN, partial: Some("The ".to_owned()), usage: USAGE }
    }

    fn cancel() -> Cancel {
        Cancel { turn: TURN, partial: Some("The ".to_owned()), usage: USAGE }
    }

    fn completed() -> TurnCompleted {
        TurnCompleted { turn: TURN, message: "{}".into(), finish_reason: "stop".to_owned(), usage: USAGE }
    }

    fn failed() -> TurnFailed {
        TurnFailed { turn: TURN, code: "upstream_disconnected".to_owned(), upstream_status: None, partial: Some("The ".into()), usage: USAGE }
    }

    fn interrupted() -> TurnInterrupted {
        TurnInterrupted { turn: TURN, partial: Some("The ".into()), usage: USAGE }
    }

    fn cancelled() -> TurnCancelled {
        TurnCancelled { turn: TURN, partial: Some("The ".into()), usage: USAGE }
    }

    #[test]
    fn a_running_turn_ends_in_each_way() {
        running().when(complete()).then(completed());
        running().when(fail()).then(failed());
        running().when(interrupt()).then(interrupted());
        running().when(cancel()).then(cancelled());
    }

    #[test]
    fn a_lost_executor_leaves_the_truth_about_what_was_sent() {
        running().when(Interrupt { partial: None, ..interrupt() }).then(TurnSubmissionUnknown { turn: TURN });
        waiting().when(interrupt()).then(TurnFailed {
            turn: TURN,
            code: "not_sent".to_owned(),
            upstream_status: None,
            partial: None,
            usage: Usage::default(),
        });
    }

    #[test]
    fn a_turn_that_was_not_begun_cannot_complete() {
        waiting().when(complete()).refused(Code::TurnEnded);
        waiting().when(fail()).then(failed());
        waiting().when(cancel()).then(cancelled());
    }

    #[test]
    fn a_turn_ends_once() {
        let endings = [
            running().event(completed()),
            running().event(failed()),
            running().event(interrupted()),
            running().event(cancelled()),
            running().event(TurnSubmissionUnknown { turn: TURN }),
        ];
        let commands: [Command; 4] = [complete().into(), fail().into(), interrupt().into(), cancel().into()];
        for (ending, given) in endings.iter().enumerate() {
            for (index, command) in commands.iter().enumerate() {
                let outcome = given.when(command.clone());
                // The same ending again is already so; an interruption never overrules an ending.
                if index == ending || index == 2 {
                    outcome.nothing();
                } else {
                    outcome.refused(Code::TurnEnded);
                }
            }
        }
        for command in commands {
            made().when(command).refused(Code::NotFound);
        }
    }
}
