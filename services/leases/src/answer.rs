//! Answers what workers ask. Who asks is what the subject says: the server's permissions bind it.

use crate::beat;
use crate::metrics::label;
use crate::role::{LEASE_TTL, Shared};
use serde::Serialize;
use serde::de::DeserializeOwned;
use signalbox_domain::task::{self, Acknowledge, BecomeUnknown, End, Ending, Holder, NotSent, Reject, Task};
use signalbox_domain::worker::{Command as WorkerCommand, Existing as KnownWorker, Worker};
use signalbox_domain::{Code, Rejection, pool};
use signalbox_events::task::State;
use signalbox_events::work::*;
use signalbox_events::worker::Registered;
use signalbox_events::{Aggregate, IncarnationId, PoolId, WorkerId};
use signalbox_journal::nats::{HeaderMap, PlainRequest};
use signalbox_journal::{Executed, Failure, Request, Requester, StoreError};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How old may be what is known of pools and workers.
const RECENT: Duration = Duration::from_millis(250);
/// How often a worker renews.
const RENEW_EVERY: Duration = Duration::from_secs(3);
/// The longest wait of a claim.
pub(crate) const MOST_WAIT: Duration = Duration::from_secs(30);

pub(crate) async fn serve(shared: Arc<Shared>) -> Result<(), StoreError> {
    let mut requests = shared.nats.serve("work.*.*.*", "leases").await?;
    while let Some(request) = requests.next().await {
        tokio::spawn(one(shared.clone(), request));
    }
    Err(StoreError::Failed("the connection closed".to_owned()))
}

/// Who asks.
pub(crate) struct Asker<'a> {
    pub shared: &'a Shared,
    pub pool: PoolId,
    pub worker: WorkerId,
    form: Form,
    payload: &'a [u8],
}

/// Why a request is not answered as it was meant.
pub(crate) enum Refused {
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

pub(crate) type Answered<T> = Result<T, Refused>;

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
        Verb::Fetch => asker.written(asker.fetch().await),
        Verb::Store => asker.written(asker.store().await),
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

    pub fn read<T: DeserializeOwned>(&self) -> Answered<T> {
        self.form.read(self.payload).map_err(|error| Rejection::new(Code::InvalidBody, error.to_string()).into())
    }

    fn requester(&self) -> Requester {
        Requester { actor: format!("worker:{}", self.worker), ..Requester::role("leases") }
    }

    pub async fn of_task(&self, lease: &LeaseRef, command: impl Into<task::Command>) -> Answered<Executed<task::State>> {
        let aggregate = Aggregate::task(lease.account, lease.task);
        Ok(self.shared.ledger.execute::<Task>(Request { aggregate, command, requester: self.requester() }).await?)
    }

    pub async fn of_worker(&self, command: WorkerCommand) -> Answered<()> {
        let request = Request { aggregate: Aggregate::worker(&self.worker), command, requester: self.requester() };
        self.shared.ledger.execute::<Worker>(request).await?;
        Ok(())
    }

    pub fn holder(&self, incarnation: IncarnationId, lease: &LeaseRef) -> Holder {
        Holder { epoch: lease.epoch, worker: self.worker.clone(), incarnation }
    }

    /// The worker as this replica has lately known it. Who is over may be heard for a moment longer by another replica: what it is
    /// granted is taken away at once, since rules and sweeper look at the lease's own incarnation.
    async fn known(&self) -> Answered<Option<KnownWorker>> {
        Ok(self.shared.ledger.load_recent::<Worker>(&Aggregate::worker(&self.worker), RECENT).await?)
    }

    /// The pool as this replica has lately known it.
    pub async fn pool(&self) -> Answered<Option<pool::Existing>> {
        Ok(self.shared.ledger.load_recent::<pool::Pool>(&Aggregate::pool(&self.pool), RECENT).await?)
    }

    /// The worker, where this start of it may speak for this pool.
    pub async fn current(&self, incarnation: IncarnationId) -> Answered<KnownWorker> {
        let speaks = |worker: &KnownWorker| worker.registered.pool == self.pool && worker.is_current(incarnation);
        let mut known = self.known().await?;
        if !known.as_ref().is_some_and(speaks) {
            // It may have said hello at another replica just now.
            known = self.shared.ledger.load::<Worker>(&Aggregate::worker(&self.worker)).await?;
        }
        let worker = known.ok_or_else(|| Rejection::new(Code::IncarnationRetired, "say hello first"))?;
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
            public_key: hello.public_key.as_deref().map(public_key).transpose()?,
        };
        self.of_worker(WorkerCommand::Register(registered)).await?;
        let beat = Beat { incarnation: hello.incarnation, at: self.shared.now(), free_slots: hello.slots, leases: vec![] };
        beat::put(self.shared.journal(), &self.pool, &self.worker, &beat).await?;
        Ok(Welcome { protocol: PROTOCOL, lease_ttl_ms: millis(LEASE_TTL), renew_every_ms: millis(RENEW_EVERY), claim_wait_ms: millis(MOST_WAIT) })
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
        let text = match report.parts {
            None => clean(report.result),
            Some(parts) => clean(Some(self.gather(&holder, &lease, parts).await?)),
        };
        let detail = clean(report.detail).map(|text| text.chars().take(MOST_DETAIL).collect());
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
                detail,
            }
            .into(),
            Outcome::Succeeded => {
                let result = text.ok_or_else(|| Rejection::missing("result"))?;
                End { holder, ending: Ending::Succeeded { result }, usage }.into()
            }
            Outcome::Failed => {
                End { holder, ending: Ending::Failed { code, upstream_status: report.upstream_status, partial: text, detail }, usage }.into()
            }
            Outcome::Cancelled => End { holder, ending: Ending::Cancelled { partial: text }, usage }.into(),
            Outcome::Unknown => BecomeUnknown { holder, code, partial: text }.into(),
        };
        let executed = self.of_task(&lease, command).await?;
        if let Some(parts) = report.parts {
            self.forget(&lease, parts).await;
        }
        Ok(taken(&executed))
    }

    async fn bye(&self) -> Answered<Taken> {
        let bye: Bye = self.read()?;
        self.of_worker(WorkerCommand::Retire(bye.incarnation, "bye")).await?;
        Ok(Taken { state: None })
    }
}

/// The key of a start, from its 64 hex digits.
fn public_key(text: &str) -> Result<[u8; 32], Rejection> {
    let mut key = [0; 32];
    hex::decode_to_slice(text, &mut key).map_err(|_| Rejection::field("public_key", "must be 64 hex digits"))?;
    Ok(key)
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

pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
