//! States that a loss of the log is known.

use super::State;
use crate::Rejection;
use crate::account::plain_name;
use signalbox_events::setting::{Event, GapAccepted};

/// Accept a gap.
#[derive(Debug, Clone)]
pub struct AcceptGap {
    /// The partition.
    pub partition: u16,
    /// The first missing sequence, from 1.
    pub sequence: u64,
    /// Why the loss is acceptable, 1 to 1,024 characters.
    pub reason: String,
}

pub(super) fn decide(state: &State, command: &AcceptGap) -> Result<Option<Event>, Rejection> {
    plain_name("reason", &command.reason, 1024)?;
    if command.sequence == 0 {
        return Err(Rejection::field("position", "must name the first missing sequence, from 1"));
    }
    let known = state.accepted_gaps.contains(&(command.partition, command.sequence));
    let fact = GapAccepted { partition: command.partition, sequence: command.sequence, reason: command.reason.clone() };
    Ok((!known).then(|| fact.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Code;
    use crate::given::given;
    use crate::setting::Setting;

    #[test]
    fn a_gap_is_accepted_once_and_with_a_reason() {
        let accept = AcceptGap { partition: 0, sequence: 7, reason: "disk fault".to_owned() };
        let accepted = GapAccepted { partition: 0, sequence: 7, reason: "disk fault".to_owned() };
        given::<Setting>().when(accept.clone()).then(accepted.clone());
        given::<Setting>().event(accepted).when(accept.clone()).nothing();
        given::<Setting>().when(AcceptGap { reason: " ".to_owned(), ..accept.clone() }).refused(Code::InvalidField);
        given::<Setting>().when(AcceptGap { sequence: 0, ..accept }).refused(Code::InvalidField);
    }
}
