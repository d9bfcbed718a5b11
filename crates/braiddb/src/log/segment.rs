//! Segment files: where each LSN is on disk.
//!
//! A segment is a header sector and `segment_bytes` of log; LSN `l` is in segment
//! `l / segment_bytes`, at file offset `4096 + l mod segment_bytes`. Invariants: from the newest
//! checkpoint on the segments are contiguous, older ones are there if anything leads to them; a
//! file has its final name, that of the first segment it is, only once it has a header, which says
//! what segment it is now; in prepared space every segment exists durably, and nothing but log writes
//! touch it; it is within the extent. What was not logged yet is zero, or is what the file held as an
//! earlier segment, in which no block is at its own LSN.
//!
//! The file of the first segment may be shorter than a segment while it is the last (`growth`): the log is on
//! disk up to there. Every header says how much of the log its file durably has, so a file that was cut short
//! is told from one that has not grown yet.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use super::error::says_full;
use super::extent::Extent;
use super::files::copy;
use super::identity::{
    DEFAULT_PAGE_BYTES, FIRST_VERSION, Identity, LEAVES_VERSION, META_NAME, MOVED_VERSION,
    PAGED_VERSION, UNFINISHED_SUFFIX,
};
use super::location::is_own;
use super::prepared::PreparedSpace;
use super::reserve::Reserve;
use super::retention::Retention;
use super::spare::Spares;
use super::stats::SharedCounter;
use super::tail::LogTail;
use super::{LogError, Lsn};
use crate::io::{AlignedBuffer, Directory, File, OpenMode, SECTOR_BYTES};
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::sync::{Mutex, RwLock};

pub(super) const HEADER_BYTES: u64 = SECTOR_BYTES as u64;
const LOOK_BYTES: usize = 1 << 20;

/// A segment's file.
#[derive(Clone, Debug)]
pub(super) struct SegmentFile {
    pub(super) file: Arc<File>,
    /// Where the segment started by which the file is called, the first that it was.
    called: Lsn,
    /// All of it was written before, in an earlier life.
    pub(super) written: bool,
}

impl SegmentFile {
    fn new(file: File, called: Lsn) -> Self {
        Self { file: Arc::new(file), called, written: false }
    }

    pub(super) fn name(&self) -> String {
        name_of(self.called)
    }
}

/// What the file is called that is first the segment that starts at `start`.
fn name_of(start: Lsn) -> String {
    format!("wal-{:016x}.seg", start.0)
}

/// What the files among `names` that hold segments are called by.
fn starts_of(names: &[String]) -> Vec<u64> {
    let start = |name: &String| {
        let start = name.strip_prefix("wal-")?.strip_suffix(".seg")?;
        u64::from_str_radix(start, 16).ok()
    };
    names.iter().filter_map(start).collect()
}

/// The segments of one database.
#[derive(Debug)]
pub(super) struct Segments {
    pub(super) directory: Directory,
    pub(super) identity: Identity,
    /// The version of the format that `braid.meta` says, durably.
    version: AtomicU32,
    raising_version: Mutex<()>,
    files: RwLock<BTreeMap<u64, SegmentFile>>,
    /// Where the last of them ends, as a position.
    pub(super) end: AtomicU64,
    pub(super) spares: Spares,
    pub(super) prepared: PreparedSpace,
    pub(super) reserve: Reserve,
    pub(super) extent: Arc<Extent>,
    pub(super) retention: Arc<Retention>,
    /// Segments freed since the log was opened.
    pub(super) freed: SharedCounter,
    /// How many there were when they were released.
    released: AtomicU64,
    /// What the reader found at the end of the log.
    pub(super) tail: Mutex<Option<LogTail>>,
    /// Made just now: nothing to read.
    pub(super) fresh: bool,
    /// Opened to be read only: another process may write to them, and free them (`read_only`).
    pub(super) read_only: bool,
}

impl Segments {
    /// Opens a directory's segments, or makes a database in it. `extent` makes the log's extent, from
    /// the bytes of a segment. Segments and pages have those bytes if a database is made, and pages if it has none.
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

