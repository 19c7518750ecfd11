//! Sealing: one key an aggregate, wrapped by the master key, kept beside the log and never in it.

use crate::journal::{Journal, Store, StoreError};
use bytes::Bytes;
use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use lru::LruCache;
use sha2::{Digest, Sha256};
use signalbox_domain::Context;
use signalbox_events::text::Object;
use signalbox_events::{Aggregate, Fact, Sealed, Text};
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError};
use uuid::Uuid;

/// Texts larger than this go to the object store.
const MOST_INLINE: usize = 256 * 1024;
/// Bytes of a nonce.
const NONCE: usize = 24;
/// Keys held unwrapped in memory.
const CACHED: NonZeroUsize = NonZeroUsize::new(4096).unwrap();

/// The key that wraps all others. Never stored beside what it protects.
#[derive(Clone)]
pub struct MasterKey(pub [u8; 32]);

impl std::fmt::Debug for MasterKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("MasterKey(..)")
    }
}

/// A text or key cannot be sealed or unsealed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum VaultError {
    /// The key store does not answer.
    #[error("the key store does not answer")]
    Store(#[from] StoreError),
    /// The key is not there although nothing says that it was destroyed on demand.
    #[error("the key of {0} is missing")]
    MissingKey(String),
    /// The master key does not open the key.
    #[error("the master key does not open the key of {0}")]
    WrongMasterKey(String),
    /// The ciphertext is not what was sealed.
    #[error("a sealed text of {0} was changed or is sealed by another key")]
    Tampered(String),
    /// The object of a large text is not there.
    #[error("the object {0} is missing")]
    MissingObject(String),
}

/// The key of one aggregate.
pub struct AggregateKey {
    /// Names the key in envelopes.
    pub id: Uuid,
    seal: [u8; 32],
    digest: [u8; 32],
}

impl AggregateKey {
    fn new(id: Uuid, secret: &[u8; 32]) -> Self {
        Self { id, seal: derive(secret, "seal"), digest: derive(secret, "digest") }
    }

    /// The key for digests of texts.
    pub fn digest_key(&self) -> [u8; 32] {
        self.digest
    }
}

fn derive(secret: &[u8; 32], purpose: &str) -> [u8; 32] {
    let context = Context { now: chrono::DateTime::UNIX_EPOCH, id: Uuid::nil(), random: [0; 32], digest_key: *secret };
    context.digest(purpose.as_bytes())
}

/// Seals texts on their way to the log and unseals them on their way back.
pub struct Vault {
    master: MasterKey,
    cache: Mutex<LruCache<Aggregate, Arc<AggregateKey>>>,
}

impl Vault {
    /// A vault under `master`.
    pub fn new(master: MasterKey) -> Self {
        Self { master, cache: Mutex::new(LruCache::new(CACHED)) }
    }

