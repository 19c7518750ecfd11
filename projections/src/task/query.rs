//! Reads tasks.

use super::{Row, TABLE, View};
use crate::workload_list::Cursor;
use crate::{Projection, checkpoint};
use serde::de::DeserializeOwned;
use signalbox_events::task::State;
use sqlx::{AssertSqlSafe, PgPool, Postgres, QueryBuilder};
use std::collections::BTreeMap;
use uuid::Uuid;

/// Rows that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("the tasks cannot be read")]
pub enum Error {
    /// PostgreSQL said no.
    Database(#[from] sqlx::Error),
    /// A row of another shape.
    Row(#[from] serde_json::Error),
}

/// Which tasks.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// Of this account; `None`: of all.
    pub account: Option<Uuid>,
    /// Of this owner.
    pub owner: Option<Uuid>,
    /// In one of these states; empty: in any.
    pub states: Vec<State>,
    /// In this pool.
    pub pool: Option<String>,
    /// Of this kind.
    pub kind: Option<String>,
    /// Leased last by this worker.
    pub worker: Option<String>,
}

fn read<R: DeserializeOwned>(found: &[String]) -> Result<Vec<R>, Error> {
    found.iter().map(|row| Ok(serde_json::from_str(row)?)).collect()
}

/// Tasks, the newest first, at most `limit`, and where more follow.
pub async fn list(db: &PgPool, filter: &Filter, after: Option<Cursor>, limit: u32) -> Result<(Vec<Row>, Option<Cursor>), Error> {
    let mut query = QueryBuilder::<Postgres>::new(format!("SELECT row_to_json(t)::text FROM {TABLE} t WHERE true"));
    if let Some(account) = filter.account {
        query.push(" AND account = ").push_bind(account);
    }
    if let Some(owner) = filter.owner {
        query.push(" AND owner_id = ").push_bind(owner);
    }
    if !filter.states.is_empty() {
        let states: Vec<String> = filter.states.iter().map(|state| state.as_str().to_owned()).collect();
        query.push(" AND state = ANY(").push_bind(states).push(")");
    }
    for (column, value) in [("pool", &filter.pool), ("kind", &filter.kind), ("worker", &filter.worker)] {
        if let Some(value) = value {
            query.push(format!(" AND {column} = ")).push_bind(value.clone());
        }
    }
    if let Some(after) = after {
        query.push(" AND (accepted_at, id) < (").push_bind(after.created_at).push(", ").push_bind(after.id).push(")");
    }
    query.push(" ORDER BY accepted_at DESC, id DESC LIMIT ").push_bind(i64::from(limit) + 1);
    let mut rows: Vec<Row> = read(&query.build_query_scalar::<String>().fetch_all(db).await?)?;
    let more = rows.len() > limit as usize;
    rows.truncate(limit as usize);
    let next = rows.last().filter(|_| more).map(|last| Cursor { created_at: last.accepted_at, id: last.id });
    Ok((rows, next))
}

/// One task.
pub async fn find(db: &PgPool, id: Uuid) -> Result<Option<Row>, Error> {
    let sql = format!("SELECT row_to_json(t)::text FROM {TABLE} t WHERE id = $1");
    let found: Vec<String> = sqlx::query_scalar(AssertSqlSafe(sql)).bind(id).fetch_all(db).await?;
    Ok(read(&found)?.pop())
}

/// Every task that has not ended, with the position of the view on each of `partitions`, as of one moment.
pub async fn open(db: &PgPool, partitions: u16) -> Result<(Vec<Row>, BTreeMap<u16, u64>), Error> {
    let mut tx = db.begin().await?;
    sqlx::query("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY").execute(&mut *tx).await?;
    let mut positions = BTreeMap::new();
    for partition in 0..partitions {
        positions.insert(partition, checkpoint::position(&mut *tx, &View.id(), partition).await?);
    }
    let sql = format!("SELECT row_to_json(t)::text FROM {TABLE} t WHERE ended_at IS NULL ORDER BY accepted_at");
    let found: Vec<String> = sqlx::query_scalar(AssertSqlSafe(sql)).fetch_all(&mut *tx).await?;
    tx.commit().await?;
    Ok((read(&found)?, positions))
}

/// Tasks of a pool that have not ended.
pub async fn count_open_in_pool(db: &PgPool, pool: &str) -> Result<u64, Error> {
    let sql = format!("SELECT count(*) FROM {TABLE} WHERE ended_at IS NULL AND pool = $1");
    let count: i64 = sqlx::query_scalar(AssertSqlSafe(sql)).bind(pool).fetch_one(db).await?;
    Ok(count.unsigned_abs())
}
