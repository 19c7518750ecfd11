//! Takes a batch into one view: at once where all goes well, else event by event, leaving out what cannot be taken.

use chrono::{DateTime, Utc};
use signalbox_events::{Fact, Recorded};
use signalbox_journal::Entry;
use signalbox_projections::checkpoint::{self, Parked};
use signalbox_projections::sqlx::{self, PgPool};
use signalbox_projections::{ApplyError, Projection};
use std::collections::HashSet;
use std::time::Duration;

/// Tries at one event before it is parked, the one within its batch included.
const MOST_TRIES: i32 = 5;
/// Events that are taken one by one after an end that was not orderly.
const CAREFUL_EVENTS: u64 = 1000;

/// A view on one partition as its reader holds it.
pub(crate) struct ViewReader {
    pub view: &'static dyn Projection,
    pub id: String,
    pub partition: u16,
    /// Where its checkpoint stands.
    pub position: u64,
    /// Up to where it has seen the log: what lies between held nothing for it.
    pub seen: u64,
    /// Aggregates of which something is parked: what follows of them is parked too.
    pub parked: HashSet<String>,
    /// Count of parked events that this reader knows of.
    pub parked_count: u64,
    /// Up to this sequence each event is taken alone, with its tries counted beforehand.
    careful_until: u64,
}

/// Why a batch was not taken in.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BatchError {
    /// PostgreSQL does not answer as it should: nothing is wrong with the events.
    #[error("the database does not answer")]
    Database(#[from] sqlx::Error),
    /// Another projector moved the checkpoint.
    #[error("another projector is at work on {0}")]
    Fenced(String),
}

impl ViewReader {
    pub fn new(view: &'static dyn Projection, partition: u16, position: u64, unclean_starts: i32, parked: Vec<String>) -> Self {
        let careful_until = if unclean_starts > 0 { position + CAREFUL_EVENTS } else { 0 };
        let parked_count = parked.len() as u64;
        Self { view, id: view.id(), partition, position, seen: position, parked: parked.into_iter().collect(), parked_count, careful_until }
    }

    /// Takes in what of `entries` is not in the view yet.
    pub async fn take(&mut self, db: &PgPool, entries: &[Entry], now: DateTime<Utc>) -> Result<u64, BatchError> {
        let fresh: Vec<&Entry> = entries.iter().filter(|entry| entry.position.sequence > self.seen).collect();
        let Some(last) = fresh.last() else { return Ok(0) };
        let last = last.position.sequence;
        if !fresh.iter().any(|entry| self.reads(entry).is_some() || self.parks(entry).is_some()) {
            // A commit for nothing would cost as much as one for something: the checkpoint follows in a moment.
            self.seen = last;
            return Ok(0);
        }
        if self.seen >= self.careful_until && !fresh.iter().any(|entry| self.parks(entry).is_some()) {
            let events: Vec<&Recorded> = fresh.iter().filter_map(|entry| self.reads(entry)).collect();
            match self.transaction(db, &events, last).await {
                Ok(()) => return Ok(events.len() as u64),
                Err(Failed::Batch(error)) => return Err(error),
                Err(Failed::Apply(error)) => {
                    tracing::warn!(view = self.id, %error, "a batch failed, its events are taken one by one");
                    self.careful_until = last;
                }
            }
        }
        let mut applied = 0;
        for entry in fresh {
            applied += self.take_one(db, entry, now).await?;
        }
        Ok(applied)
    }

