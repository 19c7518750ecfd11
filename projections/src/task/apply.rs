//! Folds events of tasks into rows.

use super::{COLUMNS, Row, TABLE};
use crate::{ApplyError, rows};
use chrono::{DateTime, Utc};
use signalbox_events::conversation::Usage;
use signalbox_events::task::{Accepted, Event, State};
use signalbox_events::{Fact, Recorded, Text};
use sqlx::PgConnection;
use std::collections::BTreeMap;
use uuid::Uuid;

pub(super) async fn apply(db: &mut PgConnection, events: &[&Recorded]) -> Result<(), ApplyError> {
    let mut touched = Vec::new();
    for recorded in events {
        if let Fact::Task(event) = &recorded.fact {
            let id = Uuid::try_parse(&recorded.aggregate.id).map_err(|_| ApplyError::Poison(format!("{} has no id", recorded.aggregate)))?;
            touched.push((id, *recorded, event));
        }
    }
    let known: Vec<Uuid> = touched.iter().filter(|(_, _, event)| !matches!(event, Event::Accepted(_))).map(|(id, _, _)| *id).collect();
    let mut tasks: BTreeMap<Uuid, Row> = rows::load(db, TABLE, "id", &known).await?.into_iter().map(|row: Row| (row.id, row)).collect();
    for (id, recorded, event) in touched {
        if let Event::Accepted(fact) = event {
            tasks.insert(id, accepted(id, recorded, fact));
            continue;
        }
        let row = tasks.get_mut(&id).ok_or_else(|| ApplyError::Poison(format!("{} has no row yet", recorded.aggregate)))?;
        row.sequence = recorded.position.sequence;
        evolve(row, recorded.envelope.at.into(), event);
    }
    rows::upsert(db, TABLE, "id", COLUMNS, &tasks.into_values().collect::<Vec<_>>()).await
}

fn accepted(id: Uuid, recorded: &Recorded, fact: &Accepted) -> Row {
    let at = recorded.envelope.at.into();
    let target = fact.target.as_ref();
    Row {
        id,
        account: recorded.aggregate.account.0,
        owner_id: fact.owner.0,
        owner_name: fact.owner_name.clone(),
        kind: fact.kind.clone(),
        mode: fact.mode,
        run_mode: fact.run_mode,
        priority: fact.priority,
        streaming: fact.streaming,
        idempotent: fact.idempotent,
        model: target.map(|target| target.model.clone()),
        workload: target.and_then(|target| target.workload).map(|id| id.0),
        upstream: target.and_then(|target| target.upstream).map(|id| id.0),
        state: fact.to,
        cancel_waits: false,
        wanted_pool: fact.wanted_pool.as_ref().map(ToString::to_string),
        pool: fact.pool.as_ref().map(ToString::to_string),
        worker: None,
        incarnation: None,
        epoch: None,
        attempt: 0,
        redemptions: 0,
        retries: 0,
        code: None,
        upstream_status: None,
        upstream_id: None,
        evidence: None,
        resolution: None,
        reason: None,
        payload_characters: fact.payload.characters(),
        result_characters: None,
        prompt_tokens: None,
        completion_tokens: None,
        usage_estimated: None,
        accepted_at: at,
        queued_at: (fact.to == State::Queued).then_some(at),
        leased_at: None,
        lease_expires_at: None,
        redeemed_at: None,
        start_deadline: fact.start_deadline.map(Into::into),
        retry_at: None,
        unknown_since: None,
        ended_at: None,
        updated_at: at,
        partition: recorded.position.partition,
        sequence: recorded.position.sequence,
    }
}

