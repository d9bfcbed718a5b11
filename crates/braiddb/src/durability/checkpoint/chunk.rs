//! Checkpoint chunks: entries of one table, with one checksum for the chunk. The entries are the
//! addresses of records in the log or, for a paged table, the places of its leaves (`leaves`).
//!
//! Checkpoints of earlier builds contain the records of paged tables. If the value of the last
//! record in such a chunk is large, the next chunk of the same table continues it.

mod leaves;

pub(super) use leaves::LEAF_BYTES;

use crate::io::AlignedBuffer;
use crate::page::KeyBytes;
use crate::rid::{Rid, TableId};
use crate::types::{OnDisk, U16, U32, U64, on_disk};
use crate::version::Address;

/// Size of every chunk in bytes.
pub(super) const CHUNK_BYTES: usize = 256 << 10;
const HEADER_BYTES: usize = size_of::<ChunkHeader>();
/// Bytes of a chunk for its entries.
#[cfg(all(test, not(loom)))]
const CONTENT_BYTES: usize = CHUNK_BYTES - HEADER_BYTES;
/// Bytes of an entry before its key.
pub(super) const ENTRY_BYTES: usize = size_of::<EntryHeader>();
/// Minimum length of values that may be continued in the next chunk; values stored on a page are
/// shorter.
pub(super) const MAX_UNSPLIT_VALUE_BYTES: usize = 16 << 10;
/// Bytes of a paged table's record before its key.
pub(super) const RECORD_BYTES: usize = size_of::<ChunkRecordHeader>();

on_disk! {
    struct ChunkHeader {
        /// CRC-32C of the chunk, with this field as zero.
        checksum: U32,
        table: U32,
        /// Number of the chunk in the file, from 0.
        number: U32,
        entries: U16,
        kind: U16,
    }
}

/// Kind of a chunk's entries.
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

const _: () = assert!(HEADER_BYTES == 16 && ENTRY_BYTES == 16 && RECORD_BYTES == 8);
const _: () = assert!((CHUNK_BYTES - HEADER_BYTES) / RECORD_BYTES <= u16::MAX as usize);

/// A chunk being filled.
#[derive(Debug)]
pub(super) struct ChunkWriter {
    buffer: AlignedBuffer,
    table: TableId,
    kind: ChunkKind,
    entries: u16,
    used: usize,
    /// The lowest key of the last leaf.
    last: KeyBytes,
}

