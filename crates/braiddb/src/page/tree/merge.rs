//! Page merge: two sparse neighbours whose entries fit well on one page become one page.
//!
//! A merge latches the parent, the left page and the right page. The entries of the right page move
//! to the left page, which takes over the range, and the right page is freed. A merge does not wait
//! for a neighbour that is not resident, unless the page is nearly empty. In that case the caller
//! receives the missing page, so that it can wait for it. Otherwise nearly empty pages would
//! accumulate where keys are not reused.

use super::attached;
use super::descend::DescentStep;
use super::{PageTree, start_again};
use crate::page::error::{Interrupted, PageError};
use crate::page::map::PageId;
use crate::page::resident_set::{HeldPages, PageNeeds};

/// Number of neighbours that a merge needs in addition to the path.
const MAX_NEIGHBOURS: usize = 2;

/// Levels of the tree that a merge has still to examine, on the path of one key. A level above the
/// leaves is examined if a child below it was merged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MergeLevels {
    next: u8,
    highest: u8,
}

impl MergeLevels {
    /// Returns whether pages of the path were merged.
    pub(in crate::page) fn has_begun(self) -> bool {
        self.highest > 0
    }
}

impl PageTree {
    /// Returns the needs of a merge.
    pub(in crate::page) fn needs_to_merge(&self) -> PageNeeds {
        self.needs(MAX_NEIGHBOURS)
    }

    /// Merges the leaf whose range contains `key` with a neighbour, if they fit well on one page;
    /// then the parent, which has lost a child, and so on. Does not suspend.
    pub(crate) fn merge_if_in_memory(&self, key: &[u8]) {
        // Pages that are not resident are not merged.
        _ = self.merge_from(key, &mut MergeLevels::default());
    }

    /// Like `merge_if_in_memory`, but waits for pages if a page to be merged is nearly empty.
    ///
    /// # Errors
    /// When a page is not available; the page is then not merged.
    #[cold]
    pub(crate) async fn merge_waiting(&self, key: &[u8]) -> Result<(), PageError> {
        let (mut needs, mut levels) = (self.needs_to_merge(), MergeLevels::default());
        let mut held = None::<HeldPages>;
        while let Err(why) = self.merge_from(key, &mut levels) {
            drop(held.take());
            held = Some(self.space.hold_pages(&mut needs, &[why], None).await?);
        }
        Ok(())
    }

    /// Merges the leaf whose range contains `key` with its neighbours while it is sparse, and then
    /// its ancestors. After each merge it starts again at the leaf, because a merge of two parents
    /// makes their children neighbours. Updates `levels`, so that a call after an interruption
    /// continues. Does not suspend.
    ///
    /// # Errors
    /// When a page on the path is not resident, or a neighbour of a nearly empty page is not. Never
    /// `Restart`.
    pub(crate) fn merge_from(
        &self,
        key: &[u8],
        levels: &mut MergeLevels,
    ) -> Result<(), Interrupted> {
        let merged = loop {
            match self.try_merge(key, levels.next) {
                Ok(true) => {
                    levels.highest = levels.highest.max(levels.next + 1);
                    levels.next = 0;
                }
                Ok(false) if levels.next < levels.highest => levels.next += 1,
                Ok(false) => break Ok(()),
                Err(Interrupted::Restart) => start_again(),
                Err(why) => break Err(why),
            }
        };
        let lowered = loop {
            match self.try_lower_root() {
                Ok(true) => {}
                Ok(false) => break Ok(()),
                Err(Interrupted::Restart) => start_again(),
                Err(why) => break Err(why),
            }
        };
        merged.and(lowered)
    }

    /// Tries to merge the page of a level whose range contains `key` with a neighbour. Returns
    /// whether it did.
    ///
    /// # Errors
    /// On a concurrent change; when a page on the path is not resident; and when the page is nearly
    /// empty and a neighbour is not resident.
    pub(super) fn try_merge(&self, key: &[u8], level: u8) -> Result<bool, Interrupted> {
        let path = self.path(key, level)?;
        let page = path.last().expect("a path ends in a page").page.page;
        let Some(above) = path.len().checked_sub(2) else { return Ok(false) };
        if !page.is_sparse() {
            return Ok(false);
        }
        let (parent, mut absent) = (path[above], None);
        for left in [parent.place.checked_sub(1), Some(parent.place)].into_iter().flatten() {
            match self.try_merge_pair(parent, left) {
                Ok(false) => {}
                Err(why @ Interrupted::Absent(_)) => absent = absent.or(Some(why)),
                merged => return merged,
            }
        }
        match absent {
            Some(why) if page.is_nearly_empty() => Err(why),
            None if page.has_nothing() && parent.page.page.count() == 1 => {
                // The neighbours have a different parent. After the parents are merged, the page is
                // checked again.
                if !self.try_merge(key, level + 1)? {
                    return Ok(false);
                }
                _ = self.try_merge(key, level + 2);
                Err(Interrupted::Restart)
            }
            _ => Ok(false),
        }
    }

    /// Tries to merge a child with the next one. Returns whether it did.
    fn try_merge_pair(&self, parent: DescentStep<'_>, place: usize) -> Result<bool, Interrupted> {
        let page = parent.page.page;
        if place + 1 >= page.count() {
            parent.page.validate(parent.version)?;
            return Ok(false);
        }
        let ids = [page.child(place), page.child(place + 1)];
        parent.page.validate(parent.version)?;
        let [left_id, right_id] = ids.map(PageId::new);
        let (left, right) = (self.space.resident(left_id)?, self.space.resident(right_id)?);
        let (left_version, right_version) = (left.version(left_id)?, right.version(right_id)?);
        let reserved = left.reserved_bytes() + right.reserved_bytes();
        let fits = left.page.can_be_merged_with(right.page, reserved);
        if !fits {
            left.validate(left_version)?;
            right.validate(right_version)?;
            return Ok(false);
        }
        // Unchanged since they were found to be neighbours that fit.
        let mut parent = parent.page.acquire(parent.version)?;
        let mut left = left.acquire(left_version)?;
        let mut right = right.acquire(right_version)?;
        parent.changed();
        left.changed();
        right.changed();
        left.page.absorb(right.page);
        parent.page.remove_child(place + 1);
        attached::join(&left, &right);
        self.count_pages(right.page.level(), -1);
        self.space.free(right);
        Ok(true)
    }

    /// Replaces a root that has only one child by that child, under the root's id. Returns whether
    /// it did.
    pub(super) fn try_lower_root(&self) -> Result<bool, Interrupted> {
        let root = self.space.resident(self.root)?;
        let version = root.version(self.root)?;
        let (level, count) = (root.page.level(), root.page.count());
        let child_id = root.page.child(0);
        root.validate(version)?;
        if level == 0 || count > 1 {
            return Ok(false);
        }
        let child_id = PageId::new(child_id);
        let child = self.space.resident(child_id)?;
        let child_version = child.version(child_id)?;
        let mut root = root.acquire(version)?;
        let mut child = child.acquire(child_version)?;
        root.changed();
        child.changed();
        let page = child.page.copy();
        page.page().set_number(self.root.number());
        root.page.copy_from(page.page());
        attached::join(&root, &child);
        self.count_pages(level, -1);
        self.space.free(child);
        Ok(true)
    }
}
