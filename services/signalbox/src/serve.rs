//! Runs roles in this process and stops them in order.

use crate::config::{Config, Nats as NatsConfig, key};
use crate::{Error, clock};
use ed25519_dalek::SigningKey;
use futures_util::FutureExt;
use prometheus_client::registry::Registry;
use signalbox_api::{App, Metrics, Parts, Ready, Report};
use signalbox_auditor::{Auditor, Folder};
use signalbox_domain::Source;
use signalbox_journal::gate::Durability;
use signalbox_journal::nats::{Credentials, Deltas, Nats, Options};
use signalbox_journal::{Ledger, MasterKey, Vault};
use signalbox_leases::Leases;
use signalbox_local::{Local, runtime};
use signalbox_projections::sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use signalbox_projections::sqlx::{self, ConnectOptions, PgPool};
use signalbox_projector::{Projector, Status};
use std::net::SocketAddr;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// How long answers may go on after the process was told to stop.
const DRAIN: Duration = Duration::from_secs(30);
/// A view that has not moved for this long while the log has something for it is stuck.
const STUCK: Duration = Duration::from_secs(30);

/// What a process does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Role {
    /// Everything.
    All,
    /// HTTP.
    Api,
    /// Log to views.
    Projector,
    /// Local processes.
    Local,
    /// Pools' queues, leases, execution tokens.
    Leases,
    /// Signed checkpoints.
    Auditor,
}

/// Roles at work.
pub struct Service {
    /// The HTTP service's address, where it runs.
    pub address: Option<SocketAddr>,
    /// The log.
    pub ledger: Arc<Ledger>,
    /// The views.
    pub db: PgPool,
    app: Option<App>,
    stop_api: CancellationToken,
    stop: CancellationToken,
    server: Option<JoinHandle<()>>,
    roles: Vec<JoinHandle<()>>,
}

/// How to open the log for appending.
pub fn log_options(config: &Config) -> Options {
    let NatsConfig { url, user, password, system_user, system_password, partitions, replicas, .. } = config.nats.clone();
    Options {
        url,
        credentials: credentials(user, password),
        system: credentials(system_user, system_password),
        partitions,
        replicas,
        create: true,
        durability: if config.durability == "relaxed" { Durability::Relaxed } else { Durability::Strict },
        api_prefix: None,
    }
}

/// How to open the log for reading only.
pub fn audit_options(config: &Config) -> Result<Options, Error> {
    let NatsConfig { auditor_user, auditor_password, auditor_api, .. } = config.nats.clone();
    let credentials = credentials(auditor_user, auditor_password);
    if credentials.is_none() {
        return Err("auditing needs a credential that cannot append: set nats.auditor_user and nats.auditor_password".into());
    }
    // The gate is for those who append; a reader takes what there is.
    Ok(Options { credentials, create: false, durability: Durability::Relaxed, api_prefix: auditor_api, ..log_options(config) })
}

fn credentials(user: Option<String>, password: Option<String>) -> Option<Credentials> {
    Some(Credentials { user: user?, password: password.unwrap_or_default() })
}

/// The database's connection options.
pub fn database_options(config: &Config) -> Result<PgConnectOptions, Error> {
    if config.database_url.is_empty() {
        return Err("set database_url, or SIGNALBOX_DATABASE_URL".into());
    }
    Ok(PgConnectOptions::from_str(&config.database_url)?.application_name("signalbox").disable_statement_logging())
}

/// A pool that recovers by itself from killed connections and restarts.
pub async fn database(config: &Config) -> Result<PgPool, Error> {
    let options = database_options(config)?;
    let pool = PgPoolOptions::new().max_connections(16).acquire_timeout(Duration::from_secs(5)).test_before_acquire(true).connect_with(options).await;
    pool.map_err(|error| format!("cannot reach PostgreSQL: {}", crate::chain(&error)).into())
}

/// Opens the log with its law and keys.
pub async fn ledger(config: &Config) -> Result<(Arc<Nats>, Arc<Ledger>), Error> {
    ledger_at(config, clock::source()).await
}

