//! Every step of the transition table, taken once by the rules; and what the rules refuse.

use super::table::{TRANSITIONS, fact_name, leads_to};
use super::{
    Accept, Acknowledge, BecomeUnknown, Cancel, Command, End, Ending, Expire, Grant, Holder, MOST_LEASES, MOST_RETRIES, NotSent, Redeem, Reject,
    Release, Requeue, Reroute, Resolve, RetryDue, Revive, Route, RouteFailed, StartDeadline, Task,
};
use crate::Code;
use crate::given::{Given, context, given};
use signalbox_events::task::{Event, Mode, Resolution, RunMode, State};
use signalbox_events::{IncarnationId, Micros, PrincipalId};
use std::collections::BTreeSet;
use uuid::Uuid;

/// Microseconds that a lease lives.
const TTL: i64 = 30_000_000;
const NONCE: Uuid = Uuid::from_u128(5);
const OTHER_NONCE: Uuid = Uuid::from_u128(6);

fn now() -> i64 {
    Micros::from(context().now).0
}

pub fn accept() -> Accept {
    Accept {
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
        start_deadline: Some(Micros(now() + 60_000_000)),
    }
}

/// A step: what is asked, after so many seconds, leads here.
type Step = (i64, Command);

/// Takes steps that must each state a fact.
fn after(mut past: Given<Task>, steps: impl IntoIterator<Item = Step>) -> Given<Task> {
    for (seconds, command) in steps {
        let event = past.when_later(seconds, command).fact();
        past = past.event(event);
    }
    past
}

fn incarnation(number: u128) -> IncarnationId {
    IncarnationId(Uuid::from_u128(100 + number))
}

/// A grant to the only worker; `number` makes the incarnation and the token.
fn grant(number: u8) -> Grant {
    Grant {
        pool: "eu".parse().unwrap(),
        worker: "gpu-01".parse().unwrap(),
        incarnation: incarnation(u128::from(number)),
        token_hash: [number; 32],
        ttl: TTL,
    }
}

fn holder(epoch: u64, number: u8) -> Holder {
    Holder { epoch, worker: "gpu-01".parse().unwrap(), incarnation: incarnation(u128::from(number)) }
}

fn redeem(epoch: u64, number: u8, nonce: Uuid) -> Redeem {
    let Grant { pool, worker, incarnation, token_hash, .. } = grant(number);
    Redeem { token_hash, epoch, pool, worker, incarnation, nonce, renewed_until: None }
}

pub fn queued() -> Given<Task> {
    after(given::<Task>(), [(0, accept().into())])
}
fn accepted() -> Given<Task> {
    after(given::<Task>(), [(0, Accept { pool: None, ..accept() }.into())])
}
/// Epoch 2, incarnation 1.
fn leased() -> Given<Task> {
    after(queued(), [(0, grant(1).into())])
}
fn executing() -> Given<Task> {
    after(leased(), [(0, redeem(2, 1, NONCE).into())])
}
fn unknown() -> Given<Task> {
    after(executing(), [(31, expire(2).into())])
}
fn retry_wait() -> Given<Task> {
    after(executing(), [(0, not_sent(2, true).into())])
}
fn cancelling(past: Given<Task>) -> Given<Task> {
    after(past, [(0, Cancel {}.into())])
}
fn expire(epoch: u64) -> Expire {
    Expire { epoch, renewed_until: None, retired: false }
}
fn not_sent(epoch: u64, retryable: bool) -> NotSent {
    NotSent { holder: holder(epoch, 1), code: "connect_failed".to_owned(), retryable }
}
fn reject(epoch: u64, retryable: bool) -> Reject {
    Reject {
        holder: holder(epoch, 1),
        code: "rate_limited".to_owned(),
        upstream_status: Some(429),
        retryable,
        retry_after_seconds: None,
        detail: None,
    }
}
fn release(epoch: u64) -> Release {
    Release { holder: holder(epoch, 1), reason: "drained".to_owned() }
}
fn end(ending: Ending) -> End {
    End { holder: holder(2, 1), ending, usage: None }
}
fn succeed() -> End {
    end(Ending::Succeeded { result: "{\"a\":1}".to_owned() })
}
fn fail() -> End {
    end(Ending::Failed { code: "upstream_disconnected".to_owned(), upstream_status: None, partial: Some("a".to_owned()), detail: None })
}
fn cancelled() -> End {
    end(Ending::Cancelled { partial: None })
}
fn become_unknown() -> BecomeUnknown {
    BecomeUnknown { holder: holder(2, 1), code: "reset".to_owned(), partial: None }
}
fn resolve(resolution: Resolution) -> Resolve {
    let result = (resolution == Resolution::Succeeded).then(|| "{}".to_owned());
    Resolve { resolution, reason: "asked the provider".to_owned(), result }
}

