//! Sets how calls that someone waits for reach models.

use super::State;
use crate::Rejection;
use crate::task::check_kind;
use signalbox_events::setting::{Event, Transport, TransportSet};

/// Set the transport of a kind, or of every kind that has none of its own.
#[derive(Debug, Clone)]
pub struct SetTransport {
    /// The kind.
    pub kind: Option<String>,
    /// How; `None` withdraws what was set.
    pub transport: Option<Transport>,
}

pub(super) fn decide(state: &State, command: &SetTransport) -> Result<Option<Event>, Rejection> {
    if let Some(kind) = &command.kind {
        check_kind(kind)?;
    }
    let now = state.transports.get(command.kind.as_deref().unwrap_or_default()).copied();
    Ok((now != command.transport).then(|| TransportSet { kind: command.kind.clone(), transport: command.transport }.into()))
}

/// How calls of a kind reach models: the account's word goes before the platform's, the kind's own before the one for all.
pub fn transport_of(platform: &State, account: &State, kind: &str) -> Transport {
    let of = |state: &State| state.transports.get(kind).or_else(|| state.transports.get("")).copied();
    of(account).or_else(|| of(platform)).unwrap_or(Transport::Direct)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Code;
    use crate::given::given;
    use crate::setting::Setting;

    fn set(kind: Option<&str>, transport: Option<Transport>) -> TransportSet {
        TransportSet { kind: kind.map(str::to_owned), transport }
    }

    fn command(kind: Option<&str>, transport: Option<Transport>) -> SetTransport {
        SetTransport { kind: kind.map(str::to_owned), transport }
    }

    #[test]
    fn a_transport_is_set_and_withdrawn_once() {
        let lease = Some(Transport::Lease);
        given::<Setting>().when(command(None, lease)).then(set(None, lease));
        given::<Setting>().event(set(None, lease)).when(command(None, lease)).nothing();
        given::<Setting>().event(set(None, lease)).when(command(Some("embeddings"), lease)).then(set(Some("embeddings"), lease));
        given::<Setting>().event(set(None, lease)).when(command(None, None)).then(set(None, None));
        given::<Setting>().when(command(None, None)).nothing();
        given::<Setting>().when(command(Some("No kind"), lease)).refused(Code::InvalidField);
    }

    #[test]
    fn the_nearer_word_counts() {
        let state = |facts: &[TransportSet]| facts.iter().fold(given::<Setting>(), |given, fact| given.event(fact.clone())).state().clone();
        let (direct, lease) = (Some(Transport::Direct), Some(Transport::Lease));
        let (none, platform) = (state(&[]), state(&[set(None, lease), set(Some("embeddings"), direct)]));
        assert_eq!(transport_of(&none, &none, "embeddings"), Transport::Direct);
        assert_eq!(transport_of(&platform, &none, "chat.completions"), Transport::Lease);
        assert_eq!(transport_of(&platform, &none, "embeddings"), Transport::Direct);
        assert_eq!(transport_of(&platform, &state(&[set(Some("embeddings"), lease)]), "embeddings"), Transport::Lease);
        assert_eq!(transport_of(&platform, &state(&[set(None, direct)]), "chat.completions"), Transport::Direct);
    }
}
