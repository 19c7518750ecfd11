//! The law of workers: one incarnation at a time, and none that comes back after it was retired.

use crate::{Code, Context, Decider, Rejection};
use serde::{Deserialize, Serialize};
use signalbox_events::worker::{DrainRequested, Event, Observed, Registered, Retired, State as Phase};
use signalbox_events::{Fact, IncarnationId, Noun};
use std::collections::VecDeque;

/// Retired incarnations that are remembered.
const REMEMBERED: usize = 64;

/// A worker as its rules see it. `None` before its first start.
pub type State = Option<Existing>;

/// A worker that has started once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Existing {
    /// What it said at its last start.
    pub registered: Registered,
    /// What it is seen to do.
    pub state: Phase,
    /// Whether an operator wants it to end what it has.
    pub draining: bool,
    /// Earlier incarnations, and the last one once it is retired.
    pub retired: VecDeque<IncarnationId>,
}

impl Existing {
    /// Whether an incarnation is the one that may speak.
    pub fn is_current(&self, incarnation: IncarnationId) -> bool {
        self.registered.incarnation == incarnation && !self.retired.contains(&incarnation)
    }
}

/// What can be asked of a worker.
#[derive(Debug, Clone)]
pub enum Command {
    /// It has started.
    Register(Registered),
    /// It is seen to do this.
    Observe(IncarnationId, Phase),
    /// An operator wants it to end what it has.
    Drain,
    /// An incarnation is over: `bye`, or `lost`.
    Retire(IncarnationId, &'static str),
}

/// The law.
pub struct Worker;

impl Decider for Worker {
    const NOUN: Noun = Noun::Worker;
    const FOLD: u32 = 1;
    const SEALED: bool = false;
    type State = State;
    type Command = Command;
    type Event = Event;

    fn event(fact: &Fact) -> Option<&Event> {
        if let Fact::Worker(event) = fact { Some(event) } else { None }
    }

    fn evolve(state: &mut State, event: &Event) {
        match (event, state) {
            (Event::Registered(fact), state) => {
                let mut retired = state.take().map_or_else(VecDeque::new, |before| {
                    let mut retired = before.retired;
                    remember(&mut retired, before.registered.incarnation);
                    retired
                });
                retired.retain(|incarnation| *incarnation != fact.incarnation);
                *state = Some(Existing { registered: fact.clone(), state: Phase::Ready, draining: false, retired });
            }
            (Event::Observed(fact), Some(worker)) => worker.state = fact.state,
            (Event::DrainRequested(_), Some(worker)) => {
                worker.draining = true;
                worker.state = Phase::Draining;
            }
            (Event::Retired(fact), Some(worker)) => {
                remember(&mut worker.retired, fact.incarnation);
                worker.state = if fact.reason == "bye" { Phase::Gone } else { Phase::Lost };
            }
            (Event::Observed(_) | Event::DrainRequested(_) | Event::Retired(_), None) => {}
        }
    }

