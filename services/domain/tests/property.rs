//! Random histories of tasks through the shipped rules: what must hold of each, whatever is asked, by whom, and when.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use signalbox_domain::task::{
    Accept, Acknowledge, BecomeUnknown, Cancel, Command, End, Ending, Expire, Grant, Holder, NotSent, Redeem, Reject, Release, Requeue, Reroute,
    Resolve, RetryDue, Revive, Route, RouteFailed, StartDeadline, State, Task, invariant,
};
use signalbox_domain::{Context, Decider};
use signalbox_events::task::{Event, Mode, Resolution, RunMode, State as Phase};
use signalbox_events::{IncarnationId, Micros, PrincipalId};
use uuid::Uuid;

const TTL: i64 = 30_000_000;
const HISTORIES: u64 = 4_000;
const STEPS: usize = 60;

/// The same sequence for the same seed (splitmix64).
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % below
    }

    fn chance(&mut self, of: u64) -> bool {
        self.roll(of) == 0
    }
}

/// A task with its whole history, and a clock.
struct History {
    state: State,
    events: Vec<Event>,
    now: i64,
    random: u64,
}

impl History {
    fn new() -> Self {
        Self { state: None, events: vec![], now: 1_700_000_000_000_000, random: 0 }
    }

    fn context(&self) -> Context {
        let mut random = [0; 32];
        random[..8].copy_from_slice(&self.random.to_be_bytes());
        let now = chrono::DateTime::from_timestamp_micros(self.now).unwrap();
        Context { now, id: Uuid::from_u128(9), random, digest_key: [0; 32] }
    }

    /// Asks; a fact that comes of it is checked and taken in.
    fn ask(&mut self, command: &Command) -> Option<Event> {
        self.random += 1;
        let event = Task::decide(&self.state, command, &self.context()).ok()??;
        self.holder_alone(command, &event);
        Task::evolve(&mut self.state, &event);
        self.events.push(event.clone());
        Some(event)
    }

    /// I7 and I8: only the holder redeems, in time on one clock; what is said of a lease is said by its holder.
    fn holder_alone(&self, command: &Command, event: &Event) {
        let lease = self.state.as_ref().and_then(|task| task.lease.as_ref());
        match (command, event) {
            (Command::Redeem(asked), Event::TokenRedeemed(_)) => {
                let lease = lease.unwrap();
                let theirs = (&asked.worker, asked.incarnation, &asked.pool, asked.token_hash, asked.epoch);
                assert_eq!(theirs, (&lease.worker, lease.incarnation, &lease.pool, lease.token_hash, lease.epoch), "I7");
                assert!(self.now < lease.expires_at.0.max(asked.renewed_until.map_or(0, |until| until.0)), "I8");
            }
            (Command::End(End { holder, .. }), Event::Succeeded(_) | Event::Failed(_) | Event::Cancelled(_) | Event::LateResult(_))
            | (Command::NotSent(NotSent { holder, .. }), _)
            | (Command::Reject(Reject { holder, .. }), _)
            | (Command::Release(Release { holder, .. }), _) => {
                let lease = lease.unwrap();
                assert_eq!((holder.epoch, &holder.worker, holder.incarnation), (lease.epoch, &lease.worker, lease.incarnation), "I7");
            }
            _ => {}
        }
    }

    fn phase(&self) -> Option<Phase> {
        self.state.as_ref().map(|task| task.state)
    }
}

fn accept(dice: &mut Dice) -> Accept {
    Accept {
        owner: PrincipalId(Uuid::from_u128(1)),
        owner_name: "Ada".to_owned(),
        kind: if dice.chance(4) { "embeddings" } else { "chat.completions" }.to_owned(),
        payload: "{}".to_owned(),
        canonical: "{}".to_owned(),
        mode: if dice.chance(4) { Mode::Sync } else { Mode::Async },
        run_mode: RunMode::Live,
        priority: 5,
        streaming: false,
        target: None,
        wanted_pool: None,
        pool: (!dice.chance(5)).then(|| "eu".parse().unwrap()),
        start_deadline: dice.chance(5).then_some(Micros(1_700_000_000_000_000 + 90_000_000)),
    }
}

