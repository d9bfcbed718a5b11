//! Access to the log's directory for the database's other files.

use std::sync::{Arc, Weak};

use super::identity::{CHECKPOINT_VERSION, HEADER_FIELDS, read_header};
use super::reserve::EXTRA_SEGMENTS;
use super::retention::{LogFreed, LogHold};
use super::segment::Segments;
use super::window::{Block, LogWindow};
use super::{LogError, Lsn};
use crate::io::{AlignedBuffer, File, OpenMode};
use crate::sync::atomic::{Ordering, fence};

const BLOCKS_PER_READ: usize = 4096;
const MAX_BYTES_PER_READ: u64 = 16 << 20;

/// The directory of an open log.
#[derive(Clone, Debug)]
pub(crate) struct LogFiles(Arc<Segments>);

/// A weak handle, which does not keep the log open.
#[derive(Clone, Debug)]
pub(crate) struct WeakLogFiles(Weak<Segments>);

impl WeakLogFiles {
    pub(super) fn new(segments: Weak<Segments>) -> Self {
        Self(segments)
    }

    /// Returns the directory while the log is open.
    pub(crate) fn get(&self) -> Option<LogFiles> {
        self.0.upgrade().map(LogFiles)
    }
}

/// A loan of the disk reserve; the reserve may be used while this value exists.
#[derive(Debug)]
pub(crate) struct ReserveLoan(Arc<Segments>);

impl Drop for ReserveLoan {
    fn drop(&mut self) {
        self.0.end_loan();
    }
}

impl LogFiles {
    pub(super) fn new(segments: Arc<Segments>) -> Self {
        Self(segments)
    }

    /// Returns a handle that does not keep the log open.
    pub(crate) fn downgrade(&self) -> WeakLogFiles {
        WeakLogFiles(Arc::downgrade(&self.0))
    }

    pub(super) fn segments(&self) -> &Segments {
        &self.0
    }

    /// Allows records of paged tables in the log: when this returns, `braid.meta` durably has the
    /// required version. Uses blocking calls, once in a database's life.
    ///
    /// # Errors
    /// Errors of the operating system; the call may be repeated.
    pub(crate) fn allow_paged(&self) -> Result<(), LogError> {
        self.0.allow_paged()
    }

    /// Allows compaction to log in blocks of a separate kind, like [`Self::allow_paged`]. Call this
    /// before reading the log's tail from which compaction uses them
    /// ([`Log::logs_moved`](super::Log::logs_moved)).
    ///
    /// # Errors
    /// Errors of the operating system; the call may be repeated.
    pub(crate) fn allow_moved(&self) -> Result<(), LogError> {
        self.0.allow_moved()?;
        // Pairs with the fence in `Log::logs_moved`.
        fence(Ordering::SeqCst);
        Ok(())
    }

    /// Allows positions of pages in checkpoints, like [`Self::allow_paged`].
    ///
    /// # Errors
    /// Errors of the operating system; the call may be repeated.
    pub(crate) fn allow_leaves(&self) -> Result<(), LogError> {
        self.0.allow_leaves()
    }

    /// Returns whether the database's version allows moved blocks.
    pub(crate) fn allows_moved(&self) -> bool {
        self.0.allows_moved()
    }

    /// Returns an error if the database's version does not allow the record of a paged table at
    /// `lsn`.
    pub(crate) fn unexpected_paged(&self, lsn: Lsn) -> Option<LogError> {
        let reason = "the log has a record of a paged table here, but braid.meta has a version \
                      without paged tables";
        let error = || LogError::corrupt(self.0.place(lsn), lsn, reason.to_owned());
        (!self.allows_paged()).then(error)
    }

    /// Returns whether the database's version allows paged tables.
    pub(crate) fn allows_paged(&self) -> bool {
        self.0.allows_paged()
    }

    /// Returns the database id.
    pub(crate) fn database(&self) -> [u8; 16] {
        self.0.identity.database
    }

    /// Returns the names in the directory, sorted.
    ///
    /// # Errors
    /// Errors of the operating system.
    pub(crate) fn list(&self) -> Result<Vec<String>, LogError> {
        Ok(self.0.directory.list()?)
    }

    /// Opens a file of the directory.
    ///
    /// # Errors
    /// Errors of the operating system.
    pub(crate) fn open(&self, name: &str, mode: OpenMode) -> Result<File, LogError> {
        Ok(self.0.directory.open_file(name, mode)?)
    }

    /// Creates an unnamed temporary file outside the directory. It disappears when it is closed.
    ///
    /// # Errors
    /// Errors of the operating system.
    pub(crate) fn open_scratch(&self) -> Result<File, LogError> {
        Ok(self.0.directory.open_scratch()?)
    }

