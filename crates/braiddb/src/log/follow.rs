//! Asynchronous reader of the durable log, block by block, while the log grows.
//!
//! It resembles the recovery reader (`reader`), but makes no blocking calls, and reads only up to a
//! position that its caller knows to be durable. If no intact block is found before that position,
//! the log is damaged, or its segment was freed and reused.

use std::sync::Arc;

use super::block::{BlockHeader, HEADER_BYTES};
use super::record::BLOCK_ALIGNMENT;
use super::window::Block;
use super::{ColdStore, LogError, Lsn};
use crate::io::{AlignedBuffer, SECTOR_BYTES};

/// Bytes per read, if available.
const READ_BYTES: usize = 1 << 20;

/// Finds durable blocks at positions, through a window of one mebibyte, or of one block if that is
/// larger.
#[derive(Debug)]
pub(crate) struct BlockFollower {
    store: ColdStore,
    window: Arc<AlignedBuffer>,
    /// The start of the window, and the number of bytes read into it.
    at: Lsn,
    read: usize,
}

impl BlockFollower {
    pub(crate) fn new(store: ColdStore) -> Self {
        let window = Arc::new(AlignedBuffer::zeroed(SECTOR_BYTES));
        Self { store, window, at: Lsn::ZERO, read: 0 }
    }

    /// Reads again the block from `lsn` to `end`, which was read before.
    ///
    /// # Errors
    /// As [`Self::block`].
    pub(crate) async fn block_again(&mut self, (lsn, end): (Lsn, Lsn)) -> Result<Block, LogError> {
        let start = self.find(lsn, (end.0 - lsn.0) as usize, end).await?;
        let missing = || self.store.damaged(lsn, "the block read here before no longer exists");
        Block::parse(&self.window, start, lsn).ok_or_else(missing)
    }

    /// Reads the block at `lsn`. The log is durable up to `until`, which lies after that block.
    ///
    /// # Errors
    /// Errors of the device; `Corrupt` if no intact block is there, or its segment does not exist.
    pub(crate) async fn block(&mut self, lsn: Lsn, until: Lsn) -> Result<Block, LogError> {
        let start = self.find(lsn, HEADER_BYTES, until).await?;
        let header = BlockHeader::plausible(&self.window[start..], lsn);
        let bytes = header.map(|(header, _)| header.bytes());
        let missing = "no intact block is here, but the log continues";
        let bytes = bytes.filter(|bytes| lsn.0 + *bytes as u64 <= until.0);
        let bytes = bytes.ok_or_else(|| self.store.damaged(lsn, missing))?;
        let start = self.find(lsn, bytes, until).await?;
        Block::parse(&self.window, start, lsn).ok_or_else(|| self.store.damaged(lsn, missing))
    }

    /// Frees the window's memory.
    pub(crate) fn forget(&mut self) {
        *self = Self::new(self.store.clone());
    }

    /// Returns the offset in the window of `bytes` from `lsn`.
    async fn find(&mut self, lsn: Lsn, bytes: usize, until: Lsn) -> Result<usize, LogError> {
        let end = self.at.0 + self.read as u64;
        if lsn < self.at || lsn.0 + bytes as u64 > end {
            let sector = SECTOR_BYTES as u64;
            let at = Lsn(lsn.0 / sector * sector);
            let needed = (lsn.0 - at.0) as usize + bytes;
            let there = until.0.saturating_sub(at.0).min(READ_BYTES as u64) as usize;
            let (window, read) = self.store.read_sectors(at, needed, needed.max(there)).await?;
            (self.window, self.at, self.read) =
                (Arc::new(window), at, read.min((until.0 - at.0) as usize));
        }
        Ok((lsn.0 - self.at.0) as usize)
    }
}

impl ColdStore {
    /// Returns the checksum of the block at `lsn`, or `None` if no block starts there. Everything
    /// before `lsn` is durable. Reads only the block's header.
    ///
    /// # Errors
    /// Errors of the device; `Corrupt` if the segment does not exist.
    pub(crate) async fn block_sum(&self, lsn: Lsn) -> Result<Option<u32>, LogError> {
        if !lsn.0.is_multiple_of(BLOCK_ALIGNMENT as u64) {
            return Ok(None);
        }
        let start = lsn.0 % SECTOR_BYTES as u64;
        let needed = start as usize + HEADER_BYTES;
        let (bytes, _) = self.read_sectors(Lsn(lsn.0 - start), needed, needed).await?;
        let header = BlockHeader::plausible(&bytes[start as usize..], lsn);
        Ok(header.map(|(header, _)| header.checksum.get()))
    }
}
