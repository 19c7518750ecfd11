//! The view of workers: their last start, and what they are seen to do. Heartbeats are not here.

use crate::{ApplyError, Projection, rows};
use chrono::{DateTime, Utc};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use signalbox_events::worker::{Capabilities, Event, State};
use signalbox_events::{Fact, Noun, Recorded};
use sqlx::types::Json;
use sqlx::{FromRow, PgConnection, PgPool};
use std::collections::BTreeMap;
use uuid::Uuid;

#[cfg(test)]
mod tests;

/// The view.
pub struct View;

/// A worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// Its id.
    pub id: String,
    /// Its pool.
    pub pool: String,
    /// Its last start.
    pub incarnation: Uuid,
    /// The version of the worker protocol that it speaks.
    pub protocol: u16,
    /// Its own version.
    pub version: String,
    /// What it can do.
    pub capabilities: Capabilities,
    /// Tasks that it executes at once.
    pub slots: u32,
    /// What it is seen to do.
    pub state: State,
    /// Whether an operator wants it to end what it has.
    pub draining: bool,
    /// When it started.
    pub started_at: DateTime<Utc>,
    /// Its last event.
    pub updated_at: DateTime<Utc>,
}

const COLUMNS: [rows::Column; 11] = [
    ("id", "text"),
    ("pool", "text"),
    ("incarnation", "uuid"),
    ("protocol", "integer"),
    ("version", "text"),
    ("capabilities", "json"),
    ("slots", "integer"),
    ("state", "text"),
    ("draining", "boolean"),
    ("started_at", "timestamptz"),
    ("updated_at", "timestamptz"),
];

impl Projection for View {
    fn name(&self) -> &'static str {
        "worker"
    }
    fn version(&self) -> u32 {
        1
    }
    fn nouns(&self) -> &'static [Noun] {
        &[Noun::Worker]
    }
    fn tables(&self) -> &'static [(&'static str, &'static str)] {
        &[("worker_v1", "id")]
    }
    fn ddl(&self) -> &'static str {
        include_str!("../../../migrations/0008_worker_v1.up.sql")
    }
    fn apply<'a>(&'a self, db: &'a mut PgConnection, events: &'a [&'a Recorded]) -> BoxFuture<'a, Result<(), ApplyError>> {
        apply(db, events).boxed()
    }
}

async fn apply(db: &mut PgConnection, events: &[&Recorded]) -> Result<(), ApplyError> {
    let mut touched = Vec::new();
    for recorded in events {
        if let Fact::Worker(event) = &recorded.fact {
            touched.push((recorded.aggregate.id.clone(), DateTime::<Utc>::from(recorded.envelope.at), event));
        }
    }
    let ids: Vec<String> = touched.iter().map(|(id, _, _)| id.clone()).collect();
    let loaded: Vec<Row> = rows::load(db, "worker_v1", "id", &ids).await?;
    let mut workers: BTreeMap<String, Row> = loaded.into_iter().map(|row| (row.id.clone(), row)).collect();
    for (id, at, event) in touched {
        if let Event::Registered(fact) = event {
            let row = Row {
                id: id.clone(),
                pool: fact.pool.to_string(),
                incarnation: fact.incarnation.0,
                protocol: fact.protocol,
                version: fact.version.clone(),
                capabilities: fact.capabilities.clone(),
                slots: fact.slots,
                state: State::Ready,
                draining: false,
                started_at: at,
                updated_at: at,
            };
            workers.insert(id, row);
            continue;
        }
        let row = workers.get_mut(&id).ok_or_else(|| ApplyError::Poison(format!("the worker {id} has no row yet")))?;
        row.updated_at = at;
        match event {
            Event::Registered(_) => {}
            Event::Observed(fact) => row.state = fact.state,
            Event::DrainRequested(_) => (row.draining, row.state) = (true, State::Draining),
            Event::Retired(fact) => row.state = if fact.reason == "bye" { State::Gone } else { State::Lost },
        }
    }
    rows::upsert(db, "worker_v1", "id", &COLUMNS, &workers.into_values().collect::<Vec<_>>()).await
}

#[derive(FromRow)]
struct Found(Json<Row>);

/// The workers of a pool, or of all, by id.
pub async fn list(db: &PgPool, pool: Option<&str>) -> sqlx::Result<Vec<Row>> {
    let sql = "SELECT row_to_json(t) FROM worker_v1 t WHERE $1::text IS NULL OR pool = $1 ORDER BY pool, id";
    let found: Vec<Found> = sqlx::query_as(sql).bind(pool).fetch_all(db).await?;
    Ok(found.into_iter().map(|Found(Json(row))| row).collect())
}

/// One worker.
pub async fn find(db: &PgPool, id: &str) -> sqlx::Result<Option<Row>> {
    let found: Option<Found> = sqlx::query_as("SELECT row_to_json(t) FROM worker_v1 t WHERE id = $1").bind(id).fetch_optional(db).await?;
    Ok(found.map(|Found(Json(row))| row))
}
