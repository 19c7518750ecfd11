//! Rows in and out as JSON: one struct serves the table, the fold and the answer.

use crate::ApplyError;
use serde::Serialize;
use serde::de::DeserializeOwned;
use sqlx::{AssertSqlSafe, PgConnection};
use uuid::Uuid;

/// The rows of `table` whose `key` is one of `ids`.
pub(crate) async fn load<R: DeserializeOwned>(db: &mut PgConnection, table: &str, key: &str, ids: &[Uuid]) -> Result<Vec<R>, ApplyError> {
    let sql = format!("SELECT row_to_json(t)::text FROM {table} t WHERE {key} = ANY($1)");
    let found: Vec<String> = sqlx::query_scalar(AssertSqlSafe(sql)).bind(ids).fetch_all(db).await?;
    found.iter().map(|row| Ok(serde_json::from_str(row)?)).collect()
}

/// Writes rows, new or changed, in one statement.
pub(crate) async fn upsert<R: Serialize>(db: &mut PgConnection, table: &str, key: &str, columns: &[&str], rows: &[R]) -> Result<(), ApplyError> {
    if rows.is_empty() {
        return Ok(());
    }
    let names = columns.join(", ");
    let excluded = columns.iter().map(|column| format!("EXCLUDED.{column}")).collect::<Vec<_>>().join(", ");
    let sql = format!(
        "INSERT INTO {table} ({names}) SELECT {names} FROM json_populate_recordset(NULL::{table}, $1::json) \
         ON CONFLICT ({key}) DO UPDATE SET ({names}) = ROW({excluded})"
    );
    sqlx::query(AssertSqlSafe(sql)).bind(serde_json::to_string(rows)?).execute(db).await?;
    Ok(())
}
