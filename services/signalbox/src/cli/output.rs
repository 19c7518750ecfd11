//! Tables for people, JSON for programs.

use serde_json::Value;

/// How to print.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// Columns for people.
    Table,
    /// The API's own answer.
    Json,
}

/// Prints rows with the columns of `columns`: a heading, and a path into the row.
#[expect(clippy::print_stdout, reason = "this is what the command is for")]
pub(super) fn rows<'a>(format: Format, whole: &Value, rows: impl Iterator<Item = &'a Value>, columns: &[(&str, &str)]) {
    if format == Format::Json {
        println!("{}", serde_json::to_string_pretty(whole).unwrap_or_default());
        return;
    }
    let rows: Vec<Vec<String>> = rows.map(|row| columns.iter().map(|(_, path)| shown(row, path)).collect()).collect();
    let width = |index: usize| rows.iter().map(|row| row[index].chars().count()).chain([columns[index].0.len()]).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns.len()).map(width).collect();
    let line = |cells: Vec<String>| {
        let padded: Vec<String> = cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        println!("{}", padded.join("  ").trim_end());
    };
    line(columns.iter().map(|(heading, _)| heading.to_uppercase()).collect());
    rows.into_iter().for_each(line);
}

/// Says how to see the next page, where there is one.
pub(super) fn more(format: Format, page: &Value) {
    if let Some(cursor) = page["next_cursor"].as_str().filter(|_| format == Format::Table) {
        eprintln!("more rows follow: --cursor {cursor}");
    }
}

/// Prints one object.
pub(super) fn one(format: Format, whole: &Value, columns: &[(&str, &str)]) {
    rows(format, whole, std::iter::once(whole), columns);
}

/// A value at a dotted path, as text.
fn shown(row: &Value, path: &str) -> String {
    let found = path.split('.').fold(row, |value, name| &value[name]);
    match found {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(|item| item.as_str().map_or_else(|| item.to_string(), str::to_owned)).collect::<Vec<_>>().join(","),
        other => other.to_string(),
    }
}

/// The rows of a page.
pub(super) fn items(page: &Value) -> impl Iterator<Item = &Value> {
    page["items"].as_array().into_iter().flatten()
}
