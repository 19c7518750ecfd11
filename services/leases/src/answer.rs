//! Answers what workers ask. Who asks is what the subject says: the server's permissions bind it.

use crate::beat;
use crate::metrics::label;
use crate::role::{LEASE_TTL, Shared};
use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};
use signalbox_domain::task::{self, Acknowledge, BecomeUnknown, End, Ending, Grant, Holder, NotSent, Reject, Task, kind_matches};
use signalbox_domain::worker::{Command as WorkerCommand, Existing as KnownWorker, Worker};
use signalbox_domain::workload::Workload;
use signalbox_domain::{Code, Rejection, pool};
use signalbox_events::task::State;
use signalbox_events::work::*;
use signalbox_events::worker::{self, Registered};
use signalbox_events::{Aggregate, Fact, IncarnationId, Micros, PoolId, TaskId, WorkerId};
use signalbox_journal::nats::{HeaderMap, PlainRequest};
use signalbox_journal::{Executed, Failure, Request, Requester, StoreError};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};
use uuid::Uuid;

/// How often a worker renews.
const RENEW_EVERY: Duration = Duration::from_secs(3);
/// The longest wait of a claim.
const MOST_WAIT: Duration = Duration::from_secs(30);
/// A claim that waits looks by itself this often: a notice may fall between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Distance of marks that a worker claims.
const MARK_EVERY: Duration = Duration::from_secs(5);

pub(crate) async fn serve(shared: Arc<Shared>) -> Result<(), StoreError> {
    let mut requests = shared.nats.serve("work.*.*.*", "leases").await?;
    while let Some(request) = requests.next().await {
        tokio::spawn(one(shared.clone(), request));
    }
    Err(StoreError::Failed("the connection closed".to_owned()))
}

/// Who asks.
struct Asker<'a> {
    shared: &'a Shared,
    pool: PoolId,
    worker: WorkerId,
    form: Form,
    payload: &'a [u8],
}

/// Why a request is not answered as it was meant.
enum Refused {
    Rejection(Rejection),
    /// Ours: it may be asked again.
    Unavailable,
}

impl From<Rejection> for Refused {
    fn from(rejection: Rejection) -> Self {
        Self::Rejection(rejection)
    }
}

impl From<Failure> for Refused {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Rejected(rejection) => Self::Rejection(rejection),
            failure => {
                tracing::error!(error = %failure, "a worker's request failed");
                Self::Unavailable
            }
        }
    }
}

impl From<StoreError> for Refused {
    fn from(error: StoreError) -> Self {
        tracing::error!(%error, "a worker's request failed");
        Self::Unavailable
    }
}

type Answered<T> = Result<T, Refused>;

/// An answer must not go where the log listens, whatever a caller asks for. Across accounts the server itself makes the
/// reply subject (`_R_`); within one it must be an inbox of the worker's.
fn may_answer(reply: &str, worker: &WorkerId) -> bool {
    reply.starts_with("_R_.") || reply.starts_with(&format!("_INBOX_{worker}."))
}

async fn one(shared: Arc<Shared>, request: PlainRequest) {
    let Some((pool, worker, verb)) = parse_request(&request.subject) else { return };
    if !may_answer(&request.reply, &worker) {
        tracing::warn!(%worker, "a request with a reply subject outside the worker's inbox was not answered");
        return;
    }
    let json = request.headers.get(TYPE_HEADER).is_some_and(|value| value.as_str() == JSON);
    let form = if json { Form::Json } else { Form::MessagePack };
    let started = Instant::now();
    let asker = Asker { shared: &shared, pool, worker, form, payload: &request.payload };
    let answered = match verb {
        Verb::Hello => asker.written(asker.hello().await),
        Verb::Claim => asker.written(asker.claim().await),
        Verb::Redeem => asker.written(asker.redeem().await),
        Verb::Renew => asker.written(asker.renew().await),
        Verb::Release => asker.written(asker.release().await),
        Verb::Report => asker.written(asker.report().await),
        Verb::Bye => asker.written(asker.bye().await),
    };
    if verb != Verb::Claim {
        shared.metrics.seconds.get_or_create_owned(&label("verb", verb)).observe(started.elapsed().as_secs_f64());
    }
    let mut headers = HeaderMap::new();
    let body = match answered {
        Ok(body) => body,
        Err(refused) => {
            let (code, detail) = match refused {
                Refused::Rejection(rejection) => (rejection.code, rejection.detail),
                Refused::Unavailable => (Code::Unavailable, "ask again".to_owned()),
            };
            shared.metrics.refusals.get_or_create_owned(&[label("verb", verb), label("code", code)].concat()).inc();
            headers.insert(ERROR_HEADER, code.as_str());
            form.write(&Refusal { code: code.as_str().to_owned(), detail }).unwrap_or_default()
        }
    };
    if form == Form::Json {
        headers.insert(TYPE_HEADER, JSON);
    }
    if let Err(error) = shared.nats.answer(request.reply, headers, body.into()).await {
        tracing::warn!(%verb, %error, "an answer was not sent");
    }
}

