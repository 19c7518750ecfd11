//! One reader a partition: reads the unfiltered log and feeds every view of it.

use crate::batch::{BatchError, ViewReader};
use crate::status::Status;
use signalbox_journal::{FollowError, Follower, Ledger};
use signalbox_projections::sqlx::{self, Connection, PgConnection, PgPool};
use signalbox_projections::{VIEWS, checkpoint};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

/// First half of the advisory lock's key; the second is the partition.
const LOCK: i32 = 0x5167_6e61;
/// Distance at which checkpoints of views follow that had nothing to take in.
const CATCH_UP_EVERY: Duration = Duration::from_millis(250);
/// Pause after a failure.
const PAUSE: Duration = Duration::from_millis(500);

/// The role.
#[derive(Clone)]
pub struct Projector {
    /// The log.
    pub ledger: Arc<Ledger>,
    /// The views' database.
    pub db: PgPool,
    /// What it is doing.
    pub status: Status,
}

/// Why a reader stopped for now.
#[derive(Debug, thiserror::Error)]
pub enum Stopped {
    /// The log cannot be read further.
    #[error(transparent)]
    Follow(#[from] FollowError),
    /// The log is shorter than a checkpoint, or is another one.
    #[error("log_regressed: {view} has come to {partition}.{position}, the log ends at {partition}.{tail}{other}")]
    Regressed {
        /// The view.
        view: String,
        /// The partition.
        partition: u16,
        /// The view's position.
        position: u64,
        /// The log's last sequence.
        tail: u64,
        /// Whether it is another log altogether.
        other: &'static str,
    },
    /// The database does not answer.
    #[error("the database does not answer")]
    Database(#[from] sqlx::Error),
    /// The log does not answer.
    #[error("the log does not answer")]
    Store(#[from] signalbox_journal::StoreError),
    /// Another projector works on the partition.
    #[error("another projector is at work")]
    Fenced,
}

impl From<BatchError> for Stopped {
    fn from(error: BatchError) -> Self {
        match error {
            BatchError::Database(error) => Self::Database(error),
            BatchError::Fenced(_) => Self::Fenced,
        }
    }
}

impl Projector {
    /// Runs every partition's reader until `stop`.
    pub async fn run(self, stop: CancellationToken) {
        let readers = (0..self.ledger.journal().partitions()).map(|partition| {
            let (projector, stop) = (self.clone(), stop.clone());
            tokio::spawn(async move { projector.keep_reading(partition, stop).await })
        });
        for reader in readers.collect::<Vec<_>>() {
            if let Err(error) = reader.await
                && error.is_panic()
            {
                std::panic::resume_unwind(error.into_panic());
            }
        }
    }

    async fn keep_reading(&self, partition: u16, stop: CancellationToken) {
        let mut said = String::new();
        while !stop.is_cancelled() {
            let Err(error) = self.read(partition, &stop).await else { return };
            let chain = chain(&error);
            // The same trouble is said once, not twice a second for hours.
            if !matches!(error, Stopped::Fenced) && said != chain {
                tracing::error!(partition, error = chain, "the reader has stopped and tries again until it can go on");
                said.clone_from(&chain);
            }
            self.status.update(partition, |status| {
                status.active = false;
                status.halted = Some(chain);
            });
            tokio::select! {
                () = stop.cancelled() => {}
                () = tokio::time::sleep(PAUSE) => {}
            }
        }
    }

    /// Reads until `stop` or a failure. A connection of its own holds the partition's lock: whoever loses the
    /// connection loses the lock, and the fenced checkpoints keep the loser from doing harm meanwhile.
    async fn read(&self, partition: u16, stop: &CancellationToken) -> Result<(), Stopped> {
        let mut lock = PgConnection::connect_with(&self.db.connect_options()).await?;
        let sql = "SELECT pg_try_advisory_lock($1, $2)";
        if !sqlx::query_scalar::<_, bool>(sql).bind(LOCK).bind(i32::from(partition)).fetch_one(&mut lock).await? {
            // Seen from here all is well: another replica reads.
            self.status.update(partition, |status| {
                status.active = false;
                status.halted = None;
                status.moved = Instant::now();
            });
            let _ = lock.close().await;
            tokio::select! {
                () = stop.cancelled() => return Ok(()),
                () = tokio::time::sleep(PAUSE) => return Err(Stopped::Fenced),
            }
        }
        let mut views = self.open(partition).await?;
        let from = views.iter().map(|view| view.position).min().unwrap_or(0);
        let mut follower = Follower::new(self.ledger.clone(), partition, from);
        self.status.update(partition, |status| {
            status.active = true;
            status.halted = None;
        });
        let mut moved = Instant::now();
        loop {
            let entries = tokio::select! {
                () = stop.cancelled() => break,
                entries = follower.next() => entries?,
            };
            if entries.is_empty() {
                ViewReader::catch_up(&mut views, &self.db).await?;
                self.status.update(partition, |status| status.moved = Instant::now());
                lock.ping().await?;
                continue;
            }
            let now = (self.ledger.source())().now;
            let tail = entries.last().map_or(0, |entry| entry.position.sequence);
            self.status.update(partition, |status| status.tail = status.tail.max(tail));
            for view in &mut views {
                let started = Instant::now();
                let applied = view.take(&self.db, &entries, now).await?;
                self.status.took(started.elapsed().as_secs_f64());
                self.status.view(partition, &view.id, view.seen, view.parked_count, applied);
            }
            if moved.elapsed() > CATCH_UP_EVERY {
                ViewReader::catch_up(&mut views, &self.db).await?;
                moved = Instant::now();
            }
        }
        ViewReader::catch_up(&mut views, &self.db).await?;
        for view in &views {
            checkpoint::clean(&self.db, &view.id, partition).await?;
        }
        let _ = lock.close().await;
        Ok(())
    }

    async fn open(&self, partition: u16) -> Result<Vec<ViewReader>, Stopped> {
        let tail = self.ledger.journal().tail(partition).await?;
        self.status.update(partition, |status| status.tail = tail.last);
        let mut views = Vec::new();
        for view in VIEWS {
            let id = view.id();
            let checkpoint = checkpoint::open(&self.db, &id, partition, tail.created).await?;
            let position = checkpoint.position.unsigned_abs();
            let other = checkpoint.log_created != tail.created;
            if position > tail.last || other {
                let other = if other { " and was created at another time: it is another log" } else { "" };
                return Err(Stopped::Regressed { view: id, partition, position, tail: tail.last, other });
            }
            let parked = checkpoint::parked_aggregates(&self.db, &id, partition).await?;
            let reader = ViewReader::new(view, partition, position, checkpoint.unclean_starts, parked);
            self.status.view(partition, &id, position, reader.parked_count, 0);
            views.push(reader);
        }
        Ok(views)
    }
}

/// An error with its causes, for logs and health answers.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        if !text.ends_with(&next) {
            text = format!("{text}: {next}");
        }
        cause = error.source();
    }
    text
}
