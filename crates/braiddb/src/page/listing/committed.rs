//! Committed copies of leaves: images for a checkpoint that omit undecided changes.

use std::cell::Cell;

use crate::page::layout::{Page, PageCopy, SlotFlags};
use crate::page::table::{PagedTable, copy_slot};
use crate::page::tree::LatchedLeaf;
use crate::page::value::{CopiedValue, LargeRef, SlotValue};
use crate::page::versions::{Mapping, WalkHead};
use crate::planted::{Bug, is_planted};
use crate::reclaim::OperationGuard;
use crate::version::{StatusTable, Undecided, View};

/// Copy of a leaf with committed contents only.
pub(super) struct CommittedLeaf {
    pub(super) page: PageCopy,
    /// Large values that the leaf or its version chains reference, but this copy does not.
    /// According to the log no record has them: only transactions that began earlier can see them.
    pub(super) left_out: Vec<LargeRef>,
}

/// New state of a slot.
enum CommittedSlot {
    Value(CopiedValue),
    Gone,
}

impl PagedTable {
    /// Removes marks and chains that no transaction needs from a leaf, unless it has slots of
    /// deleted records. A task that removes slots must also merge the leaf, and leaf cleanup skips
    /// a leaf whose slots are already removed.
    pub(super) fn remove_settled_changes(&self, leaf: &mut LatchedLeaf<'_>, status: &StatusTable) {
        let is_deleted = |place| leaf.flags(place).has(SlotFlags::DELETED);
        if (0..leaf.count()).any(is_deleted) {
            return;
        }
        self.unmark_seen_by_all(leaf, status);
        leaf.prune();
    }

    /// Returns a copy of a latched leaf as transactions that begin now see it.
    ///
    /// # Errors
    /// While another worker decides the outcome of a change.
    pub(super) fn committed_copy(
        &self,
        leaf: &LatchedLeaf<'_>,
        view: View<'_>,
        operation: &OperationGuard,
    ) -> Result<CommittedLeaf, Undecided> {
        let (view, mut left_out, mut changes) = (view.of_newest(), Vec::new(), Vec::new());
        for place in 0..leaf.count() {
            let flags = leaf.flags(place);
            if !flags.has(SlotFlags::VERSIONED) && !flags.is_marked() {
                continue;
            }
            if is_planted(Bug::UndecidedSlotListed)
                && !flags.has(SlotFlags::DELETED)
                && !flags.is_marked()
            {
                continue;
            }
            let key = leaf.page().page.key(place);
            let copied = copy_slot(self, **leaf, place, || &key[..], operation);
            let seen = copied.seen_by(view)?.value;
            let kept = seen.as_ref().and_then(|value| value.as_slot().large());
            each_value(leaf, place, &key, operation, |value| {
                left_out.extend(value.large().filter(|large| Some(*large) != kept));
            });
            changes.push((place, seen.map_or(CommittedSlot::Gone, CommittedSlot::Value)));
        }
        left_out.sort_unstable_by_key(|large| large.number());
        left_out.dedup();
        let copy = leaf.page().page.copy();
        apply(copy.page(), &changes);
        Ok(CommittedLeaf { page: copy, left_out })
    }
}

/// Calls `each` with all values of a slot and its chain.
fn each_value(
    leaf: &LatchedLeaf<'_>,
    place: usize,
    key: &[u8],
    operation: &OperationGuard,
    mut each: impl FnMut(SlotValue<'_>),
) {
    let flags = leaf.flags(place);
    each(leaf.value(place).as_slot());
    if flags.is_marked()
        && let Some(before) = leaf.value_before(place)
    {
        each(before.as_slot());
    }
    let start = match flags.has(SlotFlags::VERSIONED) {
        // SAFETY: loaded with Acquire under the guard.
        true => unsafe { Mapping::start(leaf.mapping(), key, operation) },
        false => WalkHead::NONE,
    };
    start.each_before(|before| before.into_iter().for_each(&mut each));
}

/// Sets the values of slots, those that shrink first. The results fit on the page: bytes for
/// undoing are reserved (`versions`), and the result of a bulk operation takes no more than its
/// cell of two values.
fn apply(page: Page<'_, Cell<u64>>, changes: &[(usize, CommittedSlot)]) {
    let words = |bytes: usize| bytes.div_ceil(size_of::<u64>());
    let grows = |place: usize, value: SlotValue<'_>| {
        words(value.cell_bytes()) > words(page.cell_bytes(place))
    };
    for growing in [false, true] {
        for (place, becomes) in changes {
            if let CommittedSlot::Value(value) = becomes
                && grows(*place, value.as_slot()) == growing
            {
                let value = value.as_slot();
                let (bytes, flags) = (value.value_bytes(), value.flags(SlotFlags::NONE));
                value.with_cell(|cell| page.overwrite_cell(*place, (cell, bytes), flags));
            }
        }
        if !growing {
            // Slots to be removed are emptied first and removed last, so the places of the growing
            // slots stay valid.
            for (place, becomes) in changes {
                if matches!(becomes, CommittedSlot::Gone) {
                    page.overwrite_cell(*place, (&[], 0), SlotFlags::NONE);
                }
            }
        }
    }
    for (place, becomes) in changes.iter().rev() {
        if matches!(becomes, CommittedSlot::Gone) {
            page.remove(*place);
        }
    }
    page.set_bulk_epoch(0);
}
