//! Segment files: the location of each LSN on disk.
//!
//! A segment is a header sector and `segment_bytes` of log. LSN `l` is in segment `l /
//! segment_bytes`, at file offset `4096 + l mod segment_bytes`. Invariants:
//!
//! - From the newest checkpoint on the segments are contiguous. Older ones exist while something
//!   references them.
//! - A file has its final name only once it has a header. It is named after the first segment it
//!   stored; the header names its current segment.
//! - In prepared space, which lies within the extent, every segment exists durably, and only log
//!   writes access it.
//! - Space that was not logged yet is zero, or has the contents of an earlier segment of the file,
//!   in which no block is at its own LSN.
//!
//! The file of the first segment may be shorter than a segment while it is the last one (`growth`);
//! the log on disk ends there. Every header states how much of the log its file durably contains.
//! This distinguishes a truncated file from one that has not grown yet.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use super::error::says_full;
use super::extent::Extent;
use super::identity::{
    DEFAULT_PAGE_BYTES, FIRST_VERSION, Identity, LEAVES_VERSION, META_NAME, MOVED_VERSION,
    PAGED_VERSION, UNFINISHED_SUFFIX,
};
use super::location::is_own;
use super::pace::Pace;
use super::prepared::PreparedSpace;
use super::reserve_state::Reserve;
use super::retention::Retention;
use super::segment_file::{SegmentFile, Spares, name_of, starts_of};
use super::stats::SharedCounter;
use super::{LogError, Lsn};
use crate::io::{AlignedBuffer, Directory, File, OpenMode, SECTOR_BYTES};
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::sync::{Mutex, OnceLock, RwLock};

pub(super) const HEADER_BYTES: u64 = SECTOR_BYTES as u64;
const LOOK_BYTES: usize = 1 << 20;

/// The end of a log, as found on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LogTail {
    /// The position after the last block.
    pub(super) end: Lsn,
    /// From here on no block can begin: no word names its own LSN.
    pub(super) stale_until: Lsn,
}

/// The segments of one database.
#[derive(Debug)]
pub(super) struct Segments {
    pub(super) directory: Directory,
    pub(super) identity: Identity,
    /// The durable format version in `braid.meta`.
    version: AtomicU32,
    raising_version: Mutex<()>,
    files: RwLock<BTreeMap<u64, SegmentFile>>,
    /// The end of the last segment, as a position.
    pub(super) end: AtomicU64,
    pub(super) spares: Spares,
    pub(super) prepared: PreparedSpace,
    pub(super) reserve: Reserve,
    pub(super) extent: Arc<Extent>,
    pub(super) pace: Pace,
    pub(super) retention: Arc<Retention>,
    /// Number of segments freed since the log was opened.
    pub(super) freed: SharedCounter,
    /// Number of segments when they were released.
    released: AtomicU64,
    /// The end of the log, as found by the reader.
    pub(super) tail: Mutex<Option<LogTail>>,
    /// True if they were just created, so that no log must be read.
    pub(super) fresh: bool,
    /// True if opened read-only: another process may write to them, and free them (`read_only`).
    pub(super) read_only: bool,
    /// Name of the checkpoint that a read-only opening loaded; `None` if none existed.
    pub(super) loaded_checkpoint: OnceLock<Option<String>>,
}

impl Segments {
    /// Opens the segments of a directory, or creates a database in it. `extent` creates the log's
    /// extent for a segment size. The segment size is used for a new database, and the page size if
    /// the database has not fixed one.
    pub(super) fn open(
        directory: Directory,
        (segment_bytes, page_bytes): (u64, usize),
        create: bool,
        extent: impl FnOnce(u64) -> Extent,
    ) -> Result<Self, LogError> {
        let names = directory.list()?;
        for name in names.iter().filter(|name| name.ends_with(UNFINISHED_SUFFIX) && is_own(name)) {
            directory.remove(name)?;
        }
        let exists = names.iter().any(|name| name == META_NAME);
        let starts = starts_of(&names);
        let (identity, version) = match (exists, create) {
            (true, _) => Identity::read(&directory, page_bytes)?,
            (false, true) => (Identity::fresh(segment_bytes, page_bytes)?, FIRST_VERSION),
            (false, false) => {
                let (path, reason) = (directory.path().into(), format!("it has no {META_NAME}"));
                return Err(LogError::NotADatabase { path, reason });
            }
        };
        let extent = extent(identity.segment_bytes);
        let segments = Self::new(directory, (identity, version), extent, !exists, false);
        if exists {
            segments.open_files(&starts)?;
        } else {
            segments.discard_leftovers(&starts)?;
            segments.create_now(0)?;
            segments.identity.write(&segments.directory, FIRST_VERSION)?;
        }
        Ok(segments)
    }