async fn ledger_at(config: &Config, source: Source) -> Result<(Arc<Nats>, Arc<Ledger>), Error> {
    let nats = Nats::open(log_options(config)).await?;
    let vault = Vault::new(MasterKey(key("master", &config.keys.master)?));
    Ok((nats.clone(), Arc::new(Ledger::new(nats, vault, source))))
}

impl Service {
    /// Starts `roles`. The schema is brought up to date first.
    pub async fn start(config: &Config, roles: &[Role]) -> Result<Self, Error> {
        Self::start_at(config, roles, clock::source()).await
    }

    /// The same with a source of time, ids and random bits of the caller's.
    pub async fn start_at(config: &Config, roles: &[Role], source: Source) -> Result<Self, Error> {
        let plays = |role: Role| roles.contains(&Role::All) || roles.contains(&role);
        // Bound first: where the address is taken nothing else is begun.
        let listener = if plays(Role::Api) {
            let listener = TcpListener::bind(&config.listen).await;
            Some(listener.map_err(|error| format!("cannot listen on {}: {error}", config.listen))?)
        } else {
            None
        };
        let options = database_options(config)?;
        let (opened, migrated) = tokio::join!(ledger_at(config, source), signalbox_projections::up(&options));
        let (nats, ledger) = opened?;
        migrated?;
        let db = database(config).await?;
        let (stop, stop_api) = (CancellationToken::new(), CancellationToken::new());
        let mut registry = Registry::with_prefix("signalbox");
        let http = signalbox_worker::upstream::client()?;
        let mut running = Vec::new();
        let status = Status::default();
        status.register(&mut registry);
        if plays(Role::Projector) {
            let projector = Projector { ledger: ledger.clone(), db: db.clone(), status: status.clone() };
            running.push(role("projector", projector.run(stop.clone())));
        }
        if plays(Role::Local) {
            let local = Local {
                ledger: ledger.clone(),
                db: db.clone(),
                runtimes: config.runtimes.clone(),
                folder: config.workloads.clone(),
                http: http.clone(),
            };
            running.push(role("local", local.run(stop.clone())));
        }
        if plays(Role::Leases) {
            let metrics = signalbox_leases::Metrics::default();
            metrics.register(&mut registry);
            let leases = Leases { ledger: ledger.clone(), db: db.clone(), nats: nats.plain(), metrics };
            running.push(role("leases", leases.run(stop.clone())));
        }
        if plays(Role::Auditor) {
            let auditor = Auditor {
                journal: Nats::open(audit_options(config)?).await?,
                folder: Folder(config.checkpoints.clone()),
                key: SigningKey::from_bytes(&key("checkpoint", &config.keys.checkpoint)?),
                now: Arc::new(clock::now),
            };
            running.push(role("auditor", auditor.run(stop.clone())));
        }
        let mut service = Self { address: None, ledger: ledger.clone(), db: db.clone(), app: None, stop_api, stop, server: None, roles: running };
        if let Some(listener) = listener {
            let metrics = Metrics::default();
            metrics.register(&mut registry);
            let app = App::start(Parts {
                ledger: ledger.clone(),
                db: db.clone(),
                deltas: Deltas::open(&nats).await?,
                nats: nats.plain(),
                catalog: runtime::catalog(&config.runtimes),
                http,
                cursor_key: key("cursor", &config.keys.cursor)?,
                instance: clock::id().simple().to_string(),
                ready: ready(ledger, db, status, plays(Role::Projector), config.durability == "relaxed"),
                metrics,
                registry: Arc::new(registry),
                stop: service.stop_api.clone(),
            });
            service.address = Some(listener.local_addr()?);
            let router = signalbox_api::router(app.clone());
            let stopped = service.stop_api.clone().cancelled_owned();
            service.app = Some(app);
            service.server = Some(tokio::spawn(async move {
                use axum::serve::ListenerExt;
                // A delta must not wait for the next one.
                let listener = listener.tap_io(|stream| {
                    let _ = stream.set_nodelay(true);
                });
                if let Err(error) = axum::serve(listener, router).with_graceful_shutdown(stopped).await {
                    tracing::error!(%error, "the HTTP service has ended");
                }
            }));
        }
        Ok(service)
    }

