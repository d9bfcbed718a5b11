//! Bulk operations on a paged table: what one leaves lies on the page beside what was there before, and one stamp
//! says for all of it who sees which (virtual versions, Umbra MVCC §3.5). So there are no changes in memory.
//!
//! | slot | flags | its cell has |
//! |---|---|---|
//! | a record that the operation made | *created* | the value that it left |
//! | one that it gave another value | *created*, *deleted* | both values (`pair`) |
//! | one that it deleted | *deleted*, and that of deleted records | the value before |
//!
//! The page's header has the number of the operation's *epoch*; the table has the number of its newest one, and the
//! stamp of that (`epoch`). Marks of earlier epochs stand for what everybody sees.
//!
//! Marks are taken off a page by whoever latches it to write, once it is known what became of the operation, and by a
//! sweep over the table (`sweep`): of an operation that was aborted before the next may begin, of one that committed when
//! everybody sees it. A regular write to a marked record that is not seen by all makes a change of what the
//! operation did first, so that below it everything is as ever.
//!
//! While an operation is under way others do not write the table (`gate`).
//!
//! Invariants: the marks of a page are of one epoch, and it has none whose epoch was taken back everywhere. Changes of
//! a marked record are older than the mark, and no change of it is undecided. What is before a mark is on the page as long as
//! anybody may see it, so taking an operation back takes no room.

mod epoch;
mod gate;
mod pair;
mod sweep;
mod write;

pub(crate) use epoch::BulkEpochs;
pub(super) use epoch::{Marks, Virtual};
pub(crate) use gate::Gate;
pub(super) use pair::{pair_bytes, read_pair, with_pair};
pub(crate) use sweep::SweepPosition;
pub(crate) use write::{BulkRefused, BulkWritten};

use super::layout::SlotFlags;
use super::table::PagedTable;
use super::tree::LatchedLeaf;
use super::value::{CopiedValue, SlotValue};
use super::versions::{ChangeRef, Mapping, Refusal};
use crate::log::Lsn;
use crate::version::{Stamp, StatusTable, View};

/// What a table has for bulk operations.
#[derive(Debug, Default)]
pub(crate) struct BulkState {
    pub(crate) gate: Gate,
    pub(crate) epochs: BulkEpochs,
}

impl PagedTable {
    /// What there is of bulk operations on the table.
    pub(crate) fn bulk(&self) -> &BulkState {
        &self.bulk
    }

    /// Makes the marks of a leaf those of nobody, if it is known what became of their operation, and otherwise those of the
    /// slot of `key` changes. A change that this makes is the caller's, to be collected when it is due.
    ///
    /// # Errors
    /// If the writer may not write the record because of its mark.
    pub(super) fn unmark_for_write(
        &self,
        leaf: &mut LatchedLeaf<'_>,
        key: &[u8],
        view: View<'_>,
    ) -> Result<Option<ChangeRef>, Refusal> {
        let epoch = leaf.bulk_epoch();
        if epoch == 0 {
            return Ok(None);
        }
        let committed = match self.bulk.epochs.marks(epoch, view.status) {
            Marks::SeenByAll => {
                self.unmark_all(leaf, true);
                return Ok(None);
            }
            Marks::Aborted => {
                self.unmark_all(leaf, false);
                return Ok(None);
            }
            Marks::Committed(lsn) => Some(lsn),
            Marks::Undecided => None,
        };
        let super::layout::Slot::At(place) = leaf.find(key) else { return Ok(None) };
        if !leaf.flags(place).is_marked() {
            return Ok(None);
        }
        match committed {
            None => Err(Refusal::Conflict),
            Some(lsn) if lsn >= view.begin => Err(Refusal::Newer),
            Some(lsn) => Ok(Some(self.make_change(leaf, place, key, lsn))),
        }
    }

    /// Takes the marks off a leaf, if everybody sees what they stand for.
    pub(super) fn unmark_seen_by_all(&self, leaf: &mut LatchedLeaf<'_>, status: &StatusTable) {
        let epoch = leaf.bulk_epoch();
        if epoch != 0 && self.bulk.epochs.marks(epoch, status) == Marks::SeenByAll {
            self.unmark_all(leaf, true);
        }
    }

    /// The same, or if their operation was aborted.
    fn unmark_decided(&self, leaf: &mut LatchedLeaf<'_>, status: &StatusTable) {
        let epoch = leaf.bulk_epoch();
        if epoch == 0 {
            return;
        }
        match self.bulk.epochs.marks(epoch, status) {
            Marks::SeenByAll => self.unmark_all(leaf, true),
            Marks::Aborted => self.unmark_all(leaf, false),
            Marks::Committed(_) | Marks::Undecided => {}
        }
    }

    /// Makes a change of what a bulk operation did to a record, which committed at this LSN.
    fn make_change(
        &self,
        leaf: &mut LatchedLeaf<'_>,
        place: usize,
        key: &[u8],
        committed: Lsn,
    ) -> ChangeRef {
        let (flags, before) = (leaf.flags(place), leaf.value_before(place));
        let now = flags.is_pair().then(|| leaf.value(place));
        let word = leaf.mapping();
        // SAFETY: latched; the key has a slot.
        let (chain, new_word) =
            unsafe { Mapping::find_or_make(word, self.memory(), self.id(), key) };
        leaf.set_mapping(new_word);
        let versioned = SlotFlags::NONE.with(SlotFlags::VERSIONED);
        match now {
            Some(now) => leaf.overwrite_value(place, now.as_slot(), versioned),
            None => leaf.set_flags(place, flags.unmarked().with(SlotFlags::VERSIONED)),
        }
        let before = before.as_ref().map(CopiedValue::as_slot);
        // SAFETY: latched from before the look at the record, whose changes are older than the mark.
        unsafe { chain.push_committed(self.memory(), Stamp::committed(committed), before) }
    }

    /// Takes the marks off a leaf: the operation `stands`, and everybody sees it, or it was aborted.
    fn unmark_all(&self, leaf: &mut LatchedLeaf<'_>, stands: bool) {
        leaf.touch();
        for place in (0..leaf.count()).rev() {
            if leaf.flags(place).is_marked() {
                self.unmark(leaf, place, stands);
            }
        }
        leaf.set_bulk_epoch(0);
    }

    fn unmark(&self, leaf: &mut LatchedLeaf<'_>, place: usize, stands: bool) {
        let flags = leaf.flags(place);
        let chained = flags.has(SlotFlags::VERSIONED);
        let kept = match chained {
            true => SlotFlags::NONE.with(SlotFlags::VERSIONED),
            false => SlotFlags::NONE,
        };
        if flags.is_pair() {
            let (now, before) = leaf.pair(place);
            let (stays, goes) = if stands { (now, before) } else { (before, now) };
            leaf.overwrite_value(place, stays.as_slot(), kept);
            self.queue_for_removal(goes.as_slot());
        } else if flags.has(SlotFlags::BULK_CREATED) == stands {
            leaf.set_flags(place, kept);
        } else {
            let goes = leaf.value(place);
            if chained {
                leaf.set_flags(place, kept.with(SlotFlags::DELETED));
            } else {
                leaf.remove(place);
            }
            self.queue_for_removal(goes.as_slot());
        }
    }

    /// Queues a value for removal that nobody sees any more, if it is a large one.
    fn queue_for_removal(&self, value: SlotValue<'_>) {
        if let Some(large) = value.large() {
            self.large().expect("it led to a value").queue_for_removal(large);
        }
    }
}
