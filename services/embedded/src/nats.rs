//! A real nats-server on loopback: JetStream on disk, every write synced, encrypted, users with what they need and no more.

use crate::folder::{Secrets, write_private};
use crate::process::{Spec, free_port, lives};
use crate::supervise::Supervised;
use crate::{Error, provision};
use nix::sys::signal::Signal;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The oldest server that keeps the log's promises.
const FLOOR: [u32; 3] = [2, 14, 3];
/// The user that appends.
pub const USER: &str = "signalbox";
/// The user that only reads the log.
pub const AUDITOR: &str = "auditor";
/// The prefix under which the reading user reaches JetStream's API.
pub const AUDIT_API: &str = "audit";
/// The system user that only asks for server settings.
pub const GATE: &str = "gate";

/// How a server is set up.
#[derive(Debug, Clone)]
pub struct Options {
    /// The program.
    pub program: PathBuf,
    /// Its folder.
    pub folder: PathBuf,
    /// The file for its output.
    pub log: PathBuf,
    /// Its port on loopback; `None`: a free one.
    pub port: Option<u16>,
    /// `always`, or a duration for benches and for tests of the gate.
    pub sync_interval: String,
    /// Its cluster: a name and the routes to all members, its own included. `None`: it stands alone.
    pub cluster: Option<Cluster>,
    /// Largest size of all streams on disk, in bytes.
    pub max_file: Option<u64>,
    /// Workers that may connect.
    pub workers: Vec<WorkerUser>,
}

/// A worker that may connect: its permissions name its own pool and id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerUser {
    /// Its pool, one token.
    pub pool: String,
    /// Its id, one token.
    pub worker: String,
}

/// Membership of a cluster.
#[derive(Debug, Clone)]
pub struct Cluster {
    /// This server's name.
    pub server: String,
    /// This server's port for routes.
    pub port: u16,
    /// Ports for routes of all members.
    pub members: Vec<u16>,
}

impl Options {
    /// The embedded default.
    pub fn new(program: PathBuf, folder: PathBuf, log: PathBuf) -> Self {
        Self { program, folder, log, port: None, sync_interval: "always".to_owned(), cluster: None, max_file: None, workers: vec![] }
    }
}

/// A running server.
pub struct Server {
    supervised: Supervised,
    port: u16,
    folder: PathBuf,
}

/// Finds a server that is new enough, on PATH or through the cache.
pub async fn program(cache: &Path, say: &(dyn Fn(&str) + Send + Sync)) -> Result<PathBuf, Error> {
    if let Some(found) = provision::find_server("nats-server") {
        let line = provision::version_line(&found).await.unwrap_or_default();
        if provision::version_of(&line).is_some_and(|version| version.as_slice() >= FLOOR.as_slice()) {
            return Ok(found);
        }
        say(&format!("  {} is older than 2.14.3 and is not used", found.display()));
    }
    let home = provision::package(cache, &provision::NATS, say).await?;
    Ok(home.join(provision::NATS.proof))
}

impl Server {
    /// Starts a server and waits until it answers.
    pub async fn start(options: Options, secrets: &Secrets) -> Result<Self, Error> {
        let folder = options.folder.clone();
        fs::create_dir_all(folder.join("jetstream")).map_err(Error::io(format!("cannot make {}", folder.display())))?;
        wait_for_predecessor(&folder).await?;
        let port = match options.port {
            Some(port) => port,
            None => free_port()?,
        };
        let file = folder.join("nats.conf");
        write_private(&file, configuration(&options, secrets, port)?.as_bytes())?;
        let spec = Spec {
            program: options.program,
            arguments: vec!["--config".into(), file.into()],
            environment: BTreeMap::from([("JETSTREAM_KEY".to_owned(), jetstream_key(secrets))]),
            folder: folder.clone(),
            log: options.log.clone(),
            user: None,
            // Every write is synced, so there is nothing to gain from a slower end.
            death: Signal::SIGKILL,
            memory: None,
        };
        // SIGTERM: it closes its files and ends.
        let supervised = Supervised::start("nats-server", spec, Signal::SIGTERM, Duration::from_secs(10)).await?;
        fs::write(folder.join("supervised.pid"), supervised.id().to_string()).map_err(Error::io("cannot write the pid file"))?;
        let server = Self { supervised, port, folder };
        server.ready(&options.log).await?;
        Ok(server)
    }

