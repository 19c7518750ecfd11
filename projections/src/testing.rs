//! For tests of views: a database of its own, and events without a log.

use crate::{Projection, up};
use chrono::DateTime;
use signalbox_embedded::testing::postgres_url;
use signalbox_events::{Aggregate, Envelope, Fact, Micros, Position, Recorded};
use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, PgPool};
use std::str::FromStr;
use std::sync::atomic::{AtomicU32, Ordering};
use uuid::Uuid;

/// A migrated database of its own on a real server.
pub async fn database() -> PgPool {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let url = tokio::task::spawn_blocking(postgres_url).await.unwrap();
    let name = format!("view_{}_{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    let mut db = PgConnection::connect(&url).await.unwrap();
    db.execute(AssertSqlSafe(format!("CREATE DATABASE {name}"))).await.unwrap();
    let options = PgConnectOptions::from_str(&url.replace("/postgres", &format!("/{name}"))).unwrap();
    up(&options).await.unwrap();
    PgPool::connect_with(options).await.unwrap()
}

/// An event at `sequence`; a microsecond of time a sequence.
pub fn event(sequence: u64, aggregate: &Aggregate, fact: impl Into<Fact>) -> Recorded {
    let fact = fact.into();
    let envelope = Envelope {
        format: 1,
        event_id: Uuid::from_u128(u128::from(sequence)),
        command_id: Uuid::from_u128(u128::from(sequence)),
        version: sequence,
        at: at(sequence),
        actor: "test".to_owned(),
        on_behalf_of: None,
        correlation_id: Uuid::nil(),
        causation_id: None,
        traceparent: None,
        prev: [0; 32],
        key_id: None,
        kind: String::new(),
        schema_version: 1,
        data: vec![],
    };
    Recorded { position: Position::new(0, sequence), aggregate: aggregate.clone(), envelope, fact }
}

/// The time of the event at `sequence`.
pub fn at(sequence: u64) -> Micros {
    Micros(DateTime::from_timestamp(1_772_323_200, 0).unwrap().timestamp_micros() + i64::try_from(sequence).unwrap())
}

/// Takes events in, in batches of `size`.
pub async fn apply(db: &PgPool, view: &dyn Projection, events: &[Recorded], size: usize) {
    for batch in events.chunks(size) {
        let mut tx = db.begin().await.unwrap();
        view.apply(&mut tx, &batch.iter().collect::<Vec<_>>()).await.unwrap();
        tx.commit().await.unwrap();
    }
}

/// Every row of a view's tables, as text: to compare two ways to the same view.
pub async fn rows(db: &PgPool, view: &dyn Projection) -> Vec<String> {
    let mut found = Vec::new();
    for (table, _) in view.tables() {
        let sql = format!("SELECT row_to_json(t)::text FROM {table} t ORDER BY 1");
        found.extend(sqlx::query_scalar::<_, String>(AssertSqlSafe(sql)).fetch_all(db).await.unwrap());
    }
    found
}

/// Applied one by one, in small batches and at once, the events make the same rows.
pub async fn any_batching_gives_the_same_rows(view: &dyn Projection, events: &[Recorded]) {
    let mut expected: Option<Vec<String>> = None;
    for size in [1, 2, 3, events.len()] {
        let db = database().await;
        apply(&db, view, events, size).await;
        let found = rows(&db, view).await;
        assert!(!found.is_empty());
        assert_eq!(*expected.get_or_insert(found.clone()), found, "batches of {size}");
    }
}
