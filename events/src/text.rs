//! Personal text: plain in memory, sealed on the log, gone after an erasure.

use serde::{Deserialize, Deserializer, Serialize, Serializer, ser::Error as _};

/// A text of a person. Only its sealed form can be encoded: the type makes it impossible to log plain text.
#[derive(Clone, PartialEq, Eq)]
pub enum Text {
    /// Readable: as commands bring it and as the journal unseals it.
    Plain(String),
    /// As stored.
    Sealed(Sealed),
    /// Its key was destroyed on demand.
    Erased,
}

/// A sealed text: ciphertext within the event, or in the object store when it is large.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sealed {
    /// 24 bytes of nonce, then ciphertext and tag.
    #[serde(with = "serde_bytes", skip_serializing_if = "Option::is_none", default)]
    pub inline: Option<Vec<u8>>,
    /// Where the sealed bytes are when they are not within the event.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub object: Option<Object>,
    /// Unicode code points of the plain text, known even after an erasure.
    pub characters: u64,
}

/// An object of the object store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Object {
    /// The object's name.
    pub name: String,
    /// Bytes as stored, sealed.
    pub size: u64,
    /// SHA-256 of the bytes as stored, sealed.
    #[serde(with = "serde_bytes")]
    pub sha256: [u8; 32],
}

impl Text {
    /// The text, where it is readable.
    pub fn plain(&self) -> Option<&str> {
        match self {
            Self::Plain(text) => Some(text),
            Self::Sealed(_) | Self::Erased => None,
        }
    }

    /// Unicode code points; 0 when erased in memory.
    pub fn characters(&self) -> u64 {
        match self {
            Self::Plain(text) => text.chars().count() as u64,
            Self::Sealed(sealed) => sealed.characters,
            Self::Erased => 0,
        }
    }
}

impl<T: Into<String>> From<T> for Text {
    fn from(text: T) -> Self {
        Self::Plain(text.into())
    }
}

/// Never shows the text: what is printed for debugging ends up in logs.
impl std::fmt::Debug for Text {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Plain(_) => write!(f, "Text(plain, {} characters)", self.characters()),
            Self::Sealed(_) => write!(f, "Text(sealed, {} characters)", self.characters()),
            Self::Erased => f.write_str("Text(erased)"),
        }
    }
}

impl Serialize for Text {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Sealed(sealed) => sealed.serialize(serializer),
            Self::Plain(_) | Self::Erased => Err(S::Error::custom("a text must be sealed before it is stored")),
        }
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Sealed::deserialize(deserializer).map(Self::Sealed)
    }
}

/// A field of a fact that holds text.
pub trait Field {
    /// Calls `visit` for the text, where there is one.
    fn visit(&mut self, visit: &mut dyn FnMut(&mut Text));
}

impl Field for Text {
    fn visit(&mut self, visit: &mut dyn FnMut(&mut Text)) {
        visit(self);
    }
}

impl Field for Option<Text> {
    fn visit(&mut self, visit: &mut dyn FnMut(&mut Text)) {
        if let Some(text) = self {
            visit(text);
        }
    }
}
