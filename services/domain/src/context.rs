//! What a rule may know of the outside: handed in, never asked for, so that a replay decides the same.

use chrono::{DateTime, Utc};
use hmac::{Hmac, Mac};
use sha2::Sha256;
use std::sync::Arc;
use uuid::Uuid;

/// The outside world of one decision.
#[derive(Debug, Clone)]
pub struct Context {
    /// The time of the decision.
    pub now: DateTime<Utc>,
    /// A fresh UUIDv7.
    pub id: Uuid,
    /// 256 fresh random bits.
    pub random: [u8; 32],
    /// The aggregate's key for digests of personal text; zero where the noun holds none.
    pub digest_key: [u8; 32],
}

/// Makes a fresh [`Context`]; the process has one, tests bring their own.
pub type Source = Arc<dyn Fn() -> Context + Send + Sync>;

impl Context {
    /// HMAC-SHA-256 under the aggregate's key. A plain digest of a short text would confirm guesses.
    pub fn digest(&self, text: &[u8]) -> [u8; 32] {
        // HMAC takes a key of any length, so the error arm cannot be reached; an empty digest would merely not match.
        Hmac::<Sha256>::new_from_slice(&self.digest_key).map_or([0; 32], |mut mac| {
            mac.update(text);
            mac.finalize().into_bytes().into()
        })
    }
}
