//! Checkpoint chunks: sections with entries of one table each, and one checksum for the chunk. The
//! entries are the addresses of records in the log or, for a paged table, the places of its leaves
//! (`leaves`). Small tables share a chunk; a large table has sections in several chunks.
//!
//! In checkpoints before version 5, all chunks have the same size and contain one section. They may
//! contain the records of paged tables. If the value of the last record in such a chunk is large,
//! the next chunk of the same table continues it.

mod leaves;

pub(super) use leaves::LEAF_BYTES;

use crate::io::{AlignedBuffer, SECTOR_BYTES};
use crate::page::KeyBytes;
use crate::rid::{Rid, TableId};
use crate::types::{OnDisk, U16, U32, U64, on_disk};
use crate::version::Address;

/// Maximum size of a chunk in bytes, and the size of every chunk before version 5.
pub(super) const CHUNK_BYTES: usize = 256 << 10;
const HEADER_BYTES: usize = size_of::<ChunkHeader>();
/// Bytes of a section before its entries.
pub(super) const SECTION_BYTES: usize = size_of::<SectionHeader>();
/// Bytes of an entry before its key.
pub(super) const ENTRY_BYTES: usize = size_of::<EntryHeader>();
/// Minimum length of values that may be continued in the next chunk; values stored on a page are
/// shorter.
pub(super) const MAX_UNSPLIT_VALUE_BYTES: usize = 16 << 10;
/// Bytes of a paged table's record before its key.
pub(super) const RECORD_BYTES: usize = size_of::<ChunkRecordHeader>();

on_disk! {
    struct ChunkHeader {
        /// CRC-32C of the chunk's sectors, with this field as zero.
        checksum: U32,
        /// Bytes in use, this header included. The rest of the last sector is zero.
        bytes: U32,
        /// Number of the chunk in the file, from 0.
        number: U32,
        zero: U32,
    }
}

on_disk! {
    /// Start of a section; its entries follow.
    struct SectionHeader {
        table: U32,
        /// Bytes of the entries.
        bytes: U32,
        entries: U16,
        kind: U16,
    }
}

on_disk! {
    /// Start of a chunk before version 5; the entries of its only section follow.
    struct EarlierChunkHeader {
        checksum: U32,
        table: U32,
        number: U32,
        entries: U16,
        kind: U16,
    }
}

/// Kind of a section's entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChunkKind {
    /// Keys, with the ids and addresses of their records.
    Addresses,
    /// Keys of a paged table, with their values, preceded by the continuation of the previous
    /// chunk's last value. Earlier builds only.
    Records,
    /// Places of the leaves of a paged table.
    Leaves,
    /// Places of the leaves with the pieces of a paged table's large values.
    Pieces,
    /// Large values with existing pieces that belong to no record after the replay. The first entry
    /// has the number of the next large value.
    Unowned,
}

impl ChunkKind {
    fn from_number(number: u16) -> Option<Self> {
        use ChunkKind::{Addresses, Leaves, Pieces, Records, Unowned};
        let all = [Addresses, Records, Leaves, Pieces, Unowned];
        all.into_iter().find(|kind| *kind as u16 == number)
    }
}

on_disk! {
    /// Start of an entry; the key follows.
    struct EntryHeader {
        address: U64,
        rid_low: U32,
        rid_high: U16,
        key_bytes: U16,
    }
}

on_disk! {
    /// Start of a paged table's record. The key and then the value follow; `value_bytes` is the length
    /// of the whole value.
    struct ChunkRecordHeader {
        value_bytes: U32,
        key_bytes: U16,
        zero: U16,
    }
}

const _: () = assert!(HEADER_BYTES == 16 && SECTION_BYTES == 12);
const _: () = assert!(ENTRY_BYTES == 16 && RECORD_BYTES == 8);
const _: () = assert!(size_of::<EarlierChunkHeader>() == HEADER_BYTES);
const _: () = assert!((CHUNK_BYTES - HEADER_BYTES) / RECORD_BYTES <= u16::MAX as usize);

