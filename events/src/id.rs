//! Server-made identifiers, one type a noun, so that one kind is never passed for another.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use uuid::Uuid;

/// A text that is not what its type spells.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a valid {what}")]
pub struct ParseError {
    what: &'static str,
}

impl ParseError {
    pub(crate) fn new(what: &'static str) -> Self {
        Self { what }
    }
}

/// Only the canonical spelling (36 lower-case characters) is an id, so that one thing has one URL.
fn canonical(text: &str) -> Option<Uuid> {
    let id = Uuid::try_parse(text).ok()?;
    let mut buffer = Uuid::encode_buffer();
    (id.hyphenated().encode_lower(&mut buffer) == text).then_some(id)
}

macro_rules! ids {
    ($($(#[$meta:meta])* $name:ident),+ $(,)?) => { $(
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub Uuid);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { self.0.hyphenated().fmt(f) }
        }
        impl FromStr for $name {
            type Err = ParseError;
            fn from_str(text: &str) -> Result<Self, ParseError> {
                canonical(text).map(Self).ok_or(ParseError::new(stringify!($name)))
            }
        }
    )+ };
}

ids! {
    /// A deployment or a job.
    WorkloadId,
    /// A conversation.
    ConversationId,
    /// A turn of a conversation.
    TurnId,
    /// An API key (not its secret).
    KeyId,
    /// A person or a program that acts.
    PrincipalId,
    /// A piece of work.
    TaskId,
    /// A model platform that tasks are sent to.
    UpstreamId,
    /// One start of a worker.
    IncarnationId,
    /// One event.
    EventId,
    /// One command: its retries carry the same id.
    CommandId,
}

macro_rules! slugs {
    ($($(#[$meta:meta])* $name:ident),+ $(,)?) => { $(
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// The token.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { f.write_str(&self.0) }
        }
        impl FromStr for $name {
            type Err = ParseError;
            fn from_str(text: &str) -> Result<Self, ParseError> {
                if crate::subject::is_token(text) { Ok(Self(text.to_owned())) } else { Err(ParseError::new(stringify!($name))) }
            }
        }
        impl TryFrom<String> for $name {
            type Error = ParseError;
            fn try_from(text: String) -> Result<Self, ParseError> { text.parse() }
        }
        impl From<$name> for String {
            fn from(id: $name) -> Self { id.0 }
        }
    )+ };
}

// Chosen by operators, once and for ever, since NATS permissions and configurations of workers spell them: one token of a
// subject, `^[a-z0-9][a-z0-9-]{0,62}$`.
slugs! {
    /// A group of workers that reach the same networks.
    PoolId,
    /// A worker, over all its starts.
    WorkerId,
}

/// The tenant. The nil UUID is the reserved account `platform`, which holds what belongs to no tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct AccountId(pub Uuid);

impl AccountId {
    /// The reserved account of platform-wide nouns.
    pub const PLATFORM: Self = Self(Uuid::nil());
}

impl fmt::Display for AccountId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::PLATFORM { f.write_str("platform") } else { self.0.hyphenated().fmt(f) }
    }
}

impl FromStr for AccountId {
    type Err = ParseError;
    fn from_str(text: &str) -> Result<Self, ParseError> {
        if text == "platform" {
            return Ok(Self::PLATFORM);
        }
        canonical(text).filter(|id| !id.is_nil()).map(Self).ok_or(ParseError::new("AccountId"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_canonical_spelling_is_an_id() {
        let text = "0190f3a8-7b1c-7def-8abc-0123456789ab";
        assert!(text.parse::<WorkloadId>().is_ok());
        for bad in [text.to_uppercase(), format!("{{{text}}}"), text.replace('-', ""), format!("{text}/"), String::new()] {
            assert!(bad.parse::<WorkloadId>().is_err(), "{bad}");
        }
    }

    #[test]
    fn the_platform_account_has_one_spelling() {
        assert_eq!(AccountId::PLATFORM.to_string(), "platform");
        assert_eq!("platform".parse(), Ok(AccountId::PLATFORM));
        assert!("00000000-0000-0000-0000-000000000000".parse::<AccountId>().is_err());
    }
}
