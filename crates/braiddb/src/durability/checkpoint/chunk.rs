//! Chunks: the entries of one table, as many as fit, under one checksum.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::io::AlignedBuffer;
use crate::rid::{Rid, TableId};
use crate::version::Address;

/// Bytes of every chunk.
pub(super) const CHUNK_BYTES: usize = 256 << 10;
const HEADER_BYTES: usize = size_of::<ChunkHeader>();
/// Bytes of an entry before its key.
pub(super) const ENTRY_BYTES: usize = size_of::<EntryHeader>();

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct ChunkHeader {
    /// CRC-32C of the chunk, this field taken as zero.
    checksum: U32,
    table: U32,
    /// The chunk's place in the file, from 0.
    number: U32,
    entries: U32,
}

/// The first bytes of an entry; the key follows.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct EntryHeader {
    address: U64,
    rid_low: U32,
    rid_high: U16,
    key_bytes: U16,
}

const _: () = assert!(HEADER_BYTES == 16 && ENTRY_BYTES == 16);

/// A chunk being filled.
#[derive(Debug)]
pub(super) struct ChunkWriter {
    buffer: AlignedBuffer,
    table: TableId,
    entries: u32,
    used: usize,
}

impl ChunkWriter {
    pub(super) fn new(table: TableId) -> Self {
        let buffer = AlignedBuffer::zeroed(CHUNK_BYTES);
        Self { buffer, table, entries: 0, used: HEADER_BYTES }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// Adds an entry; `false` if it does not fit any more.
    pub(super) fn push(&mut self, key: &[u8], rid: Rid, address: Address) -> bool {
        let end = self.used + ENTRY_BYTES + key.len();
        if end > CHUNK_BYTES {
            return false;
        }
        let header = EntryHeader {
            address: address.word().into(),
            rid_low: (rid.number() as u32).into(),
            rid_high: ((rid.number() >> 32) as u16).into(),
            key_bytes: u16::try_from(key.len()).expect("keys are short").into(),
        };
        let place = &mut self.buffer[self.used..end];
        place[..ENTRY_BYTES].copy_from_slice(header.as_bytes());
        place[ENTRY_BYTES..].copy_from_slice(key);
        self.used = end;
        self.entries += 1;
        true
    }

    /// The chunk's bytes, as the `number`-th of its file.
    pub(super) fn finish(mut self, number: u32) -> AlignedBuffer {
        let mut header = ChunkHeader {
            checksum: 0.into(),
            table: self.table.0.into(),
            number: number.into(),
            entries: self.entries.into(),
        };
        self.buffer[..HEADER_BYTES].copy_from_slice(header.as_bytes());
        header.checksum = crc32c::crc32c(&self.buffer).into();
        self.buffer[..HEADER_BYTES].copy_from_slice(header.as_bytes());
        self.buffer
    }
}

/// A chunk read back and checked.
#[derive(Debug)]
pub(super) struct ChunkReader<'c> {
    pub(super) table: TableId,
    left: u32,
    rest: &'c [u8],
}

/// What an entry says.
#[derive(Clone, Copy, Debug)]
pub(super) struct ChunkEntry<'c> {
    pub(super) key: &'c [u8],
    pub(super) rid: Rid,
    pub(super) address: Address,
}

impl<'c> ChunkReader<'c> {
    /// The `number`-th chunk of a file; `Err` says what is wrong with it.
    pub(super) fn new(bytes: &'c [u8], number: u32) -> Result<Self, &'static str> {
        let (header, _) = ChunkHeader::ref_from_prefix(bytes).map_err(|_| "it is cut short")?;
        let sum = crc32c::crc32c_append(crc32c::crc32c(&[0; 4]), &bytes[4..]);
        if sum != header.checksum.get() {
            return Err("the checksum is wrong");
        }
        if header.number.get() != number {
            return Err("it is another chunk");
        }
        let table = TableId(header.table.get());
        Ok(Self { table, left: header.entries.get(), rest: &bytes[HEADER_BYTES..] })
    }

    /// The next entry; `None` after the last.
    pub(super) fn next(&mut self) -> Option<Result<ChunkEntry<'c>, &'static str>> {
        self.left = self.left.checked_sub(1)?;
        Some(self.entry().ok_or("an entry makes no sense"))
    }

    fn entry(&mut self) -> Option<ChunkEntry<'c>> {
        let (header, rest) = EntryHeader::ref_from_prefix(self.rest).ok()?;
        let key = rest.get(..header.key_bytes.get().into())?;
        let number = u64::from(header.rid_high.get()) << 32 | u64::from(header.rid_low.get());
        let address = Address::from_word(header.address.get())?;
        self.rest = &rest[key.len()..];
        (number < Rid::LIMIT).then(|| ChunkEntry { key, rid: Rid::new(number), address })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::log::Lsn;

    #[test]
    fn what_is_written_is_read() {
        let mut writer = ChunkWriter::new(TableId(7));
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
}
