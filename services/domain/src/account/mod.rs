//! The law of accounts: members, roles and API keys.

mod add_member;
mod create;
mod issue_key;
mod revoke_key;

use crate::{Context, Decider, Rejection};
pub use add_member::AddMember;
pub use create::Create;
pub use issue_key::IssueKey;
pub use revoke_key::RevokeKey;
use serde::{Deserialize, Serialize};
use signalbox_events::account::{Event, Role};
use signalbox_events::{Fact, KeyId, Micros, Noun, PrincipalId};
use std::collections::BTreeMap;

/// An account as its rules see it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// Its name; empty before it exists.
    pub name: Option<String>,
    /// Members with their roles.
    pub members: BTreeMap<PrincipalId, Member>,
    /// Keys, revoked ones included.
    pub keys: BTreeMap<KeyId, Key>,
}

/// A member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// The name that people see.
    pub name: String,
    /// What they may do.
    pub roles: Vec<Role>,
}

/// An API key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Key {
    /// Whose it is.
    pub principal: PrincipalId,
    /// SHA-256 of its secret.
    pub hash: [u8; 32],
    /// What it may do.
    pub roles: Vec<Role>,
    /// Its end, where it has one.
    pub expires_at: Option<Micros>,
    /// Whether it works no longer.
    pub revoked: bool,
}

/// What can be asked of an account.
#[derive(Debug, Clone)]
#[expect(missing_docs, reason = "each command is documented at its struct")]
pub enum Command {
    Create(Create),
    AddMember(AddMember),
    IssueKey(IssueKey),
    RevokeKey(RevokeKey),
}

/// The law.
pub struct Account;

impl Decider for Account {
    const NOUN: Noun = Noun::Account;
    const FOLD: u32 = 1;
    const SEALED: bool = false;
    type State = State;
    type Command = Command;
    type Event = Event;

    fn event(fact: &Fact) -> Option<&Event> {
        if let Fact::Account(event) = fact { Some(event) } else { None }
    }

    fn evolve(state: &mut State, event: &Event) {
        match event {
            Event::Created(fact) => state.name = Some(fact.name.clone()),
            Event::MemberAdded(fact) => {
                state.members.insert(fact.principal, Member { name: fact.name.clone(), roles: fact.roles.clone() });
            }
            Event::KeyIssued(fact) => {
                let key = Key { principal: fact.principal, hash: fact.hash, roles: fact.roles.clone(), expires_at: fact.expires_at, revoked: false };
                state.keys.insert(fact.key, key);
            }
            Event::KeyRevoked(fact) => {
                if let Some(key) = state.keys.get_mut(&fact.key) {
                    key.revoked = true;
                }
            }
        }
    }

    fn decide(state: &State, command: &Command, ctx: &Context) -> Result<Option<Event>, Rejection> {
        match command {
            Command::Create(command) => create::decide(state, command),
            Command::AddMember(command) => add_member::decide(state, command),
            Command::IssueKey(command) => issue_key::decide(state, command, ctx),
            Command::RevokeKey(command) => revoke_key::decide(state, command),
        }
    }
}

/// The account must exist.
fn existing(state: &State) -> Result<(), Rejection> {
    if state.name.is_some() { Ok(()) } else { Err(Rejection::not_found()) }
}

/// Nobody grants what they do not hold: only a platform admin makes platform admins and auditors of the whole log.
fn may_grant(granter: &[Role], roles: &[Role]) -> Result<(), Rejection> {
    let platform_wide = |role: &Role| match role {
        Role::PlatformAdmin | Role::Auditor => true,
        Role::AccountAdmin | Role::Member | Role::Worker => false,
    };
    if roles.iter().any(platform_wide) && !granter.contains(&Role::PlatformAdmin) {
        return Err(Rejection::new(crate::Code::Forbidden, "only a platform admin may grant this role"));
    }
    Ok(())
}

/// A name or label that people see.
pub(crate) fn plain_name(path: &str, name: &str, most: usize) -> Result<(), Rejection> {
    let characters = name.chars().count();
    if name.trim().is_empty() || characters > most {
        return Err(Rejection::field(path, format!("must have 1 to {most} characters, has {characters}")));
    }
    if name.chars().any(char::is_control) {
        return Err(Rejection::field(path, "must not hold control characters"));
    }
    Ok(())
}
