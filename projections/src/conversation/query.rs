//! Reads conversations and turns.

use super::{Row, TABLE, TURN_TABLE, TurnRow};
use crate::workload_list::Cursor;
use serde::de::DeserializeOwned;
use sqlx::{AssertSqlSafe, PgPool, Postgres, QueryBuilder};
use uuid::Uuid;

/// Rows that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("the conversations cannot be read")]
pub enum Error {
    /// PostgreSQL said no.
    Database(#[from] sqlx::Error),
    /// A row of another shape.
    Row(#[from] serde_json::Error),
}

async fn rows<R: DeserializeOwned>(db: &PgPool, mut query: QueryBuilder<Postgres>) -> Result<Vec<R>, Error> {
    let found: Vec<String> = query.build_query_scalar().fetch_all(db).await?;
    found.iter().map(|row| Ok(serde_json::from_str(row)?)).collect()
}

fn select(table: &str) -> QueryBuilder<Postgres> {
    QueryBuilder::new(format!("SELECT row_to_json(t)::text FROM {table} t WHERE "))
}

/// The owner's conversations that are not deleted, the one touched last first; at most `limit`, and where more follow.
pub async fn list(db: &PgPool, account: Uuid, owner: Uuid, after: Option<Cursor>, limit: u32) -> Result<(Vec<Row>, Option<Cursor>), Error> {
    let mut query = select(TABLE);
    query.push("NOT deleted AND account = ").push_bind(account).push(" AND owner_id = ").push_bind(owner);
    if let Some(after) = after {
        query.push(" AND (updated_at, id) < (").push_bind(after.created_at).push(", ").push_bind(after.id).push(")");
    }
    query.push(" ORDER BY updated_at DESC, id DESC LIMIT ").push_bind(i64::from(limit) + 1);
    let mut found: Vec<Row> = rows(db, query).await?;
    let more = found.len() > limit as usize;
    found.truncate(limit as usize);
    let next = found.last().filter(|_| more).map(|last| Cursor { created_at: last.updated_at, id: last.id });
    Ok((found, next))
}

/// A conversation that is not deleted.
pub async fn find(db: &PgPool, id: Uuid) -> Result<Option<Row>, Error> {
    let mut query = select(TABLE);
    query.push("NOT deleted AND id = ").push_bind(id);
    Ok(rows(db, query).await?.pop())
}

/// Turns of a conversation with a number above `after`, in order, at most `limit`.
pub async fn turns(db: &PgPool, conversation: Uuid, after: u32, limit: u32) -> Result<Vec<TurnRow>, Error> {
    let mut query = select(TURN_TABLE);
    query.push("conversation = ").push_bind(conversation).push(" AND number > ").push_bind(i64::from(after));
    query.push(" ORDER BY number LIMIT ").push_bind(i64::from(limit));
    rows(db, query).await
}

/// One turn.
pub async fn turn(db: &PgPool, id: Uuid) -> Result<Option<TurnRow>, Error> {
    let mut query = select(TURN_TABLE);
    query.push("id = ").push_bind(id);
    Ok(rows(db, query).await?.pop())
}

/// Turns that have not ended, with the account of each, the oldest first, at most `limit`.
pub async fn open_turns(db: &PgPool, limit: i64) -> Result<Vec<(Uuid, TurnRow)>, Error> {
    let sql = format!(
        "SELECT c.account, row_to_json(t)::text FROM {TURN_TABLE} t JOIN {TABLE} c ON c.id = t.conversation
         WHERE t.ended_at IS NULL ORDER BY t.submitted_at LIMIT $1"
    );
    let found: Vec<(Uuid, String)> = sqlx::query_as(AssertSqlSafe(sql)).bind(limit).fetch_all(db).await?;
    found.into_iter().map(|(account, row)| Ok((account, serde_json::from_str(&row)?))).collect()
}
