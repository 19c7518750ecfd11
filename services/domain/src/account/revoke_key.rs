//! Revokes an API key.

use super::{Command, State, existing};
use crate::Rejection;
use signalbox_events::KeyId;
use signalbox_events::account::{Event, KeyRevoked};

/// Revoke a key.
#[derive(Debug, Clone)]
pub struct RevokeKey {
    /// The key's public id.
    pub key: KeyId,
}

impl From<RevokeKey> for Command {
    fn from(command: RevokeKey) -> Self {
        Self::RevokeKey(command)
    }
}

pub(super) fn decide(state: &State, command: &RevokeKey) -> Result<Option<Event>, Rejection> {
    existing(state)?;
    let key = state.keys.get(&command.key).ok_or_else(Rejection::not_found)?;
    Ok((!key.revoked).then(|| KeyRevoked { key: command.key }.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Code;
    use crate::account::Account;
    use crate::given::given;
    use signalbox_events::PrincipalId;
    use signalbox_events::account::{Created, KeyIssued};
    use uuid::Uuid;

    #[test]
    fn a_key_is_revoked_once_and_must_exist() {
        let key = KeyId(Uuid::from_u128(2));
        given::<Account>().when(RevokeKey { key }).refused(Code::NotFound);
        let made = given::<Account>().event(Created { name: "a".to_owned() });
        made.when(RevokeKey { key }).refused(Code::NotFound);
        let issued =
            KeyIssued { key, principal: PrincipalId(Uuid::from_u128(1)), label: "x".to_owned(), hash: [0; 32], roles: vec![], expires_at: None };
        let made = made.event(issued);
        made.when(RevokeKey { key }).then(KeyRevoked { key });
        made.event(KeyRevoked { key }).when(RevokeKey { key }).nothing();
    }
}
