//! The start-up gate: refuses a log that could lose what it acknowledged, naming the setting and its cure.

use crate::journal::Tail;
use async_nats::jetstream::stream::{Config, DiscardPolicy, PersistenceMode, RetentionPolicy, StorageType};
use serde::Deserialize;
use std::fmt;

/// The oldest server that the log may live on.
const FLOOR: (u64, u64, u64) = (2, 14, 3);
/// The same for clusters: one fsync a Raft entry instead of one a message.
const CLUSTER_FLOOR: (u64, u64, u64) = (2, 15, 0);

/// What the gate demands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// Everything acknowledged survives a power cut.
    #[default]
    Strict,
    /// For benches: the sync setting is not asked for. Every health answer says so.
    Relaxed,
}

/// A stream as the server describes it.
#[derive(Debug, Clone)]
pub struct StreamFacts {
    /// Its configuration.
    pub config: Config,
    /// Its extent.
    pub tail: Tail,
}

/// A server as it describes itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerFacts {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Whether each write is synced before it is acknowledged; `None`: the server was not asked or did not say.
    pub sync_always: Option<bool>,
    /// Whether it is one of several.
    pub clustered: bool,
}

/// One broken promise: the setting, what it is, what it must be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// `durability_unproven`, or `unsafe_setting`.
    pub code: &'static str,
    /// The server or stream.
    pub of: String,
    /// The setting's name in the server's own words.
    pub setting: &'static str,
    /// What is wrong and how to mend it.
    pub cure: String,
}

/// Everything that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal(pub Vec<Violation>);

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for violation in &self.0 {
            writeln!(f, "  {} [{}] {}: {}", violation.of, violation.code, violation.setting, violation.cure)?;
        }
        Ok(())
    }
}

/// Checks every stream and server.
pub fn check(streams: &[StreamFacts], servers: &[ServerFacts], durability: Durability) -> Result<(), Refusal> {
    let mut found = Vec::new();
    for stream in streams {
        check_stream(&stream.config, &mut found);
    }
    for server in servers {
        check_server(server, durability, &mut found);
    }
    if found.is_empty() { Ok(()) } else { Err(Refusal(found)) }
}

fn check_stream(config: &Config, found: &mut Vec<Violation>) {
    let mut demand = |holds: bool, setting: &'static str, cure: &str| {
        if !holds {
            let cure = format!("{cure}; mend it with `nats stream edit {}` or recreate the stream from a backup", config.name);
            found.push(Violation { code: "unsafe_setting", of: config.name.clone(), setting, cure });
        }
    };
    demand(config.storage == StorageType::File, "storage", "must be `file`: memory is lost at every restart");
    demand(config.retention == RetentionPolicy::Limits, "retention", "must be `limits`: other policies delete what was consumed");
    demand(config.discard == DiscardPolicy::New, "discard", "must be `new`: `old` deletes the first events when a limit is reached");
    demand(config.max_age.is_zero(), "max_age", "must be 0: events never age out");
    demand(config.max_bytes <= 0, "max_bytes", "must be -1: the log has no size limit of its own");
    demand(config.max_messages <= 0, "max_msgs", "must be -1: the log has no count limit");
    demand(config.max_messages_per_subject <= 0, "max_msgs_per_subject", "must be -1: an aggregate keeps all its events");
    demand(config.deny_delete, "deny_delete", "must be true: no event may be removed");
    demand(config.deny_purge, "deny_purge", "must be true: no event may be purged");
    demand(config.allow_direct, "allow_direct", "must be true: events are read by direct gets");
    demand(!config.allow_rollup, "allow_rollup_hdrs", "must be false: a rollup deletes earlier events");
    demand(!config.allow_message_ttl, "allow_msg_ttl", "must be false: a time to live deletes events");
    demand(!config.no_ack, "no_ack", "must be false: an append that is not acknowledged is not stated");
    demand(!config.sealed, "sealed", "must be false: a sealed stream takes no events");
    demand(!matches!(config.persist_mode, Some(PersistenceMode::Async)), "persist_mode", "must be `default`: `async` acknowledges before it writes");
    demand(config.mirror.is_none() && config.sources.is_none(), "mirror/sources", "must be absent: events come from this service alone");
    demand(config.subject_transform.is_none(), "subject_transform", "must be absent: an event's subject is part of its hash chain");
}

