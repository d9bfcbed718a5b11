//! What is left of records on pages when nobody needs it any more: chains of versions, slots of deleted records, and leaves on
//! which next to nothing is.
//!
//! Who ends the last use of such a thing does not wait for pages. What it cannot do now it is told ([`Untidy`]), for a task of its
//! worker to do, which can wait (`transaction/leaf_cleanup.rs`). Nothing is taken for what it was when that was told: each attempt
//! looks again.

use super::error::{Interrupted, PageError};
use super::layout::{Slot, SlotFlags};
use super::resident_set::{HeldPages, Needs};
use super::table::PagedTable;
use super::tree::{LatchedLeaf, Room};
use super::versions::Mapping;
use crate::planted::{Bug, is_planted};
use crate::types::KeyBuffer;
use crate::version::StatusTable;

/// What is to be done to the leaf of a key by who can wait for pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Untidy {
    /// To take off chains that nobody needs.
    Chains,
    /// To merge what is sparse, from this level on: next to nothing was on the leaf.
    Sparse(u8),
}

impl PagedTable {
    /// Takes back what aborted transactions wrote to a record, and what is left of settled ones beside it; what is to be
    /// done to its leaf then.
    ///
    /// # Errors
    /// When a page is not in memory: see [`Self::mend`].
    pub(crate) fn roll_back(
        &self,
        key: &[u8],
        status: &StatusTable,
    ) -> Result<Option<Untidy>, Interrupted> {
        let mut leaf = self.tree().try_latch(key, Room::NONE)?;
        self.roll_back_on(&mut leaf, key, status);
        prune_on(&mut leaf);
        leaf.reserve_for_undo();
        let is_to_go = leaf.is_nearly_empty() && leaf.page_id() != self.tree().root();
        Ok(is_to_go.then_some(Untidy::Sparse(0)))
    }

    /// Takes the chains off the leaf of `key` that nobody needs any more, and the slots of deleted records, and merges the leaf
    /// if it is sparse; what is to be done besides.
    pub(crate) fn prune(&self, key: &[u8]) -> Option<Untidy> {
        let mut untidy = Untidy::Chains;
        self.tidy_leaf(key, &mut untidy).is_err().then_some(untidy)
    }

    /// Does what is to be done to the leaf of a key, as far as pages are in memory; what is left is in `untidy`.
    ///
    /// # Errors
    /// When a page is not in memory: see [`Self::mend`].
    pub(crate) fn tidy_leaf(&self, key: &[u8], untidy: &mut Untidy) -> Result<(), Interrupted> {
        loop {
            if let Untidy::Sparse(level @ 1..) = untidy {
                return self.tree().merge_from(key, level);
            }
            let interrupted = match self.tree().try_latch(key, Room::NONE) {
                Ok(mut leaf) => {
                    if is_planted(Bug::EmptiedLeafTakenForEmpty) && *untidy == Untidy::Sparse(0) {
                        remove_settled(&mut leaf);
                    }
                    prune_on(&mut leaf);
                    if !leaf.is_sparse() {
                        return Ok(());
                    }
                    drop(leaf);
                    let mut level = 0;
                    let merged = self.tree().merge_from(key, &mut level);
                    *untidy = Untidy::Sparse(level);
                    return merged;
                }
                Err(why) => why,
            };
            if *untidy == Untidy::Chains {
                // The slots of deleted records stay on the page until it is loaded.
                match self.tree().space().prune_absent(self.tree().leaf_id(key)?) {
                    Some(false) => return Ok(()),
                    Some(true) => *untidy = Untidy::Sparse(0),
                    // It is in memory by now.
                    None => continue,
                }
            }
            return Err(interrupted);
        }
    }

    /// Pages on each level, leaves first.
    #[cfg(test)]
    pub(crate) fn pages_by_level(&self) -> Vec<u64> {
        self.tree().pages_by_level()
    }

    /// What [`Self::tidy_leaf`] needs at once.
    pub(crate) fn needs_to_tidy(&self) -> Needs {
        self.tree().needs_to_merge()
    }

    /// What waits until what interrupted an operation on the table is there, with what it needed before, and gives both. It does
    /// not keep the table.
    pub(crate) fn mend(
        &self,
        mut needs: Needs,
        interrupted: Interrupted,
    ) -> impl Future<Output = Result<(Needs, HeldPages), PageError>> + use<> {
        let space = self.tree().space().clone();
        async move {
            let held = space.gather(&mut needs, &[interrupted], None).await?;
            Ok((needs, held))
        }
    }
}

/// Takes empty chains off a leaf, with the slots of deleted records.
pub(super) fn prune_on(leaf: &mut LatchedLeaf<'_>) {
    let word = leaf.mapping();
    let mut gone = Vec::<KeyBuffer>::new();
    // SAFETY: latched.
    let left = unsafe {
        Mapping::prune(word, |key| {
            let mut copy = KeyBuffer::new();
            copy.extend_from_slice(key);
            gone.push(copy);
        })
    };
    if gone.is_empty() {
        return;
    }
    leaf.set_mapping(left);
    for key in gone {
        let Slot::At(place) = leaf.find(&key) else {
            unreachable!("a record with a chain has a slot")
        };
        let flags = leaf.flags(place);
        // What a bulk operation has marked stays for those who see what was before.
        if flags.has(SlotFlags::DELETED) && !flags.is_marked() {
            leaf.remove(place);
        } else {
            leaf.set_flags(place, flags.without(SlotFlags::VERSIONED));
        }
    }
    // No room stays for undoing what is gone: else a leaf with few records, or none, might have none for another.
    leaf.reserve_for_undo();
}

/// Removes all records without versions: the mistake of who takes a leaf for what it was.
fn remove_settled(leaf: &mut LatchedLeaf<'_>) {
    for place in (0..leaf.count()).rev() {
        if !leaf.flags(place).has(SlotFlags::VERSIONED) {
            leaf.remove(place);
        }
    }
}