/// A chunk being filled.
#[derive(Debug)]
pub(super) struct ChunkWriter {
    bytes: Vec<u8>,
    table: TableId,
    kind: ChunkKind,
    /// Position of the header of the last section; `None` until the section has an entry.
    section: Option<usize>,
    entries: u16,
    /// The lowest key of the last leaf.
    last: KeyBytes,
}

impl ChunkWriter {
    pub(super) fn new() -> Self {
        let (table, kind) = (TableId(0), ChunkKind::Addresses);
        let bytes = vec![0; HEADER_BYTES];
        Self { bytes, table, kind, section: None, entries: 0, last: KeyBytes::new() }
    }

    /// Returns the number of bytes in use.
    pub(super) fn used(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.used() == HEADER_BYTES
    }

    /// Begins a section, which takes no room until it has an entry.
    pub(super) fn begin_section(&mut self, table: TableId, kind: ChunkKind) {
        self.end_section();
        (self.table, self.kind) = (table, kind);
    }

    fn end_section(&mut self) {
        self.last.clear();
        let (entries, Some(at)) = (std::mem::take(&mut self.entries), self.section.take()) else {
            return;
        };
        let header = SectionHeader {
            table: self.table.0.into(),
            bytes: ((self.used() - at - SECTION_BYTES) as u32).into(),
            entries: entries.into(),
            kind: (self.kind as u16).into(),
        };
        self.bytes[at..][..SECTION_BYTES].copy_from_slice(header.as_bytes());
    }

    /// Adds an entry. Returns `false` if it does not fit.
    pub(super) fn push(&mut self, key: &[u8], rid: Rid, address: Address) -> bool {
        assert_eq!(self.kind, ChunkKind::Addresses);
        let header = EntryHeader {
            address: address.word().into(),
            rid_low: (rid.number() as u32).into(),
            rid_high: ((rid.number() >> 32) as u16).into(),
            key_bytes: u16::try_from(key.len()).expect("keys are short").into(),
        };
        self.push_parts([header.as_bytes(), key])
    }

    /// Adds the parts of an entry. Returns `false` if they do not fit.
    fn push_parts(&mut self, parts: [&[u8]; 2]) -> bool {
        let header = if self.section.is_none() { SECTION_BYTES } else { 0 };
        let bytes = header + parts.iter().map(|part| part.len()).sum::<usize>();
        if self.used() + bytes > CHUNK_BYTES {
            return false;
        }
        if self.section.is_none() {
            self.section = Some(self.used());
            self.bytes.resize(self.used() + SECTION_BYTES, 0);
        }
        parts.into_iter().for_each(|part| self.bytes.extend_from_slice(part));
        self.entries += 1;
        true
    }

    /// Returns the chunk's bytes, as the `number`-th chunk of its file, and continues the section
    /// in an empty chunk.
    pub(super) fn finish(&mut self, number: u32) -> AlignedBuffer {
        self.end_section();
        let mut header = ChunkHeader {
            checksum: 0.into(),
            bytes: (self.used() as u32).into(),
            number: number.into(),
            zero: 0.into(),
        };
        let mut buffer = AlignedBuffer::zeroed(self.used());
        buffer[..self.used()].copy_from_slice(&self.bytes);
        buffer[..HEADER_BYTES].copy_from_slice(header.as_bytes());
        header.checksum = crc32c::crc32c(&buffer).into();
        buffer[..HEADER_BYTES].copy_from_slice(header.as_bytes());
        self.clear();
        buffer
    }

    /// Removes all sections.
    pub(super) fn clear(&mut self) {
        self.end_section();
        self.bytes.truncate(HEADER_BYTES);
    }
}

/// Position of a section in a chunk that was read and verified.
#[derive(Clone, Copy, Debug)]
pub(super) struct ChunkSection {
    pub(super) table: TableId,
    pub(super) kind: ChunkKind,
    entries: u16,
    start: usize,
    end: usize,
}

