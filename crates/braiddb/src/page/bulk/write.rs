//! Writes of bulk operations.

use super::{pair_bytes, with_pair};
use crate::log::Lsn;
use crate::page::layout::{KeySlot, SlotFlags};
use crate::page::table::PagedTable;
use crate::page::tree::LatchedLeaf;
use crate::page::value::{CopiedValue, LargeRef, SlotValue};
use crate::page::versions::{ChainBase, Mapping, WriteRefusal};
use crate::planted::{Bug, is_planted};
use crate::reclaim::OperationGuard;
use crate::version::View;

/// Outcome of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BulkWriteResult {
    /// The write did not apply.
    Not,
    Done {
        /// Large value that the operation itself had written before; no transaction sees it any
        /// more.
        gone: Option<LargeRef>,
        /// True if the record existed before the operation.
        covers: bool,
    },
}

/// Reason why the write was refused.
#[derive(Debug)]
pub(crate) enum BulkWriteRefusal {
    /// The leaf lacks room for a cell of this many bytes.
    NoRoom(usize),
    /// The value is too long for a cell with the before-image; the caller stores it as a large
    /// value.
    TooLong,
    /// Another transaction has written the record, although the gate excludes that.
    Conflict,
}

/// Target state of a slot.
struct SlotTarget<'v> {
    flags: SlotFlags,
    now: Option<SlotValue<'v>>,
    before: Option<CopiedValue>,
    gone: Option<LargeRef>,
}

impl PagedTable {
    /// Writes or deletes a record for the bulk operation of this epoch. `applies` receives whether
    /// the record exists and its commit LSN, and decides whether to write.
    ///
    /// # Errors
    /// Nothing of the write is done in that case. Earlier marks on the leaf may have been removed.
    #[expect(clippy::too_many_arguments, reason = "the parts of one write")]
    pub(crate) fn write_bulk(
        &self,
        mut leaf: LatchedLeaf<'_>,
        key: &[u8],
        value: Option<SlotValue<'_>>,
        epoch: u64,
        view: View<'_>,
        operation: &OperationGuard,
        applies: impl FnOnce(bool, Option<Lsn>) -> bool,
    ) -> Result<BulkWriteResult, BulkWriteRefusal> {
        debug_assert!(leaf.is_of(self.tree()), "latched by this table");
        let slot = self.slot_for_bulk(&mut leaf, key, epoch, view, operation);
        let (exists, committed) = slot.map_err(|_| BulkWriteRefusal::Conflict)?;
        if !applies(exists, committed) {
            return Ok(BulkWriteResult::Not);
        }
        let target = target(&leaf, key, value);
        if let Some(bytes) = target.bytes() {
            if bytes > self.max_pair_bytes() {
                return Err(BulkWriteRefusal::TooLong);
            }
            if !leaf.has_room_for(key, bytes) {
                return Err(BulkWriteRefusal::NoRoom(bytes));
            }
        }
        put(&mut leaf, key, &target);
        leaf.set_bulk_epoch(epoch);
        let is_sparse = value.is_none() && leaf.is_sparse();
        drop(leaf);
        if is_sparse {
            self.tree().merge_if_in_memory(key);
        }
        Ok(BulkWriteResult::Done { gone: target.gone, covers: target.before.is_some() })
    }

    /// Removes the marks of earlier epochs from a leaf, and rolls back the record of `key`. Returns
    /// whether the record exists, and its commit LSN if it is not visible to all.
    fn slot_for_bulk(
        &self,
        leaf: &mut LatchedLeaf<'_>,
        key: &[u8],
        epoch: u64,
        view: View<'_>,
        operation: &OperationGuard,
    ) -> Result<(bool, Option<Lsn>), WriteRefusal> {
        let marked = leaf.bulk_epoch();
        if marked != 0 && marked != epoch && !is_planted(Bug::OldBulkMarksLeft) {
            // The marks were visible to all when the gate's holder began.
            self.unmark_all(leaf, true);
        }
        self.roll_back_on(leaf, key, view.status);
        let exists = match leaf.find(key) {
            KeySlot::At(place) => !leaf.flags(place).has(SlotFlags::DELETED),
            KeySlot::Before(_) => false,
        };
        // SAFETY: latched.
        let chain = unsafe { Mapping::find(leaf.mapping(), key) };
        let base = match chain {
            // SAFETY: latched, and rolled back above.
            Some(chain) => unsafe { chain.base(view, operation) }?,
            None => ChainBase::Settled,
        };
        match base {
            ChainBase::Settled => Ok((exists, None)),
            ChainBase::Committed(lsn) => Ok((exists, Some(lsn))),
            ChainBase::Own(_) => Err(WriteRefusal::Conflict),
        }
    }
}

/// Returns the target state of the slot of a key, on a leaf whose marks belong to the operation's
/// epoch.
fn target<'v>(leaf: &LatchedLeaf<'_>, key: &[u8], value: Option<SlotValue<'v>>) -> SlotTarget<'v> {
    let (mut before, mut gone, mut chained) = (None, None, false);
    if let KeySlot::At(place) = leaf.find(key) {
        let flags = leaf.flags(place);
        chained = flags.has(SlotFlags::VERSIONED);
        let is_there = !flags.has(SlotFlags::DELETED);
        if flags.is_marked() {
            before = leaf.value_before(place);
            gone = is_there.then(|| leaf.value(place).as_slot().large()).flatten();
        } else if is_there {
            before = Some(leaf.value(place));
        }
    }
    let mut flags = SlotFlags::NONE;
    if chained {
        flags = flags.with(SlotFlags::VERSIONED);
    }
    if value.is_some() {
        flags = flags.with(SlotFlags::BULK_CREATED);
    } else {
        flags = flags.with(SlotFlags::DELETED);
    }
    if before.is_some() {
        flags = flags.with(SlotFlags::BULK_DELETED);
    }
    SlotTarget { flags, now: value, before, gone }
}

impl SlotTarget<'_> {
    /// Returns the length of the cell; `None` if no new cell is needed.
    fn bytes(&self) -> Option<usize> {
        let now = self.now?;
        let before = self.before.as_ref().map(CopiedValue::as_slot);
        Some(before.map_or(now.cell_bytes(), |before| pair_bytes(now, before)))
    }
}

/// Writes the target state to the slot of a key, whose leaf has room.
fn put(leaf: &mut LatchedLeaf<'_>, key: &[u8], target: &SlotTarget<'_>) {
    let before = target.before.as_ref().map(CopiedValue::as_slot);
    match (leaf.find(key), target.now, before) {
        (KeySlot::Before(place), Some(now), _) => leaf.insert_value(place, key, now, target.flags),
        (KeySlot::Before(_), None, _) => unreachable!("only a record that exists is deleted"),
        (KeySlot::At(place), Some(now), None) => leaf.overwrite_value(place, now, target.flags),
        (KeySlot::At(place), Some(now), Some(before)) => {
            with_pair(now, before, |cell| leaf.overwrite_pair(place, cell, target.flags));
        }
        (KeySlot::At(place), None, Some(before)) => {
            leaf.overwrite_value(place, before, target.flags)
        }
        // The operation itself created the record. The slot stays if the record has changes.
        (KeySlot::At(place), None, None) => {
            if target.flags.has(SlotFlags::VERSIONED) {
                leaf.set_flags(place, target.flags);
            } else {
                leaf.remove(place);
            }
        }
    }
}