    fn cached(&self, aggregate: &Aggregate) -> Option<Arc<AggregateKey>> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner).get(aggregate).cloned()
    }

    fn remember(&self, aggregate: &Aggregate, key: AggregateKey) -> Arc<AggregateKey> {
        let key = Arc::new(key);
        self.cache.lock().unwrap_or_else(PoisonError::into_inner).put(aggregate.clone(), key.clone());
        key
    }

    /// The aggregate's key, where it has one.
    pub async fn find(&self, journal: &dyn Journal, aggregate: &Aggregate) -> Result<Option<Arc<AggregateKey>>, VaultError> {
        if let Some(key) = self.cached(aggregate) {
            return Ok(Some(key));
        }
        let name = aggregate.to_string();
        match journal.get(Store::Keys, &name).await? {
            None => Ok(None),
            Some(wrapped) => Ok(Some(self.remember(aggregate, self.unwrap(&name, &wrapped)?))),
        }
    }

    /// The aggregate's key, made where it has none. Of any number of makers the first wins.
    /// `new`: it most likely has none, so none is looked for first.
    pub async fn ensure(&self, journal: &dyn Journal, aggregate: &Aggregate, ctx: &Context, new: bool) -> Result<Arc<AggregateKey>, VaultError> {
        let known = if new { self.cached(aggregate) } else { self.find(journal, aggregate).await? };
        if let Some(key) = known {
            return Ok(key);
        }
        let name = aggregate.to_string();
        // The random bits make both the secret and the nonces of this decision: derive the secret apart.
        let secret = derive(&ctx.random, "aggregate key");
        let wrapped = self.wrap(&name, ctx, &secret)?;
        if journal.create(Store::Keys, &name, wrapped).await? {
            return Ok(self.remember(aggregate, AggregateKey::new(ctx.id, &secret)));
        }
        self.find(journal, aggregate).await?.ok_or(VaultError::MissingKey(name))
    }

    /// Forgets a key in memory, for when it was destroyed.
    pub fn forget(&self, aggregate: &Aggregate) {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner).pop(aggregate);
    }

    /// `id, nonce, ciphertext`: bound to the aggregate's name.
    fn wrap(&self, name: &str, ctx: &Context, secret: &[u8; 32]) -> Result<Bytes, VaultError> {
        let nonce = nonce(&ctx.random, u64::MAX);
        let cipher = XChaCha20Poly1305::new((&self.master.0).into());
        let sealed = cipher.encrypt(XNonce::from_slice(&nonce), Payload { msg: secret, aad: name.as_bytes() });
        let sealed = sealed.map_err(|_| VaultError::WrongMasterKey(name.to_owned()))?;
        Ok([ctx.id.as_bytes().as_slice(), &nonce, &sealed].concat().into())
    }

    fn unwrap(&self, name: &str, wrapped: &[u8]) -> Result<AggregateKey, VaultError> {
        let wrong = || VaultError::WrongMasterKey(name.to_owned());
        let (id, rest) = wrapped.split_at_checked(16).ok_or_else(wrong)?;
        let (nonce, sealed) = rest.split_at_checked(NONCE).ok_or_else(wrong)?;
        let cipher = XChaCha20Poly1305::new((&self.master.0).into());
        let secret = cipher.decrypt(XNonce::from_slice(nonce), Payload { msg: sealed, aad: name.as_bytes() }).map_err(|_| wrong())?;
        let secret: [u8; 32] = secret.try_into().map_err(|_| wrong())?;
        Ok(AggregateKey::new(Uuid::from_slice(id).map_err(|_| wrong())?, &secret))
    }
}

/// A nonce of one text of one decision: 192 bits from 256 fresh random ones and the text's index.
fn nonce(random: &[u8; 32], index: u64) -> [u8; NONCE] {
    let digest = Sha256::new_with_prefix(random).chain_update(index.to_be_bytes()).finalize();
    let mut nonce = [0; NONCE];
    nonce.copy_from_slice(&digest[..NONCE]);
    nonce
}

/// What binds a ciphertext to its place: it cannot be moved to another aggregate, version or field.
fn place(aggregate: &Aggregate, version: u64, index: u64) -> Vec<u8> {
    format!("{aggregate} {version} {index}").into_bytes()
}

