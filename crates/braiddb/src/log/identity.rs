//! Identity of a database in its first sectors: `braid.meta`, and the header of every log segment.
//! `docs/format.md` has the tables.
//!
//! Invariants: `braid.meta` is written last when a database is created, so a directory contains a
//! database if and only if it contains that file. Its version is raised, durably, before anything
//! is logged that programs of the previous version would misread.

use crate::types::{OnDisk, U32, U64, on_disk};
use std::ops::RangeInclusive;
use std::path::Path;

use super::{LogError, Lsn};
use crate::io::{AlignedBuffer, Directory, File, OpenMode, SECTOR_BYTES};
use crate::planted::{Bug, is_planted};

/// The initial format version of every database, and the version in all segments.
pub(super) const FIRST_VERSION: u32 = 1;
/// The version in `braid.meta` and in later checkpoints once the log may contain records of paged
/// tables. An older program would mistake the first such record for the end of the log.
pub(super) const PAGED_VERSION: u32 = 2;
/// The version in both once compaction logs blocks of a separate kind. An older program would
/// mistake these for the end of the log.
pub(super) const MOVED_VERSION: u32 = 3;
/// The version in both once a checkpoint contains positions of pages. An older program would reuse
/// these pages.
pub(super) const LEAVES_VERSION: u32 = 4;
/// The version in checkpoints whose chunks several tables share; independent of `braid.meta`.
pub(super) const CHECKPOINT_VERSION: u32 = 5;
/// The page size of databases that do not store one, in bytes.
pub(crate) const DEFAULT_PAGE_BYTES: usize = 4096;
/// The range of page sizes in bytes; the size must be a power of two.
pub(crate) const PAGE_BYTES: RangeInclusive<usize> = 4096..=64 << 10;

/// Returns whether this page size is valid for tables.
pub(crate) fn is_table_page_size(bytes: usize) -> bool {
    PAGE_BYTES.contains(&bytes) && bytes.is_power_of_two()
}

pub(super) const META_NAME: &str = "braid.meta";
/// The file that reserves disk space for use when the disk is full.
pub(super) const RESERVE_NAME: &str = "braid.reserve";
/// Suffix of a file's name until the file is complete.
pub(crate) const UNFINISHED_SUFFIX: &str = ".new";
/// The local socket of an open database.
pub(crate) const SOCKET_NAME: &str = "braid.socket";
const META_MAGIC: [u8; 8] = *b"BRAIDDB\0";
const SEGMENT_MAGIC: [u8; 8] = *b"BRAIDWAL";
const MIN_SEGMENT: u64 = if cfg!(braid_simulation) { 8 << 10 } else { 64 << 10 };

/// Number of fields that each kind of file defines itself.
pub(crate) const HEADER_FIELDS: usize = 6;

/// The id of the database, and the values fixed at its creation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    /// Random; distinguishes this database's files from another's.
    pub(crate) database: [u8; 16],
    pub(crate) segment_bytes: u64,
    /// The page size of paged tables, in bytes. It is fixed when `braid.meta` first gets a version
    /// other than the first.
    pub(crate) page_bytes: usize,
}

on_disk! {
    /// The first bytes of `braid.meta` and of every segment. Zeros fill the rest of the sector.
    pub(crate) struct FileHeader {
        pub(crate) magic: [u8; 8],
        pub(crate) version: U32,
        /// CRC-32C of the sector, with this field taken as zero.
        pub(crate) checksum: U32,
        pub(crate) database: [u8; 16],
        pub(crate) segment_bytes: U64,
        /// For a segment, the LSN of the first byte after this sector. For a checkpoint, its LSN.
        /// For `braid.meta`, 0.
        pub(crate) start: U64,
        /// Numbers that each kind of file defines itself.
        pub(crate) own: [U64; HEADER_FIELDS],
    }
}

const FILE_HEADER_BYTES: usize = size_of::<FileHeader>();
const _: () = assert!(FILE_HEADER_BYTES == 96);