    /// Creates an empty set of segments.
    fn new(
        directory: Directory,
        (identity, version): (Identity, u32),
        extent: Extent,
        fresh: bool,
        read_only: bool,
    ) -> Self {
        Self {
            directory,
            identity,
            version: AtomicU32::new(version),
            raising_version: Mutex::new(()),
            files: RwLock::default(),
            end: AtomicU64::new(0),
            spares: Spares::default(),
            prepared: PreparedSpace::default(),
            reserve: Reserve::default(),
            extent: Arc::new(extent),
            pace: Pace::default(),
            retention: Arc::default(),
            freed: SharedCounter::default(),
            released: AtomicU64::new(0),
            tail: Mutex::new(None),
            fresh,
            read_only,
            loaded_checkpoint: OnceLock::new(),
        }
    }

    /// Opens the segments of a read-only directory.
    pub(super) fn open_read_only(directory: Directory) -> Result<Self, LogError> {
        let starts = starts_of(&directory.list()?);
        let identity = Identity::read(&directory, DEFAULT_PAGE_BYTES)?;
        let segments = Self::new(directory, identity, Extent::unbounded(), false, true);
        segments.open_files(&starts)?;
        Ok(segments)
    }

    /// Returns the format version in `braid.meta`.
    pub(super) fn version(&self) -> u32 {
        // Acquire pairs with the Release in `raise_version`: the file durably has this version.
        self.version.load(Ordering::Acquire)
    }

    /// Returns whether the log may contain records of paged tables.
    pub(super) fn allows_paged(&self) -> bool {
        self.version() >= PAGED_VERSION
    }

    /// Returns whether the log may contain moved blocks.
    pub(super) fn allows_moved(&self) -> bool {
        self.version() >= MOVED_VERSION
    }

    /// Raises the version durably, so that the log may contain records of paged tables. Uses
    /// blocking calls, once in the database's life.
    pub(super) fn allow_paged(&self) -> Result<(), LogError> {
        self.raise_version(PAGED_VERSION)
    }

    /// Raises the version in the same way, so that the log may contain moved blocks.
    pub(super) fn allow_moved(&self) -> Result<(), LogError> {
        self.raise_version(MOVED_VERSION)
    }

    /// Raises the version in the same way, so that checkpoints may contain positions of pages.
    pub(super) fn allow_leaves(&self) -> Result<(), LogError> {
        self.raise_version(LEAVES_VERSION)
    }

    fn raise_version(&self, version: u32) -> Result<(), LogError> {
        // Programs that know only earlier versions would assume the default page size.
        let is_usual = self.identity.page_bytes == DEFAULT_PAGE_BYTES;
        let version = if is_usual { version } else { version.max(LEAVES_VERSION) };
        if self.version() >= version {
            return Ok(());
        }
        let _alone = self.raising_version.lock();
        if self.version() < version {
            self.identity.write(&self.directory, version)?;
            // Release pairs with the Acquire in `version`.
            self.version.store(version, Ordering::Release);
        }
        Ok(())
    }

    /// Opens the existing files, each as the segment that its header names.
    fn open_files(&self, names: &[u64]) -> Result<(), LogError> {
        let mut files = self.files.write();
        let mut lengths = BTreeMap::new();
        for called in names.iter().copied().map(Lsn) {
            let file = self.directory.open_file(&name_of(called), OpenMode::Existing)?;
            let (start, bytes) = self.identity.read_segment_header(&file)?;
            let index = self.index(start);
            if let Some(other) = files.get(&index) {
                return Err(LogError::Corrupt {
                    path: file.path().into(),
                    offset: 0,
                    reason: format!("its header names the same segment as {}", other.name()),
                });
            }
            lengths.insert(index, bytes);
            files.insert(index, SegmentFile::new(file, called));
        }
        let Some((&last, &of_last)) = lengths.last_key_value() else {
            return Err(self.missing(0));
        };
        let short = lengths.iter().find(|(_, bytes)| last > 0 && **bytes < self.segment_bytes());
        if let Some((index, bytes)) = short {
            let path = files[index].file.path().into();
            let reason =
                "its header states that this file ends here, within its segment, which only the \
                 file of the first segment may do while no other exists"
                    .into();
            return Err(LogError::Corrupt { path, offset: HEADER_BYTES + bytes, reason });
        }
        self.set_end(Lsn(self.start(last).0 + of_last));
        Ok(())
    }

