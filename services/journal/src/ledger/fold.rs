//! An aggregate's state in memory: folded from its events, checked against its hash chain.

use super::{Failure, Ledger};
use crate::journal::{Store, Stored};
use serde::{Deserialize, Serialize};
use signalbox_domain::Decider;
use signalbox_events::envelope::{chain_next, chain_start};
use signalbox_events::{Aggregate, Recorded};
use std::any::Any;
use std::collections::VecDeque;
use std::time::Instant;
use uuid::Uuid;

/// Command ids that an aggregate remembers; older ones are read from its subject.
pub(super) const REMEMBERED: usize = 64;
/// Events between two snapshots; also the events that a cold load reads before it asks for one.
const SNAPSHOT_EVERY: u64 = 128;
/// Events of one read.
const BATCH: usize = 1000;

/// A place in the cache: empty, or some noun's [`Folded`].
#[derive(Default)]
pub(super) struct Slot {
    /// The state.
    pub folded: Option<Box<dyn Any + Send>>,
    /// When it was known to be the latest.
    pub at: Option<Instant>,
}

impl Slot {
    /// Keeps a state that is the latest, as far as this process knows.
    pub fn keep<D: Decider>(&mut self, folded: Box<Folded<D>>) {
        self.folded = Some(folded);
        self.at = Some(Instant::now());
    }
}

/// An aggregate as folded up to `sequence`.
#[derive(Serialize, Deserialize)]
#[serde(bound = "")]
pub(super) struct Folded<D: Decider> {
    /// What the rules see.
    pub state: D::State,
    /// Events so far.
    pub version: u64,
    /// The last event's sequence, 0 for none: the next append's expectation.
    pub sequence: u64,
    /// The next event's `prev`.
    pub chain: [u8; 32],
    /// The last command ids with their events' sequences.
    pub commands: VecDeque<(Uuid, u64)>,
}

/// A folded state on disk: disposable, used only by the build that wrote it, never by auditors.
#[derive(Deserialize)]
#[serde(bound = "")]
struct Snapshot<D: Decider> {
    fold: String,
    folded: Folded<D>,
}

/// The same on its way out.
#[derive(Serialize)]
#[serde(bound = "")]
struct SnapshotRef<'a, D: Decider> {
    fold: String,
    folded: &'a Folded<D>,
}

fn fold_code<D: Decider>() -> String {
    format!("{}/{}/{}", D::NOUN, D::FOLD, env!("CARGO_PKG_VERSION"))
}

impl<D: Decider> Folded<D> {
    pub(super) fn empty(subject: &str) -> Self {
        Self { state: D::State::default(), version: 0, sequence: 0, chain: chain_start(subject), commands: VecDeque::new() }
    }

    /// Takes in one stored event.
    fn take(&mut self, aggregate: &Aggregate, stored: &Stored) -> Result<(), Failure> {
        let recorded = Recorded::decode(stored.sequence, &stored.subject, &stored.payload)
            .map_err(|source| Failure::Decode { aggregate: aggregate.clone(), source })?;
        let position = recorded.position;
        let whole = recorded.envelope.version == self.version + 1 && recorded.envelope.prev == self.chain;
        if !whole || recorded.aggregate != *aggregate {
            return Err(Failure::Broken { aggregate: aggregate.clone(), position });
        }
        let event = D::event(&recorded.fact).ok_or_else(|| Failure::UnknownFact { aggregate: aggregate.clone(), position })?;
        self.advance(event, recorded.envelope.command_id, stored.sequence, &stored.payload);
        Ok(())
    }

    /// Moves on by an event whose bytes are `payload`.
    pub(super) fn advance(&mut self, event: &D::Event, command: Uuid, sequence: u64, payload: &[u8]) {
        D::evolve(&mut self.state, event);
        self.version += 1;
        self.sequence = sequence;
        self.chain = chain_next(payload);
        if self.commands.len() == REMEMBERED {
            self.commands.pop_front();
        }
        self.commands.push_back((command, sequence));
    }

    /// Where the command's event stands, if the aggregate remembers it.
    pub(super) fn remembers(&self, command: Uuid) -> Option<u64> {
        self.commands.iter().find(|(id, _)| *id == command).map(|(_, sequence)| *sequence)
    }
}

impl Ledger {
    /// The folded state out of a slot, or a fresh one brought up to date with the log. The flag says whether it was
    /// just read.
    pub(super) async fn folded<D: Decider>(&self, slot: &mut Slot, aggregate: &Aggregate) -> Result<(Box<Folded<D>>, bool), Failure> {
        if let Some(folded) = slot.folded.take().and_then(|any| any.downcast::<Folded<D>>().ok()) {
            return Ok((folded, false));
        }
        let subject = aggregate.subject(self.journal.partitions());
        let mut folded = Box::new(Folded::<D>::empty(&subject));
        let more = self.read_some(&mut folded, aggregate, SNAPSHOT_EVERY as usize).await?;
        if more {
            if let Some(snapshot) = self.snapshot::<D>(aggregate).await.filter(|snapshot| snapshot.sequence > folded.sequence) {
                *folded = snapshot;
            }
            self.catch_up(&mut folded, aggregate).await?;
        }
        Ok((folded, true))
    }

    /// Reads what the log holds beyond `folded`.
    pub(super) async fn catch_up<D: Decider>(&self, folded: &mut Folded<D>, aggregate: &Aggregate) -> Result<(), Failure> {
        while self.read_some(folded, aggregate, BATCH).await? {}
        Ok(())
    }

    async fn read_some<D: Decider>(&self, folded: &mut Folded<D>, aggregate: &Aggregate, most: usize) -> Result<bool, Failure> {
        let partitions = self.journal.partitions();
        let (subject, partition) = (aggregate.subject(partitions), aggregate.partition(partitions));
        let (found, more) = self.journal.read(partition, &subject, folded.sequence, most).await?;
        for stored in &found {
            folded.take(aggregate, stored)?;
        }
        Ok(more)
    }

    /// A snapshot is an optimisation: whatever is wrong with it, the log is read instead.
    async fn snapshot<D: Decider>(&self, aggregate: &Aggregate) -> Option<Folded<D>> {
        let bytes = self.journal.get(Store::Snapshots, &aggregate.to_string()).await.ok().flatten()?;
        let snapshot: Snapshot<D> = rmp_serde::from_slice(&bytes).ok()?;
        (snapshot.fold == fold_code::<D>()).then_some(snapshot.folded)
    }

    /// Writes a snapshot every so often, beside the command that came across it.
    pub(super) fn maybe_snapshot<D: Decider>(&self, folded: &Folded<D>, aggregate: &Aggregate) {
        if folded.version == 0 || !folded.version.is_multiple_of(SNAPSHOT_EVERY) {
            return;
        }
        let snapshot = SnapshotRef { fold: fold_code::<D>(), folded };
        let (journal, key) = (self.journal.clone(), aggregate.to_string());
        if let Ok(bytes) = rmp_serde::to_vec_named(&snapshot) {
            tokio::spawn(async move {
                if let Err(error) = journal.put(Store::Snapshots, &key, bytes.into()).await {
                    tracing::debug!(%error, "a snapshot was not written");
                }
            });
        }
    }
}
