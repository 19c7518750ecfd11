//! The first account, its first admin, and the key that is shown once.

use crate::{Error, clock};
use sha2::{Digest, Sha256};
use signalbox_domain::account::{Account, AddMember, Command, Create, IssueKey, RevokeKey};
use signalbox_events::account::Role;
use signalbox_events::{AccountId, Aggregate, KeyId, PrincipalId};
use signalbox_journal::{Ledger, Request, Requester};
use uuid::Uuid;

/// The roles of the first admin.
const ROLES: [Role; 4] = [Role::PlatformAdmin, Role::AccountAdmin, Role::Member, Role::Auditor];

/// A key with its secret.
#[derive(Clone)]
pub struct AdminKey {
    /// Its id.
    pub id: KeyId,
    /// What requests send.
    pub secret: String,
}

/// The first account: the same id at every start, so that starting twice makes one.
pub fn first_account() -> AccountId {
    AccountId(Uuid::new_v5(&Uuid::NAMESPACE_OID, b"signalbox first account"))
}

fn first_admin() -> PrincipalId {
    PrincipalId(Uuid::new_v5(&Uuid::NAMESPACE_OID, b"signalbox first admin"))
}

async fn execute(ledger: &Ledger, command: impl Into<Command>) -> Result<(), Error> {
    let request = Request { aggregate: Aggregate::account(first_account()), command: command.into(), requester: Requester::role("bootstrap") };
    ledger.execute::<Account>(request).await?;
    Ok(())
}

/// Makes the first account and admin where they are missing. The key is only made, and shown, with them.
pub async fn bootstrap(ledger: &Ledger) -> Result<Option<AdminKey>, Error> {
    let state = ledger.load::<Account>(&Aggregate::account(first_account())).await?;
    execute(ledger, Create { name: "default".to_owned() }).await?;
    let granter = vec![Role::PlatformAdmin];
    execute(ledger, AddMember { principal: first_admin(), name: "admin".to_owned(), roles: ROLES.to_vec(), granter }).await?;
    if state.keys.is_empty() { issue(ledger, "first admin key").await.map(Some) } else { Ok(None) }
}

/// Issues another key to the first admin.
pub async fn issue(ledger: &Ledger, label: &str) -> Result<AdminKey, Error> {
    let key = AdminKey { id: KeyId(clock::id()), secret: format!("sbk_{}", hex::encode(clock::random())) };
    let command = IssueKey {
        key: key.id,
        principal: first_admin(),
        label: label.to_owned(),
        hash: Sha256::digest(key.secret.as_bytes()).into(),
        roles: ROLES.to_vec(),
        expires_at: None,
        granter: vec![Role::PlatformAdmin],
    };
    execute(ledger, command).await?;
    Ok(key)
}

/// Takes a key back.
pub async fn revoke(ledger: &Ledger, key: KeyId) -> Result<(), Error> {
    execute(ledger, RevokeKey { key }).await
}
