//! A call through a worker of a pool: a synchronous task, its deltas as they arrive, its end as the log has it.

use super::{CallError, Chunks, Reply};
use crate::pool::first_enabled;
use crate::state::App;
use bytes::Bytes;
use serde_json::{Map, Value};
use signalbox_domain::Code;
use signalbox_domain::task::{Accept, Cancel, Command, Existing, StartDeadline, Task};
use signalbox_events::task::{Event, Mode, RunMode, State, Target};
use signalbox_events::work::{ERROR_HEADER, Form, Wanted as Capacity, capacity_subject, notice_subject, stream_subject};
use signalbox_events::{Aggregate, Fact, Micros, PoolId, PrincipalId, TaskId};
use signalbox_journal::nats::{DeltaReader, PlainMessages};
use signalbox_journal::{Failure, Request, Requester};
use std::time::Duration;

/// How long a call waits for a worker with a free slot.
const START_WITHIN: Duration = Duration::from_secs(1);
/// How long nothing is heard before the log is asked.
const SILENCE: Duration = Duration::from_millis(250);
/// How long the end may take to stand on the log after a worker's last word.
const END_WITHIN: Duration = Duration::from_secs(30);
/// How long the leases role may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// A call.
pub(crate) struct Wanted {
    /// The task's id, where the caller has one; the same id is the same call.
    pub id: Option<TaskId>,
    /// Whose it is.
    pub owner: PrincipalId,
    /// The owner's name.
    pub owner_name: String,
    /// On whose behalf, for the log.
    pub requester: Requester,
    /// The account.
    pub account: signalbox_events::AccountId,
    /// What is to be done.
    pub kind: &'static str,
    /// With what.
    pub body: Map<String, Value>,
    /// Whether the answer is wanted piece by piece.
    pub streaming: bool,
}

/// A synchronous task to take on.
pub(crate) struct Submission {
    /// The task.
    pub aggregate: Aggregate,
    /// The task's id.
    pub task: TaskId,
    /// What is accepted; its mode, pool and deadline are set here.
    pub accept: Accept,
    /// By whom.
    pub requester: Requester,
    /// How long it waits for a worker; else a second.
    pub start_within: Option<Duration>,
    /// Whether the task ends when nobody waits any more.
    pub cancel_when_left: bool,
}

/// How a synchronous task ended, where it ended well.
pub(crate) struct Ended {
    /// Its result: JSON as text.
    pub result: String,
}

/// What comes next of a synchronous task.
pub(crate) enum Step {
    /// A piece of its answer.
    Delta(Value),
    /// Its end.
    End(Ended),
}

/// A synchronous task that a worker has taken.
pub(crate) struct Leased {
    app: App,
    aggregate: Aggregate,
    task: TaskId,
    requester: Requester,
    notices: PlainMessages,
    /// The attempt whose deltas are read.
    reader: Option<(u32, DeltaReader)>,
    /// A chunk that was read ahead.
    ahead: Option<Value>,
    /// What was wanted of whoever waits was given, or they are free to go.
    over: bool,
}

impl Drop for Leased {
    /// Who waited has left: the worker breaks the call off.
    fn drop(&mut self) {
        if self.over {
            return;
        }
        let (app, aggregate) = (self.app.clone(), self.aggregate.clone());
        let requester = Requester { command_id: None, ..self.requester.clone() };
        tokio::spawn(async move {
            if let Err(error) = app.ledger.execute::<Task>(Request { aggregate, command: Cancel {}, requester }).await {
                tracing::info!(%error, "a call that nobody waits for was not cancelled");
            }
        });
    }
}

fn ours(error: &dyn std::fmt::Display) -> CallError {
    tracing::error!(%error, "a call cannot be followed");
    CallError::new(Code::Unavailable, "a part of the service does not answer")
}

fn nobody() -> CallError {
    CallError::new(Code::NoWorkerAvailable, "no worker with a free slot takes this now")
}

impl Leased {
    /// Calls a model through a worker, up to the beginning of its answer.
    pub(super) async fn call(app: &App, wanted: Wanted, target: Target) -> Result<Reply, CallError> {
        let task = wanted.id.unwrap_or_else(|| TaskId(app.context().id));
        let payload = Value::Object(wanted.body).to_string();
        let submission = Submission {
            aggregate: Aggregate::task(wanted.account, task),
            task,
            accept: Accept {
                owner: wanted.owner,
                owner_name: wanted.owner_name,
                kind: wanted.kind.to_owned(),
                canonical: payload.clone(),
                payload,
                mode: Mode::Sync,
                run_mode: RunMode::Live,
                priority: 5,
                streaming: wanted.streaming,
                target: Some(target),
                wanted_pool: None,
                pool: None,
                start_deadline: None,
            },
            requester: Requester { command_id: None, ..wanted.requester },
            start_within: None,
            cancel_when_left: true,
        };
        let mut leased = Self::submit(app, submission).await?;
        if !wanted.streaming {
            let ended = leased.whole().await?;
            return Ok(Reply::Whole(json_of(&ended.result)?));
        }
        match leased.delta().await? {
            Step::Delta(chunk) => {
                leased.ahead = Some(chunk);
                Ok(Reply::Stream(Chunks::Leased(Box::new(leased))))
            }
            // The model answered as a whole although a stream was asked for.
            Step::End(ended) => Ok(Reply::Whole(json_of(&ended.result)?)),
        }
    }

