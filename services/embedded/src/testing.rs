//! Servers for tests: real ones, on free ports, in folders of their own, ended with the test or the process.

use crate::folder::Secrets;
use crate::{Error, nats, postgres, provision};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// A folder that goes with its test.
pub struct Scratch(PathBuf);

impl Scratch {
    /// A fresh folder.
    pub fn new(name: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("signalbox-{name}-{}-{count}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        // A test that cannot make its folder fails at its first use.
        let _ = std::fs::create_dir_all(&path);
        Self(path)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Secrets that nobody needs to guess.
pub fn secrets() -> Secrets {
    let of = |byte: u8| hex::encode([byte; 32]);
    Secrets {
        nats: of(1),
        nats_auditor: of(2),
        nats_gate: of(3),
        jetstream: of(4),
        postgres: of(5),
        master_key: of(6),
        cursor_key: of(7),
        checkpoint_key: of(8),
    }
}

fn quiet(_: &str) {}

/// A nats-server of one test.
pub struct TestNats {
    /// The server.
    pub server: nats::Server,
    /// Its folder.
    pub folder: Scratch,
}

/// Starts a nats-server; `change` sets what differs from the embedded default.
pub async fn nats(change: impl FnOnce(&mut nats::Options)) -> Result<TestNats, Error> {
    let folder = Scratch::new("nats");
    let server = nats_in(folder.path(), change).await?;
    Ok(TestNats { server, folder })
}

/// Starts a nats-server on a folder that is there, or not yet.
pub async fn nats_in(folder: &Path, change: impl FnOnce(&mut nats::Options)) -> Result<nats::Server, Error> {
    let program = nats::program(&provision::default_cache(), &quiet).await?;
    let mut options = nats::Options::new(program, folder.join("nats"), folder.join("nats.log"));
    change(&mut options);
    nats::Server::start(options, &secrets()).await
}

/// The address of a PostgreSQL that all tests of this process share; each makes a database of its own.
pub fn postgres_url() -> String {
    static URL: OnceLock<String> = OnceLock::new();
    URL.get_or_init(|| {
        let (told, hear) = std::sync::mpsc::channel();
        // A runtime of its own, so that the server outlives the test that asked first. The thread, and with it the
        // server, ends with the process.
        std::thread::spawn(move || {
            let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else { return };
            runtime.block_on(async {
                let started = start_postgres().await;
                let server = match started {
                    Ok((server, _folder)) => {
                        let _ = told.send(Ok(server.url()));
                        Some((server, _folder))
                    }
                    Err(error) => {
                        let _ = told.send(Err(error.to_string()));
                        None
                    }
                };
                std::future::pending::<()>().await;
                drop(server);
            });
        });
        match hear.recv() {
            Ok(Ok(url)) => url,
            Ok(Err(error)) => panic!("no PostgreSQL for the tests: {error}"),
            Err(_) => panic!("no PostgreSQL for the tests: its thread has ended"),
        }
    })
    .clone()
}

async fn start_postgres() -> Result<(postgres::Server, PathBuf), Error> {
    let programs = postgres::programs(&provision::default_cache(), &quiet).await?;
    // Not a `Scratch`: statics are never dropped. Folders of processes that have ended are cleared here instead.
    let parent = std::env::temp_dir();
    clear_abandoned(&parent);
    let folder = parent.join(format!("signalbox-postgres-{}", std::process::id()));
    std::fs::create_dir_all(&folder).map_err(Error::io("cannot make the test database's folder"))?;
    let settings = [("fsync", "off"), ("max_connections", "400")];
    let server = postgres::Server::start_with(&programs, &folder.join("data"), &folder.join("log"), &secrets(), &settings).await?;
    Ok((server, folder))
}

fn clear_abandoned(parent: &Path) {
    for entry in std::fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let id = name.strip_prefix("signalbox-postgres-").and_then(|id| id.parse::<u32>().ok());
        if id.is_some_and(|id| !Path::new(&format!("/proc/{id}")).exists()) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}
