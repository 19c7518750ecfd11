//! Time as stored: whole microseconds since 1970-01-01T00:00:00Z, which PostgreSQL keeps exactly.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

/// Microseconds since the Unix epoch, UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Micros(pub i64);

impl From<DateTime<Utc>> for Micros {
    fn from(at: DateTime<Utc>) -> Self {
        Self(at.timestamp_micros())
    }
}

impl From<Micros> for DateTime<Utc> {
    /// A value beyond chrono's range (a quarter of a million years) reads as the epoch.
    fn from(micros: Micros) -> Self {
        DateTime::from_timestamp_micros(micros.0).unwrap_or_default()
    }
}
