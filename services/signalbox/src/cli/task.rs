//! `signalbox task ..`

use super::{Connection, output, segment};
use crate::Error;
use clap::Subcommand;
use reqwest::Method;
use serde_json::{Value, json};

#[derive(Debug, Subcommand)]
pub(super) enum Verb {
    /// Submit a task to a pool's queue.
    Submit {
        /// What is to be done, `chat.completions`.
        kind: String,
        /// What it is to be done with: a JSON object.
        payload: String,
        /// The pool; else the first that is enabled.
        #[arg(long)]
        pool: Option<String>,
        /// 0 to 9, the higher first.
        #[arg(long, default_value_t = 5)]
        priority: u8,
        /// Give up if no worker took it within so many seconds.
        #[arg(long, value_name = "SECONDS")]
        start_within: Option<u32>,
        /// Wait for the result; refused at once where no worker takes it.
        #[arg(long)]
        sync: bool,
        /// The same key submits once, for ever.
        #[arg(long)]
        idempotency_key: Option<String>,
        #[command(flatten)]
        connection: Connection,
    },
    /// List tasks, the newest first.
    List {
        /// `mine`, `account` or `all`.
        #[arg(long, default_value = "mine")]
        scope: String,
        /// States, comma-separated: `submission_unknown`, `dead_lettered`, ..
        #[arg(long)]
        state: Option<String>,
        /// In this pool.
        #[arg(long)]
        pool: Option<String>,
        /// Of this kind.
        #[arg(long)]
        kind: Option<String>,
        /// Leased last by this worker.
        #[arg(long)]
        worker: Option<String>,
        /// Rows of the page.
        #[arg(long, default_value_t = 50)]
        limit: u32,
        /// Where the page begins.
        #[arg(long)]
        cursor: Option<String>,
        #[command(flatten)]
        connection: Connection,
    },
    /// Show a task.
    Get {
        /// The task's id.
        id: String,
        #[command(flatten)]
        connection: Connection,
    },
    /// Print the result of a task.
    Result {
        /// The task's id.
        id: String,
        #[command(flatten)]
        connection: Connection,
    },
    /// Cancel a task.
    Cancel {
        /// The task's id.
        id: String,
        #[command(flatten)]
        connection: Connection,
    },
    /// Say what became of a task whose submission is unknown.
    Resolve {
        /// The task's id.
        id: String,
        /// What is known of it.
        #[arg(value_parser = ["succeeded", "failed", "cancelled", "confirmed_not_submitted", "accept_duplicate"])]
        resolution: String,
        /// Why; kept in the log.
        #[arg(long)]
        reason: String,
        /// The result, JSON; with `succeeded` alone.
        #[arg(long)]
        result: Option<String>,
        #[command(flatten)]
        connection: Connection,
    },
    /// Try a dead letter again from the beginning.
    Revive {
        /// The task's id.
        id: String,
        /// Why; kept in the log.
        #[arg(long)]
        reason: String,
        #[command(flatten)]
        connection: Connection,
    },
}

const STATED: [(&str, &str); 3] = [("id", "id"), ("position", "position"), ("stated", "stated")];
const COLUMNS: [(&str, &str); 8] = [
    ("id", "id"),
    ("kind", "kind"),
    ("state", "state"),
    ("pool", "pool"),
    ("worker", "worker"),
    ("attempt", "attempt"),
    ("code", "code"),
    ("accepted", "accepted_at"),
];

#[expect(clippy::print_stdout, reason = "this is what the command is for")]
pub(super) async fn run(verb: Verb) -> Result<(), Error> {
    match verb {
        Verb::Submit { kind, payload, pool, priority, start_within, sync, idempotency_key, connection } => {
            let payload: Value = serde_json::from_str(&payload).map_err(|error| format!("the payload is not JSON: {error}"))?;
            let mut body = json!({"kind": kind, "payload": payload, "priority": priority});
            if let Some(pool) = pool {
                body["pool"] = pool.into();
            }
            if let Some(seconds) = start_within {
                body["start_within_seconds"] = seconds.into();
            }
            if sync {
                body["mode"] = "sync".into();
            }
            let done = connection.client()?.send_once(Method::POST, "/v1/tasks", Some(body), idempotency_key.as_deref()).await?;
            let finished = [("id", "id"), ("state", "state"), ("result", "result")];
            output::one(connection.output, &done, if sync { &finished } else { &STATED });
        }
        Verb::List { scope, state, pool, kind, worker, limit, cursor, connection } => {
            let mut query = format!("?scope={}&limit={limit}", segment(&scope));
            for (name, value) in [("state", state), ("pool", pool), ("kind", kind), ("worker", worker), ("cursor", cursor)] {
                if let Some(value) = value {
                    query.push_str(&format!("&{name}={}", segment(&value)));
                }
            }
            let page = connection.client()?.get(&format!("/v1/tasks{query}")).await?;
            output::rows(connection.output, &page, output::items(&page), &COLUMNS);
            output::more(connection.output, &page);
        }
        Verb::Get { id, connection } => {
            let task = connection.client()?.get(&format!("/v1/tasks/{}", segment(&id))).await?;
            output::one(connection.output, &task, &COLUMNS);
        }
        Verb::Result { id, connection } => {
            let result = connection.client()?.get(&format!("/v1/tasks/{}/result", segment(&id))).await?;
            println!("{}", serde_json::to_string_pretty(&result)?);
        }
        Verb::Cancel { id, connection } => command(&connection, &id, "cancel", None).await?,
        Verb::Resolve { id, resolution, reason, result, connection } => {
            let mut body = json!({"resolution": resolution, "reason": reason});
            if let Some(result) = result {
                body["result"] = serde_json::from_str(&result).map_err(|error| format!("the result is not JSON: {error}"))?;
            }
            command(&connection, &id, "resolve", Some(body)).await?;
        }
        Verb::Revive { id, reason, connection } => command(&connection, &id, "revive", Some(json!({"reason": reason}))).await?,
    }
    Ok(())
}

async fn command(connection: &Connection, id: &str, verb: &str, body: Option<Value>) -> Result<(), Error> {
    let done = connection.client()?.send(Method::POST, &format!("/v1/tasks/{}/{verb}", segment(id)), body).await?;
    output::one(connection.output, &done, &STATED);
    Ok(())
}
