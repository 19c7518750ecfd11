//! States that the model is about to be called: the last step before bytes go out.

use super::{Existing, turn};
use crate::{Code, Rejection};
use signalbox_events::TurnId;
use signalbox_events::conversation::{Event, TurnBegun, TurnState};

/// Begin. Only whoever's `Begin` was stated may call the model.
#[derive(Debug, Clone)]
pub struct Begin {
    /// The turn.
    pub turn: TurnId,
    /// Who calls.
    pub executor: String,
    /// The subject on which the deltas will appear.
    pub stream: String,
}

pub(super) fn decide(conversation: &Existing, command: &Begin) -> Result<Option<Event>, Rejection> {
    match turn(conversation, command.turn)?.state {
        TurnState::Submitted => Ok(Some(TurnBegun { turn: command.turn, executor: command.executor.clone(), stream: command.stream.clone() }.into())),
        // Not even the same executor may begin twice: a second call could be paid twice.
        TurnState::Running => Err(Rejection::new(Code::TurnAlreadyBegun, "the model is being called already")),
        TurnState::Completed | TurnState::Failed | TurnState::Cancelled | TurnState::Interrupted | TurnState::SubmissionUnknown => {
            Err(Rejection::new(Code::TurnEnded, "the turn has ended"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::fixtures::{TURN, begun, made, running, waiting};
    use signalbox_events::conversation::{TurnCancelled, Usage};

    #[test]
    fn a_turn_is_begun_once() {
        let begin = Begin { turn: TURN, executor: begun().executor, stream: begun().stream };
        waiting().when(begin.clone()).then(begun());
        running().when(begin.clone()).refused(Code::TurnAlreadyBegun);
        waiting().event(TurnCancelled { turn: TURN, partial: None, usage: Usage::default() }).when(begin.clone()).refused(Code::TurnEnded);
        made().when(begin).refused(Code::NotFound);
    }
}
