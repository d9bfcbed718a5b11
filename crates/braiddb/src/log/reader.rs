//! Recovery reader of the log, block by block, from its start.
//!
//! The log ends at the first position without a block; `tail` decides whether it may end there.
//! Blocks share the memory of the large reads that they were found in, so the reader advances while
//! others replay them.

use std::sync::Arc;

use super::block::{BlockHeader, BlockKind, HEADER_BYTES};
use super::record::{RecordView, split_record};
use super::segment::Segments;
use super::{LogError, Lsn};
use super::{continuity, tail};
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
    fn forget(&mut self) {
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

/// Reads a log from its start to its end. The directory stays locked while the reader exists.
#[derive(Debug)]
pub(crate) struct LogReader {
    segments: Arc<Segments>,
    window: LogWindow,
    position: Lsn,
    begun: bool,
    ended: bool,
}

impl LogReader {
    pub(super) fn new(segments: Arc<Segments>) -> Self {
        let window = LogWindow::new(segments.clone());
        Self { segments, window, position: Lsn::FIRST, begun: false, ended: false }
    }

    /// Skips everything before `lsn`, where a block starts or the log ends.
    pub(crate) fn start_at(&mut self, lsn: Lsn) {
        self.position = lsn;
    }

    /// Checks that the log before `lsn` exists, up to which it was durable when a checkpoint was
    /// written.
    ///
    /// # Errors
    /// `Corrupt` if it ends earlier; errors of the device.
    pub(crate) fn check_before(&self, lsn: Lsn) -> Result<(), LogError> {
        continuity::check_before(&self.segments, lsn)
    }

    /// Reads again from one block up to, but not including, another one, and passes each block to
    /// `look`.
    ///
    /// # Errors
    /// `Corrupt` if a block no longer exists; errors of the device.
    pub(crate) fn read_again(
        &self,
        from: Lsn,
        until: Lsn,
        mut look: impl FnMut(&Block),
    ) -> Result<(), LogError> {
        let (mut window, mut position) = (LogWindow::new(self.segments.clone()), from);
        while position < until {
            let Some(block) = window.block(position)? else {
                let reason = "a block that was read before no longer exists";
                return Err(LogError::corrupt(self.segments.place(position), position, reason));
            };
            position = block.end;
            look(&block);
        }
        Ok(())
    }

    /// Returns the end of the space that may contain blocks.
    pub(crate) fn space_end(&self) -> Lsn {
        self.segments.end()
    }

    /// Returns the next block; `None` at the end of the log.
    ///
    /// # Errors
    /// `Corrupt` if the log is damaged before a position that was durable; errors of the device.
    pub(crate) fn next_block(&mut self) -> Result<Option<Block>, LogError> {
        if self.ended {
            return Ok(None);
        }
        if !std::mem::replace(&mut self.begun, true) {
            self.segments.check_from(self.position)?;
        }
        if let Some(block) = self.block_here()? {
            if block.kind == BlockKind::Moved && !self.segments.allows_moved() {
                let reason = "the log has a moved block here, but braid.meta has a version without \
                              moved blocks";
                let place = self.segments.place(block.lsn);
                return Err(LogError::corrupt(place, block.lsn, reason));
            }
            return Ok(Some(block));
        }
        let tail = match tail::examine(&self.segments, self.position) {
            // Blocks written since are no sign of damage if the missing block was written too: the
            // thread that filled them saw it durable.
            Err(damage @ LogError::Corrupt { .. }) if self.segments.read_only => {
                return self.block_written_since()?.map(Some).ok_or(damage);
            }
            examined => examined?,
        };
        *self.segments.tail.lock() = Some(tail);
        self.ended = true;
        Ok(None)
    }

    /// Returns the block at the current position and moves past it.
    fn block_here(&mut self) -> Result<Option<Block>, LogError> {
        if self.segments.fresh {
            return Ok(None);
        }
        if let Some(block) = self.window.block(self.position)? {
            self.position = block.end;
            return Ok(Some(block));
        }
        if self.segments.read_only { self.block_written_since() } else { Ok(None) }
    }

    /// Returns the block if it was not there at the last read of this position.
    fn block_written_since(&mut self) -> Result<Option<Block>, LogError> {
        self.window.forget();
        let block = self.window.block(self.position)?;
        if let Some(block) = &block {
            self.position = block.end;
        }
        Ok(block)
    }

    /// Returns the position after the last block read.
    pub(crate) fn end(&self) -> Lsn {
        self.position
    }
}
