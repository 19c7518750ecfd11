//! The events of one aggregate, for those who need more than its state.

use super::{Failure, Ledger};
use crate::vault::{self, VaultError};
use signalbox_events::{Aggregate, Recorded, Text};

/// Events of one read.
const BATCH: usize = 1000;

impl Ledger {
    /// The aggregate's events behind `after`, texts unsealed.
    pub async fn history(&self, aggregate: &Aggregate, after: u64) -> Result<Vec<Recorded>, Failure> {
        let mut events = self.raw_history(aggregate, after).await?;
        for event in &mut events {
            self.unseal(event).await?;
        }
        Ok(events)
    }

    /// The aggregate's first event, texts unsealed.
    pub async fn first(&self, aggregate: &Aggregate) -> Result<Option<Recorded>, Failure> {
        let partitions = self.journal.partitions();
        let (subject, partition) = (aggregate.subject(partitions), aggregate.partition(partitions));
        let (found, _) = self.journal.read(partition, &subject, 0, 1).await?;
        let Some(stored) = found.first() else { return Ok(None) };
        let mut recorded = Recorded::decode(stored.sequence, &stored.subject, &stored.payload)
            .map_err(|source| Failure::Decode { aggregate: aggregate.clone(), source })?;
        self.unseal(&mut recorded).await?;
        Ok(Some(recorded))
    }

    /// The aggregate's events behind `after`, texts as stored.
    pub async fn raw_history(&self, aggregate: &Aggregate, after: u64) -> Result<Vec<Recorded>, Failure> {
        let partitions = self.journal.partitions();
        let (subject, partition) = (aggregate.subject(partitions), aggregate.partition(partitions));
        let mut events: Vec<Recorded> = Vec::new();
        loop {
            let from = events.last().map_or(after, |last| last.position.sequence);
            let (found, more) = self.journal.read(partition, &subject, from, BATCH).await?;
            for stored in &found {
                let recorded = Recorded::decode(stored.sequence, &stored.subject, &stored.payload)
                    .map_err(|source| Failure::Decode { aggregate: aggregate.clone(), source })?;
                events.push(recorded);
            }
            if !more || found.is_empty() {
                return Ok(events);
            }
        }
    }

    /// An event that was read sealed, with its texts readable.
    pub async fn open(&self, mut recorded: Recorded) -> Result<Recorded, Failure> {
        self.unseal(&mut recorded).await?;
        Ok(recorded)
    }

    /// Makes an event's texts readable.
    pub(super) async fn unseal(&self, recorded: &mut Recorded) -> Result<(), VaultError> {
        let mut sealed = false;
        recorded.fact.visit_texts(&mut |text| sealed |= matches!(text, Text::Sealed(_)));
        if !sealed {
            return Ok(());
        }
        let key = self.vault.find(self.journal.as_ref(), &recorded.aggregate).await?;
        let key = key.ok_or_else(|| VaultError::MissingKey(recorded.aggregate.to_string()))?;
        vault::unseal(self.journal.as_ref(), &key, &recorded.aggregate, recorded.envelope.version, &mut recorded.fact).await
    }
}