impl Asker<'_> {
    fn written<T: Serialize>(&self, answered: Answered<T>) -> Answered<Vec<u8>> {
        self.form.write(&answered?).map_err(|_| Refused::Unavailable)
    }

    fn read<T: DeserializeOwned>(&self) -> Answered<T> {
        self.form.read(self.payload).map_err(|error| Rejection::new(Code::InvalidBody, error.to_string()).into())
    }

    fn requester(&self) -> Requester {
        Requester { actor: format!("worker:{}", self.worker), ..Requester::role("leases") }
    }

    async fn of_task(&self, lease: &LeaseRef, command: impl Into<task::Command>) -> Answered<Executed<task::State>> {
        let aggregate = Aggregate::task(lease.account, lease.task);
        Ok(self.shared.ledger.execute::<Task>(Request { aggregate, command, requester: self.requester() }).await?)
    }

    async fn of_worker(&self, command: WorkerCommand) -> Answered<()> {
        let request = Request { aggregate: Aggregate::worker(&self.worker), command, requester: self.requester() };
        self.shared.ledger.execute::<Worker>(request).await?;
        Ok(())
    }

    fn holder(&self, incarnation: IncarnationId, lease: &LeaseRef) -> Holder {
        Holder { epoch: lease.epoch, worker: self.worker.clone(), incarnation }
    }

    /// The worker, where this start of it may speak for this pool.
    async fn current(&self, incarnation: IncarnationId) -> Answered<KnownWorker> {
        let worker = self.shared.ledger.load::<Worker>(&Aggregate::worker(&self.worker)).await?;
        let unknown = || Rejection::new(Code::IncarnationRetired, "say hello first");
        let worker = worker.ok_or_else(unknown)?;
        if worker.registered.pool != self.pool {
            return Err(Rejection::new(Code::WorkerInOtherPool, "the worker is registered in another pool").into());
        }
        if !worker.is_current(incarnation) {
            return Err(Rejection::new(Code::IncarnationRetired, "this start of the worker is over; start anew with a fresh incarnation").into());
        }
        Ok(worker)
    }

    async fn hello(&self) -> Answered<Welcome> {
        let hello: Hello = self.read()?;
        if hello.protocol != PROTOCOL {
            return Err(Rejection::field("protocol", format!("must be {PROTOCOL}")).into());
        }
        if self.shared.ledger.load::<pool::Pool>(&Aggregate::pool(&self.pool)).await?.is_none() {
            return Err(Rejection::new(Code::NotFound, "there is no such pool").into());
        }
        let registered = Registered {
            pool: self.pool.clone(),
            incarnation: hello.incarnation,
            protocol: hello.protocol,
            version: hello.version,
            capabilities: hello.capabilities,
            slots: hello.slots,
        };
        self.of_worker(WorkerCommand::Register(registered)).await?;
        let beat = Beat { incarnation: hello.incarnation, at: self.shared.now(), free_slots: hello.slots, leases: vec![] };
        beat::put(self.shared.journal(), &self.pool, &self.worker, &beat).await?;
        Ok(Welcome { protocol: PROTOCOL, lease_ttl_ms: millis(LEASE_TTL), renew_every_ms: millis(RENEW_EVERY), claim_wait_ms: millis(MOST_WAIT) })
    }

    async fn claim(&self) -> Answered<Claimed> {
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
        let pool = self.shared.ledger.load::<pool::Pool>(&Aggregate::pool(&self.pool)).await?;
        if !pool.is_some_and(|pool| matches!(pool.state, Pool::Enabled | Pool::Cordoned)) {
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
        let first = self.shared.ledger.first(&Aggregate::task(lease.account, lease.task)).await?;
        let payload = match first.map(|recorded| recorded.fact) {
            Some(Fact::Task(signalbox_events::task::Event::Accepted(fact))) => fact.payload.plain().map(str::to_owned),
            _ => None,
        };
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
            payload: payload.ok_or(Refused::Unavailable)?,
            destination: self.destination(task, held.epoch).await?,
            attempt_id: Uuid::new_v5(&lease.task.0, &held.epoch.to_be_bytes()),
            expires_in_ms: millis(LEASE_TTL),
        })
    }

    /// Where the task's deployment serves now. None: it does not; the worker then says that nothing was sent.
    async fn destination(&self, task: &task::Existing, epoch: u64) -> Answered<Option<Destination>> {
        let Some(target) = &task.target else { return Ok(None) };
        let Some(workload) = target.workload else { return Ok(None) };
        let workload = self.shared.ledger.load::<Workload>(&Aggregate::workload(target.account, workload)).await?;
        let workload = workload.filter(|workload| !workload.deleting && !workload.deleted);
        let found = workload.and_then(|workload| workload.destination(usize::try_from(epoch).unwrap_or(0)));
        Ok(found.map(|(base_url, model)| Destination { base_url, model }))
    }

    /// Until when a lease was renewed.
    async fn renewed_until(&self, incarnation: IncarnationId, task: TaskId, epoch: u64) -> Answered<Option<Micros>> {
        Ok(renewed_until(self.shared, &self.pool, &self.worker, incarnation, task, epoch).await?)
    }

    async fn redeem(&self) -> Answered<Redeemed> {
        let redeem: Redeem = self.read()?;
        let mut token = [0; 32];
        hex::decode_to_slice(&redeem.token, &mut token).map_err(|_| Rejection::new(Code::TokenUnknown, Code::TokenUnknown.title()))?;
        self.current(redeem.incarnation).await?;
        let pool = self.shared.ledger.load::<pool::Pool>(&Aggregate::pool(&self.pool)).await?;
        if pool.is_none_or(|pool| pool.state == signalbox_events::pool::State::Disabled) {
            return Err(Rejection::new(Code::PoolNotEnabled, "the pool is disabled").into());
        }
        let command = task::Redeem {
            token_hash: Sha256::digest(token).into(),
            epoch: redeem.lease.epoch,
            pool: self.pool.clone(),
            worker: self.worker.clone(),
            incarnation: redeem.incarnation,
            nonce: redeem.nonce,
            renewed_until: self.renewed_until(redeem.incarnation, redeem.lease.task, redeem.lease.epoch).await?,
        };
        // A task of another account or none: the token is no token here.
        let executed = self.of_task(&redeem.lease, command).await.map_err(|refused| match refused {
            Refused::Rejection(rejection) if rejection.code == Code::NotFound => {
                Rejection::new(Code::TokenUnknown, Code::TokenUnknown.title()).into()
            }
            other => other,
        })?;
        if executed.stated.is_some() {
            self.shared.metrics.redemptions.inc();
        }
        Ok(Redeemed {})
    }

    async fn renew(&self) -> Answered<Renewed> {
        let renew: Renew = self.read()?;
        let worker = self.current(renew.incarnation).await?;
        let mut states = Vec::new();
        let mut live = Vec::new();
        for lease in renew.leases.iter().take(4096) {
            let task = self.shared.ledger.load::<Task>(&Aggregate::task(lease.account, lease.task)).await?;
            let state = lease_state(task.as_ref(), &self.holder(renew.incarnation, lease));
            let cancel = task.is_some_and(|task| task.cancel_waits);
            if state == "live" {
                live.push((lease.task, lease.epoch));
            }
            states.push(LeaseState { task: lease.task, epoch: lease.epoch, state: state.to_owned(), cancel });
        }
        let beat = Beat { incarnation: renew.incarnation, at: self.shared.now(), free_slots: renew.free_slots, leases: live };
        beat::put(self.shared.journal(), &self.pool, &self.worker, &beat).await?;
        Ok(Renewed { expires_in_ms: millis(LEASE_TTL), leases: states, draining: worker.draining })
    }

    async fn release(&self) -> Answered<Taken> {
        let release: Release = self.read()?;
        word("reason", &release.reason)?;
        let holder = self.holder(release.incarnation, &release.lease);
        let executed = self.of_task(&release.lease, task::Release { holder, reason: release.reason }).await?;
        Ok(taken(&executed))
    }

    async fn report(&self) -> Answered<Taken> {
        let report: Report = self.read()?;
        let lease = report.lease.clone();
        let holder = self.holder(report.incarnation, &lease);
        let code = report.code.unwrap_or_else(|| "unspecified".to_owned());
        word("code", &code)?;
        let clean = |text: Option<String>| text.map(|text| text.replace('\0', "\u{fffd}"));
        let text = clean(report.result);
        let usage = report.usage;
        let command: task::Command = match report.outcome {
            Outcome::Acknowledged => {
                let upstream_id = report.upstream_id.filter(|id| !id.is_empty() && id.len() <= 256 && !id.contains('\0'));
                Acknowledge { holder, upstream_id: upstream_id.ok_or_else(|| Rejection::missing("upstream_id"))? }.into()
            }
            Outcome::NotSent => NotSent { holder, code, retryable: report.retryable }.into(),
            Outcome::Rejected => Reject {
                holder,
                code,
                upstream_status: report.upstream_status,
                retryable: report.retryable,
                retry_after_seconds: report.retry_after_seconds,
            }
            .into(),
            Outcome::Succeeded => {
                let result = text.ok_or_else(|| Rejection::missing("result"))?;
                End { holder, ending: Ending::Succeeded { result }, usage }.into()
            }
            Outcome::Failed => End { holder, ending: Ending::Failed { code, upstream_status: report.upstream_status, partial: text }, usage }.into(),
            Outcome::Cancelled => End { holder, ending: Ending::Cancelled { partial: text }, usage }.into(),
            Outcome::Unknown => BecomeUnknown { holder, code, partial: text }.into(),
        };
        Ok(taken(&self.of_task(&lease, command).await?))
    }

    async fn bye(&self) -> Answered<Taken> {
        let bye: Bye = self.read()?;
        self.of_worker(WorkerCommand::Retire(bye.incarnation, "bye")).await?;
        Ok(Taken { state: None })
    }
}

