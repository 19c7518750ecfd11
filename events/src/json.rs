//! Stored facts as JSON for people: ids as ids, other bytes as hex, sealed texts by their length alone.

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value, json};
use uuid::Uuid;

/// Bytes longer than this are shown by their count.
const MOST_BYTES: usize = 64;

/// The `data` of an envelope, readable. Works for types that this build does not know, too.
pub fn data(data: &[u8]) -> Result<Value, crate::DecodeError> {
    let Shown(value) = crate::codec::read(data)?;
    Ok(value)
}

struct Shown(Value);

impl<'de> Deserialize<'de> for Shown {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Show).map(Self)
    }
}

struct Show;

impl<'de> Visitor<'de> for Show {
    type Value = Value;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("any MessagePack value")
    }
    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }
    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }
    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }
    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }
    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }
    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
    fn visit_bytes<E>(self, value: &[u8]) -> Result<Value, E> {
        Ok(match Uuid::from_slice(value) {
            Ok(id) => id.to_string().into(),
            Err(_) if value.len() <= MOST_BYTES => hex::encode(value).into(),
            Err(_) => format!("({} bytes)", value.len()).into(),
        })
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(Shown(item)) = seq.next_element()? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut fields = Map::new();
        while let Some((key, Shown(value))) = map.next_entry::<String, Shown>()? {
            fields.insert(key, value);
        }
        // A sealed text is recognised by its shape; what it holds is nobody's business here.
        let sealed = fields.contains_key("characters") && (fields.contains_key("inline") || fields.contains_key("object"));
        Ok(if sealed { json!({"sealed_characters": fields["characters"]}) } else { Value::Object(fields) })
    }
}