/// Leased for the last time that it may be.
fn last_lease() -> Given<Task> {
    let mut past = leased();
    for _ in 1..MOST_LEASES {
        let epoch = past.state().as_ref().unwrap().lease.as_ref().unwrap().epoch;
        past = after(past, [(0, release(epoch).into()), (0, grant(1).into())]);
    }
    past
}

/// Executing for the last time that it may be refused.
fn last_try() -> (Given<Task>, u64) {
    let mut past = executing();
    loop {
        let task = past.state().as_ref().unwrap();
        let epoch = task.lease.as_ref().unwrap().epoch;
        if task.retries + 1 == MOST_RETRIES {
            return (past, epoch);
        }
        past = after(past, [(0, not_sent(epoch, true).into()), (99, RetryDue {}.into()), (0, grant(1).into())]);
        let epoch = past.state().as_ref().unwrap().lease.as_ref().unwrap().epoch;
        past = after(past, [(0, redeem(epoch, 1, NONCE).into())]);
    }
}

fn dead_lettered() -> Given<Task> {
    let past = last_lease();
    let epoch = past.state().as_ref().unwrap().lease.as_ref().unwrap().epoch;
    after(past, [(0, release(epoch).into())])
}

/// Each: a past, and a step from it.
fn every_step() -> Vec<(Given<Task>, Step)> {
    let idempotent = || after(given::<Task>(), [(0, Accept { kind: "embeddings".to_owned(), ..accept() }.into())]);
    let idempotent = after(idempotent(), [(0, grant(1).into()), (0, redeem(2, 1, NONCE).into()), (31, expire(2).into())]);
    let last_epoch = |past: &Given<Task>| past.state().as_ref().unwrap().lease.as_ref().unwrap().epoch;
    let (refused, refused_epoch) = last_try();
    let (unsent, unsent_epoch) = last_try();
    let epoch = last_epoch(&last_lease());
    let route = || Route { pool: "eu".parse().unwrap(), reason: "default_pool".to_owned() };
    vec![
        (given::<Task>(), (0, accept().into())),
        (given::<Task>(), (0, Accept { pool: None, ..accept() }.into())),
        (accepted(), (0, route().into())),
        (accepted(), (0, RouteFailed { reason: "no_eligible_pool".to_owned(), retry_after_seconds: 10 }.into())),
        (accepted(), (0, Cancel {}.into())),
        (queued(), (0, grant(1).into())),
        (queued(), (60, StartDeadline {}.into())),
        (queued(), (0, Reroute { pool: "us".parse().unwrap(), reason: "pool_draining".to_owned() }.into())),
        (queued(), (0, Cancel {}.into())),
        (leased(), (0, release(2).into())),
        (last_lease(), (0, release(epoch).into())),
        (leased(), (30, expire(2).into())),
        (last_lease(), (30, expire(epoch).into())),
        (leased(), (0, redeem(2, 1, NONCE).into())),
        (leased(), (0, Cancel {}.into())),
        (executing(), (0, Acknowledge { holder: holder(2, 1), upstream_id: "chatcmpl-1".to_owned() }.into())),
        (executing(), (0, not_sent(2, true).into())),
        (executing(), (0, not_sent(2, false).into())),
        (unsent, (0, not_sent(unsent_epoch, true).into())),
        (cancelling(executing()), (0, not_sent(2, true).into())),
        (executing(), (0, reject(2, true).into())),
        (executing(), (0, reject(2, false).into())),
        (refused, (0, reject(refused_epoch, true).into())),
        (cancelling(executing()), (0, reject(2, true).into())),
        (executing(), (0, succeed().into())),
        (executing(), (0, fail().into())),
        (executing(), (0, cancelled().into())),
        (executing(), (30, expire(2).into())),
        (executing(), (0, Expire { retired: true, ..expire(2) }.into())),
        (executing(), (0, become_unknown().into())),
        (executing(), (0, Cancel {}.into())),
        (unknown(), (0, succeed().into())),
        (unknown(), (0, fail().into())),
        (unknown(), (0, cancelled().into())),
        (idempotent, (0, Requeue {}.into())),
        (unknown(), (0, resolve(Resolution::Succeeded).into())),
        (unknown(), (0, resolve(Resolution::Failed).into())),
        (unknown(), (0, resolve(Resolution::Cancelled).into())),
        (unknown(), (0, resolve(Resolution::ConfirmedNotSubmitted).into())),
        (unknown(), (0, Cancel {}.into())),
        (retry_wait(), (2, RetryDue {}.into())),
        (retry_wait(), (0, Cancel {}.into())),
        (dead_lettered(), (0, Revive { reason: "mended".to_owned() }.into())),
    ]
}

