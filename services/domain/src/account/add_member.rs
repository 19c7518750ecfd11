//! Adds a member to an account, or gives a member other roles.

use super::{Command, State, existing, may_grant, plain_name};
use crate::Rejection;
use signalbox_events::PrincipalId;
use signalbox_events::account::{Event, MemberAdded, Role};

/// Add a member.
#[derive(Debug, Clone)]
pub struct AddMember {
    /// Who.
    pub principal: PrincipalId,
    /// The name that people see, 1 to 128 characters.
    pub name: String,
    /// What they may do; at least one role.
    pub roles: Vec<Role>,
    /// The roles of whoever asks.
    pub granter: Vec<Role>,
}

impl From<AddMember> for Command {
    fn from(command: AddMember) -> Self {
        Self::AddMember(command)
    }
}

pub(super) fn decide(state: &State, command: &AddMember) -> Result<Option<Event>, Rejection> {
    existing(state)?;
    plain_name("name", &command.name, 128)?;
    if command.roles.is_empty() {
        return Err(Rejection::field("roles", "must name at least one role"));
    }
    may_grant(&command.granter, &command.roles)?;
    let same = state.members.get(&command.principal).is_some_and(|member| member.name == command.name && member.roles == command.roles);
    let fact = MemberAdded { principal: command.principal, name: command.name.clone(), roles: command.roles.clone() };
    Ok((!same).then(|| fact.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Code;
    use crate::account::Account;
    use crate::given::{Given, given};
    use signalbox_events::account::Created;
    use uuid::Uuid;

    fn made() -> Given<Account> {
        given::<Account>().event(Created { name: "a".to_owned() })
    }

    fn add(roles: &[Role], granter: &[Role]) -> AddMember {
        AddMember { principal: PrincipalId(Uuid::from_u128(1)), name: "Ada".to_owned(), roles: roles.to_vec(), granter: granter.to_vec() }
    }

    fn added(roles: &[Role]) -> MemberAdded {
        MemberAdded { principal: PrincipalId(Uuid::from_u128(1)), name: "Ada".to_owned(), roles: roles.to_vec() }
    }

    #[test]
    fn a_member_is_added_once_and_can_get_other_roles() {
        let admin = [Role::AccountAdmin];
        made().when(add(&[Role::Member], &admin)).then(added(&[Role::Member]));
        made().event(added(&[Role::Member])).when(add(&[Role::Member], &admin)).nothing();
        made().event(added(&[Role::Member])).when(add(&[Role::AccountAdmin], &admin)).then(added(&[Role::AccountAdmin]));
    }

    #[test]
    fn nobody_grants_what_they_do_not_hold() {
        for role in [Role::PlatformAdmin, Role::Auditor] {
            made().when(add(&[role], &[Role::AccountAdmin])).refused(Code::Forbidden);
            made().when(add(&[role], &[Role::PlatformAdmin])).then(added(&[role]));
        }
    }

    #[test]
    fn a_member_has_a_role_and_the_account_exists() {
        made().when(add(&[], &[Role::AccountAdmin])).refused(Code::InvalidField);
        given::<Account>().when(add(&[Role::Member], &[Role::AccountAdmin])).refused(Code::NotFound);
    }
}
