//! The macro that turns a noun's plain structs into its closed set of events.

/// Declares `Event`, one variant a fact, with its stored type name, its schema version and the fields that hold
/// personal text (in brackets; each a `Text` or an `Option<Text>`).
macro_rules! facts {
    ($($variant:ident = $name:literal v $version:literal $([$($field:ident),*])?),+ $(,)?) => {
        /// Every fact of this noun.
        #[derive(Debug, Clone, PartialEq)]
        #[expect(missing_docs, reason = "each variant is documented at its struct")]
        #[allow(clippy::large_enum_variant, clippy::allow_attributes, reason = "an event is looked at where it is decoded, never kept in bulk")]
        pub enum Event { $($variant($variant)),+ }

        impl Event {
            /// The stored type names with the schema version that today's code writes.
            pub const TYPES: &'static [(&'static str, u16)] = &[$(($name, $version)),+];

            /// The stored type name, `<noun>.<fact>`.
            pub fn type_name(&self) -> &'static str {
                match self { $(Self::$variant(_) => $name),+ }
            }

            /// The schema version that today's code writes for this fact.
            pub fn schema_version(&self) -> u16 {
                match self { $(Self::$variant(_) => $version),+ }
            }

            /// The fact as stored: MessagePack with field names.
            ///
            /// Fails where a text is not sealed: plain text never reaches the log.
            pub fn encode(&self) -> Result<Vec<u8>, $crate::EncodeError> {
                match self { $(Self::$variant(fact) => Ok(rmp_serde::to_vec_named(fact)?)),+ }
            }

            /// Reads a stored fact. `None`: a type or schema version that this build does not know.
            pub fn decode(name: &str, version: u16, data: &[u8]) -> Result<Option<Self>, $crate::DecodeError> {
                match (name, version) {
                    $(($name, $version) => Ok(Some(Self::$variant($crate::codec::read(data)?))),)+
                    _ => Ok(None),
                }
            }

            /// Calls `visit` for each personal text, in a fixed order.
            #[allow(unused_variables, clippy::allow_attributes, reason = "a fact without text visits nothing")]
            pub fn visit_texts(&mut self, visit: &mut dyn FnMut(&mut $crate::Text)) {
                match self { $(Self::$variant(fact) => { $($($crate::text::Field::visit(&mut fact.$field, visit);)*)? })+ }
            }
        }

        $(impl From<$variant> for Event {
            fn from(fact: $variant) -> Self { Self::$variant(fact) }
        })+
    };
}
pub(crate) use facts;

/// Declares a closed set of words that is stored, shown and parsed by one snake_case spelling.
macro_rules! words {
    ($(#[$meta:meta])* $name:ident { $($(#[$vmeta:meta])* $variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
        pub enum $name { $($(#[$vmeta])* #[serde(rename = $word)] $variant),+ }

        impl $name {
            /// Every word, in the order of declaration.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The one spelling.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result { f.write_str(self.as_str()) }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::id::ParseError;
            fn from_str(text: &str) -> Result<Self, Self::Err> {
                match text { $($word => Ok(Self::$variant),)+ _ => Err($crate::id::ParseError::new(stringify!($name))) }
            }
        }
    };
}
pub(crate) use words;
