//! Rows in and out by their serde names: one struct serves the table, the fold and the answer.

use crate::ApplyError;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use sqlx::{AssertSqlSafe, Encode, PgConnection, Postgres, Type};

/// The rows of `table` whose `key` is one of `ids`.
pub(crate) async fn load<R, I>(db: &mut PgConnection, table: &str, key: &str, ids: &[I]) -> Result<Vec<R>, ApplyError>
where
    R: DeserializeOwned,
    I: Sync,
    for<'q> &'q [I]: Encode<'q, Postgres> + Type<Postgres>,
{
    let sql = format!("SELECT row_to_json(t)::text FROM {table} t WHERE {key} = ANY($1)");
    let found: Vec<String> = sqlx::query_scalar(AssertSqlSafe(sql)).bind(ids).fetch_all(db).await?;
    found.iter().map(|row| Ok(serde_json::from_str(row)?)).collect()
}

/// A column's name and PostgreSQL type.
pub(crate) type Column = (&'static str, &'static str);

/// Writes rows, new or changed, in one statement: one array a column, so that the plan and the wire stay small whatever
/// the count of rows.
pub(crate) async fn upsert<R: Serialize>(db: &mut PgConnection, table: &str, key: &str, columns: &[Column], rows: &[R]) -> Result<(), ApplyError> {
    if rows.is_empty() {
        return Ok(());
    }
    let mut values: Vec<Vec<Option<String>>> = columns.iter().map(|_| Vec::with_capacity(rows.len())).collect();
    for row in rows {
        let row = serde_json::to_value(row)?;
        for ((name, kind), values) in columns.iter().zip(&mut values) {
            values.push(text(&row[*name], *kind == "json"));
        }
    }
    let join = |part: &dyn Fn(usize, &Column) -> String| {
        columns.iter().enumerate().map(|(index, column)| part(index, column)).collect::<Vec<_>>().join(", ")
    };
    let names = join(&|_, (name, _)| (*name).to_owned());
    let sql = format!(
        "INSERT INTO {table} ({names}) SELECT {cast} FROM UNNEST({arrays}) AS u ({names}) ON CONFLICT ({key}) DO UPDATE SET ({names}) = ROW({excluded})",
        cast = join(&|_, (name, kind)| format!("u.{name}::{kind}")),
        arrays = join(&|index, _| format!("${}::text[]", index + 1)),
        excluded = join(&|_, (name, _)| format!("EXCLUDED.{name}")),
    );
    let query = values.iter().fold(sqlx::query(AssertSqlSafe(sql)), |query, values| query.bind(values));
    query.execute(db).await?;
    Ok(())
}

/// A field as PostgreSQL reads it from text.
fn text(value: &Value, json: bool) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) if !json => Some(text.clone()),
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) | Value::Object(_) => Some(value.to_string()),
    }
}
