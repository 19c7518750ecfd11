//! The law of pools.

use crate::account::plain_name;
use crate::{Code, Context, Decider, Rejection};
use serde::{Deserialize, Serialize};
use signalbox_events::pool::{Created, Deleted, Event, Profile, State as Phase, Switched, Updated};
use signalbox_events::{Fact, Noun};

/// No pool is called so: the subjects of gateways have it where those of workers have their pool.
pub const RESERVED: &str = "gateway";

/// A pool as its rules see it. `None` before it was created and after it was deleted.
pub type State = Option<Existing>;

/// A pool that exists.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Existing {
    /// What operators say of it.
    pub profile: Profile,
    /// What it takes on.
    pub state: Phase,
}

/// What can be asked of a pool.
#[derive(Debug, Clone)]
pub enum Command {
    /// Create it, enabled. The caller has seen that its id is not [`RESERVED`].
    Create(Profile),
    /// Describe it anew.
    Update(Profile),
    /// Make it take on more or less, for a reason of 0 to 1,024 characters.
    Switch(Phase, String),
    /// Delete it; the caller has seen that it has neither workers nor tasks.
    Delete {
        /// Whether that is so.
        empty: bool,
    },
}

/// The law.
pub struct Pool;

impl Decider for Pool {
    const NOUN: Noun = Noun::Pool;
    const FOLD: u32 = 1;
    const SEALED: bool = false;
    type State = State;
    type Command = Command;
    type Event = Event;

    fn event(fact: &Fact) -> Option<&Event> {
        if let Fact::Pool(event) = fact { Some(event) } else { None }
    }

    fn evolve(state: &mut State, event: &Event) {
        match (event, state) {
            (Event::Created(fact), state) => *state = Some(Existing { profile: fact.profile.clone(), state: Phase::Enabled }),
            (Event::Deleted(_), state) => *state = None,
            (Event::Updated(fact), Some(pool)) => pool.profile = fact.profile.clone(),
            (Event::Switched(fact), Some(pool)) => pool.state = fact.state,
            (Event::Updated(_) | Event::Switched(_), None) => {}
        }
    }

    fn decide(state: &State, command: &Command, _: &Context) -> Result<Option<Event>, Rejection> {
        let existing = || state.as_ref().ok_or_else(Rejection::not_found);
        match command {
            Command::Create(profile) => {
                check(profile)?;
                match state {
                    None => Ok(Some(Created { profile: profile.clone() }.into())),
                    Some(pool) if pool.profile == *profile => Ok(None),
                    Some(_) => Err(Rejection::new(Code::PoolExists, "a pool of this id exists; update it instead")),
                }
            }
            Command::Update(profile) => {
                check(profile)?;
                Ok((existing()?.profile != *profile).then(|| Updated { profile: profile.clone() }.into()))
            }
            Command::Switch(to, reason) => {
                if !reason.is_empty() {
                    plain_name("reason", reason, 1024)?;
                }
                Ok((existing()?.state != *to).then(|| Switched { state: *to, reason: reason.clone() }.into()))
            }
            Command::Delete { .. } if state.is_none() => Ok(None),
            Command::Delete { empty: true } => Ok(Some(Deleted {}.into())),
            Command::Delete { empty: false } => Err(Rejection::new(Code::PoolNotEmpty, "drain it first: it has workers or tasks")),
        }
    }
}

fn check(profile: &Profile) -> Result<(), Rejection> {
    if !profile.description.is_empty() {
        plain_name("description", &profile.description, 256)?;
    }
    if profile.tier > 100 {
        return Err(Rejection::field("tier", "must lie within 0 and 100"));
    }
    if !(-1000..=1000).contains(&profile.priority) {
        return Err(Rejection::field("priority", "must lie within -1000 and 1000"));
    }
    if profile.labels.len() > 32 {
        return Err(Rejection::field("labels", "has at most 32 entries"));
    }
    for (name, value) in &profile.labels {
        plain_name("labels", name, 64)?;
        if !value.is_empty() {
            plain_name(&format!("labels.{name}"), value, 128)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::given::given;
    use std::collections::BTreeMap;

    fn profile(tier: u32) -> Profile {
        Profile { description: "Frankfurt".to_owned(), tier, priority: 0, labels: BTreeMap::new() }
    }

    #[test]
    fn a_pool_lives_from_creation_to_deletion() {
        let made = || given::<Pool>().event(Created { profile: profile(0) });
        given::<Pool>().when(Command::Create(profile(0))).then(Created { profile: profile(0) });
        made().when(Command::Create(profile(0))).nothing();
        made().when(Command::Create(profile(1))).refused(Code::PoolExists);
        made().when(Command::Update(profile(1))).then(Updated { profile: profile(1) });
        made().when(Command::Update(profile(0))).nothing();
        given::<Pool>().when(Command::Update(profile(1))).refused(Code::NotFound);
        let cordon = Command::Switch(Phase::Cordoned, "upgrade".to_owned());
        made().when(cordon.clone()).then(Switched { state: Phase::Cordoned, reason: "upgrade".to_owned() });
        made().event(Switched { state: Phase::Cordoned, reason: String::new() }).when(cordon).nothing();
        made().when(Command::Delete { empty: false }).refused(Code::PoolNotEmpty);
        made().when(Command::Delete { empty: true }).then(Deleted {});
        made().event(Deleted {}).when(Command::Delete { empty: true }).nothing();
        made().event(Deleted {}).when(Command::Create(profile(1))).then(Created { profile: profile(1) });
    }

    #[test]
    fn bad_fields_are_named() {
        let refusal = given::<Pool>().when(Command::Create(profile(101))).refused(Code::InvalidField);
        assert_eq!(refusal.field.as_deref(), Some("tier"));
        let bad = Profile { priority: 1001, ..profile(0) };
        assert_eq!(given::<Pool>().when(Command::Create(bad)).refused(Code::InvalidField).field.as_deref(), Some("priority"));
    }
}