    /// Takes a synchronous task on, and waits until a worker has it. A typed refusal where none can.
    pub async fn submit(app: &App, submission: Submission) -> Result<Self, CallError> {
        let Submission { aggregate, task, mut accept, requester, start_within, cancel_when_left } = submission;
        // A call without a key of its own is new.
        let known = !cancel_when_left && app.ledger.load::<Task>(&aggregate).await.map_err(|error| ours(&error))?.is_some();
        if !known {
            let pool = match accept.pool.take() {
                Some(pool) => pool,
                None => first_enabled(app).await.map_err(|error| ours(&error))?.ok_or_else(nobody)?,
            };
            has_workers(app, &pool, &accept.kind, accept.streaming).await?;
            accept.pool = Some(pool);
            let within = i64::try_from(start_within.unwrap_or(START_WITHIN).as_micros()).unwrap_or(i64::MAX);
            accept.start_deadline = Some(Micros(Micros::from(app.context().now).0.saturating_add(within)));
        }
        accept.mode = Mode::Sync;
        let notices = app.nats.subscribe(&notice_subject(task)).await.map_err(|error| ours(&error))?;
        let request = Request { aggregate: aggregate.clone(), command: accept, requester: requester.clone() };
        app.ledger.create::<Task>(request).await.map_err(|error| match error {
            Failure::Rejected(rejection) => CallError::new(rejection.code, rejection.detail),
            error => ours(&error),
        })?;
        let over = !cancel_when_left;
        let mut leased = Self { app: app.clone(), aggregate, task, requester, notices, reader: None, ahead: None, over };
        leased.taken().await?;
        Ok(leased)
    }

    async fn load(&self) -> Result<Existing, CallError> {
        let state = self.app.ledger.load::<Task>(&self.aggregate).await.map_err(|error| ours(&error))?;
        state.ok_or_else(|| ours(&"the task is gone"))
    }

    /// Waits until something may have happened.
    async fn notice(&mut self, patience: Duration) {
        let _ = tokio::time::timeout(patience, self.notices.next()).await;
    }

    /// Waits until a worker has taken the task, or its start deadline has passed.
    async fn taken(&mut self) -> Result<(), CallError> {
        loop {
            let task = self.load().await?;
            if !matches!(task.state, State::Accepted | State::Queued) {
                return Ok(());
            }
            let now = Micros::from(self.app.context().now).0;
            let left = task.start_deadline.map_or(i64::MAX, |at| at.0 - now);
            if left <= 0 {
                let command: Command = StartDeadline {}.into();
                let (aggregate, requester) = (self.aggregate.clone(), Requester::role("api"));
                self.app.ledger.execute::<Task>(Request { aggregate, command, requester }).await.map_err(|error| ours(&error))?;
                continue;
            }
            self.notice(SILENCE.min(Duration::from_micros(left.unsigned_abs()))).await;
        }
    }

    /// The next chunk of an answer; `None` once it has ended well.
    pub async fn next(&mut self) -> Result<Option<Value>, CallError> {
        if let Some(chunk) = self.ahead.take() {
            return Ok(Some(chunk));
        }
        match self.delta().await? {
            Step::Delta(chunk) => Ok(Some(chunk)),
            Step::End(_) => Ok(None),
        }
    }

    /// The next delta, or the end.
    pub async fn delta(&mut self) -> Result<Step, CallError> {
        loop {
            let Some((_, reader)) = &mut self.reader else {
                self.open().await?;
                if self.reader.is_some() {
                    continue;
                }
                return Ok(Step::End(self.ending().await?));
            };
            match reader.next(SILENCE).await.map_err(|error| ours(&error))? {
                // The last word of this attempt. It may have been given back before it was sent.
                Some(delta) if delta.payload.is_empty() => {
                    self.reader = None;
                    self.settled().await?;
                }
                Some(delta) => {
                    let bad = |_| CallError::new(Code::UpstreamProtocol, "a piece of the answer is not JSON");
                    return Ok(Step::Delta(serde_json::from_slice(&delta.payload).map_err(bad)?));
                }
                None => {
                    let task = self.load().await?;
                    let attempt = task.live_lease().map(|lease| lease.attempt);
                    if attempt != self.reader.as_ref().map(|(attempt, _)| *attempt) {
                        self.reader = None;
                    }
                }
            }
        }
    }

    /// Waits until no lease is live: a worker's last word came a moment before its report stands on the log, or behind it.
    async fn settled(&mut self) -> Result<(), CallError> {
        let until = tokio::time::Instant::now() + END_WITHIN;
        while self.load().await?.live_lease().is_some() {
            if tokio::time::Instant::now() > until {
                return Err(ours(&"a worker has ended without a report"));
            }
            self.notice(SILENCE).await;
        }
        Ok(())
    }

