//! The law of conversations: claim before the call, one turn at a time, one ending a turn.

mod begin;
mod delete;
mod end;
pub mod message;
mod rename;
mod start;
mod submit;

use crate::{Code, Context, Decider, Rejection};
pub use begin::Begin;
pub use delete::Delete;
pub use end::{Cancel, Complete, Fail, Interrupt};
pub use rename::Rename;
use serde::{Deserialize, Serialize};
use signalbox_events::conversation::{Event, OnDisconnect, TurnState};
use signalbox_events::{Fact, Noun, PrincipalId, TurnId, WorkloadId};
pub use start::Start;
use std::collections::BTreeMap;
pub use submit::{Submit, check_key};

/// A conversation as its rules see it. `None` before it was started.
pub type State = Option<Existing>;

/// A conversation that exists, or did. Holds no text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Existing {
    /// Whose it is.
    pub owner: PrincipalId,
    /// The deployment that it talks to.
    pub workload: WorkloadId,
    /// The model's name there.
    pub model: String,
    /// Whether it has a title.
    pub titled: bool,
    /// Whether it is hidden and closed.
    pub deleted: bool,
    /// Its turns.
    pub turns: BTreeMap<TurnId, Turn>,
    /// The turn of each client key.
    pub keys: BTreeMap<String, TurnId>,
}

/// A turn as the rules see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Turn {
    /// Its place, from 1.
    pub number: u32,
    /// Keyed digest of the canonical request.
    pub digest: [u8; 32],
    /// Where it stands.
    pub state: TurnState,
    /// Who calls the model.
    pub executor: String,
    /// Where its deltas appear.
    pub stream: String,
    /// What becomes of it when its client leaves.
    pub on_disconnect: OnDisconnect,
}

impl Existing {
    /// The turn that has not ended; there is at most one.
    pub fn open_turn(&self) -> Option<(TurnId, &Turn)> {
        self.turns.iter().find(|(_, turn)| !turn.state.is_terminal()).map(|(id, turn)| (*id, turn))
    }
}

/// What can be asked of a conversation.
#[derive(Debug, Clone)]
#[expect(missing_docs, reason = "each command is documented at its struct")]
pub enum Command {
    Start(Start),
    Submit(Submit),
    Begin(Begin),
    Complete(Complete),
    Fail(Fail),
    Interrupt(Interrupt),
    Cancel(Cancel),
    Rename(Rename),
    Delete(Delete),
}

macro_rules! commands {
    ($($name:ident),+) => { $(
        impl From<$name> for Command {
            fn from(command: $name) -> Self { Self::$name(command) }
        }
    )+ };
}
commands!(Start, Submit, Begin, Complete, Fail, Interrupt, Cancel, Rename, Delete);

/// The law.
pub struct Conversation;

impl Decider for Conversation {
    const NOUN: Noun = Noun::Conversation;
    const FOLD: u32 = 1;
    const SEALED: bool = true;
    type State = State;
    type Command = Command;
    type Event = Event;

    fn event(fact: &Fact) -> Option<&Event> {
        if let Fact::Conversation(event) = fact { Some(event) } else { None }
    }

    fn evolve(state: &mut State, event: &Event) {
        if let Event::Started(fact) = event {
            *state = Some(Existing {
                owner: fact.owner,
                workload: fact.workload,
                model: fact.model.clone(),
                titled: fact.title.is_some(),
                deleted: false,
                turns: BTreeMap::new(),
                keys: BTreeMap::new(),
            });
        } else if let Some(conversation) = state {
            evolve_existing(conversation, event);
        }
    }

    fn decide(state: &State, command: &Command, ctx: &Context) -> Result<Option<Event>, Rejection> {
        match command {
            Command::Start(command) => start::decide(state.as_ref(), command),
            Command::Submit(command) => submit::decide(living(state)?, command, ctx),
            Command::Begin(command) => begin::decide(existing(state)?, command),
            Command::Complete(command) => end::complete(existing(state)?, command),
            Command::Fail(command) => end::fail(existing(state)?, command),
            Command::Interrupt(command) => end::interrupt(existing(state)?, command),
            Command::Cancel(command) => end::cancel(existing(state)?, command),
            Command::Rename(command) => rename::decide(living(state)?, command),
            Command::Delete(Delete {}) => delete::decide(existing(state)?),
        }
    }
}

