//! Issues an API key to a member.

use super::{Command, State, existing, may_grant, plain_name};
use crate::{Code, Context, Rejection};
use signalbox_events::account::{Event, KeyIssued, Role};
use signalbox_events::{KeyId, Micros, PrincipalId};

/// Issue a key. The caller makes the secret and shows it once; only its hash comes here.
#[derive(Debug, Clone)]
pub struct IssueKey {
    /// The key's public id.
    pub key: KeyId,
    /// The member whose key it is.
    pub principal: PrincipalId,
    /// What it is for, 1 to 128 characters.
    pub label: String,
    /// SHA-256 of the secret.
    pub hash: [u8; 32],
    /// A subset of the member's roles; at least one.
    pub roles: Vec<Role>,
    /// After this it is refused.
    pub expires_at: Option<Micros>,
    /// The roles of whoever asks.
    pub granter: Vec<Role>,
}

impl From<IssueKey> for Command {
    fn from(command: IssueKey) -> Self {
        Self::IssueKey(command)
    }
}

pub(super) fn decide(state: &State, command: &IssueKey, ctx: &Context) -> Result<Option<Event>, Rejection> {
    existing(state)?;
    plain_name("label", &command.label, 128)?;
    if let Some(key) = state.keys.get(&command.key) {
        let same = key.principal == command.principal && key.hash == command.hash && key.roles == command.roles;
        return if same { Ok(None) } else { Err(Rejection::new(Code::AlreadyExists, "a key of this id exists")) };
    }
    let Some(member) = state.members.get(&command.principal) else {
        return Err(Rejection::field("principal", "is not a member of the account"));
    };
    if command.roles.is_empty() {
        return Err(Rejection::field("roles", "must name at least one role"));
    }
    if command.roles.iter().any(|role| !member.roles.contains(role)) {
        return Err(Rejection::field("roles", "must be roles that the member has"));
    }
    may_grant(&command.granter, &command.roles)?;
    if command.expires_at.is_some_and(|end| end <= Micros::from(ctx.now)) {
        return Err(Rejection::field("expires_at", "must lie in the future"));
    }
    let fact = KeyIssued {
        key: command.key,
        principal: command.principal,
        label: command.label.clone(),
        hash: command.hash,
        roles: command.roles.clone(),
        expires_at: command.expires_at,
    };
    Ok(Some(fact.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::account::Account;
    use crate::given::{Given, context, given};
    use signalbox_events::account::{Created, MemberAdded};
    use uuid::Uuid;

    const ADA: PrincipalId = PrincipalId(Uuid::from_u128(1));

    fn with(roles: &[Role]) -> Given<Account> {
        given::<Account>().event(Created { name: "a".to_owned() }).event(MemberAdded {
            principal: ADA,
            name: "Ada".to_owned(),
            roles: roles.to_vec(),
        })
    }

    fn issue() -> IssueKey {
        IssueKey {
            key: KeyId(Uuid::from_u128(2)),
            principal: ADA,
            label: "laptop".to_owned(),
            hash: [3; 32],
            roles: vec![Role::Member],
            expires_at: None,
            granter: vec![Role::AccountAdmin],
        }
    }

    fn issued() -> KeyIssued {
        KeyIssued {
            key: KeyId(Uuid::from_u128(2)),
            principal: ADA,
            label: "laptop".to_owned(),
            hash: [3; 32],
            roles: vec![Role::Member],
            expires_at: None,
        }
    }

    #[test]
    fn a_key_is_issued_once() {
        with(&[Role::Member]).when(issue()).then(issued());
        with(&[Role::Member]).event(issued()).when(issue()).nothing();
        with(&[Role::Member]).event(issued()).when(IssueKey { hash: [4; 32], ..issue() }).refused(Code::AlreadyExists);
    }

    #[test]
    fn a_key_holds_no_more_than_its_member() {
        with(&[Role::Member]).when(IssueKey { roles: vec![Role::AccountAdmin], ..issue() }).refused(Code::InvalidField);
        with(&[Role::Member]).when(IssueKey { roles: vec![], ..issue() }).refused(Code::InvalidField);
        with(&[Role::PlatformAdmin]).when(IssueKey { roles: vec![Role::PlatformAdmin], ..issue() }).refused(Code::Forbidden);
    }

    #[test]
    fn a_key_belongs_to_a_member_of_an_account() {
        with(&[Role::Member]).when(IssueKey { principal: PrincipalId(Uuid::from_u128(9)), ..issue() }).refused(Code::InvalidField);
        given::<Account>().when(issue()).refused(Code::NotFound);
    }

    #[test]
    fn an_end_lies_in_the_future() {
        let now = Micros::from(context().now);
        with(&[Role::Member]).when(IssueKey { expires_at: Some(now), ..issue() }).refused(Code::InvalidField);
        let end = Some(Micros(now.0 + 1));
        with(&[Role::Member]).when(IssueKey { expires_at: end, ..issue() }).then(KeyIssued { expires_at: end, ..issued() });
    }
}