    /// Returns whether the directory must not be changed.
    pub(crate) fn is_read_only(&self) -> bool {
        self.0.read_only
    }

    /// Renames a file, and replaces the file with the new name, if any.
    ///
    /// # Errors
    /// Errors of the operating system.
    pub(crate) fn rename(&self, from: &str, to: &str) -> Result<(), LogError> {
        Ok(self.0.directory.rename(from, to)?)
    }

    /// Removes a file.
    ///
    /// # Errors
    /// Errors of the operating system.
    pub(crate) fn remove(&self, name: &str) -> Result<(), LogError> {
        Ok(self.0.directory.remove(name)?)
    }

    /// Returns the directory as a file, whose sync makes the names in it durable.
    pub(crate) fn directory(&self) -> &Arc<File> {
        self.0.directory.handle()
    }

    /// Holds the log from `from` on, up to `most` bytes. All of it must exist.
    ///
    /// # Errors
    /// An error if it does not.
    pub(crate) fn hold(&self, from: Lsn, most: u64) -> Result<LogHold, LogFreed> {
        self.0.retention.hold(from, most, || self.0.contiguous_from())
    }

    /// Returns the position from which the whole log exists.
    pub(crate) fn oldest(&self) -> Lsn {
        self.0.contiguous_from()
    }

    /// Returns the segments that lie completely before `lsn` and that no hold within its limit
    /// needs. `tail` is the current end of the log.
    pub(crate) fn unheld_before(&self, lsn: Lsn, tail: Lsn) -> Vec<u64> {
        self.0.whole_before(lsn.min(self.0.retention.oldest(tail)))
    }

    /// Returns up to `most` blocks from `from`, where a block starts, to `until`, which is durable,
    /// and the position after them. Ends with the block that reaches `max_bytes`.
    ///
    /// # Errors
    /// Errors of the operating system; `Corrupt` at the first position without an intact block.
    pub(crate) fn blocks(
        &self,
        from: Lsn,
        until: Lsn,
        most: usize,
        max_bytes: u64,
    ) -> Result<(Vec<Block>, Lsn), LogError> {
        let mut window = LogWindow::new(self.0.clone());
        let (mut at, mut blocks) = (from, Vec::new());
        while at < until && blocks.len() < most && at.0 - from.0 < max_bytes {
            let Some(block) = window.block(at)? else {
                let reason = "no intact block is here, but the log continues";
                return Err(LogError::corrupt(self.0.place(at), at, reason));
            };
            at = block.end;
            blocks.push(block);
        }
        Ok((blocks, at))
    }

    /// Returns whether the log exists from its start.
    pub(crate) fn are_whole(&self) -> bool {
        self.0.check_from(Lsn::FIRST).is_ok()
    }

    /// Returns the first existing block at or after `checkpoint`, or of the whole log if it exists
    /// from its start.
    pub(crate) fn first_block(&self, checkpoint: Lsn) -> Lsn {
        if self.are_whole() { Lsn::FIRST } else { checkpoint.max(Lsn::FIRST) }
    }

    /// Checks every block of the log up to `until`, which is durable, with blocking calls. Starts
    /// at the log's start, or at `checkpoint` if the start was freed. Returns the number of blocks.
    ///
    /// # Errors
    /// As [`Self::blocks`].
    pub(crate) fn check_blocks(&self, checkpoint: Lsn, until: Lsn) -> Result<u64, LogError> {
        let (mut at, mut count) = (self.first_block(checkpoint), 0);
        while at < until {
            let (blocks, end) = self.blocks(at, until, BLOCKS_PER_READ, MAX_BYTES_PER_READ)?;
            (at, count) = (end, count + blocks.len() as u64);
        }
        Ok(count)
    }

    /// Lends the disk reserve to a checkpoint or a compaction. Returns whether a reserve existed.
    pub(crate) fn lend_reserve(&self) -> bool {
        self.0.lend_reserve()
    }

    /// Returns whether the disk is nearly full.
    pub(crate) fn is_disk_tight(&self) -> bool {
        self.0.is_disk_tight()
    }

    /// Returns whether the disk is nearly full, or the reserve is incomplete.
    pub(crate) fn is_nearly_full(&self) -> bool {
        self.lacks_reserve() || self.0.is_disk_tight()
    }

    /// Returns whether the disk reserve was lent or could not be completed.
    pub(crate) fn lacks_reserve(&self) -> bool {
        self.0.reserve.is_lacking()
    }

