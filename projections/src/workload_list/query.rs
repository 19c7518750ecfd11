//! Reads the unified list.

use super::row::{Row, TABLE};
use chrono::{DateTime, Utc};
use signalbox_events::workload::{Category, Kind, State};
use sqlx::{AssertSqlSafe, PgPool, Postgres, QueryBuilder};
use uuid::Uuid;

/// Which rows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// Of one account; `None`: of all.
    pub account: Option<Uuid>,
    /// Of one owner; `None`: of all.
    pub owner: Option<Uuid>,
    /// Of one half of the list.
    pub category: Option<Category>,
    /// Of these kinds; empty: of all.
    pub kinds: Vec<Kind>,
    /// In these states; empty: in all.
    pub states: Vec<State>,
}

/// A place between two rows of the default sort: newest first, then by id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cursor {
    /// The row's creation, to the microsecond.
    pub created_at: DateTime<Utc>,
    /// The row's id.
    pub id: Uuid,
}

/// One page.
#[derive(Debug, Clone, PartialEq)]
pub struct Page {
    /// Its rows.
    pub rows: Vec<Row>,
    /// Where the next page begins, if there is one.
    pub next: Option<Cursor>,
}

/// A row that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("the list cannot be read")]
pub enum Error {
    /// PostgreSQL said no.
    Database(#[from] sqlx::Error),
    /// A row of another shape.
    Row(#[from] serde_json::Error),
}

/// A page behind `after`, at most `limit` rows, newest first.
pub async fn list(db: &PgPool, filter: &Filter, after: Option<Cursor>, limit: u32) -> Result<Page, Error> {
    let mut query = QueryBuilder::<Postgres>::new(format!("SELECT row_to_json(t)::text FROM {TABLE} t WHERE NOT deleted"));
    if let Some(account) = filter.account {
        query.push(" AND account = ").push_bind(account);
    }
    if let Some(owner) = filter.owner {
        query.push(" AND owner_id = ").push_bind(owner);
    }
    if let Some(category) = filter.category {
        query.push(" AND category = ").push_bind(category.as_str());
    }
    if !filter.kinds.is_empty() {
        query.push(" AND kind = ANY(").push_bind(filter.kinds.iter().map(|kind| kind.as_str()).collect::<Vec<_>>()).push(")");
    }
    if !filter.states.is_empty() {
        query.push(" AND state = ANY(").push_bind(filter.states.iter().map(|state| state.as_str()).collect::<Vec<_>>()).push(")");
    }
    if let Some(after) = after {
        query.push(" AND (created_at, id) < (").push_bind(after.created_at).push(", ").push_bind(after.id).push(")");
    }
    // One row more than asked for tells whether another page follows.
    query.push(" ORDER BY created_at DESC, id DESC LIMIT ").push_bind(i64::from(limit) + 1);
    let found: Vec<String> = query.build_query_scalar().fetch_all(db).await?;
    let mut rows = found.iter().map(|row| serde_json::from_str(row)).collect::<Result<Vec<Row>, _>>()?;
    let more = rows.len() > limit as usize;
    rows.truncate(limit as usize);
    let next = rows.last().filter(|_| more).map(|last| Cursor { created_at: last.created_at, id: last.id });
    Ok(Page { rows, next })
}

/// The row of a workload that is not gone.
pub async fn find(db: &PgPool, id: Uuid) -> Result<Option<Row>, Error> {
    let sql = format!("SELECT row_to_json(t)::text FROM {TABLE} t WHERE id = $1 AND NOT deleted");
    let found: Option<String> = sqlx::query_scalar(AssertSqlSafe(sql)).bind(id).fetch_optional(db).await?;
    Ok(found.map(|row| serde_json::from_str(&row)).transpose()?)
}

/// The deployment that requests of an account name by `route_name`.
pub async fn by_route(db: &PgPool, account: Uuid, route_name: &str) -> Result<Option<Row>, Error> {
    let sql = format!("SELECT row_to_json(t)::text FROM {TABLE} t WHERE account = $1 AND route_name = $2 AND NOT deleted");
    let found: Option<String> = sqlx::query_scalar(AssertSqlSafe(sql)).bind(account).bind(route_name).fetch_optional(db).await?;
    Ok(found.map(|row| serde_json::from_str(&row)).transpose()?)
}

/// Every deployment of an account that requests can name, the newest first, at most 1,000.
pub async fn deployments(db: &PgPool, account: Uuid) -> Result<Vec<Row>, Error> {
    let filter = Filter { account: Some(account), category: Some(Category::Deployment), ..Filter::default() };
    Ok(list(db, &filter, None, 1000).await?.rows)
}
