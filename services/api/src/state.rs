//! What every request shares.

use crate::auth::Credentials;
use crate::executor::Running;
use crate::health::Ready;
use crate::metrics::Metrics;
use prometheus_client::registry::Registry;
use reqwest::Client;
use signalbox_domain::Context;
use signalbox_domain::kind::Catalog;
use signalbox_journal::Ledger;
use signalbox_journal::nats::Deltas;
use signalbox_projections::sqlx::PgPool;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use tokio_util::sync::CancellationToken;

/// The role's parts, as the process puts them together.
pub struct Parts {
    /// The log.
    pub ledger: Arc<Ledger>,
    /// The views.
    pub db: PgPool,
    /// Running answers.
    pub deltas: Deltas,
    /// Plain NATS, for cancelling across replicas.
    pub nats: signalbox_journal::nats::Plain,
    /// What local kinds may start.
    pub catalog: Catalog,
    /// Calls to models.
    pub http: Client,
    /// Signs cursors.
    pub cursor_key: [u8; 32],
    /// This replica's name: one token.
    pub instance: String,
    /// Health of everything that this process runs.
    pub ready: Ready,
    /// Counters.
    pub metrics: Metrics,
    /// Where `/metrics` reads.
    pub registry: Arc<Registry>,
    /// Ends streams and turns of this replica.
    pub stop: CancellationToken,
}

/// Shared by all requests.
#[derive(Clone)]
pub struct App(Arc<Inner>);

/// The inside of [`App`].
pub struct Inner {
    parts: Parts,
    /// Turns that this replica executes.
    pub(crate) running: Running,
    /// Spreads calls over replicas.
    pub(crate) turn_of: AtomicUsize,
    /// Keys that were used lately.
    pub(crate) credentials: Credentials,
}

impl App {
    /// Starts the role's background work and answers with what requests share.
    pub fn start(parts: Parts) -> Self {
        let app = Self(Arc::new(Inner { parts, running: Running::default(), turn_of: AtomicUsize::new(0), credentials: Credentials::default() }));
        crate::watchdog::start(app.clone());
        app
    }

    /// A fresh context: time, id, random bits.
    pub(crate) fn context(&self) -> Context {
        (self.ledger.source())()
    }

    /// Waits until this replica executes no turn, after `stop`.
    pub async fn drained(&self) {
        self.0.running.drained().await;
    }
}

impl std::ops::Deref for App {
    type Target = Inner;
    fn deref(&self) -> &Inner {
        &self.0
    }
}

impl std::ops::Deref for Inner {
    type Target = Parts;
    fn deref(&self) -> &Parts {
        &self.parts
    }
}
