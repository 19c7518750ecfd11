//! Folds events of conversations into rows.

use super::{COLUMNS, Row, TABLE, TURN_COLUMNS, TURN_TABLE, TurnRow};
use crate::{ApplyError, rows};
use chrono::{DateTime, Utc};
use serde_json::Value;
use signalbox_events::conversation::{Event, TurnState, TurnSubmitted, Usage};
use signalbox_events::{Fact, Recorded, Text, TurnId};
use sqlx::PgConnection;
use std::collections::BTreeMap;
use uuid::Uuid;

pub(super) async fn apply(db: &mut PgConnection, events: &[&Recorded]) -> Result<(), ApplyError> {
    let mut touched = Vec::new();
    for recorded in events {
        if let Fact::Conversation(event) = &recorded.fact {
            let id = Uuid::try_parse(&recorded.aggregate.id).map_err(|_| ApplyError::Poison(format!("{} has no id", recorded.aggregate)))?;
            touched.push((id, *recorded, event));
        }
    }
    let mut conversations = load(db, TABLE, touched.iter().map(|(id, _, _)| *id).collect(), |row: &Row| row.id).await?;
    let mut turns = load(db, TURN_TABLE, touched.iter().filter_map(|(_, _, event)| turn_of(event)).collect(), |row: &TurnRow| row.id).await?;
    for (id, recorded, event) in touched {
        if let Event::Started(fact) = event {
            let at = recorded.envelope.at.into();
            let row = Row {
                id,
                account: recorded.aggregate.account.0,
                owner_id: fact.owner.0,
                owner_name: fact.owner_name.clone(),
                workload: fact.workload.0,
                model: fact.model.clone(),
                title: fact.title.as_ref().map(plain).transpose()?,
                turns: 0,
                created_at: at,
                updated_at: at,
                deleted: false,
                partition: recorded.position.partition,
                sequence: recorded.position.sequence,
            };
            conversations.insert(id, row);
            continue;
        }
        let row = conversations.get_mut(&id).ok_or_else(|| ApplyError::Poison(format!("{} has no row yet", recorded.aggregate)))?;
        row.updated_at = recorded.envelope.at.into();
        row.sequence = recorded.position.sequence;
        evolve(row, &mut turns, recorded, event)?;
    }
    rows::upsert(db, TABLE, "id", &COLUMNS, &conversations.into_values().collect::<Vec<_>>()).await?;
    rows::upsert(db, TURN_TABLE, "id", &TURN_COLUMNS, &turns.into_values().collect::<Vec<_>>()).await
}

async fn load<R: serde::de::DeserializeOwned>(
    db: &mut PgConnection,
    table: &str,
    mut ids: Vec<Uuid>,
    id: impl Fn(&R) -> Uuid,
) -> Result<BTreeMap<Uuid, R>, ApplyError> {
    ids.sort_unstable();
    ids.dedup();
    let found = rows::load::<R, _>(db, table, "id", &ids).await?;
    Ok(found.into_iter().map(|row| (id(&row), row)).collect())
}

/// The turn that an event speaks of.
fn turn_of(event: &Event) -> Option<Uuid> {
    let turn: TurnId = match event {
        Event::TurnSubmitted(fact) => fact.turn,
        Event::TurnBegun(fact) => fact.turn,
        Event::TurnCompleted(fact) => fact.turn,
        Event::TurnFailed(fact) => fact.turn,
        Event::TurnInterrupted(fact) => fact.turn,
        Event::TurnCancelled(fact) => fact.turn,
        Event::TurnSubmissionUnknown(fact) => fact.turn,
        Event::Started(_) | Event::Renamed(_) | Event::Deleted(_) => return None,
    };
    Some(turn.0)
}

