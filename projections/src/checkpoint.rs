//! Checkpoints, tries and parked events: how far each view has come, and what it left out.

use chrono::{DateTime, Utc};
use signalbox_events::Position;
use sqlx::{FromRow, PgConnection, PgExecutor, PgPool};
use std::time::{Duration, Instant};

/// How far a view has come on one partition.
#[derive(Debug, Clone, PartialEq, Eq, FromRow)]
pub struct Checkpoint {
    /// The last sequence in the view.
    pub position: i64,
    /// When the log that it is of was created.
    pub log_created: DateTime<Utc>,
    /// Starts before this one that did not end orderly.
    pub unclean_starts: i32,
}

/// An event that a view left out.
#[derive(Debug, Clone, PartialEq, Eq, FromRow)]
pub struct Parked {
    /// The view.
    pub view: String,
    /// The partition.
    pub partition: i32,
    /// The event's sequence.
    pub sequence: i64,
    /// Its aggregate.
    pub aggregate: String,
    /// Why.
    pub reason: String,
    /// Since when.
    pub parked_at: DateTime<Utc>,
}

/// Opens the checkpoint at a start, making it where there is none, and counts the start as unclean until [`clean`].
pub async fn open(db: &PgPool, view: &str, partition: u16, log_created: DateTime<Utc>) -> sqlx::Result<Checkpoint> {
    sqlx::query_as(
        "INSERT INTO checkpoint AS c (view, partition, position, log_created, unclean_starts) VALUES ($1, $2, 0, $3, 1)
         ON CONFLICT (view, partition) DO UPDATE SET unclean_starts = c.unclean_starts + 1
         RETURNING position, log_created, unclean_starts - 1 AS unclean_starts",
    )
    .bind(view)
    .bind(i32::from(partition))
    .bind(log_created)
    .fetch_one(db)
    .await
}

/// An orderly end: the next start need not be careful.
pub async fn clean(db: &PgPool, view: &str, partition: u16) -> sqlx::Result<()> {
    let query = sqlx::query("UPDATE checkpoint SET unclean_starts = 0 WHERE view = $1 AND partition = $2");
    query.bind(view).bind(i32::from(partition)).execute(db).await.map(drop)
}

/// Moves the checkpoint, fenced: `false` when another projector has moved it meanwhile.
pub async fn advance(db: &mut PgConnection, view: &str, partition: u16, from: i64, to: i64) -> sqlx::Result<bool> {
    let done = sqlx::query("UPDATE checkpoint SET position = $4 WHERE view = $1 AND partition = $2 AND position = $3 AND $4 >= $3")
        .bind(view)
        .bind(i32::from(partition))
        .bind(from)
        .bind(to)
        .execute(db)
        .await?;
    Ok(done.rows_affected() == 1)
}

/// A move of one view's checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Move {
    /// The view.
    pub view: String,
    /// Where it stands.
    pub from: i64,
    /// Where it goes.
    pub to: i64,
}

/// Moves several checkpoints of a partition, or none; fenced like [`advance`].
pub async fn advance_all(db: &PgPool, partition: u16, moves: &[Move]) -> sqlx::Result<bool> {
    let mut tx = db.begin().await?;
    let (views, froms, tos): (Vec<&str>, Vec<i64>, Vec<i64>) = moves.iter().fold(Default::default(), |(mut views, mut froms, mut tos), moved| {
        views.push(&moved.view);
        froms.push(moved.from);
        tos.push(moved.to);
        (views, froms, tos)
    });
    let sql = "UPDATE checkpoint c SET position = m.til FROM UNNEST($2::text[], $3::bigint[], $4::bigint[]) AS m (view, since, til)
        WHERE c.view = m.view AND c.partition = $1 AND c.position = m.since AND m.til >= m.since";
    let done = sqlx::query(sql).bind(i32::from(partition)).bind(views).bind(froms).bind(tos).execute(&mut *tx).await?;
    if done.rows_affected() != moves.len() as u64 {
        tx.rollback().await?;
        return Ok(false);
    }
    tx.commit().await?;
    Ok(true)
}

/// Counts a try at an event before it is made, and answers how many there have been.
pub async fn count_try(db: &PgPool, view: &str, partition: u16, sequence: i64) -> sqlx::Result<i32> {
    sqlx::query_scalar(
        "INSERT INTO attempt AS a (view, partition, sequence, tries) VALUES ($1, $2, $3, 1)
         ON CONFLICT (view, partition, sequence) DO UPDATE SET tries = a.tries + 1 RETURNING tries",
    )
    .bind(view)
    .bind(i32::from(partition))
    .bind(sequence)
    .fetch_one(db)
    .await
}

/// Forgets the tries of events up to `sequence`.
pub async fn forget_tries(db: &mut PgConnection, view: &str, partition: u16, sequence: i64) -> sqlx::Result<()> {
    let query = sqlx::query("DELETE FROM attempt WHERE view = $1 AND partition = $2 AND sequence <= $3");
    query.bind(view).bind(i32::from(partition)).bind(sequence).execute(db).await.map(drop)
}

/// Leaves an event out, with its reason.
pub async fn park(db: &mut PgConnection, parked: &Parked) -> sqlx::Result<()> {
    sqlx::query("INSERT INTO parked (view, partition, sequence, aggregate, reason, parked_at) VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING")
        .bind(&parked.view)
        .bind(parked.partition)
        .bind(parked.sequence)
        .bind(&parked.aggregate)
        .bind(&parked.reason)
        .bind(parked.parked_at)
        .execute(db)
        .await
        .map(drop)
}

/// The aggregates of which a view has parked something.
pub async fn parked_aggregates(db: &PgPool, view: &str, partition: u16) -> sqlx::Result<Vec<String>> {
    let query = sqlx::query_scalar("SELECT DISTINCT aggregate FROM parked WHERE view = $1 AND partition = $2");
    query.bind(view).bind(i32::from(partition)).fetch_all(db).await
}

/// What is parked, the oldest first, at most `most`.
pub async fn parked(db: &PgPool, most: i64) -> sqlx::Result<Vec<Parked>> {
    let query = sqlx::query_as("SELECT view, partition, sequence, aggregate, reason, parked_at FROM parked ORDER BY parked_at, sequence LIMIT $1");
    query.bind(most).fetch_all(db).await
}

/// The view's position on a partition; 0 before its first event.
pub async fn position(db: impl PgExecutor<'_>, view: &str, partition: u16) -> sqlx::Result<u64> {
    let query = sqlx::query_scalar::<_, i64>("SELECT position FROM checkpoint WHERE view = $1 AND partition = $2");
    let found = query.bind(view).bind(i32::from(partition)).fetch_optional(db).await?;
    Ok(found.map_or(0, i64::unsigned_abs))
}

/// Waits until the view has reached `wanted`, at most `patience`. Answers with where it stands when it has not.
pub async fn reached(db: &PgPool, view: &str, wanted: Position, patience: Duration) -> sqlx::Result<Result<(), Position>> {
    let until = Instant::now() + patience;
    let mut pause = Duration::from_millis(2);
    loop {
        let position = position(db, view, wanted.partition).await?;
        if position >= wanted.sequence {
            return Ok(Ok(()));
        }
        if Instant::now() >= until {
            return Ok(Err(Position::new(wanted.partition, position)));
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}
