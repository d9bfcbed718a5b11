//! Values in slots and changes: inline bytes, or a reference if the value is longer than a quarter
//! of a page.

use smallvec::SmallVec;

use super::layout::{SlotFlags, WORD_BYTES};

/// Bytes of a value copied from a page.
pub(crate) type ValueBytes = SmallVec<[u8; 128]>;

/// Reference to a value that is too long for a page (`page/large.rs`). A reference is never reused
/// within a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LargeRef {
    /// Number of the value in its table.
    pub(super) number: u64,
    /// Length of the value in bytes.
    pub(super) bytes: u32,
}

impl LargeRef {
    /// Returns the length of the value in bytes.
    pub(crate) fn bytes(self) -> usize {
        self.bytes as usize
    }

    /// Returns the number of the value in its table.
    pub(crate) fn number(self) -> u64 {
        self.number
    }

    /// Creates the reference to a value from its number; numbers start at one.
    pub(crate) fn numbered(number: u64, bytes: u32) -> Self {
        Self { number, bytes }
    }
}

/// Value of a slot or a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SlotValue<'v> {
    /// The inline value.
    Here(&'v [u8]),
    /// Reference to a large value.
    Elsewhere(LargeRef),
}

/// Owned copy of a [`SlotValue`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CopiedValue {
    Here(ValueBytes),
    Elsewhere(LargeRef),
}

impl<'v> SlotValue<'v> {
    /// Decodes the bytes of a cell. `elsewhere` is the length of the whole value if the cell has a
    /// reference.
    pub(super) fn from_cell(cell: &'v [u8], elsewhere: Option<usize>) -> Self {
        let Some(bytes) = elsewhere else { return Self::Here(cell) };
        let mut number = [0; WORD_BYTES];
        // An unvalidated reader may pass a cell of any length.
        let there = cell.len().min(WORD_BYTES);
        number[..there].copy_from_slice(&cell[..there]);
        Self::Elsewhere(LargeRef { number: u64::from_le_bytes(number), bytes: bytes as u32 })
    }

    /// Returns the bytes of the value's cell.
    pub(crate) fn cell_bytes(self) -> usize {
        match self {
            Self::Here(value) => value.len(),
            Self::Elsewhere(_) => WORD_BYTES,
        }
    }

    /// Returns the length of the whole value.
    pub(super) fn value_bytes(self) -> usize {
        match self {
            Self::Here(value) => value.len(),
            Self::Elsewhere(large) => large.bytes(),
        }
    }

    /// Calls `write` with the bytes of the value's cell.
    pub(super) fn with_cell<R>(self, write: impl FnOnce(&[u8]) -> R) -> R {
        match self {
            Self::Here(value) => write(value),
            Self::Elsewhere(large) => write(&large.number.to_le_bytes()),
        }
    }

    /// Returns the flags of the value's slot, in addition to `others`.
    pub(super) fn flags(self, others: SlotFlags) -> SlotFlags {
        match self {
            Self::Here(_) => others.without(SlotFlags::OVERFLOW),
            Self::Elsewhere(_) => others.with(SlotFlags::OVERFLOW),
        }
    }

    /// Returns the reference, if the value is large.
    pub(crate) fn large(self) -> Option<LargeRef> {
        match self {
            Self::Here(_) => None,
            Self::Elsewhere(large) => Some(large),
        }
    }

    /// Returns an owned copy.
    pub(super) fn copied(self) -> CopiedValue {
        match self {
            Self::Here(value) => CopiedValue::Here(ValueBytes::from_slice(value)),
            Self::Elsewhere(large) => CopiedValue::Elsewhere(large),
        }
    }
}

impl CopiedValue {
    /// Returns the copy as a borrowed value.
    pub(super) fn as_slot(&self) -> SlotValue<'_> {
        match self {
            Self::Here(value) => SlotValue::Here(value),
            Self::Elsewhere(large) => SlotValue::Elsewhere(*large),
        }
    }
}
