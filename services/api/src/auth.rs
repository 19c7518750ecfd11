//! Who calls: an API key, looked up by its hash. Whatever is wrong with it, the answer is the same.

use crate::problem::Problem;
use crate::state::App;
use axum::extract::FromRequestParts;
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use lru::LruCache;
use sha2::{Digest, Sha256};
use signalbox_domain::Code;
use signalbox_events::account::Role;
use signalbox_events::{AccountId, KeyId, PrincipalId};
use signalbox_projections::account::{self, Credential};
use signalbox_projections::sqlx::{self, PgPool};
use std::num::NonZeroUsize;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a key is known without another look.
const KNOWN_FOR: Duration = Duration::from_secs(1);
/// Keys that are known at once.
const MOST_KNOWN: NonZeroUsize = NonZeroUsize::new(10_000).unwrap();

/// The caller of a request. Its account comes from the credential alone, whatever headers or body say.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    pub account: AccountId,
    pub principal: PrincipalId,
    pub name: String,
    pub roles: Vec<Role>,
    pub key: KeyId,
}

impl Caller {
    pub fn is(&self, role: Role) -> bool {
        self.roles.contains(&role)
    }

    pub fn is_platform_admin(&self) -> bool {
        self.is(Role::PlatformAdmin)
    }

    pub fn is_account_admin(&self) -> bool {
        self.is_platform_admin() || self.is(Role::AccountAdmin)
    }

    /// Refuses callers who may not change workloads and conversations at all.
    pub fn must_be_member(&self) -> Result<(), Problem> {
        if self.is_account_admin() || self.is(Role::Member) { Ok(()) } else { Err(forbidden()) }
    }

    pub fn must_be_account_admin(&self) -> Result<(), Problem> {
        if self.is_account_admin() { Ok(()) } else { Err(forbidden()) }
    }

    pub fn must_be_platform_admin(&self) -> Result<(), Problem> {
        if self.is_platform_admin() { Ok(()) } else { Err(forbidden()) }
    }

    /// Whether a thing of this account and owner is the caller's to see.
    pub fn sees(&self, account: AccountId, owner: PrincipalId) -> bool {
        self.is_platform_admin() || (account == self.account && (owner == self.principal || self.is_account_admin()))
    }
}

fn forbidden() -> Problem {
    Problem::new(Code::Forbidden, "the key's roles do not allow this")
}

fn unauthenticated() -> Problem {
    Problem::new(Code::Unauthenticated, "send a valid API key as `Authorization: Bearer <key>`")
}

impl FromRequestParts<App> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let mut values = parts.headers.get_all(AUTHORIZATION).iter();
        let (first, second) = (values.next(), values.next());
        let header = first.filter(|_| second.is_none()).map(|value| value.as_bytes()).unwrap_or_default();
        let secret = header.strip_prefix(b"Bearer ").unwrap_or_default();
        let found = app.credentials.find(&app.db, hash(secret)).await?;
        let now = app.context().now;
        let found = found.filter(|key| key.revoked_at.is_none() && key.expires_at.is_none_or(|end| end > now));
        let key = found.ok_or_else(unauthenticated)?;
        Ok(Self { account: AccountId(key.account), principal: PrincipalId(key.principal), name: key.name, roles: key.roles.0, key: KeyId(key.id) })
    }
}

/// Keys that were used lately. A revocation reaches every replica within [`KNOWN_FOR`] and its view's delay.
pub(crate) struct Credentials(Mutex<LruCache<String, (Instant, Credential)>>);

impl Default for Credentials {
    fn default() -> Self {
        Self(Mutex::new(LruCache::new(MOST_KNOWN)))
    }
}

impl Credentials {
    fn known(&self) -> MutexGuard<'_, LruCache<String, (Instant, Credential)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The key of a hash. What is no key is looked up each time, and never kept.
    async fn find(&self, db: &PgPool, hash: String) -> sqlx::Result<Option<Credential>> {
        let known = self.known().get(&hash).filter(|(at, _)| at.elapsed() < KNOWN_FOR).map(|(_, key)| key.clone());
        if known.is_some() {
            return Ok(known);
        }
        let found = account::credential(db, &hash).await?;
        if let Some(key) = &found {
            self.known().put(hash, (Instant::now(), key.clone()));
        }
        Ok(found)
    }

    /// Forgets all: a key was revoked.
    pub fn forget(&self) {
        self.known().clear();
    }
}

/// The hash by which a secret is stored, hex.
pub(crate) fn hash(secret: &[u8]) -> String {
    hex::encode(Sha256::digest(secret))
}
