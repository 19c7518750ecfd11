//! The role: follows the log, answers workers, sweeps.

use crate::index::{Index, News};
use crate::metrics::Metrics;
use crate::piece::Payloads;
use crate::{answer, capacity, sweep};
use lru::LruCache;
use signalbox_domain::Source;
use signalbox_domain::task::Task;
use signalbox_events::task::Event;
use signalbox_events::work::{Control, Form, Order, control_subject, notice_subject, queue_subject};
use signalbox_events::{AccountId, Aggregate, Fact, Micros, PoolId, Recorded, TaskId, WorkerId};
use signalbox_journal::nats::Plain;
use signalbox_journal::{Failure, Follower, Journal, Ledger, StoreError};
use signalbox_projections::sqlx::PgPool;
use signalbox_projections::{task, worker};
use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// How long a lease lives after its grant or last renewal.
pub(crate) const LEASE_TTL: Duration = Duration::from_secs(30);
/// Beginnings of tasks that are kept.
const BEGINNINGS: NonZeroUsize = NonZeroUsize::new(1024).unwrap();

/// The role's parts, as the process puts them together.
pub struct Leases {
    /// The log.
    pub ledger: Arc<Ledger>,
    /// The views: the index starts from them.
    pub db: PgPool,
    /// Plain NATS, for workers.
    pub nats: Plain,
    /// Counters.
    pub metrics: Metrics,
}

/// Shared by everything that the role does.
pub(crate) struct Shared {
    pub ledger: Arc<Ledger>,
    pub nats: Plain,
    pub metrics: Metrics,
    index: Mutex<Index>,
    /// Raised when a pool's queue has got a task.
    queued: Mutex<HashMap<PoolId, Arc<Notify>>>,
    /// When a worker's claim was marked last by this replica.
    pub marked: Mutex<HashMap<WorkerId, Instant>>,
    /// How tasks that came in lately began, texts sealed: most are claimed before they are old.
    beginnings: Mutex<LruCache<TaskId, Recorded>>,
    /// Large payloads that workers read.
    pub payloads: Payloads,
}

impl Shared {
    pub fn index(&self) -> MutexGuard<'_, Index> {
        // Every change of the index is complete before the guard is dropped.
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn journal(&self) -> &dyn Journal {
        self.ledger.journal().as_ref()
    }

    fn source(&self) -> &Source {
        self.ledger.source()
    }

    pub fn context(&self) -> signalbox_domain::Context {
        (self.source())()
    }

    pub fn now(&self) -> Micros {
        self.context().now.into()
    }

    fn beginnings(&self) -> MutexGuard<'_, LruCache<TaskId, Recorded>> {
        self.beginnings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep_beginning(&self, recorded: Recorded) {
        // Large texts are not within their event, so what is kept is small.
        if let Fact::Task(Event::Accepted(_)) = &recorded.fact
            && let Ok(task) = recorded.aggregate.id.parse()
        {
            self.beginnings().put(task, recorded);
        }
    }

    /// A task's first event, texts unsealed.
    pub async fn beginning(&self, account: AccountId, task: TaskId) -> Result<Option<Recorded>, Failure> {
        let kept = self.beginnings().pop(&task);
        match kept {
            Some(recorded) => self.ledger.open(recorded).await.map(Some),
            None => self.ledger.first(&Aggregate::task(account, task)).await,
        }
    }

    pub fn queued(&self, pool: &PoolId) -> Arc<Notify> {
        self.queued.lock().unwrap_or_else(PoisonError::into_inner).entry(pool.clone()).or_default().clone()
    }

    /// Wakes a claim a task that waits here, and a worker that waits elsewhere.
    pub async fn hint(&self, pool: &PoolId, tasks: usize) {
        let queued = self.queued(pool);
        for _ in 0..tasks {
            queued.notify_one();
        }
        if let Err(error) = self.nats.publish(&queue_subject(pool), bytes::Bytes::new()).await {
            tracing::warn!(%pool, %error, "a hint was not sent; the sweeper sends another");
        }
    }

