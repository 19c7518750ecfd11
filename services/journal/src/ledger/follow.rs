//! Follows a whole partition: every event, in order, once, and no gap unseen.

use super::{Failure, Ledger};
use crate::journal::{StoreError, Stored};
use crate::vault::VaultError;
use signalbox_domain::setting::Setting;
use signalbox_events::{AccountId, Aggregate, DecodeError, Position, Recorded};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// Events of one batch.
const BATCH: usize = 1000;
/// A batch with fewer events is small.
const FEW: usize = 64;
/// The least distance of two small batches' beginnings.
const PACE: Duration = Duration::from_millis(2);
/// How long a follower waits for a hint before it looks by itself.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// A hint is raised when a message is published, which is before it is stored and synced: look at these distances.
const AFTER_HINT: [u64; 7] = [1, 1, 2, 5, 10, 20, 50];

/// An event of a partition, or bytes that are none.
#[derive(Debug)]
pub struct Entry {
    /// Its place.
    pub position: Position,
    /// Its bytes as stored.
    pub stored: Stored,
    /// What they say, texts unsealed.
    pub event: Result<Recorded, EntryError>,
}

/// Why an entry cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum EntryError {
    /// Not an event.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// Its texts cannot be unsealed.
    #[error(transparent)]
    Vault(#[from] VaultError),
}

/// Why a follower cannot go on now.
#[derive(Debug, thiserror::Error)]
pub enum FollowError {
    /// Messages are missing: something was lost.
    #[error("log_gap: {partition}.{expected} to {partition}.{before} are missing", before = found.saturating_sub(1))]
    Gap {
        /// The partition.
        partition: u16,
        /// The first missing sequence.
        expected: u64,
        /// The next sequence that is there.
        found: u64,
    },
    /// The log cannot be read.
    #[error("the log cannot be read")]
    Store(#[from] StoreError),
    /// The accepted gaps or a key cannot be read.
    #[error("the log cannot be read")]
    Failure(#[from] Box<Failure>),
}

/// A place in a partition that moves on.
pub struct Follower {
    ledger: Arc<Ledger>,
    partition: u16,
    after: u64,
    signal: watch::Receiver<u64>,
    read_at: Instant,
    /// A hint came that the last batch may not have answered.
    expects: bool,
    /// The last batch was small.
    trickles: bool,
    unseals: bool,
}

impl Follower {
    /// A follower of `partition` that starts behind sequence `after`.
    pub fn new(ledger: Arc<Ledger>, partition: u16, after: u64) -> Self {
        let signal = ledger.journal.signal(partition);
        Self { ledger, partition, after, signal, read_at: Instant::now(), expects: false, trickles: false, unseals: true }
    }

    /// The same without the keys: texts stay sealed, for those who do not need them.
    pub fn sealed(ledger: Arc<Ledger>, partition: u16, after: u64) -> Self {
        Self { unseals: false, ..Self::new(ledger, partition, after) }
    }

    /// The next events, or none when a second passed without any. After an error the follower stands where it stood.
    pub async fn next(&mut self) -> Result<Vec<Entry>, FollowError> {
        // Events that come thick and fast are read several at once; who has much to catch up with is not held up.
        if self.trickles {
            tokio::time::sleep(PACE.saturating_sub(self.read_at.elapsed())).await;
        }
        let hinted = self.signal.has_changed().unwrap_or(false);
        self.signal.borrow_and_update();
        self.read_at = Instant::now();
        let mut found = self.read().await?;
        // A hint that came before the read may be about an event that was stored after it.
        let expects = hinted || self.expects;
        self.expects = hinted && !found.is_empty();
        if found.is_empty() && (expects || matches!(tokio::time::timeout(LOOK_EVERY, self.signal.changed()).await, Ok(Ok(())))) {
            for wait in AFTER_HINT {
                tokio::time::sleep(Duration::from_millis(wait)).await;
                found = self.read().await?;
                if !found.is_empty() {
                    break;
                }
            }
        }
        self.trickles = found.len() < FEW;
        let mut entries = Vec::with_capacity(found.len());
        for stored in found {
            entries.push(self.entry(stored).await?);
        }
        self.after = entries.last().map_or(self.after, |entry| entry.position.sequence);
        Ok(entries)
    }

    async fn read(&self) -> Result<Vec<Stored>, FollowError> {
        let (found, _) = self.ledger.journal.read(self.partition, ">", self.after, BATCH).await?;
        let mut last = self.after;
        for (index, stored) in found.iter().enumerate() {
            if stored.sequence != last + 1 && !self.accepted(last + 1).await? {
                // What stands before the gap is whole and goes out first; the next read begins at the gap.
                if index > 0 {
                    return Ok(found.into_iter().take(index).collect());
                }
                return Err(FollowError::Gap { partition: self.partition, expected: last + 1, found: stored.sequence });
            }
            last = stored.sequence;
        }
        Ok(found)
    }

    /// Whether an operator has stated that the loss that begins at `sequence` is known.
    async fn accepted(&self, sequence: u64) -> Result<bool, FollowError> {
        let setting = self.ledger.load::<Setting>(&Aggregate::setting(AccountId::PLATFORM)).await.map_err(Box::new)?;
        Ok(setting.accepted_gaps.contains(&(self.partition, sequence)))
    }

    async fn entry(&self, stored: Stored) -> Result<Entry, FollowError> {
        let position = Position::new(self.partition, stored.sequence);
        let event = match Recorded::decode(stored.sequence, &stored.subject, &stored.payload) {
            Err(error) => Err(error.into()),
            Ok(recorded) if !self.unseals => Ok(recorded),
            Ok(mut recorded) => match self.ledger.unseal(&mut recorded).await {
                Ok(()) => Ok(recorded),
                // A store that does not answer is no property of the event.
                Err(VaultError::Store(error)) => return Err(error.into()),
                Err(error) => Err(error.into()),
            },
        };
        Ok(Entry { position, stored, event })
    }
}
