//! Claims: who gets which task, and what it needs to know of it.

use crate::answer::{Answered, Asker, MOST_WAIT, Refused, millis};
use crate::beat;
use crate::metrics::label;
use crate::role::LEASE_TTL;
use sha2::{Digest, Sha256};
use signalbox_domain::task::{self, Grant, kind_matches};
use signalbox_domain::upstream::Upstream;
use signalbox_domain::worker::{Command as WorkerCommand, Existing as KnownWorker};
use signalbox_domain::workload::Workload;
use signalbox_events::task::Event;
use signalbox_events::work::{Assignment, Claim, Claimed, Destination, LeaseRef, MOST_INLINE};
use signalbox_events::{Aggregate, Fact, IncarnationId, worker};
use signalbox_journal::Executed;
use std::sync::PoisonError;
use std::time::{Duration, Instant};
use uuid::Uuid;

/// A claim that waits looks by itself this often: a notice may fall between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Distance of marks that a worker claims.
const MARK_EVERY: Duration = Duration::from_secs(5);

impl Asker<'_> {
    pub async fn claim(&self) -> Answered<Claimed> {
        let claim: Claim = self.read()?;
        let worker = self.current(claim.incarnation).await?;
        let until = Instant::now() + Duration::from_millis(claim.wait_ms).min(MOST_WAIT);
        self.mark_claim(&worker).await?;
        let queued = self.shared.queued(&self.pool);
        let mut worker = worker;
        loop {
            if worker.draining {
                return Ok(Claimed { task: None, draining: true });
            }
            if let Some(task) = self.grant(&worker, claim.incarnation).await? {
                return Ok(Claimed { task: Some(task), draining: false });
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(Claimed { task: None, draining: false });
            }
            // One notice a task: a notice that came between the look and here is kept for us.
            let _ = tokio::time::timeout(left.min(LOOK_EVERY), queued.notified()).await;
            // Meanwhile it may have drained, ended, or been replaced: nothing is granted to a start that is over.
            worker = self.current(claim.incarnation).await?;
        }
    }

    /// Says that the worker takes work, at most every few seconds; one that was thought deaf is ready again.
    async fn mark_claim(&self, worker: &KnownWorker) -> Answered<()> {
        let now = Instant::now();
        let due = {
            let mut marked = self.shared.marked.lock().unwrap_or_else(PoisonError::into_inner);
            let due = marked.get(&self.worker).is_none_or(|at| now.duration_since(*at) > MARK_EVERY);
            if due {
                marked.insert(self.worker.clone(), now);
            }
            due
        };
        if due {
            beat::mark_claim(self.shared.journal(), &self.pool, &self.worker).await?;
        }
        if worker.state == worker::State::NotConsuming {
            self.of_worker(WorkerCommand::Observe(worker.registered.incarnation, worker::State::Ready)).await?;
        }
        Ok(())
    }

    /// Leases the next task that the worker can do.
    async fn grant(&self, worker: &KnownWorker, incarnation: IncarnationId) -> Answered<Option<Assignment>> {
        use signalbox_events::pool::State as Pool;
        if !self.pool().await?.is_some_and(|pool| matches!(pool.state, Pool::Enabled | Pool::Cordoned)) {
            return Ok(None);
        }
        let capabilities = &worker.registered.capabilities;
        loop {
            let now = self.shared.now();
            let taken = self.shared.index().ready.take(&self.pool, now, |task| {
                capabilities.kinds.iter().any(|kind| kind_matches(kind, &task.kind)) && (capabilities.streaming || !task.streaming)
            });
            let Some(waiting) = taken else { return Ok(None) };
            let started = Instant::now();
            let ctx = self.shared.context();
            let token = ctx.random;
            let command = Grant {
                pool: self.pool.clone(),
                worker: self.worker.clone(),
                incarnation,
                token_hash: Sha256::digest(token).into(),
                ttl: i64::try_from(LEASE_TTL.as_micros()).unwrap_or(i64::MAX),
            };
            let lease = LeaseRef { account: waiting.account, task: waiting.task, epoch: 0 };
            match self.of_task(&lease, command).await {
                Ok(Executed { state: Some(task), stated: Some(_), .. }) => {
                    let assignment = self.assignment(&lease, &task, token).await?;
                    self.shared.metrics.grants.inc();
                    self.shared.metrics.seconds.get_or_create_owned(&label("verb", "claim")).observe(started.elapsed().as_secs_f64());
                    return Ok(Some(assignment));
                }
                // Another replica's worker has it, or it has ended: the index hears of it in a moment.
                Ok(_) | Err(Refused::Rejection(_)) => {}
                Err(refused) => {
                    self.shared.index().ready.add(&self.pool, waiting);
                    return Err(refused);
                }
            }
        }
    }

    async fn assignment(&self, lease: &LeaseRef, task: &task::Existing, token: [u8; 32]) -> Answered<Assignment> {
        let first = self.shared.beginning(lease.account, lease.task).await?;
        let payload = match first.map(|recorded| recorded.fact) {
            Some(Fact::Task(Event::Accepted(fact))) => fact.payload.plain().map(str::to_owned),
            _ => None,
        };
        let payload = payload.ok_or(Refused::Unavailable)?;
        let held = task.live_lease().ok_or(Refused::Unavailable)?;
        Ok(Assignment {
            account: lease.account,
            task: lease.task,
            attempt: held.attempt,
            epoch: held.epoch,
            token: hex::encode(token),
            kind: task.kind.clone(),
            streaming: task.streaming,
            run_mode: task.run_mode,
            payload_bytes: payload.len() as u64,
            payload: Some(payload).filter(|payload| payload.len() <= MOST_INLINE),
            destination: self.destination(task, held.epoch).await?,
            attempt_id: Uuid::new_v5(&lease.task.0, &held.epoch.to_be_bytes()),
            expires_in_ms: millis(LEASE_TTL),
        })
    }

    /// Where the task's deployment or upstream serves now. None: it does not; the worker then says that nothing was sent.
    async fn destination(&self, task: &task::Existing, epoch: u64) -> Answered<Option<Destination>> {
        let Some(target) = &task.target else { return Ok(None) };
        if let Some(upstream) = target.upstream {
            let upstream = self.shared.ledger.load::<Upstream>(&Aggregate::upstream(target.account, upstream)).await?;
            let enabled = upstream.filter(|upstream| upstream.enabled);
            return Ok(enabled.map(|upstream| Destination { base_url: upstream.profile.base_url, model: target.model.clone() }));
        }
        let Some(workload) = target.workload else { return Ok(None) };
        let workload = self.shared.ledger.load::<Workload>(&Aggregate::workload(target.account, workload)).await?;
        let workload = workload.filter(|workload| !workload.deleting && !workload.deleted);
        let found = workload.and_then(|workload| workload.destination(usize::try_from(epoch).unwrap_or(0)));
        Ok(found.map(|(base_url, model)| Destination { base_url, model }))
    }
}
