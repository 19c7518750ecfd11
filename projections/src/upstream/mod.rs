//! The view of upstreams. Of a credential it knows when it was set, and for which origin.

use crate::{ApplyError, Projection, rows};
use chrono::{DateTime, Utc};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use signalbox_events::upstream::{Event, Model, Profile};
use signalbox_events::{AccountId, Fact, Noun, Recorded};
use sqlx::types::Json;
use sqlx::{FromRow, PgConnection, PgPool};
use std::collections::BTreeMap;
use uuid::Uuid;

#[cfg(test)]
mod tests;

/// The view.
pub struct View;

/// An upstream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// Its id.
    pub id: Uuid,
    /// Whose; the nil id: everyone may use it.
    pub account: Uuid,
    /// Its name.
    pub name: String,
    /// Who registered it.
    pub owner_id: Uuid,
    /// The owner's name.
    pub owner_name: String,
    /// Whose platform it is.
    pub provider: String,
    /// What it speaks.
    pub protocol: String,
    /// Its base URL.
    pub base_url: String,
    /// Its models.
    pub models: Vec<Model>,
    /// Whether tasks are sent to it.
    pub enabled: bool,
    /// An operator's words on the state.
    pub reason: Option<String>,
    /// The header that its credential goes into; `None`: it has none.
    pub credential_header: Option<String>,
    /// The only origin that its credential is sent to.
    pub credential_origin: Option<String>,
    /// When its credential was set.
    pub credential_set_at: Option<DateTime<Utc>>,
    /// Whether it is gone.
    pub deleted: bool,
    /// When it was registered.
    pub created_at: DateTime<Utc>,
    /// Its last event.
    pub updated_at: DateTime<Utc>,
}

const COLUMNS: [rows::Column; 17] = [
    ("id", "uuid"),
    ("account", "uuid"),
    ("name", "text"),
    ("owner_id", "uuid"),
    ("owner_name", "text"),
    ("provider", "text"),
    ("protocol", "text"),
    ("base_url", "text"),
    ("models", "json"),
    ("enabled", "boolean"),
    ("reason", "text"),
    ("credential_header", "text"),
    ("credential_origin", "text"),
    ("credential_set_at", "timestamptz"),
    ("deleted", "boolean"),
    ("created_at", "timestamptz"),
    ("updated_at", "timestamptz"),
];

impl Projection for View {
    fn name(&self) -> &'static str {
        "upstream"
    }
    fn version(&self) -> u32 {
        1
    }
    fn nouns(&self) -> &'static [Noun] {
        &[Noun::Upstream]
    }
    fn tables(&self) -> &'static [(&'static str, &'static str)] {
        &[("upstream_v1", "id")]
    }
    fn ddl(&self) -> &'static str {
        include_str!("../../../migrations/0009_upstream_v1.up.sql")
    }
    fn apply<'a>(&'a self, db: &'a mut PgConnection, events: &'a [&'a Recorded]) -> BoxFuture<'a, Result<(), ApplyError>> {
        apply(db, events).boxed()
    }
}

async fn apply(db: &mut PgConnection, events: &[&Recorded]) -> Result<(), ApplyError> {
    let mut touched = Vec::new();
    for recorded in events {
        if let Fact::Upstream(event) = &recorded.fact {
            let id: Uuid = recorded.aggregate.id.parse().map_err(|_| ApplyError::Poison("the subject holds no id".to_owned()))?;
            touched.push((id, recorded.aggregate.account, DateTime::<Utc>::from(recorded.envelope.at), event));
        }
    }
    let ids: Vec<Uuid> = touched.iter().map(|(id, ..)| *id).collect();
    let mut upstreams: BTreeMap<Uuid, Row> = rows::load(db, "upstream_v1", "id", &ids).await?.into_iter().map(|row: Row| (row.id, row)).collect();
    for (id, account, at, event) in touched {
        if let Event::Registered(fact) = event {
            let mut row = Row {
                id,
                account: account.0,
                name: fact.name.clone(),
                owner_id: fact.owner.0,
                owner_name: fact.owner_name.clone(),
                provider: String::new(),
                protocol: String::new(),
                base_url: String::new(),
                models: vec![],
                enabled: true,
                reason: None,
                credential_header: None,
                credential_origin: None,
                credential_set_at: None,
                deleted: false,
                created_at: at,
                updated_at: at,
            };
            describe(&mut row, &fact.profile);
            upstreams.insert(id, row);
            continue;
        }
        let row = upstreams.get_mut(&id).ok_or_else(|| ApplyError::Poison(format!("the upstream {id} has no row yet")))?;
        row.updated_at = at;
        match event {
            Event::Registered(_) => {}
            Event::Updated(fact) => {
                describe(row, &fact.profile);
                if !fact.keeps_credential {
                    forget(row);
                }
            }
            Event::CredentialSet(fact) => {
                row.credential_header = Some(fact.header.clone());
                row.credential_origin = Some(fact.origin.clone());
                row.credential_set_at = Some(at);
            }
            Event::Switched(fact) => {
                row.enabled = fact.enabled;
                row.reason = Some(fact.reason.clone()).filter(|reason| !reason.is_empty());
            }
            Event::Deleted(_) => {
                row.deleted = true;
                forget(row);
            }
        }
    }
    rows::upsert(db, "upstream_v1", "id", &COLUMNS, &upstreams.into_values().collect::<Vec<_>>()).await
}

fn describe(row: &mut Row, profile: &Profile) {
    let Profile { provider, protocol, base_url, models } = profile.clone();
    (row.provider, row.protocol, row.base_url, row.models) = (provider, protocol, base_url, models);
}

fn forget(row: &mut Row) {
    (row.credential_header, row.credential_origin, row.credential_set_at) = (None, None, None);
}

#[derive(FromRow)]
struct Found(Json<Row>);

/// The upstreams that an account may use: its own, then those for everyone, by name.
pub async fn list(db: &PgPool, account: Uuid) -> sqlx::Result<Vec<Row>> {
    let sql = "SELECT row_to_json(t) FROM upstream_v1 t WHERE NOT deleted AND account IN ($1, $2) ORDER BY account = $2, name";
    let found: Vec<Found> = sqlx::query_as(sql).bind(account).bind(AccountId::PLATFORM.0).fetch_all(db).await?;
    Ok(found.into_iter().map(|Found(Json(row))| row).collect())
}

/// The upstream of a name that an account may use: its own before one for everyone.
pub async fn by_name(db: &PgPool, account: Uuid, name: &str) -> sqlx::Result<Option<Row>> {
    let sql = "SELECT row_to_json(t) FROM upstream_v1 t WHERE NOT deleted AND account IN ($1, $2) AND name = $3 ORDER BY account = $2 LIMIT 1";
    let found: Option<Found> = sqlx::query_as(sql).bind(account).bind(AccountId::PLATFORM.0).bind(name).fetch_optional(db).await?;
    Ok(found.map(|Found(Json(row))| row))
}

/// An upstream that is not deleted.
pub async fn find(db: &PgPool, id: Uuid) -> sqlx::Result<Option<Row>> {
    let sql = "SELECT row_to_json(t) FROM upstream_v1 t WHERE NOT deleted AND id = $1";
    let found: Option<Found> = sqlx::query_as(sql).bind(id).fetch_optional(db).await?;
    Ok(found.map(|Found(Json(row))| row))
}