impl Identity {
    pub(super) fn fresh(segment_bytes: u64, page_bytes: usize) -> Result<Self, LogError> {
        if segment_bytes < MIN_SEGMENT || !segment_bytes.is_multiple_of(SECTOR_BYTES as u64) {
            return Err(LogError::Size {
                what: "a log segment",
                bytes: segment_bytes,
                limit: format!("a multiple of {SECTOR_BYTES}, at least {MIN_SEGMENT}"),
            });
        }
        let mut database = [0; 16];
        fastrand::Rng::new().fill(&mut database);
        Ok(Self { database, segment_bytes, page_bytes })
    }

    /// Returns the first sector of a file.
    pub(super) fn sector_of(
        &self,
        version: u32,
        magic: [u8; 8],
        start: u64,
        own: [u64; HEADER_FIELDS],
    ) -> AlignedBuffer {
        let mut sector = AlignedBuffer::zeroed(SECTOR_BYTES);
        let mut header = FileHeader {
            magic,
            version: version.into(),
            checksum: 0.into(),
            database: self.database,
            segment_bytes: self.segment_bytes.into(),
            start: start.into(),
            own: own.map(U64::new),
        };
        sector[..FILE_HEADER_BYTES].copy_from_slice(header.as_bytes());
        header.checksum = crc32c::crc32c(&sector).into();
        sector[..FILE_HEADER_BYTES].copy_from_slice(header.as_bytes());
        sector
    }

    /// Returns the first sector of the segment that starts at `start`, whose file durably has
    /// `bytes` of log.
    pub(super) fn segment_header(&self, start: Lsn, bytes: u64) -> AlignedBuffer {
        assert!(bytes > 0 && bytes <= self.segment_bytes, "a segment has {bytes} bytes of log");
        assert!(bytes.is_multiple_of(SECTOR_BYTES as u64), "a file ends at a sector");
        self.sector_of(FIRST_VERSION, SEGMENT_MAGIC, start.0, [bytes, 0, 0, 0, 0, 0])
    }

    /// Reads and checks the first sector of a segment. Returns its start, and the durable bytes of
    /// log in its file.
    ///
    /// # Errors
    /// Errors of the operating system; `WrongVersion`; `Corrupt`, also if the file is shorter than
    /// stated.
    pub(super) fn read_segment_header(&self, file: &File) -> Result<(Lsn, u64), LogError> {
        let header = read_header(file, SEGMENT_MAGIC)?;
        self.check_owner(&header, file)?;
        let start = Lsn(header.start.get());
        if !start.0.is_multiple_of(self.segment_bytes) {
            return Err(damaged(file.path(), "no segment of this database starts where it does"));
        }
        let length = file.length();
        let length = length.map_err(|error| LogError::io("look at", file.path(), 0, error))?;
        let bytes = match header.own[0].get() {
            0 => self.unstated_bytes(start, length),
            said => said,
        };
        if bytes > self.segment_bytes || !bytes.is_multiple_of(SECTOR_BYTES as u64) {
            return Err(damaged(
                file.path(),
                "the header states a file length that is not possible in this database",
            ));
        }
        let least = SECTOR_BYTES as u64 + bytes;
        if length < least {
            let reason = format!(
                "this file was cut short: it has {length} bytes, but its header states {least} or \
                 more"
            );
            return Err(LogError::Corrupt { path: file.path().into(), offset: length, reason });
        }
        Ok((start, bytes))
    }

    /// Returns the bytes of log in a file of `length` bytes whose header does not state them. Early
    /// builds wrote such files: whole segments, except that the first file grew by doubling.
    fn unstated_bytes(&self, start: Lsn, length: u64) -> u64 {
        let bytes = length.saturating_sub(SECTOR_BYTES as u64).min(self.segment_bytes);
        if start.0 == 0 && bytes.is_power_of_two() { bytes } else { self.segment_bytes }
    }

    /// Returns the start of the segment whose file begins with `sector`.
    ///
    /// # Errors
    /// `Corrupt` if the sector is no header of this database's segments.
    pub(super) fn read_start(
        &self,
        mut sector: AlignedBuffer,
        path: &Path,
    ) -> Result<Lsn, LogError> {
        let header = parse_header(&mut sector, path, SEGMENT_MAGIC)?;
        match header.database == self.database {
            true => Ok(Lsn(header.start.get())),
            false => Err(damaged(path, "it belongs to another database")),
        }
    }

