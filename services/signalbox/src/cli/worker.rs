//! `signalbox worker ..`

use super::{Connection, output, segment};
use crate::Error;
use clap::Subcommand;
use reqwest::Method;

#[derive(Debug, Subcommand)]
pub(super) enum Verb {
    /// List workers with what they hold.
    List {
        /// Of this pool.
        #[arg(long)]
        pool: Option<String>,
        #[command(flatten)]
        connection: Connection,
    },
    /// Drain a worker: it ends what it has, claims nothing new, and says good-bye.
    Drain {
        /// The worker's id.
        id: String,
        #[command(flatten)]
        connection: Connection,
    },
}

pub(super) async fn run(verb: Verb) -> Result<(), Error> {
    match verb {
        Verb::List { pool, connection } => {
            let query = pool.map(|pool| format!("?pool={}", segment(&pool))).unwrap_or_default();
            let page = connection.client()?.get(&format!("/v1/workers{query}")).await?;
            let columns = [
                ("id", "id"),
                ("pool", "pool"),
                ("state", "state"),
                ("kinds", "kinds"),
                ("slots", "slots"),
                ("leases", "leases"),
                ("heartbeat", "last_heartbeat_at"),
                ("version", "version"),
            ];
            output::rows(connection.output, &page, output::items(&page), &columns);
        }
        Verb::Drain { id, connection } => {
            let done = connection.client()?.send(Method::POST, &format!("/v1/workers/{}/drain", segment(&id)), None).await?;
            output::one(connection.output, &done, &[("id", "id"), ("stated", "stated")]);
        }
    }
    Ok(())
}
