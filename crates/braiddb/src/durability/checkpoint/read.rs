//! Checkpoint reader: reads the file chunk by chunk, and checks it while the database is open.

use std::path::Path;

use super::chunk::{
    CHUNK_BYTES, ChunkKind, ChunkReader, ChunkSection, first_section, only_section,
};
use super::{MAGIC, name};
use crate::io::{AlignedBuffer, File, OpenMode, SECTOR_BYTES};
use crate::log::{LogError, LogFiles, Lsn};
use crate::page::{ImageCheck, StoredImages, is_page_size};
use crate::rid::TableId;
use crate::types::KeyBuffer;

/// Reader of a checkpoint's file.
pub(in crate::durability) struct CheckpointReader {
    files: LogFiles,
    file: File,
    /// True if several tables may share a chunk.
    shares_chunks: bool,
    chunks: u32,
    buffer: AlignedBuffer,
    /// Number and position of the current chunk, or of the end of the file.
    number: u32,
    position: u64,
    /// Number of bytes of `buffer` that the current chunk uses.
    used: usize,
    /// The next section of the current chunk; `None` if the chunk is not read yet.
    section: Option<ChunkSection>,
    /// Number of records according to the header.
    pub(super) records: u64,
    /// End of the checkpoint according to the header.
    pub(in crate::durability) end: Lsn,
    /// Lowest table number that was unused when the checkpoint was written; `None` if the header
    /// has none.
    pub(super) next_table_id: Option<u32>,
    last_table: Option<TableId>,
    /// Number of leaf images that were checked.
    images: u64,
    /// Page properties from the header, if the checkpoint lists leaves.
    pub(super) pages: Option<PagesInCheckpoint>,
}

/// Properties of all pages in a checkpoint.
#[derive(Clone, Copy, Debug)]
pub(super) struct PagesInCheckpoint {
    /// Upper bound of all page ids.
    pub(super) id_limit: u64,
    pub(super) page_bytes: usize,
}

impl CheckpointReader {
    /// Opens the checkpoint at `lsn`.
    ///
    /// # Errors
    /// Errors of the operating system; `Corrupt`, `WrongVersion`.
    pub(in crate::durability) fn open(files: &LogFiles, lsn: Lsn) -> Result<Self, LogError> {
        let file = files.open(&name(lsn), OpenMode::Existing)?;
        let (own, shares_chunks) = files.read_checkpoint_sector(&file, MAGIC, lsn)?;
        let [records, chunks, end, next_table_id, id_limit, page_bytes] = own;
        let number =
            |number| u32::try_from(number).map_err(|_| damaged(file.path(), 0, "it is too large"));
        let chunks = number(chunks)?;
        // Earlier builds write no table number.
        let next_table_id = Some(number(next_table_id)?).filter(|next| *next > 0);
        let page_bytes = number(page_bytes)? as usize;
        let pages = is_page_size(page_bytes).then_some(PagesInCheckpoint { id_limit, page_bytes });
        Ok(Self {
            files: files.clone(),
            file,
            shares_chunks,
            chunks,
            buffer: AlignedBuffer::zeroed(CHUNK_BYTES),
            number: 0,
            position: SECTOR_BYTES as u64,
            used: 0,
            section: None,
            records,
            end: Lsn(end),
            next_table_id,
            last_table: None,
            images: 0,
            pages,
        })
    }

    /// Returns the error for damage in the current chunk.
    pub(super) fn damaged(&self, reason: &str) -> LogError {
        damaged(self.file.path(), self.position, reason)
    }

    /// Returns the error for damage of the whole file.
    pub(super) fn damaged_as_a_whole(&self, reason: &str) -> LogError {
        damaged(self.file.path(), 0, reason)
    }

    /// Returns the table and kind of the next section without moving past it; `None` after the
    /// last. Reads its chunk if necessary.
    ///
    /// # Errors
    /// Errors of the operating system; `Corrupt`.
    pub(super) fn next_table(&mut self) -> Result<Option<(TableId, ChunkKind)>, LogError> {
        if self.section.is_none() {
            if self.number == self.chunks {
                return Ok(None);
            }
            self.section = Some(self.read_chunk()?);
        }
        Ok(self.section.map(|section| (section.table, section.kind)))
    }

    /// Reads and verifies the next chunk. Returns its first section.
    fn read_chunk(&mut self) -> Result<ChunkSection, LogError> {
        let read = self.file.read_at(&mut self.buffer, self.position);
        let read =
            read.map_err(|error| LogError::io("read", self.file.path(), self.position, error))?;
        let (bytes, number) = (&self.buffer[..read], self.number);
        let first = match self.shares_chunks {
            true => first_section(bytes, number),
            false => only_section(bytes, number),
        };
        let (used, section) = first.map_err(|why| self.damaged(why))?;
        self.used = used;
        Ok(section)
    }

