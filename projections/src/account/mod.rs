//! The view of accounts, members and API keys.

use crate::{ApplyError, Projection, rows};
use chrono::{DateTime, Utc};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use signalbox_events::account::{Event, Role};
use signalbox_events::{Fact, Noun, Recorded};
use sqlx::types::Json;
use sqlx::{FromRow, PgConnection, PgPool};
use std::collections::BTreeMap;
use uuid::Uuid;

#[cfg(test)]
mod tests;

/// The view.
pub struct View;

/// An account.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, FromRow)]
pub struct Account {
    /// Its id; nil for the platform.
    pub id: Uuid,
    /// Its name.
    pub name: String,
    /// When it was created.
    pub created_at: DateTime<Utc>,
}

/// A member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, FromRow)]
pub struct Member {
    /// The account.
    pub account: Uuid,
    /// Who.
    pub principal: Uuid,
    /// The name that people see.
    pub name: String,
    /// What they may do.
    #[sqlx(json)]
    pub roles: Vec<Role>,
    /// Since when, with these roles.
    pub added_at: DateTime<Utc>,
}

/// An API key, without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, FromRow)]
pub struct Key {
    /// Its id.
    pub id: Uuid,
    /// The account.
    pub account: Uuid,
    /// Whose.
    pub principal: Uuid,
    /// What it is for.
    pub label: String,
    /// SHA-256 of the secret, hex.
    pub hash: String,
    /// What it may do.
    #[sqlx(json)]
    pub roles: Vec<Role>,
    /// Its end.
    pub expires_at: Option<DateTime<Utc>>,
    /// Since when it works no longer.
    pub revoked_at: Option<DateTime<Utc>>,
    /// When it was issued.
    pub issued_at: DateTime<Utc>,
}

impl Projection for View {
    fn name(&self) -> &'static str {
        "account"
    }
    fn version(&self) -> u32 {
        1
    }
    fn nouns(&self) -> &'static [Noun] {
        &[Noun::Account]
    }
    fn tables(&self) -> &'static [(&'static str, &'static str)] {
        &[("account_v1", "id"), ("account_member_v1", "account, principal"), ("account_key_v1", "id")]
    }
    fn ddl(&self) -> &'static str {
        include_str!("../../../migrations/0002_account_v1.up.sql")
    }
    fn apply<'a>(&'a self, db: &'a mut PgConnection, events: &'a [&'a Recorded]) -> BoxFuture<'a, Result<(), ApplyError>> {
        apply(db, events).boxed()
    }
}