fn evolve_existing(conversation: &mut Existing, event: &Event) {
    match event {
        Event::Started(_) => {}
        Event::TurnSubmitted(fact) => {
            let turn = Turn {
                number: fact.number,
                digest: fact.digest,
                state: TurnState::Submitted,
                executor: fact.executor.clone(),
                stream: fact.stream.clone(),
                on_disconnect: fact.on_disconnect,
            };
            conversation.turns.insert(fact.turn, turn);
            conversation.keys.insert(fact.client_turn_id.clone(), fact.turn);
            conversation.titled |= fact.title.is_some();
        }
        Event::TurnBegun(fact) => {
            if let Some(turn) = conversation.turns.get_mut(&fact.turn) {
                turn.state = TurnState::Running;
                turn.executor = fact.executor.clone();
                turn.stream = fact.stream.clone();
            }
        }
        Event::TurnCompleted(fact) => ended(conversation, fact.turn, TurnState::Completed),
        Event::TurnFailed(fact) => ended(conversation, fact.turn, TurnState::Failed),
        Event::TurnInterrupted(fact) => ended(conversation, fact.turn, TurnState::Interrupted),
        Event::TurnCancelled(fact) => ended(conversation, fact.turn, TurnState::Cancelled),
        Event::TurnSubmissionUnknown(fact) => ended(conversation, fact.turn, TurnState::SubmissionUnknown),
        Event::Renamed(_) => conversation.titled = true,
        Event::Deleted(_) => conversation.deleted = true,
    }
}

fn ended(conversation: &mut Existing, turn: TurnId, state: TurnState) {
    if let Some(turn) = conversation.turns.get_mut(&turn) {
        turn.state = state;
    }
}

/// A conversation that was started. A turn that runs when it is deleted still ends.
fn existing(state: &State) -> Result<&Existing, Rejection> {
    state.as_ref().ok_or_else(Rejection::not_found)
}

/// A conversation that takes commands of people.
fn living(state: &State) -> Result<&Existing, Rejection> {
    existing(state)?;
    state.as_ref().filter(|conversation| !conversation.deleted).ok_or_else(Rejection::not_found)
}

/// A turn that exists.
fn turn(conversation: &Existing, id: TurnId) -> Result<&Turn, Rejection> {
    conversation.turns.get(&id).ok_or_else(Rejection::not_found)
}

/// A title: 1 to 256 characters.
fn check_title(path: &str, title: &signalbox_events::Text) -> Result<(), Rejection> {
    let text = title.plain().ok_or_else(|| Rejection::new(Code::Internal, "a command carries plain text"))?;
    crate::account::plain_name(path, text, 256)
}

#[cfg(test)]
mod fixtures {
    //! Facts that the rules' tests share.

    use super::*;
    use crate::given::{Given, context, given};
    use signalbox_events::conversation::{Started, TurnBegun, TurnSubmitted};
    use uuid::Uuid;

    pub const TURN: TurnId = TurnId(Uuid::from_u128(10));

    pub fn started() -> Started {
        Started {
            owner: PrincipalId(Uuid::from_u128(1)),
            owner_name: "Ada".to_owned(),
            workload: WorkloadId(Uuid::from_u128(2)),
            model: "m".to_owned(),
            title: None,
        }
    }

    pub fn submit() -> Submit {
        Submit {
            turn: TURN,
            client_turn_id: "ct-1".to_owned(),
            canonical: "{\"a\":1}".to_owned(),
            messages: "[]".to_owned(),
            parameters: "{}".to_owned(),
            title: "Hello".to_owned(),
            on_disconnect: OnDisconnect::Continue,
            executor: "gateway-1".to_owned(),
            stream: "stream.gateway.g1.t.1".to_owned(),
        }
    }

    pub fn submitted() -> TurnSubmitted {
        TurnSubmitted {
            turn: TURN,
            number: 1,
            client_turn_id: "ct-1".to_owned(),
            digest: context().digest(b"{\"a\":1}"),
            messages: "[]".into(),
            parameters: "{}".into(),
            title: Some("Hello".into()),
            on_disconnect: OnDisconnect::Continue,
            executor: "gateway-1".to_owned(),
            stream: "stream.gateway.g1.t.1".to_owned(),
        }
    }

    pub fn begun() -> TurnBegun {
        TurnBegun { turn: TURN, executor: "gateway-1".to_owned(), stream: "stream.gateway.g1.t.1".to_owned() }
    }

    pub fn made() -> Given<Conversation> {
        given::<Conversation>().event(started())
    }

    pub fn waiting() -> Given<Conversation> {
        made().event(submitted())
    }

    pub fn running() -> Given<Conversation> {
        waiting().event(begun())
    }
}