#[test]
fn every_edge_of_the_table_is_taken_and_no_other() {
    let edges: BTreeSet<_> = TRANSITIONS.iter().flat_map(|row| row.to.iter().map(|to| (row.from, row.fact, *to))).collect();
    let mut taken = BTreeSet::new();
    for (past, (seconds, command)) in every_step() {
        let from = past.state().as_ref().map(|task| task.state);
        let event: Event = past.when_later(seconds, command).fact();
        let (name, to) = (fact_name(&event), leads_to(&event).expect("a step leads somewhere"));
        assert_eq!(past.event(event).state().as_ref().map(|task| task.state), Some(to), "{name}");
        taken.insert((from, name, to));
    }
    assert_eq!(taken, edges);
}

#[test]
fn every_fact_of_the_noun_is_in_the_table_or_leads_nowhere() {
    let known: BTreeSet<_> = TRANSITIONS.iter().map(|row| format!("task.{}", row.fact)).chain(["task.stale_result_kept".to_owned()]).collect();
    assert_eq!(known, Event::TYPES.iter().map(|(name, _)| (*name).to_owned()).collect());
}

#[test]
fn no_state_is_a_trap() {
    // Every state is terminal or has a way out that needs no worker: a timer, an operator, or the sweeper.
    let by_itself = [
        "routed",
        "route_unavailable",
        "start_deadline_exceeded",
        "cancel_requested",
        "lease_expired",
        "lease_lost",
        "resolved",
        "retry_due",
        "revived",
    ];
    for state in State::ALL.iter().filter(|state| !matches!(state, State::Succeeded | State::Failed | State::Cancelled)) {
        let out = TRANSITIONS.iter().any(|row| row.from == Some(*state) && by_itself.contains(&row.fact) && row.to.iter().any(|to| to != state));
        assert!(out, "{state}");
    }
}

#[test]
fn a_token_works_once() {
    leased().when(redeem(2, 1, NONCE)).fact();
    // A lost answer may be asked for again; a second redemption is refused.
    executing().when(redeem(2, 1, NONCE)).nothing();
    executing().when(redeem(2, 1, OTHER_NONCE)).refused(Code::TokenAlreadyRedeemed);
    leased().when_later(30, redeem(2, 1, NONCE)).refused(Code::TokenExpired);
    leased().when_later(29, redeem(2, 1, NONCE)).fact();
    let renewed = Redeem { renewed_until: Some(Micros(now() + 40_000_000)), ..redeem(2, 1, NONCE) };
    leased().when_later(39, renewed).fact();
    leased().when(Redeem { token_hash: [9; 32], ..redeem(2, 1, NONCE) }).refused(Code::TokenUnknown);
    leased().when(Redeem { worker: "gpu-02".parse().unwrap(), ..redeem(2, 1, NONCE) }).refused(Code::WrongWorker);
    leased().when(Redeem { pool: "us".parse().unwrap(), ..redeem(2, 1, NONCE) }).refused(Code::WrongWorker);
    leased().when(Redeem { incarnation: incarnation(2), ..redeem(2, 1, NONCE) }).refused(Code::WrongWorker);
    leased().when(redeem(3, 1, NONCE)).refused(Code::LeaseSuperseded);
    cancelling(leased()).when(redeem(2, 1, NONCE)).refused(Code::TaskCancelled);
    let again = after(leased(), [(31, expire(2).into()), (31, grant(2).into())]);
    again.when(redeem(2, 1, NONCE)).refused(Code::LeaseSuperseded);
    unknown().when(redeem(2, 1, NONCE)).refused(Code::SubmissionStateUnknown);
    retry_wait().when(redeem(2, 1, NONCE)).refused(Code::TokenAlreadyRedeemed);
}

/// A rescuer that read an old state changes nothing, neither a task that was completed nor one that was leased again.
#[test]
fn a_sweeper_with_an_old_view_changes_nothing() {
    let completed = after(executing(), [(0, succeed().into())]);
    completed.when_later(99, expire(2)).nothing();
    let again = after(leased(), [(31, expire(2).into()), (31, grant(2).into())]);
    again.when_later(99, expire(2)).nothing();
    leased().when_later(29, expire(2)).refused(Code::LeaseLive);
    let renewed = Expire { renewed_until: Some(Micros(now() + 50_000_000)), ..expire(2) };
    leased().when_later(49, renewed.clone()).refused(Code::LeaseLive);
    leased().when_later(50, renewed).fact();
}