fn check_server(server: &ServerFacts, durability: Durability, found: &mut Vec<Violation>) {
    let floor = if server.clustered { CLUSTER_FLOOR } else { FLOOR };
    if version(&server.version).is_none_or(|version| version < floor) {
        let cure = format!("is {}; install {}.{}.{} or newer", server.version, floor.0, floor.1, floor.2);
        found.push(Violation { code: "unsafe_setting", of: server.name.clone(), setting: "version", cure });
    }
    if durability == Durability::Relaxed {
        return;
    }
    let (code, cure) = match server.sync_always {
        Some(true) => return,
        Some(false) => ("unsafe_setting", "set `jetstream { sync_interval: always }` and restart the server: it acknowledges before it syncs"),
        None => (
            "durability_unproven",
            "give a read-only credential of the system account (`nats.system_user`, `nats.system_password`) so that the setting can be read, \
             or run with `--durability relaxed` where losing acknowledged events is acceptable",
        ),
    };
    found.push(Violation { code, of: server.name.clone(), setting: "sync_interval", cure: cure.to_owned() });
}

fn version(text: &str) -> Option<(u64, u64, u64)> {
    // A pre-release counts as its release: `2.15.0-RC.1` is new enough for `2.15.0`'s behaviour.
    let mut parts = text.split(['.', '-', '+']).map(str::parse::<u64>);
    Some((parts.next()?.ok()?, parts.next()?.ok()?, parts.next()?.ok()?))
}

/// Reads a server's answer to `$SYS.REQ.SERVER.PING.VARZ`.
pub fn server_facts(answer: &[u8]) -> Option<ServerFacts> {
    #[derive(Deserialize)]
    struct Answer {
        data: Varz,
    }
    #[derive(Deserialize)]
    struct Varz {
        server_name: String,
        version: String,
        #[serde(default)]
        cluster: Cluster,
        #[serde(default)]
        jetstream: JetStream,
    }
    #[derive(Deserialize, Default)]
    struct Cluster {
        #[serde(default)]
        name: String,
    }
    #[derive(Deserialize, Default)]
    struct JetStream {
        config: Option<JetStreamConfig>,
    }
    #[derive(Deserialize)]
    struct JetStreamConfig {
        // `sync_interval` keeps its default of two minutes in the answer even where syncing is `always`.
        #[serde(default)]
        sync_always: bool,
    }
    let data = serde_json::from_slice::<Answer>(answer).ok()?.data;
    Some(ServerFacts {
        name: data.server_name,
        version: data.version,
        sync_always: data.jetstream.config.map(|config| config.sync_always),
        clustered: !data.cluster.name.is_empty(),
    })
}

