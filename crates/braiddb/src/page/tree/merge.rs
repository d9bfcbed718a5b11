//! Merging what has become sparse: two neighbours whose entries fit well onto one page become one.
//!
//! A merge latches the parent, the left page and the right one. The right one's entries go to the left
//! one, which takes over the range; the right one leaves the space. Neighbours that are not in memory are
//! left alone, unless next to nothing is on the page: who can wait for them is told then, or there would be ever more of
//! such pages where keys do not come again.

use super::attached;
use super::descend::Step;
use super::{PageTree, start_again};
use crate::page::error::{Interrupted, PageError};
use crate::page::map::PageId;
use crate::page::resident_set::{HeldPages, Needs};

/// Pages beside the way to a page: its neighbours.
const NEIGHBOURS: usize = 2;

impl PageTree {
    /// What a merge needs at once.
    pub(in crate::page) fn needs_to_merge(&self) -> Needs {
        self.needs(NEIGHBOURS)
    }

    /// Merges the leaf in whose range `key` is with a neighbour, if they fit well onto one page; then its
    /// parent, which has lost a child, and so on. Does not suspend.
    pub(crate) fn merge_if_in_memory(&self, key: &[u8]) {
        // What is not in memory stays.
        _ = self.merge_from(key, &mut 0);
    }

    /// The same, and waits for pages to be in memory, if next to nothing is on one that is to be merged.
    ///
    /// # Errors
    /// When they cannot be; then it stays.
    #[cold]
    pub(crate) async fn merge_waiting(&self, key: &[u8]) -> Result<(), PageError> {
        let (mut needs, mut level) = (self.needs_to_merge(), 0);
        let mut held = None::<HeldPages>;
        while let Err(why) = self.merge_from(key, &mut level) {
            drop(held.take());
            held = Some(self.space.gather(&mut needs, &[why], None).await?);
        }
        Ok(())
    }

    /// Merges the page of a level in whose range `key` is, and those above, as far as that is worth it, and says with which
    /// it would go on. Does not suspend.
    ///
    /// # Errors
    /// When a page on the way is not in memory; when next to nothing is on a page, and a neighbour is not. Never `Restart`.
    pub(crate) fn merge_from(&self, key: &[u8], level: &mut u8) -> Result<(), Interrupted> {
        let merged = loop {
            match self.try_merge(key, *level) {
                Ok(true) => *level += 1,
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

    /// Whether the page of a level in whose range `key` is was merged with a neighbour.
    ///
    /// # Errors
    /// When what it met has changed; when a page on the way is not in memory; when next to nothing is on it, and a neighbour
    /// is not.
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
                // Its neighbours have another parent. It is looked at again when they have the same.
                if !self.try_merge(key, level + 1)? {
                    return Ok(false);
                }
                _ = self.try_merge(key, level + 2);
                Err(Interrupted::Restart)
            }
            _ => Ok(false),
        }
    }

    /// Whether the child at a place of a parent was merged with the next one.
    fn try_merge_pair(&self, parent: Step<'_>, place: usize) -> Result<bool, Interrupted> {
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

    /// Makes a root's only child the root, under the root's id; whether it had only one.
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
