//! The law of workloads: what is wanted is stated by people, what is seen by providers.

mod delete;
mod deploy;
mod observe;
mod resume;
mod rollback;
mod scale;
mod suspend;
mod update;

use crate::{Code, Context, Decider, Rejection};
pub use delete::Delete;
pub use deploy::Deploy;
pub use observe::Observe;
pub use resume::Resume;
pub use rollback::Rollback;
pub use scale::Scale;
use serde::{Deserialize, Serialize};
use signalbox_events::workload::{Event, Kind, Observed, Spec, State as Phase};
use signalbox_events::{Fact, Noun, PrincipalId};
use std::collections::BTreeMap;
pub use suspend::Suspend;
pub use update::Update;

/// A workload as its rules see it. `None` before it was deployed.
pub type State = Option<Existing>;

/// A workload that exists, or did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Existing {
    /// The name that people see.
    pub name: String,
    /// The name that routers know.
    pub object_name: String,
    /// Whose it is.
    pub owner: PrincipalId,
    /// The labels that it was deployed with.
    pub labels: BTreeMap<String, String>,
    /// The revision that is wanted, from 1.
    pub revision: u32,
    /// Every revision's spec, as scaled last.
    pub revisions: BTreeMap<u32, Spec>,
    /// Whether it shall stand still.
    pub suspended: bool,
    /// Whether it shall go.
    pub deleting: bool,
    /// Whether it is gone.
    pub deleted: bool,
    /// What the provider saw last.
    pub observed: Option<Observed>,
}

impl Existing {
    /// What is wanted now.
    pub fn spec(&self) -> Option<&Spec> {
        self.revisions.get(&self.revision)
    }

    /// Its kind; revisions never change it.
    pub fn kind(&self) -> Option<Kind> {
        self.spec().map(Spec::kind)
    }

    /// Where it can be called now, and the model's name there; `turn` spreads calls over replicas.
    pub fn destination(&self, turn: usize) -> Option<(String, String)> {
        let endpoints = &self.observed.as_ref()?.endpoints;
        if self.suspended || !matches!(self.phase(), Phase::Running | Phase::Degraded | Phase::Updating) || endpoints.is_empty() {
            return None;
        }
        let base = endpoints.get(turn % endpoints.len())?.clone();
        let model = match self.spec()? {
            Spec::Endpoint { model, .. } => model.clone(),
            Spec::LocalInference { .. } | Spec::LocalJob { .. } => self.object_name.clone(),
        };
        Some((base, model))
    }

    /// Where it stands, from what is wanted and what was seen.
    pub fn phase(&self) -> Phase {
        if self.deleted {
            Phase::Deleted
        } else if self.deleting {
            Phase::Deleting
        } else {
            self.observed.as_ref().map_or(Phase::Submitted, |observed| observed.state)
        }
    }
}

/// What can be asked of a workload.
#[derive(Debug, Clone)]
#[expect(missing_docs, reason = "each command is documented at its struct")]
pub enum Command {
    Deploy(Deploy),
    Update(Update),
    Rollback(Rollback),
    Scale(Scale),
    Suspend(Suspend),
    Resume(Resume),
    Delete(Delete),
    Observe(Observe),
}

macro_rules! commands {
    ($($name:ident),+) => { $(
        impl From<$name> for Command {
            fn from(command: $name) -> Self { Self::$name(command) }
        }
    )+ };
}
commands!(Deploy, Update, Rollback, Scale, Suspend, Resume, Delete, Observe);

/// The law.
pub struct Workload;

impl Decider for Workload {
    const NOUN: Noun = Noun::Workload;
    const FOLD: u32 = 1;
    const SEALED: bool = false;
    type State = State;
    type Command = Command;
    type Event = Event;

    fn event(fact: &Fact) -> Option<&Event> {
        if let Fact::Workload(event) = fact { Some(event) } else { None }
    }

    fn evolve(state: &mut State, event: &Event) {
        if let Event::Deployed(fact) = event {
            *state = Some(Existing {
                name: fact.name.clone(),
                object_name: fact.object_name.clone(),
                owner: fact.owner,
                labels: fact.labels.clone(),
                revision: 1,
                revisions: BTreeMap::from([(1, fact.spec.clone())]),
                suspended: false,
                deleting: false,
                deleted: false,
                observed: None,
            });
        } else if let Some(workload) = state {
            evolve_existing(workload, event);
        }
    }