/// Verifies the chunk at the start of `bytes`, which is the `number`-th of a file. Returns the bytes
/// that it uses, and its first section. The error describes the damage.
pub(super) fn first_section(
    bytes: &[u8],
    number: u32,
) -> Result<(usize, ChunkSection), &'static str> {
    let (header, _) = ChunkHeader::ref_from_prefix(bytes).ok_or(CUT_SHORT)?;
    let used = header.bytes.get() as usize;
    if !(HEADER_BYTES..=CHUNK_BYTES).contains(&used) {
        return Err("its length makes no sense");
    }
    let sectors = bytes.get(..used.next_multiple_of(SECTOR_BYTES)).ok_or(CUT_SHORT)?;
    verify(sectors, header.checksum.get(), (header.number.get(), number))?;
    let first = section_at(&bytes[..used], HEADER_BYTES)?.ok_or("it has no section")?;
    Ok((used, first))
}

/// Verifies the `number`-th chunk of a file before version 5, and returns its only section.
pub(super) fn only_section(
    bytes: &[u8],
    number: u32,
) -> Result<(usize, ChunkSection), &'static str> {
    let bytes = bytes.get(..CHUNK_BYTES).ok_or(CUT_SHORT)?;
    let (header, _) = EarlierChunkHeader::ref_from_prefix(bytes).ok_or(CUT_SHORT)?;
    verify(bytes, header.checksum.get(), (header.number.get(), number))?;
    let kind = ChunkKind::from_number(header.kind.get()).ok_or(UNKNOWN_KIND)?;
    let (table, entries) = (TableId(header.table.get()), header.entries.get());
    let (start, end) = (HEADER_BYTES, CHUNK_BYTES);
    Ok((CHUNK_BYTES, ChunkSection { table, kind, entries, start, end }))
}

fn verify(bytes: &[u8], checksum: u32, numbers: (u32, u32)) -> Result<(), &'static str> {
    if crc32c::crc32c_append(crc32c::crc32c(&[0; 4]), &bytes[4..]) != checksum {
        return Err("the checksum is wrong");
    }
    if numbers.0 == numbers.1 { Ok(()) } else { Err("it is another chunk") }
}

/// Returns the section at this position of a verified chunk; `None` at its end.
fn section_at(bytes: &[u8], at: usize) -> Result<Option<ChunkSection>, &'static str> {
    if at == bytes.len() {
        return Ok(None);
    }
    let header = SectionHeader::ref_from_prefix(&bytes[at..]);
    let (header, rest) = header.ok_or("a section makes no sense")?;
    let kind = ChunkKind::from_number(header.kind.get()).ok_or(UNKNOWN_KIND)?;
    let (start, length) = (at + SECTION_BYTES, header.bytes.get() as usize);
    if length > rest.len() {
        return Err("a section makes no sense");
    }
    let (table, entries) = (TableId(header.table.get()), header.entries.get());
    Ok(Some(ChunkSection { table, kind, entries, start, end: start + length }))
}

const CUT_SHORT: &str = "it is cut short";
const UNKNOWN_KIND: &str = "it is of no known kind";

impl ChunkSection {
    /// Returns the next section of the chunk; `None` after the last.
    pub(super) fn next(&self, bytes: &[u8]) -> Result<Option<Self>, &'static str> {
        section_at(bytes, self.end)
    }

    /// Returns a reader of the section's entries.
    pub(super) fn reader<'c>(&self, bytes: &'c [u8]) -> ChunkReader<'c> {
        let (kind, left, rest) = (self.kind, self.entries, &bytes[self.start..self.end]);
        ChunkReader { kind, left, rest, last: KeyBytes::new() }
    }

    /// Returns the number of bytes of the entries.
    pub(super) fn bytes(&self) -> usize {
        self.end - self.start
    }
}

