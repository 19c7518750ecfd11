//! Switches inference on or off.

use super::State;
use crate::Rejection;
use signalbox_events::setting::{Event, InferenceSwitched};

/// Switch inference; on an account, `enabled: true` only withdraws the account's own "off".
#[derive(Debug, Clone)]
pub struct Switch {
    /// On or off.
    pub enabled: bool,
}

pub(super) fn decide(state: &State, command: &Switch) -> Result<Option<Event>, Rejection> {
    let same = state.inference_enabled == Some(command.enabled);
    Ok((!same).then(|| InferenceSwitched { enabled: command.enabled }.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::given::given;
    use crate::setting::{Setting, inference_enabled};

    #[test]
    fn a_switch_is_stated_once() {
        given::<Setting>().when(Switch { enabled: true }).then(InferenceSwitched { enabled: true });
        given::<Setting>().when(Switch { enabled: false }).then(InferenceSwitched { enabled: false });
        given::<Setting>().event(InferenceSwitched { enabled: true }).when(Switch { enabled: true }).nothing();
        given::<Setting>().event(InferenceSwitched { enabled: true }).when(Switch { enabled: false }).then(InferenceSwitched { enabled: false });
    }

    #[test]
    fn an_account_can_only_take_away() {
        let with = |inference_enabled| State { inference_enabled, ..State::default() };
        let (unset, on, off) = (with(None), with(Some(true)), with(Some(false)));
        let table = [(&unset, &unset, false), (&unset, &on, false), (&off, &on, false), (&on, &unset, true), (&on, &on, true), (&on, &off, false)];
        for (platform, account, expected) in table {
            assert_eq!(inference_enabled(platform, account), expected, "{platform:?} {account:?}");
        }
    }
}