    /// Begins a table, starting with the next section. Tables are in the order of their ids.
    ///
    /// # Errors
    /// `Corrupt`.
    pub(super) fn begin_table(&mut self, table: TableId) -> Result<(), LogError> {
        if self.last_table.is_some_and(|last| table <= last) {
            return Err(self.damaged("tables are not in order"));
        }
        self.last_table = Some(table);
        Ok(())
    }

    /// Returns a reader of the next section, which [`Self::next_table`] has found.
    pub(super) fn entries(&self) -> ChunkReader<'_> {
        self.section.as_ref().expect("found before").reader(&self.buffer)
    }

    /// Returns a copy of the next section in the format before version 5.
    #[cfg(all(test, not(loom)))]
    pub(super) fn section_as_earlier_chunk(&self) -> super::chunk::EarlierChunk {
        let section = self.section.as_ref().expect("found before");
        super::chunk::EarlierChunk::of_section(section, &self.buffer)
    }

    /// Moves past the next section, and returns its bytes.
    ///
    /// # Errors
    /// `Corrupt`.
    pub(super) fn pass(&mut self) -> Result<usize, LogError> {
        let section = self.section.take().expect("found before");
        let next = section.next(&self.buffer[..self.used]);
        self.section = next.map_err(|why| self.damaged(why))?;
        if self.section.is_none() {
            self.number += 1;
            self.position += self.used.next_multiple_of(SECTOR_BYTES) as u64;
        }
        Ok(section.bytes())
    }

    /// Returns the bytes of the file, after all chunks were read.
    pub(super) fn file_bytes(&self) -> u64 {
        self.position
    }

    /// Returns the images of all leaves that the checkpoint lists, `None` if it lists none. Their
    /// files are open, and the segments of all records exist.
    ///
    /// # Errors
    /// Errors of the operating system; `Corrupt`.
    pub(in crate::durability) fn claim_images(&mut self) -> Result<Option<StoredImages>, LogError> {
        let open =
            |pages: PagesInCheckpoint| StoredImages::open(self.files.downgrade(), pages.page_bytes);
        let images = self.pages.map(open).transpose()?;
        while let Some((_, kind)) = self.next_table()? {
            let mut chunk = self.entries();
            match (kind, &images) {
                (ChunkKind::Leaves | ChunkKind::Pieces, Some(images)) => {
                    while let Some(leaf) = chunk.next_leaf() {
                        let leaf = leaf.map_err(|why| self.damaged(why))?;
                        if !images.add(&leaf) {
                            return Err(self.damaged(NO_PLACE));
                        }
                    }
                }
                (ChunkKind::Leaves | ChunkKind::Pieces, None) => {
                    return Err(self.damaged(NOTHING_SAID_OF_PAGES));
                }
                (ChunkKind::Addresses, _) => {
                    while let Some(entry) = chunk.next() {
                        let entry = entry.map_err(|why| self.damaged(why))?;
                        if !self.files.has(entry.address.lsn()) {
                            return Err(self.damaged(NO_SEGMENT));
                        }
                    }
                }
                (ChunkKind::Records | ChunkKind::Unowned, _) => {}
            }
            self.pass()?;
        }
        Ok(images)
    }

    /// Returns the file, which stays open when the writer removes it.
    pub(in crate::durability) fn into_file(self) -> File {
        self.file
    }

    /// Checks the sections of a table, starting with the next one; returns the number of records.
    fn check_table(&mut self, table: TableId, kind: ChunkKind) -> Result<u64, LogError> {
        match kind {
            ChunkKind::Addresses => self.check_addresses(table),
            ChunkKind::Records => self.check_records(table),
            _ => self.check_leaves(table),
        }
    }

    /// Checks the sections of a table that is not paged.
    fn check_addresses(&mut self, table: TableId) -> Result<u64, LogError> {
        let (mut order, mut count) = (KeyOrderCheck::default(), 0);
        while self.next_table()? == Some((table, ChunkKind::Addresses)) {
            let mut chunk = self.entries();
            while let Some(entry) = chunk.next() {
                let passed = entry.and_then(|entry| order.pass(entry.key));
                passed.map_err(|why| self.damaged(why))?;
                count += 1;
            }
            self.pass()?;
        }
        Ok(count)
    }

    /// Checks the chunks with records of a paged table.
    fn check_records(&mut self, table: TableId) -> Result<u64, LogError> {
        // Number of missing bytes of an incomplete value.
        let (mut order, mut count, mut missing) = (KeyOrderCheck::default(), 0, 0);
        while self.next_table()? == Some((table, ChunkKind::Records)) {
            let mut chunk = self.entries();
            missing -= chunk.take_rest(missing).len();
            while !chunk.is_over() {
                if missing > 0 {
                    return Err(self.damaged(CUT_SHORT));
                }
                let record = chunk.next_record().expect("it has another record");
                let passed = record.and_then(|record| {
                    missing = record.rest;
                    order.pass(record.key)
                });
                passed.map_err(|why| self.damaged(why))?;
                count += 1;
            }
            self.pass()?;
        }
        if missing > 0 { Err(self.damaged_as_a_whole(CUT_SHORT)) } else { Ok(count) }
    }

    /// Checks the sections that list the leaves of a paged table, and the images of the leaves,
    /// including those of its large values.
    fn check_leaves(&mut self, table: TableId) -> Result<u64, LogError> {
        let Some(pages) = self.pages else { return Err(self.damaged(NOTHING_SAID_OF_PAGES)) };
        let mut count = 0;
        for kind in [ChunkKind::Leaves, ChunkKind::Pieces] {
            let mut images =
                ImageCheck::new(&self.files, table, kind == ChunkKind::Pieces, pages.page_bytes);
            let mut passed = 0;
            while self.next_table()? == Some((table, kind)) {
                let mut chunk = self.entries();
                while let Some(leaf) = chunk.next_leaf() {
                    let leaf = leaf.map_err(|why| self.damaged(why))?;
                    if kind == ChunkKind::Leaves {
                        count += u64::from(leaf.stored.records);
                    }
                    images.check(&leaf)?;
                    passed += 1;
                }
                self.pass()?;
            }
            images.finish()?;
            self.images += passed;
        }
        while self.next_table()? == Some((table, ChunkKind::Unowned)) {
            let mut chunk = self.entries();
            while let Some(large) = chunk.next_unowned() {
                large.map_err(|why| self.damaged(why))?;
            }
            self.pass()?;
        }
        Ok(count)
    }
}

