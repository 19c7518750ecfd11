//! Folds events of workloads into rows.

use super::row::{COLUMNS, Revision, Row, TABLE, spec_json};
use crate::{ApplyError, rows};
use chrono::{DateTime, Utc};
use signalbox_events::workload::{Category, Deployed, Event, Observed, Spec, State, Trigger};
use signalbox_events::{Fact, Recorded};
use sqlx::PgConnection;
use std::collections::BTreeMap;
use uuid::Uuid;

pub(super) async fn apply(db: &mut PgConnection, events: &[&Recorded]) -> Result<(), ApplyError> {
    let mut touched = BTreeMap::new();
    for recorded in events {
        if let Fact::Workload(event) = &recorded.fact {
            touched.entry(id_of(recorded)?).or_insert_with(Vec::new).push((*recorded, event));
        }
    }
    let known: Vec<Uuid> = touched.iter().filter(|(_, events)| !matches!(events[0].1, Event::Deployed(_))).map(|(id, _)| *id).collect();
    let mut rows: BTreeMap<Uuid, Row> = rows::load::<Row, _>(db, TABLE, "id", &known).await?.into_iter().map(|row| (row.id, row)).collect();
    for (id, events) in touched {
        for (recorded, event) in events {
            if let Event::Deployed(fact) = event {
                rows.insert(id, deployed(id, recorded, fact));
            } else {
                let row = rows.get_mut(&id).ok_or_else(|| ApplyError::Poison(format!("{} has no row yet", recorded.aggregate)))?;
                evolve(row, recorded, event);
            }
        }
    }
    rows::upsert(db, TABLE, "id", &COLUMNS, &rows.into_values().collect::<Vec<_>>()).await
}

fn id_of(recorded: &Recorded) -> Result<Uuid, ApplyError> {
    Uuid::try_parse(&recorded.aggregate.id).map_err(|_| ApplyError::Poison(format!("{} has no id", recorded.aggregate)))
}

fn deployed(id: Uuid, recorded: &Recorded, fact: &Deployed) -> Row {
    let (at, kind) = (recorded.envelope.at.into(), fact.spec.kind());
    let mut row = Row {
        id,
        account: recorded.aggregate.account.0,
        kind,
        category: kind.category(),
        provider: kind.provider().to_owned(),
        display_name: fact.name.clone(),
        object_name: fact.object_name.clone(),
        owner_id: fact.owner.0,
        owner_name: fact.owner_name.clone(),
        job_type: None,
        schedule_type: None,
        queue: None,
        state: State::Submitted,
        reason: "deployed".to_owned(),
        trigger: Trigger::Command,
        since: at,
        revision: 0,
        replicas_desired: 0,
        replicas_ready: 0,
        nodes: vec![],
        resources: BTreeMap::new(),
        gpu: None,
        model: None,
        route_name: (kind.category() == Category::Deployment).then(|| fact.object_name.clone()),
        endpoint: None,
        labels: fact.labels.clone(),
        locked_until: None,
        cost_micro_points: 0,
        created_at: at,
        started_at: None,
        ended_at: None,
        deleted: false,
        spec: serde_json::Value::Null,
        revisions: vec![],
        exit_code: None,
        log_tail: vec![],
        partition: recorded.position.partition,
        sequence: recorded.position.sequence,
        suspended: false,
    };
    revise(&mut row, 1, &fact.spec, at, None);
    row
}

fn revise(row: &mut Row, revision: u32, spec: &Spec, at: DateTime<Utc>, rolled_back_to: Option<u32>) {
    let shown = spec_json(spec);
    row.revision = revision;
    row.replicas_desired = spec.replicas();
    row.model = match spec {
        Spec::LocalInference { runtime, parameters, .. } => Some(parameters.get("model").unwrap_or(runtime).clone()),
        Spec::Endpoint { model, .. } => Some(model.clone()),
        Spec::LocalJob { .. } => None,
    };
    row.spec = shown.clone();
    row.revisions.push(Revision { revision, spec: shown, at, rolled_back_to });
}

fn evolve(row: &mut Row, recorded: &Recorded, event: &Event) {
    let at = recorded.envelope.at.into();
    row.sequence = recorded.position.sequence;
    match event {
        Event::Deployed(_) => {}
        Event::Updated(fact) => revise(row, fact.revision, &fact.spec, at, None),
        Event::RolledBack(fact) => revise(row, fact.revision, &fact.spec, at, Some(fact.to)),
        Event::Scaled(fact) => {
            row.replicas_desired = fact.replicas;
            row.spec["replicas"] = fact.replicas.into();
            if let Some(revision) = row.revisions.iter_mut().find(|revision| revision.revision == row.revision) {
                revision.spec = row.spec.clone();
            }
        }
        Event::Suspended(_) => row.suspended = true,
        Event::Resumed(_) => row.suspended = false,
        Event::DeletionRequested(_) => enter(row, State::Deleting, "deletion_requested", Trigger::Command, at),
        Event::Observed(fact) => observed(row, fact, at),
        Event::Deleted(_) => {
            enter(row, State::Deleted, "deleted", Trigger::Provider, at);
            row.deleted = true;
            row.replicas_ready = 0;
            row.endpoint = None;
            row.ended_at = row.ended_at.or(Some(at));
        }
    }
}

fn observed(row: &mut Row, fact: &Observed, at: DateTime<Utc>) {
    row.replicas_ready = fact.ready;
    row.nodes.clone_from(&fact.nodes);
    row.endpoint = fact.endpoints.first().cloned();
    row.exit_code = fact.exit_code;
    row.log_tail.clone_from(&fact.log_tail);
    // What shall go is on its way out, whatever its provider still sees.
    if row.state != State::Deleting {
        enter(row, fact.state, &fact.reason, Trigger::Provider, at);
    }
    if fact.state == State::Running {
        row.started_at = row.started_at.or(Some(at));
    }
    row.ended_at = if row.category == Category::Job && fact.state.is_final() { row.ended_at.or(Some(at)) } else { None };
}

fn enter(row: &mut Row, state: State, reason: &str, trigger: Trigger, at: DateTime<Utc>) {
    if row.state != state {
        row.since = at;
        row.state = state;
        row.trigger = trigger;
    }
    reason.clone_into(&mut row.reason);
}