    async fn ready(&self, log: &Path) -> Result<(), Error> {
        let until = Instant::now() + Duration::from_secs(30);
        while Instant::now() < until {
            // The greeting comes once the server takes clients, which is after JetStream has recovered.
            if tokio::net::TcpStream::connect(("127.0.0.1", self.port)).await.is_ok() {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let lines = crate::process::tail(log, 5).join("\n  ");
        Err(Error::Advice(format!("nats-server did not start; the end of {}:\n  {lines}", log.display())))
    }

    /// Its address.
    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    /// Its port on loopback.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.supervised.id()
    }

    /// Its folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Ends it and waits for the end.
    pub async fn stop(self) {
        self.supervised.stop().await;
    }
}

/// After a kill of ours the old server may need a moment to go; two servers on one store would destroy it.
async fn wait_for_predecessor(folder: &Path) -> Result<(), Error> {
    let Ok(Ok(id)) = fs::read_to_string(folder.join("supervised.pid")).map(|text| text.trim().parse::<i32>()) else { return Ok(()) };
    let mark = folder.join("nats.conf").display().to_string();
    for _ in 0..200 {
        if !lives(id, &mark) {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Err(Error::Advice(format!("a nats-server (process {id}) still runs on {}; end it first", folder.display())))
}

/// The key of JetStream's encryption. Environment values are parsed as configuration, so it begins with a letter; an
/// empty one would silently mean no encryption.
fn jetstream_key(secrets: &Secrets) -> String {
    format!("k{}", secrets.jetstream)
}

/// The key pair that a worker connects with: the same at every start, from the installation's own secret.
pub fn worker_key(secrets: &Secrets, worker: &str) -> Result<nkeys::KeyPair, Error> {
    let seed = Sha256::new_with_prefix("signalbox worker").chain_update(&secrets.nats).chain_update(worker).finalize();
    nkeys::KeyPair::new_from_raw(nkeys::KeyPairType::User, seed.into()).map_err(|error| Error::Advice(format!("cannot make a worker's key: {error}")))
}

/// Writes a worker's seed into the data folder, for its owner's eyes alone, and says where.
pub fn write_worker_seed(secrets: &Secrets, data: &Path, worker: &str) -> Result<PathBuf, Error> {
    let folder = data.join("workers");
    fs::create_dir_all(&folder).map_err(Error::io(format!("cannot make {}", folder.display())))?;
    let seed = worker_key(secrets, worker)?.seed().map_err(|error| Error::Advice(format!("cannot make a worker's key: {error}")))?;
    let file = folder.join(format!("{worker}.nk"));
    write_private(&file, seed.as_bytes())?;
    Ok(file)
}

/// A fresh key pair from 256 random bits, as its public key and its seed.
pub fn fresh_worker_key(random: [u8; 32]) -> Result<(String, String), Error> {
    let bad = |error: nkeys::error::Error| Error::Advice(format!("cannot make a worker's key: {error}"));
    let pair = nkeys::KeyPair::new_from_raw(nkeys::KeyPairType::User, random).map_err(bad)?;
    Ok((pair.public_key(), pair.seed().map_err(bad)?))
}

/// A worker's entry in the server's configuration. No `$JS` subject: whoever holds one can make the server write anywhere.
pub fn worker_entry(user: &WorkerUser, public_key: &str) -> String {
    let WorkerUser { pool, worker } = user;
    format!(
        r#"      {{ nkey: {public_key}, permissions: {{
          publish: {{ allow: ["work.{pool}.{worker}.*", "stream.{pool}.{worker}.>"] }}
          subscribe: {{ allow: ["_INBOX_{worker}.>", "ctl.{pool}.{worker}.>", "queue.{pool}"] }}
      }} }}
"#
    )
}