async fn apply(db: &mut PgConnection, events: &[&Recorded]) -> Result<(), ApplyError> {
    let mut accounts = BTreeMap::new();
    let mut members = BTreeMap::new();
    let mut keys: BTreeMap<Uuid, Key> = BTreeMap::new();
    let mut revoked: BTreeMap<Uuid, DateTime<Utc>> = BTreeMap::new();
    for recorded in events {
        let Fact::Account(event) = &recorded.fact else { continue };
        let (account, at) = (recorded.aggregate.account.0, recorded.envelope.at.into());
        match event {
            Event::Created(fact) => {
                accounts.insert(account, Account { id: account, name: fact.name.clone(), created_at: at });
            }
            Event::MemberAdded(fact) => {
                let member = Member { account, principal: fact.principal.0, name: fact.name.clone(), roles: fact.roles.clone(), added_at: at };
                members.insert((account, fact.principal.0), member);
            }
            Event::KeyIssued(fact) => {
                let key = Key {
                    id: fact.key.0,
                    account,
                    principal: fact.principal.0,
                    label: fact.label.clone(),
                    hash: hex::encode(fact.hash),
                    roles: fact.roles.clone(),
                    expires_at: fact.expires_at.map(Into::into),
                    revoked_at: None,
                    issued_at: at,
                };
                keys.insert(key.id, key);
            }
            Event::KeyRevoked(fact) => {
                revoked.insert(fact.key.0, at);
            }
        }
    }
    rows::upsert(
        db,
        "account_v1",
        "id",
        &[("id", "uuid"), ("name", "text"), ("created_at", "timestamptz")],
        &accounts.into_values().collect::<Vec<_>>(),
    )
    .await?;
    let columns = [("account", "uuid"), ("principal", "uuid"), ("name", "text"), ("roles", "json"), ("added_at", "timestamptz")];
    rows::upsert(db, "account_member_v1", "account, principal", &columns, &members.into_values().collect::<Vec<_>>()).await?;
    // A key that was issued in an earlier batch has its row already.
    let earlier: Vec<Uuid> = revoked.keys().filter(|id| !keys.contains_key(id)).copied().collect();
    if !earlier.is_empty() {
        keys.extend(rows::load::<Key, _>(db, "account_key_v1", "id", &earlier).await?.into_iter().map(|key| (key.id, key)));
    }
    for (id, at) in revoked {
        if let Some(key) = keys.get_mut(&id) {
            key.revoked_at = Some(at);
        }
    }
    let columns = [
        ("id", "uuid"),
        ("account", "uuid"),
        ("principal", "uuid"),
        ("label", "text"),
        ("hash", "text"),
        ("roles", "json"),
        ("expires_at", "timestamptz"),
        ("revoked_at", "timestamptz"),
        ("issued_at", "timestamptz"),
    ];
    rows::upsert(db, "account_key_v1", "id", &columns, &keys.into_values().collect::<Vec<_>>()).await
}

/// A key with what a request needs to know of its owner.
#[derive(Debug, Clone, PartialEq, Eq, FromRow)]
pub struct Credential {
    /// The key's id.
    pub id: Uuid,
    /// The account.
    pub account: Uuid,
    /// Whose.
    pub principal: Uuid,
    /// Its owner's name.
    pub name: String,
    /// What it may do.
    pub roles: Json<Vec<Role>>,
    /// Its end.
    pub expires_at: Option<DateTime<Utc>>,
    /// Since when it works no longer.
    pub revoked_at: Option<DateTime<Utc>>,
}

/// The key of a secret's hash, revoked and expired ones included.
pub async fn credential(db: &PgPool, hash: &str) -> sqlx::Result<Option<Credential>> {
    sqlx::query_as(
        "SELECT k.id, k.account, k.principal, m.name, k.roles, k.expires_at, k.revoked_at
         FROM account_key_v1 k JOIN account_member_v1 m ON m.account = k.account AND m.principal = k.principal
         WHERE k.hash = $1",
    )
    .bind(hash)
    .fetch_optional(db)
    .await
}

/// An account by its id.
pub async fn find(db: &PgPool, id: Uuid) -> sqlx::Result<Option<Account>> {
    sqlx::query_as("SELECT id, name, created_at FROM account_v1 WHERE id = $1").bind(id).fetch_optional(db).await
}

/// All accounts, the oldest first, at most `most`.
pub async fn list(db: &PgPool, most: i64) -> sqlx::Result<Vec<Account>> {
    sqlx::query_as("SELECT id, name, created_at FROM account_v1 ORDER BY created_at, id LIMIT $1").bind(most).fetch_all(db).await
}

/// The members of an account, the oldest first.
pub async fn members(db: &PgPool, account: Uuid) -> sqlx::Result<Vec<Member>> {
    let query =
        sqlx::query_as("SELECT account, principal, name, roles, added_at FROM account_member_v1 WHERE account = $1 ORDER BY added_at, principal");
    query.bind(account).fetch_all(db).await
}

/// The keys of an account, the oldest first, revoked ones included.
pub async fn keys(db: &PgPool, account: Uuid) -> sqlx::Result<Vec<Key>> {
    sqlx::query_as(
        "SELECT id, account, principal, label, hash, roles, expires_at, revoked_at, issued_at
         FROM account_key_v1 WHERE account = $1 ORDER BY issued_at, id",
    )
    .bind(account)
    .fetch_all(db)
    .await
}
