//! Removal, and unlinking of empty leaves. Sparse nodes are merged (`merge`).

use super::key::{KeyWord, SearchKey, UnusedCells};
use super::merge;
use super::node::{HeldNode, LatchedNode};
use super::search::Baseline;
use super::tree::IndexTree;
use crate::latch::Restart;
use crate::planted::{Bug, is_planted};
use crate::reclaim::OperationGuard;
use crate::rid::Rid;

/// Removes the marks of a node and of its first or last descendants, whose ranges are about to grow.
/// The caller holds the latch of the parent. A node stays latched until its child is latched:
/// otherwise a split could move the child away from the end.
fn clear_marks(node: HeldNode<'_>, is_first: bool) -> Result<(), Restart> {
    fn latch(node: HeldNode<'_>) -> Result<LatchedNode<'_>, Restart> {
        node.acquire(node.latch.version_now().ok_or(Restart)?)
    }
    let mut latched = latch(node)?;
    loop {
        if latched.has_prefix_of_range() {
            latched.changed();
            latched.mark_prefix_of_range(false);
        }
        if latched.level() == 0 {
            return Ok(());
        }
        let place = if is_first { 0 } else { latched.count() - 1 };
        latched = latch(latched.latched_child(place))?;
    }
}

impl IndexTree {
    /// Removes `key` if it is mapped to `rid`. Does not suspend.
    pub(crate) fn remove(&self, key: &[u8], rid: Rid, operation: &OperationGuard) -> bool {
        let key = SearchKey::new(key);
        let left = loop {
            match self.try_remove(&key, rid, operation) {
                Ok(None) => return false,
                Ok(Some(left)) => break left,
                Err(Restart) => {}
            }
        };
        if left == 0 {
            while self.try_unlink(&key, operation).is_err() {}
            self.merge_from(1, &key, operation);
        } else if merge::should_look(left) {
            self.merge_from(0, &key, operation);
        }
        true
    }

    /// Returns `None` if the key is not mapped to `rid`; otherwise the number of entries left in
    /// its leaf.
    fn try_remove(
        &self,
        key: &SearchKey<'_>,
        rid: Rid,
        operation: &OperationGuard,
    ) -> Result<Option<usize>, Restart> {
        let path = self.path(key, operation)?;
        let leaf = *path.last().expect("a path ends in a leaf");
        let mut node = leaf.node.acquire(leaf.version)?;
        let (place, found) = node.lower_bound::<Baseline>(key);
        if !found || node.key(place).rid() != rid {
            return Ok(None);
        }
        let word = node.key(place).word();
        if !is_planted(Bug::RemovalUnnoticedByReaders) {
            node.changed();
        }
        node.remove_at(place);
        let mut unused: UnusedCells = word.cell().into_iter().collect();
        if node.count() == 0 && node.has_prefix() {
            node.set_prefix(&[], &self.memory, &mut unused);
        }
        self.retire_cells(&mut unused);
        Ok(Some(node.count()))
    }

    /// Unlinks the leaf whose range contains `key`, if it is empty, with those of its ancestors
    /// that have no other child. A neighbour takes over its range.
    fn try_unlink(&self, key: &SearchKey<'_>, operation: &OperationGuard) -> Result<(), Restart> {
        let path = self.path(key, operation)?;
        let count = |depth: usize| path[depth].node.count();
        let leaf = path.len() - 1;
        if count(leaf) > 0 {
            return Ok(());
        }
        // The lowest ancestor with another child is kept.
        let Some(above) = (0..leaf).rev().find(|&depth| count(depth) > 1) else { return Ok(()) };
        let mut ancestor = path[above].node.acquire(path[above].version)?;
        let mut unlinked = Vec::with_capacity(leaf - above);
        for step in &path[above + 1..] {
            unlinked.push(step.node.acquire(step.version)?);
        }
        let place = path[above].place;
        let neighbour = ancestor.latched_child(if place == 0 { 1 } else { place - 1 });
        clear_marks(neighbour, place == 0)?;
        ancestor.changed();
        unlinked.iter_mut().for_each(LatchedNode::obsolete);
        if place == 0 {
            // The next child takes over the range, including its lower end.
            ancestor.remove_at(0);
            self.retire_key(ancestor.clear_separator());
        } else {
            self.retire_key(ancestor.key(place).word());
            ancestor.remove_at(place);
        }
        for node in unlinked {
            // SAFETY: the ancestor had the only reference to the uppermost of them, and each of
            // them the only reference to the next.
            unsafe { self.retire_node(node) };
        }
        Ok(())
    }

    /// Replaces a root that has only one child by that child. Returns whether it did.
    pub(super) fn try_lower_root(&self, operation: &OperationGuard) -> Result<bool, Restart> {
        let (root, version) = self.root(operation)?;
        if root.level() == 0 || root.count() > 1 {
            return Ok(false);
        }
        let mut root = root.acquire(version)?;
        if root.count() > 1 {
            return Ok(false);
        }
        root.obsolete();
        self.set_root(root.child_reference(0));
        // SAFETY: the old root is no longer linked.
        unsafe { self.retire_node(root) };
        Ok(true)
    }

    /// Retires a long key's memory.
    pub(super) fn retire_key(&self, word: KeyWord) {
        self.retire_cells(&mut word.cell().into_iter().collect());
    }

    /// Retires cells.
    #[inline(always)]
    pub(super) fn retire_cells(&self, cells: &mut UnusedCells) {
        while let Some(cell) = cells.pop() {
            // SAFETY: unlinked by the caller under the latch, which only one task can do.
            unsafe { cell.retire(&self.memory) };
        }
    }
}