/// Seals every text of `fact`. Large ones are put into the object store first, so that no event names a missing one.
pub(crate) async fn seal(
    journal: &dyn Journal,
    key: &AggregateKey,
    aggregate: &Aggregate,
    version: u64,
    random: &[u8; 32],
    fact: &mut Fact,
) -> Result<(), VaultError> {
    let cipher = XChaCha20Poly1305::new((&key.seal).into());
    let mut failed = None;
    let mut large = Vec::new();
    let mut index = 0;
    fact.visit_texts(&mut |text| {
        let Text::Plain(plain) = text else { return };
        let nonce = nonce(random, index);
        let payload = Payload { msg: plain.as_bytes(), aad: &place(aggregate, version, index) };
        index += 1;
        let Ok(sealed) = cipher.encrypt(XNonce::from_slice(&nonce), payload) else {
            failed = Some(VaultError::Tampered(aggregate.to_string()));
            return;
        };
        let characters = plain.chars().count() as u64;
        let bytes = [nonce.as_slice(), &sealed].concat();
        *text = if bytes.len() <= MOST_INLINE {
            Text::Sealed(Sealed { inline: Some(bytes), object: None, characters })
        } else {
            let sha256: [u8; 32] = Sha256::digest(&bytes).into();
            // Sealed bytes never repeat, so their digest is a name of its own.
            let object = Object { name: format!("{aggregate}.{}", hex::encode(sha256)), size: bytes.len() as u64, sha256 };
            large.push((object.name.clone(), bytes));
            Text::Sealed(Sealed { inline: None, object: Some(object), characters })
        };
    });
    if let Some(error) = failed {
        return Err(error);
    }
    for (name, bytes) in large {
        journal.put(Store::Objects, &name, bytes.into()).await?;
    }
    Ok(())
}

/// Unseals every text of `fact`.
pub(crate) async fn unseal(
    journal: &dyn Journal,
    key: &AggregateKey,
    aggregate: &Aggregate,
    version: u64,
    fact: &mut Fact,
) -> Result<(), VaultError> {
    let mut objects = Vec::new();
    fact.visit_texts(&mut |text| {
        if let Text::Sealed(Sealed { object: Some(object), .. }) = text {
            objects.push(object.clone());
        }
    });
    let mut fetched = Vec::new();
    for object in objects {
        let bytes = journal.get(Store::Objects, &object.name).await?.ok_or_else(|| VaultError::MissingObject(object.name.clone()))?;
        if Sha256::digest(&bytes).as_slice() != object.sha256 {
            return Err(VaultError::Tampered(aggregate.to_string()));
        }
        fetched.push(bytes);
    }
    let cipher = XChaCha20Poly1305::new((&key.seal).into());
    let mut fetched = fetched.into_iter();
    let mut failed = false;
    let mut index = 0;
    fact.visit_texts(&mut |text| {
        let Text::Sealed(sealed) = &*text else { return };
        let bytes = sealed.inline.clone().map(Bytes::from).or_else(|| fetched.next()).unwrap_or_default();
        let opened = bytes.split_at_checked(NONCE).and_then(|(nonce, sealed)| {
            let payload = Payload { msg: sealed, aad: &place(aggregate, version, index) };
            cipher.decrypt(XNonce::from_slice(nonce), payload).ok().and_then(|plain| String::from_utf8(plain).ok())
        });
        index += 1;
        match opened {
            Some(plain) => *text = Text::Plain(plain),
            None => failed = true,
        }
    });
    if failed { Err(VaultError::Tampered(aggregate.to_string())) } else { Ok(()) }
}

/// Seals a piece of a text that no event holds yet; bound to its name.
pub(crate) fn seal_piece(key: &AggregateKey, name: &str, random: &[u8; 32], text: &str) -> Option<Vec<u8>> {
    let nonce = nonce(random, 0);
    let cipher = XChaCha20Poly1305::new((&key.seal).into());
    let sealed = cipher.encrypt(XNonce::from_slice(&nonce), Payload { msg: text.as_bytes(), aad: name.as_bytes() }).ok()?;
    Some([nonce.as_slice(), &sealed].concat())
}

/// Unseals a piece.
pub(crate) fn unseal_piece(key: &AggregateKey, name: &str, bytes: &[u8]) -> Option<String> {
    let (nonce, sealed) = bytes.split_at_checked(NONCE)?;
    let cipher = XChaCha20Poly1305::new((&key.seal).into());
    let plain = cipher.decrypt(XNonce::from_slice(nonce), Payload { msg: sealed, aad: name.as_bytes() }).ok()?;
    String::from_utf8(plain).ok()
}