    /// The event of an entry, where this view reads it.
    fn reads<'a>(&self, entry: &'a Entry) -> Option<&'a Recorded> {
        entry.event.as_ref().ok().filter(|event| self.view.nouns().contains(&event.aggregate.noun))
    }

    /// Why an entry cannot even be tried, with its aggregate.
    fn parks(&self, entry: &Entry) -> Option<(String, String)> {
        let subject = &entry.stored.subject;
        // What stands on no subject of ours concerns every view: who knows what it was.
        let aggregate = signalbox_events::Aggregate::parse(subject).ok().map(|(_, aggregate)| aggregate);
        if aggregate.as_ref().is_some_and(|aggregate| !self.view.nouns().contains(&aggregate.noun)) {
            return None;
        }
        let name = aggregate.map_or_else(|| subject.clone(), |aggregate| aggregate.to_string());
        let reason = match &entry.event {
            Err(error) => format!("unreadable: {error}"),
            Ok(event) if event.fact == Fact::Unknown => format!("unknown type {} version {}", event.envelope.kind, event.envelope.schema_version),
            Ok(_) if self.parked.contains(&name) => "an earlier event of the same aggregate is parked".to_owned(),
            Ok(_) => return None,
        };
        Some((name, reason))
    }

    async fn take_one(&mut self, db: &PgPool, entry: &Entry, now: DateTime<Utc>) -> Result<u64, BatchError> {
        let sequence = entry.position.sequence;
        if let Some((aggregate, reason)) = self.parks(entry) {
            self.park(db, sequence, aggregate, reason, now).await?;
            return Ok(0);
        }
        let Some(event) = self.reads(entry) else {
            return match self.transaction(db, &[], sequence).await {
                Ok(()) => Ok(0),
                Err(Failed::Batch(error)) => Err(error),
                Err(Failed::Apply(_)) => Ok(0),
            };
        };
        let mut pause = Duration::from_millis(50);
        loop {
            // The try within the batch, or the one that ended the process, was the first.
            let tries = 1 + checkpoint::count_try(db, &self.id, self.partition, sequence.cast_signed()).await?;
            if tries > MOST_TRIES {
                // Each try has ended the process before it could fail: there must not be another.
                self.park(db, sequence, event.aggregate.to_string(), format!("{MOST_TRIES} tries ended the process"), now).await?;
                return Ok(0);
            }
            let error = match self.transaction(db, &[event], sequence).await {
                Ok(()) => return Ok(1),
                Err(Failed::Batch(error)) => return Err(error),
                Err(Failed::Apply(error)) => error,
            };
            if tries >= MOST_TRIES {
                self.park(db, sequence, event.aggregate.to_string(), format!("{MOST_TRIES} tries failed: {error}"), now).await?;
                return Ok(0);
            }
            tokio::time::sleep(pause).await;
            pause *= 2;
        }
    }

    /// Moves the checkpoints of views that have seen more than they had to take in, all at once.
    pub async fn catch_up(views: &mut [Self], db: &PgPool) -> Result<(), BatchError> {
        let behind: Vec<&mut Self> = views.iter_mut().filter(|view| view.seen > view.position).collect();
        let Some(partition) = behind.first().map(|view| view.partition) else { return Ok(()) };
        let moves: Vec<checkpoint::Move> = behind
            .iter()
            .map(|view| checkpoint::Move { view: view.id.clone(), from: view.position.cast_signed(), to: view.seen.cast_signed() })
            .collect();
        if !checkpoint::advance_all(db, partition, &moves).await? {
            return Err(BatchError::Fenced(moves.into_iter().map(|moved| moved.view).collect::<Vec<_>>().join(", ")));
        }
        for view in behind {
            view.position = view.seen;
        }
        Ok(())
    }

    /// Rows and checkpoint in one transaction: exactly once.
    async fn transaction(&mut self, db: &PgPool, events: &[&Recorded], to: u64) -> Result<(), Failed> {
        let mut tx = db.begin().await?;
        // A cached plan for a table that was new and empty is four times slower.
        sqlx::query("SET LOCAL plan_cache_mode = force_custom_plan").execute(&mut *tx).await?;
        if !events.is_empty() {
            match self.view.apply(&mut tx, events).await {
                Ok(()) => {}
                Err(ApplyError::Database(error)) if !is_of_the_event(&error) => return Err(error.into()),
                Err(error) => return Err(Failed::Apply(error)),
            }
        }
        if !checkpoint::advance(&mut tx, &self.id, self.partition, self.position.cast_signed(), to.cast_signed()).await? {
            return Err(Failed::Batch(BatchError::Fenced(self.id.clone())));
        }
        if self.careful_until >= to {
            checkpoint::forget_tries(&mut tx, &self.id, self.partition, to.cast_signed()).await?;
        }
        tx.commit().await?;
        (self.position, self.seen) = (to, to);
        Ok(())
    }

    async fn park(&mut self, db: &PgPool, sequence: u64, aggregate: String, reason: String, now: DateTime<Utc>) -> Result<(), BatchError> {
        tracing::error!(view = self.id, partition = self.partition, sequence, reason, "an event is parked");
        let mut tx = db.begin().await?;
        let (from, to) = (self.position.cast_signed(), sequence.cast_signed());
        if !checkpoint::advance(&mut tx, &self.id, self.partition, from, to).await? {
            return Err(BatchError::Fenced(self.id.clone()));
        }
        let parked =
            Parked { view: self.id.clone(), partition: self.partition.into(), sequence: to, aggregate: aggregate.clone(), reason, parked_at: now };
        checkpoint::park(&mut tx, &parked).await?;
        checkpoint::forget_tries(&mut tx, &self.id, self.partition, to).await?;
        tx.commit().await?;
        (self.position, self.seen) = (sequence, sequence);
        self.parked.insert(aggregate);
        self.parked_count += 1;
        Ok(())
    }
}

enum Failed {
    Batch(BatchError),
    Apply(ApplyError),
}

