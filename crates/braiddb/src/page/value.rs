//! Values as slots and changes have them: themselves, or, if they are longer than a quarter of a page, where they are.

use smallvec::SmallVec;

use super::layout::{SlotFlags, WORD_BYTES};

/// A value copied from a page.
pub(crate) type ValueBytes = SmallVec<[u8; 128]>;

/// A value that is too long for a page: its pieces lie elsewhere (`page/large.rs`). No two values of a table, not even
/// one after the other, have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LargeRef {
    /// The value's number in its table.
    pub(super) number: u64,
    /// Its length.
    pub(super) bytes: u32,
}

impl LargeRef {
    /// The value's length, in bytes.
    pub(crate) fn bytes(self) -> usize {
        self.bytes as usize
    }

    /// The value's number in its table.
    pub(crate) fn number(self) -> u64 {
        self.number
    }

    /// That of a table's value by its number: they are counted from one.
    pub(crate) fn numbered(number: u64, bytes: u32) -> Self {
        Self { number, bytes }
    }
}

/// What a slot or a change has of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SlotValue<'v> {
    /// The value.
    Here(&'v [u8]),
    /// Where it is.
    Elsewhere(LargeRef),
}

/// The same, copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CopiedValue {
    Here(ValueBytes),
    Elsewhere(LargeRef),
}

impl<'v> SlotValue<'v> {
    /// From the bytes of a cell, and the length of the whole value, if it lies elsewhere.
    pub(super) fn from_cell(cell: &'v [u8], elsewhere: Option<usize>) -> Self {
        let Some(bytes) = elsewhere else { return Self::Here(cell) };
        let mut number = [0; WORD_BYTES];
        // A reader may be shown what means nothing.
        let there = cell.len().min(WORD_BYTES);
        number[..there].copy_from_slice(&cell[..there]);
        Self::Elsewhere(LargeRef { number: u64::from_le_bytes(number), bytes: bytes as u32 })
    }

    /// Bytes of the value's cell.
    pub(super) fn cell_bytes(self) -> usize {
        match self {
            Self::Here(value) => value.len(),
            Self::Elsewhere(_) => WORD_BYTES,
        }
    }

    /// The length of the whole value.
    pub(super) fn value_bytes(self) -> usize {
        match self {
            Self::Here(value) => value.len(),
            Self::Elsewhere(large) => large.bytes(),
        }
    }

    /// Calls `write` with what its cell has.
    pub(super) fn with_cell<R>(self, write: impl FnOnce(&[u8]) -> R) -> R {
        match self {
            Self::Here(value) => write(value),
            Self::Elsewhere(large) => write(&large.number.to_le_bytes()),
        }
    }

    /// Flags of its slot, with these.
    pub(super) fn flags(self, others: SlotFlags) -> SlotFlags {
        match self {
            Self::Here(_) => others.without(SlotFlags::OVERFLOW),
            Self::Elsewhere(_) => others.with(SlotFlags::OVERFLOW),
        }
    }

    /// Where it is, if that is elsewhere.
    pub(crate) fn large(self) -> Option<LargeRef> {
        match self {
            Self::Here(_) => None,
            Self::Elsewhere(large) => Some(large),
        }
    }

    /// A copy.
    pub(super) fn copied(self) -> CopiedValue {
        match self {
            Self::Here(value) => CopiedValue::Here(ValueBytes::from_slice(value)),
            Self::Elsewhere(large) => CopiedValue::Elsewhere(large),
        }
    }
}

impl CopiedValue {
    /// What was copied.
    pub(super) fn as_slot(&self) -> SlotValue<'_> {
        match self {
            Self::Here(value) => SlotValue::Here(value),
            Self::Elsewhere(large) => SlotValue::Elsewhere(*large),
        }
    }
}