    fn decide(state: &State, command: &Command, _: &Context) -> Result<Option<Event>, Rejection> {
        match command {
            Command::Deploy(command) => deploy::decide(state.as_ref(), command),
            Command::Update(command) => update::decide(living(state)?, command),
            Command::Rollback(command) => rollback::decide(living(state)?, command),
            Command::Scale(command) => scale::decide(living(state)?, command),
            Command::Suspend(Suspend {}) => suspend::decide(living(state)?),
            Command::Resume(Resume {}) => resume::decide(living(state)?),
            Command::Delete(Delete {}) => delete::decide(existing(state)?),
            Command::Observe(command) => observe::decide(existing(state)?, command),
        }
    }
}

fn evolve_existing(workload: &mut Existing, event: &Event) {
    match event {
        Event::Deployed(_) => {}
        Event::Updated(fact) => revise(workload, fact.revision, fact.spec.clone()),
        Event::RolledBack(fact) => revise(workload, fact.revision, fact.spec.clone()),
        Event::Scaled(fact) => {
            if let Some(Spec::LocalInference { replicas, .. }) = workload.revisions.get_mut(&workload.revision) {
                *replicas = fact.replicas;
            }
        }
        Event::Suspended(_) => workload.suspended = true,
        Event::Resumed(_) => workload.suspended = false,
        Event::DeletionRequested(_) => workload.deleting = true,
        Event::Observed(fact) => workload.observed = Some(fact.clone()),
        Event::Deleted(_) => workload.deleted = true,
    }
}

fn revise(workload: &mut Existing, revision: u32, spec: Spec) {
    workload.revision = revision;
    workload.revisions.insert(revision, spec);
}

/// A workload that was deployed and is not gone. One that is gone answers as one that never was.
fn existing(state: &State) -> Result<&Existing, Rejection> {
    state.as_ref().filter(|workload| !workload.deleted).ok_or_else(Rejection::not_found)
}

/// A workload that is not on its way out either.
fn living(state: &State) -> Result<&Existing, Rejection> {
    let workload = existing(state)?;
    if workload.deleting { Err(Rejection::new(Code::WorkloadDeleting, "the workload is being deleted")) } else { Ok(workload) }
}

#[cfg(test)]
mod fixtures {
    //! Facts that the rules' tests share.

    use super::*;
    use crate::given::{Given, given};
    use signalbox_events::workload::{Deleted, DeletionRequested, Deployed};
    use signalbox_events::{Micros, WorkloadId};
    use uuid::Uuid;

    pub const ID: WorkloadId = WorkloadId(Uuid::from_u128(5));

    pub fn inference(replicas: u32) -> Spec {
        Spec::LocalInference { runtime: "echo".to_owned(), parameters: BTreeMap::new(), replicas }
    }

    pub fn job() -> Spec {
        Spec::LocalJob { runtime: "batch".to_owned(), parameters: BTreeMap::new() }
    }

    pub fn endpoint() -> Spec {
        Spec::Endpoint { url: "http://127.0.0.1:1/v1".to_owned(), model: "m".to_owned() }
    }

    pub fn deployed(spec: Spec) -> Deployed {
        let owner = PrincipalId(Uuid::from_u128(1));
        Deployed {
            name: "a".to_owned(),
            object_name: crate::kind::object_name("a", ID),
            spec,
            owner,
            owner_name: "Ada".to_owned(),
            labels: BTreeMap::new(),
        }
    }

    pub fn made(spec: Spec) -> Given<Workload> {
        given::<Workload>().event(deployed(spec))
    }

    pub fn deleting() -> Given<Workload> {
        made(inference(1)).event(DeletionRequested {})
    }

    pub fn deleted() -> Given<Workload> {
        deleting().event(Deleted {})
    }

    pub fn seen(state: Phase) -> Observed {
        Observed {
            state,
            reason: "process_started".to_owned(),
            revision: 1,
            ready: 1,
            nodes: vec!["here".to_owned()],
            endpoints: vec![],
            exit_code: None,
            log_tail: vec![],
            seen_at: Micros(5),
        }
    }

    /// A command that needs a living workload is refused on one that never was, is going, or is gone.
    pub fn needs_a_living_workload(command: impl Into<Command> + Clone) {
        given::<Workload>().when(command.clone()).refused(Code::NotFound);
        deleting().when(command.clone()).refused(Code::WorkloadDeleting);
        deleted().when(command).refused(Code::NotFound);
    }
}