    pub async fn control(&self, pool: &PoolId, worker: &WorkerId, control: &Control) {
        let Ok(body) = Form::MessagePack.write(control) else { return };
        if let Err(error) = self.nats.publish(&control_subject(pool, worker), body.into()).await {
            tracing::warn!(%worker, %error, "a worker was not told; its next renewal tells it");
        }
    }
}

impl Leases {
    /// Plays the role until `stop`.
    pub async fn run(self, stop: CancellationToken) {
        while !stop.is_cancelled() {
            tokio::select! {
                () = stop.cancelled() => return,
                outcome = self.play() => match outcome {
                    Ok(()) => {}
                    Err(error) => tracing::error!(%error, "the leases role starts again"),
                },
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }

    async fn play(&self) -> Result<(), StoreError> {
        let partitions = self.ledger.journal().partitions();
        let failed = |error: &dyn std::error::Error| StoreError::Failed(error.to_string());
        let (rows, positions) = task::open(&self.db, partitions).await.map_err(|error| failed(&error))?;
        // Read behind the tasks' position, so that no worker is older than its leases.
        let workers = worker::list(&self.db, None).await.map_err(|error| failed(&error))?;
        let shared = Arc::new(Shared {
            ledger: self.ledger.clone(),
            nats: self.nats.clone(),
            metrics: self.metrics.clone(),
            index: Mutex::new(Index::new(rows, workers)),
            queued: Mutex::default(),
            marked: Mutex::default(),
            beginnings: Mutex::new(LruCache::new(BEGINNINGS)),
            payloads: Payloads::default(),
        });
        let mut work = tokio::task::JoinSet::new();
        for (partition, position) in positions {
            work.spawn(follow(shared.clone(), partition, position));
        }
        work.spawn(answer::serve(shared.clone()));
        work.spawn(capacity::serve(shared.clone()));
        work.spawn(sweep::run(shared));
        // Whichever ends first ends the others with the set: the role begins anew from the views.
        match work.join_next().await {
            Some(Ok(outcome)) => outcome,
            Some(Err(error)) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Some(Err(_)) | None => Ok(()),
        }
    }
}

async fn follow(shared: Arc<Shared>, partition: u16, position: u64) -> Result<(), StoreError> {
    let mut follower = Follower::sealed(shared.ledger.clone(), partition, position);
    loop {
        let entries = match follower.next().await {
            Ok(entries) => entries,
            Err(error) => {
                tracing::warn!(%error, "the log cannot be followed now");
                tokio::time::sleep(Duration::from_secs(1)).await;
                continue;
            }
        };
        let mut news = Vec::new();
        {
            let mut index = shared.index();
            for recorded in entries.into_iter().filter_map(|entry| entry.event.ok()) {
                news.extend(index.take(&recorded));
                shared.keep_beginning(recorded);
            }
        }
        let told = shared.index().told();
        for task in told {
            // Who waits looks by itself after a while.
            let _ = shared.nats.publish(&notice_subject(task), bytes::Bytes::new()).await;
        }
        let mut queued: HashMap<PoolId, usize> = HashMap::new();
        for news in news {
            match news {
                News::Queued(pool) => *queued.entry(pool).or_default() += 1,
                News::Cancel(held, task) => {
                    let control = Control { incarnation: held.incarnation, order: Order::Cancel, task: Some(task) };
                    shared.control(&held.pool, &held.worker, &control).await;
                }
                News::Revived(aggregate, id, at) => match shared.ledger.load::<Task>(&aggregate).await {
                    Ok(Some(task)) => shared.index().learn(aggregate.account, id, at, &task),
                    Ok(None) => {}
                    Err(error) => return Err(StoreError::Failed(error.to_string())),
                },
                News::Drain(pool, worker, incarnation) => {
                    shared.control(&pool, &worker, &Control { incarnation, order: Order::Drain, task: None }).await;
                }
            }
        }
        for (pool, tasks) in queued {
            shared.hint(&pool, tasks).await;
        }
    }
}
