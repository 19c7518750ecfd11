//! The positional envelope of every event, and the hash chain over stored bytes.

use crate::codec::{DecodeError, EncodeError};
use crate::time::Micros;
use serde::de::{IgnoredAny, SeqAccess, Visitor};
use serde::ser::SerializeTuple;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest, Sha256};
use uuid::Uuid;

/// The format that today's code writes.
pub const FORMAT: u8 = 1;

/// Elements of format 1. A later format only appends.
const ELEMENTS: usize = 15;

/// What every event carries, in the order in which it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Envelope {
    /// Version of this layout.
    pub format: u8,
    /// This event.
    pub event_id: Uuid,
    /// The command that stated it; a retry carries the same id.
    pub command_id: Uuid,
    /// Gapless count within the aggregate, from 1.
    pub version: u64,
    /// When the command was decided.
    pub at: Micros,
    /// Who acted: `<kind>:<id>`, for example `key:0190…` or `role:local`.
    pub actor: String,
    /// For whom, where an actor acts for another.
    pub on_behalf_of: Option<String>,
    /// Joins all that one request set in motion.
    pub correlation_id: Uuid,
    /// The event that caused the command, where one did.
    pub causation_id: Option<Uuid>,
    /// W3C trace context of the request.
    pub traceparent: Option<String>,
    /// SHA-256 of the aggregate's previous payload; of the subject itself at version 1.
    pub prev: [u8; 32],
    /// The key that sealed the texts, where there are any.
    pub key_id: Option<Uuid>,
    /// The fact's stored name.
    pub kind: String,
    /// The schema version of `data`.
    pub schema_version: u16,
    /// The fact, MessagePack with field names; undecoded, so that unknown types can be carried.
    pub data: Vec<u8>,
}

impl Envelope {
    /// The bytes to store.
    pub fn encode(&self) -> Result<Vec<u8>, EncodeError> {
        Ok(rmp_serde::to_vec(self)?)
    }

    /// Reads stored bytes. Elements that a later format appended are passed over; trailing bytes are an error.
    pub fn decode(payload: &[u8]) -> Result<Self, DecodeError> {
        crate::codec::read(payload)
    }
}

/// The `prev` of an aggregate's first event: no event can be transplanted to another subject.
pub fn chain_start(subject: &str) -> [u8; 32] {
    Sha256::digest(subject.as_bytes()).into()
}

/// The `prev` of the event that follows `payload`.
pub fn chain_next(payload: &[u8]) -> [u8; 32] {
    Sha256::digest(payload).into()
}

impl Serialize for Envelope {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut tuple = serializer.serialize_tuple(ELEMENTS)?;
        tuple.serialize_element(&self.format)?;
        tuple.serialize_element(&self.event_id)?;
        tuple.serialize_element(&self.command_id)?;
        tuple.serialize_element(&self.version)?;
        tuple.serialize_element(&self.at)?;
        tuple.serialize_element(&self.actor)?;
        tuple.serialize_element(&self.on_behalf_of)?;
        tuple.serialize_element(&self.correlation_id)?;
        tuple.serialize_element(&self.causation_id)?;
        tuple.serialize_element(&self.traceparent)?;
        tuple.serialize_element(serde_bytes::Bytes::new(&self.prev))?;
        tuple.serialize_element(&self.key_id)?;
        tuple.serialize_element(&self.kind)?;
        tuple.serialize_element(&self.schema_version)?;
        tuple.serialize_element(serde_bytes::Bytes::new(&self.data))?;
        tuple.end()
    }
}

impl<'de> Deserialize<'de> for Envelope {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(Elements)
    }
}

struct Elements;

impl<'de> Visitor<'de> for Elements {
    type Value = Envelope;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "an envelope of at least {ELEMENTS} elements")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Envelope, A::Error> {
        let mut index = 0;
        macro_rules! next {
            () => {{
                index += 1;
                seq.next_element()?.ok_or_else(|| serde::de::Error::invalid_length(index - 1, &self))?
            }};
        }
        let envelope = Envelope {
            format: next!(),
            event_id: next!(),
            command_id: next!(),
            version: next!(),
            at: next!(),
            actor: next!(),
            on_behalf_of: next!(),
            correlation_id: next!(),
            causation_id: next!(),
            traceparent: next!(),
            prev: serde_bytes::ByteArray::into_array(next!()),
            key_id: next!(),
            kind: next!(),
            schema_version: next!(),
            data: serde_bytes::ByteBuf::into_vec(next!()),
        };
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(envelope)
    }
}
