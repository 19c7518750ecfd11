//! The small stores beside the log: KV buckets, and an object store for large texts.

use super::read::failed;
use super::{PATIENCE, jetstream_code};
use crate::journal::{Store, StoreError};
use async_nats::jetstream::kv::{self, CreateErrorKind};
use async_nats::jetstream::object_store::{self, GetErrorKind, ObjectStore};
use async_nats::jetstream::{Context, stream};
use bytes::Bytes;
use std::future::Future;
use tokio::io::AsyncReadExt;

/// One store.
pub(super) enum Bucket {
    Kv(kv::Store),
    Objects(ObjectStore),
}

/// Opens a store, and creates it where it is missing and `create` says so.
pub(super) async fn open(jetstream: &Context, store: Store, replicas: usize, create: bool) -> Result<Bucket, StoreError> {
    let bucket = store.bucket().to_owned();
    match store {
        Store::Objects => match jetstream.get_object_store(&bucket).await {
            Ok(objects) => Ok(Bucket::Objects(objects)),
            Err(error) if !create => Err(failed(error)),
            Err(_) => {
                let config = object_store::Config { bucket, num_replicas: replicas, ..Default::default() };
                jetstream.create_object_store(config).await.map(Bucket::Objects).map_err(failed)
            }
        },
        Store::Keys | Store::Snapshots | Store::Heartbeats | Store::Workers | Store::Pieces => match jetstream.get_key_value(&bucket).await {
            Ok(kv) => {
                // A slip of a unit somewhere would make signs of life end at once, or never.
                let (found, wanted) = (kv.stream.cached_info().config.max_age, store.max_age().unwrap_or_default());
                if found != wanted {
                    return Err(StoreError::Failed(format!(
                        "its entries live {found:?}, and must live {wanted:?}: delete the bucket or set its max_age"
                    )));
                }
                Ok(Bucket::Kv(kv))
            }
            Err(error) if !create => Err(failed(error)),
            Err(_) => {
                let storage = if store == Store::Heartbeats { stream::StorageType::Memory } else { stream::StorageType::File };
                let config = kv::Config {
                    bucket,
                    history: 1,
                    storage,
                    num_replicas: replicas,
                    max_age: store.max_age().unwrap_or_default(),
                    ..Default::default()
                };
                jetstream.create_key_value(config).await.map(Bucket::Kv).map_err(failed)
            }
        },
    }
}

/// Bounds a wait: an object whose chunks are missing would be read for ever.
pub(super) async fn bounded<T>(wait: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
    tokio::time::timeout(PATIENCE * 2, wait).await.unwrap_or(Err(StoreError::Timeout))
}

impl Bucket {
    pub(super) async fn get(&self, key: &str) -> Result<Option<Bytes>, StoreError> {
        match self {
            Self::Kv(kv) => kv.get(key).await.map_err(failed),
            Self::Objects(objects) => match objects.get(key).await {
                Ok(mut object) => {
                    let mut bytes = Vec::new();
                    object.read_to_end(&mut bytes).await.map_err(failed)?;
                    Ok(Some(bytes.into()))
                }
                Err(error) if error.kind() == GetErrorKind::NotFound => Ok(None),
                Err(error) => Err(failed(error)),
            },
        }
    }

    pub(super) async fn put(&self, key: &str, value: Bytes) -> Result<(), StoreError> {
        match self {
            Self::Kv(kv) => kv.put(key, value).await.map(drop).map_err(failed),
            Self::Objects(objects) => objects.put(key, &mut value.as_ref()).await.map(drop).map_err(failed),
        }
    }

    pub(super) async fn create(&self, key: &str, value: Bytes) -> Result<bool, StoreError> {
        match self {
            Self::Kv(kv) => match kv.create(key, value).await {
                Ok(_) => Ok(true),
                Err(error) if error.kind() == CreateErrorKind::AlreadyExists || jetstream_code(&error) == Some(10164) => Ok(false),
                Err(error) => Err(failed(error)),
            },
            // An object's name holds a digest of its bytes: one that is there is the same.
            Self::Objects(_) => match self.get(key).await? {
                Some(_) => Ok(false),
                None => self.put(key, value).await.map(|()| true),
            },
        }
    }

    pub(super) async fn delete(&self, key: &str) -> Result<(), StoreError> {
        match self {
            Self::Kv(kv) => kv.purge(key).await.map_err(failed),
            Self::Objects(objects) => objects.delete(key).await.map_err(failed),
        }
    }
}
