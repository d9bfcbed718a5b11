//! Records inside a block: the effect of one committed write on one record.
//!
//! Invariant: a record starts and ends at a multiple of 8, padded with zeros.

use crate::rid::{Rid, TableId};
use crate::types::{
    OnDisk, U16, U32, U64,
    checksum::{self, SumInstructions},
    on_disk,
};

/// Blocks and records start and end at multiples of this.
pub(crate) const BLOCK_ALIGNMENT: usize = 8;
/// The size of a record header in bytes.
pub(crate) const RECORD_HEADER_BYTES: usize = 24;

on_disk! {
    /// The header at the start of every record; key and value follow.
    pub(crate) struct RecordHeader {
        pub(crate) rid: U64,
        pub(crate) table: U32,
        pub(crate) value_bytes: U32,
        pub(crate) key_bytes: U16,
        pub(crate) kind: u8,
        /// Zero.
        pub(crate) reserved: u8,
        /// CRC-32C of the record, with this field taken as zero and without the padding.
        pub(crate) checksum: U32,
    }
}

const _: () = assert!(size_of::<RecordHeader>() == RECORD_HEADER_BYTES);
const _: () = assert!(RECORD_HEADER_BYTES.is_multiple_of(BLOCK_ALIGNMENT));

impl RecordHeader {
    /// Creates the header of a record, including its checksum.
    #[inline(always)]
    pub(crate) fn new(
        (table, kind): (TableId, RecordKind),
        rid: Rid,
        key: &[u8],
        value: &[u8],
        instructions: Option<SumInstructions>,
    ) -> Self {
        let mut header = Self {
            rid: rid.number().into(),
            table: table.0.into(),
            value_bytes: u32::try_from(value.len()).expect("values are short").into(),
            key_bytes: u16::try_from(key.len()).expect("keys are short").into(),
            kind: kind as u8,
            reserved: 0,
            checksum: 0.into(),
        };
        let unsummed = header.as_array::<RECORD_HEADER_BYTES>();
        header.checksum = checksum::append_detected(instructions, 0, unsummed, [key, value]).into();
        header
    }

    /// Returns the size of the record in bytes, including padding.
    pub(crate) fn record_bytes(&self) -> usize {
        record_bytes(self.key_bytes.get().into(), self.value_bytes.get() as usize)
    }

    /// Returns whether the checksum matches; `record` starts with this header and contains the
    /// whole record.
    pub(crate) fn verifies(&self, record: &[u8]) -> bool {
        let header = Self { checksum: 0.into(), ..*self };
        let end = RECORD_HEADER_BYTES
            + usize::from(self.key_bytes.get())
            + self.value_bytes.get() as usize;
        let body = &record[RECORD_HEADER_BYTES..end];
        checksum::append(0, header.as_array::<RECORD_HEADER_BYTES>(), [body]) == self.checksum.get()
    }
}

/// The kind of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum RecordKind {
    /// A new record: key and value are logged.
    Insert = 1,
    /// A new value of an existing record.
    Update = 2,
    /// The deletion of a record.
    Delete = 3,
    /// A new value for a key of a paged table, with or without an existing record. The record id is
    /// 0.
    PutByKey = 6,
    /// The deletion of the record of a key of a paged table, if it exists. The record id is 0.
    DeleteByKey = 7,
}

impl RecordKind {
    /// Returns whether the record belongs to a paged table. Databases of the first format version
    /// have none.
    pub(crate) fn is_by_key(self) -> bool {
        matches!(self, Self::PutByKey | Self::DeleteByKey)
    }

    fn from_code(code: u8) -> Option<Self> {
        match code {
            1 => Some(Self::Insert),
            2 => Some(Self::Update),
            3 => Some(Self::Delete),
            6 => Some(Self::PutByKey),
            7 => Some(Self::DeleteByKey),
            _ => None,
        }
    }
}

/// Returns the bytes of log for a record with a key and a value of these sizes.
pub(crate) const fn record_bytes(key_bytes: usize, value_bytes: usize) -> usize {
    RECORD_HEADER_BYTES + (key_bytes + value_bytes).next_multiple_of(BLOCK_ALIGNMENT)
}

/// A record read from the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordView<'b> {
    pub(crate) table: TableId,
    pub(crate) kind: RecordKind,
    pub(crate) rid: Rid,
    pub(crate) key: &'b [u8],
    pub(crate) value: &'b [u8],
}

/// Returns the checksum of the headers of `records` records, which must fill `body`. Returns `None`
/// if they do not, or one of them is damaged.
pub(crate) fn sum_records(body: &[u8], records: usize) -> Option<u32> {
    let (mut rest, mut sum) = (body, 0);
    for _ in 0..records {
        let (header, _) = RecordHeader::ref_from_prefix(rest)?;
        let (_, after) = split_record(rest)?;
        if !header.verifies(rest) {
            return None;
        }
        sum = checksum::append(sum, header.as_array::<RECORD_HEADER_BYTES>(), []);
        rest = after;
    }
    rest.is_empty().then_some(sum)
}

/// Splits the first record from the bytes; `None` if they do not start with a record.
pub(crate) fn split_record(bytes: &[u8]) -> Option<(RecordView<'_>, &[u8])> {
    let (header, rest) = RecordHeader::ref_from_prefix(bytes)?;
    let (key_bytes, value_bytes) =
        (usize::from(header.key_bytes.get()), header.value_bytes.get() as usize);
    let padded = record_bytes(key_bytes, value_bytes) - RECORD_HEADER_BYTES;
    if header.rid.get() >= Rid::LIMIT || rest.len() < padded {
        return None;
    }
    let record = RecordView {
        table: TableId(header.table.get()),
        kind: RecordKind::from_code(header.kind)?,
        rid: Rid::new(header.rid.get()),
        key: &rest[..key_bytes],
        value: &rest[key_bytes..key_bytes + value_bytes],
    };
    Some((record, &rest[padded..]))
}