    fn missing(&self, index: u64) -> LogError {
        let reason = "this segment of the log is missing".into();
        LogError::Corrupt { path: self.directory.path().join(self.name(index)), offset: 0, reason }
    }

    /// Checks that no segment is missing from the one of `lsn` on. Compaction frees older ones.
    pub(super) fn check_from(&self, lsn: Lsn) -> Result<(), LogError> {
        let files = self.files.read();
        let last = files.last_key_value().map_or(0, |(index, _)| *index);
        let mut all = self.index(lsn)..=last;
        all.find(|index| !files.contains_key(index))
            .map_or(Ok(()), |index| Err(self.missing(index)))
    }

    /// Returns the position from which no segment is missing.
    pub(super) fn contiguous_from(&self) -> Lsn {
        let files = self.files.read();
        let mut first = files.last_key_value().map_or(0, |(index, _)| *index);
        while first > 0 && files.contains_key(&(first - 1)) {
            first -= 1;
        }
        self.start(first).max(Lsn::FIRST)
    }

    /// Returns the segments that lie completely before `lsn`.
    pub(super) fn whole_before(&self, lsn: Lsn) -> Vec<u64> {
        let end = self.index(lsn);
        self.files.read().range(..end).map(|(index, _)| *index).collect()
    }

    /// Returns the number of segments.
    pub(super) fn count(&self) -> usize {
        // Relaxed: a statistic.
        self.files.read().len() + self.released.load(Ordering::Relaxed) as usize
    }

    /// Returns the current files of the segments.
    pub(super) fn files_now(&self) -> Vec<(u64, Arc<File>)> {
        let files = self.files.read();
        files.iter().map(|(index, segment)| (*index, segment.file.clone())).collect()
    }

    /// Closes the files and unlocks the directory.
    pub(super) fn release(&self) {
        let mut files = self.files.write();
        // Relaxed: a statistic.
        self.released.store(files.len() as u64, Ordering::Relaxed);
        files.clear();
        // The directory no longer belongs to this database.
        self.spares.forget();
        self.reserve.forget();
        self.directory.unlock();
    }

    /// Returns the number of segment files and spare files.
    pub(super) fn files_on_disk(&self) -> u64 {
        (self.count() + self.spares.count()) as u64
    }

    /// Returns the size of these files in bytes.
    pub(super) fn disk_bytes(&self) -> u64 {
        (self.files_on_disk() * self.file_bytes()).saturating_sub(self.missing_bytes())
    }

    /// Takes a segment out of use and returns its file.
    pub(super) fn retire(&self, index: u64) -> SegmentFile {
        self.freed.add(1);
        self.files.write().remove(&index).expect("a segment is freed once")
    }

    /// Removes the segment left by an interrupted creation. A segment that contains log is not
    /// removed: it belongs to a database that lost its `braid.meta`.
    fn discard_leftovers(&self, starts: &[u64]) -> Result<(), LogError> {
        let Some(_) = starts.first() else { return Ok(()) };
        if starts != [0] || !self.is_empty(0)? {
            let (path, reason) = (
                self.directory.path().into(),
                format!("it has log segments but no {META_NAME}; restore that file from a backup"),
            );
            return Err(LogError::NotADatabase { path, reason });
        }
        Ok(self.directory.remove(&self.name(0))?)
    }

