//! The shape of every noun's law.

use crate::{Context, Rejection};
use serde::Serialize;
use serde::de::DeserializeOwned;
use signalbox_events::{Fact, Noun};

/// A noun's law: `evolve` folds facts into state, `decide` turns a command into at most one fact.
pub trait Decider: Send + Sync + 'static {
    /// The noun.
    const NOUN: Noun;
    /// Raised whenever `State` or `evolve` changes, so that older snapshots are not trusted.
    const FOLD: u32;
    /// Whether its facts hold personal text, and so need a key.
    const SEALED: bool;
    /// What the rules need to know of the past. Holds no personal text, only lengths and keyed digests.
    type State: Default + Clone + Serialize + DeserializeOwned + Send + Sync + 'static;
    /// What can be asked.
    type Command: Clone + Send + Sync;
    /// What can have happened.
    type Event: Clone + Into<Fact> + Send;

    /// This noun's event in a fact.
    fn event(fact: &Fact) -> Option<&Self::Event>;
    /// Takes one fact into the state.
    fn evolve(state: &mut Self::State, event: &Self::Event);
    /// Decides. `None`: it is already so.
    fn decide(state: &Self::State, command: &Self::Command, ctx: &Context) -> Result<Option<Self::Event>, Rejection>;
}