/// Reader of a section's entries.
#[derive(Debug)]
pub(super) struct ChunkReader<'c> {
    kind: ChunkKind,
    left: u16,
    rest: &'c [u8],
    /// The lowest key of the last leaf.
    last: KeyBytes,
}

/// Contents of an entry.
#[derive(Clone, Copy, Debug)]
pub(super) struct ChunkEntry<'c> {
    pub(super) key: &'c [u8],
    pub(super) rid: Rid,
    pub(super) address: Address,
}

/// A record of a paged table.
#[derive(Clone, Copy, Debug)]
pub(super) struct ChunkRecord<'c> {
    pub(super) key: &'c [u8],
    /// The part of the value that is in the chunk.
    pub(super) value: &'c [u8],
    /// Bytes of the value that are in the next chunks.
    pub(super) rest: usize,
}

impl<'c> ChunkReader<'c> {
    /// Returns whether all entries were read.
    pub(super) fn is_over(&self) -> bool {
        self.left == 0
    }

    /// Returns the next record of a paged table; `None` after the last.
    pub(super) fn next_record(&mut self) -> Option<Result<ChunkRecord<'c>, &'static str>> {
        assert_eq!(self.kind, ChunkKind::Records);
        self.left = self.left.checked_sub(1)?;
        Some(self.record().ok_or("a record makes no sense"))
    }

    fn record(&mut self) -> Option<ChunkRecord<'c>> {
        let (header, rest) = ChunkRecordHeader::ref_from_prefix(self.rest)?;
        let (key, rest) = rest.split_at_checked(header.key_bytes.get().into())?;
        let value_bytes = header.value_bytes.get() as usize;
        // Only the last record can be continued, and only if its value is large.
        let may_be_cut = value_bytes > MAX_UNSPLIT_VALUE_BYTES && self.left == 0;
        let here = if may_be_cut { value_bytes.min(rest.len()) } else { value_bytes };
        let (value, rest) = rest.split_at_checked(here)?;
        self.rest = rest;
        Some(ChunkRecord { key, value, rest: value_bytes - here })
    }

    /// Returns the continuation of the previous chunk's last value, of which `left` bytes were
    /// missing. Called before the first record is read.
    pub(super) fn take_rest(&mut self, left: usize) -> &'c [u8] {
        let (part, rest) = self.rest.split_at(left.min(self.rest.len()));
        self.rest = rest;
        part
    }

    /// Returns the next entry; `None` after the last.
    pub(super) fn next(&mut self) -> Option<Result<ChunkEntry<'c>, &'static str>> {
        assert_eq!(self.kind, ChunkKind::Addresses);
        self.left = self.left.checked_sub(1)?;
        Some(self.entry().ok_or("an entry makes no sense"))
    }

    fn entry(&mut self) -> Option<ChunkEntry<'c>> {
        let (header, rest) = EntryHeader::ref_from_prefix(self.rest)?;
        let key = rest.get(..header.key_bytes.get().into())?;
        let number = u64::from(header.rid_high.get()) << 32 | u64::from(header.rid_low.get());
        let address = Address::from_word(header.address.get())?;
        self.rest = &rest[key.len()..];
        (number < Rid::LIMIT).then(|| ChunkEntry { key, rid: Rid::new(number), address })
    }
}

/// A chunk in the format before version 5, being filled.
#[cfg(all(test, not(loom)))]
#[derive(Debug)]
pub(super) struct EarlierChunk {
    table: TableId,
    kind: ChunkKind,
    pub(super) entries: u16,
    pub(super) contents: Vec<u8>,
}

#[cfg(all(test, not(loom)))]
impl EarlierChunk {
    pub(super) fn new(table: TableId, kind: ChunkKind) -> Self {
        Self { table, kind, entries: 0, contents: Vec::new() }
    }

    /// Copies a section of a chunk.
    pub(super) fn of_section(section: &ChunkSection, bytes: &[u8]) -> Self {
        let ChunkSection { table, kind, entries, .. } = *section;
        Self { table, kind, entries, contents: bytes[section.start..section.end].to_vec() }
    }

