//! Rebuilds a view from the first event beside the live one, compares the two row by row, and swaps them.

use signalbox_events::{Fact, Recorded};
use signalbox_journal::{Entry, FollowError, Follower, Ledger};
use signalbox_projections::sqlx::{self, AssertSqlSafe, Connection, PgConnection, PgPool};
use signalbox_projections::{ApplyError, Projection};
use std::collections::HashSet;
use std::sync::Arc;

/// What a rebuild found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rebuilt {
    /// Events that were read.
    pub events: u64,
    /// Each table.
    pub tables: Vec<TableDifference>,
}

/// A table before and after.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableDifference {
    /// Its name.
    pub table: String,
    /// Rows of the rebuilt one.
    pub rows: i64,
    /// Rows that are not the same in both, by hash: differing, missing or surplus.
    pub different: i64,
}

impl Rebuilt {
    /// Whether the live view was what the log says.
    pub fn equal(&self) -> bool {
        self.tables.iter().all(|table| table.different == 0)
    }
}

/// A rebuild that did not come to its end; the live view is as it was.
#[derive(Debug, thiserror::Error)]
pub enum RebuildError {
    /// PostgreSQL said no.
    #[error("the database refused")]
    Database(#[from] sqlx::Error),
    /// The log cannot be read.
    #[error("the log cannot be read")]
    Follow(#[from] FollowError),
    /// An event cannot be taken in.
    #[error("an event cannot be taken in")]
    Apply(#[from] ApplyError),
}

/// Rebuilds `view`. The live one stays in use until the moment of the swap; its projector waits for the last events.
pub async fn rebuild(ledger: &Arc<Ledger>, pool: &PgPool, view: &'static dyn Projection) -> Result<Rebuilt, RebuildError> {
    let schema = format!("rebuild_{}", view.id());
    let mut db = PgConnection::connect_with(&pool.connect_options()).await?;
    let run = |sql: String| sqlx::raw_sql(AssertSqlSafe(sql));
    // One rebuild of a view at a time.
    sqlx::query("SELECT pg_advisory_lock(hashtext($1))").bind(&schema).execute(&mut db).await?;
    run(format!("DROP SCHEMA IF EXISTS {schema} CASCADE; CREATE SCHEMA {schema}; SET search_path = {schema}; {}", view.ddl()))
        .execute(&mut db)
        .await?;
    let parked: Vec<(i32, i64)> =
        sqlx::query_as("SELECT partition, sequence FROM public.parked WHERE view = $1").bind(view.id()).fetch_all(&mut db).await?;
    let mut replay =
        Replay { ledger, view, parked: parked.into_iter().collect(), positions: vec![0; ledger.journal().partitions().into()], events: 0 };
    // Most of the log, while the live view moves on.
    replay.up_to(&mut db, None).await?;
    let mut tx = db.begin().await?;
    // From here the live view stands still: its projector waits for these rows.
    let live: Vec<(i32, i64)> = sqlx::query_as("SELECT partition, position FROM public.checkpoint WHERE view = $1 ORDER BY partition FOR UPDATE")
        .bind(view.id())
        .fetch_all(&mut *tx)
        .await?;
    let live: Vec<(u16, u64)> =
        live.into_iter().filter_map(|(partition, position)| Some((u16::try_from(partition).ok()?, position.unsigned_abs()))).collect();
    replay.up_to(&mut tx, Some(&live)).await?;
    let mut tables = Vec::new();
    for (table, key) in view.tables() {
        tables.push(compare(&mut tx, &schema, table, key).await?);
    }
    for (table, _) in view.tables() {
        run(format!("DROP TABLE public.{table}; ALTER TABLE {schema}.{table} SET SCHEMA public")).execute(&mut *tx).await?;
    }
    // What was read beyond the live view's place is in the new tables already.
    for (partition, position) in replay.positions.iter().enumerate() {
        sqlx::query("UPDATE public.checkpoint SET position = GREATEST(position, $3) WHERE view = $1 AND partition = $2")
            .bind(view.id())
            .bind(i32::try_from(partition).unwrap_or(0))
            .bind(position.cast_signed())
            .execute(&mut *tx)
            .await?;
    }
    run(format!("DROP SCHEMA {schema}")).execute(&mut *tx).await?;
    tx.commit().await?;
    let _ = db.close().await;
    Ok(Rebuilt { events: replay.events, tables })
}

struct Replay<'a> {
    ledger: &'a Arc<Ledger>,
    view: &'static dyn Projection,
    /// What the live view left out, the new one leaves out too.
    parked: HashSet<(i32, i64)>,
    positions: Vec<u64>,
    events: u64,
}

impl Replay<'_> {
    /// Reads every partition on: to `targets`, or to where the live view's checkpoint certainly is not behind.
    async fn up_to(&mut self, db: &mut PgConnection, targets: Option<&[(u16, u64)]>) -> Result<(), RebuildError> {
        for partition in 0..self.ledger.journal().partitions() {
            let target = match targets {
                Some(targets) => targets.iter().find(|(of, _)| *of == partition).map_or(0, |(_, position)| *position),
                None => self.live_position(db, partition).await?,
            };
            let index = usize::from(partition);
            let mut follower = Follower::new(self.ledger.clone(), partition, self.positions[index]);
            while self.positions[index] < target {
                let mut entries = follower.next().await?;
                entries.retain(|entry| entry.position.sequence <= target);
                let events: Vec<&Recorded> = entries.iter().filter_map(|entry| self.reads(entry)).collect();
                self.view.apply(db, &events).await?;
                self.events += events.len() as u64;
                self.positions[index] = entries.last().map_or(target, |entry| entry.position.sequence);
            }
        }
        Ok(())
    }

    async fn live_position(&self, db: &mut PgConnection, partition: u16) -> Result<u64, RebuildError> {
        let query = sqlx::query_scalar::<_, i64>("SELECT position FROM public.checkpoint WHERE view = $1 AND partition = $2");
        let found = query.bind(self.view.id()).bind(i32::from(partition)).fetch_optional(db).await?;
        Ok(found.map_or(0, i64::unsigned_abs))
    }

    fn reads<'a>(&self, entry: &'a Entry) -> Option<&'a Recorded> {
        let event = entry.event.as_ref().ok()?;
        let left_out = self.parked.contains(&(entry.position.partition.into(), entry.position.sequence.cast_signed()));
        (self.view.nouns().contains(&event.aggregate.noun) && event.fact != Fact::Unknown && !left_out).then_some(event)
    }
}

/// Compares the live table with the rebuilt one by the hash of each row.
async fn compare(db: &mut PgConnection, schema: &str, table: &str, key: &str) -> Result<TableDifference, sqlx::Error> {
    let key: Vec<_> = key.split(", ").map(|column| format!("a.{column} = b.{column}")).collect();
    let on = key.join(" AND ");
    let sql = format!(
        "SELECT (SELECT count(*) FROM {schema}.{table}),
                (SELECT count(*) FROM (SELECT a, md5(row_to_json(a)::text) AS hash FROM public.{table} a) l
                 FULL JOIN (SELECT b, md5(row_to_json(b)::text) AS hash FROM {schema}.{table} b) r ON {joined}
                 WHERE l.hash IS DISTINCT FROM r.hash)",
        joined = on.replace("a.", "(l.a).").replace("b.", "(r.b)."),
    );
    let (rows, different): (i64, i64) = sqlx::query_as(AssertSqlSafe(sql)).fetch_one(db).await?;
    Ok(TableDifference { table: table.to_owned(), rows, different })
}
