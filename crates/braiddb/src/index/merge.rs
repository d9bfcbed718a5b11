//! Node merge: two sparse neighbours whose entries fit well in one node become one node.
//!
//! Keys are removed one at a time, and reading neighbours costs cache lines. So a leaf tries a
//! merge only when its number of entries has fallen to certain counts. Two neighbours that were not
//! merged have in total at most fourteen fewer entries now than when one of them last tried.
//!
//! A merge latches the parent, the left node and the right node. The entries of the right node move
//! to the left node, which takes over the range. The right node becomes obsolete, is not changed,
//! and is freed after the grace period. So a reader of either node restarts, unless it had finished
//! with the node before.

use super::key::{SearchKey, UnusedCells};
use super::node::{FANOUT, LatchedNode};
use super::tree::{IndexPathStep, IndexTree};
use crate::latch::Restart;
use crate::planted::{Bug, is_planted};
use crate::reclaim::OperationGuard;

/// Maximum number of entries of a merged node, so that it is not split again soon.
const MAX_MERGED_ENTRIES: usize = FANOUT / 4 * 3;
/// Maximum number of entries of a node that tries a merge.
const MAX_SPARSE_ENTRIES: usize = FANOUT / 2;
/// A sparse leaf tries a merge whenever its number of entries is a multiple of this, or less.
const MERGE_CHECK_INTERVAL: usize = FANOUT.div_ceil(8);

/// Returns whether a leaf tries a merge after a key was removed from it.
pub(super) fn should_look(count: usize) -> bool {
    count <= MAX_SPARSE_ENTRIES
        && (count.is_multiple_of(MERGE_CHECK_INTERVAL) || count < MERGE_CHECK_INTERVAL)
}

impl IndexTree {
    /// Merges the node of a level whose range contains `key` with a neighbour, if they fit well in
    /// one node; then its parent, which has lost a child, and so on.
    pub(super) fn merge_from(
        &self,
        mut level: u64,
        key: &SearchKey<'_>,
        operation: &OperationGuard,
    ) {
        loop {
            match self.try_merge(level, key, operation) {
                Ok(true) => level += 1,
                Ok(false) => break,
                Err(Restart) => {}
            }
        }
        while self.try_lower_root(operation) != Ok(false) {}
    }

    /// Tries to merge the node of a level whose range contains `key` with a neighbour. Returns
    /// whether it did.
    fn try_merge(
        &self,
        level: u64,
        key: &SearchKey<'_>,
        operation: &OperationGuard,
    ) -> Result<bool, Restart> {
        let path = self.path(key, operation)?;
        let Some(above) = path.iter().position(|step| step.node.level() == level + 1) else {
            // The node is the root.
            return Ok(false);
        };
        let parent = path[above];
        if path[above + 1].node.count() > MAX_SPARSE_ENTRIES {
            return Ok(false);
        }
        for left in [parent.place.checked_sub(1), Some(parent.place)].into_iter().flatten() {
            if self.try_merge_pair(parent, left)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Tries to merge the child at `place` with the next one. Returns whether it did.
    fn try_merge_pair(&self, parent: IndexPathStep<'_>, place: usize) -> Result<bool, Restart> {
        if place + 1 >= parent.node.count() {
            parent.node.latch.validate(parent.version)?;
            return Ok(false);
        }
        let left = parent.node.child(place, parent.version)?;
        let right = parent.node.child(place + 1, parent.version)?;
        let (left_version, right_version) = (left.latch.version()?, right.latch.version()?);
        let fits = left.count() + right.count() <= MAX_MERGED_ENTRIES;
        if !fits {
            left.latch.validate(left_version)?;
            right.latch.validate(right_version)?;
            return Ok(false);
        }
        // Unchanged since they were found to be neighbours that fit.
        let mut parent = parent.node.acquire(parent.version)?;
        let mut left = left.acquire(left_version)?;
        let mut right = right.acquire(right_version)?;
        parent.changed();
        if !is_planted(Bug::MergeUnnoticedByReaders) {
            left.changed();
            right.obsolete();
        }
        let mut unused = UnusedCells::new();
        self.absorb(&parent, place, &left, &right, &mut unused);
        self.retire_cells(&mut unused);
        // SAFETY: the parent had the only reference to it, and was latched when that link was
        // removed.
        unsafe { self.retire_node(right) };
        Ok(true)
    }

    /// Moves all entries of `right` to the end of `left`, the child of `parent` at `place`, and
    /// unlinks `right`, the next child.
    fn absorb(
        &self,
        parent: &LatchedNode<'_>,
        place: usize,
        left: &LatchedNode<'_>,
        right: &LatchedNode<'_>,
        unused: &mut UnusedCells,
    ) {
        let separator = parent.key(place + 1);
        // The first separator of an inner node represents the lower end of its range.
        let key_at = |from: usize| match (right.level(), from) {
            (1.., 0) => separator,
            _ => right.key(from),
        };
        let (start, moved) = (left.count(), right.count());
        if left.has_prefix() && moved > 0 {
            // The last key has the fewest bytes in common with the prefix.
            key_at(moved - 1).with_bytes(|key| {
                self.share_prefix(left, &SearchKey::new(key), unused);
            });
        }
        let prefix_bytes = left.prefix_bytes();
        for from in 0..moved {
            let (head, word) = key_at(from).recoded(prefix_bytes, &self.memory, unused);
            let entry = if right.level() == 0 { word.0 } else { right.word(from) };
            left.insert_at(start + from, head, entry, word);
        }
        if right.level() == 0 {
            unused.extend(separator.word().cell());
        }
        parent.remove_at(place + 1);
        if prefix_bytes > 0 || right.has_prefix() {
            let [low, high] = [place, place + 1].map(|place| parent.separator(place));
            self.choose_prefix(left, [low.as_deref(), high.as_deref()], unused);
        }
    }
}
