//! What workers said at their last renewal: kept beside the log, shared by all replicas.

use bytes::Bytes;
use signalbox_events::work::{Beat, Form};
use signalbox_events::{PoolId, WorkerId};
use signalbox_journal::{Journal, Store, StoreError};

fn key(pool: &PoolId, worker: &WorkerId) -> String {
    format!("{pool}.{worker}")
}

/// Keeps a renewal.
pub async fn put(journal: &dyn Journal, pool: &PoolId, worker: &WorkerId, beat: &Beat) -> Result<(), StoreError> {
    let bytes = Form::MessagePack.write(beat).map_err(|error| StoreError::Failed(error.to_string()))?;
    journal.put(Store::Workers, &key(pool, worker), bytes.into()).await
}

/// The last renewal, where there was one. One that cannot be read is one that was never made.
pub async fn get(journal: &dyn Journal, pool: &PoolId, worker: &WorkerId) -> Result<Option<Beat>, StoreError> {
    let found = journal.get(Store::Workers, &key(pool, worker)).await?;
    Ok(found.and_then(|bytes| Form::MessagePack.read(&bytes).ok()))
}

/// Marks that a worker claims; the mark goes by itself.
pub async fn mark_claim(journal: &dyn Journal, pool: &PoolId, worker: &WorkerId) -> Result<(), StoreError> {
    journal.put(Store::Heartbeats, &format!("claim.{pool}.{worker}"), Bytes::from_static(b"1")).await
}

/// Whether a worker has claimed within the last 20 s.
pub async fn claims(journal: &dyn Journal, pool: &PoolId, worker: &WorkerId) -> Result<bool, StoreError> {
    Ok(journal.get(Store::Heartbeats, &format!("claim.{pool}.{worker}")).await?.is_some())
}
