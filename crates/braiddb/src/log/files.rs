//! The database's directory, for what stands beside the log in it.

use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Weak};

use super::identity::{HEADER_FIELDS, read_header};
use super::reader::{Block, LogWindow};
use super::reserve::EXTRA_SEGMENTS;
use super::segment::Segments;
use super::{LogError, Lsn};
use crate::io::{AlignedBuffer, Directory, File, LOCK_NAME, OpenMode};
use crate::sync::atomic::{Ordering, fence};

const BLOCKS_PER_READ: usize = 4096;
const COPY_BYTES: usize = 1 << 20;

/// Copies those of a file's bytes that are in `range` and makes the copy durable; returns how many there were.
pub(super) fn copy(from: &File, to: &File, range: Range<u64>) -> Result<u64, LogError> {
    let done = copy_part(from, to, range)?;
    to.sync().map_err(|error| LogError::io("sync", to.path(), 0, error))?;
    Ok(done)
}

fn copy_part(from: &File, to: &File, range: Range<u64>) -> Result<u64, LogError> {
    let mut buffer = AlignedBuffer::zeroed(COPY_BYTES);
    let mut done = range.start;
    while done < range.end {
        let piece = (range.end - done).min(COPY_BYTES as u64) as usize;
        let read = from.read_at(&mut buffer[..piece], done);
        let read = read.map_err(|error| LogError::io("read", from.path(), done, error))?;
        if read == 0 {
            break;
        }
        let written = to.write_all_at(&buffer[..read], done);
        written.map_err(|error| LogError::io("write", to.path(), done, error))?;
        done += read as u64;
    }
    Ok(done - range.start)
}

/// A copy of the directory that is being made.
pub(crate) struct DirectoryCopy<'c>(&'c Directory);

impl DirectoryCopy<'_> {
    /// Copies parts of a file to the same places of one with this name, and makes it durable; returns how many bytes these are.
    ///
    /// # Errors
    /// The operating system's.
    pub(crate) fn file(
        &self,
        from: &File,
        name: &str,
        parts: impl Iterator<Item = Range<u64>>,
    ) -> Result<u64, LogError> {
        let to = self.0.open_file(name, OpenMode::Emptied)?;
        let mut bytes = 0;
        for part in parts {
            bytes += copy_part(from, &to, part)?;
        }
        to.sync().map_err(|error| LogError::io("sync", to.path(), 0, error))?;
        Ok(bytes)
    }
}

/// The directory of an open log.
#[derive(Clone, Debug)]
pub(crate) struct LogFiles(Arc<Segments>);

/// The same, which does not keep the log open.
#[derive(Clone, Debug)]
pub(crate) struct WeakLogFiles(Weak<Segments>);

impl WeakLogFiles {
    pub(super) fn new(segments: Weak<Segments>) -> Self {
        Self(segments)
    }

    /// The directory, as long as the log is open.
    pub(crate) fn get(&self) -> Option<LogFiles> {
        self.0.upgrade().map(LogFiles)
    }
}

