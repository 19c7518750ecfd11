//! The only place that asks the machine for time and randomness.

use chrono::{DateTime, Utc};
use signalbox_domain::{Context, Source};
use std::sync::Arc;
use uuid::Uuid;

/// The time.
#[expect(clippy::disallowed_methods, reason = "everything else takes the time from here")]
pub fn now() -> DateTime<Utc> {
    Utc::now()
}

/// 256 random bits of the operating system.
#[expect(clippy::disallowed_methods, reason = "everything else takes random bits from here")]
pub fn random() -> [u8; 32] {
    let mut bytes = [0; 32];
    if let Err(error) = getrandom::fill(&mut bytes) {
        // Without randomness there are neither keys nor ids: nothing that follows would be safe.
        panic!("the operating system gives no random bits: {error}");
    }
    bytes
}

/// A fresh id, ordered by time.
#[expect(clippy::disallowed_methods, reason = "everything else takes ids from here")]
pub fn id() -> Uuid {
    Uuid::now_v7()
}

/// A fresh context for each decision.
pub fn source() -> Source {
    Arc::new(|| Context { now: now(), id: id(), random: random(), digest_key: [0; 32] })
}