impl ChunkWriter {
    pub(super) fn new(table: TableId, kind: ChunkKind) -> Self {
        let buffer = AlignedBuffer::zeroed(CHUNK_BYTES);
        Self { buffer, table, kind, entries: 0, used: HEADER_BYTES, last: KeyBytes::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.used == HEADER_BYTES
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
        self.push_parts([header.as_bytes(), key, &[]])
    }

    /// Adds the parts of an entry. Returns `false` if they do not fit.
    fn push_parts(&mut self, parts: [&[u8]; 3]) -> bool {
        if self.used + parts.iter().map(|part| part.len()).sum::<usize>() > CHUNK_BYTES {
            return false;
        }
        for part in parts {
            self.buffer[self.used..][..part.len()].copy_from_slice(part);
            self.used += part.len();
        }
        self.entries += 1;
        true
    }

    /// Returns the chunk's bytes, as the `number`-th chunk of its file.
    pub(super) fn finish(mut self, number: u32) -> AlignedBuffer {
        let mut header = ChunkHeader {
            checksum: 0.into(),
            table: self.table.0.into(),
            number: number.into(),
            entries: self.entries.into(),
            kind: (self.kind as u16).into(),
        };
        self.buffer[..HEADER_BYTES].copy_from_slice(header.as_bytes());
        header.checksum = crc32c::crc32c(&self.buffer).into();
        self.buffer[..HEADER_BYTES].copy_from_slice(header.as_bytes());
        self.buffer
    }
}

/// A chunk that was read and verified.
#[derive(Debug)]
pub(super) struct ChunkReader<'c> {
    pub(super) table: TableId,
    pub(super) kind: ChunkKind,
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
    /// Verifies and opens the `number`-th chunk of a file. The error describes the damage.
    pub(super) fn new(bytes: &'c [u8], number: u32) -> Result<Self, &'static str> {
        let (header, _) = ChunkHeader::ref_from_prefix(bytes).ok_or("it is cut short")?;
        let sum = crc32c::crc32c_append(crc32c::crc32c(&[0; 4]), &bytes[4..]);
        if sum != header.checksum.get() {
            return Err("the checksum is wrong");
        }
        if header.number.get() != number {
            return Err("it is another chunk");
        }
        let table = TableId(header.table.get());
        let kind = ChunkKind::from_number(header.kind.get()).ok_or("it is of no known kind")?;
        let (left, rest) = (header.entries.get(), &bytes[HEADER_BYTES..]);
        Ok(Self { table, kind, left, rest, last: KeyBytes::new() })
    }

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

#[cfg(all(test, not(loom)))]
impl ChunkWriter {
    /// Adds a record of a paged table. Returns the number of bytes of the value that fit, which are
    /// all unless the value is large; `None` if the record does not fit. The next chunks have the
    /// rest of the value ([`Self::push_rest`]).
    pub(in crate::durability::checkpoint) fn push_record(
        &mut self,
        key: &[u8],
        value: &[u8],
    ) -> Option<usize> {
        assert_eq!(self.kind, ChunkKind::Records);
        let header = ChunkRecordHeader {
            value_bytes: u32::try_from(value.len()).expect("values are bounded").into(),
            key_bytes: u16::try_from(key.len()).expect("keys are short").into(),
            zero: 0.into(),
        };
        let room = CHUNK_BYTES - self.used;
        let part = match room.checked_sub(RECORD_BYTES + key.len())? {
            room if value.len() > MAX_UNSPLIT_VALUE_BYTES => &value[..room.min(value.len())],
            _ => value,
        };
        self.push_parts([header.as_bytes(), key, part]).then_some(part.len())
    }

    /// Adds the continuation of a value, before the first record. Returns the number of bytes that
    /// fit.
    pub(in crate::durability::checkpoint) fn push_rest(&mut self, rest: &[u8]) -> usize {
        assert!(self.kind == ChunkKind::Records && self.is_empty());
        let part = &rest[..rest.len().min(CONTENT_BYTES)];
        self.buffer[self.used..][..part.len()].copy_from_slice(part);
        self.used += part.len();
        part.len()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::log::Lsn;

    #[test]
    fn written_data_is_read_back() {
        let mut writer = ChunkWriter::new(TableId(7), ChunkKind::Addresses);
        let address = |n: u64| Address::new(Lsn(4096 + n * 8), 100);
        let key = |n: u64| vec![n as u8; n as usize % 2000];
        let mut count = 0;
        while writer.push(&key(count), Rid::new(count << 30), address(count)) {
            count += 1;
        }
        let bytes = writer.finish(3);
        assert!(ChunkReader::new(&bytes, 2).is_err());
        let mut damaged = bytes.to_vec();
        damaged[70_000] ^= 4;
        assert_eq!(ChunkReader::new(&damaged, 3).unwrap_err(), "the checksum is wrong");
        let mut reader = ChunkReader::new(&bytes, 3).unwrap();
        for number in 0..count {
            let entry = reader.next().unwrap().unwrap();
            assert_eq!((entry.key, entry.rid), (&key(number)[..], Rid::new(number << 30)));
            assert_eq!(entry.address, address(number));
        }
        assert!(reader.next().is_none());
    }

    #[test]
    fn records_of_paged_tables_are_read_as_they_were_written() {
        let mut writer = ChunkWriter::new(TableId(9), ChunkKind::Records);
        let bytes = |n: usize, most: usize| vec![n as u8; n % most];
        let mut count = 0;
        while writer.push_record(&bytes(count, 7), &bytes(count, 1025)).is_some() {
            count += 1;
        }
        let mut chunk = writer.finish(0);
        let mut reader = ChunkReader::new(&chunk, 0).unwrap();
        assert_eq!((reader.table, reader.kind), (TableId(9), ChunkKind::Records));
        for number in 0..count {
            let ChunkRecord { key, value, rest } = reader.next_record().unwrap().unwrap();
            assert_eq!((key, value), (&bytes(number, 7)[..], &bytes(number, 1025)[..]));
            assert_eq!(rest, 0);
        }
        assert!(reader.next_record().is_none() && count > 400);
        // Bytes from the format documentation: table, number, entries, kind; the lengths of two
        // records, and the key and value of the second one.
        assert_eq!(chunk[4..12], [9, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(chunk[12..16], [count as u8, (count >> 8) as u8, 1, 0]);
        assert_eq!(chunk[16..34], [0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 1]);
        // An unknown kind.
        chunk[14] = 5;
        chunk[..4].fill(0);
        let sum = crc32c::crc32c(&chunk);
        chunk[..4].copy_from_slice(&sum.to_le_bytes());
        assert_eq!(ChunkReader::new(&chunk, 0).unwrap_err(), "it is of no known kind");
    }

    #[test]
    fn a_large_value_goes_on_in_the_next_chunks() {
        let value: Vec<u8> = (0..3 * CHUNK_BYTES).map(|byte| (byte % 251) as u8).collect();
        let new = || ChunkWriter::new(TableId(1), ChunkKind::Records);
        for before in
            [0, 100, CONTENT_BYTES - 8, CONTENT_BYTES - 2 * 8 - 3, CONTENT_BYTES - 2 * 8 - 4]
        {
            let small = vec![7; before.saturating_sub(RECORD_BYTES)];
            let (mut chunks, mut chunk) = (Vec::new(), new());
            let mut pushed = None;
            if before > 0 {
                // Large enough to be continued in the next chunk if it did not fit.
                assert_eq!(chunk.push_record(b"", &small), Some(small.len()));
                pushed = chunk.push_record(b"key", &value);
                assert_eq!(pushed.is_none(), CONTENT_BYTES - before < RECORD_BYTES + 3);
            }
            let mut passed = match pushed {
                Some(passed) => passed,
                None if before == 0 => chunk.push_record(b"key", &value).unwrap(),
                None => {
                    chunks.push(std::mem::replace(&mut chunk, new()).finish(0));
                    chunk.push_record(b"key", &value).unwrap()
                }
            };
            while passed < value.len() {
                let number = chunks.len() as u32;
                chunks.push(std::mem::replace(&mut chunk, new()).finish(number));
                passed += chunk.push_rest(&value[passed..]);
            }
            assert_eq!(chunk.push_record(b"last", b"one"), Some(3));
            let number = chunks.len() as u32;
            chunks.push(chunk.finish(number));
            let (mut read, mut rest, mut keys) = (Vec::new(), 0, Vec::new());
            for (number, chunk) in chunks.iter().enumerate() {
                let mut reader = ChunkReader::new(chunk, number as u32).unwrap();
                let more = reader.take_rest(rest);
                read.extend_from_slice(more);
                rest -= more.len();
                while let Some(record) = reader.next_record() {
                    let record = record.unwrap();
                    assert_eq!(rest, 0);
                    keys.push(record.key);
                    if record.key == b"key" {
                        read.extend_from_slice(record.value);
                        rest = record.rest;
                    }
                }
            }
            assert!(read == value && rest == 0);
            assert_eq!(keys[keys.len() - 2..], [&b"key"[..], b"last"]);
        }
    }
}
