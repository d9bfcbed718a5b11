//! Merging what has become sparse: two neighbours whose entries fit well onto one page become one.
//!
//! A merge latches the parent, the left page and the right one. The right one's entries go to the left
//! one, which takes over the range; the right one leaves the space. Neighbours that are not in memory are
//! left alone, but by who waits for them: a leaf that is emptied is to go then too, or there would be ever more of
//! them, and of the inner pages that lead to them, where keys do not come again.

use super::PageTree;
use super::attached;
use super::descend::Step;
use crate::page::error::{Interrupted, PageError};
use crate::page::gather::Needs;
use crate::page::map::PageId;

/// An empty leaf and its neighbour.
const PAIR: usize = 2;

impl PageTree {
    /// Merges the leaf in whose range `key` is with a neighbour, if they fit well onto one page; then its
    /// parent, which has lost a child, and so on. Does not suspend.
    pub(crate) fn merge_near(&self, key: &[u8]) {
        // A leaf that is not in memory stays.
        _ = self.merge_now(key);
    }

    /// As [`Self::merge_near`], where the leaf is empty: waits for it and a neighbour to be in memory.
    ///
    /// # Errors
    /// When they cannot be; then it stays.
    #[cold]
    pub(crate) async fn merge_empty(&self, key: &[u8]) -> Result<(), PageError> {
        let mut needs = Needs::new(PAIR);
        let mut held = None;
        while let Err(why) = self.merge_now(key) {
            drop(held.take());
            held = Some(self.space.gather(&mut needs, &[why], None).await?);
        }
        Ok(())
    }

    /// # Errors
    /// When the leaf is not in memory, or is empty and its neighbours are not.
    fn merge_now(&self, key: &[u8]) -> Result<(), Interrupted> {
        let mut level = 0;
        let merged = loop {
            match self.try_merge(key, level) {
                Ok(true) => level += 1,
                Ok(false) => break Ok(()),
                Err(Interrupted::Restart) => {}
                Err(why) => break Err(why),
            }
        };
        while matches!(self.try_lower_root(), Ok(true) | Err(Interrupted::Restart)) {}
        merged
    }

    /// Whether the page of a level in whose range `key` is was merged with a neighbour.
    ///
    /// # Errors
    /// When what it met has changed; when a page on the way is not in memory; when it is empty, and a neighbour is not.
    pub(super) fn try_merge(&self, key: &[u8], level: u8) -> Result<bool, Interrupted> {
        let path = self.path(key, level)?;
        let page = path.last().expect("a path ends in a page").page;
        let Some(above) = path.len().checked_sub(2) else { return Ok(false) };
        if !page.page.is_sparse() {
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
            Some(why) if page.page.count() == 0 => Err(why),
            _ => Ok(false),
        }
    }

    /// Whether the child at a place of a parent was merged with the next one.
    fn try_merge_pair(&self, parent: Step<'_>, place: usize) -> Result<bool, Interrupted> {
        let cut = self.space.cut();
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
        self.confirm_cut(cut)?;
        parent.changed(cut);
        left.changed(cut);
        right.changed(cut);
        left.page.absorb(right.page);
        parent.page.remove_child(place + 1);
        attached::join(&left, &right);
        self.count_pages(right.page.level(), -1);
        self.space.free(right);
        Ok(true)
    }

    /// Makes a root's only child the root, under the root's id; whether it had only one.
    pub(super) fn try_lower_root(&self) -> Result<bool, Interrupted> {
        let cut = self.space.cut();
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
        self.confirm_cut(cut)?;
        root.changed(cut);
        child.changed(cut);
        let page = child.page.copy();
        page.page().set_number(self.root.number());
        root.page.copy_from(page.page());
        attached::join(&root, &child);
        self.count_pages(level, -1);
        self.space.free(child);
        Ok(true)
    }
}