fn evolve(row: &mut Row, at: DateTime<Utc>, event: &Event) {
    row.updated_at = at;
    match event {
        Event::Accepted(_) | Event::StaleResultKept(_) => {}
        Event::Routed(fact) => queue(row, at, Some(fact.pool.to_string())),
        Event::Rerouted(fact) => queue(row, at, Some(fact.pool.to_string())),
        Event::RetryDue(fact) => queue(row, at, Some(fact.pool.to_string())),
        Event::Requeued(_) => queue(row, at, None),
        Event::RouteUnavailable(fact) => {
            row.code = Some(fact.reason.clone());
            to(row, at, State::Failed);
        }
        Event::StartDeadlineExceeded(_) => {
            row.code = Some("start_deadline_exceeded".to_owned());
            to(row, at, State::Failed);
        }
        Event::Leased(fact) => {
            row.worker = Some(fact.worker.to_string());
            row.incarnation = Some(fact.incarnation.0);
            row.epoch = Some(fact.epoch);
            row.attempt = fact.attempt;
            row.leased_at = Some(at);
            row.lease_expires_at = Some(fact.expires_at.into());
            to(row, at, State::Leased);
        }
        Event::LeaseReleased(fact) => back(row, at, fact.to, &fact.reason),
        Event::LeaseExpired(fact) => back(row, at, fact.to, &fact.reason),
        Event::TokenRedeemed(_) => {
            row.redemptions += 1;
            row.redeemed_at = Some(at);
            to(row, at, State::Executing);
        }
        Event::SubmissionAcknowledged(fact) => row.upstream_id = Some(fact.upstream_id.clone()),
        Event::NotSent(fact) => refused(row, at, fact.to, &fact.code, None, fact.retry_at.map(Into::into)),
        Event::UpstreamRejected(fact) => refused(row, at, fact.to, &fact.code, fact.upstream_status, fact.retry_at.map(Into::into)),
        Event::Succeeded(fact) => {
            result(row, Some(&fact.result), fact.usage.as_ref());
            to(row, at, State::Succeeded);
        }
        Event::Failed(fact) => {
            row.code = Some(fact.code.clone());
            row.upstream_status = fact.upstream_status;
            result(row, None, fact.usage.as_ref());
            to(row, at, State::Failed);
        }
        Event::Cancelled(fact) => {
            result(row, None, fact.usage.as_ref());
            to(row, at, State::Cancelled);
        }
        Event::LeaseLost(_) => unknown(row, at, "lease_lost"),
        Event::WorkerLost(_) => unknown(row, at, "worker_lost"),
        Event::SubmissionBecameUnknown(fact) => {
            row.code = Some(fact.code.clone());
            unknown(row, at, "reported");
        }
        Event::LateResult(fact) => {
            if fact.code.is_some() {
                row.code = fact.code.clone();
            }
            result(row, fact.result.as_ref(), fact.usage.as_ref());
            to(row, at, fact.to);
        }
        Event::Resolved(fact) => {
            row.resolution = Some(fact.resolution.as_str().to_owned());
            row.reason = Some(fact.reason.clone());
            result(row, fact.result.as_ref(), None);
            to(row, at, fact.to);
        }
        Event::CancelRequested(fact) => {
            row.cancel_waits = !fact.to.is_terminal();
            to(row, at, fact.to);
        }
        Event::Revived(fact) => {
            row.reason = Some(fact.reason.clone());
            row.retries = 0;
            row.cancel_waits = false;
            row.code = None;
            to(row, at, State::Accepted);
        }
    }
}

fn to(row: &mut Row, at: DateTime<Utc>, state: State) {
    if row.state != state && state == State::Queued {
        row.queued_at = Some(at);
    }
    row.state = state;
    row.ended_at = state.is_terminal().then_some(at);
    if state != State::SubmissionUnknown {
        row.unknown_since = None;
    }
    if state != State::RetryWait {
        row.retry_at = None;
    }
}

fn queue(row: &mut Row, at: DateTime<Utc>, pool: Option<String>) {
    row.pool = pool.or(row.pool.take());
    to(row, at, State::Queued);
}

fn back(row: &mut Row, at: DateTime<Utc>, state: State, reason: &str) {
    row.code = (state == State::DeadLettered).then(|| reason.to_owned());
    to(row, at, state);
}

fn refused(row: &mut Row, at: DateTime<Utc>, state: State, code: &str, status: Option<u16>, retry_at: Option<DateTime<Utc>>) {
    row.code = Some(code.to_owned());
    row.upstream_status = status;
    row.retries += 1;
    to(row, at, state);
    row.retry_at = retry_at;
}

fn unknown(row: &mut Row, at: DateTime<Utc>, evidence: &str) {
    to(row, at, State::SubmissionUnknown);
    row.evidence = Some(evidence.to_owned());
    row.unknown_since = Some(at);
}

fn result(row: &mut Row, text: Option<&Text>, usage: Option<&Usage>) {
    if let Some(text) = text {
        row.result_characters = Some(text.characters());
    }
    if let Some(usage) = usage {
        row.prompt_tokens = Some(usage.prompt_tokens);
        row.completion_tokens = Some(usage.completion_tokens);
        row.usage_estimated = Some(usage.estimated);
    }
}