/// Whose lease a worker believes to hold: often the last one, sometimes an older one, sometimes another's.
fn holder(history: &History, dice: &mut Dice) -> Holder {
    let last = history.state.as_ref().and_then(|task| task.lease.as_ref());
    if let Some(past) = history.state.as_ref().and_then(|task| task.past.last()).filter(|_| dice.chance(4)) {
        return Holder { epoch: past.epoch, worker: worker(dice), incarnation: past.incarnation };
    }
    let epoch = match last {
        Some(lease) if !dice.chance(5) => lease.epoch,
        _ => 1 + dice.roll(12),
    };
    match last {
        Some(lease) if !dice.chance(5) => Holder { epoch, worker: lease.worker.clone(), incarnation: lease.incarnation },
        _ => Holder { epoch, worker: worker(dice), incarnation: incarnation(dice) },
    }
}

fn pool(dice: &mut Dice) -> signalbox_events::PoolId {
    ["eu", "us"][usize::try_from(dice.roll(2)).unwrap()].parse().unwrap()
}

fn worker(dice: &mut Dice) -> signalbox_events::WorkerId {
    format!("w{}", dice.roll(2)).parse().unwrap()
}

fn incarnation(dice: &mut Dice) -> IncarnationId {
    IncarnationId(Uuid::from_u128(100 + u128::from(dice.roll(3))))
}

/// `losing`: nothing but leases that are given back, up to dead letters.
fn any_command(history: &History, dice: &mut Dice, losing: bool) -> Command {
    let code = "some_code".to_owned();
    let lease = history.state.as_ref().and_then(|task| task.lease.clone());
    let roll = if losing { [3, 9, 17][usize::try_from(dice.roll(3)).unwrap()] } else { dice.roll(20) };
    match roll {
        0 => accept(dice).into(),
        1 => Route { pool: "eu".parse().unwrap(), reason: "x".to_owned() }.into(),
        2 if dice.chance(4) => RouteFailed { reason: "no_eligible_pool".to_owned(), retry_after_seconds: 1 }.into(),
        2 => Reroute { pool: pool(dice), reason: "x".to_owned() }.into(),
        3..=5 => {
            let mut token_hash = [0; 32];
            token_hash[..8].copy_from_slice(&history.random.to_be_bytes());
            let pool = history.state.as_ref().and_then(|task| task.pool.clone()).unwrap_or_else(|| pool(dice));
            Grant { pool, worker: worker(dice), incarnation: incarnation(dice), token_hash, ttl: TTL }.into()
        }
        6..=8 => {
            let Holder { epoch, worker, incarnation } = holder(history, dice);
            let token_hash = lease.as_ref().filter(|_| !dice.chance(6)).map_or([7; 32], |lease| lease.token_hash);
            let renewed_until = dice.chance(3).then_some(Micros(history.now + TTL));
            let nonce = Uuid::from_u128(u128::from(dice.roll(3)));
            let pool = lease.as_ref().filter(|_| !dice.chance(6)).map_or_else(|| pool(dice), |lease| lease.pool.clone());
            Redeem { token_hash, epoch, pool, worker, incarnation, nonce, renewed_until }.into()
        }
        9 => Release { holder: holder(history, dice), reason: "drained".to_owned() }.into(),
        10 => {
            let epoch = holder(history, dice).epoch;
            Expire { epoch, renewed_until: dice.chance(3).then_some(Micros(history.now + TTL)), retired: dice.chance(3) }.into()
        }
        11 => Acknowledge { holder: holder(history, dice), upstream_id: format!("u{}", dice.roll(2)) }.into(),
        12 => NotSent { holder: holder(history, dice), code, retryable: !dice.chance(4) }.into(),
        13 => {
            let (upstream_status, retryable) = (Some(429), !dice.chance(4));
            Reject { holder: holder(history, dice), code, upstream_status, retryable, retry_after_seconds: None, detail: None }.into()
        }
        14 => {
            let ending = match dice.roll(3) {
                0 => Ending::Succeeded { result: "{}".to_owned() },
                1 => Ending::Failed { code, upstream_status: None, partial: None, detail: None },
                _ => Ending::Cancelled { partial: None },
            };
            End { holder: holder(history, dice), ending, usage: None }.into()
        }
        15 => BecomeUnknown { holder: holder(history, dice), code, partial: None }.into(),
        16 => RetryDue {}.into(),
        17 => match dice.roll(3) {
            0 => StartDeadline {}.into(),
            1 => Requeue {}.into(),
            _ => Revive { reason: "mended".to_owned() }.into(),
        },
        18 if dice.chance(4) => Cancel {}.into(),
        18 => RetryDue {}.into(),
        _ => {
            let all = Resolution::ALL;
            let resolution = all[usize::try_from(dice.roll(all.len() as u64)).unwrap()];
            let result = (resolution == Resolution::Succeeded).then(|| "{}".to_owned());
            Resolve { resolution, reason: "asked".to_owned(), result }.into()
        }
    }
}

