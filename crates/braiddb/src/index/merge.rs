//! Merging what has become sparse: two neighbours whose entries fit well into one node become one.
//!
//! Keys are removed one at a time, and looking at neighbours costs cache lines. So a leaf looks when its
//! entries have become few by certain counts: of two neighbours that were not merged, the entries
//! together are at most fourteen fewer now than when one of them last looked.
//!
//! A merge latches the parent, the left node and the right one. The right one's entries go to the left
//! one, which takes over the range; the right one is obsolete, unchanged, and freed after the grace
//! period. So a reader of either starts again, unless it was done with the node before.

use super::key::{SearchKey, Word};
use super::latch::{Latched, Restart};
use super::node::{FANOUT, NodeRef};
use super::tree::{Index, Step};

/// Entries that a merged node has at most: it is not to be split again at once.
const MERGED_MOST: usize = FANOUT / 4 * 3;
/// Entries that a node may have and look for a neighbour.
const SPARSE: usize = FANOUT / 2;
/// A sparse leaf looks whenever its entries are a multiple of this, or fewer.
const STEP: usize = FANOUT.div_ceil(8);

/// Whether a leaf from which a key was removed is to look for a neighbour to merge with.
pub(super) fn should_look(count: usize) -> bool {
    count <= SPARSE && (count.is_multiple_of(STEP) || count < STEP)
}

impl Index {
    /// Merges the node of a level in whose range `key` is with a neighbour, if they fit well into one;
    /// then its parent, which has lost a child, and so on.
    pub(super) fn merge_from(&self, mut level: u64, key: &SearchKey<'_>) {
        loop {
            match self.try_merge(level, key) {
                Ok(true) => level += 1,
                Ok(false) => break,
                Err(Restart) => {}
            }
        }
        while self.try_lower_root() != Ok(false) {}
    }

    /// Whether the node of a level in whose range `key` is was merged with a neighbour.
    fn try_merge(&self, level: u64, key: &SearchKey<'_>) -> Result<bool, Restart> {
        let path = self.path(key)?;
        let Some(above) = path.iter().position(|step| step.node.level() == level + 1) else {
            // It is the root.
            return Ok(false);
        };
        let parent = path[above];
        // SAFETY: all nodes of the path were reached through validated links, under the guard.
        let count = unsafe { path[above + 1].node.get() }.count();
        if count > SPARSE {
            return Ok(false);
        }
        for left in [parent.place.checked_sub(1), Some(parent.place)].into_iter().flatten() {
            if self.try_merge_pair(parent, left)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether the child at the place `left` of a parent was merged with the next one.
    fn try_merge_pair(&self, parent: Step, left: usize) -> Result<bool, Restart> {
        // SAFETY: the caller reached it through validated links, under its guard.
        let parent_node = unsafe { parent.node.get() };
        if left + 1 >= parent_node.count() {
            parent_node.latch.validate(parent.version)?;
            return Ok(false);
        }
        let (left_ref, right_ref) = (parent_node.child(left), parent_node.child(left + 1));
        parent_node.latch.validate(parent.version)?;
        // SAFETY: as above: the links were validated.
        let (left_node, right_node) = unsafe { (left_ref.get(), right_ref.get()) };
        let (left_version, right_version) =
            (left_node.latch.version()?, right_node.latch.version()?);
        let fits = left_node.count() + right_node.count() <= MERGED_MOST;
        if !fits {
            left_node.latch.validate(left_version)?;
            right_node.latch.validate(right_version)?;
            return Ok(false);
        }
        let mut parent_latched = parent_node.latch.acquire(parent.version)?;
        let mut left_latched = left_node.latch.acquire(left_version)?;
        let mut right_latched = right_node.latch.acquire(right_version)?;
        parent_latched.changed();
        left_latched.changed();
        right_latched.obsolete();
        // SAFETY: all three are latched, unchanged since they were found to be neighbours that fit.
        let separator = unsafe { absorb(parent.node, left, left_ref, right_ref) };
        drop::<[Latched<'_>; 3]>([right_latched, left_latched, parent_latched]);
        if let Some(word) = separator {
            self.retire_key(word);
        }
        // SAFETY: unlinked above, once, because the latches made it exclusive.
        unsafe { self.retire_node(right_ref) };
        Ok(true)
    }
}

/// Moves all entries of `right` to the end of `left`, the child of `parent` at `place`, and unlinks
/// `right`, the next child. Returns the separator's word if nothing leads to it any more.
///
/// # Safety
/// As for [`NodeRef::get`]; all three are latched, and the entries fit.
unsafe fn absorb(parent: NodeRef, place: usize, left: NodeRef, right: NodeRef) -> Option<Word> {
    // SAFETY: the caller's contract, for the whole function.
    unsafe {
        let (head, separator) = (parent.get().head(place + 1), parent.key_word(place + 1));
        let (start, count) = (left.get().count(), right.get().count());
        for from in 0..count {
            // An inner node's first separator stands for the lower end of its range.
            let (head, tail) = match (right.level(), from) {
                (1.., 0) => (head, separator),
                _ => (right.get().head(from), right.key_word(from)),
            };
            left.insert_at(start + from, head, right.get().word(from), tail);
        }
        parent.remove_at(place + 1);
        (right.level() == 0).then_some(separator)
    }
}
