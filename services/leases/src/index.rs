//! What has not ended, as this replica knows it: built from the view, kept up by following the log.

use crate::ready::{Ready, Waiting};
use signalbox_domain::task::Existing;
use signalbox_events::task::{Event, Mode, State};
use signalbox_events::{AccountId, Aggregate, Fact, IncarnationId, Micros, PoolId, Recorded, TaskId, WorkerId, task, worker};
use signalbox_projections::task::Row;
use signalbox_projections::worker::Row as WorkerRow;
use std::collections::HashMap;

/// A task that has not ended.
#[derive(Debug, Clone)]
pub struct Open {
    /// Where it stands.
    pub state: State,
    /// The pool whose queue it is, or was last, in.
    pub pool: Option<PoolId>,
    /// What the queue needs to know.
    pub waiting: Waiting,
    /// Whether someone waits for it.
    pub waited_for: bool,
    /// Whether its kind may be sent twice without harm.
    pub idempotent: bool,
    /// Whether a cancel waits for evidence.
    pub cancel_waits: bool,
    /// When it must have been leased.
    pub start_deadline: Option<Micros>,
    /// When it is tried again.
    pub retry_at: Option<Micros>,
    /// The last lease.
    pub lease: Option<Held>,
    /// Since when its submission is unknown.
    pub unknown_since: Option<Micros>,
}

/// A lease as the index knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// The fence.
    pub epoch: u64,
    /// The pool.
    pub pool: PoolId,
    /// The worker.
    pub worker: WorkerId,
    /// Which start of it.
    pub incarnation: IncarnationId,
    /// When it ends unless it is renewed.
    pub expires_at: Micros,
}

/// A worker as the index knows it.
#[derive(Debug, Clone)]
pub struct Known {
    /// Its pool.
    pub pool: PoolId,
    /// Its last start.
    pub incarnation: IncarnationId,
    /// What it is seen to do.
    pub state: worker::State,
    /// When that start began.
    pub since: Micros,
    /// What it can do.
    pub capabilities: worker::Capabilities,
}

/// What an event means for others than the index.
#[derive(Debug, PartialEq, Eq)]
pub enum News {
    /// A pool has a task.
    Queued(PoolId),
    /// The holder shall break the task off.
    Cancel(Held, TaskId),
    /// A dead letter is open again: the index has to learn of it anew.
    Revived(Aggregate, TaskId, Micros),
    /// The worker shall drain.
    Drain(PoolId, WorkerId, IncarnationId),
}

/// The index.
#[derive(Debug, Default)]
pub struct Index {
    /// Tasks that have not ended.
    pub tasks: HashMap<TaskId, Open>,
    /// Workers, of all times.
    pub workers: HashMap<WorkerId, Known>,
    /// What waits.
    pub ready: Ready,
    /// Tasks that someone waits for, to whom something has happened.
    told: Vec<TaskId>,
}

impl Index {
    /// Starts from the views' rows.
    pub fn new(rows: Vec<Row>, workers: Vec<WorkerRow>) -> Self {
        let mut index = Self::default();
        for row in rows {
            let id = TaskId(row.id);
            let open = from_row(row);
            if let (State::Queued, Some(pool)) = (open.state, &open.pool) {
                index.ready.add(pool, open.waiting.clone());
            }
            index.tasks.insert(id, open);
        }
        for row in workers {
            if let (Ok(id), Ok(pool)) = (row.id.parse(), row.pool.parse()) {
                let (incarnation, since) = (IncarnationId(row.incarnation), row.started_at.into());
                let known = Known { pool, incarnation, state: row.state, since, capabilities: row.capabilities };
                index.workers.insert(id, known);
            }
        }
        index
    }