impl From<sqlx::Error> for Failed {
    fn from(error: sqlx::Error) -> Self {
        Self::Batch(error.into())
    }
}

/// Whether the database refused the values, rather than being in trouble itself: SQLSTATE classes 22 (data), 23
/// (constraints) and 54 (limits).
fn is_of_the_event(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(|error| error.code());
    code.is_some_and(|code| ["22", "23", "54"].iter().any(|class| code.starts_with(class)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use futures_util::future::BoxFuture;
    use signalbox_events::setting::{Event, InferenceSwitched};
    use signalbox_events::{AccountId, Aggregate, Envelope, Micros, Noun, Position};
    use signalbox_journal::Stored;
    use signalbox_projections::sqlx::postgres::PgConnectOptions;
    use signalbox_projections::sqlx::{Connection, Executor, PgConnection};
    use std::str::FromStr;
    use std::sync::atomic::{AtomicU32, Ordering};
    use uuid::Uuid;

    /// The event that ends the process.
    const DEADLY: u64 = 3;

    /// A view that never comes back from one event, as a process that dies in it.
    struct Deadly;

    static TRIES: AtomicU32 = AtomicU32::new(0);

    impl Projection for Deadly {
        fn name(&self) -> &'static str {
            "deadly"
        }
        fn version(&self) -> u32 {
            1
        }
        fn nouns(&self) -> &'static [Noun] {
            &[Noun::Setting]
        }
        fn tables(&self) -> &'static [(&'static str, &'static str)] {
            &[]
        }
        fn ddl(&self) -> &'static str {
            ""
        }
        fn apply<'a>(&'a self, _: &'a mut PgConnection, events: &'a [&'a Recorded]) -> BoxFuture<'a, Result<(), ApplyError>> {
            let deadly = events.iter().any(|event| event.position.sequence == DEADLY);
            async move {
                if deadly {
                    TRIES.fetch_add(1, Ordering::SeqCst);
                    std::future::pending::<()>().await;
                }
                Ok(())
            }
            .boxed()
        }
    }

    fn entry(sequence: u64) -> Entry {
        let aggregate = Aggregate::setting(AccountId(Uuid::from_u128(u128::from(sequence))));
        let envelope = Envelope {
            format: 1,
            event_id: Uuid::nil(),
            command_id: Uuid::nil(),
            version: 1,
            at: Micros(1),
            actor: String::new(),
            on_behalf_of: None,
            correlation_id: Uuid::nil(),
            causation_id: None,
            traceparent: None,
            prev: [0; 32],
            key_id: None,
            kind: "setting.inference_switched".to_owned(),
            schema_version: 1,
            data: vec![],
        };
        let stored = Stored { sequence, subject: aggregate.subject(1), payload: Default::default() };
        let fact = Event::from(InferenceSwitched { enabled: true }).into();
        let position = Position::new(0, sequence);
        Entry { position, stored, event: Ok(Recorded { position, aggregate, envelope, fact }) }
    }

    async fn database() -> PgPool {
        let url = tokio::task::spawn_blocking(signalbox_embedded::testing::postgres_url).await.unwrap();
        PgConnection::connect(&url).await.unwrap().execute("CREATE DATABASE deadly").await.unwrap();
        let options = PgConnectOptions::from_str(&url.replace("/postgres", "/deadly")).unwrap();
        signalbox_projections::up(&options).await.unwrap();
        PgPool::connect_with(options).await.unwrap()
    }

    #[tokio::test]
    async fn an_event_that_ends_the_process_is_parked_after_five_tries() {
        let db = database().await;
        let entries: Vec<Entry> = (1..=6).map(entry).collect();
        let mut starts = 0;
        let position = loop {
            starts += 1;
            assert!(starts < 20, "for ever");
            let checkpoint = checkpoint::open(&db, "deadly_v1", 0, DateTime::UNIX_EPOCH).await.unwrap();
            let parked = checkpoint::parked_aggregates(&db, "deadly_v1", 0).await.unwrap();
            let mut view = ViewReader::new(&Deadly, 0, checkpoint.position.unsigned_abs(), checkpoint.unclean_starts, parked);
            // The process dies: what it was doing is dropped where it stands.
            let taken = tokio::time::timeout(Duration::from_millis(500), view.take(&db, &entries, DateTime::UNIX_EPOCH)).await;
            if let Ok(taken) = taken {
                taken.unwrap();
                break view.position;
            }
        };
        assert_eq!((position, TRIES.load(Ordering::SeqCst)), (6, 5));
        let parked = checkpoint::parked(&db, 10).await.unwrap();
        assert_eq!(parked.iter().map(|parked| (parked.sequence, parked.reason.as_str())).collect::<Vec<_>>(), [(3, "5 tries ended the process")]);
    }
}
