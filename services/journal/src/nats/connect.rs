//! Connects, creates what is missing, passes the gate, listens for changes.

use super::{Nats, PATIENCE, read, store};
use crate::gate::{self, Durability, ServerFacts, StreamFacts};
use crate::journal::Store;
use async_nats::jetstream::stream::{Config, DiscardPolicy, RetentionPolicy, StorageType};
use async_nats::jetstream::{self, Context, ContextBuilder};
use async_nats::{Client, ConnectOptions};
use futures_util::StreamExt;
use signalbox_events::subject;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// Who we are for the server.
#[derive(Clone)]
pub struct Credentials {
    /// The user's name.
    pub user: String,
    /// The user's password.
    pub password: String,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Credentials({}, ..)", self.user)
    }
}

/// How to open the log.
#[derive(Debug, Clone)]
pub struct Options {
    /// Server addresses, comma-separated.
    pub url: String,
    /// For the log itself.
    pub credentials: Option<Credentials>,
    /// Of the system account, read-only: the gate asks each server for its sync setting with it.
    pub system: Option<Credentials>,
    /// Count of streams; fixed at installation.
    pub partitions: u16,
    /// Replicas of streams and stores.
    pub replicas: usize,
    /// Whether to create what is missing. Without it (the auditor) nothing is ever written.
    pub create: bool,
    /// What the gate demands.
    pub durability: Durability,
}

/// The log cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// No connection.
    #[error("cannot connect to NATS at {url}: {reason}")]
    Connect {
        /// The address.
        url: String,
        /// What the client said.
        reason: String,
    },
    /// A stream or store cannot be opened or created.
    #[error("cannot open {what}: {reason}")]
    Missing {
        /// The stream's or bucket's name.
        what: String,
        /// What the server said.
        reason: String,
    },
    /// The log could lose what it acknowledged.
    #[error("the log is not safe to use:\n{0}")]
    Gate(gate::Refusal),
}

/// One connection. `name` shows in the server's list of connections.
pub async fn connect(url: &str, credentials: Option<&Credentials>, name: &str) -> Result<Client, OpenError> {
    let mut options = ConnectOptions::new();
    if let Some(credentials) = credentials {
        options = options
            .user_and_password(credentials.user.clone(), credentials.password.clone())
            .custom_inbox_prefix(format!("_INBOX_{}", credentials.user));
    }
    let servers: Vec<&str> = url.split(',').map(str::trim).collect();
    options
        .name(name)
        .connection_timeout(PATIENCE)
        .request_timeout(Some(PATIENCE))
        // Three silent pings close a dead connection: well within the 10 s that a reader may be deaf.
        .ping_interval(Duration::from_secs(2))
        .subscription_capacity(1 << 16)
        .reconnect_delay_callback(|attempt| Duration::from_millis((50 << attempt.min(5)) as u64))
        .connect(servers)
        .await
        .map_err(|error| OpenError::Connect { url: url.to_owned(), reason: error.to_string() })
}

pub(super) async fn open(options: Options) -> Result<Arc<Nats>, OpenError> {
    let client = connect(&options.url, options.credentials.as_ref(), "signalbox").await?;
    let jetstream = ContextBuilder::new().timeout(PATIENCE).build(client.clone());
    let mut replicas = 1;
    let mut streams = Vec::new();
    for partition in 0..options.partitions {
        let facts = open_stream(&jetstream, partition, &options).await?;
        replicas = replicas.max(facts.config.num_replicas);
        streams.push(facts);
    }
    let servers = server_facts(&client, &options).await;
    gate::check(&streams, &servers, options.durability).map_err(OpenError::Gate)?;
    let mut stores = HashMap::new();
    for store in Store::ALL {
        match store::open(&jetstream, store, options.replicas, options.create).await {
            Ok(bucket) => {
                stores.insert(store, bucket);
            }
            Err(error) if options.create => return Err(OpenError::Missing { what: store.bucket().to_owned(), reason: error.to_string() }),
            // Read-only credentials may see the log alone.
            Err(_) => {}
        }
    }
    let mut signals = Vec::new();
    for partition in 0..options.partitions {
        signals.push(listen(&client, partition).await?);
    }
    Ok(Arc::new(Nats { client, jetstream, partitions: options.partitions, replicas, stores, signals }))
}