/// Commands that come again when an answer was lost: the second one must add nothing.
fn repeats(command: &Command) -> bool {
    match command {
        Command::Accept(_)
        | Command::Redeem(_)
        | Command::Release(_)
        | Command::Expire(_)
        | Command::Acknowledge(_)
        | Command::NotSent(_)
        | Command::Reject(_)
        | Command::End(_)
        | Command::BecomeUnknown(_)
        | Command::RetryDue(_)
        | Command::StartDeadline(_)
        | Command::Requeue(_)
        | Command::Resolve(_)
        | Command::Cancel(_)
        | Command::Revive(_)
        | Command::Grant(_)
        | Command::Route(_)
        | Command::RouteFailed(_) => true,
        Command::Reroute(_) => false,
    }
}

#[test]
fn whatever_is_asked_the_invariants_hold() {
    let mut facts = std::collections::BTreeMap::<&'static str, u64>::new();
    for seed in 0..HISTORIES {
        let mut dice = Dice(seed);
        let mut history = History::new();
        let first = history.ask(&accept(&mut dice).into()).unwrap();
        *facts.entry(first.type_name()).or_default() += 1;
        let losing = seed % 16 == 0;
        for _ in 0..if losing { STEPS * 5 } else { STEPS } {
            if dice.chance(3) {
                history.now += i64::try_from(dice.roll(40)).unwrap() * 1_000_000;
            }
            let command = any_command(&history, &mut dice, losing);
            let Some(event) = history.ask(&command) else { continue };
            *facts.entry(event.type_name()).or_default() += 1;
            // I14: the same command again adds nothing.
            if repeats(&command) {
                let again = history.ask(&command);
                assert_eq!(again, None, "seed {seed}: {command:?} states twice: {event:?}");
            }
            // I1 to I6 and I9, from the facts alone; I13: the state is the fold of the facts.
            invariant::check(&history.events).unwrap_or_else(|violation| panic!("seed {seed}: {violation}\n{:#?}", history.events));
            let folded = history.events.iter().fold(None, |mut state, event| {
                Task::evolve(&mut state, event);
                state
            });
            assert_eq!(folded, history.state, "seed {seed}");
        }
    }
    // The walk reaches every fact that there is: what is never stated is not checked.
    let missing: Vec<_> = Event::TYPES.iter().filter(|(name, _)| !facts.contains_key(name)).collect();
    assert!(missing.is_empty(), "never stated: {missing:?}");
}