/// Check of the order of keys.
#[derive(Default)]
struct KeyOrderCheck(Option<KeyBuffer>);

impl KeyOrderCheck {
    /// Compares the next key with the last one. Returns an error if it is not greater.
    fn pass(&mut self, key: &[u8]) -> Result<(), &'static str> {
        if self.0.as_ref().is_some_and(|last| **last >= *key) {
            return Err("keys are not in order");
        }
        let last = self.0.get_or_insert_default().inner_mut();
        last.clear();
        last.extend_from_slice(key);
        Ok(())
    }
}

/// Checks that the checkpoint at `lsn` is intact: its header, the checksums and the order of its
/// chunks, their entries, and the images of leaves that it lists. Blocks until everything is read;
/// returns the number of images.
///
/// # Errors
/// Errors of the operating system; `Corrupt`, `DamagedPage` or `WrongVersion` for the first
/// problem.
pub(crate) fn check(files: &LogFiles, lsn: Lsn) -> Result<u64, LogError> {
    let mut reader = CheckpointReader::open(files, lsn)?;
    let mut found = 0;
    while let Some((table, kind)) = reader.next_table()? {
        reader.begin_table(table)?;
        found += reader.check_table(table, kind)?;
    }
    if found != reader.records {
        return Err(reader.damaged_as_a_whole(WRONG_COUNT));
    }
    Ok(reader.images)
}

/// Error message for a checkpoint that lists an image in no zone, or two images in one place.
const NO_PLACE: &str = "the place of a leaf is missing or listed twice";
/// Error message for a checkpoint with the address of a record in a missing segment.
pub(super) const NO_SEGMENT: &str = "a segment that it references is missing";
/// Error message for a checkpoint that lists leaves without page properties.
pub(super) const NOTHING_SAID_OF_PAGES: &str = "leaves are listed, and nothing is said of pages";
/// Error message for a checkpoint with an incomplete value.
pub(super) const CUT_SHORT: &str = "a value is cut short";
/// Error message for a checkpoint whose number of records differs from its header.
pub(super) const WRONG_COUNT: &str = "its number of records differs from its header";

fn damaged(path: &Path, offset: u64, reason: &str) -> LogError {
    LogError::Corrupt { path: path.to_owned(), offset, reason: reason.to_owned() }
}