    /// Stops in order: no new requests, running turns to their end, then the other roles.
    pub async fn stop(self) {
        self.stop_api.cancel();
        if let Some(app) = &self.app
            && tokio::time::timeout(DRAIN, app.drained()).await.is_err()
        {
            tracing::warn!("turns were still running at the end; another replica will end them");
        }
        if let Some(server) = self.server {
            let abort = server.abort_handle();
            // Streams end with their turns; whoever holds a connection open beyond that is cut off.
            if tokio::time::timeout(Duration::from_secs(2), server).await.is_err() {
                abort.abort();
            }
        }
        self.stop.cancel();
        for role in self.roles {
            let _ = role.await;
        }
        self.db.close().await;
    }
}

/// Runs a role. A panic is a bug of ours: the process ends, and starts again from its checkpoints, rather than going on
/// without the role.
fn role(name: &'static str, work: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
    tokio::spawn(async move {
        if tokio::spawn(work).await.is_err_and(|error| error.is_panic()) {
            tracing::error!(role = name, "a role has panicked, the process ends");
            std::process::exit(70);
        }
    })
}

/// What `/readyz` asks.
fn ready(ledger: Arc<Ledger>, db: PgPool, status: Status, projects: bool, relaxed: bool) -> Ready {
    Arc::new(move || {
        let (ledger, db, status) = (ledger.clone(), db.clone(), status.clone());
        async move {
            let mut parts = Vec::new();
            let patience = Duration::from_secs(2);
            // A write, not the server's own health page, says whether the log takes events.
            let probe = tokio::time::timeout(patience, ledger.journal().probe()).await;
            let durability = if relaxed { "RELAXED: acknowledged events can be lost" } else { "strict" };
            parts.push(match probe {
                Ok(Ok(())) => report("log", true, format!("takes writes; durability {durability}")),
                Ok(Err(error)) => report("log", false, error.to_string()),
                Err(_) => report("log", false, "no answer in time".to_owned()),
            });
            let ping = tokio::time::timeout(patience, sqlx::query("SELECT 1").execute(&db)).await;
            parts.push(match ping {
                Ok(Ok(_)) => report("database", true, "answers".to_owned()),
                Ok(Err(error)) => report("database", false, error.to_string()),
                Err(_) => report("database", false, "no answer in time".to_owned()),
            });
            if projects {
                parts.extend(views(&ledger, &status).await);
            }
            parts
        }
        .boxed()
    })
}

fn report(part: &str, ready: bool, detail: String) -> Report {
    Report { part: part.to_owned(), ready, detail }
}

/// Each partition's views: where they stand, and what lags.
async fn views(ledger: &Ledger, status: &Status) -> Vec<Report> {
    let mut parts = Vec::new();
    for (partition, state) in status.partitions() {
        let name = format!("views.{partition}");
        if let Some(halted) = &state.halted {
            parts.push(report(&name, false, halted.clone()));
            continue;
        }
        let tail = ledger.journal().tail(partition).await.map_or(state.tail, |tail| tail.last);
        let behind: Vec<String> = state
            .views
            .iter()
            .filter(|(_, view)| state.active && view.position < tail)
            .map(|(view, at)| format!("{view} lags {} events", tail - at.position))
            .collect();
        let parked: u64 = state.views.values().map(|view| view.parked).sum();
        let detail = match (behind.is_empty(), parked) {
            (true, 0) => format!("at {tail}"),
            (true, parked) => format!("at {tail}; {parked} events are parked"),
            (false, _) => behind.join(", "),
        };
        parts.push(report(&name, behind.is_empty() || state.moved.elapsed() < STUCK, detail));
    }
    parts
}

/// Waits for Ctrl-C or SIGTERM.
pub async fn asked_to_stop() {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut interrupt), Ok(mut terminate)) = (signal(SignalKind::interrupt()), signal(SignalKind::terminate())) else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
}
