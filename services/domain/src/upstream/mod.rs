//! The law of upstreams: what they are, and that a credential is sent to one origin only.

use crate::account::plain_name;
use crate::address::{base_url, is_private, origin};
use crate::{Code, Context, Decider, Rejection};
use serde::{Deserialize, Serialize};
use signalbox_events::upstream::{CredentialSet, Deleted, Event, Profile, Registered, Switched, Updated};
use signalbox_events::{AccountId, Fact, Noun, PrincipalId, UpstreamId};
use std::collections::BTreeSet;
use uuid::Uuid;

/// What upstreams may speak.
const PROTOCOLS: [&str; 1] = ["openai"];
/// Models of one upstream.
const MOST_MODELS: usize = 1000;
/// Longest secret in bytes.
const MOST_SECRET: usize = 8192;

/// An upstream as its rules see it. `None` before it was registered and after it was deleted.
pub type State = Option<Existing>;

/// An upstream that exists. Holds no secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Existing {
    /// Who registered it.
    pub owner: PrincipalId,
    /// Its name.
    pub name: String,
    /// What it is.
    pub profile: Profile,
    /// Whether tasks are sent to it.
    pub enabled: bool,
    /// Its credential.
    pub credential: Option<Credential>,
}

/// A credential, without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Credential {
    /// The header that it goes into.
    pub header: String,
    /// The only origin that it is sent to.
    pub origin: String,
    /// Keyed digest of header and value.
    pub digest: [u8; 32],
}

/// The id of the upstream of that name: names are unique in an account.
pub fn id_of(account: AccountId, name: &str) -> UpstreamId {
    UpstreamId(Uuid::new_v5(&account.0, format!("upstream {name}").as_bytes()))
}

/// What can be asked of an upstream.
#[derive(Clone)]
pub enum Command {
    /// Register it.
    Register {
        /// Whose it is.
        owner: PrincipalId,
        /// The owner's name.
        owner_name: String,
        /// Its name; the aggregate is the one of [`id_of`].
        name: String,
        /// What it is.
        profile: Profile,
    },
    /// Describe it anew.
    Update(Profile),
    /// Give it a credential.
    SetCredential {
        /// The header, lower case.
        header: String,
        /// The secret: the header's value, behind `Bearer ` for `authorization`.
        secret: String,
    },
    /// Use it, or not, for a reason of 0 to 1,024 characters.
    Switch(bool, String),
    /// Delete it.
    Delete,
}

// By hand: a secret must not be printed.
impl std::fmt::Debug for Command {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Register { .. } => "Register",
            Self::Update(_) => "Update",
            Self::SetCredential { .. } => "SetCredential",
            Self::Switch(..) => "Switch",
            Self::Delete => "Delete",
        })
    }
}

/// The law.
pub struct Upstream;

impl Decider for Upstream {
    const NOUN: Noun = Noun::Upstream;
    const FOLD: u32 = 1;
    const SEALED: bool = true;
    type State = State;
    type Command = Command;
    type Event = Event;

    fn event(fact: &Fact) -> Option<&Event> {
        if let Fact::Upstream(event) = fact { Some(event) } else { None }
    }

    fn evolve(state: &mut State, event: &Event) {
        match (event, state) {
            (Event::Registered(fact), state) => {
                let Registered { owner, name, profile, .. } = fact.clone();
                *state = Some(Existing { owner, name, profile, enabled: true, credential: None });
            }
            (Event::Deleted(_), state) => *state = None,
            (Event::Updated(fact), Some(upstream)) => {
                upstream.profile = fact.profile.clone();
                upstream.credential = upstream.credential.take().filter(|_| fact.keeps_credential);
            }
            (Event::CredentialSet(fact), Some(upstream)) => {
                upstream.credential = Some(Credential { header: fact.header.clone(), origin: fact.origin.clone(), digest: fact.digest });
            }
            (Event::Switched(fact), Some(upstream)) => upstream.enabled = fact.enabled,
            (Event::Updated(_) | Event::CredentialSet(_) | Event::Switched(_), None) => {}
        }
    }

