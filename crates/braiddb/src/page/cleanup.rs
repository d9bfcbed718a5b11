//! Leaf cleanup: removes unused version chains, slots of deleted records, and nearly empty leaves.
//!
//! The task that ends the last use of a chain or slot does not wait for pages. It receives the work
//! that it cannot do now as an [`PendingCleanup`]. A task of its worker that can wait does this work later
//! (`transaction/commit/leaf_cleanup.rs`). Each attempt examines the leaf again, because it may
//! have changed.

use super::error::{Interrupted, PageError};
use super::layout::SlotFlags;
use super::resident_set::{HeldPages, PageNeeds};
use super::table::PagedTable;
use super::tree::{LatchedLeaf, LeafRoom, MergeLevels};
use super::versions::Mapping;
use crate::planted::{Bug, is_planted};
use crate::version::StatusTable;

/// Cleanup of the leaf of a key, for a task that can wait for pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PendingCleanup {
    /// Remove chains that no transaction needs.
    Chains,
    /// Merge the leaf and its ancestors with their neighbours, because it was nearly empty.
    Sparse(MergeLevels),
}

impl PagedTable {
    /// Rolls back what aborted transactions wrote to the leaf of a record, and removes empty chains
    /// from it. Returns the cleanup that the leaf then needs. Transactions mostly write several
    /// records of a leaf, whose chains then take one visit.
    ///
    /// # Errors
    /// When a page is not resident: see [`Self::mend`].
    pub(crate) fn roll_back(
        &self,
        key: &[u8],
        status: &StatusTable,
    ) -> Result<Option<PendingCleanup>, Interrupted> {
        let mut leaf = self.tree().try_latch(key, LeafRoom::NONE)?;
        leaf.roll_back_all(status);
        let is_to_go = leaf.is_nearly_empty() && leaf.page_id() != self.tree().root();
        Ok(is_to_go.then_some(PendingCleanup::Sparse(MergeLevels::default())))
    }

    /// Rolls back what aborted transactions wrote to a record. Reserves bytes again for the older
    /// changes that are still undecided, because the value that is now on the page may be shorter.
    pub(super) fn roll_back_on(
        &self,
        leaf: &mut LatchedLeaf<'_>,
        key: &[u8],
        status: &StatusTable,
    ) {
        // SAFETY: latched.
        let Some(chain) = (unsafe { Mapping::find(leaf.mapping(), key) }) else { return };
        // SAFETY: latched.
        if unsafe { leaf.roll_back(chain, status) }.is_some() {
            leaf.reserve_for_undo();
        }
    }

    /// Removes unused chains and the slots of deleted records from the leaf of `key`, and merges
    /// the leaf if it is sparse. Returns the cleanup that remains.
    pub(crate) fn prune(&self, key: &[u8]) -> Option<PendingCleanup> {
        let mut cleanup = PendingCleanup::Chains;
        self.clean_up_leaf(key, &mut cleanup).is_err().then_some(cleanup)
    }

    /// Cleans up the leaf of a key, as far as pages are resident. `cleanup` is updated to the
    /// cleanup that remains.
    ///
    /// # Errors
    /// When a page is not resident: see [`Self::mend`].
    pub(crate) fn clean_up_leaf(
        &self,
        key: &[u8],
        cleanup: &mut PendingCleanup,
    ) -> Result<(), Interrupted> {
        loop {
            if let PendingCleanup::Sparse(levels) = cleanup
                && levels.has_begun()
            {
                return self.tree().merge_from(key, levels);
            }
            let interrupted = match self.tree().try_latch(key, LeafRoom::NONE) {
                Ok(mut leaf) => {
                    if is_planted(Bug::EmptiedLeafTakenForEmpty)
                        && *cleanup == PendingCleanup::Sparse(MergeLevels::default())
                    {
                        remove_settled(&mut leaf);
                    }
                    leaf.prune();
                    if !leaf.is_sparse() {
                        return Ok(());
                    }
                    drop(leaf);
                    let mut levels = MergeLevels::default();
                    let merged = self.tree().merge_from(key, &mut levels);
                    *cleanup = PendingCleanup::Sparse(levels);
                    return merged;
                }
                Err(why) => why,
            };
            if *cleanup == PendingCleanup::Chains {
                // The slots of deleted records stay on the page until it is loaded.
                match self.tree().space().prune_absent(self.tree().leaf_id(key)?) {
                    Some(false) => return Ok(()),
                    Some(true) => *cleanup = PendingCleanup::Sparse(MergeLevels::default()),
                    // The page is resident by now.
                    None => continue,
                }
            }
            return Err(interrupted);
        }
    }

    /// Returns the number of pages on each level, leaves first.
    #[cfg(test)]
    pub(crate) fn pages_by_level(&self) -> Vec<u64> {
        self.tree().pages_by_level()
    }

    /// Returns the needs of [`Self::clean_up_leaf`].
    pub(crate) fn cleanup_needs(&self) -> PageNeeds {
        self.tree().needs_to_merge()
    }

    /// Returns a future that waits until the pages and frames that interrupted an operation are
    /// available, together with those in `needs`. It does not keep the table alive.
    pub(crate) fn mend(
        &self,
        mut needs: PageNeeds,
        interrupted: Interrupted,
    ) -> impl Future<Output = Result<(PageNeeds, HeldPages), PageError>> + use<> {
        let space = self.tree().space().clone();
        async move {
            let held = space.hold_pages(&mut needs, &[interrupted], None).await?;
            Ok((needs, held))
        }
    }
}

/// Removes all records without versions. A planted bug: the leaf is emptied on the assumption that
/// it is still empty.
fn remove_settled(leaf: &mut LatchedLeaf<'_>) {
    for place in (0..leaf.count()).rev() {
        if !leaf.flags(place).has(SlotFlags::VERSIONED) {
            leaf.remove(place);
        }
    }
}