    /// Takes a task in as the log has it, unless it has ended.
    pub fn learn(&mut self, account: AccountId, id: TaskId, at: Micros, task: &Existing) {
        if task.state.is_terminal() {
            return;
        }
        let held = task.lease.as_ref().map(|lease| Held {
            epoch: lease.epoch,
            pool: lease.pool.clone(),
            worker: lease.worker.clone(),
            incarnation: lease.incarnation,
            expires_at: lease.expires_at,
        });
        let open = Open {
            state: task.state,
            pool: task.pool.clone(),
            waiting: Waiting {
                account,
                task: id,
                kind: task.kind.clone(),
                streaming: task.streaming,
                priority: task.priority,
                since: at,
                characters: 0,
            },
            waited_for: task.mode == Mode::Sync,
            idempotent: task.idempotent,
            cancel_waits: task.cancel_waits,
            start_deadline: task.start_deadline,
            retry_at: task.retry_at,
            lease: held,
            unknown_since: None,
        };
        if let (State::Queued, Some(pool)) = (open.state, &open.pool) {
            self.ready.add(pool, open.waiting.clone());
        }
        self.tasks.insert(id, open);
    }

    /// The tasks that someone waits for, to whom something has happened since the last call.
    pub fn told(&mut self) -> Vec<TaskId> {
        std::mem::take(&mut self.told)
    }

    /// Takes in that a lease was renewed.
    pub fn renewed(&mut self, id: TaskId, epoch: u64, until: Micros) {
        let held = self.tasks.get_mut(&id).and_then(|open| open.lease.as_mut());
        if let Some(held) = held.filter(|held| held.epoch == epoch) {
            held.expires_at = until;
        }
    }

    /// Whether a lease's incarnation is over.
    pub fn is_retired(&self, held: &Held) -> bool {
        let over = |known: &Known| known.incarnation != held.incarnation || matches!(known.state, worker::State::Lost | worker::State::Gone);
        self.workers.get(&held.worker).is_some_and(over)
    }

    /// Takes one event in.
    pub fn take(&mut self, recorded: &Recorded) -> Option<News> {
        match &recorded.fact {
            Fact::Task(event) => self.task(&recorded.aggregate, recorded.envelope.at, event),
            Fact::Worker(event) => self.worker(&recorded.aggregate, recorded.envelope.at, event),
            Fact::Account(_) | Fact::Conversation(_) | Fact::Pool(_) | Fact::Setting(_) | Fact::Upstream(_) | Fact::Workload(_) | Fact::Unknown => {
                None
            }
        }
    }

    fn worker(&mut self, aggregate: &Aggregate, at: Micros, event: &worker::Event) -> Option<News> {
        let id: WorkerId = aggregate.id.parse().ok()?;
        match event {
            worker::Event::Registered(fact) => {
                let (pool, capabilities) = (fact.pool.clone(), fact.capabilities.clone());
                let known = Known { pool, incarnation: fact.incarnation, state: worker::State::Ready, since: at, capabilities };
                self.workers.insert(id, known);
                None
            }
            worker::Event::Observed(fact) => {
                self.workers.get_mut(&id)?.state = fact.state;
                None
            }
            worker::Event::DrainRequested(fact) => {
                let known = self.workers.get_mut(&id)?;
                known.state = worker::State::Draining;
                Some(News::Drain(known.pool.clone(), id, fact.incarnation))
            }
            worker::Event::Retired(fact) => {
                self.workers.get_mut(&id)?.state = if fact.reason == "bye" { worker::State::Gone } else { worker::State::Lost };
                None
            }
        }
    }

    fn task(&mut self, aggregate: &Aggregate, at: Micros, event: &Event) -> Option<News> {
        let id: TaskId = aggregate.id.parse().ok()?;
        if let Event::Accepted(fact) = event {
            // The view may have been ahead of the position that we follow from.
            self.tasks.entry(id).or_insert_with(|| from_fact(aggregate.account, id, at, fact));
        }
        if matches!(event, Event::Revived(_)) {
            return Some(News::Revived(aggregate.clone(), id, at));
        }
        let open = self.tasks.get_mut(&id)?;
        let before = open.state;
        if let (State::Queued, Some(pool)) = (before, &open.pool) {
            self.ready.remove(pool, &open.waiting);
        }
        evolve(open, at, event);
        let open = open.clone();
        if open.waited_for {
            self.told.push(id);
        }
        if open.state.is_terminal() {
            self.tasks.remove(&id);
        }
        match (open.state, &open.pool) {
            (State::Queued, Some(pool)) => {
                self.ready.add(pool, open.waiting.clone());
                Some(News::Queued(pool.clone()))
            }
            (State::Executing, _) if matches!(event, Event::CancelRequested(_)) => Some(News::Cancel(open.lease?, id)),
            _ => None,
        }
    }
}

