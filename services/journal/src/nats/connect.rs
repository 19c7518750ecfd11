//! Connects, creates what is missing, passes the gate, listens for changes.

use super::{Nats, PATIENCE, read, store};
use crate::gate::{self, Durability, ServerFacts, StreamFacts};
use crate::journal::Store;
use async_nats::jetstream::stream::{Config, DiscardPolicy, RetentionPolicy, StorageType};
use async_nats::jetstream::{self, Context, ContextBuilder};
use async_nats::{Client, ConnectOptions};
use bytes::Bytes;
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
    /// The prefix of JetStream's API where another account than the log's imports it.
    pub api_prefix: Option<String>,
}

/// The log cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// No connection.
    #[error("cannot connect to NATS at {url}: {reason}. Is it running? `signalbox dev` starts one and ends it again")]
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
    let api = options.api_prefix.clone().unwrap_or_else(|| "$JS.API".to_owned());
    let jetstream = ContextBuilder::new().timeout(PATIENCE).api_prefix(api.clone()).build(client.clone());
    let system = system(&options).await;
    let mut replicas = 1;
    let mut streams = Vec::new();
    for partition in 0..options.partitions {
        let facts = open_stream(&jetstream, system.as_ref(), partition, &options).await?;
        replicas = replicas.max(facts.config.num_replicas);
        streams.push(facts);
    }
    let servers = server_facts(&client, system.as_ref()).await;
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
    // Another account does not see what is published; its readers look every second.
    for partition in (0..options.partitions).filter(|_| options.api_prefix.is_none()) {
        signals.push(listen(&client, partition).await?);
    }
    Ok(Arc::new(Nats { client, jetstream, partitions: options.partitions, replicas, api, stores, signals }))
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

async fn open_stream(jetstream: &Context, system: Option<&Client>, partition: u16, options: &Options) -> Result<StreamFacts, OpenError> {
    let name = subject::stream(partition);
    let missing = |reason: String| OpenError::Missing { what: name.clone(), reason };
    let info = match jetstream.get_stream(&name).await {
        Ok(stream) => stream.cached_info().clone(),
        Err(error) if super::jetstream_code(&error) == Some(STREAM_NOT_FOUND) || not_found(&error) => {
            if !options.create {
                return Err(missing("there is no log yet".to_owned()));
            }
            // A server that could not recover a stream (a wrong encryption key, a damaged disk) says that there is
            // none, and creating it would delete what is there.
            if let Some(trouble) = unhealthy(system).await {
                return Err(missing(format!("it is not there, and the server is in trouble ({trouble}); creating it could destroy what is on disk")));
            }
            let made = jetstream.create_stream(stream_config(partition, options.replicas)).await;
            made.map_err(|error| missing(error.to_string()))?.cached_info().clone()
        }
        Err(error) => return Err(missing(error.to_string())),
    };
    Ok(StreamFacts { config: info.config.clone(), tail: read::tail_of(&info) })
}

/// JetStream's code for a stream that is not there.
const STREAM_NOT_FOUND: u64 = 10059;

fn not_found(error: &jetstream::context::GetStreamError) -> bool {
    matches!(error.kind(), jetstream::context::GetStreamErrorKind::JetStream(error) if error.error_code().0 == STREAM_NOT_FOUND)
}

/// A connection to the system account, where there is a credential for it.
async fn system(options: &Options) -> Option<Client> {
    match connect(&options.url, Some(options.system.as_ref()?), "signalbox-gate").await {
        Ok(client) => Some(client),
        Err(error) => {
            tracing::warn!(%error, "the system account cannot be asked");
            None
        }
    }
}

/// Every server's answer to a question of the system account; how many servers there are is not said, so the wait for
/// another is short.
async fn ask_all(system: &Client, question: &'static str) -> Vec<Bytes> {
    let mut found = Vec::new();
    let inbox = system.new_inbox();
    let Ok(mut answers) = system.subscribe(inbox.clone()).await else { return found };
    if system.publish_with_reply(question, inbox, Bytes::new()).await.is_err() {
        return found;
    }
    let clustered = system.server_info().cluster.is_some();
    let mut wait = PATIENCE;
    while let Ok(Some(answer)) = tokio::time::timeout(wait, answers.next()).await {
        found.push(answer.payload);
        if !clustered {
            break;
        }
        wait = Duration::from_millis(300);
    }
    found
}

/// What ails a server, if one says that something does.
async fn unhealthy(system: Option<&Client>) -> Option<String> {
    let system = system?;
    // JetStream of a cluster needs a moment after its start to elect leaders.
    let mut trouble = None;
    for _ in 0..20 {
        let answers = ask_all(system, "$SYS.REQ.SERVER.PING.HEALTHZ").await;
        trouble = answers.iter().find_map(|answer| gate::trouble(answer));
        if trouble.is_none() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
    trouble
}

/// What each server says of itself; without a system credential only our own server's version is known.
async fn server_facts(client: &Client, system: Option<&Client>) -> Vec<ServerFacts> {
    let mut found = Vec::new();
    if let Some(system) = system {
        let answers = ask_all(system, "$SYS.REQ.SERVER.PING.VARZ").await;
        found = answers.iter().filter_map(|answer| gate::server_facts(answer)).collect();
    }
    if found.is_empty() {
        let own = client.server_info();
        found.push(ServerFacts { name: own.server_name, version: own.version, sync_always: None, clustered: own.cluster.is_some() });
    }
    found
}

/// Raises the signal whenever something is published to the partition.
async fn listen(client: &Client, partition: u16) -> Result<watch::Receiver<u64>, OpenError> {
    let subject = subject::stream_subjects(partition);
    let mut published = client.subscribe(subject.clone()).await.map_err(|error| OpenError::Missing { what: subject, reason: error.to_string() })?;
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