    /// Returns whether nothing was ever logged to a segment.
    fn is_empty(&self, index: u64) -> Result<bool, LogError> {
        let file = self.directory.open_file(&self.name(index), OpenMode::Existing)?;
        let failed = |error| LogError::io("read", file.path(), 0, error);
        let mut buffer = AlignedBuffer::zeroed(LOOK_BYTES);
        let mut offset = HEADER_BYTES;
        loop {
            let bytes = file.read_at(&mut buffer, offset).map_err(failed)?;
            if bytes == 0 {
                return Ok(true);
            }
            if buffer[..bytes].iter().any(|byte| *byte != 0) {
                return Ok(false);
            }
            offset += bytes as u64;
        }
    }

    pub(super) fn segment_bytes(&self) -> u64 {
        self.identity.segment_bytes
    }

    /// Returns the LSN of a segment's first byte.
    pub(super) fn start(&self, index: u64) -> Lsn {
        Lsn(index * self.segment_bytes())
    }

    /// Returns the segment of an LSN.
    pub(super) fn index(&self, lsn: Lsn) -> u64 {
        lsn.0 / self.segment_bytes()
    }

    pub(super) fn name(&self, index: u64) -> String {
        name_of(self.start(index))
    }

    fn unfinished_name(&self, index: u64) -> String {
        self.name(index) + UNFINISHED_SUFFIX
    }

    /// Returns the file and the offset of an LSN, for messages.
    pub(super) fn place(&self, lsn: Lsn) -> (PathBuf, u64) {
        let index = self.index(lsn);
        let name =
            self.files.read().get(&index).map_or_else(|| self.name(index), SegmentFile::name);
        (self.directory.path().join(name), HEADER_BYTES + lsn.0 % self.segment_bytes())
    }

    /// Returns the error for a log that ends at `end`, although it was durable up to `durable`.
    pub(super) fn ends_early(&self, end: Lsn, durable: Lsn) -> LogError {
        let reason = format!(
            "no valid block is here, but the log was durable up to {durable} when the newest \
             checkpoint was written; restore this file, which may be an older copy"
        );
        LogError::corrupt(self.place(end), end, reason)
    }

    /// Returns the file and the offset of an LSN, if its segment exists.
    pub(super) fn locate(&self, lsn: Lsn) -> Option<(Arc<File>, u64)> {
        let file = self.files.read().get(&self.index(lsn))?.file.clone();
        Some((file, HEADER_BYTES + lsn.0 % self.segment_bytes()))
    }

    /// Returns whether the segment of an LSN was written before it came into use.
    pub(super) fn was_written(&self, lsn: Lsn) -> bool {
        self.files.read().get(&self.index(lsn)).is_some_and(|segment| segment.written)
    }

    /// Returns the bytes from an LSN to the end of its segment.
    pub(super) fn rest(&self, lsn: Lsn) -> u64 {
        self.segment_bytes() - lsn.0 % self.segment_bytes()
    }

    /// Continues the log at `lsn`, without prepared space. If `lsn` is the start of a segment, the
    /// previous one may not exist because compaction has freed it.
    pub(super) fn start_prepared(&self, lsn: Lsn) {
        assert!(lsn <= self.end(), "the log goes on where its files are");
        self.prepared.advance(lsn);
    }

    /// Sets the end of the prepared space.
    pub(super) fn set_prepared(&self, end: Lsn) {
        assert!(self.locate(Lsn(end.0 - 1)).is_some(), "prepared space has its file");
        self.prepared.advance(end);
    }

    /// Creates a file for a segment under its unfinished name, with its space allocated.
    ///
    /// # Errors
    /// Errors of the operating system; the file is then removed if possible.
    pub(super) fn create_file(&self, index: u64) -> Result<SegmentFile, LogError> {
        let file = self.directory.open_file(&self.unfinished_name(index), OpenMode::Emptied)?;
        let bytes = HEADER_BYTES + self.bytes_when_made(index);
        if let Err(error) = file.allocate(bytes) {
            let path = file.path().to_owned();
            drop(file);
            self.remove_unfinished(index);
            let error = self.cannot_grow_by(bytes, error);
            return Err(LogError::io("create", &path, 0, error));
        }
        Ok(SegmentFile::new(file, self.start(index)))
    }

    /// Returns the error for a file that could not be extended by `wanted` bytes. For a full disk
    /// it states this number and the available bytes.
    pub(super) fn cannot_grow_by(&self, wanted: u64, cause: std::io::Error) -> std::io::Error {
        let free = self.directory.available_bytes();
        if !says_full(&cause) || free == u64::MAX {
            return cause;
        }
        let kind = cause.kind();
        std::io::Error::new(kind, format!("{cause}: {wanted} bytes are wanted, {free} are free"))
    }

