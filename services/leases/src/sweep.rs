//! Looks every second for what no request moves: expired leases, due retries, passed deadlines, silent workers.

use crate::beat;
use crate::index::{Index, Known, Open};
use crate::metrics::label;
use crate::redeem::renewed_until;
use crate::role::Shared;
use signalbox_domain::task::{self, Expire, Requeue, RetryDue, Route, StartDeadline, Task};
use signalbox_domain::worker::{Command, Worker};
use signalbox_events::task::State;
use signalbox_events::worker::State as Seen;
use signalbox_events::{Aggregate, Micros, PoolId, TaskId, WorkerId};
use signalbox_journal::{Failure, Request, Requester, StoreError};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Distance of two sweeps.
const EVERY: Duration = Duration::from_secs(1);
/// A sweep that comes this late means that we, or the machine, stood still.
const STALL: Duration = Duration::from_secs(4);
/// After a start or a stall of ours, leases are not judged for as long as a living worker may need to renew.
const GRACE: Duration = Duration::from_secs(10);
/// A queued task without a lease is hinted at again after this.
const HINT_AFTER: i64 = 15_000_000;
/// A worker that was silent for this long is lost.
const LOST_AFTER: i64 = 60_000_000;
/// A worker that renews and has free slots but claims nothing for this long does not consume.
const DEAF_AFTER: i64 = 30_000_000;

pub(crate) async fn run(shared: Arc<Shared>) -> Result<(), StoreError> {
    let mut judge = Judge::new(Instant::now(), shared.now());
    let mut hinted: HashMap<PoolId, Micros> = HashMap::new();
    loop {
        tokio::time::sleep(EVERY).await;
        let judges = judge.looks(Instant::now(), shared.now());
        if let Err(error) = sweep(&shared, judges, &mut hinted).await {
            tracing::warn!(%error, "a sweep was not finished");
        }
    }
}

/// Whether others can be held to their time: not by one that has stood still itself.
struct Judge {
    last: (Instant, Micros),
    grace_until: Instant,
}

impl Judge {
    fn new(now: Instant, clock: Micros) -> Self {
        Self { last: (now, clock), grace_until: now + GRACE }
    }

    /// A look at both clocks: the monotonic one stands while a machine sleeps, the other may be set.
    fn looks(&mut self, now: Instant, clock: Micros) -> bool {
        let (elapsed, shown) = (now.duration_since(self.last.0), clock.0 - self.last.1.0);
        let stall = i64::try_from(STALL.as_micros()).unwrap_or(i64::MAX);
        if elapsed > STALL || shown > stall || shown < 0 {
            tracing::warn!(seconds = elapsed.as_secs(), shown = shown / 1_000_000, "stood still: leases are not judged for a while");
            self.grace_until = now + GRACE;
        }
        self.last = (now, clock);
        now >= self.grace_until
    }
}

async fn sweep(shared: &Shared, judges: bool, hinted: &mut HashMap<PoolId, Micros>) -> Result<(), Failure> {
    let now = shared.now();
    measure(shared, now);
    let open: Vec<(TaskId, Open)> = {
        let index = shared.index();
        let due = index.tasks.iter().filter(|(_, open)| is_due(&index, open, now));
        due.map(|(id, open)| (*id, open.clone())).collect()
    };
    for (id, open) in open {
        let aggregate = Aggregate::task(open.waiting.account, id);
        let due = |at: Option<Micros>| at.is_some_and(|at| at <= now);
        match open.state {
            State::Accepted => {
                if let Some(pool) = default_pool(shared, &open).await? {
                    state(shared, aggregate, Route { pool, reason: "default_pool".to_owned() }).await?;
                }
            }
            State::Queued if due(open.start_deadline) => state(shared, aggregate, StartDeadline {}).await?,
            State::Queued => {
                let Some(pool) = &open.pool else { continue };
                let old = now.0 - open.waiting.since.0 > HINT_AFTER;
                if old && hinted.get(pool).is_none_or(|at| now.0 - at.0 > HINT_AFTER) {
                    hinted.insert(pool.clone(), now);
                    // What was taken out of the queue by a claim that failed comes back here.
                    shared.index().ready.add(pool, open.waiting.clone());
                    shared.hint(pool, 1).await;
                }
            }
            State::RetryWait if due(open.retry_at) => state(shared, aggregate, RetryDue {}).await?,
            State::Leased | State::Executing => expire(shared, aggregate, id, &open, now, judges).await?,
            State::SubmissionUnknown if open.idempotent && !open.cancel_waits => state(shared, aggregate, Requeue {}).await?,
            State::SubmissionUnknown | State::RetryWait | State::Succeeded | State::Failed | State::Cancelled | State::DeadLettered => {}
        }
    }
    if judges {
        let workers: Vec<(WorkerId, Known)> = shared.index().workers.iter().map(|(id, known)| (id.clone(), known.clone())).collect();
        for (id, known) in workers {
            watch(shared, &id, &known, now).await?;
        }
    }
    Ok(())
}

/// Whether a task may need a push: everything else is left alone, however much of it there is.
fn is_due(index: &Index, open: &Open, now: Micros) -> bool {
    let passed = |at: Option<Micros>| at.is_some_and(|at| at <= now);
    match open.state {
        State::Accepted => true,
        State::Queued => passed(open.start_deadline) || now.0 - open.waiting.since.0 > HINT_AFTER,
        State::RetryWait => passed(open.retry_at),
        State::Leased | State::Executing => open.lease.as_ref().is_some_and(|held| held.expires_at <= now || index.is_retired(held)),
        State::SubmissionUnknown => open.idempotent && !open.cancel_waits,
        State::Succeeded | State::Failed | State::Cancelled | State::DeadLettered => false,
    }
}