    fn decide(state: &State, command: &Command, ctx: &Context) -> Result<Option<Event>, Rejection> {
        let existing = || state.as_ref().ok_or_else(Rejection::not_found);
        match command {
            Command::Register { owner, owner_name, name, profile } => {
                check_name(name)?;
                check(profile)?;
                match state {
                    None => {
                        let (name, owner_name) = (name.clone(), owner_name.clone());
                        Ok(Some(Registered { owner: *owner, owner_name, name, profile: profile.clone() }.into()))
                    }
                    Some(upstream) if upstream.profile == *profile => Ok(None),
                    Some(_) => Err(Rejection::new(Code::AlreadyExists, "an upstream of this name exists; update it instead")),
                }
            }
            Command::Update(profile) => {
                let origin = check(profile)?;
                let upstream = existing()?;
                let keeps_credential = upstream.credential.as_ref().is_some_and(|credential| credential.origin == origin);
                Ok((upstream.profile != *profile).then(|| Updated { profile: profile.clone(), keeps_credential }.into()))
            }
            Command::SetCredential { header, secret } => set_credential(existing()?, header, secret, ctx),
            Command::Switch(enabled, reason) => {
                if !reason.is_empty() {
                    plain_name("reason", reason, 1024)?;
                }
                Ok((existing()?.enabled != *enabled).then(|| Switched { enabled: *enabled, reason: reason.clone() }.into()))
            }
            Command::Delete => Ok(state.as_ref().map(|_| Deleted {}.into())),
        }
    }
}

fn set_credential(upstream: &Existing, header: &str, secret: &str, ctx: &Context) -> Result<Option<Event>, Rejection> {
    let named = header == "authorization" || header == "api-key" || header.starts_with("x-");
    if !named || header.len() > 64 || !header.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-') {
        return Err(Rejection::field("header", "must be `authorization`, `api-key` or an `x-` header, lower case"));
    }
    if secret.is_empty() || secret.len() > MOST_SECRET || !secret.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(Rejection::field("secret", format!("must have 1 to {MOST_SECRET} visible ASCII characters")));
    }
    let url = base_url("base_url", &upstream.profile.base_url)?;
    if !is_private(&url) {
        return Err(Rejection::field("secret", "goes to an https:// base URL only, or to this machine itself"));
    }
    let value = if header == "authorization" { format!("Bearer {secret}") } else { secret.to_owned() };
    let digest = ctx.digest(format!("{header} {value}").as_bytes());
    if upstream.credential.as_ref().is_some_and(|credential| credential.digest == digest) {
        return Ok(None);
    }
    Ok(Some(CredentialSet { secret: value.into(), header: header.to_owned(), origin: origin(&url), digest }.into()))
}

fn check_name(name: &str) -> Result<(), Rejection> {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if (1..=63).contains(&name.len()) && name.bytes().all(plain) && !name.starts_with('-') {
        Ok(())
    } else {
        Err(Rejection::field("name", "must match ^[a-z0-9][a-z0-9-]{0,62}$"))
    }
}

