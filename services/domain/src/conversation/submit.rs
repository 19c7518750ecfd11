//! Claims a turn: of any number of equal requests exactly one states it and makes the model call.

use super::Existing;
use crate::{Code, Context, Rejection};
use signalbox_events::TurnId;
use signalbox_events::conversation::{Event, OnDisconnect, TurnSubmitted};

/// Submit a turn. Its messages were checked before ([`super::message`]).
#[derive(Debug, Clone)]
pub struct Submit {
    /// The turn's id, should it be stated.
    pub turn: TurnId,
    /// The caller's key: 1 to 128 characters of `[A-Za-z0-9._:-]`.
    pub client_turn_id: String,
    /// The canonical request body: equal for equal requests.
    pub canonical: String,
    /// The new messages, a JSON array.
    pub messages: String,
    /// The request's other fields, a JSON object.
    pub parameters: String,
    /// The title that the conversation gets where it has none.
    pub title: String,
    /// What becomes of it when its client leaves.
    pub on_disconnect: OnDisconnect,
    /// Who will call the model, should it be stated.
    pub executor: String,
    /// Where its deltas will appear.
    pub stream: String,
}

/// The bounds of a key that a caller chooses.
pub fn check_key(path: &str, key: &str) -> Result<(), Rejection> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._:-".contains(&byte);
    if (1..=128).contains(&key.len()) && key.bytes().all(plain) {
        Ok(())
    } else {
        Err(Rejection::field(path, "must have 1 to 128 characters of [A-Za-z0-9._:-]"))
    }
}

pub(super) fn decide(conversation: &Existing, command: &Submit, ctx: &Context) -> Result<Option<Event>, Rejection> {
    check_key("client_turn_id", &command.client_turn_id)?;
    let digest = ctx.digest(command.canonical.as_bytes());
    if let Some(turn) = conversation.keys.get(&command.client_turn_id).and_then(|id| conversation.turns.get(id)) {
        let conflict = || Rejection::new(Code::IdempotencyKeyConflict, "this client_turn_id came with another body");
        return if turn.digest == digest { Ok(None) } else { Err(conflict()) };
    }
    if conversation.open_turn().is_some() {
        return Err(Rejection::new(Code::TurnInProgress, "wait for the running turn to end, or cancel it"));
    }
    let fact = TurnSubmitted {
        turn: command.turn,
        number: u32::try_from(conversation.turns.len()).unwrap_or(u32::MAX).saturating_add(1),
        client_turn_id: command.client_turn_id.clone(),
        digest,
        messages: command.messages.clone().into(),
        parameters: command.parameters.clone().into(),
        title: (!conversation.titled).then(|| command.title.clone().into()),
        on_disconnect: command.on_disconnect,
        executor: command.executor.clone(),
        stream: command.stream.clone(),
    };
    Ok(Some(fact.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::Conversation;
    use crate::conversation::fixtures::{made, running, submit, submitted, waiting};
    use crate::given::given;
    use signalbox_events::conversation::{Deleted, Renamed, TurnCancelled, Usage};
    use uuid::Uuid;

    #[test]
    fn a_turn_is_claimed_once() {
        made().when(submit()).then(submitted());
        waiting().when(submit()).nothing();
        running().when(Submit { turn: TurnId(Uuid::from_u128(77)), ..submit() }).nothing();
    }

    #[test]
    fn the_same_key_with_another_body_is_refused() {
        waiting().when(Submit { canonical: "{\"a\":2}".to_owned(), ..submit() }).refused(Code::IdempotencyKeyConflict);
    }

    #[test]
    fn one_turn_runs_at_a_time() {
        let second = Submit { turn: TurnId(Uuid::from_u128(11)), client_turn_id: "ct-2".to_owned(), ..submit() };
        waiting().when(second.clone()).refused(Code::TurnInProgress);
        running().when(second.clone()).refused(Code::TurnInProgress);
        let ended = running().event(TurnCancelled { turn: submitted().turn, partial: None, usage: Usage::default() });
        ended.when(second).then(TurnSubmitted {
            turn: TurnId(Uuid::from_u128(11)),
            number: 2,
            client_turn_id: "ct-2".to_owned(),
            title: None,
            ..submitted()
        });
    }

    #[test]
    fn a_title_is_given_only_where_there_is_none() {
        made().event(Renamed { title: "Mine".into() }).when(submit()).then(TurnSubmitted { title: None, ..submitted() });
    }

    #[test]
    fn a_key_is_bounded() {
        for bad in ["", "a b", "ü", "a/b", &"x".repeat(129)] {
            made().when(Submit { client_turn_id: bad.to_owned(), ..submit() }).refused(Code::InvalidField);
        }
    }

    #[test]
    fn a_conversation_that_is_not_there_takes_no_turn() {
        given::<Conversation>().when(submit()).refused(Code::NotFound);
        made().event(Deleted {}).when(submit()).refused(Code::NotFound);
    }
}
