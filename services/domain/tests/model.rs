//! Explores the shipped rules of tasks: two workers, expiry at any moment, crashes with the token on disk, lost answers,
//! late and repeated reports, cancels and an operator. Three planted mutants show that the search would find a mistake.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use signalbox_domain::task::{
    Accept, Cancel, Command, End, Ending, Expire, Grant, Holder, NotSent, Redeem, Reject, Release, Resolve, RetryDue, State, Task, table,
};
use signalbox_domain::{Context, Decider};
use signalbox_events::task::{Event, LeaseExpired, Mode, Resolution, RunMode, State as Phase};
use signalbox_events::{IncarnationId, Micros, PrincipalId};
use stateright::{Checker, Model, Property};
use std::collections::BTreeSet;
use uuid::Uuid;

/// Seconds of one tick; a lease lives for half of one.
const TICK: i64 = 100;
const TTL: i64 = 50_000_000;

/// Which rules are explored.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Law {
    /// Those that ship.
    Shipped,
    /// An expired lease goes back into the queue although its token was redeemed.
    RequeueAfterRedemption,
    /// A time-out of the queue is the lease: whoever was ever given the task may go on.
    AckWaitAsLease,
    /// Whoever has the token may redeem it again.
    RedeemWithoutNonce,
}

/// A worker: what its disk keeps over a crash, and what its memory does not.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
struct Worker {
    /// The epoch of the token on disk.
    token: Option<u64>,
    /// Runs of the process so far: each makes a nonce of its own.
    run: u8,
    /// The epoch whose redemption was answered in this run.
    redeemed: Option<u64>,
    /// Whether this run has sent it.
    sent: bool,
}

/// The world, with the ledger of what was paid that the rules do not see.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct World {
    task: State,
    ticks: u8,
    workers: [Worker; 2],
    /// Requests that reached the upstream.
    submissions: u8,
    /// Requests that may reach it: one, and one more for each piece of evidence or word of an operator.
    allowed: u8,
    redeemed: BTreeSet<u64>,
    /// Redeemed, with neither evidence nor an operator since.
    in_doubt: bool,
    /// The first invariant that was broken.
    broken: Option<&'static str>,
}

#[derive(Debug, Clone, PartialEq)]
enum Action {
    Tick,
    Grant(usize),
    /// The answer arrives, or is lost.
    Redeem(usize, bool),
    Crash(usize),
    Send(usize),
    /// Each report may be lost on its way back, and is then repeated.
    NotSent(usize, bool),
    Rejected(usize, bool),
    Succeed(usize, bool),
    Release(usize),
    Expire,
    Retire,
    RetryDue,
    Cancel,
    Resolve(Resolution),
}

struct Exploration(Law);

fn context(ticks: u8) -> Context {
    let now = chrono::DateTime::from_timestamp(1_700_000_000 + i64::from(ticks) * TICK, 0).unwrap();
    Context { now, id: Uuid::from_u128(9), random: [0; 32], digest_key: [0; 32] }
}

fn holder(worker: usize, epoch: u64) -> Holder {
    let Grant { worker, incarnation, .. } = grant(worker, epoch);
    Holder { epoch, worker, incarnation }
}

fn grant(worker: usize, epoch: u64) -> Grant {
    Grant {
        pool: "eu".parse().unwrap(),
        worker: format!("w{worker}").parse().unwrap(),
        incarnation: IncarnationId(Uuid::from_u128(worker as u128)),
        token_hash: [u8::try_from(epoch).unwrap(); 32],
        ttl: TTL,
    }
}

impl World {
    /// Carries a command out; whether it was accepted.
    fn execute(&mut self, law: Law, command: impl Into<Command>) -> bool {
        let command = command.into();
        let Ok(event) = decide(law, &self.task, &command, &context(self.ticks)) else { return false };
        if let Some(event) = event {
            self.check(&event);
            Task::evolve(&mut self.task, &event);
        }
        true
    }

    fn breaks(&mut self, invariant: &'static str) {
        self.broken.get_or_insert(invariant);
    }

