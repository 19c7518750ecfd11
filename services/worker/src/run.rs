//! Runs a worker: says hello, claims into free slots, renews, reports, drains, says bye.

use crate::job::{Done, Evidence, Handler, Job};
use crate::link::{CallError, Link, PATIENCE};
use async_nats::ConnectOptions;
use futures_util::StreamExt;
use signalbox_events::work::*;
use signalbox_events::worker::Capabilities;
use signalbox_events::{IncarnationId, PoolId, TaskId, WorkerId};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;

/// Claims that wait at once: more would only race each other.
const CLAIMS: u32 = 4;
/// How long an ending is reported again while nobody answers.
const REPORT_FOR: Duration = Duration::from_secs(600);
/// The part of a lease's life after which an unrenewed one is not trusted, in tenths.
const FENCE_TENTHS: u32 = 7;

/// How a worker runs.
#[derive(Clone)]
pub struct Options {
    /// Addresses of NATS, comma-separated.
    pub url: String,
    /// The seed of the worker's NKey.
    pub seed: String,
    /// The pool.
    pub pool: PoolId,
    /// The worker.
    pub worker: WorkerId,
    /// A fresh id for this start: never the same twice.
    pub incarnation: IncarnationId,
    /// The worker's own version, for people.
    pub version: String,
    /// What it can do.
    pub capabilities: Capabilities,
    /// Tasks that it executes at once.
    pub slots: u32,
    /// 256 fresh random bits for this start: credentials are sealed for the key that they make.
    pub secret: [u8; 32],
}

/// Why a worker ended that was not asked to.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No connection.
    #[error("cannot connect to NATS: {0}")]
    Connect(String),
    /// The service refuses this worker.
    #[error("the service refuses the worker: {0}")]
    Refused(Refusal),
    /// Requests are not heard any more.
    #[error("the subscription to orders has ended")]
    Deaf,
}

/// What the tasks of a worker share.
struct Shared<H> {
    link: Link,
    secret: crypto_box::SecretKey,
    handler: H,
    slots: Arc<Semaphore>,
    running: Mutex<HashMap<TaskId, Held>>,
    welcome: Welcome,
    drain: CancellationToken,
    /// Set where this start must not go on.
    over: watch::Sender<Option<Refusal>>,
}

struct Held {
    lease: LeaseRef,
    cancel: CancellationToken,
    renewed: watch::Sender<Instant>,
}

impl<H> Shared<H> {
    fn running(&self) -> MutexGuard<'_, HashMap<TaskId, Held>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs until `stop`, then ends in order: no new tasks, those that run to their end, bye.
pub async fn run(options: Options, handler: impl Handler, stop: CancellationToken) -> Result<(), Error> {
    let link = connect(&options).await?;
    let secret = crypto_box::SecretKey::from(options.secret);
    let hello = Hello {
        protocol: PROTOCOL,
        incarnation: options.incarnation,
        version: options.version.clone(),
        capabilities: options.capabilities.clone(),
        slots: options.slots,
        public_key: Some(hex::encode(secret.public_key().as_bytes())),
    };
    // Heard before the hello is answered, so that no order is missed.
    let orders = link.client.subscribe(control_subject(&link.pool, &link.worker)).await.map_err(|error| Error::Connect(error.to_string()))?;
    let welcome = loop {
        match link.call::<Welcome>(Verb::Hello, &hello, PATIENCE).await {
            Ok(welcome) => break welcome,
            Err(CallError::Refused(refusal)) if refusal.code != "unavailable" => return Err(Error::Refused(refusal)),
            Err(error) => tracing::warn!(%error, "the service does not answer yet"),
        }
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            () = tokio::time::sleep(Duration::from_secs(1)) => {}
        }
    };
    let shared = Arc::new(Shared {
        link,
        secret,
        handler,
        slots: Arc::new(Semaphore::new(options.slots as usize)),
        running: Mutex::default(),
        welcome,
        drain: CancellationToken::new(),
        over: watch::channel(None).0,
    });
    let mut over = shared.over.subscribe();
    let listening = tokio::spawn(listen(shared.clone(), orders));
    let renewing = tokio::spawn(renew(shared.clone()));
    let mut claiming = tokio::task::JoinSet::new();
    for _ in 0..CLAIMS.min(options.slots) {
        claiming.spawn(claim(shared.clone()));
    }
    let outcome = tokio::select! {
        () = stop.cancelled() => Ok(()),
        () = shared.drain.cancelled() => Ok(()),
        _ = over.wait_for(Option::is_some) => Err(()),
        () = deaf(&listening) => Err(()),
    };
    shared.drain.cancel();
    let ended = match outcome {
        Ok(()) => {
            while claiming.join_next().await.is_some() {}
            // Every slot free: nothing runs.
            let _ = shared.slots.acquire_many(options.slots).await;
            let bye = Bye { incarnation: options.incarnation };
            if let Err(error) = shared.link.call::<Taken>(Verb::Bye, &bye, PATIENCE).await {
                tracing::warn!(%error, "the service did not hear the good-bye");
            }
            Ok(())
        }
        Err(()) => {
            // This start is over: what it holds is not its own any more.
            shared.running().values().for_each(|held| held.cancel.cancel());
            Err(shared.over.borrow().clone().map_or(Error::Deaf, Error::Refused))
        }
    };
    claiming.abort_all();
    renewing.abort();
    listening.abort();
    ended
}