/// A holder that ends after its lease: accepted while nobody else was given the task, else kept as evidence only.
#[test]
fn a_late_result_counts_while_the_fence_is_current() {
    let late = unknown().when_later(40, succeed()).fact();
    assert_eq!((fact_name(&late), leads_to(&late)), ("late_result", Some(State::Succeeded)));
    let again = after(unknown(), [(31, resolve(Resolution::AcceptDuplicate).into()), (31, grant(2).into())]);
    let kept = again.when_later(40, succeed()).fact();
    assert_eq!((fact_name(&kept), leads_to(&kept)), ("stale_result_kept", None));
    let again = again.event(kept);
    assert_eq!(again.state().as_ref().map(|task| task.state), Some(State::Leased));
    again.when_later(41, succeed()).refused(Code::LeaseSuperseded);
    // A lease that was never redeemed has nothing to tell.
    let again = after(leased(), [(31, expire(2).into()), (31, grant(2).into())]);
    again.when_later(40, succeed()).refused(Code::LeaseSuperseded);
    after(leased(), [(31, expire(2).into())]).when_later(40, succeed()).refused(Code::LeaseClosed);
}

#[test]
fn a_repeated_report_adds_nothing() {
    after(executing(), [(0, succeed().into())]).when(succeed()).nothing();
    after(executing(), [(0, fail().into())]).when(fail()).nothing();
    after(executing(), [(0, fail().into())]).when(succeed()).refused(Code::LeaseClosed);
    retry_wait().when(not_sent(2, true)).nothing();
    after(leased(), [(0, release(2).into())]).when(release(2)).nothing();
    unknown().when(become_unknown()).nothing();
    cancelling(executing()).when(Cancel {}).nothing();
    cancelling(queued()).when(Cancel {}).nothing();
}

#[test]
fn a_second_assignment_is_refused_with_what_stands_in_its_way() {
    leased().when(grant(2)).refused(Code::TaskAlreadyLeased);
    executing().when(grant(2)).refused(Code::TaskAlreadyLeased);
    unknown().when(grant(2)).refused(Code::SubmissionStateUnknown);
    cancelling(queued()).when(grant(2)).refused(Code::TaskCancelled);
    queued().when(Grant { pool: "us".parse().unwrap(), ..grant(2) }).refused(Code::TaskNotQueued);
    queued().when_later(60, grant(2)).refused(Code::TaskNotQueued);
    unknown().when(Reroute { pool: "us".parse().unwrap(), reason: "x".to_owned() }).refused(Code::SubmissionStateUnknown);
}

#[test]
fn reports_count_only_from_the_holder_of_a_redeemed_lease() {
    leased().when(succeed()).refused(Code::TokenNotRedeemed);
    leased().when(not_sent(2, true)).refused(Code::TokenNotRedeemed);
    executing().when(End { holder: holder(2, 2), ..succeed() }).refused(Code::WrongWorker);
    executing().when(release(2)).refused(Code::TokenAlreadyRedeemed);
    executing().when(End { holder: holder(1, 1), ..succeed() }).refused(Code::LeaseSuperseded);
}

#[test]
fn unknown_tasks_wait_for_evidence_or_an_operator() {
    unknown().when(Requeue {}).nothing();
    unknown().when(Resolve { reason: " ".to_owned(), ..resolve(Resolution::Failed) }).refused(Code::InvalidField);
    unknown().when(Resolve { result: None, ..resolve(Resolution::Succeeded) }).refused(Code::MissingField);
    unknown().when(Resolve { result: Some("{}".to_owned()), ..resolve(Resolution::Failed) }).refused(Code::InvalidField);
    cancelling(unknown()).when(resolve(Resolution::AcceptDuplicate)).refused(Code::TaskCancelled);
    cancelling(unknown()).when(resolve(Resolution::Cancelled)).fact();
    executing().when(resolve(Resolution::Failed)).refused(Code::TaskNotUnknown);
    executing().when(Revive { reason: "x".to_owned() }).refused(Code::TaskNotDeadLettered);
}

#[test]
fn retries_back_off_and_respect_what_the_upstream_asks() {
    let Event::NotSent(fact) = executing().when(not_sent(2, true)).fact() else { panic!("another fact") };
    let wait = fact.retry_at.unwrap().0 - now();
    assert!((800_000..=1_200_000).contains(&wait), "{wait}");
    let asked = Reject { retry_after_seconds: Some(7), ..reject(2, true) };
    let Event::UpstreamRejected(fact) = executing().when(asked).fact() else { panic!("another fact") };
    assert_eq!(fact.retry_at.unwrap().0 - now(), 7_000_000);
    // Who waits for the answer tries again by itself.
    let waited = given::<Task>().event(given::<Task>().when(Accept { mode: Mode::Sync, ..accept() }).fact());
    let waited = after(waited, [(0, grant(1).into()), (0, redeem(2, 1, NONCE).into())]);
    let Event::UpstreamRejected(fact) = waited.when(reject(2, true)).fact() else { panic!("another fact") };
    assert_eq!((fact.to, fact.retry_at), (State::Failed, None));
    retry_wait().when(RetryDue {}).nothing();
    let revived = after(dead_lettered(), [(0, Revive { reason: "mended".to_owned() }.into())]);
    assert_eq!(revived.state().as_ref().map(|task| (task.leases, task.retries)), Some((0, 0)));
}
