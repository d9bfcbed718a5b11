//! Recovery reader of the log, block by block, from its start.
//!
//! The log ends at the first position without a block; `tail` decides whether it may end there.

use std::sync::Arc;

use super::block::BlockKind;
use super::segment::Segments;
use super::window::{Block, LogWindow};
use super::{LogError, Lsn};
use super::{continuity, tail};

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
