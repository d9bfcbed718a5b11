//! Bulk operations on a paged table: virtual versions (Umbra MVCC §3.5).
//!
//! A bulk operation stores its result on the page next to the before-image. One stamp for the whole
//! operation decides which of the two a transaction sees. So an operation needs no changes in
//! memory.
//!
//! | slot | flags | contents of its cell |
//! |---|---|---|
//! | created by the operation | *created* | the new value |
//! | updated by the operation | *created*, *deleted* | both values (`pair`) |
//! | deleted by the operation | *deleted*, and the flag of deleted records | the before-image |
//!
//! The page's header has the number of the operation's *epoch*. The table has the number and the
//! stamp of its newest epoch (`epoch`). Marks of earlier epochs are visible to all.
//!
//! Marks are removed once the outcome of the operation is known, by each task that latches the page
//! to write, and by a sweep over the table (`sweep`). The marks of an aborted operation are removed
//! before the next may begin; those of a committed one when its result is visible to all. If the
//! result is not visible to all yet, a regular write to a marked record first converts the mark to
//! a change. So the rest of the write is the same as without a mark.
//!
//! While a bulk operation is active, other transactions do not write the table (`gate`).
//!
//! Invariants:
//!
//! - The marks of a page belong to one epoch. No marks remain of an epoch that was rolled back.
//! - Changes of a marked record are older than the mark, and none of them is undecided.
//! - The before-image of a mark stays on the page as long as any transaction may see it, so rolling
//!   back an operation needs no additional room.

mod epoch;
mod gate;
mod pair;
mod state;
mod sweep;
mod write;

pub(super) use epoch::{BulkMarks, VirtualChange};
pub(crate) use gate::BulkGate;
pub(super) use pair::{pair_bytes, read_pair, with_pair};
pub(crate) use state::BulkState;
pub(crate) use sweep::SweepPosition;
pub(crate) use write::{BulkWriteRefusal, BulkWriteResult};

use super::layout::SlotFlags;
use super::table::PagedTable;
use super::tree::LatchedLeaf;
use super::value::{CopiedValue, SlotValue};
use super::versions::{ChangeRef, Mapping, WriteRefusal};
use crate::log::Lsn;
use crate::version::{Stamp, StatusTable, View};

impl PagedTable {
    /// Returns the state of bulk operations on the table.
    pub(crate) fn bulk(&self) -> &BulkState {
        &self.bulk
    }

    /// Removes the marks of a leaf if they are visible to all or their operation was aborted.
    /// Otherwise converts the mark of the slot of `key` to a change. The caller owns that change
    /// and collects it when it is due.
    ///
    /// # Errors
    /// If the writer may not write the record because of its mark.
    pub(super) fn unmark_for_write(
        &self,
        leaf: &mut LatchedLeaf<'_>,
        key: &[u8],
        view: View<'_>,
    ) -> Result<Option<ChangeRef>, WriteRefusal> {
        let epoch = leaf.bulk_epoch();
        if epoch == 0 {
            return Ok(None);
        }
        let committed = match self.bulk.epochs.marks(epoch, view.status) {
            BulkMarks::SeenByAll => {
                self.unmark_all(leaf, true);
                return Ok(None);
            }
            BulkMarks::Aborted => {
                self.unmark_all(leaf, false);
                return Ok(None);
            }
            BulkMarks::Committed(lsn) => Some(lsn),
            BulkMarks::Undecided => None,
        };
        let super::layout::KeySlot::At(place) = leaf.find(key) else { return Ok(None) };
        if !leaf.flags(place).is_marked() {
            return Ok(None);
        }
        match committed {
            None => Err(WriteRefusal::Conflict),
            Some(lsn) if lsn >= view.begin => Err(WriteRefusal::Newer),
            Some(lsn) => Ok(Some(self.make_change(leaf, place, key, lsn))),
        }
    }

    /// Removes the marks of a leaf if they are visible to all.
    pub(super) fn unmark_seen_by_all(&self, leaf: &mut LatchedLeaf<'_>, status: &StatusTable) {
        let epoch = leaf.bulk_epoch();
        if epoch != 0 && self.bulk.epochs.marks(epoch, status) == BulkMarks::SeenByAll {
            self.unmark_all(leaf, true);
        }
    }

    /// Removes the marks of a leaf if they are visible to all or their operation was aborted.
    fn unmark_decided(&self, leaf: &mut LatchedLeaf<'_>, status: &StatusTable) {
        let epoch = leaf.bulk_epoch();
        if epoch == 0 {
            return;
        }
        match self.bulk.epochs.marks(epoch, status) {
            BulkMarks::SeenByAll => self.unmark_all(leaf, true),
            BulkMarks::Aborted => self.unmark_all(leaf, false),
            BulkMarks::Committed(_) | BulkMarks::Undecided => {}
        }
    }

    /// Converts the mark of a record to a change of the operation, which committed at this LSN.
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
        // SAFETY: latched from before the record is read, and the record's changes are older than
        // the mark.
        unsafe { chain.push_committed(self.memory(), Stamp::committed(committed), before) }
    }

    /// Removes the marks of a leaf. If `stands` is true, the operation's result is visible to all
    /// and is kept; otherwise the before-images are restored.
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

    /// Queues a value that no transaction sees any more for removal, if it is a large one.
    fn queue_for_removal(&self, value: SlotValue<'_>) {
        if let Some(large) = value.large() {
            self.large().expect("it referenced a value").queue_for_removal(large);
        }
    }
}