    fn check(&mut self, event: &Event) {
        let Some(task) = self.task.clone() else { return };
        let to = table::leads_to(event);
        if task.state.is_terminal() && to.is_some() && table::fact_name(event) != "revived" {
            self.breaks("I5: a terminal state has a successor");
        }
        match event {
            Event::Leased(fact) => {
                if task.live_lease().is_some() {
                    self.breaks("I2: two live leases");
                }
                if task.lease.as_ref().is_some_and(|last| last.epoch >= fact.epoch) {
                    self.breaks("I6: an epoch does not rise");
                }
                if task.cancel_waits || task.state == Phase::Cancelled {
                    self.breaks("I9: a lease after a cancel");
                }
            }
            Event::TokenRedeemed(fact) => {
                if !self.redeemed.insert(fact.epoch) {
                    self.breaks("I1: an epoch is redeemed twice");
                }
                if task.cancel_waits || task.state == Phase::Cancelled {
                    self.breaks("I9: a redemption after a cancel");
                }
                let expired = task.lease.as_ref().is_none_or(|lease| Micros::from(context(self.ticks).now) >= lease.expires_at);
                if expired {
                    self.breaks("I8: redeemed after expiry");
                }
                self.in_doubt = true;
            }
            Event::NotSent(_) | Event::UpstreamRejected(_) => {
                self.allowed += 1;
                self.in_doubt = false;
            }
            Event::Resolved(fact) => {
                if fact.to == Phase::Queued {
                    self.allowed += 1;
                }
                self.in_doubt = false;
            }
            _ => {}
        }
        if to == Some(Phase::Queued) && self.in_doubt {
            self.breaks("I4: queued although it may have been sent");
        }
    }
}

/// The shipped rules, or a mutant of them.
fn decide(law: Law, task: &State, command: &Command, ctx: &Context) -> Result<Option<Event>, ()> {
    let shipped = || Task::decide(task, command, ctx).map_err(|_| ());
    match (law, command, task) {
        (Law::RequeueAfterRedemption, Command::Expire(expire), Some(found)) if found.state == Phase::Executing && expire.epoch > 0 => {
            Ok(Some(LeaseExpired { epoch: expire.epoch, reason: "expired".to_owned(), to: Phase::Queued }.into()))
        }
        // The queue hands the message to the next, and nothing fences the one before.
        (Law::AckWaitAsLease, Command::Redeem(redeem), Some(found)) if found.past.iter().any(|past| past.token_hash == redeem.token_hash) => Ok(None),
        (Law::RedeemWithoutNonce, Command::Redeem(redeem), Some(found)) if found.state == Phase::Executing => {
            let theirs = found.lease.as_ref().is_some_and(|lease| lease.token_hash == redeem.token_hash);
            if theirs { Ok(None) } else { shipped() }
        }
        _ => shipped(),
    }
}