fn evolve(open: &mut Open, at: Micros, event: &Event) {
    match event {
        Event::Routed(fact) => open.pool = Some(fact.pool.clone()),
        Event::Rerouted(fact) => open.pool = Some(fact.pool.clone()),
        Event::RetryDue(fact) => open.pool = Some(fact.pool.clone()),
        Event::Leased(fact) => {
            open.lease = Some(Held {
                epoch: fact.epoch,
                pool: fact.pool.clone(),
                worker: fact.worker.clone(),
                incarnation: fact.incarnation,
                expires_at: fact.expires_at,
            });
        }
        Event::NotSent(fact) => open.retry_at = fact.retry_at,
        Event::UpstreamRejected(fact) => open.retry_at = fact.retry_at,
        Event::CancelRequested(fact) => open.cancel_waits = !fact.to.is_terminal(),
        Event::Accepted(_)
        | Event::RouteUnavailable(_)
        | Event::LeaseReleased(_)
        | Event::LeaseExpired(_)
        | Event::StartDeadlineExceeded(_)
        | Event::TokenRedeemed(_)
        | Event::SubmissionAcknowledged(_)
        | Event::Succeeded(_)
        | Event::Failed(_)
        | Event::Cancelled(_)
        | Event::LeaseLost(_)
        | Event::WorkerLost(_)
        | Event::SubmissionBecameUnknown(_)
        | Event::LateResult(_)
        | Event::StaleResultKept(_)
        | Event::Requeued(_)
        | Event::Resolved(_)
        | Event::Revived(_) => {}
    }
    let Some(to) = signalbox_domain::task::table::leads_to(event) else { return };
    if to == State::Queued && open.state != State::Queued {
        open.waiting.since = at;
    }
    if to == State::SubmissionUnknown && open.state != State::SubmissionUnknown {
        open.unknown_since = Some(at);
    }
    open.state = to;
}

fn from_fact(account: AccountId, id: TaskId, at: Micros, fact: &task::Accepted) -> Open {
    Open {
        state: fact.to,
        pool: fact.pool.clone(),
        waiting: Waiting {
            account,
            task: id,
            kind: fact.kind.clone(),
            streaming: fact.streaming,
            priority: fact.priority,
            since: at,
            characters: fact.payload.characters(),
        },
        waited_for: fact.mode == Mode::Sync,
        idempotent: fact.idempotent,
        cancel_waits: false,
        start_deadline: fact.start_deadline,
        retry_at: None,
        lease: None,
        unknown_since: None,
    }
}

fn from_row(row: Row) -> Open {
    let held = |row: &Row| {
        Some(Held {
            epoch: row.epoch?,
            pool: row.pool.as_ref()?.parse().ok()?,
            worker: row.worker.as_ref()?.parse().ok()?,
            incarnation: IncarnationId(row.incarnation?),
            expires_at: row.lease_expires_at?.into(),
        })
    };
    Open {
        state: row.state,
        pool: row.pool.as_ref().and_then(|pool| pool.parse().ok()),
        waited_for: row.mode == Mode::Sync,
        idempotent: row.idempotent,
        cancel_waits: row.cancel_waits,
        start_deadline: row.start_deadline.map(Into::into),
        retry_at: row.retry_at.map(Into::into),
        lease: held(&row),
        unknown_since: row.unknown_since.map(Into::into),
        waiting: Waiting {
            account: AccountId(row.account),
            task: TaskId(row.id),
            kind: row.kind,
            streaming: row.streaming,
            priority: row.priority,
            since: row.queued_at.unwrap_or(row.accepted_at).into(),
            characters: row.payload_characters,
        },
    }
}