    /// No segments yet.
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
            retention: Arc::default(),
            freed: SharedCounter::default(),
            released: AtomicU64::new(0),
            tail: Mutex::new(None),
            fresh,
            read_only,
        }
    }

    /// Opens the segments of a directory that is only read.
    pub(super) fn open_read_only(directory: Directory) -> Result<Self, LogError> {
        let starts = starts_of(&directory.list()?);
        let identity = Identity::read(&directory, DEFAULT_PAGE_BYTES)?;
        let segments = Self::new(directory, identity, Extent::unbounded(), false, true);
        segments.open_files(&starts)?;
        Ok(segments)
    }

    /// The version of the format that `braid.meta` says.
    pub(super) fn version(&self) -> u32 {
        // Acquire pairs with the Release in `raise_version`: the file says so, durably.
        self.version.load(Ordering::Acquire)
    }

    /// Whether records of paged tables may be in the log.
    pub(super) fn allows_paged(&self) -> bool {
        self.version() >= PAGED_VERSION
    }

    /// Whether moved blocks may be in the log.
    pub(super) fn allows_moved(&self) -> bool {
        self.version() >= MOVED_VERSION
    }

    /// Makes the database one whose log may have records of paged tables, durably, with blocking calls: once in
    /// its life.
    pub(super) fn allow_paged(&self) -> Result<(), LogError> {
        self.raise_version(PAGED_VERSION)
    }

    /// Makes the database one whose log may have moved blocks, in the same way.
    pub(super) fn allow_moved(&self) -> Result<(), LogError> {
        self.raise_version(MOVED_VERSION)
    }

    /// Lets checkpoints have places of pages.
    pub(super) fn allow_leaves(&self) -> Result<(), LogError> {
        self.raise_version(LEAVES_VERSION)
    }

    fn raise_version(&self, version: u32) -> Result<(), LogError> {
        // Programs that know earlier versions only would take pages for the usual ones.
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

    /// Opens the files that are there, each as what its header says.
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
                    reason: format!("it says that it is the same segment as {}", other.name()),
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
                "by its header this file ends here, within its segment: only that of the first \
                          segment may, and only while there is no other"
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

    /// Checks that no segment is missing from the one of `lsn` on; compaction frees older ones.
    pub(super) fn check_from(&self, lsn: Lsn) -> Result<(), LogError> {
        let files = self.files.read();
        let last = files.last_key_value().map_or(0, |(index, _)| *index);
        let mut all = self.index(lsn)..=last;
        all.find(|index| !files.contains_key(index))
            .map_or(Ok(()), |index| Err(self.missing(index)))
    }

    /// From where on no segment is missing.
    pub(super) fn contiguous_from(&self) -> Lsn {
        let files = self.files.read();
        let mut first = files.last_key_value().map_or(0, |(index, _)| *index);
        while first > 0 && files.contains_key(&(first - 1)) {
            first -= 1;
        }
        self.start(first).max(Lsn::FIRST)
    }

    /// The segments whose every position is before `lsn`.
    pub(super) fn whole_before(&self, lsn: Lsn) -> Vec<u64> {
        let end = self.index(lsn);
        self.files.read().range(..end).map(|(index, _)| *index).collect()
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        // Relaxed: a statistic.
        self.files.read().len() + self.released.load(Ordering::Relaxed) as usize
    }

    /// Their files.
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
        // Nothing of the directory is this database's any more.
        self.spares.forget();
        self.reserve.forget();
        self.directory.unlock();
    }

    /// Files of all segments, and those kept to become new ones.
    pub(super) fn files_on_disk(&self) -> u64 {
        (self.count() + self.spares.count()) as u64
    }

    /// Their bytes.
    pub(super) fn disk_bytes(&self) -> u64 {
        (self.files_on_disk() * self.file_bytes()).saturating_sub(self.missing_bytes())
    }

    /// Copies the segments up to `until`, and zeros after it, into another directory; returns the
    /// bytes copied.
    pub(super) fn copy_to(&self, target: &Directory, until: Lsn) -> Result<u64, LogError> {
        let (mut bytes, end) = (0, self.end());
        for (index, file) in self.files_now() {
            let start = self.start(index);
            if start >= until && index > 0 {
                break;
            }
            let copied = target.open_file(&self.name(index), OpenMode::Emptied)?;
            // As long as it is here: the log, which may be small, goes on in the copy as it would here. The
            // header that is here may say more by now.
            let length = (end.0 - start.0).min(self.segment_bytes());
            let header = self.identity.segment_header(start, length);
            copied
                .allocate(HEADER_BYTES + length)
                .and_then(|()| copied.write_all_at(&header, 0))
                .map_err(|error| LogError::io("create", copied.path(), 0, error))?;
            let most = HEADER_BYTES + (until.0 - start.0).min(self.segment_bytes());
            bytes += HEADER_BYTES + copy(&file, &copied, HEADER_BYTES..most)?;
        }
        Ok(bytes)
    }

    /// Takes a segment out of use; its file is the caller's.
    pub(super) fn retire(&self, index: u64) -> SegmentFile {
        self.freed.add(1);
        self.files.write().remove(&index).expect("a segment is freed once")
    }

    /// Removes the segment that an interrupted creation left; segments with a log in them are
    /// not touched, they belong to a database that lost its `braid.meta`.
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

    /// Whether nothing was ever logged to a segment.
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

    /// The LSN of a segment's first byte.
    pub(super) fn start(&self, index: u64) -> Lsn {
        Lsn(index * self.segment_bytes())
    }

    /// The segment an LSN is in.
    pub(super) fn index(&self, lsn: Lsn) -> u64 {
        lsn.0 / self.segment_bytes()
    }

    fn name(&self, index: u64) -> String {
        name_of(self.start(index))
    }

    fn unfinished_name(&self, index: u64) -> String {
        self.name(index) + UNFINISHED_SUFFIX
    }

    /// File and offset of an LSN, for messages.
    pub(super) fn place(&self, lsn: Lsn) -> (PathBuf, u64) {
        let index = self.index(lsn);
        let name =
            self.files.read().get(&index).map_or_else(|| self.name(index), SegmentFile::name);
        (self.directory.path().join(name), HEADER_BYTES + lsn.0 % self.segment_bytes())
    }

    /// File and offset of an LSN, if its segment exists.
    pub(super) fn locate(&self, lsn: Lsn) -> Option<(Arc<File>, u64)> {
        let file = self.files.read().get(&self.index(lsn))?.file.clone();
        Some((file, HEADER_BYTES + lsn.0 % self.segment_bytes()))
    }

    /// Whether the segment of an LSN was written before it came into use.
    pub(super) fn was_written(&self, lsn: Lsn) -> bool {
        self.files.read().get(&self.index(lsn)).is_some_and(|segment| segment.written)
    }

    /// Bytes from an LSN to the end of its segment.
    pub(super) fn rest(&self, lsn: Lsn) -> u64 {
        self.segment_bytes() - lsn.0 % self.segment_bytes()
    }

    /// Says that the log goes on at `lsn`, and no space is prepared yet. At the start of a segment there may be
    /// nothing before: compaction has freed it.
    pub(super) fn start_prepared(&self, lsn: Lsn) {
        assert!(lsn <= self.end(), "the log goes on where its files are");
        self.prepared.advance(lsn);
    }

    /// Says that space is prepared up to `end`.
    pub(super) fn set_prepared(&self, end: Lsn) {
        assert!(self.locate(Lsn(end.0 - 1)).is_some(), "prepared space has its file");
        self.prepared.advance(end);
    }

    /// A new file for a segment, under its unfinished name, its space allocated.
    ///
    /// # Errors
    /// The operating system's; no file is left then, as far as it can be removed.
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

    /// That a file could not be made so many bytes longer; of a full disk also how many bytes that is, and how many there are.
    pub(super) fn cannot_grow_by(&self, wanted: u64, cause: std::io::Error) -> std::io::Error {
        let free = self.directory.available_bytes();
        if !says_full(&cause) || free == u64::MAX {
            return cause;
        }
        let kind = cause.kind();
        std::io::Error::new(kind, format!("{cause}: {wanted} bytes are wanted, {free} are free"))
    }

    /// Removes the file of a segment that could not be finished.
    pub(super) fn remove_unfinished(&self, index: u64) {
        if let Err(error) = self.directory.remove(&self.unfinished_name(index)) {
            tracing::warn!(
                "an unfinished file is left until the database is opened again: {error}"
            );
        }
    }

    /// Gives the file of a new segment, which is durable, its header and its length, its name; the directory
    /// is to be synced next.
    pub(super) fn name_file(
        &self,
        index: u64,
        unfinished: &SegmentFile,
    ) -> Result<SegmentFile, LogError> {
        let file = self.directory.rename_file(&unfinished.file, &self.name(index))?;
        Ok(SegmentFile::new(file, self.start(index)))
    }

    /// Takes a segment, whose name is durable, into use.
    pub(super) fn add_file(&self, index: u64, segment: SegmentFile) {
        assert_eq!(self.missing_bytes(), 0, "the segment before is whole");
        let before = self.files.write().insert(index, segment);
        assert!(before.is_none(), "a segment is made once");
        self.set_end(Lsn(self.start(index).0 + self.bytes_when_made(index)));
    }

    /// The last segment, and its file; `None` before there is one, and once they were released.
    pub(super) fn last(&self) -> Option<(u64, Arc<File>)> {
        let files = self.files.read();
        files.last_key_value().map(|(index, segment)| (*index, segment.file.clone()))
    }

    /// Makes a segment, with blocking calls.
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

    /// Reads the log from a sector on; past its end, or that of a file, it is zero.
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

    /// Makes what was written to the segments of `[from, to)` durable, with blocking calls.
    pub(super) fn sync_from(&self, from: Lsn, to: Lsn) -> Result<(), LogError> {
        for index in self.index(from)..=self.index(to) {
            if let Some((file, _)) = self.locate(self.start(index)) {
                let synced = file.sync();
                synced.map_err(|error| LogError::io("sync", file.path(), 0, error))?;
            }
        }
        Ok(())
    }

    /// Writes to existing segments, durably, with blocking calls.
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
