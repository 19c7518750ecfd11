//! Texts that come piece by piece before an event takes them in: sealed by their aggregate's key from the first piece on.

use super::{Failure, Ledger};
use crate::journal::Store;
use crate::vault::{self, VaultError};
use signalbox_events::Aggregate;

/// Which piece of which text of which aggregate.
#[derive(Debug, Clone, Copy)]
pub struct Piece<'a> {
    /// The aggregate.
    pub aggregate: &'a Aggregate,
    /// Names the text within it, digits and letters.
    pub text: &'a str,
    /// Which piece, from 0.
    pub part: u32,
}

impl Piece<'_> {
    fn key(&self) -> String {
        format!("{}.{}.{}", self.aggregate, self.text, self.part)
    }
}

impl Ledger {
    /// Keeps a piece for an hour, whatever was there.
    pub async fn put_piece(&self, piece: Piece<'_>, text: &str) -> Result<(), Failure> {
        let ctx = (self.source)();
        let key = self.vault.ensure(self.journal.as_ref(), piece.aggregate, &ctx, false).await?;
        let name = piece.key();
        let sealed = vault::seal_piece(&key, &name, &ctx.random, text).ok_or_else(|| VaultError::Tampered(name.clone()))?;
        Ok(self.journal.put(Store::Pieces, &name, sealed.into()).await?)
    }

    /// A piece, where it is kept.
    pub async fn piece(&self, piece: Piece<'_>) -> Result<Option<String>, Failure> {
        let name = piece.key();
        let Some(sealed) = self.journal.get(Store::Pieces, &name).await? else { return Ok(None) };
        let key = self.vault.find(self.journal.as_ref(), piece.aggregate).await?;
        let key = key.ok_or_else(|| VaultError::MissingKey(piece.aggregate.to_string()))?;
        Ok(Some(vault::unseal_piece(&key, &name, &sealed).ok_or(VaultError::Tampered(name))?))
    }

    /// Forgets a piece.
    pub async fn drop_piece(&self, piece: Piece<'_>) -> Result<(), Failure> {
        Ok(self.journal.delete(Store::Pieces, &piece.key()).await?)
    }
}
