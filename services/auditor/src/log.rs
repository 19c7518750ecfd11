//! Shows events as an auditor reads them: from the log itself, texts sealed.

use crate::Error;
use chrono::{DateTime, Utc};
use serde::Serialize;
use serde_json::Value;
use signalbox_events::{Aggregate, Noun, Recorded, json};
use signalbox_journal::Journal;

/// Events of one read.
const BATCH: usize = 1000;

/// Which events.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// Of one aggregate, by the end of `<account>.<noun>.<id>`: an id is enough.
    pub aggregate: Option<String>,
    /// Of one noun.
    pub noun: Option<Noun>,
    /// Of one account.
    pub account: Option<String>,
    /// Not before.
    pub since: Option<DateTime<Utc>>,
    /// Show the stored bytes too, hex.
    pub raw: bool,
}

/// An event, or bytes that are none.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Line {
    /// Its place.
    pub position: String,
    /// Its subject.
    pub subject: String,
    /// Its type; empty for bytes that are no event.
    #[serde(rename = "type")]
    pub kind: String,
    /// Its count within its aggregate.
    pub version: u64,
    /// When it was decided.
    pub at: Option<DateTime<Utc>>,
    /// Who acted.
    pub actor: String,
    /// What it states.
    pub data: Value,
    /// The stored bytes, hex.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub raw: Option<String>,
}

/// Calls `show` for each event that the filter lets pass, in the order of the log.
pub async fn log(journal: &dyn Journal, filter: &Filter, show: &mut dyn FnMut(Line)) -> Result<(), Error> {
    for partition in 0..journal.partitions() {
        let mut last = 0;
        loop {
            let (found, more) = journal.read(partition, ">", last, BATCH).await?;
            for stored in &found {
                last = stored.sequence;
                let recorded = Recorded::decode(stored.sequence, &stored.subject, &stored.payload);
                if !passes(filter, &stored.subject, recorded.as_ref().ok()) {
                    continue;
                }
                let raw = filter.raw.then(|| hex::encode(&stored.payload));
                let position = format!("{partition}.{}", stored.sequence);
                show(match recorded {
                    Ok(event) => Line {
                        position,
                        subject: stored.subject.clone(),
                        data: json::data(&event.envelope.data).unwrap_or(Value::Null),
                        kind: event.envelope.kind,
                        version: event.envelope.version,
                        at: Some(event.envelope.at.into()),
                        actor: event.envelope.actor,
                        raw,
                    },
                    Err(error) => Line {
                        position,
                        subject: stored.subject.clone(),
                        kind: String::new(),
                        version: 0,
                        at: None,
                        actor: String::new(),
                        data: error.to_string().into(),
                        raw,
                    },
                });
            }
            if !more {
                break;
            }
        }
    }
    Ok(())
}

fn passes(filter: &Filter, subject: &str, event: Option<&Recorded>) -> bool {
    let aggregate = Aggregate::parse(subject).ok().map(|(_, aggregate)| aggregate);
    let of = |wanted: &str| aggregate.as_ref().is_some_and(|aggregate| aggregate.id == wanted || aggregate.to_string() == wanted);
    filter.aggregate.as_deref().is_none_or(of)
        && filter.noun.is_none_or(|noun| aggregate.as_ref().is_some_and(|aggregate| aggregate.noun == noun))
        && filter.account.as_deref().is_none_or(|account| aggregate.as_ref().is_some_and(|aggregate| aggregate.account.to_string() == account))
        && filter.since.is_none_or(|since| event.is_some_and(|event| DateTime::<Utc>::from(event.envelope.at) >= since))
}