async fn deaf(listening: &tokio::task::JoinHandle<()>) {
    while !listening.is_finished() {
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

async fn connect(options: &Options) -> Result<Link, Error> {
    let servers: Vec<&str> = options.url.split(',').map(str::trim).collect();
    let client = ConnectOptions::with_nkey(options.seed.clone())
        .custom_inbox_prefix(format!("_INBOX_{}", options.worker))
        .name(format!("worker {}", options.worker))
        .connection_timeout(PATIENCE)
        .ping_interval(Duration::from_secs(2))
        .subscription_capacity(1 << 12)
        .connect(servers)
        .await
        .map_err(|error| Error::Connect(error.to_string()))?;
    Ok(Link { client, pool: options.pool.clone(), worker: options.worker.clone(), incarnation: options.incarnation })
}

/// Orders come as messages; what is missed here comes with the next renewal.
async fn listen<H>(shared: Arc<Shared<H>>, mut orders: async_nats::Subscriber) {
    while let Some(message) = orders.next().await {
        let Ok(control) = Form::MessagePack.read::<Control>(&message.payload) else { continue };
        if control.incarnation != shared.link.incarnation {
            continue;
        }
        match (control.order, control.task) {
            (Order::Drain, _) => shared.drain.cancel(),
            (Order::Cancel, Some(task)) => {
                if let Some(held) = shared.running().get(&task) {
                    held.cancel.cancel();
                }
            }
            (Order::Cancel, None) => {}
        }
    }
}

/// One sign of life renews every lease.
async fn renew<H>(shared: Arc<Shared<H>>) {
    let every = Duration::from_millis(shared.welcome.renew_every_ms);
    let mut turn = 0_u32;
    loop {
        // Spread by a fifth, so that workers that started together do not stay together.
        turn = turn.wrapping_add(1);
        tokio::time::sleep(every * (8 + turn % 5) / 10).await;
        let asked = Instant::now();
        let leases: Vec<LeaseRef> = shared.running().values().map(|held| held.lease.clone()).collect();
        let free_slots = u32::try_from(shared.slots.available_permits()).unwrap_or(u32::MAX);
        let renew = Renew { incarnation: shared.link.incarnation, free_slots, leases };
        match shared.link.call::<Renewed>(Verb::Renew, &renew, PATIENCE).await {
            Ok(renewed) => take(&shared, &renewed, asked),
            Err(CallError::Refused(refusal)) if refusal.code == "incarnation_retired" => {
                shared.over.send_replace(Some(refusal));
                return;
            }
            Err(error) => tracing::warn!(%error, "leases were not renewed"),
        }
        fence(&shared);
    }
}

fn take<H>(shared: &Shared<H>, renewed: &Renewed, asked: Instant) {
    if renewed.draining {
        shared.drain.cancel();
    }
    for state in &renewed.leases {
        let running = shared.running();
        // A task that ended while the renewal was on its way is closed, not lost.
        let Some(held) = running.get(&state.task).filter(|held| held.lease.epoch == state.epoch) else { continue };
        if state.state == "live" {
            held.renewed.send_replace(asked);
        }
        if state.cancel || matches!(state.state.as_str(), "lease_superseded" | "task_cancelled") {
            held.cancel.cancel();
        }
    }
}

/// Leases that were not renewed for too long are not trusted: what was not sent is not sent any more.
fn fence<H>(shared: &Shared<H>) {
    let limit = fence_after(&shared.welcome);
    for held in shared.running().values().filter(|held| held.renewed.borrow().elapsed() >= limit) {
        held.cancel.cancel();
    }
}

fn fence_after(welcome: &Welcome) -> Duration {
    Duration::from_millis(welcome.lease_ttl_ms) * FENCE_TENTHS / 10
}

async fn claim<H: Handler>(shared: Arc<Shared<H>>) {
    let wait = Duration::from_millis(shared.welcome.claim_wait_ms);
    loop {
        let permit = tokio::select! {
            () = shared.drain.cancelled() => return,
            permit = shared.slots.clone().acquire_owned() => permit,
        };
        let Ok(permit) = permit else { return };
        let asked = Instant::now();
        let claim = Claim { incarnation: shared.link.incarnation, wait_ms: shared.welcome.claim_wait_ms };
        let claimed = tokio::select! {
            // A task that is granted meanwhile is not lost: its lease ends by itself.
            () = shared.drain.cancelled() => return,
            claimed = shared.link.call::<Claimed>(Verb::Claim, &claim, wait + PATIENCE) => claimed,
        };
        match claimed {
            Ok(Claimed { task: Some(assignment), .. }) => {
                let shared = shared.clone();
                // The lease was granted after the claim was asked for, however long it waited: judge it from its answer less
                // the longest way back.
                let granted = asked.max(Instant::now().checked_sub(PATIENCE).unwrap_or(asked));
                tokio::spawn(async move {
                    execute(&shared, assignment, granted).await;
                    drop(permit);
                });
            }
            Ok(Claimed { task: None, draining: true }) => shared.drain.cancel(),
            Ok(Claimed { task: None, draining: false }) => {}
            Err(CallError::Refused(refusal)) if refusal.code == "incarnation_retired" => {
                shared.over.send_replace(Some(refusal));
                return;
            }
            Err(error) => {
                tracing::warn!(%error, "a claim was not answered");
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
    }
}

async fn execute<H: Handler>(shared: &Shared<H>, assignment: Assignment, granted: Instant) {
    let task = assignment.task;
    let (renewed, watched) = watch::channel(granted);
    let cancel = CancellationToken::new();
    let mut job = Job {
        link: shared.link.clone(),
        assignment,
        cancel: cancel.clone(),
        renewed: watched,
        fence: fence_after(&shared.welcome),
        redeemed: false,
        deltas: 0,
        secret: shared.secret.clone(),
        credential: None,
    };
    shared.running().insert(task, Held { lease: job.lease(), cancel, renewed });
    let done = shared.handler.execute(&mut job).await;
    tell(shared, &job, done).await;
    if job.assignment.streaming {
        // The end mark: how it ended, the log says.
        job.delta(bytes::Bytes::new()).await;
    }
    shared.running().remove(&task);
}

/// Reports how it ended until that is answered. What was not redeemed is given back, whatever the handler says.
async fn tell<H>(shared: &Shared<H>, job: &Job, done: Done) {
    let until = tokio::time::Instant::now() + REPORT_FOR;
    let outcome = if job.redeemed {
        hand_in(shared, report(job, done), until).await
    } else {
        let reason = match done {
            Done::Released(reason) => reason,
            Done::Cancelled { .. } => "cancelled".to_owned(),
            Done::Broken { code, .. } | Done::Failed { code, .. } => code,
            Done::Succeeded { .. } => "not_redeemed".to_owned(),
        };
        let release = Release { incarnation: shared.link.incarnation, lease: job.lease(), reason };
        shared.link.insist::<Taken>(Verb::Release, &release, until).await
    };
    match outcome {
        Ok(_) => {}
        // The task was cancelled, or its lease is over: nothing is owed any more.
        Err(CallError::Refused(refusal)) => tracing::info!(task = %job.assignment.task, %refusal, "an ending was refused"),
        Err(error) => tracing::error!(task = %job.assignment.task, %error, "an ending was not taken"),
    }
}

/// Reports; a result that is too large for a message goes ahead in pieces.
async fn hand_in<H>(shared: &Shared<H>, mut report: Report, until: tokio::time::Instant) -> Result<Taken, CallError> {
    if let Some(result) = report.result.take_if(|result| result.len() > MOST_INLINE) {
        let mut rest = result.as_str();
        let mut part = 0;
        while !rest.is_empty() {
            let (piece, behind) = rest.split_at(rest.floor_char_boundary(MOST_PIECE));
            let store = StorePart { incarnation: report.incarnation, lease: report.lease.clone(), part, text: piece.to_owned() };
            shared.link.insist::<Kept>(Verb::Store, &store, until).await?;
            (rest, part) = (behind, part + 1);
        }
        report.parts = Some(part);
    }
    shared.link.insist::<Taken>(Verb::Report, &report, until).await
}

fn report(job: &Job, done: Done) -> Report {
    match done {
        Done::Succeeded { result, usage } => Report { result: Some(result), usage, ..job.report(Outcome::Succeeded) },
        Done::Failed { code, upstream_status, partial, usage, detail } => {
            Report { code: Some(code), upstream_status, result: partial, usage, detail, ..job.report(Outcome::Failed) }
        }
        Done::Cancelled { partial, usage } => Report { result: partial, usage, ..job.report(Outcome::Cancelled) },
        Done::Broken { evidence, code, retryable, upstream_status, retry_after_seconds, partial, detail } => {
            let outcome = match evidence {
                Evidence::NotSent => Outcome::NotSent,
                Evidence::Rejected => Outcome::Rejected,
                Evidence::Unknown => Outcome::Unknown,
            };
            let result = partial.filter(|_| outcome == Outcome::Unknown);
            let detail = detail.filter(|_| outcome == Outcome::Rejected);
            Report { code: Some(code), retryable, upstream_status, retry_after_seconds, result, detail, ..job.report(outcome) }
        }
        // It is redeemed, so it cannot be given back; the handler says that nothing was sent.
        Done::Released(reason) => Report { code: Some(reason), retryable: true, ..job.report(Outcome::NotSent) },
    }
}
