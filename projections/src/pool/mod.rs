//! The view of pools.

use crate::{ApplyError, Projection, rows};
use chrono::{DateTime, Utc};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use signalbox_events::pool::{Event, State};
use signalbox_events::{Fact, Noun, Recorded};
use sqlx::types::Json;
use sqlx::{FromRow, PgConnection, PgPool};
use std::collections::BTreeMap;

#[cfg(test)]
mod tests;

/// The view.
pub struct View;

/// A pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// Its id.
    pub id: String,
    /// For people.
    pub description: String,
    /// The lower first.
    pub tier: u32,
    /// The higher first.
    pub priority: i32,
    /// Free words.
    pub labels: BTreeMap<String, String>,
    /// What it takes on.
    pub state: State,
    /// An operator's words on the state.
    pub reason: Option<String>,
    /// Whether it is gone.
    pub deleted: bool,
    /// When it was created.
    pub created_at: DateTime<Utc>,
    /// Its last event.
    pub updated_at: DateTime<Utc>,
}

const COLUMNS: [rows::Column; 10] = [
    ("id", "text"),
    ("description", "text"),
    ("tier", "integer"),
    ("priority", "integer"),
    ("labels", "json"),
    ("state", "text"),
    ("reason", "text"),
    ("deleted", "boolean"),
    ("created_at", "timestamptz"),
    ("updated_at", "timestamptz"),
];

impl Projection for View {
    fn name(&self) -> &'static str {
        "pool"
    }
    fn version(&self) -> u32 {
        1
    }
    fn nouns(&self) -> &'static [Noun] {
        &[Noun::Pool]
    }
    fn tables(&self) -> &'static [(&'static str, &'static str)] {
        &[("pool_v1", "id")]
    }
    fn ddl(&self) -> &'static str {
        include_str!("../../../migrations/0007_pool_v1.up.sql")
    }
    fn apply<'a>(&'a self, db: &'a mut PgConnection, events: &'a [&'a Recorded]) -> BoxFuture<'a, Result<(), ApplyError>> {
        apply(db, events).boxed()
    }
}

async fn apply(db: &mut PgConnection, events: &[&Recorded]) -> Result<(), ApplyError> {
    let mut touched = Vec::new();
    for recorded in events {
        if let Fact::Pool(event) = &recorded.fact {
            touched.push((recorded.aggregate.id.clone(), DateTime::<Utc>::from(recorded.envelope.at), event));
        }
    }
    let ids: Vec<String> = touched.iter().map(|(id, _, _)| id.clone()).collect();
    let mut pools: BTreeMap<String, Row> = rows::load(db, "pool_v1", "id", &ids).await?.into_iter().map(|row: Row| (row.id.clone(), row)).collect();
    for (id, at, event) in touched {
        if let Event::Created(fact) = event {
            let profile = fact.profile.clone();
            let row = Row {
                id: id.clone(),
                description: profile.description,
                tier: profile.tier,
                priority: profile.priority,
                labels: profile.labels,
                state: State::Enabled,
                reason: None,
                deleted: false,
                created_at: at,
                updated_at: at,
            };
            pools.insert(id, row);
            continue;
        }
        let row = pools.get_mut(&id).ok_or_else(|| ApplyError::Poison(format!("the pool {id} has no row yet")))?;
        row.updated_at = at;
        match event {
            Event::Created(_) => {}
            Event::Updated(fact) => {
                let profile = fact.profile.clone();
                (row.description, row.tier, row.priority, row.labels) = (profile.description, profile.tier, profile.priority, profile.labels);
            }
            Event::Switched(fact) => {
                row.state = fact.state;
                row.reason = Some(fact.reason.clone()).filter(|reason| !reason.is_empty());
            }
            Event::Deleted(_) => row.deleted = true,
        }
    }
    rows::upsert(db, "pool_v1", "id", &COLUMNS, &pools.into_values().collect::<Vec<_>>()).await
}

#[derive(FromRow)]
struct Found(Json<Row>);

/// The pools that are not deleted: by tier, then priority, then id.
pub async fn list(db: &PgPool) -> sqlx::Result<Vec<Row>> {
    let sql = "SELECT row_to_json(t) FROM pool_v1 t WHERE NOT deleted ORDER BY tier, priority DESC, id";
    let found: Vec<Found> = sqlx::query_as(sql).fetch_all(db).await?;
    Ok(found.into_iter().map(|Found(Json(row))| row).collect())
}

/// A pool that is not deleted.
pub async fn find(db: &PgPool, id: &str) -> sqlx::Result<Option<Row>> {
    let sql = "SELECT row_to_json(t) FROM pool_v1 t WHERE NOT deleted AND id = $1";
    let found: Option<Found> = sqlx::query_as(sql).bind(id).fetch_optional(db).await?;
    Ok(found.map(|Found(Json(row))| row))
}