impl Model for Exploration {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        let accept = Accept {
            owner: PrincipalId(Uuid::from_u128(1)),
            owner_name: "Ada".to_owned(),
            kind: "chat.completions".to_owned(),
            payload: "{}".to_owned(),
            canonical: "{}".to_owned(),
            mode: Mode::Async,
            run_mode: RunMode::Live,
            priority: 5,
            streaming: false,
            target: None,
            wanted_pool: None,
            pool: Some("eu".parse().unwrap()),
            start_deadline: None,
        };
        let mut world = World {
            task: None,
            ticks: 0,
            workers: Default::default(),
            submissions: 0,
            allowed: 1,
            redeemed: BTreeSet::new(),
            in_doubt: false,
            broken: None,
        };
        assert!(world.execute(Law::Shipped, accept));
        vec![world]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        actions.extend([Action::Tick, Action::Expire, Action::Retire, Action::RetryDue, Action::Cancel]);
        actions.extend([Resolution::AcceptDuplicate, Resolution::Failed].map(Action::Resolve));
        for worker in 0..world.workers.len() {
            actions.extend([Action::Grant(worker), Action::Crash(worker), Action::Send(worker), Action::Release(worker)]);
            for heard in [true, false] {
                actions.extend([
                    Action::Redeem(worker, heard),
                    Action::NotSent(worker, heard),
                    Action::Rejected(worker, heard),
                    Action::Succeed(worker, heard),
                ]);
            }
        }
    }

    fn next_state(&self, last: &World, action: Action) -> Option<World> {
        let mut world = last.clone();
        let law = self.0;
        let task = last.task.as_ref()?;
        let current = task.lease.as_ref().map_or(0, |lease| lease.epoch);
        match action {
            Action::Tick => world.ticks += 1,
            Action::Grant(worker) => {
                let epoch = task.version + 1;
                if !world.execute(law, grant(worker, epoch)) {
                    return None;
                }
                let run = world.workers[worker].run;
                world.workers[worker] = Worker { token: Some(epoch), run, redeemed: None, sent: false };
            }
            Action::Redeem(worker, heard) => {
                let epoch = world.workers[worker].token?;
                let Grant { pool, worker: name, incarnation, token_hash, .. } = grant(worker, epoch);
                let nonce = Uuid::from_u128(u128::from(world.workers[worker].run) + 1);
                let redeem = Redeem { token_hash, epoch, pool, worker: name, incarnation, nonce, renewed_until: None };
                if !world.execute(law, redeem) {
                    return None;
                }
                if heard {
                    world.workers[worker].redeemed = Some(epoch);
                }
            }
            Action::Crash(worker) => {
                let Worker { token, run, .. } = world.workers[worker];
                world.workers[worker] = Worker { token, run: run + 1, redeemed: None, sent: false };
            }
            Action::Send(worker) => {
                let state = &mut world.workers[worker];
                if state.redeemed.is_none() || state.sent {
                    return None;
                }
                state.sent = true;
                world.submissions += 1;
            }
            Action::NotSent(worker, heard) => {
                let state = &world.workers[worker];
                let epoch = state.redeemed.filter(|_| !state.sent)?;
                let command = NotSent { holder: holder(worker, epoch), code: "connect_failed".to_owned(), retryable: true };
                report(&mut world, law, worker, command, heard)?;
            }
            Action::Rejected(worker, heard) => {
                let state = &world.workers[worker];
                let epoch = state.redeemed.filter(|_| state.sent)?;
                let holder = holder(worker, epoch);
                let command = Reject {
                    holder,
                    code: "rate_limited".to_owned(),
                    upstream_status: Some(429),
                    retryable: true,
                    retry_after_seconds: None,
                    detail: None,
                };
                report(&mut world, law, worker, command, heard)?;
            }
            Action::Succeed(worker, heard) => {
                let state = &world.workers[worker];
                let epoch = state.redeemed.filter(|_| state.sent)?;
                let command = End { holder: holder(worker, epoch), ending: Ending::Succeeded { result: "{}".to_owned() }, usage: None };
                report(&mut world, law, worker, command, heard)?;
            }
            Action::Release(worker) => {
                let epoch = world.workers[worker].token?;
                if !world.execute(law, Release { holder: holder(worker, epoch), reason: "drained".to_owned() }) {
                    return None;
                }
            }
            Action::Expire | Action::Retire => {
                let expire = Expire { epoch: current, renewed_until: None, retired: action == Action::Retire };
                if !world.execute(law, expire) {
                    return None;
                }
            }
            Action::RetryDue => {
                if !world.execute(law, RetryDue {}) {
                    return None;
                }
            }
            Action::Cancel => {
                if !world.execute(law, Cancel {}) {
                    return None;
                }
            }
            Action::Resolve(resolution) => {
                if !world.execute(law, Resolve { resolution, reason: "asked".to_owned(), result: None }) {
                    return None;
                }
            }
        }
        Some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("each step keeps the invariants", |_: &Self, world: &World| world.broken.is_none()),
            Property::always("I3: no more submissions than are allowed", |_: &Self, world: &World| world.submissions <= world.allowed),
            Property::sometimes("a task succeeds", |_: &Self, world: &World| at(world, Phase::Succeeded)),
            Property::sometimes("a task fails", |_: &Self, world: &World| at(world, Phase::Failed)),
            Property::sometimes("a task is cancelled", |_: &Self, world: &World| at(world, Phase::Cancelled)),
            Property::sometimes("a submission becomes unknown", |_: &Self, world: &World| at(world, Phase::SubmissionUnknown)),
            Property::sometimes("a task is sent twice because an operator said so", |_: &Self, world: &World| world.submissions == 2),
        ]
    }

    fn within_boundary(&self, world: &World) -> bool {
        let task = world.task.as_ref().expect("a task");
        task.version <= 8 && world.ticks <= 2 && world.workers.iter().all(|worker| worker.run <= 1)
    }
}

/// A report whose holder forgets the lease once it has heard the answer.
fn report(world: &mut World, law: Law, worker: usize, command: impl Into<Command>, heard: bool) -> Option<()> {
    let accepted = world.execute(law, command);
    if !accepted && !heard {
        return None;
    }
    if heard {
        let run = world.workers[worker].run;
        world.workers[worker] = Worker { run, ..Worker::default() };
    }
    Some(())
}

fn at(world: &World, phase: Phase) -> bool {
    world.task.as_ref().is_some_and(|task| task.state == phase)
}

#[test]
fn the_shipped_rules_keep_every_invariant() {
    let checker = Exploration(Law::Shipped).checker().threads(2).spawn_bfs().join();
    checker.assert_properties();
    println!("{} states, {} of them distinct", checker.state_count(), checker.unique_state_count());
    assert!(checker.unique_state_count() > 10_000, "the search is too narrow: {}", checker.unique_state_count());
}

#[test]
fn the_planted_mutants_are_found() {
    let found = |law: Law, property: &'static str| {
        let checker = Exploration(law).checker().threads(2).spawn_bfs().join();
        checker.discovery(property).is_some()
    };
    assert!(found(Law::RequeueAfterRedemption, "each step keeps the invariants"));
    assert!(found(Law::AckWaitAsLease, "I3: no more submissions than are allowed"));
    assert!(found(Law::RedeemWithoutNonce, "I3: no more submissions than are allowed"));
}