    /// Returns the number of bytes that fit.
    pub(super) fn room(&self) -> usize {
        CHUNK_BYTES - HEADER_BYTES - self.contents.len()
    }

    /// Returns the chunk's bytes, as the `number`-th chunk of its file.
    pub(super) fn finish(self, number: u32) -> AlignedBuffer {
        let mut buffer = AlignedBuffer::zeroed(CHUNK_BYTES);
        let header = EarlierChunkHeader {
            checksum: 0.into(),
            table: self.table.0.into(),
            number: number.into(),
            entries: self.entries.into(),
            kind: (self.kind as u16).into(),
        };
        buffer[..HEADER_BYTES].copy_from_slice(header.as_bytes());
        buffer[HEADER_BYTES..][..self.contents.len()].copy_from_slice(&self.contents);
        let checksum = crc32c::crc32c(&buffer);
        buffer[..4].copy_from_slice(&checksum.to_le_bytes());
        buffer
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::log::Lsn;

    #[test]
    fn written_data_is_read_back() {
        let mut writer = ChunkWriter::new();
        let address = |n: u64| Address::new(Lsn(4096 + n * 8), 100);
        let key = |n: u64| vec![n as u8; n as usize % 2000];
        writer.begin_section(TableId(6), ChunkKind::Addresses);
        writer.begin_section(TableId(7), ChunkKind::Addresses);
        assert!(writer.is_empty(), "a section without entries takes no room");
        let (small, mut count) = (3, 0);
        while writer.push(&key(count), Rid::new(count << 30), address(count)) {
            count += 1;
            if count == small {
                writer.begin_section(TableId(8), ChunkKind::Addresses);
            }
        }
        let chunk = writer.finish(3);
        assert!(writer.is_empty());
        assert_eq!(first_section(&chunk, 2).unwrap_err(), "it is another chunk");
        assert_eq!(first_section(&chunk[..70_000], 3).unwrap_err(), CUT_SHORT);
        let mut damaged = chunk.to_vec();
        damaged[70_000] ^= 4;
        assert_eq!(first_section(&damaged, 3).unwrap_err(), "the checksum is wrong");
        let (used, mut section) = first_section(&chunk, 3).unwrap();
        let (bytes, mut read) = (&chunk[..used], 0);
        for (table, until) in [(7, small), (8, count)] {
            assert_eq!(section.table, TableId(table));
            let mut reader = section.reader(bytes);
            for number in read..until {
                let entry = reader.next().unwrap().unwrap();
                assert_eq!((entry.key, entry.rid), (&key(number)[..], Rid::new(number << 30)));
                assert_eq!(entry.address, address(number));
            }
            assert!(reader.next().is_none());
            read = until;
            match section.next(bytes).unwrap() {
                Some(next) => section = next,
                None => assert_eq!(read, count),
            }
        }
    }

    /// Bytes from the format documentation.
    #[test]
    fn a_chunk_has_the_documented_bytes() {
        let mut writer = ChunkWriter::new();
        writer.begin_section(TableId(9), ChunkKind::Addresses);
        assert!(writer.push(b"key", Rid::new(5), Address::new(Lsn(4096), 100)));
        let chunk = writer.finish(2);
        assert_eq!(chunk.len(), SECTOR_BYTES);
        assert_eq!(chunk[4..16], [47, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(chunk[16..28], [9, 0, 0, 0, 19, 0, 0, 0, 1, 0, 0, 0]);
        assert_eq!(chunk[36..47], [5, 0, 0, 0, 0, 0, 3, 0, b'k', b'e', b'y']);
        // An unknown kind.
        let mut chunk = chunk.to_vec();
        chunk[26] = 5;
        chunk[..4].fill(0);
        let sum = crc32c::crc32c(&chunk);
        chunk[..4].copy_from_slice(&sum.to_le_bytes());
        assert_eq!(first_section(&chunk, 2).unwrap_err(), UNKNOWN_KIND);
    }
}