/// States a fact unless the task has moved on meanwhile; the index hears of that in a moment.
async fn state(shared: &Shared, aggregate: Aggregate, command: impl Into<task::Command>) -> Result<(), Failure> {
    let request = Request { aggregate, command, requester: Requester::role("leases") };
    match shared.ledger.execute::<Task>(request).await {
        Ok(_) | Err(Failure::Rejected(_)) => Ok(()),
        Err(error) => Err(error),
    }
}

/// The pool that a task goes to without routing: the one that it asked for, else the one it had.
async fn default_pool(shared: &Shared, open: &Open) -> Result<Option<PoolId>, Failure> {
    let Some(pool) = open.pool.clone() else { return Ok(None) };
    let found = shared.ledger.load::<signalbox_domain::pool::Pool>(&Aggregate::pool(&pool)).await?;
    Ok(found.map(|_| pool))
}

async fn expire(shared: &Shared, aggregate: Aggregate, id: TaskId, open: &Open, now: Micros, judges: bool) -> Result<(), Failure> {
    let Some(held) = &open.lease else { return Ok(()) };
    let retired = shared.index().is_retired(held);
    if !retired && (!judges || held.expires_at > now) {
        return Ok(());
    }
    let renewed_until = renewed_until(shared, &held.pool, &held.worker, held.incarnation, id, held.epoch).await?;
    if let Some(until) = renewed_until.filter(|until| !retired && *until > now) {
        // Looked at again when this has passed.
        shared.index().renewed(id, held.epoch, until);
        return Ok(());
    }
    shared.metrics.expiries.inc();
    tracing::warn!(task = %id, worker = %held.worker, retired, "a lease has ended without its holder");
    state(shared, aggregate, Expire { epoch: held.epoch, renewed_until, retired }).await
}

/// What a worker is seen to do; only a change becomes an event.
async fn watch(shared: &Shared, id: &WorkerId, known: &Known, now: Micros) -> Result<(), Failure> {
    if matches!(known.state, Seen::Lost | Seen::Gone) || now.0 - known.since.0 < DEAF_AFTER {
        return Ok(());
    }
    let beat = beat::get(shared.journal(), &known.pool, id).await?.filter(|beat| beat.incarnation == known.incarnation);
    let silent = beat.as_ref().is_none_or(|beat| now.0 - beat.at.0 > LOST_AFTER);
    let command = if silent && now.0 - known.since.0 > LOST_AFTER {
        Command::Retire(known.incarnation, "lost")
    } else if known.state == Seen::Ready && beat.is_some_and(|beat| beat.free_slots > 0) && !beat::claims(shared.journal(), &known.pool, id).await? {
        Command::Observe(known.incarnation, Seen::NotConsuming)
    } else {
        return Ok(());
    };
    let request = Request { aggregate: Aggregate::worker(id), command, requester: Requester::role("leases") };
    match shared.ledger.execute::<Worker>(request).await {
        Ok(_) | Err(Failure::Rejected(_)) => Ok(()),
        Err(error) => Err(error),
    }
}

fn measure(shared: &Shared, now: Micros) {
    let seconds = |since: Micros| (now.0 - since.0).max(0) / 1_000_000;
    let index = shared.index();
    let mut states: BTreeMap<State, i64> = State::ALL.iter().filter(|state| !state.is_terminal()).map(|state| (*state, 0)).collect();
    for open in index.tasks.values() {
        *states.entry(open.state).or_default() += 1;
    }
    for (state, count) in states {
        shared.metrics.tasks.get_or_create_owned(&label("state", state)).set(count);
    }
    shared.metrics.depth.clear();
    shared.metrics.wait.clear();
    for (pool, depth, oldest) in index.ready.depths() {
        shared.metrics.depth.get_or_create_owned(&label("pool", pool)).set(i64::try_from(depth).unwrap_or(i64::MAX));
        shared.metrics.wait.get_or_create_owned(&label("pool", pool)).set(seconds(oldest));
    }
    let oldest = index.tasks.values().filter_map(|open| open.unknown_since.filter(|_| open.state == State::SubmissionUnknown)).min();
    shared.metrics.unknown_age.set(oldest.map_or(0, seconds));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_stood_still_does_not_judge() {
        let begin = Instant::now();
        let at = |seconds: f64| (begin + Duration::from_secs_f64(seconds), Micros((seconds * 1e6) as i64));
        let mut judge = Judge::new(at(0.0).0, at(0.0).1);
        let mut looks = |seconds: f64, shown: f64| judge.looks(at(seconds).0, at(shown).1);
        // The start is a stall of unknown length.
        assert!((1..10).all(|second| !looks(f64::from(second), f64::from(second))));
        assert!(looks(10.0, 10.0));
        assert!(looks(14.0, 14.0), "a sweep may take a moment");
        // The process was stopped for 15 s: both clocks show it.
        assert!(!looks(29.0, 29.0));
        assert!((30..39).all(|second| !looks(f64::from(second), f64::from(second))));
        assert!(looks(39.0, 39.0));
        // The machine slept: only the wall shows it. Then the wall was set back.
        assert!(!looks(40.0, 100.0));
        assert!(!looks(41.0, 50.0));
        assert!((42..51).all(|second| !looks(f64::from(second), f64::from(second) + 9.0)));
        assert!(looks(51.0, 60.0));
    }
}
