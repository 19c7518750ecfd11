//! Paging cursors: opaque, signed, bound to what they were given for.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chrono::DateTime;
use hmac::{Hmac, Mac};
use sha2::Sha256;
use signalbox_domain::{Code, Rejection};
use signalbox_projections::workload_list::Cursor;
use uuid::Uuid;

/// Bytes of the signature that are kept: enough against guessing.
const SIGNATURE: usize = 16;

/// The text of a cursor. `scope` holds everything that it is bound to: account, filters, sort.
pub(crate) fn encode(key: &[u8; 32], scope: &str, cursor: Cursor) -> String {
    let mut bytes = cursor.created_at.timestamp_micros().to_be_bytes().to_vec();
    bytes.extend_from_slice(cursor.id.as_bytes());
    let signature = sign(key, scope, &bytes);
    bytes.extend_from_slice(&signature[..SIGNATURE]);
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Reads a cursor that was given for the same scope.
pub(crate) fn decode(key: &[u8; 32], scope: &str, text: &str) -> Result<Cursor, Rejection> {
    let bad =
        || Rejection { code: Code::InvalidCursor, detail: "the cursor was not given for this list".to_owned(), field: Some("cursor".to_owned()) };
    let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| bad())?;
    let (place, signature) = bytes.split_at_checked(24).ok_or_else(bad)?;
    let expected = sign(key, scope, place);
    if !bool::from(subtle::ConstantTimeEq::ct_eq(&expected[..SIGNATURE], signature)) {
        return Err(bad());
    }
    let (at, id) = place.split_at(8);
    let at = i64::from_be_bytes(at.try_into().map_err(|_| bad())?);
    let created_at = DateTime::from_timestamp_micros(at).ok_or_else(bad)?;
    Ok(Cursor { created_at, id: Uuid::from_slice(id).map_err(|_| bad())? })
}

fn sign(key: &[u8; 32], scope: &str, bytes: &[u8]) -> [u8; 32] {
    // HMAC takes a key of any length; the other arm cannot be reached and would match nothing that was signed.
    Hmac::<Sha256>::new_from_slice(key).map_or([0; 32], |mut mac| {
        mac.update(&(scope.len() as u64).to_be_bytes());
        mac.update(scope.as_bytes());
        mac.update(bytes);
        mac.finalize().into_bytes().into()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_keeps_microseconds_and_its_scope() {
        let cursor = Cursor { created_at: DateTime::from_timestamp_micros(1_772_323_200_123_457).unwrap(), id: Uuid::from_u128(5) };
        let text = encode(&[1; 32], "a", cursor);
        assert_eq!(decode(&[1; 32], "a", &text), Ok(cursor));
        let truncated = &text[..text.len() - 1];
        for (key, scope, text) in
            [(1, "b", text.as_str()), (2, "a", &text), (1, "a", truncated), (1, "a", "e30"), (1, "a", ""), (1, "a", &"A".repeat(10_240))]
        {
            assert_eq!(decode(&[key; 32], scope, text).unwrap_err().code, Code::InvalidCursor);
        }
    }
}
