//! Joins envelope and fact: what the log's bytes say.

use crate::envelope::Envelope;
use crate::position::Position;
use crate::subject::{Aggregate, Noun};
use crate::{account, conversation, pool, setting, task, upstream, worker, workload};

/// Stored bytes that are not an event.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// Not the MessagePack that was expected.
    #[error("the bytes are not a valid event")]
    Format(#[from] rmp_serde::decode::Error),
    /// More bytes than one value.
    #[error("bytes follow the value")]
    TrailingBytes,
    /// The subject is not one of the log's.
    #[error("the subject is not an event subject")]
    Subject(#[from] crate::id::ParseError),
    /// A fact of another noun than the subject's.
    #[error("an event of type {kind} on a subject of noun {noun}")]
    Misplaced {
        /// The stored type.
        kind: String,
        /// The subject's noun.
        noun: Noun,
    },
}

/// Deepest nesting of stored data. Hostile bytes must not exhaust the stack.
const MOST_DEPTH: usize = 64;

/// Reads MessagePack of bounded depth. Lengths in it are not believed: nothing is allocated before its bytes are there.
pub(crate) fn read<T: serde::de::DeserializeOwned>(bytes: &[u8]) -> Result<T, DecodeError> {
    let mut deserializer = rmp_serde::Deserializer::new(std::io::Cursor::new(bytes));
    deserializer.set_max_depth(MOST_DEPTH);
    let value = T::deserialize(&mut deserializer)?;
    if deserializer.position() == bytes.len() as u64 { Ok(value) } else { Err(DecodeError::TrailingBytes) }
}

/// A fact that cannot be stored.
#[derive(Debug, thiserror::Error)]
#[error("the event cannot be encoded")]
pub struct EncodeError(#[from] rmp_serde::encode::Error);

/// A fact as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Encoded {
    /// Its stored name.
    pub kind: &'static str,
    /// The schema version that today's code writes.
    pub schema_version: u16,
    /// MessagePack with field names.
    pub data: Vec<u8>,
}

/// What an event states.
#[derive(Debug, Clone, PartialEq)]
pub enum Fact {
    /// Of an account.
    Account(account::Event),
    /// Of a conversation.
    Conversation(conversation::Event),
    /// Of a pool.
    Pool(pool::Event),
    /// Of a setting.
    Setting(setting::Event),
    /// Of a task.
    Task(task::Event),
    /// Of an upstream.
    Upstream(upstream::Event),
    /// Of a worker.
    Worker(worker::Event),
    /// Of a workload.
    Workload(workload::Event),
    /// A type or schema version that this build does not know; carried undecoded in the envelope.
    Unknown,
}

impl Fact {
    /// Reads the fact of an envelope that stands on a subject of `noun`.
    pub fn decode(noun: Noun, envelope: &Envelope) -> Result<Self, DecodeError> {
        let (kind, version, data) = (envelope.kind.as_str(), envelope.schema_version, envelope.data.as_slice());
        if kind.split_once('.').is_none_or(|(prefix, _)| prefix != noun.as_str()) {
            return Err(DecodeError::Misplaced { kind: kind.to_owned(), noun });
        }
        let fact = match noun {
            Noun::Account => account::Event::decode(kind, version, data)?.map(Self::Account),
            Noun::Conversation => conversation::Event::decode(kind, version, data)?.map(Self::Conversation),
            Noun::Pool => pool::Event::decode(kind, version, data)?.map(Self::Pool),
            Noun::Task => task::Event::decode(kind, version, data)?.map(Self::Task),
            Noun::Upstream => upstream::Event::decode(kind, version, data)?.map(Self::Upstream),
            Noun::Worker => worker::Event::decode(kind, version, data)?.map(Self::Worker),
            Noun::Setting => setting::Event::decode(kind, version, data)?.map(Self::Setting),
            Noun::Workload => workload::Event::decode(kind, version, data)?.map(Self::Workload),
        };
        Ok(fact.unwrap_or(Self::Unknown))
    }

    /// The fact as it is stored: type name, schema version, bytes. `None` for a fact that this build does not know.
    pub fn encode(&self) -> Result<Option<Encoded>, EncodeError> {
        let (kind, schema_version, data) = match self {
            Self::Account(event) => (event.type_name(), event.schema_version(), event.encode()?),
            Self::Conversation(event) => (event.type_name(), event.schema_version(), event.encode()?),
            Self::Pool(event) => (event.type_name(), event.schema_version(), event.encode()?),
            Self::Task(event) => (event.type_name(), event.schema_version(), event.encode()?),
            Self::Upstream(event) => (event.type_name(), event.schema_version(), event.encode()?),
            Self::Worker(event) => (event.type_name(), event.schema_version(), event.encode()?),
            Self::Setting(event) => (event.type_name(), event.schema_version(), event.encode()?),
            Self::Workload(event) => (event.type_name(), event.schema_version(), event.encode()?),
            Self::Unknown => return Ok(None),
        };
        Ok(Some(Encoded { kind, schema_version, data }))
    }

    /// Calls `visit` for each personal text.
    pub fn visit_texts(&mut self, visit: &mut dyn FnMut(&mut crate::Text)) {
        match self {
            Self::Account(event) => event.visit_texts(visit),
            Self::Conversation(event) => event.visit_texts(visit),
            Self::Pool(event) => event.visit_texts(visit),
            Self::Task(event) => event.visit_texts(visit),
            Self::Upstream(event) => event.visit_texts(visit),
            Self::Worker(event) => event.visit_texts(visit),
            Self::Setting(event) => event.visit_texts(visit),
            Self::Workload(event) => event.visit_texts(visit),
            Self::Unknown => {}
        }
    }

    /// Every stored type name with its schema version, over all nouns.
    pub fn types() -> impl Iterator<Item = (&'static str, u16)> {
        let all = [
            account::Event::TYPES,
            conversation::Event::TYPES,
            pool::Event::TYPES,
            setting::Event::TYPES,
            task::Event::TYPES,
            upstream::Event::TYPES,
            worker::Event::TYPES,
            workload::Event::TYPES,
        ];
        all.into_iter().flatten().copied()
    }
}

macro_rules! from {
    ($($noun:ident = $module:ident),+) => { $(
        impl From<$module::Event> for Fact {
            fn from(event: $module::Event) -> Self { Self::$noun(event) }
        }
    )+ };
}
from!(
    Account = account,
    Conversation = conversation,
    Pool = pool,
    Setting = setting,
    Task = task,
    Upstream = upstream,
    Worker = worker,
    Workload = workload
);

/// An event as read from the log.
#[derive(Debug, Clone, PartialEq)]
pub struct Recorded {
    /// Where it stands.
    pub position: Position,
    /// What it is about.
    pub aggregate: Aggregate,
    /// Who, when, why, and the chain.
    pub envelope: Envelope,
    /// What it states.
    pub fact: Fact,
}

impl Recorded {
    /// Reads a message of the log. The texts are still sealed.
    pub fn decode(sequence: u64, subject: &str, payload: &[u8]) -> Result<Self, DecodeError> {
        let (partition, aggregate) = Aggregate::parse(subject)?;
        let envelope = Envelope::decode(payload)?;
        let fact = Fact::decode(aggregate.noun, &envelope)?;
        Ok(Self { position: Position::new(partition, sequence), aggregate, envelope, fact })
    }
}
