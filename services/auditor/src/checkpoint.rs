//! Checkpoints: what the log was up to a place, signed with a key that the log's hosts do not hold.

use crate::Error;
use chrono::{DateTime, Utc};
use ed25519_dalek::{Signature, Signer, SigningKey, Verifier, VerifyingKey};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use signalbox_journal::Stored;
use std::fs;
use std::io::Write;
use std::path::PathBuf;

/// A hash over every message from the first: `h(n) = SHA-256(h(n-1), sequence, length of subject, subject, payload)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RunningHash(pub [u8; 32]);

impl RunningHash {
    /// The hash with one message more.
    pub fn with(self, stored: &Stored) -> Self {
        let digest = Sha256::new_with_prefix(self.0)
            .chain_update(stored.sequence.to_be_bytes())
            .chain_update((stored.subject.len() as u64).to_be_bytes())
            .chain_update(stored.subject.as_bytes())
            .chain_update(&stored.payload)
            .finalize();
        Self(digest.into())
    }
}

/// What the log was up to `sequence`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// The partition.
    pub partition: u16,
    /// The last message that the hash covers.
    pub sequence: u64,
    /// The running hash, hex.
    pub hash: String,
    /// When it was signed.
    pub at: DateTime<Utc>,
    /// The Ed25519 signature over the other fields, hex.
    pub signature: String,
}

impl Checkpoint {
    /// Signs what the log is up to `sequence`.
    pub fn sign(key: &SigningKey, partition: u16, sequence: u64, hash: RunningHash, at: DateTime<Utc>) -> Self {
        let mut checkpoint = Self { partition, sequence, hash: hex::encode(hash.0), at, signature: String::new() };
        checkpoint.signature = hex::encode(key.sign(&checkpoint.statement()).to_bytes());
        checkpoint
    }

    /// Whether the signature is of this key and over these fields.
    pub fn is_signed_by(&self, key: &VerifyingKey) -> bool {
        let bytes = hex::decode(&self.signature).ok().and_then(|bytes| <[u8; 64]>::try_from(bytes).ok());
        bytes.is_some_and(|bytes| key.verify(&self.statement(), &Signature::from_bytes(&bytes)).is_ok())
    }

    fn statement(&self) -> Vec<u8> {
        format!("signalbox checkpoint\n{}\n{}\n{}\n{}\n", self.partition, self.sequence, self.hash, self.at.timestamp_micros()).into_bytes()
    }
}

/// Where checkpoints are kept: outside NATS, one file each, never changed.
#[derive(Debug, Clone)]
pub struct Folder(pub PathBuf);

impl Folder {
    fn error(&self) -> impl FnOnce(std::io::Error) -> Error {
        let folder = self.0.display().to_string();
        move |source| Error::Folder { folder, source }
    }

    /// Keeps a checkpoint, whole and synced.
    pub fn keep(&self, checkpoint: &Checkpoint) -> Result<(), Error> {
        let write = || -> std::io::Result<()> {
            fs::create_dir_all(&self.0)?;
            let name = format!("{}-{:020}.json", checkpoint.partition, checkpoint.sequence);
            let (path, fresh) = (self.0.join(&name), self.0.join(format!(".{name}.new")));
            let mut file = fs::File::create(&fresh)?;
            file.write_all(&serde_json::to_vec(checkpoint)?)?;
            file.sync_all()?;
            fs::rename(&fresh, &path)?;
            fs::File::open(&self.0)?.sync_all()
        };
        write().map_err(self.error())
    }

    /// Every checkpoint of a partition, in order.
    pub fn read(&self, partition: u16) -> Result<Vec<Checkpoint>, Error> {
        let entries = match fs::read_dir(&self.0) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(vec![]),
            Err(error) => return Err(self.error()(error)),
        };
        let mut found = Vec::new();
        for entry in entries {
            let entry = entry.map_err(self.error())?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with('.') || !name.starts_with(&format!("{partition}-")) {
                continue;
            }
            let bytes = fs::read(entry.path()).map_err(self.error())?;
            let checkpoint: Checkpoint =
                serde_json::from_slice(&bytes).map_err(|error| Error::Checkpoint { file: name, reason: error.to_string() })?;
            found.push(checkpoint);
        }
        found.sort_by_key(|checkpoint| checkpoint.sequence);
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_covers_every_field() {
        let key = SigningKey::from_bytes(&[7; 32]);
        let at = DateTime::from_timestamp_micros(5).unwrap();
        let signed = Checkpoint::sign(&key, 0, 9, RunningHash([1; 32]), at);
        assert!(signed.is_signed_by(&key.verifying_key()));
        assert!(!signed.is_signed_by(&SigningKey::from_bytes(&[8; 32]).verifying_key()));
        for changed in [
            Checkpoint { partition: 1, ..signed.clone() },
            Checkpoint { sequence: 10, ..signed.clone() },
            Checkpoint { hash: hex::encode([2; 32]), ..signed.clone() },
            Checkpoint { at: DateTime::from_timestamp_micros(6).unwrap(), ..signed.clone() },
            Checkpoint { signature: String::new(), ..signed },
        ] {
            assert!(!changed.is_signed_by(&key.verifying_key()));
        }
    }
}
