//! `signalbox worker ..`

use super::{Connection, output, segment};
use crate::{Error, clock};
use clap::Subcommand;
use reqwest::Method;
use signalbox_embedded::nats;
use signalbox_events::{IncarnationId, PoolId, WorkerId};
use signalbox_worker::openai::OpenAi;
use signalbox_worker::{Capabilities, Options};
use std::path::PathBuf;
use tokio_util::sync::CancellationToken;

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
    /// Run the reference worker: sends tasks to OpenAI-compatible services until it is told to stop.
    Run(Run),
    /// Make a credential: prints the entry for NATS's configuration, and the seed for the worker.
    Credential {
        /// The pool's id.
        pool: String,
        /// The worker's id.
        worker: String,
    },
    /// Drain a worker: it ends what it has, claims nothing new, and says good-bye.
    Drain {
        /// The worker's id.
        id: String,
        #[command(flatten)]
        connection: Connection,
    },
}

/// The reference worker.
#[derive(Debug, clap::Args)]
pub(super) struct Run {
    /// The pool.
    #[arg(long)]
    pool: String,
    /// The worker's id.
    #[arg(long)]
    id: String,
    /// The file with the seed of its credential: `dev --worker` and `worker credential` make one.
    #[arg(long, value_name = "FILE")]
    seed_file: PathBuf,
    /// Addresses of NATS, comma-separated.
    #[arg(long, env = "NATS_URL", default_value = "nats://127.0.0.1:4222")]
    nats: String,
    /// Tasks that it executes at once.
    #[arg(long, default_value_t = 4)]
    slots: u32,
}

async fn run_worker(run: Run) -> Result<(), Error> {
    let seed = std::fs::read_to_string(&run.seed_file).map_err(|error| format!("cannot read {}: {error}", run.seed_file.display()))?;
    let options = Options {
        url: run.nats,
        seed: seed.trim().to_owned(),
        pool: token("pool", &run.pool)?,
        worker: token("worker", &run.id)?,
        incarnation: IncarnationId(clock::id()),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        capabilities: Capabilities { kinds: OpenAi::KINDS.iter().map(|(kind, _)| (*kind).to_owned()).collect(), streaming: true },
        slots: run.slots,
        secret: clock::random(),
    };
    let http = signalbox_worker::upstream::client()?;
    let stop = CancellationToken::new();
    let asked = stop.clone();
    tokio::spawn(async move {
        crate::serve::asked_to_stop().await;
        asked.cancel();
    });
    eprintln!("signalbox: worker {} of pool {} takes tasks; SIGTERM or Ctrl-C drains it", run.id, run.pool);
    Ok(signalbox_worker::run(options, OpenAi { http }, stop).await?)
}

/// A token of a subject.
fn token<T: std::str::FromStr>(what: &str, text: &str) -> Result<T, Error> {
    text.parse().map_err(|_| format!("a {what}'s id must match ^[a-z0-9][a-z0-9-]{{0,62}}$").into())
}

#[expect(clippy::print_stdout, reason = "a script takes the credential from standard output")]
fn credential(pool: &str, worker: &str) -> Result<(), Error> {
    let (pool, worker): (PoolId, WorkerId) = (token("pool", pool)?, token("worker", worker)?);
    let (public_key, seed) = nats::fresh_worker_key(clock::random())?;
    let user = nats::WorkerUser { pool: pool.to_string(), worker: worker.to_string() };
    eprintln!("signalbox: put this into `users` of the account WORKERS, and reload nats-server:");
    print!("{}", nats::worker_entry(&user, &public_key));
    eprintln!("signalbox: the worker's seed, shown this once:");
    println!("{seed}");
    Ok(())
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
        Verb::Run(run) => run_worker(run).await?,
        Verb::Credential { pool, worker } => credential(&pool, &worker)?,
        Verb::Drain { id, connection } => {
            let done = connection.client()?.send(Method::POST, &format!("/v1/workers/{}/drain", segment(&id)), None).await?;
            output::one(connection.output, &done, &[("id", "id"), ("stated", "stated")]);
        }
    }
    Ok(())
}
