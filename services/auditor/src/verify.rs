//! Verifies the whole log: no gap, every chain whole, every checkpoint true.

use crate::Error;
use crate::checkpoint::{Folder, RunningHash};
use ed25519_dalek::VerifyingKey;
use serde::Serialize;
use signalbox_events::envelope::{chain_next, chain_start};
use signalbox_events::setting;
use signalbox_events::{Aggregate, Fact, Position, Recorded};
use signalbox_journal::{Journal, Stored};
use std::collections::{HashMap, HashSet};

/// Events of one read.
const BATCH: usize = 1000;

/// Something that is not as it was stated.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The first bad place.
    pub position: String,
    /// A stable word: `gap`, `unreadable`, `chain_broken`, `version_broken`, `checkpoint_mismatch`, `checkpoint_forged`,
    /// `tail_missing`.
    pub code: &'static str,
    /// What it means.
    pub detail: String,
}

/// What the verification came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// Whether nothing was found.
    pub ok: bool,
    /// Events read.
    pub events: u64,
    /// Aggregates seen.
    pub aggregates: u64,
    /// Checkpoints compared.
    pub checkpoints: u64,
    /// Events that no checkpoint covers yet: a change among them could be hidden by whoever rewrites the chain too.
    pub uncovered: u64,
    /// Losses that an operator has stated to be known.
    pub accepted_gaps: u64,
    /// What was found, in the order of the log; the first is the first bad place.
    pub findings: Vec<Finding>,
}

/// Where an aggregate's chain stands.
struct Chain {
    version: u64,
    next: [u8; 32],
    sequence: u64,
}

/// A finding, unless a loss that is known explains it.
struct Suspicion {
    sequence: u64,
    /// The sequences between which such a loss would have to lie.
    explained_by: Option<(u64, u64)>,
    finding: Finding,
}

struct Verification {
    partition: u16,
    hash: RunningHash,
    chains: HashMap<String, Chain>,
    findings: Vec<Suspicion>,
    accepted: HashSet<(u16, u64)>,
    events: u64,
}

/// Reads every partition and compares it with its checkpoints.
pub async fn verify(journal: &dyn Journal, folder: &Folder, key: &VerifyingKey) -> Result<Verdict, Error> {
    let mut verdict = Verdict { ok: true, events: 0, aggregates: 0, checkpoints: 0, uncovered: 0, accepted_gaps: 0, findings: vec![] };
    let mut accepted = HashSet::new();
    let mut parts = Vec::new();
    for partition in 0..journal.partitions() {
        let (part, checkpoints, uncovered) = partition_of(journal, folder, key, partition).await?;
        verdict.events += part.events;
        verdict.aggregates += part.chains.len() as u64;
        verdict.checkpoints += checkpoints;
        verdict.uncovered += uncovered;
        accepted.extend(part.accepted.iter().copied());
        parts.push(part);
    }
    for part in parts {
        let gaps: Vec<u64> = accepted.iter().filter(|(partition, _)| *partition == part.partition).map(|(_, sequence)| *sequence).collect();
        for Suspicion { explained_by, finding, .. } in part.findings {
            let known = explained_by.is_some_and(|(after, before)| gaps.iter().any(|gap| (after + 1..=before).contains(gap)));
            if !known {
                verdict.findings.push(finding);
            } else if finding.code == "gap" {
                verdict.accepted_gaps += 1;
            }
        }
    }
    verdict.ok = verdict.findings.is_empty();
    Ok(verdict)
}

async fn partition_of(journal: &dyn Journal, folder: &Folder, key: &VerifyingKey, partition: u16) -> Result<(Verification, u64, u64), Error> {
    let mut part =
        Verification { partition, hash: RunningHash::default(), chains: HashMap::new(), findings: vec![], accepted: HashSet::new(), events: 0 };
    let mut checkpoints = Vec::new();
    for checkpoint in folder.read(partition)? {
        if checkpoint.is_signed_by(key) && checkpoint.partition == partition {
            checkpoints.push(checkpoint);
        } else {
            part.find(checkpoint.sequence, None, "checkpoint_forged", "a checkpoint is not signed by the auditor's key".to_owned());
        }
    }
    let compared = checkpoints.len() as u64;
    let covered = checkpoints.last().map_or(0, |last| last.sequence);
    let mut checkpoints = checkpoints.into_iter().peekable();
    let mut last = 0;
    let mut true_until = 0;
    let mut mismatched = false;
    loop {
        let (found, more) = journal.read(partition, ">", last, BATCH).await?;
        for stored in &found {
            if stored.sequence != last + 1 {
                part.find(last + 1, Some((last, stored.sequence)), "gap", format!("{} messages are missing", stored.sequence - last - 1));
            }
            last = stored.sequence;
            part.take(stored);
            while let Some(checkpoint) = checkpoints.next_if(|checkpoint| checkpoint.sequence <= stored.sequence) {
                if checkpoint.sequence == stored.sequence && checkpoint.hash == hex::encode(part.hash.0) {
                    true_until = checkpoint.sequence;
                } else if !mismatched {
                    mismatched = true;
                    let detail = format!("the log between {partition}.{true_until} and {partition}.{} is not what was signed", checkpoint.sequence);
                    part.find(true_until + 1, None, "checkpoint_mismatch", detail);
                }
            }
        }
        if !more {
            break;
        }
    }
    if covered > last {
        part.find(last + 1, None, "tail_missing", format!("a checkpoint covers {partition}.{covered}, the log ends at {partition}.{last}"));
    }
    part.findings.sort_by_key(|suspicion| suspicion.sequence);
    Ok((part, compared, last.saturating_sub(covered)))
}

impl Verification {
    fn find(&mut self, sequence: u64, explained_by: Option<(u64, u64)>, code: &'static str, detail: String) {
        let position = Position::new(self.partition, sequence).to_string();
        self.findings.push(Suspicion { sequence, explained_by, finding: Finding { position, code, detail } });
    }

    fn take(&mut self, stored: &Stored) {
        self.events += 1;
        self.hash = self.hash.with(stored);
        let sequence = stored.sequence;
        let recorded = match Recorded::decode(sequence, &stored.subject, &stored.payload) {
            Ok(recorded) => recorded,
            Err(error) => {
                // The chain goes on over the bytes, whatever they say.
                let detail = format!("{}: {error}", stored.subject);
                self.find(sequence, None, "unreadable", detail);
                if let Some(chain) = self.chains.get_mut(&stored.subject) {
                    *chain = Chain { version: chain.version + 1, next: chain_next(&stored.payload), sequence };
                }
                return;
            }
        };
        if let Fact::Setting(setting::Event::GapAccepted(fact)) = &recorded.fact
            && recorded.aggregate == Aggregate::setting(signalbox_events::AccountId::PLATFORM)
        {
            self.accepted.insert((fact.partition, fact.sequence));
        }
        let envelope = &recorded.envelope;
        let known = self.chains.get(&stored.subject);
        let (version, prev, before) = known.map_or((0, chain_start(&stored.subject), 0), |chain| (chain.version, chain.next, chain.sequence));
        let between = Some((before, sequence));
        if envelope.version != version + 1 {
            let detail = format!("{} goes from version {version} to {}", recorded.aggregate, envelope.version);
            self.find(sequence, between, "version_broken", detail);
        } else if envelope.prev != prev {
            let detail = format!("{} does not follow from its event before", recorded.aggregate);
            self.find(sequence, between, "chain_broken", detail);
        }
        self.chains.insert(stored.subject.clone(), Chain { version: envelope.version, next: chain_next(&stored.payload), sequence });
    }
}
