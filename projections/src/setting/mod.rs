//! The view of switches.

use crate::{ApplyError, Projection, rows};
use chrono::{DateTime, Utc};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use signalbox_events::setting::Event;
use signalbox_events::{Fact, Noun, Recorded};
use sqlx::{PgConnection, PgPool};
use std::collections::BTreeMap;
use uuid::Uuid;

#[cfg(test)]
mod tests;

/// The view.
pub struct View;

/// The switches of one account; of the platform for the nil id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// Whose.
    pub account: Uuid,
    /// `None`: never set.
    pub inference_enabled: Option<bool>,
    /// The last change.
    pub changed_at: DateTime<Utc>,
}

const COLUMNS: [rows::Column; 3] = [("account", "uuid"), ("inference_enabled", "boolean"), ("changed_at", "timestamptz")];

impl Projection for View {
    fn name(&self) -> &'static str {
        "setting"
    }
    fn version(&self) -> u32 {
        1
    }
    fn nouns(&self) -> &'static [Noun] {
        &[Noun::Setting]
    }
    fn tables(&self) -> &'static [(&'static str, &'static str)] {
        &[("setting_v1", "account")]
    }
    fn ddl(&self) -> &'static str {
        include_str!("../../../migrations/0003_setting_v1.up.sql")
    }
    fn apply<'a>(&'a self, db: &'a mut PgConnection, events: &'a [&'a Recorded]) -> BoxFuture<'a, Result<(), ApplyError>> {
        apply(db, events).boxed()
    }
}

async fn apply(db: &mut PgConnection, events: &[&Recorded]) -> Result<(), ApplyError> {
    let mut changed: BTreeMap<Uuid, Row> = BTreeMap::new();
    for recorded in events {
        let Fact::Setting(event) = &recorded.fact else { continue };
        let account = recorded.aggregate.account.0;
        match event {
            Event::InferenceSwitched(fact) => {
                changed.insert(account, Row { account, inference_enabled: Some(fact.enabled), changed_at: recorded.envelope.at.into() });
            }
            // Read from the log itself; no view shows them.
            Event::GapAccepted(_) | Event::TransportSet(_) => {}
        }
    }
    rows::upsert(db, "setting_v1", "account", &COLUMNS, &changed.into_values().collect::<Vec<_>>()).await
}

/// The switches of `account`.
pub async fn find(db: &PgPool, account: Uuid) -> Result<Option<Row>, ApplyError> {
    let mut db = db.acquire().await?;
    Ok(rows::load(&mut db, "setting_v1", "account", &[account]).await?.pop())
}