fn evolve(row: &mut Row, turns: &mut BTreeMap<Uuid, TurnRow>, recorded: &Recorded, event: &Event) -> Result<(), ApplyError> {
    let at: DateTime<Utc> = recorded.envelope.at.into();
    if let Event::TurnSubmitted(fact) = event {
        row.turns = fact.number;
        if let Some(title) = &fact.title {
            row.title = Some(plain(title)?);
        }
        turns.insert(fact.turn.0, submitted(row.id, fact, at)?);
        return Ok(());
    }
    match event {
        Event::Renamed(fact) => row.title = Some(plain(&fact.title)?),
        Event::Deleted(_) => row.deleted = true,
        Event::Started(_) | Event::TurnSubmitted(_) => {}
        Event::TurnBegun(_)
        | Event::TurnCompleted(_)
        | Event::TurnFailed(_)
        | Event::TurnInterrupted(_)
        | Event::TurnCancelled(_)
        | Event::TurnSubmissionUnknown(_) => {
            let turn = turn_of(event).and_then(|id| turns.get_mut(&id));
            let turn = turn.ok_or_else(|| ApplyError::Poison(format!("{} has no such turn", recorded.aggregate)))?;
            evolve_turn(turn, event, at)?;
        }
    }
    Ok(())
}

fn submitted(conversation: Uuid, fact: &TurnSubmitted, at: DateTime<Utc>) -> Result<TurnRow, ApplyError> {
    Ok(TurnRow {
        id: fact.turn.0,
        conversation,
        number: fact.number,
        client_turn_id: fact.client_turn_id.clone(),
        state: TurnState::Submitted,
        code: None,
        messages: json(&fact.messages)?,
        parameters: json(&fact.parameters)?,
        answer: None,
        partial: None,
        finish_reason: None,
        prompt_tokens: 0,
        completion_tokens: 0,
        usage_estimated: false,
        executor: Some(fact.executor.clone()),
        stream: Some(fact.stream.clone()),
        submitted_at: at,
        begun_at: None,
        ended_at: None,
    })
}

fn evolve_turn(turn: &mut TurnRow, event: &Event, at: DateTime<Utc>) -> Result<(), ApplyError> {
    let end = |turn: &mut TurnRow, state: TurnState, partial: Option<&Text>, usage: Usage| -> Result<(), ApplyError> {
        turn.state = state;
        turn.partial = partial.map(plain).transpose()?;
        turn.prompt_tokens = usage.prompt_tokens;
        turn.completion_tokens = usage.completion_tokens;
        turn.usage_estimated = usage.estimated;
        turn.ended_at = Some(at);
        Ok(())
    };
    match event {
        Event::TurnBegun(fact) => {
            turn.state = TurnState::Running;
            turn.executor = Some(fact.executor.clone());
            turn.stream = Some(fact.stream.clone());
            turn.begun_at = Some(at);
        }
        Event::TurnCompleted(fact) => {
            end(turn, TurnState::Completed, None, fact.usage)?;
            turn.answer = Some(json(&fact.message)?);
            turn.finish_reason = Some(fact.finish_reason.clone());
        }
        Event::TurnFailed(fact) => {
            end(turn, TurnState::Failed, fact.partial.as_ref(), fact.usage)?;
            turn.code = Some(fact.code.clone());
        }
        Event::TurnInterrupted(fact) => end(turn, TurnState::Interrupted, fact.partial.as_ref(), fact.usage)?,
        Event::TurnCancelled(fact) => end(turn, TurnState::Cancelled, fact.partial.as_ref(), fact.usage)?,
        Event::TurnSubmissionUnknown(_) => end(turn, TurnState::SubmissionUnknown, None, Usage::default())?,
        Event::Started(_) | Event::TurnSubmitted(_) | Event::Renamed(_) | Event::Deleted(_) => {}
    }
    Ok(())
}

fn plain(text: &Text) -> Result<String, ApplyError> {
    match text {
        Text::Plain(text) => Ok(text.clone()),
        Text::Erased => Ok(String::new()),
        Text::Sealed(_) => Err(ApplyError::Poison("a text is still sealed".to_owned())),
    }
}

fn json(text: &Text) -> Result<Value, ApplyError> {
    Ok(match text {
        Text::Erased => Value::Null,
        Text::Plain(_) | Text::Sealed(_) => serde_json::from_str(&plain(text)?)?,
    })
}
