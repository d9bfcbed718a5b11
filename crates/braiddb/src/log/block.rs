//! Log blocks: the header of one committed transaction's records (ELEDA §3.1).
//!
//! A block is stored at its own LSN. A header whose `lsn` differs from its position is invalid, so
//! stale bytes are never mistaken for a block. The checksum covers the headers of the block's
//! records, each with the record's own checksum, and then the block's header, with the checksum
//! field taken as zero. The body of a skip block contains no records. `docs/format.md` has the
//! table.

use super::Lsn;
use super::record::{BLOCK_ALIGNMENT, RECORD_HEADER_BYTES, sum_records};
use crate::types::{OnDisk, U16, U32, U64, checksum, on_disk};

/// The size of a block header in bytes.
pub(crate) const HEADER_BYTES: usize = 32;
/// Maximum size of a common block, in bytes. The log admits common blocks without further checks of
/// its space. A transaction that needs more is logged in parts. Only a part with a single record
/// may be larger.
pub(crate) const MAX_COMMON_BLOCK_BYTES: usize = 1 << 20;
/// Maximum size of any block, in bytes.
pub(crate) const MAX_LARGE_BLOCK_BYTES: usize = 24 << 20;

on_disk! {
    /// The header at the start of every block.
    pub(crate) struct BlockHeader {
        /// The position of the block.
        pub(crate) lsn: U64,
        /// The position of the transaction's first part; 0 without parts.
        pub(crate) first_part: U64,
        /// The size of the block in bytes, including this header.
        pub(crate) length: U32,
        /// CRC-32C.
        pub(crate) checksum: U32,
        /// The distance from `lsn` back to the durable LSN that was known when the block was
        /// filled.
        pub(crate) durable_distance: U32,
        pub(crate) record_count: U16,
        pub(crate) kind: u8,
        /// Zero.
        pub(crate) reserved: u8,
    }
}

const _: () = assert!(size_of::<BlockHeader>() == HEADER_BYTES);
const _: () = assert!(std::mem::offset_of!(BlockHeader, checksum) == 20);
const _: () = assert!(std::mem::offset_of!(BlockHeader, kind) == 30);
const _: () = assert!(HEADER_BYTES.is_multiple_of(BLOCK_ALIGNMENT));
const _: () = assert!(MAX_COMMON_BLOCK_BYTES / RECORD_HEADER_BYTES <= u16::MAX as usize);

/// The kind of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlockKind {
    /// A committed transaction: these records, and those of its parts, if any.
    Commit { first_part: Option<Lsn> },
    /// Records that become valid if a commit block names the same first part.
    Part { first_part: Lsn },
    /// Records that compaction logged again, with unchanged values.
    Moved,
    /// No records: padding, or a transaction that failed after it reserved its block.
    Skip,
}

const COMMIT: u8 = 1;
const PART: u8 = 2;
const SKIP: u8 = 3;
const MOVED: u8 = 4;

impl BlockHeader {
    #[inline(always)]
    pub(crate) fn new(
        lsn: Lsn,
        bytes: usize,
        durable: Lsn,
        (record_count, records_sum): (usize, u32),
        kind: BlockKind,
    ) -> Self {
        assert!(durable <= lsn, "a block being filled is not durable");
        let distance = u32::try_from(lsn.0 - durable.0).expect("rings are smaller than 4 GiB");
        let (kind, first_part) = match kind {
            BlockKind::Commit { first_part } => (COMMIT, first_part.unwrap_or(Lsn::ZERO)),
            BlockKind::Part { first_part } => (PART, first_part),
            BlockKind::Skip => (SKIP, Lsn::ZERO),
            BlockKind::Moved => (MOVED, Lsn::ZERO),
        };
        let mut header = Self {
            lsn: lsn.0.into(),
            first_part: first_part.0.into(),
            length: u32::try_from(bytes).expect("no block is that large").into(),
            checksum: 0.into(),
            durable_distance: distance.into(),
            record_count: u16::try_from(record_count).expect("bounded by the block's size").into(),
            kind,
            reserved: 0,
        };
        header.checksum = header.checksum_unset(records_sum).into();
        header
    }

    /// Returns the header at the start of `bytes`, if it may be that of a block at `lsn`. Does not
    /// verify the checksum.
    pub(crate) fn plausible(bytes: &[u8], lsn: Lsn) -> Option<(&Self, BlockKind)> {
        let (header, _) = Self::ref_from_prefix(bytes)?;
        let length = header.length.get() as usize;
        let first_part = Lsn(header.first_part.get());
        let kind = match header.kind {
            COMMIT if first_part == Lsn::ZERO => BlockKind::Commit { first_part: None },
            COMMIT if first_part < lsn => BlockKind::Commit { first_part: Some(first_part) },
            PART if first_part != Lsn::ZERO && first_part <= lsn => BlockKind::Part { first_part },
            SKIP if first_part == Lsn::ZERO => BlockKind::Skip,
            MOVED if first_part == Lsn::ZERO => BlockKind::Moved,
            _ => return None,
        };
        let fits = header.lsn.get() == lsn.0
            && (HEADER_BYTES..=MAX_LARGE_BLOCK_BYTES).contains(&length)
            && length.is_multiple_of(BLOCK_ALIGNMENT)
            && header.reserved == 0
            && u64::from(header.durable_distance.get()) <= lsn.0;
        fits.then_some((header, kind))
    }

    pub(crate) fn bytes(&self) -> usize {
        self.length.get() as usize
    }

    /// Returns the durable LSN that was known when the block was filled.
    pub(crate) fn durable(&self) -> Lsn {
        Lsn(self.lsn.get() - u64::from(self.durable_distance.get()))
    }

    /// Returns the checksum of the block with this header, whose own checksum is zero, from the
    /// checksum of its records' headers.
    #[inline]
    fn checksum_unset(&self, records_sum: u32) -> u32 {
        checksum::append(records_sum, self.as_array::<HEADER_BYTES>(), [])
    }

    /// Returns whether all checksums match; `block` is the whole block.
    pub(crate) fn verifies(&self, block: &[u8]) -> bool {
        let body = if self.kind == SKIP { &[][..] } else { &block[HEADER_BYTES..self.bytes()] };
        let records_sum = sum_records(body, self.record_count.get().into());
        let header = Self { checksum: 0.into(), ..*self };
        records_sum.is_some_and(|sum| header.checksum_unset(sum) == self.checksum.get())
    }
}

/// Returns the size of a block whose records take `records_total` bytes.
pub(crate) const fn block_bytes(records_total: usize) -> usize {
    HEADER_BYTES + records_total
}
