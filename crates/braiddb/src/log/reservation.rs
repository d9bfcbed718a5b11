//! A reserved block that is filled in place in the ring.
//!
//! Invariant: only the reservation accesses the bytes `[lsn, lsn + bytes)` of the ring until it is
//! finished. A reservation that is dropped unfinished becomes a skip block, so the log never has a
//! hole.

use super::Lsn;
use super::block::{BlockHeader, BlockKind, HEADER_BYTES};
use super::record::{BLOCK_ALIGNMENT, RECORD_HEADER_BYTES, RecordHeader, RecordKind, record_bytes};
use super::ring::Ring;
use super::space::Space;
use super::tracker::LogTracker;
use crate::rid::{Rid, TableId};
use crate::types::{
    OnDisk,
    checksum::{self, SumInstructions},
};

/// Space for one block.
#[derive(Debug)]
#[must_use = "dropped, it becomes a skip block"]
pub(crate) struct Reservation<'l> {
    ring: &'l Ring,
    space: &'l Space<LogTracker>,
    filler: usize,
    lsn: u64,
    bytes: usize,
    /// Filled bytes, including the header.
    filled: usize,
    records: usize,
    /// The checksum of the headers of the records so far.
    records_sum: u32,
}

impl<'l> Reservation<'l> {
    pub(super) fn new(
        ring: &'l Ring,
        space: &'l Space<LogTracker>,
        filler: usize,
        lsn: Lsn,
        bytes: usize,
    ) -> Self {
        assert!(bytes >= HEADER_BYTES, "a block has a header");
        Self {
            ring,
            space,
            filler,
            lsn: lsn.0,
            bytes,
            filled: HEADER_BYTES,
            records: 0,
            records_sum: 0,
        }
    }

    /// Returns the position of the block, which is the transaction's commit LSN.
    pub(crate) fn lsn(&self) -> Lsn {
        Lsn(self.lsn)
    }

    /// Adds a record and returns its position.
    pub(crate) fn append(
        &mut self,
        table: TableId,
        kind: RecordKind,
        rid: Rid,
        key: &[u8],
        value: &[u8],
    ) -> Lsn {
        self.append_inline((table, kind), rid, key, value, SumInstructions::detect())
    }

    /// Does what `append` does, for the loop over a transaction's writes.
    #[inline(always)]
    pub(crate) fn append_inline(
        &mut self,
        (table, kind): (TableId, RecordKind),
        rid: Rid,
        key: &[u8],
        value: &[u8],
        instructions: Option<SumInstructions>,
    ) -> Lsn {
        let bytes = record_bytes(key.len(), value.len());
        assert!(self.filled + bytes <= self.bytes, "more records than were reserved for");
        let header = RecordHeader::new((table, kind), rid, key, value, instructions);
        let at = self.lsn + self.filled as u64;
        // SAFETY: within the reserved bytes, asserted above, which only this reservation accesses.
        unsafe {
            if !(key.len() + value.len()).is_multiple_of(BLOCK_ALIGNMENT) {
                // Zeros for the padding; key and value overwrite the bytes before it.
                self.ring.copy_in(at + bytes as u64 - BLOCK_ALIGNMENT as u64, &[0; 8]);
            }
            self.ring.copy_in_all(at, [header.as_bytes(), key, value]);
        }
        self.filled += bytes;
        self.records += 1;
        let header = header.as_array::<RECORD_HEADER_BYTES>();
        self.records_sum = checksum::append_detected(instructions, self.records_sum, header, []);
        Lsn(at)
    }

    /// Ends the block as a commit; `first_part` is the start of the transaction's parts, if any.
    #[inline(always)]
    pub(crate) fn finish_commit(mut self, first_part: Option<Lsn>) {
        self.finish(BlockKind::Commit { first_part });
    }

    /// Ends the block as one of records that were logged before and have not changed.
    pub(crate) fn finish_moved(mut self) {
        self.finish(BlockKind::Moved);
    }

    /// Ends the block as a part of the transaction whose parts start at `first_part`.
    pub(crate) fn finish_part(mut self, first_part: Lsn) {
        assert!(first_part <= self.lsn(), "the first part comes first");
        self.finish(BlockKind::Part { first_part });
    }

    /// Ends the block as a skip block, which contains no records.
    pub(crate) fn finish_skip(self) {
        drop(self);
    }

    #[inline(never)]
    fn skip(&mut self) {
        self.finish(BlockKind::Skip);
    }

    #[inline(always)]
    fn finish(&mut self, kind: BlockKind) {
        assert!(self.filled != 0, "finished once");
        let skip = kind == BlockKind::Skip;
        assert!(skip || self.filled == self.bytes, "as many records as were reserved for");
        let records = if skip { (0, 0) } else { (self.records, self.records_sum) };
        let durable = self.space.released();
        let header = BlockHeader::new(self.lsn(), self.bytes, durable, records, kind);
        // SAFETY: within the reserved bytes, which only this reservation accesses.
        unsafe { self.ring.copy_in(self.lsn, header.as_bytes()) };
        self.filled = 0;
        self.space.filled(self.filler, self.lsn(), self.bytes as u64, durable);
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        if self.filled != 0 {
            self.skip();
        }
    }
}
