//! Configuration: a TOML file, then the environment (`SIGNALBOX_NATS__URL`), then flags.

use crate::Error;
use figment::Figment;
use figment::providers::{Env, Format, Serialized, Toml};
use serde::{Deserialize, Serialize};
use signalbox_local::runtime::Runtimes;
use std::path::{Path, PathBuf};

/// Everything that a process needs to know.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Address of the HTTP service.
    pub listen: String,
    /// PostgreSQL.
    pub database_url: String,
    /// NATS.
    pub nats: Nats,
    /// `strict`, or `relaxed` for benches.
    pub durability: String,
    /// Keys, 64 hex digits each.
    pub keys: Keys,
    /// The folder for signed checkpoints of the log: not on the hosts of NATS.
    pub checkpoints: PathBuf,
    /// The folder for logs and working folders of local workloads.
    pub workloads: PathBuf,
    /// What local kinds may start.
    #[serde(default)]
    pub runtimes: Runtimes,
}

/// How to reach NATS, and as whom.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nats {
    /// Addresses, comma-separated.
    pub url: String,
    /// The user that appends; none where the server asks for none.
    pub user: Option<String>,
    /// Its password.
    pub password: Option<String>,
    /// The user that only reads the log.
    pub auditor_user: Option<String>,
    /// Its password.
    pub auditor_password: Option<String>,
    /// The prefix under which its account imports JetStream's API.
    pub auditor_api: Option<String>,
    /// The system user that only asks for server settings.
    pub system_user: Option<String>,
    /// Its password.
    pub system_password: Option<String>,
    /// Count of streams, fixed at installation.
    pub partitions: u16,
    /// Replicas of streams and stores: 3 in production.
    pub replicas: usize,
}

/// Keys of an installation.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Keys {
    /// Wraps the keys of personal text. Lost, the texts are lost.
    pub master: String,
    /// Signs paging cursors.
    pub cursor: String,
    /// Signs checkpoints; only the auditor role needs it.
    pub checkpoint: String,
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Keys(..)")
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: "127.0.0.1:8080".to_owned(),
            database_url: String::new(),
            nats: Nats {
                url: "nats://127.0.0.1:4222".to_owned(),
                user: None,
                password: None,
                auditor_user: None,
                auditor_password: None,
                auditor_api: None,
                system_user: None,
                system_password: None,
                partitions: 1,
                replicas: 1,
            },
            durability: "strict".to_owned(),
            keys: Keys { master: String::new(), cursor: String::new(), checkpoint: String::new() },
            checkpoints: PathBuf::from("checkpoints"),
            workloads: PathBuf::from("workloads"),
            runtimes: Runtimes::new(),
        }
    }
}

impl Config {
    /// Reads `file`, then the environment.
    pub fn read(file: Option<&Path>) -> Result<Self, Error> {
        let mut figment = Figment::from(Serialized::defaults(Self::default()));
        if let Some(file) = file {
            figment = figment.merge(Toml::file_exact(file));
        }
        Ok(figment.merge(Env::prefixed("SIGNALBOX_").split("__").ignore(&["key", "url", "ignore_path"])).extract()?)
    }
}

/// A key's 32 bytes.
pub fn key(name: &str, hex: &str) -> Result<[u8; 32], Error> {
    let mut bytes = [0; 32];
    hex::decode_to_slice(hex, &mut bytes).map_err(|_| format!("keys.{name} must be 64 hex digits; make one with `openssl rand -hex 32`"))?;
    Ok(bytes)
}