    /// Removes the file of a segment that could not be completed.
    pub(super) fn remove_unfinished(&self, index: u64) {
        if let Err(error) = self.directory.remove(&self.unfinished_name(index)) {
            tracing::warn!(
                "cannot remove an unfinished file; the next opening removes it: {error}"
            );
        }
    }

    /// Gives the durable file of a new segment its final name. The caller must then sync the
    /// directory.
    pub(super) fn name_file(
        &self,
        index: u64,
        unfinished: &SegmentFile,
    ) -> Result<SegmentFile, LogError> {
        let file = self.directory.rename_file(&unfinished.file, &self.name(index))?;
        Ok(SegmentFile::new(file, self.start(index)))
    }

    /// Adds a segment whose name is durable.
    pub(super) fn add_file(&self, index: u64, segment: SegmentFile) {
        assert_eq!(self.missing_bytes(), 0, "the segment before is whole");
        let before = self.files.write().insert(index, segment);
        assert!(before.is_none(), "a segment is made once");
        self.set_end(Lsn(self.start(index).0 + self.bytes_when_made(index)));
    }

    /// Returns the last segment and its file; `None` before the first segment exists, and after the
    /// release.
    pub(super) fn last(&self) -> Option<(u64, Arc<File>)> {
        let files = self.files.read();
        files.last_key_value().map(|(index, segment)| (*index, segment.file.clone()))
    }

    /// Creates a segment, with blocking calls.
    pub(super) fn create_now(&self, index: u64) -> Result<(), LogError> {
        let unfinished = self.create_file(index)?;
        let file = &unfinished.file;
        let header = self.identity.segment_header(self.start(index), self.bytes_when_made(index));
        let written = file.write_all_at(&header, 0).and_then(|()| file.sync());
        written.map_err(|error| LogError::io("write", file.path(), 0, error))?;
        let segment = self.name_file(index, &unfinished)?;
        self.directory.sync()?;
        self.add_file(index, segment);
        Ok(())
    }

    /// Reads the log from a sector on. Beyond its end, or the end of a file, it reads zeros.
    pub(super) fn read(&self, lsn: Lsn, buffer: &mut AlignedBuffer) -> Result<(), LogError> {
        assert!(lsn.0.is_multiple_of(HEADER_BYTES), "reads start at sectors");
        let mut done = 0;
        while done < buffer.len() {
            let at = Lsn(lsn.0 + done as u64);
            let Some((file, offset)) = self.locate(at) else { break };
            let piece = self.rest(at).min((buffer.len() - done) as u64) as usize;
            let rest = &mut buffer[done..done + piece];
            let read = file.read_at(rest, offset);
            let read = read.map_err(|error| LogError::io("read", file.path(), offset, error))?;
            buffer[done + read..done + piece].fill(0);
            done += piece;
        }
        buffer[done..].fill(0);
        Ok(())
    }

    /// Makes the data written to the segments of `[from, to)` durable, with blocking calls.
    pub(super) fn sync_from(&self, from: Lsn, to: Lsn) -> Result<(), LogError> {
        for index in self.index(from)..=self.index(to) {
            if let Some((file, _)) = self.locate(self.start(index)) {
                let synced = file.sync();
                synced.map_err(|error| LogError::io("sync", file.path(), 0, error))?;
            }
        }
        Ok(())
    }

    /// Writes durably to existing segments, with blocking calls.
    pub(super) fn write(&self, lsn: Lsn, bytes: &AlignedBuffer) -> Result<(), LogError> {
        let mut done = 0;
        while done < bytes.len() {
            let at = Lsn(lsn.0 + done as u64);
            let (file, offset) = self.locate(at).expect("only existing segments are written");
            let piece = self.rest(at).min((bytes.len() - done) as u64) as usize;
            let written = file.write_all_at(&bytes[done..done + piece], offset);
            written
                .and_then(|()| file.sync())
                .map_err(|error| LogError::io("write", file.path(), offset, error))?;
            done += piece;
        }
        Ok(())
    }
}