/// While it lives, what is held back of the disk may be lent.
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

    pub(super) fn segments(&self) -> &Segments {
        &self.0
    }

    /// Lets records of paged tables be logged: `braid.meta` says so durably when this returns. With blocking
    /// calls, once in a database's life.
    ///
    /// # Errors
    /// The operating system's; then it may be tried again.
    pub(crate) fn allow_paged(&self) -> Result<(), LogError> {
        self.0.allow_paged()
    }

    /// Lets compaction log in blocks of a kind of its own, likewise; to be called before the log's tail is read from
    /// which on it is to do so ([`Log::logs_moved`](super::Log::logs_moved)).
    ///
    /// # Errors
    /// The operating system's; then it may be tried again.
    pub(crate) fn allow_moved(&self) -> Result<(), LogError> {
        self.0.allow_moved()?;
        // Pairs with the one in `Log::logs_moved`.
        fence(Ordering::SeqCst);
        Ok(())
    }

    /// Lets checkpoints have places of pages, likewise.
    ///
    /// # Errors
    /// The operating system's; then it may be tried again.
    pub(crate) fn allow_leaves(&self) -> Result<(), LogError> {
        self.0.allow_leaves()
    }

    /// Whether compaction does so, by the database's version.
    pub(crate) fn allows_moved(&self) -> bool {
        self.0.allows_moved()
    }

    /// That the record at `lsn` is of a paged table, in a database that has none by its version.
    pub(crate) fn unexpected_paged(&self, lsn: Lsn) -> Option<LogError> {
        let reason = "a record of a paged table is here, and braid.meta says that there are none";
        let error = || LogError::corrupt(self.0.place(lsn), lsn, reason.to_owned());
        (!self.allows_paged()).then(error)
    }

    /// Whether the database may have paged tables, by its version.
    pub(crate) fn allows_paged(&self) -> bool {
        self.0.allows_paged()
    }

    /// Which database this is.
    pub(crate) fn database(&self) -> [u8; 16] {
        self.0.identity.database
    }

    /// The names in the directory, sorted.
    ///
    /// # Errors
    /// The operating system's.
    pub(crate) fn list(&self) -> Result<Vec<String>, LogError> {
        Ok(self.0.directory.list()?)
    }

    /// Opens a file of the directory.
    ///
    /// # Errors
    /// The operating system's.
    pub(crate) fn open(&self, name: &str, mode: OpenMode) -> Result<File, LogError> {
        Ok(self.0.directory.open_file(name, mode)?)
    }

    /// Makes a file without a name, which is gone when it is closed; elsewhere than in the directory.
    ///
    /// # Errors
    /// The operating system's.
    pub(crate) fn open_scratch(&self) -> Result<File, LogError> {
        Ok(self.0.directory.open_scratch()?)
    }

    /// Whether nothing in the directory may be changed.
    pub(crate) fn is_read_only(&self) -> bool {
        self.0.read_only
    }

    /// Gives a file another name, taking it from the file that has it.
    ///
    /// # Errors
    /// The operating system's.
    pub(crate) fn rename(&self, from: &str, to: &str) -> Result<(), LogError> {
        Ok(self.0.directory.rename(from, to)?)
    }

    /// Removes a file.
    ///
    /// # Errors
    /// The operating system's.
    pub(crate) fn remove(&self, name: &str) -> Result<(), LogError> {
        Ok(self.0.directory.remove(name)?)
    }

    /// The directory as a file, whose sync makes the names in it durable.
    pub(crate) fn directory(&self) -> &Arc<File> {
        self.0.directory.handle()
    }

    /// Copies the log up to `until`, which is durable, the file `checkpoint`, and what `others` copies into an empty
    /// directory, with blocking calls: it then holds a database. Nothing is freed meanwhile. Returns
    /// the bytes copied.
    ///
    /// # Errors
    /// The operating system's; `Locked`; `BackupTarget` if the directory is not empty, or lies in the database's.
    pub(crate) fn copy_to(
        &self,
        directory: &Path,
        checkpoint: &str,
        until: Lsn,
        others: impl FnOnce(&DirectoryCopy<'_>) -> Result<u64, LogError>,
    ) -> Result<u64, LogError> {
        let refuse = |reason: &str| {
            let reason = reason.to_owned();
            Err(LogError::BackupTarget { path: directory.into(), reason })
        };
        if directory.exists() && !directory.is_dir() {
            return refuse("it is a file");
        }
        let (absolute, own) = (std::path::absolute(directory), self.0.directory.path());
        // As far as it is there, it is looked through links.
        let there = absolute.ok().and_then(|absolute| {
            absolute.ancestors().find_map(|ancestor| ancestor.canonicalize().ok())
        });
        if there.zip(own.canonicalize().ok()).is_some_and(|(there, own)| there.starts_with(own)) {
            return refuse("it is the database's own directory, or within it");
        }
        let target = Directory::open(directory, true)?;
        if target.list()?.iter().any(|name| name != LOCK_NAME) {
            return refuse("it is not empty");
        }
        let mut bytes = self.0.copy_to(&target, until)?;
        let source = self.open(checkpoint, OpenMode::Existing)?;
        bytes += copy(&source, &target.open_file(checkpoint, OpenMode::Emptied)?, 0..u64::MAX)?;
        bytes += others(&DirectoryCopy(&target))?;
        target.sync()?;
        // Last: with it, the directory holds a database.
        self.0.identity.write(&target, self.0.version())?;
        Ok(bytes)
    }

    /// The blocks from `from` on, where one starts, to `until`, which is durable: at most `most`, and
    /// the position after them.
    ///
    /// # Errors
    /// The operating system's; `Corrupt` at the first position without a whole block.
    pub(crate) fn blocks(
        &self,
        from: Lsn,
        until: Lsn,
        most: usize,
    ) -> Result<(Vec<Block>, Lsn), LogError> {
        let mut window = LogWindow::new(self.0.clone());
        let (mut at, mut blocks) = (from, Vec::new());
        while at < until && blocks.len() < most {
            let Some(block) = window.block(at)? else {
                let reason = "no whole block is here, but the log goes on";
                return Err(LogError::corrupt(self.0.place(at), at, reason));
            };
            at = block.end;
            blocks.push(block);
        }
        Ok((blocks, at))
    }

    /// Whether the log is there from its start.
    pub(crate) fn are_whole(&self) -> bool {
        self.0.check_from(Lsn::FIRST).is_ok()
    }

    /// The first block of the log that is there from `checkpoint` on, or of all of it.
    pub(crate) fn first_block(&self, checkpoint: Lsn) -> Lsn {
        if self.are_whole() { Lsn::FIRST } else { checkpoint.max(Lsn::FIRST) }
    }

    /// Checks every block of the log, from its start, or if that was freed from `checkpoint` on, to
    /// `until`, which is durable, with blocking calls; returns how many there are.
    ///
    /// # Errors
    /// As [`Self::blocks`].
    pub(crate) fn check_blocks(&self, checkpoint: Lsn, until: Lsn) -> Result<u64, LogError> {
        let (mut at, mut count) = (self.first_block(checkpoint), 0);
        while at < until {
            let (blocks, end) = self.blocks(at, until, BLOCKS_PER_READ)?;
            (at, count) = (end, count + blocks.len() as u64);
        }
        Ok(count)
    }

    /// Lends a checkpoint or compaction the space that is held back for them; whether there was any.
    pub(crate) fn lend_reserve(&self) -> bool {
        self.0.lend_reserve()
    }

    /// Bytes that the disk has for a checkpoint, with what is held back.
    pub(crate) fn room_for_checkpoint(&self) -> u64 {
        self.0.directory.available_bytes().saturating_add(self.0.reserve.held())
    }

    /// Holds it back, unless it is lent: then that is done when the loan ends. If there is no room for it, it is tried again
    /// when the log is to be extended.
    pub(crate) fn hold_reserve(&self) {
        _ = self.0.hold_reserve();
        self.0.extent.resume();
    }

    /// Gives up what was held back before the database was opened, if that is more than should be.
    ///
    /// # Errors
    /// The operating system's.
    pub(crate) fn shrink_reserve(&self) -> Result<(), LogError> {
        self.0.shrink_reserve(1)
    }

    /// Gives up what is held back, if it is far more than the checkpoints to come ask for by now. If that cannot be done, the
    /// next one tries again.
    pub(crate) fn give_up_excess_reserve(&self) {
        if let Err(error) = self.0.shrink_reserve(EXTRA_SEGMENTS) {
            tracing::debug!("more is held back than should be: {error}");
        }
    }

    /// Holds that space back again once the result is dropped.
    pub(crate) fn end_loan_when_dropped(&self) -> ReserveLoan {
        ReserveLoan(self.0.clone())
    }

    /// Bytes of one segment of the log.
    pub(crate) fn segment_bytes(&self) -> u64 {
        self.0.segment_bytes()
    }

    /// Bytes of log that the disk can hold: in files that are there, and in what is free.
    pub(crate) fn possible_bytes(&self) -> u64 {
        let files =
            self.0.files_on_disk() + self.0.directory.available_bytes() / self.0.file_bytes();
        files.saturating_mul(self.0.segment_bytes())
    }

    /// Bytes of all segments.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.count() as u64 * self.0.segment_bytes()
    }

    /// The segment that a position is in.
    pub(crate) fn segment_of(&self, lsn: Lsn) -> u64 {
        self.0.index(lsn)
    }

    /// Whether the segment of a position is there.
    pub(crate) fn has(&self, lsn: Lsn) -> bool {
        self.0.locate(lsn).is_some()
    }

    /// Frees a segment that nothing leads to; its file is kept to become a new segment, unless one is
    /// already and the log takes `most` files. `false` if somebody holds it who may, and it stays; `tail` is where the log
    /// ends now.
    ///
    /// # Errors
    /// The operating system's.
    pub(crate) fn free_segment(&self, index: u64, tail: Lsn, most: u64) -> Result<bool, LogError> {
        self.0.free(index, tail, most)
    }

    /// Removes one of the files that were kept to become new segments; `false` if there is none.
    pub(crate) fn remove_spare(&self) -> bool {
        self.0.remove_spare()
    }

    /// The first sector of a file of this database, of its version of the format: its kind, where in the log it
    /// belongs, and numbers of its own.
    pub(crate) fn header_sector(
        &self,
        magic: [u8; 8],
        lsn: Lsn,
        own: [u64; HEADER_FIELDS],
    ) -> AlignedBuffer {
        self.0.identity.sector_of(self.0.version(), magic, lsn.0, own)
    }

    /// That the log ends at `end`, though it was durable up to `durable`.
    pub(crate) fn cut_short(&self, end: Lsn, durable: Lsn) -> LogError {
        let reason = format!(
            "no valid block is here, but the log was durable up to {durable} when the newest \
             checkpoint was written"
        );
        LogError::corrupt(self.0.place(end), end, reason)
    }

    /// Reads and checks such a sector; returns the file's own numbers.
    ///
    /// # Errors
    /// The operating system's; `Corrupt`, `WrongVersion`.
    pub(crate) fn read_header_sector(
        &self,
        file: &File,
        magic: [u8; 8],
        lsn: Lsn,
    ) -> Result<[u64; HEADER_FIELDS], LogError> {
        let header = read_header(file, magic)?;
        self.0.identity.check(&header, file, lsn)?;
        Ok(header.own.map(|number| number.get()))
    }
}