/// Refuses a bad profile, and answers with its origin.
fn check(profile: &Profile) -> Result<String, Rejection> {
    plain_name("provider", &profile.provider, 64)?;
    if !PROTOCOLS.contains(&profile.protocol.as_str()) {
        return Err(Rejection::field("protocol", "must be `openai`"));
    }
    let url = base_url("base_url", &profile.base_url)?;
    if profile.base_url.ends_with('/') || profile.base_url.len() > 2048 {
        return Err(Rejection::field("base_url", "has no slash at its end and at most 2,048 characters"));
    }
    if profile.models.is_empty() || profile.models.len() > MOST_MODELS {
        return Err(Rejection::field("models", format!("must have 1 to {MOST_MODELS} entries")));
    }
    let mut names = BTreeSet::new();
    for (index, model) in profile.models.iter().enumerate() {
        plain_name(&format!("models[{index}].name"), &model.name, 256)?;
        if !names.insert(&model.name) {
            return Err(Rejection::field(format!("models[{index}].name"), "is there twice"));
        }
        let good = |kind: &String| !kind.is_empty() && kind.len() <= 64 && !kind.chars().any(char::is_whitespace);
        if model.kinds.is_empty() || model.kinds.len() > 32 || !model.kinds.iter().all(good) {
            return Err(Rejection::field(format!("models[{index}].kinds"), "must be 1 to 32 kinds: exact, `*`, or `x.*`"));
        }
    }
    Ok(origin(&url))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::given::given;
    use signalbox_events::upstream::Model;

    fn profile(base_url: &str) -> Profile {
        let models = vec![Model { name: "m".to_owned(), kinds: vec!["chat.*".to_owned()] }];
        Profile { provider: "test".to_owned(), protocol: "openai".to_owned(), base_url: base_url.to_owned(), models }
    }

    fn registered(base_url: &str) -> Registered {
        Registered { owner: PrincipalId(Uuid::nil()), owner_name: "Ada".to_owned(), name: "a".to_owned(), profile: profile(base_url) }
    }

    fn register(name: &str, profile: Profile) -> Command {
        Command::Register { owner: PrincipalId(Uuid::nil()), owner_name: "Ada".to_owned(), name: name.to_owned(), profile }
    }

    fn credential(secret: &str) -> Command {
        Command::SetCredential { header: "authorization".to_owned(), secret: secret.to_owned() }
    }

    fn set(origin: &str) -> CredentialSet {
        CredentialSet { secret: "Bearer k".into(), header: "authorization".to_owned(), origin: origin.to_owned(), digest: [1; 32] }
    }

    #[test]
    fn a_credential_stays_with_its_origin() {
        let updated = |base_url: &str, keeps_credential| Updated { profile: profile(base_url), keeps_credential };
        let made = || given::<Upstream>().event(registered("https://a/v1")).event(set("https://a"));
        assert!(made().state().as_ref().unwrap().credential.is_some());
        made().when(Command::Update(profile("https://A:443/v2"))).then(updated("https://A:443/v2", true));
        made().when(Command::Update(profile("https://b/v1"))).then(updated("https://b/v1", false));
        made().when(Command::Update(profile("http://a/v1"))).then(updated("http://a/v1", false));
        let moved = || made().event(updated("https://b/v1", false));
        assert!(moved().state().as_ref().unwrap().credential.is_none());
        moved().when(Command::Update(profile("https://a/v1"))).then(updated("https://a/v1", false));
        let renewed = made().event(Deleted {}).event(registered("https://a/v1"));
        assert!(renewed.state().as_ref().unwrap().credential.is_none(), "another of the same name inherits nothing");
    }

    #[test]
    fn secrets_need_a_private_way_and_are_not_printed() {
        given::<Upstream>().event(registered("http://a/v1")).when(credential("k")).refused(Code::InvalidField);
        for bad in ["", "two words", "line\n", &"x".repeat(MOST_SECRET + 1)] {
            given::<Upstream>().event(registered("https://a/v1")).when(credential(bad)).refused(Code::InvalidField);
        }
        for header in ["host", "Authorization", "content-type", ""] {
            let command = Command::SetCredential { header: header.to_owned(), secret: "k".to_owned() };
            given::<Upstream>().event(registered("https://a/v1")).when(command).refused(Code::InvalidField);
        }
        assert!(!format!("{:?}", credential("sesame")).contains("sesame"));
    }

    #[test]
    fn bad_fields_are_named() {
        let refused = |command: Command| given::<Upstream>().when(command).refused(Code::InvalidField).field.unwrap();
        assert_eq!(refused(register("A", profile("https://a"))), "name");
        assert_eq!(refused(register("a", profile("https://a/"))), "base_url");
        assert_eq!(refused(register("a", Profile { protocol: "soap".to_owned(), ..profile("https://a") })), "protocol");
        assert_eq!(refused(register("a", Profile { models: vec![], ..profile("https://a") })), "models");
        let twice = vec![profile("https://a").models.remove(0), profile("https://a").models.remove(0)];
        assert_eq!(refused(register("a", Profile { models: twice, ..profile("https://a") })), "models[1].name");
    }
}