    fn decide(state: &State, command: &Command, _: &Context) -> Result<Option<Event>, Rejection> {
        match command {
            Command::Register(fact) => register(state.as_ref(), fact),
            Command::Observe(incarnation, phase) => {
                let worker = current(state, *incarnation)?;
                Ok((worker.state != *phase).then(|| Observed { incarnation: *incarnation, state: *phase }.into()))
            }
            Command::Drain => {
                let worker = state.as_ref().ok_or_else(Rejection::not_found)?;
                let incarnation = worker.registered.incarnation;
                Ok((worker.is_current(incarnation) && !worker.draining).then(|| DrainRequested { incarnation }.into()))
            }
            Command::Retire(incarnation, reason) => {
                let current = state.as_ref().is_some_and(|worker| worker.is_current(*incarnation));
                Ok(current.then(|| Retired { incarnation: *incarnation, reason: (*reason).to_owned() }.into()))
            }
        }
    }
}

fn remember(retired: &mut VecDeque<IncarnationId>, incarnation: IncarnationId) {
    if !retired.contains(&incarnation) {
        retired.push_back(incarnation);
    }
    while retired.len() > REMEMBERED {
        retired.pop_front();
    }
}

fn current(state: &State, incarnation: IncarnationId) -> Result<&Existing, Rejection> {
    let worker = state.as_ref().ok_or_else(Rejection::not_found)?;
    if worker.is_current(incarnation) {
        Ok(worker)
    } else {
        Err(Rejection::new(Code::IncarnationRetired, "this start of the worker is over; start anew with a fresh incarnation"))
    }
}

fn register(worker: Option<&Existing>, fact: &Registered) -> Result<Option<Event>, Rejection> {
    if !(1..=4096).contains(&fact.slots) {
        return Err(Rejection::field("slots", "must lie within 1 and 4096"));
    }
    if fact.version.len() > 64 {
        return Err(Rejection::field("version", "has at most 64 bytes"));
    }
    let kinds = &fact.capabilities.kinds;
    if kinds.is_empty() || kinds.len() > 64 || kinds.iter().any(|kind| kind.is_empty() || kind.len() > 64) {
        return Err(Rejection::field("capabilities.kinds", "must be 1 to 64 words of 1 to 64 bytes"));
    }
    let Some(worker) = worker else { return Ok(Some(fact.clone().into())) };
    if worker.registered == *fact && worker.is_current(fact.incarnation) {
        return Ok(None);
    }
    if worker.registered.incarnation == fact.incarnation || worker.retired.contains(&fact.incarnation) {
        return Err(Rejection::new(Code::IncarnationRetired, "this incarnation was used before; take a fresh one at each start"));
    }
    let over = matches!(worker.state, Phase::Gone | Phase::Lost);
    if worker.registered.pool != fact.pool && !over {
        return Err(Rejection::new(Code::WorkerInOtherPool, "the worker runs in another pool; stop it there, or name this one differently"));
    }
    Ok(Some(fact.clone().into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::given::given;
    use signalbox_events::worker::Capabilities;
    use uuid::Uuid;

    fn started(number: u128, pool: &str) -> Registered {
        Registered {
            pool: pool.parse().unwrap(),
            incarnation: IncarnationId(Uuid::from_u128(number)),
            protocol: 1,
            version: "1.0".to_owned(),
            capabilities: Capabilities { kinds: vec!["*".to_owned()], streaming: true },
            slots: 4,
            public_key: None,
        }
    }

    #[test]
    fn a_start_retires_the_one_before() {
        let first = started(1, "eu");
        let one = || given::<Worker>().event(started(1, "eu"));
        given::<Worker>().when(Command::Register(first.clone())).then(first.clone());
        one().when(Command::Register(first.clone())).nothing();
        one().when(Command::Register(started(2, "eu"))).then(started(2, "eu"));
        let two = || one().event(started(2, "eu"));
        two().when(Command::Register(first.clone())).refused(Code::IncarnationRetired);
        two().when(Command::Observe(first.incarnation, Phase::Ready)).refused(Code::IncarnationRetired);
        one().when(Command::Register(started(2, "us"))).refused(Code::WorkerInOtherPool);
        let gone = one().event(Retired { incarnation: first.incarnation, reason: "bye".to_owned() });
        gone.when(Command::Register(started(2, "us"))).then(started(2, "us"));
        gone.when(Command::Register(first)).refused(Code::IncarnationRetired);
    }

    #[test]
    fn what_is_seen_is_stated_when_it_changes() {
        let one = || given::<Worker>().event(started(1, "eu"));
        let incarnation = started(1, "eu").incarnation;
        one().when(Command::Observe(incarnation, Phase::Ready)).nothing();
        let deaf = Observed { incarnation, state: Phase::NotConsuming };
        one().when(Command::Observe(incarnation, Phase::NotConsuming)).then(deaf);
        one().when(Command::Drain).then(DrainRequested { incarnation });
        one().event(DrainRequested { incarnation }).when(Command::Drain).nothing();
        given::<Worker>().when(Command::Drain).refused(Code::NotFound);
        one().when(Command::Retire(incarnation, "lost")).then(Retired { incarnation, reason: "lost".to_owned() });
        one().when(Command::Retire(IncarnationId(Uuid::from_u128(9)), "lost")).nothing();
    }

    #[test]
    fn bad_fields_are_named() {
        for (bad, field) in [
            (Registered { slots: 0, ..started(1, "eu") }, "slots"),
            (Registered { version: "x".repeat(65), ..started(1, "eu") }, "version"),
            (Registered { capabilities: Capabilities::default(), ..started(1, "eu") }, "capabilities.kinds"),
        ] {
            assert_eq!(given::<Worker>().when(Command::Register(bad)).refused(Code::InvalidField).field.as_deref(), Some(field));
        }
    }
}