    /// Begins to read the deltas of the attempt that runs. None is read where the task has ended.
    async fn open(&mut self) -> Result<(), CallError> {
        loop {
            let task = self.load().await?;
            if let Some(lease) = task.live_lease() {
                let subject = stream_subject(&lease.pool, &lease.worker, self.task, lease.attempt);
                let reader = self.app.deltas.follow(&subject, 0).await.map_err(|error| ours(&error))?;
                self.reader = Some((lease.attempt, reader));
                return Ok(());
            }
            match task.state {
                // It was given back, and waits for another worker.
                State::Accepted | State::Queued => self.taken().await?,
                State::RetryWait => self.notice(SILENCE).await,
                State::Leased | State::Executing => {}
                State::SubmissionUnknown | State::Succeeded | State::Failed | State::Cancelled | State::DeadLettered => return Ok(()),
            }
        }
    }

    /// Waits for the end, without its deltas.
    pub async fn whole(&mut self) -> Result<Ended, CallError> {
        loop {
            let task = self.load().await?;
            if task.state.is_terminal() || task.state == State::SubmissionUnknown {
                return self.ending().await;
            }
            if matches!(task.state, State::Accepted | State::Queued) {
                self.taken().await?;
            } else {
                self.notice(SILENCE * 2).await;
            }
        }
    }

    /// How it ended.
    async fn ending(&mut self) -> Result<Ended, CallError> {
        self.over = true;
        let events = self.app.ledger.history(&self.aggregate, 0).await.map_err(|error| ours(&error))?;
        let outcome = events.iter().rev().find_map(|recorded| match &recorded.fact {
            Fact::Task(event) => outcome(event),
            _ => None,
        });
        outcome.unwrap_or_else(|| Err(ours(&"a task has ended without an ending")))
    }
}

/// What an event says of the end; `None`: nothing.
fn outcome(event: &Event) -> Option<Result<Ended, CallError>> {
    let failed = |code: &str, status: Option<u16>, detail: Option<&signalbox_events::Text>| {
        let code = Code::ALL.iter().copied().find(|known| known.as_str() == code).unwrap_or(Code::UpstreamProtocol);
        let detail = detail.and_then(|text| text.plain()).map_or_else(|| code.title().to_owned(), str::to_owned);
        Some(Err(CallError { code, detail, status }))
    };
    match event {
        Event::Succeeded(fact) => Some(Ok(Ended { result: fact.result.plain()?.to_owned() })),
        Event::LateResult(fact) if fact.to == State::Succeeded => Some(Ok(Ended { result: fact.result.as_ref()?.plain()?.to_owned() })),
        Event::Resolved(fact) if fact.to == State::Succeeded => Some(Ok(Ended { result: fact.result.as_ref()?.plain()?.to_owned() })),
        Event::Failed(fact) => failed(&fact.code, fact.upstream_status, fact.detail.as_ref()),
        Event::UpstreamRejected(fact) => failed(&fact.code, fact.upstream_status, fact.detail.as_ref()),
        Event::NotSent(fact) => failed(if fact.code == "destination_missing" { "workload_not_ready" } else { &fact.code }, None, None),
        Event::SubmissionBecameUnknown(fact) => failed(&fact.code, None, None),
        Event::LateResult(fact) => failed(fact.code.as_deref().unwrap_or("task_cancelled"), None, None),
        Event::LeaseLost(_) | Event::WorkerLost(_) => Some(Err(CallError::new(Code::WorkerLost, Code::WorkerLost.title()))),
        Event::StartDeadlineExceeded(_) | Event::RouteUnavailable(_) | Event::LeaseReleased(_) | Event::LeaseExpired(_) => Some(Err(nobody())),
        Event::Cancelled(_) | Event::CancelRequested(_) | Event::Resolved(_) => {
            Some(Err(CallError::new(Code::TaskCancelled, Code::TaskCancelled.title())))
        }
        Event::Accepted(_)
        | Event::Routed(_)
        | Event::Rerouted(_)
        | Event::Leased(_)
        | Event::TokenRedeemed(_)
        | Event::SubmissionAcknowledged(_)
        | Event::RetryDue(_)
        | Event::StaleResultKept(_)
        | Event::Requeued(_)
        | Event::Revived(_) => None,
    }
}

fn json_of(text: &str) -> Result<Value, CallError> {
    serde_json::from_str(text).map_err(|_| CallError::new(Code::UpstreamProtocol, "the answer is not JSON"))
}

/// Asks the leases role whether a worker of the pool could take the task: an answer at once.
async fn has_workers(app: &App, pool: &PoolId, kind: &str, streaming: bool) -> Result<(), CallError> {
    let body = Form::MessagePack.write(&Capacity { kind: kind.to_owned(), streaming }).map_err(|error| ours(&error))?;
    let answer = app.nats.request(&capacity_subject(pool), Bytes::from(body), PATIENCE).await;
    let (headers, _) = answer.map_err(|error| ours(&error))?;
    if headers.get(ERROR_HEADER).is_some() { Err(nobody()) } else { Ok(()) }
}
