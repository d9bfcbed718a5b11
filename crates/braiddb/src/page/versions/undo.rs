//! Bytes to reserve on a page for the undo of a record's undecided changes.
//!
//! A transaction that writes a record after each of many savepoints makes a change each time, and each
//! write asks for these bytes. So the chain keeps the length of the longest before-image, and no write
//! visits its older changes. A rollback to a savepoint does not reduce that length: it may be too large
//! until the transaction ends.

use super::chain::Chain;
use crate::page::layout::{MAX_PAGE_BYTES, max_pair_bytes};
use crate::page::value::SlotValue;
use crate::sync::atomic::Ordering;
use crate::version::Stamp;

/// Lengths of cells, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CellLengths {
    on_page: u16,
    /// Of the before-images of undecided and aborted changes.
    longest_before: u16,
}

const _: () = assert!(max_pair_bytes(MAX_PAGE_BYTES) <= u16::MAX as usize);

impl CellLengths {
    fn from_word(word: u32) -> Self {
        Self { on_page: word as u16, longest_before: (word >> u16::BITS) as u16 }
    }

    fn word(self) -> u32 {
        u32::from(self.on_page) | u32::from(self.longest_before) << u16::BITS
    }
}

fn length(bytes: usize) -> u16 {
    u16::try_from(bytes).expect("cells are shorter than a page")
}

impl Chain<'_> {
    fn cell_lengths(self) -> CellLengths {
        // Relaxed: only the holder of the page's latch accesses it.
        CellLengths::from_word(self.lengths().load(Ordering::Relaxed))
    }

    fn set_cell_lengths(self, lengths: CellLengths) {
        // Relaxed: only the holder of the page's latch accesses it.
        self.lengths().store(lengths.word(), Ordering::Relaxed);
    }

    /// Records the length of the value on the page. Called at every write, by the task that has the
    /// page latched.
    pub(crate) fn note_on_page(self, bytes: usize) {
        self.set_cell_lengths(CellLengths { on_page: length(bytes), ..self.cell_lengths() });
    }

    /// Records the before-image of a change with this stamp that is pushed onto a change with the
    /// stamp `newest`. The caller has the page latched.
    pub(super) fn note_before(
        self,
        newest: Option<Stamp>,
        stamp: Stamp,
        before: Option<SlotValue<'_>>,
    ) {
        let lengths = self.cell_lengths();
        let bytes = length(before.map_or(0, SlotValue::cell_bytes));
        // The changes of other transactions are committed, because the write was not refused.
        let is_first = newest.is_none_or(|newest| newest != stamp && newest != Stamp::ABORTED);
        let longest_before = if is_first { bytes } else { lengths.longest_before.max(bytes) };
        self.set_cell_lengths(CellLengths { longest_before, ..lengths });
    }

    /// Returns the maximum number of bytes by which the value on the page may grow when undecided
    /// or aborted changes are undone. The caller has the page latched.
    pub(super) fn undo_bytes(self) -> usize {
        let can_be_undone = self
            .newest_stamp()
            .is_some_and(|stamp| stamp.name().is_some() || stamp == Stamp::ABORTED);
        let CellLengths { on_page, longest_before } = self.cell_lengths();
        if can_be_undone { longest_before.saturating_sub(on_page).into() } else { 0 }
    }
}