/// I12: nothing is stuck. Time, the sweeper and one good worker bring every task to its end, or to an operator.
#[test]
fn every_task_comes_to_an_end() {
    for seed in 0..HISTORIES / 4 {
        let mut dice = Dice(seed ^ 0xdead_beef);
        let mut history = History::new();
        history.ask(&accept(&mut dice).into());
        for _ in 0..dice.roll(40) {
            let command = any_command(&history, &mut dice, false);
            history.ask(&command);
        }
        for step in 0.. {
            assert!(step < 200, "seed {seed}: {:?} is stuck", history.state);
            history.now += 3_600_000_000;
            let Some(task) = history.state.clone() else { break };
            let epoch = task.lease.as_ref().map_or(0, |lease| lease.epoch);
            let sweeps: [Command; 5] = [
                Route { pool: "eu".parse().unwrap(), reason: "default_pool".to_owned() }.into(),
                StartDeadline {}.into(),
                RetryDue {}.into(),
                Expire { epoch, renewed_until: None, retired: false }.into(),
                Requeue {}.into(),
            ];
            for sweep in &sweeps {
                history.ask(sweep);
            }
            if history.phase().is_some_and(|phase| phase.is_terminal() || phase == Phase::SubmissionUnknown) {
                break;
            }
            let mut token_hash = [1; 32];
            token_hash[..8].copy_from_slice(&history.random.to_be_bytes());
            let (worker, incarnation): (signalbox_events::WorkerId, _) = ("good".parse().unwrap(), IncarnationId(Uuid::from_u128(7)));
            let pool: signalbox_events::PoolId = "eu".parse().unwrap();
            let pool = history.state.as_ref().and_then(|task| task.pool.clone()).unwrap_or(pool);
            history.ask(&Grant { pool: pool.clone(), worker: worker.clone(), incarnation, token_hash, ttl: TTL }.into());
            let Some(lease) = history.state.as_ref().and_then(|task| task.live_lease().cloned()) else { continue };
            let holder = Holder { epoch: lease.epoch, worker: worker.clone(), incarnation };
            let nonce = Uuid::from_u128(1);
            history.ask(&Redeem { token_hash, epoch: lease.epoch, pool, worker, incarnation, nonce, renewed_until: None }.into());
            history.ask(&End { holder, ending: Ending::Succeeded { result: "{}".to_owned() }, usage: None }.into());
        }
        invariant::check(&history.events).unwrap();
    }
}

/// A checker that finds nothing is worth nothing: each rule is broken once on purpose.
#[test]
fn the_checker_finds_broken_histories() {
    let mut dice = Dice(1);
    let mut history = History::new();
    history.ask(&Accept { pool: Some("eu".parse().unwrap()), kind: "chat.completions".to_owned(), ..accept(&mut dice) }.into());
    let granted = |token: u8| -> Command {
        let (worker, incarnation) = ("w0".parse().unwrap(), IncarnationId(Uuid::from_u128(100)));
        Grant { pool: "eu".parse().unwrap(), worker, incarnation, token_hash: [token; 32], ttl: TTL }.into()
    };
    history.ask(&granted(1)).unwrap();
    let lease = history.state.as_ref().unwrap().lease.clone().unwrap();
    let redeem = Redeem {
        token_hash: [1; 32],
        epoch: lease.epoch,
        pool: lease.pool.clone(),
        worker: lease.worker.clone(),
        incarnation: lease.incarnation,
        nonce: Uuid::nil(),
        renewed_until: None,
    };
    history.ask(&redeem.into()).unwrap();
    let facts = history.events.clone();
    let with = |more: Vec<Event>| invariant::check(&[facts.clone(), more].concat()).map_err(|violation| violation.rule);
    use signalbox_events::task::{CancelRequested, LeaseExpired, LeaseLost, NotSent as NotSentFact, RetryDue as Due, Succeeded};
    let back: Event = LeaseExpired { epoch: 2, reason: "expired".to_owned(), to: Phase::Queued }.into();
    assert_eq!(with(vec![]), Ok(()));
    assert_eq!(with(vec![facts[2].clone()]), Err("I1"));
    assert_eq!(with(vec![facts[1].clone()]), Err("I2"));
    assert_eq!(with(vec![back]), Err("I4"));
    let done: Event = Succeeded { epoch: 2, result: "{}".into(), usage: None }.into();
    assert_eq!(with(vec![done.clone(), done.clone()]), Err("I5"));
    assert_eq!(with(vec![LeaseLost { epoch: 1 }.into()]), Err("I6"));
    let waits: Event = CancelRequested { to: Phase::Executing }.into();
    let refused: Event = NotSentFact { epoch: 2, code: "x".to_owned(), to: Phase::RetryWait, retry_at: None }.into();
    let due: Event = Due { pool: "eu".parse().unwrap() }.into();
    let Event::Leased(mut again) = facts[1].clone() else { panic!("another fact") };
    (again.epoch, again.token_hash) = (7, [2; 32]);
    assert_eq!(with(vec![waits, refused.clone(), due.clone(), again.clone().into()]), Err("I9"));
    (again.epoch, again.token_hash) = (6, [1; 32]);
    assert_eq!(with(vec![refused, due, again.into()]), Err("I1"));
}
