//! The role: follows the log and signs a checkpoint every 1,000 events or 10 s.

use crate::Error;
use crate::checkpoint::{Checkpoint, Folder, RunningHash};
use chrono::{DateTime, Utc};
use ed25519_dalek::SigningKey;
use signalbox_journal::Journal;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

/// Events between two checkpoints.
const EVENTS: u64 = 1000;
/// Time between two checkpoints, where there is anything new.
const EVERY: Duration = Duration::from_secs(10);
/// Events of one read.
const BATCH: usize = 1000;

/// The role.
#[derive(Clone)]
pub struct Auditor {
    /// The log, opened with a credential that cannot append.
    pub journal: Arc<dyn Journal>,
    /// Where checkpoints are kept.
    pub folder: Folder,
    /// Signs them.
    pub key: SigningKey,
    /// The time.
    pub now: Arc<dyn Fn() -> DateTime<Utc> + Send + Sync>,
}

impl Auditor {
    /// Signs every partition until `stop`, and once more then.
    pub async fn run(self, stop: CancellationToken) {
        let partitions = (0..self.journal.partitions()).map(|partition| {
            let (auditor, stop) = (self.clone(), stop.clone());
            tokio::spawn(async move {
                while !stop.is_cancelled() {
                    if let Err(error) = auditor.follow(partition, &stop).await {
                        tracing::error!(partition, %error, "no checkpoints are signed");
                        tokio::time::sleep(Duration::from_secs(1)).await;
                    }
                }
            })
        });
        for task in partitions.collect::<Vec<_>>() {
            if let Err(error) = task.await
                && error.is_panic()
            {
                std::panic::resume_unwind(error.into_panic());
            }
        }
    }

    async fn follow(&self, partition: u16, stop: &CancellationToken) -> Result<(), Error> {
        let mut place = self.resume(partition).await?;
        let mut signed = place.0;
        let mut since = Instant::now();
        loop {
            let ended = stop.is_cancelled();
            let (found, more) = self.journal.read(partition, ">", place.0, BATCH).await?;
            for stored in &found {
                // A message that is missing changes nothing here: the hash covers the sequences, so it is never signed
                // as if it were whole, and `verify` names the gap.
                place = (stored.sequence, place.1.with(stored));
                if place.0 - signed >= EVENTS {
                    self.sign(partition, place)?;
                    (signed, since) = (place.0, Instant::now());
                }
            }
            if place.0 > signed && (ended || since.elapsed() >= EVERY) && !more {
                self.sign(partition, place)?;
                signed = place.0;
            }
            if signed == place.0 {
                since = Instant::now();
            }
            if ended {
                return Ok(());
            }
            if found.is_empty() {
                tokio::select! {
                    () = stop.cancelled() => {}
                    () = tokio::time::sleep(Duration::from_secs(1)) => {}
                }
            }
        }
    }

    fn sign(&self, partition: u16, (sequence, hash): (u64, RunningHash)) -> Result<(), Error> {
        self.folder.keep(&Checkpoint::sign(&self.key, partition, sequence, hash, (self.now)()))
    }

    /// The last checkpoint, where the log still is what it says; it is checked by reading, never believed. A log that
    /// was rewritten must not get new signatures on top.
    async fn resume(&self, partition: u16) -> Result<(u64, RunningHash), Error> {
        let checkpoints = self.folder.read(partition)?;
        let Some(last) = checkpoints.iter().rev().find(|checkpoint| checkpoint.is_signed_by(&self.key.verifying_key())) else {
            return Ok((0, RunningHash::default()));
        };
        let mut place = (0, RunningHash::default());
        while place.0 < last.sequence {
            let (found, _) = self.journal.read(partition, ">", place.0, BATCH).await?;
            if found.is_empty() {
                break;
            }
            for stored in found.iter().take_while(|stored| stored.sequence <= last.sequence) {
                place = (stored.sequence, place.1.with(stored));
            }
            if found.last().is_some_and(|stored| stored.sequence > last.sequence) {
                break;
            }
        }
        if hex::encode(place.1.0) == last.hash {
            return Ok(place);
        }
        let reason = format!("the log up to {partition}.{} is not what was signed; run `signalbox audit verify`", last.sequence);
        Err(Error::Checkpoint { file: format!("{partition}-{:020}.json", last.sequence), reason })
    }
}
