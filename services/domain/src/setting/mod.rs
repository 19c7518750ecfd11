//! The law of switches.

mod accept_gap;
mod switch;
mod transport;

use crate::{Context, Decider, Rejection};
pub use accept_gap::AcceptGap;
use serde::{Deserialize, Serialize};
use signalbox_events::setting::{Event, GapAccepted, InferenceSwitched, Transport};
use signalbox_events::{Fact, Noun};
use std::collections::{BTreeMap, BTreeSet};
pub use switch::Switch;
pub use transport::{SetTransport, transport_of};

/// The switches of the platform or of one account.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// `None`: never set. The platform then counts as off, an account as not overridden.
    pub inference_enabled: Option<bool>,
    /// Places of the log, as partition and first missing sequence, whose loss is known.
    pub accepted_gaps: BTreeSet<(u16, u64)>,
    /// How calls reach models, by kind; the empty kind stands for all that have none of their own.
    pub transports: BTreeMap<String, Transport>,
}

/// Whether inference is served in an account: on for the platform and not taken away from the account.
pub fn inference_enabled(platform: &State, account: &State) -> bool {
    platform.inference_enabled.unwrap_or(false) && account.inference_enabled.unwrap_or(true)
}

/// What can be asked of a setting.
#[derive(Debug, Clone)]
pub enum Command {
    /// See [`Switch`].
    Switch(Switch),
    /// See [`AcceptGap`].
    AcceptGap(AcceptGap),
    /// See [`SetTransport`].
    SetTransport(SetTransport),
}

impl From<SetTransport> for Command {
    fn from(command: SetTransport) -> Self {
        Self::SetTransport(command)
    }
}

impl From<Switch> for Command {
    fn from(command: Switch) -> Self {
        Self::Switch(command)
    }
}

impl From<AcceptGap> for Command {
    fn from(command: AcceptGap) -> Self {
        Self::AcceptGap(command)
    }
}

/// The law.
pub struct Setting;

impl Decider for Setting {
    const NOUN: Noun = Noun::Setting;
    const FOLD: u32 = 2;
    const SEALED: bool = false;
    type State = State;
    type Command = Command;
    type Event = Event;

    fn event(fact: &Fact) -> Option<&Event> {
        if let Fact::Setting(event) = fact { Some(event) } else { None }
    }

    fn evolve(state: &mut State, event: &Event) {
        match event {
            Event::InferenceSwitched(InferenceSwitched { enabled }) => state.inference_enabled = Some(*enabled),
            Event::GapAccepted(GapAccepted { partition, sequence, .. }) => {
                state.accepted_gaps.insert((*partition, *sequence));
            }
            Event::TransportSet(fact) => {
                let kind = fact.kind.clone().unwrap_or_default();
                match fact.transport {
                    Some(transport) => state.transports.insert(kind, transport),
                    None => state.transports.remove(&kind),
                };
            }
        }
    }

    fn decide(state: &State, command: &Command, _: &Context) -> Result<Option<Event>, Rejection> {
        match command {
            Command::Switch(command) => switch::decide(state, command),
            Command::AcceptGap(command) => accept_gap::decide(state, command),
            Command::SetTransport(command) => transport::decide(state, command),
        }
    }
}