    /// Frees the reserve for the page writes of recovery, if the disk is nearly full.
    pub(crate) fn free_reserve_for_recovery(&self) {
        self.0.free_reserve_for_recovery();
    }

    /// Returns the disk space available to a checkpoint in bytes, including the reserve.
    pub(crate) fn room_for_checkpoint(&self) -> u64 {
        self.0.directory.available_bytes().saturating_add(self.0.reserve.held())
    }

    /// Creates the disk reserve again. If it is lent, this happens when the loan ends. If the disk
    /// has no space, it is tried again at the next extension of the log.
    pub(crate) fn hold_reserve(&self) {
        _ = self.0.hold_reserve();
        self.0.extent.resume();
    }

    /// Shrinks a reserve from before the opening, if it exceeds the required size.
    ///
    /// # Errors
    /// Errors of the operating system.
    pub(crate) fn shrink_reserve(&self) -> Result<(), LogError> {
        self.0.shrink_reserve(1)
    }

    /// Removes the reserve if it far exceeds the requirements of the next checkpoints. If that
    /// fails, the next call tries again.
    pub(crate) fn give_up_excess_reserve(&self) {
        if let Err(error) = self.0.shrink_reserve(EXTRA_SEGMENTS) {
            tracing::debug!("cannot shrink the disk reserve: {error}");
        }
    }

    /// Returns a guard that creates the reserve again when it is dropped.
    pub(crate) fn end_loan_when_dropped(&self) -> ReserveLoan {
        ReserveLoan(self.0.clone())
    }

    /// Returns the size of a segment in bytes.
    pub(crate) fn segment_bytes(&self) -> u64 {
        self.0.segment_bytes()
    }

    /// Returns the bytes of log that the disk can hold: in existing files and in free space.
    pub(crate) fn possible_bytes(&self) -> u64 {
        let files =
            self.0.files_on_disk() + self.0.directory.available_bytes() / self.0.file_bytes();
        files.saturating_mul(self.0.segment_bytes())
    }

    /// Returns the size of all segments in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.count() as u64 * self.0.segment_bytes()
    }

    /// Returns the segment of a position.
    pub(crate) fn segment_of(&self, lsn: Lsn) -> u64 {
        self.0.index(lsn)
    }

    /// Returns whether the segment of a position exists.
    pub(crate) fn has(&self, lsn: Lsn) -> bool {
        self.0.locate(lsn).is_some()
    }

    /// Frees an unreferenced segment. Its file is kept for reuse, unless a spare file exists
    /// already and the log has `most` files. Returns `false` if the segment is held and stays.
    /// `tail` is the current end of the log.
    ///
    /// # Errors
    /// Errors of the operating system.
    pub(crate) fn free_segment(&self, index: u64, tail: Lsn, most: u64) -> Result<bool, LogError> {
        self.0.free(index, tail, most)
    }

    /// Removes one spare segment file. Returns `false` if none exists.
    pub(crate) fn remove_spare(&self) -> bool {
        self.0.remove_spare()
    }

    /// Returns the first sector of a checkpoint: its magic number, its LSN, and its own numbers.
    pub(crate) fn checkpoint_sector(
        &self,
        magic: [u8; 8],
        lsn: Lsn,
        own: [u64; HEADER_FIELDS],
    ) -> AlignedBuffer {
        self.0.identity.sector_of(CHECKPOINT_VERSION, magic, lsn.0, own)
    }

    /// Returns the first sector of a checkpoint of an earlier build.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn earlier_checkpoint_sector(
        &self,
        magic: [u8; 8],
        lsn: Lsn,
        own: [u64; HEADER_FIELDS],
    ) -> AlignedBuffer {
        self.0.identity.sector_of(self.0.version(), magic, lsn.0, own)
    }

    /// Returns the error for a log that ends at `end`, although it was durable up to `durable`.
    pub(crate) fn cut_short(&self, end: Lsn, durable: Lsn) -> LogError {
        self.0.ends_early(end, durable)
    }

    /// Reads and checks the first sector of a checkpoint. Returns its own numbers, and whether
    /// several tables share its chunks.
    ///
    /// # Errors
    /// Errors of the operating system; `Corrupt`, `WrongVersion`.
    pub(crate) fn read_checkpoint_sector(
        &self,
        file: &File,
        magic: [u8; 8],
        lsn: Lsn,
    ) -> Result<([u64; HEADER_FIELDS], bool), LogError> {
        let header = read_header(file, magic)?;
        self.0.identity.check(&header, file, lsn)?;
        let shares_chunks = header.version.get() >= CHECKPOINT_VERSION;
        Ok((header.own.map(|number| number.get()), shares_chunks))
    }
}