fn configuration(options: &Options, secrets: &Secrets, port: u16) -> Result<String, Error> {
    let Options { folder, sync_interval, .. } = options;
    let store = folder.join("jetstream");
    let store = store.display();
    let (name, cluster) = match &options.cluster {
        None => ("signalbox".to_owned(), String::new()),
        Some(cluster) => {
            let routes: Vec<_> = cluster.members.iter().map(|member| format!("\"nats-route://127.0.0.1:{member}\"")).collect();
            let block = format!("cluster {{ name: signalbox, listen: \"127.0.0.1:{}\", routes: [{}] }}\n", cluster.port, routes.join(", "));
            (cluster.server.clone(), block)
        }
    };
    let mut workers = String::new();
    for user in &options.workers {
        workers.push_str(&worker_entry(user, &worker_key(secrets, &user.worker)?.public_key()));
    }
    let most = options.max_file.map(|bytes| format!("  max_file_store: {bytes}\n")).unwrap_or_default();
    Ok(format!(
        r#"# Written at each start; changes are lost.
server_name: "{name}"
listen: "127.0.0.1:{port}"
max_payload: 1MB
{cluster}jetstream {{
  store_dir: "{store}"
  sync_interval: {sync_interval}
  cipher: chacha
  key: $JETSTREAM_KEY
{most}}}
accounts {{
  SIGNALBOX {{
    jetstream: enabled
    users: [ {{ user: {USER}, password: "{signalbox}" }} ]
    exports: [
      {{ service: "$JS.API.STREAM.INFO.*", accounts: [AUDIT] }}
      {{ service: "$JS.API.DIRECT.GET.*", accounts: [AUDIT], response_type: stream }}
      {{ service: "work.>", accounts: [WORKERS] }}
      {{ stream: "queue.*", accounts: [WORKERS] }}
      {{ stream: "ctl.>", accounts: [WORKERS] }}
    ]
    imports: [ {{ stream: {{ account: WORKERS, subject: "stream.>" }} }} ]
  }}
  # Workers see requests of their own, hints, orders and their own deltas; JetStream is not theirs at all.
  WORKERS {{
    exports: [ {{ stream: "stream.>", accounts: [SIGNALBOX] }} ]
    imports: [
      {{ service: {{ account: SIGNALBOX, subject: "work.>" }} }}
      {{ stream: {{ account: SIGNALBOX, subject: "queue.*" }} }}
      {{ stream: {{ account: SIGNALBOX, subject: "ctl.>" }} }}
    ]
    users: [
{workers}    ]
  }}
  # An account of its own: within one account the reply subject of a mere read can make the server write anywhere.
  AUDIT {{
    imports: [
      {{ service: {{ account: SIGNALBOX, subject: "$JS.API.STREAM.INFO.*" }}, to: "{AUDIT_API}.STREAM.INFO.*" }}
      {{ service: {{ account: SIGNALBOX, subject: "$JS.API.DIRECT.GET.*" }}, to: "{AUDIT_API}.DIRECT.GET.*" }}
    ]
    users: [
      {{ user: {AUDITOR}, password: "{auditor}", permissions: {{
          publish: {{ allow: ["{AUDIT_API}.STREAM.INFO.*", "{AUDIT_API}.DIRECT.GET.*"] }}
          subscribe: {{ allow: ["_INBOX_{AUDITOR}.>"] }}
      }} }}
    ]
  }}
  SYS {{
    users: [
      {{ user: {GATE}, password: "{gate}", permissions: {{
          publish: {{ allow: ["$SYS.REQ.SERVER.PING.VARZ", "$SYS.REQ.SERVER.PING.HEALTHZ"] }}
          subscribe: {{ allow: ["_INBOX_{GATE}.>"] }}
      }} }}
    ]
  }}
}}
system_account: SYS
"#,
        signalbox = secrets.nats,
        auditor = secrets.nats_auditor,
        gate = secrets.nats_gate,
    ))
}