fn taken(executed: &Executed<task::State>) -> Taken {
    Taken { state: executed.state.as_ref().map(|task| task.state) }
}

/// A stable word: it is shown and counted, so it must not carry text.
fn word(path: &str, text: &str) -> Result<(), Rejection> {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    if (1..=64).contains(&text.len()) && text.bytes().all(plain) {
        Ok(())
    } else {
        Err(Rejection::field(path, "must be a word of [a-z0-9_], at most 64 characters"))
    }
}

/// What a renewal says of a lease: one that was ended is closed, not lost.
fn lease_state(task: Option<&task::Existing>, holder: &Holder) -> &'static str {
    let Some(task) = task else { return Code::TokenUnknown.as_str() };
    let Some(lease) = &task.lease else { return Code::LeaseClosed.as_str() };
    if lease.epoch != holder.epoch || lease.worker != holder.worker || lease.incarnation != holder.incarnation {
        return Code::LeaseSuperseded.as_str();
    }
    match task.state {
        State::Leased | State::Executing => "live",
        State::SubmissionUnknown => Code::SubmissionStateUnknown.as_str(),
        State::Cancelled if lease.nonce.is_none() => Code::TaskCancelled.as_str(),
        State::Accepted | State::Queued | State::RetryWait | State::Succeeded | State::Failed | State::Cancelled | State::DeadLettered => {
            Code::LeaseClosed.as_str()
        }
    }
}

/// Until when a lease was renewed, by its own incarnation.
pub(crate) async fn renewed_until(
    shared: &Shared,
    pool: &PoolId,
    worker: &WorkerId,
    incarnation: IncarnationId,
    task: TaskId,
    epoch: u64,
) -> Result<Option<Micros>, StoreError> {
    let beat = beat::get(shared.journal(), pool, worker).await?;
    let beat = beat.filter(|beat| beat.incarnation == incarnation && beat.leases.contains(&(task, epoch)));
    Ok(beat.map(|beat| Micros(beat.at.0 + i64::try_from(LEASE_TTL.as_micros()).unwrap_or(0))))
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
