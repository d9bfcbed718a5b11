//! Window on the log on disk, in which blocks are found.
//!
//! Blocks share the memory of the large reads that they were found in, so a reader advances while
//! others replay them.

use std::sync::Arc;

use super::block::{BlockHeader, BlockKind, HEADER_BYTES};
use super::record::{RecordView, split_record};
use super::segment::Segments;
use super::{LogError, Lsn};
use crate::io::{AlignedBuffer, SECTOR_BYTES};

const READ_BYTES: usize = 1 << 20;

/// A block that was read; its records have been checked.
#[derive(Clone, Debug)]
pub(crate) struct Block {
    /// The position of the block.
    pub(crate) lsn: Lsn,
    /// The position after it.
    pub(crate) end: Lsn,
    pub(crate) kind: BlockKind,
    /// The durable LSN at the time the block was written.
    pub(crate) durable: Lsn,
    /// The checksum of the block.
    pub(crate) sum: u32,
    memory: Arc<AlignedBuffer>,
    body: std::ops::Range<usize>,
}

impl Block {
    /// Returns the block at `lsn`, which starts at `start` in `memory`, if it is complete and its
    /// checksum matches.
    pub(super) fn parse(memory: &Arc<AlignedBuffer>, start: usize, lsn: Lsn) -> Option<Self> {
        let (header, kind) = BlockHeader::plausible(&memory[start..], lsn)?;
        if !header.verifies(&memory[start..]) {
            return None;
        }
        let body = if kind == BlockKind::Skip { HEADER_BYTES } else { header.bytes() };
        Some(Self {
            lsn,
            end: Lsn(lsn.0 + header.bytes() as u64),
            kind,
            durable: header.durable(),
            sum: header.checksum.get(),
            memory: memory.clone(),
            body: start + HEADER_BYTES..start + body,
        })
    }

    /// Returns the records and their positions, in the order of the writes.
    pub(crate) fn records(&self) -> impl Iterator<Item = (Lsn, RecordView<'_>)> {
        let whole = &self.memory[self.body.clone()];
        let mut rest = whole;
        std::iter::from_fn(move || {
            if rest.is_empty() {
                return None;
            }
            let before = (whole.len() - rest.len()) as u64;
            let (record, after) = split_record(rest).expect("checked when it was read");
            rest = after;
            Some((Lsn(self.lsn.0 + HEADER_BYTES as u64 + before), record))
        })
    }
}

/// Finds blocks at positions, through a window on the log.
#[derive(Debug)]
pub(super) struct LogWindow {
    segments: Arc<Segments>,
    memory: Arc<AlignedBuffer>,
    at: Lsn,
}

impl LogWindow {
    pub(super) fn new(segments: Arc<Segments>) -> Self {
        let memory = Arc::new(AlignedBuffer::zeroed(SECTOR_BYTES));
        // No block is at the last LSN, so the window is empty.
        Self { segments, memory, at: Lsn::MAX }
    }

    /// Returns the window's bytes from a position on, at least `bytes` of them.
    fn from(&mut self, lsn: Lsn, bytes: usize) -> Result<usize, LogError> {
        let end = self.at.0.saturating_add(self.memory.len() as u64);
        if lsn < self.at || lsn.0 + bytes as u64 > end {
            let sector = SECTOR_BYTES as u64;
            self.at = Lsn(lsn.0 / sector * sector);
            let least = (lsn.0 - self.at.0) as usize + bytes;
            let mut memory = AlignedBuffer::zeroed(least.max(READ_BYTES));
            self.segments.read(self.at, &mut memory)?;
            self.memory = Arc::new(memory);
        }
        Ok((lsn.0 - self.at.0) as usize)
    }

    /// Discards the window, so that the next access reads from disk again.
    pub(super) fn forget(&mut self) {
        self.at = Lsn::MAX;
    }

    /// Returns the block at a position, if it is complete and its checksum matches.
    pub(super) fn block(&mut self, lsn: Lsn) -> Result<Option<Block>, LogError> {
        let start = self.from(lsn, HEADER_BYTES)?;
        let Some((header, _)) = BlockHeader::plausible(&self.memory[start..], lsn) else {
            return Ok(None);
        };
        let bytes = header.bytes();
        let start = self.from(lsn, bytes)?;
        Ok(Block::parse(&self.memory, start, lsn))
    }
}