/// Reads a server's answer to `$SYS.REQ.SERVER.PING.HEALTHZ`: what ails it, if anything does.
pub fn trouble(answer: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Answer {
        data: Health,
    }
    #[derive(Deserialize)]
    struct Health {
        status: String,
        #[serde(default)]
        error: String,
    }
    match serde_json::from_slice::<Answer>(answer) {
        Ok(Answer { data }) if data.status == "ok" => None,
        Ok(Answer { data }) => Some(format!("{} {}", data.status, data.error).trim().to_owned()),
        Err(_) => Some("no readable health answer".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nats::stream_config_for_tests as stream_config;
    use async_nats::jetstream::stream::SubjectTransform;
    use chrono::DateTime;
    use std::time::Duration;

    fn server() -> ServerFacts {
        ServerFacts { name: "n1".to_owned(), version: "2.15.1".to_owned(), sync_always: Some(true), clustered: false }
    }

    fn settings(config: Config, server: ServerFacts, durability: Durability) -> Vec<(&'static str, &'static str)> {
        let tail = Tail { created: DateTime::UNIX_EPOCH, first: 0, last: 0 };
        match check(&[StreamFacts { config, tail }], &[server], durability) {
            Ok(()) => vec![],
            Err(refusal) => refusal.0.iter().map(|violation| (violation.code, violation.setting)).collect(),
        }
    }

    #[test]
    fn our_own_configuration_passes() {
        assert_eq!(settings(stream_config(0, 1), server(), Durability::Strict), []);
    }

    #[test]
    fn each_unsafe_stream_setting_is_named() {
        type Break = Box<dyn Fn(&mut Config)>;
        let table: Vec<(&str, Break)> = vec![
            ("storage", Box::new(|config| config.storage = StorageType::Memory)),
            ("retention", Box::new(|config| config.retention = RetentionPolicy::WorkQueue)),
            ("retention", Box::new(|config| config.retention = RetentionPolicy::Interest)),
            ("discard", Box::new(|config| config.discard = DiscardPolicy::Old)),
            ("max_age", Box::new(|config| config.max_age = Duration::from_secs(1))),
            ("max_bytes", Box::new(|config| config.max_bytes = 1)),
            ("max_msgs", Box::new(|config| config.max_messages = 1)),
            ("max_msgs_per_subject", Box::new(|config| config.max_messages_per_subject = 1)),
            ("deny_delete", Box::new(|config| config.deny_delete = false)),
            ("deny_purge", Box::new(|config| config.deny_purge = false)),
            ("allow_direct", Box::new(|config| config.allow_direct = false)),
            ("allow_rollup_hdrs", Box::new(|config| config.allow_rollup = true)),
            ("allow_msg_ttl", Box::new(|config| config.allow_message_ttl = true)),
            ("no_ack", Box::new(|config| config.no_ack = true)),
            ("sealed", Box::new(|config| config.sealed = true)),
            ("persist_mode", Box::new(|config| config.persist_mode = Some(PersistenceMode::Async))),
            ("mirror/sources", Box::new(|config| config.sources = Some(vec![]))),
            (
                "subject_transform",
                Box::new(|config| config.subject_transform = Some(SubjectTransform { source: "a".into(), destination: "b".into() })),
            ),
        ];
        for (setting, break_it) in table {
            let mut config = stream_config(0, 1);
            break_it(&mut config);
            assert_eq!(settings(config, server(), Durability::Strict), [("unsafe_setting", setting)]);
        }
    }

    #[test]
    fn syncing_is_proven_or_refused() {
        let strict = |sync_always| settings(stream_config(0, 1), ServerFacts { sync_always, ..server() }, Durability::Strict);
        assert_eq!(strict(Some(false)), [("unsafe_setting", "sync_interval")]);
        assert_eq!(strict(None), [("durability_unproven", "sync_interval")]);
        let relaxed = settings(stream_config(0, 1), ServerFacts { sync_always: Some(false), ..server() }, Durability::Relaxed);
        assert_eq!(relaxed, []);
    }

    #[test]
    fn old_servers_are_refused() {
        let with = |version: &str, clustered| {
            settings(stream_config(0, 1), ServerFacts { version: version.to_owned(), clustered, ..server() }, Durability::Strict)
        };
        for (version, clustered, good) in [
            ("2.14.3", false, true),
            ("2.14.2", false, false),
            ("2.9.25", false, false),
            ("2.14.9", true, false),
            ("2.15.0", true, true),
            ("3.0.0", true, true),
            ("x", false, false),
        ] {
            assert_eq!(with(version, clustered).is_empty(), good, "{version}");
        }
    }

    #[test]
    fn a_servers_answer_is_read() {
        let answer = br#"{"server":{},"data":{"server_name":"n","version":"2.15.1","jetstream":{"config":{"sync_interval":120000000000,"sync_always":true}}}}"#;
        assert_eq!(server_facts(answer), Some(ServerFacts { name: "n".to_owned(), ..server() }));
        let answer =
            br#"{"data":{"server_name":"n","version":"2.15.1","cluster":{"name":"c"},"jetstream":{"config":{"sync_interval":120000000000}}}}"#;
        assert_eq!(server_facts(answer).map(|facts| (facts.sync_always, facts.clustered)), Some((Some(false), true)));
        assert_eq!(server_facts(b"{}"), None);
    }

    #[test]
    fn a_server_in_trouble_is_believed() {
        assert_eq!(trouble(br#"{"data":{"status":"ok"}}"#), None);
        let answer = br#"{"data":{"status":"unavailable","error":"JetStream stream 'EVENTS_0' could not be recovered"}}"#;
        assert!(trouble(answer).unwrap().contains("could not be recovered"));
        assert!(trouble(b"{}").is_some());
    }
}