    /// Checks that a file belongs to this database and starts at `start`.
    pub(super) fn check(
        &self,
        header: &FileHeader,
        file: &File,
        start: Lsn,
    ) -> Result<(), LogError> {
        self.check_owner(header, file)?;
        if header.start.get() != start.0 {
            return Err(damaged(
                file.path(),
                "the start position in its header does not match its name",
            ));
        }
        Ok(())
    }

    fn check_owner(&self, header: &FileHeader, file: &File) -> Result<(), LogError> {
        let wrong = if header.database != self.database {
            "it belongs to another database"
        } else if header.segment_bytes.get() != self.segment_bytes {
            "its segment size is not the database's"
        } else {
            return Ok(());
        };
        Err(damaged(file.path(), wrong))
    }

    /// Reads `braid.meta`, and returns the database's identity and version. Pages have `page_bytes`
    /// if the file does not state a size.
    pub(super) fn read(directory: &Directory, page_bytes: usize) -> Result<(Self, u32), LogError> {
        let file = directory.open_file(META_NAME, OpenMode::Existing)?;
        let header = read_header(&file, META_MAGIC)?;
        let (database, segment_bytes) = (header.database, header.segment_bytes.get());
        let version = header.version.get();
        let page_bytes = match (version, header.own[0].get()) {
            (FIRST_VERSION, _) => page_bytes,
            (_, 0) => DEFAULT_PAGE_BYTES,
            (_, said) => usize::try_from(said).unwrap_or(0),
        };
        let makes_sense = Self::fresh(segment_bytes, page_bytes).is_ok()
            && is_table_page_size(page_bytes)
            && header.start.get() == 0;
        if !makes_sense {
            return Err(damaged(file.path(), "its fields are not valid"));
        }
        Ok((Self { database, segment_bytes, page_bytes }, version))
    }

    /// Writes `braid.meta` durably. The directory then contains a database of this version.
    pub(super) fn write(&self, directory: &Directory, version: u32) -> Result<(), LogError> {
        let unfinished = format!("{META_NAME}{UNFINISHED_SUFFIX}");
        let file = directory.open_file(&unfinished, OpenMode::Emptied)?;
        let page_bytes = if version == FIRST_VERSION { 0 } else { self.page_bytes as u64 };
        let sector = self.sector_of(version, META_MAGIC, 0, [page_bytes, 0, 0, 0, 0, 0]);
        let written = file.write_all_at(&sector, 0).and_then(|()| file.sync());
        written.map_err(|error| LogError::io("write", file.path(), 0, error))?;
        directory.rename(&unfinished, META_NAME)?;
        if version != FIRST_VERSION && is_planted(Bug::VersionNotDurable) {
            return Ok(());
        }
        Ok(directory.sync()?)
    }
}

fn damaged(path: &Path, reason: &str) -> LogError {
    LogError::Corrupt { path: path.to_owned(), offset: 0, reason: reason.into() }
}

/// Reads and checks the first sector of a file.
pub(super) fn read_header(file: &File, magic: [u8; 8]) -> Result<FileHeader, LogError> {
    let path = file.path();
    let mut sector = AlignedBuffer::zeroed(SECTOR_BYTES);
    match file.read_exact_at(&mut sector, 0) {
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
            return Err(damaged(path, "it ends within its header"));
        }
        read => read.map_err(|error| LogError::io("read", path, 0, error))?,
    }
    parse_header(&mut sector, path, magic)
}

/// Checks the first sector of the file at `path`.
fn parse_header(
    sector: &mut AlignedBuffer,
    path: &Path,
    magic: [u8; 8],
) -> Result<FileHeader, LogError> {
    let (header, _) = FileHeader::ref_from_prefix(sector).expect("a sector holds a header");
    let header = *header;
    if header.magic != magic {
        return Err(damaged(path, "it does not start with its magic number"));
    }
    sector[12..16].fill(0);
    if crc32c::crc32c(sector) != header.checksum.get() {
        return Err(damaged(path, "the checksum of its header is wrong"));
    }
    let newest = match magic {
        META_MAGIC => LEAVES_VERSION,
        SEGMENT_MAGIC => FIRST_VERSION,
        _ => CHECKPOINT_VERSION,
    };
    let found = header.version.get();
    if !(FIRST_VERSION..=newest).contains(&found) {
        return Err(LogError::WrongVersion { path: path.to_owned(), found, expected: newest });
    }
    Ok(header)
}
