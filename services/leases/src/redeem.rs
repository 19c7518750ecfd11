//! The commit point: a token is redeemed once, and its answer brings the upstream's credential, sealed for this start alone.

use crate::answer::{Answered, Asker, Refused};
use crate::beat;
use crate::role::{LEASE_TTL, Shared};
use crypto_box::PublicKey;
use crypto_box::aead::rand_core::{CryptoRng, Error, RngCore};
use sha2::{Digest, Sha256};
use signalbox_domain::task::{self, Task};
use signalbox_domain::upstream::{Existing as KnownUpstream, Upstream};
use signalbox_domain::{Code, Rejection};
use signalbox_events::upstream::Event;
use signalbox_events::work::{LeaseRef, Redeem, Redeemed, SealedCredential};
use signalbox_events::{Aggregate, Fact, IncarnationId, Micros, PoolId, TaskId, WorkerId};
use signalbox_journal::StoreError;
use std::time::Duration;

impl Asker<'_> {
    /// Until when a lease was renewed.
    async fn renewed_until(&self, incarnation: IncarnationId, task: TaskId, epoch: u64) -> Answered<Option<Micros>> {
        Ok(renewed_until(self.shared, &self.pool, &self.worker, incarnation, task, epoch).await?)
    }

    pub async fn redeem(&self) -> Answered<Redeemed> {
        let redeem: Redeem = self.read()?;
        let mut token = [0; 32];
        hex::decode_to_slice(&redeem.token, &mut token).map_err(|_| Rejection::new(Code::TokenUnknown, Code::TokenUnknown.title()))?;
        let worker = self.current(redeem.incarnation).await?;
        if self.pool().await?.is_none_or(|pool| pool.state == signalbox_events::pool::State::Disabled) {
            return Err(Rejection::new(Code::PoolNotEnabled, "the pool is disabled").into());
        }
        let upstream = self.upstream(&redeem.lease).await?;
        let needs_key = upstream.as_ref().is_some_and(|(_, upstream)| upstream.credential.is_some());
        if needs_key && worker.registered.public_key.is_none() {
            // Before the commit point: the task goes back to a worker that can be given the credential.
            return Err(Rejection::new(Code::PublicKeyMissing, "say hello with a public key: the task needs a credential").into());
        }
        let mut command = task::Redeem {
            token_hash: Sha256::digest(token).into(),
            epoch: redeem.lease.epoch,
            pool: self.pool.clone(),
            worker: self.worker.clone(),
            incarnation: redeem.incarnation,
            nonce: redeem.nonce,
            renewed_until: None,
        };
        let mut executed = self.of_task(&redeem.lease, command.clone()).await;
        if let Err(Refused::Rejection(Rejection { code: Code::TokenExpired, .. })) = &executed {
            // Unless it was renewed: then another time counts.
            command.renewed_until = self.renewed_until(redeem.incarnation, redeem.lease.task, redeem.lease.epoch).await?;
            if command.renewed_until.is_some() {
                executed = self.of_task(&redeem.lease, command).await;
            }
        }
        // A task of another account or none: the token is no token here.
        let executed = executed.map_err(|refused| match refused {
            Refused::Rejection(rejection) if rejection.code == Code::NotFound => {
                Rejection::new(Code::TokenUnknown, Code::TokenUnknown.title()).into()
            }
            other => other,
        })?;
        if executed.stated.is_some() {
            self.shared.metrics.redemptions.inc();
        }
        // Should this fail, the worker asks again with its nonce.
        let credential = match (&upstream, worker.registered.public_key) {
            (Some((aggregate, upstream)), Some(public_key)) => self.credential(aggregate, upstream, public_key).await?,
            _ => None,
        };
        Ok(Redeemed { credential })
    }

    /// The upstream that a task goes to, where it goes to one.
    async fn upstream(&self, lease: &LeaseRef) -> Answered<Option<(Aggregate, KnownUpstream)>> {
        // Where a task goes is said once, when it is accepted: any state of it knows.
        let task = self.shared.ledger.load_recent::<Task>(&Aggregate::task(lease.account, lease.task), Duration::MAX).await?;
        let Some(target) = task.and_then(|task| task.target) else { return Ok(None) };
        let Some(upstream) = target.upstream else { return Ok(None) };
        let aggregate = Aggregate::upstream(target.account, upstream);
        let upstream = self.shared.ledger.load::<Upstream>(&aggregate).await?;
        Ok(upstream.map(|upstream| (aggregate, upstream)))
    }

    /// The credential that an upstream has now, for one start's eyes.
    async fn credential(&self, aggregate: &Aggregate, upstream: &KnownUpstream, public_key: [u8; 32]) -> Answered<Option<SealedCredential>> {
        let Some(known) = &upstream.credential else { return Ok(None) };
        let events = self.shared.ledger.history(aggregate, 0).await?;
        let value = events.iter().rev().find_map(|recorded| match &recorded.fact {
            Fact::Upstream(Event::CredentialSet(fact)) if fact.digest == known.digest => fact.secret.plain().map(str::to_owned),
            _ => None,
        });
        let value = value.ok_or(Refused::Unavailable)?;
        let mut once = Once(self.shared.context().random);
        let sealed = PublicKey::from(public_key).seal(&mut once, value.as_bytes()).map_err(|_| Refused::Unavailable)?;
        Ok(Some(SealedCredential { header: known.header.clone(), origin: known.origin.clone(), sealed: hex::encode(sealed) }))
    }
}

/// 256 fresh random bits as the source of one ephemeral key.
struct Once([u8; 32]);

impl RngCore for Once {
    fn next_u32(&mut self) -> u32 {
        let mut bytes = [0; 4];
        self.fill_bytes(&mut bytes);
        u32::from_le_bytes(bytes)
    }

    fn next_u64(&mut self) -> u64 {
        let mut bytes = [0; 8];
        self.fill_bytes(&mut bytes);
        u64::from_le_bytes(bytes)
    }

    fn fill_bytes(&mut self, target: &mut [u8]) {
        // Whoever draws more than once gets a chain of digests, never the same bytes.
        for piece in target.chunks_mut(32) {
            piece.copy_from_slice(&self.0[..piece.len()]);
            self.0 = Sha256::digest(self.0).into();
        }
    }

    fn try_fill_bytes(&mut self, target: &mut [u8]) -> Result<(), Error> {
        self.fill_bytes(target);
        Ok(())
    }
}

impl CryptoRng for Once {}

/// Until when a lease was renewed, by its own incarnation.
pub(crate) async fn renewed_until(
    shared: &Shared,
    pool: &PoolId,
    worker: &WorkerId,
    incarnation: IncarnationId,
    task: TaskId,
    epoch: u64,
) -> Result<Option<Micros>, StoreError> {
    let beat = beat::get(shared.journal(), pool, worker).await?;
    let beat = beat.filter(|beat| beat.incarnation == incarnation && beat.leases.contains(&(task, epoch)));
    Ok(beat.map(|beat| Micros(beat.at.0 + i64::try_from(LEASE_TTL.as_micros()).unwrap_or(0))))
}