/// The configuration of a partition's stream.
pub(crate) fn stream_config(partition: u16, replicas: usize) -> Config {
    Config {
        name: subject::stream(partition),
        subjects: vec![subject::stream_subjects(partition)],
        description: Some("Signalbox events: the only truth. Never delete, purge or edit.".to_owned()),
        storage: StorageType::File,
        retention: RetentionPolicy::Limits,
        discard: DiscardPolicy::New,
        max_messages: -1,
        max_bytes: -1,
        max_messages_per_subject: -1,
        max_message_size: -1,
        max_consumers: -1,
        max_age: Duration::ZERO,
        // Idempotency is ours: the window is as short as the server allows, and no message carries an id.
        duplicate_window: Duration::from_millis(100),
        num_replicas: replicas,
        allow_direct: true,
        deny_delete: true,
        deny_purge: true,
        ..Default::default()
    }
}

async fn open_stream(jetstream: &Context, partition: u16, options: &Options) -> Result<StreamFacts, OpenError> {
    let name = subject::stream(partition);
    let missing = |reason: String| OpenError::Missing { what: name.clone(), reason };
    let info = match jetstream.get_stream(&name).await {
        Ok(stream) => stream.cached_info().clone(),
        Err(error) if super::jetstream_code(&error) == Some(10059) || matches!(error.kind(), jetstream::context::GetStreamErrorKind::JetStream(_)) => {
            if !options.create {
                return Err(missing("there is no log yet".to_owned()));
            }
            let made = jetstream.create_stream(stream_config(partition, options.replicas)).await;
            made.map_err(|error| missing(error.to_string()))?.cached_info().clone()
        }
        Err(error) => return Err(missing(error.to_string())),
    };
    Ok(StreamFacts { config: info.config.clone(), tail: read::tail_of(&info) })
}

/// Asks every server for its version and sync setting; without a system credential only the version is known.
async fn server_facts(client: &Client, options: &Options) -> Vec<ServerFacts> {
    let own = client.server_info();
    let unproven = || vec![ServerFacts { name: own.server_name.clone(), version: own.version.clone(), sync_always: None, clustered: own.cluster.is_some() }];
    let Some(system) = &options.system else { return unproven() };
    let Ok(client) = connect(&options.url, Some(system), "signalbox-gate").await else { return unproven() };
    let inbox = client.new_inbox();
    let Ok(mut answers) = client.subscribe(inbox.clone()).await else { return unproven() };
    if client.publish_with_reply("$SYS.REQ.SERVER.PING.VARZ", inbox, "".into()).await.is_err() {
        return unproven();
    }
    let mut found = Vec::new();
    let mut wait = PATIENCE;
    // Every server answers for itself; how many there are is not said, so the wait is short once one has answered.
    while let Ok(Some(answer)) = tokio::time::timeout(wait, answers.next()).await {
        if let Some(facts) = gate::server_facts(&answer.payload) {
            found.push(facts);
        }
        wait = if own.cluster.is_some() { Duration::from_millis(500) } else { Duration::ZERO };
    }
    let _ = client.drain().await;
    if found.is_empty() { unproven() } else { found }
}

/// Raises the signal whenever something is published to the partition.
async fn listen(client: &Client, partition: u16) -> Result<watch::Receiver<u64>, OpenError> {
    let subject = subject::stream_subjects(partition);
    let mut published = client
        .subscribe(subject.clone())
        .await
        .map_err(|error| OpenError::Missing { what: subject, reason: error.to_string() })?;
    let (raise, signal) = watch::channel(0_u64);
    tokio::spawn(async move {
        while published.next().await.is_some() {
            raise.send_modify(|count| *count = count.wrapping_add(1));
            if raise.is_closed() {
                break;
            }
        }
    });
    Ok(signal)
}
