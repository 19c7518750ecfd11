//! Where an event stands on the log: `<partition>.<sequence>`, opaque to callers.

use crate::id::ParseError;
use std::fmt;
use std::str::FromStr;

/// A place on the log. Positions of one partition are ordered; across partitions they are not comparable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Position {
    /// The stream's number, from 0.
    pub partition: u16,
    /// The message's sequence in that stream, from 1; 0 is before the first.
    pub sequence: u64,
}

impl Position {
    /// The place of `sequence` in `partition`.
    pub fn new(partition: u16, sequence: u64) -> Self {
        Self { partition, sequence }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.partition, self.sequence)
    }
}

impl FromStr for Position {
    type Err = ParseError;
    fn from_str(text: &str) -> Result<Self, ParseError> {
        let parsed = text
            .split_once('.')
            .and_then(|(partition, sequence)| Some(Self { partition: partition.parse().ok()?, sequence: sequence.parse().ok()? }));
        // The round trip refuses `+1`, leading zeros and the like: one place, one spelling.
        parsed.filter(|position| position.to_string() == text).ok_or(ParseError::new("position"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_has_one_spelling() {
        assert_eq!("0.17".parse(), Ok(Position::new(0, 17)));
        for bad in ["", "17", "0.", ".1", "0.017", "+0.1", "0.1.2", "0.-1", "0.99999999999999999999"] {
            assert!(bad.parse::<Position>().is_err(), "{bad}");
        }
    }
}
