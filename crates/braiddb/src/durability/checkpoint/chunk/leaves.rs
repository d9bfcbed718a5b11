//! Chunk entries of paged tables: leaves with their places, and large values that belong to no
//! record.

use super::{ChunkKind, ChunkReader, ChunkWriter};
use crate::page::{KeyBytes, LargeRef, LeafFromFile, ListedLeaf, StoredOnPage};
use crate::types::{OnDisk, U16, U32, U64, on_disk};

on_disk! {
    /// Start of a leaf's entry. The rest of the leaf's lowest key follows; the shared part is a prefix
    /// of the previous leaf's lowest key in the same section.
    struct LeafHeader {
        /// Word of its place (`page/map.rs`).
        place: U64,
        page: U64,
        records: U16,
        /// Bytes of the records' keys and values.
        bytes: U16,
        /// Number of bytes that the key shares with the previous one.
        shared: U16,
        /// Number of bytes of the key's rest.
        rest: U16,
    }
}

on_disk! {
    /// A large value that belongs to no record. The first entry of a table has the number of the next
    /// large value, and length 0.
    struct ValueEntry {
        number: U64,
        bytes: U32,
        zero: U32,
    }
}

/// Bytes of a leaf's entry without its key.
pub(in crate::durability::checkpoint) const LEAF_BYTES: usize = size_of::<LeafHeader>();
const _: () = assert!(LEAF_BYTES == 24 && size_of::<ValueEntry>() == 16);

impl ChunkWriter {
    /// Adds a leaf. Returns `false` if it does not fit.
    pub(in crate::durability::checkpoint) fn push_leaf(&mut self, leaf: &ListedLeaf) -> bool {
        assert!(matches!(self.kind, ChunkKind::Leaves | ChunkKind::Pieces));
        let both = self.last.iter().zip(&leaf.low);
        let shared = both.take_while(|(last, low)| last == low).count();
        let rest = &leaf.low[shared..];
        let bytes = |bytes: usize| u16::try_from(bytes).expect("keys are short").into();
        let header = LeafHeader {
            place: leaf.place.word().into(),
            page: leaf.page.number().into(),
            records: leaf.stored.records.into(),
            bytes: leaf.stored.bytes.into(),
            shared: bytes(shared),
            rest: bytes(rest.len()),
        };
        let fits = self.push_parts([header.as_bytes(), rest]);
        if fits {
            self.last.clone_from(&leaf.low);
        }
        fits
    }

    /// Adds a large value that belongs to no record. Returns `false` if it does not fit.
    pub(in crate::durability::checkpoint) fn push_unowned(&mut self, large: LargeRef) -> bool {
        self.push_value(large.number(), large.bytes() as u32)
    }

    /// Adds the number of the next large value, as the first entry. Returns `false` if it does not
    /// fit.
    pub(in crate::durability::checkpoint) fn push_next_value(&mut self, number: u64) -> bool {
        self.push_value(number, 0)
    }

    fn push_value(&mut self, number: u64, bytes: u32) -> bool {
        assert_eq!(self.kind, ChunkKind::Unowned);
        let entry = ValueEntry { number: number.into(), bytes: bytes.into(), zero: 0.into() };
        self.push_parts([entry.as_bytes(), &[]])
    }
}

impl ChunkReader<'_> {
    /// Returns the next leaf; `None` after the last.
    pub(in crate::durability::checkpoint) fn next_leaf(
        &mut self,
    ) -> Option<Result<LeafFromFile<'_>, &'static str>> {
        assert!(matches!(self.kind, ChunkKind::Leaves | ChunkKind::Pieces));
        self.left = self.left.checked_sub(1)?;
        Some(self.leaf().ok_or("a leaf makes no sense"))
    }

    fn leaf(&mut self) -> Option<LeafFromFile<'_>> {
        let (header, rest) = LeafHeader::ref_from_prefix(self.rest)?;
        let (key, rest) = rest.split_at_checked(header.rest.get().into())?;
        let mut low = KeyBytes::from_slice(self.last.get(..header.shared.get().into())?);
        low.extend_from_slice(key);
        (self.rest, self.last) = (rest, low);
        let stored = StoredOnPage { records: header.records.get(), bytes: header.bytes.get() };
        let (page, place) = (header.page.get(), header.place.get());
        Some(LeafFromFile { low: &self.last, page, place, stored })
    }

    /// Returns the next large value that belongs to no record; `None` after the last.
    pub(in crate::durability::checkpoint) fn next_unowned(
        &mut self,
    ) -> Option<Result<LargeRef, &'static str>> {
        assert_eq!(self.kind, ChunkKind::Unowned);
        self.left = self.left.checked_sub(1)?;
        Some(self.value().ok_or("a large value makes no sense"))
    }

    fn value(&mut self) -> Option<LargeRef> {
        let (entry, rest) = ValueEntry::ref_from_prefix(self.rest)?;
        self.rest = rest;
        Some(LargeRef::numbered(entry.number.get(), entry.bytes.get()))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::durability::checkpoint::chunk::first_section;
    use crate::rid::TableId;

    #[test]
    fn leaves_are_read_as_they_were_written() {
        let mut writer = ChunkWriter::new();
        writer.begin_section(TableId(9), ChunkKind::Leaves);
        let low =
            |n: u64| KeyBytes::from_slice(format!("{n:09}").repeat(1 + n as usize % 9).as_bytes());
        let leaf = |n: u64| ListedLeaf::numbered(low(n), n);
        let mut count = 0;
        while writer.push_leaf(&leaf(count)) {
            count += 1;
        }
        assert!(count > 4000);
        let chunk = writer.finish(3);
        // Bytes from the format documentation: shared and rest of the first and the second entry.
        assert_eq!(chunk[48..52], [0, 0, 9, 0]);
        assert_eq!(chunk[28 + 24 + 9 + 20..][..4], [8, 0, 10, 0]);
        let (_, section) = first_section(&chunk, 3).unwrap();
        let mut reader = section.reader(&chunk);
        for number in 0..count {
            let expected = leaf(number);
            let found = reader.next_leaf().unwrap().unwrap();
            assert_eq!(found.low, &expected.low[..]);
            assert_eq!((found.page, found.place), (expected.page.number(), expected.place.word()));
            assert_eq!(found.stored, expected.stored);
        }
        assert!(reader.next_leaf().is_none());
    }

    #[test]
    fn large_values_without_a_record_are_read_as_they_were_written() {
        let mut writer = ChunkWriter::new();
        writer.begin_section(TableId(9), ChunkKind::Unowned);
        assert!(writer.push_next_value(77));
        assert!(writer.push_unowned(LargeRef::numbered(5, 5000)));
        let chunk = writer.finish(0);
        let (_, section) = first_section(&chunk, 0).unwrap();
        let mut reader = section.reader(&chunk);
        assert_eq!(reader.next_unowned().unwrap(), Ok(LargeRef::numbered(77, 0)));
        assert_eq!(reader.next_unowned().unwrap(), Ok(LargeRef::numbered(5, 5000)));
        assert!(reader.next_unowned().is_none());
    }
}
