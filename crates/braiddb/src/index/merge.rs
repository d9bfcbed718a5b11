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
use super::node::{FANOUT, LatchedNode};
use super::tree::{Index, Step};
use crate::latch::Restart;
use crate::planted::{Bug, is_planted};
use crate::reclaim::OperationGuard;

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

    /// Whether the node of a level in whose range `key` is was merged with a neighbour.
    fn try_merge(
        &self,
        level: u64,
        key: &SearchKey<'_>,
        operation: &OperationGuard,
    ) -> Result<bool, Restart> {
        let path = self.path(key, operation)?;
        let Some(above) = path.iter().position(|step| step.node.level() == level + 1) else {
            // It is the root.
            return Ok(false);
        };
        let parent = path[above];
        if path[above + 1].node.count() > SPARSE {
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
    fn try_merge_pair(&self, parent: Step<'_>, place: usize) -> Result<bool, Restart> {
        if place + 1 >= parent.node.count() {
            parent.node.latch.validate(parent.version)?;
            return Ok(false);
        }
        let left = parent.node.child(place, parent.version)?;
        let right = parent.node.child(place + 1, parent.version)?;
        let (left_version, right_version) = (left.latch.version()?, right.latch.version()?);
        let fits = left.count() + right.count() <= MERGED_MOST;
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
        if let Some(word) = absorb(&parent, place, &left, &right) {
            self.retire_key(word);
        }
        // SAFETY: the parent alone led to it, and was latched when that link was removed.
        unsafe { self.retire_node(right) };
        Ok(true)
    }
}

/// Moves all entries of `right` to the end of `left`, the child of `parent` at `place`, and unlinks
/// `right`, the next child. Returns the separator's word if nothing leads to it any more.
fn absorb(
    parent: &LatchedNode<'_>,
    place: usize,
    left: &LatchedNode<'_>,
    right: &LatchedNode<'_>,
) -> Option<Word> {
    let separator = parent.key(place + 1);
    let start = left.count();
    for from in 0..right.count() {
        // An inner node's first separator stands for the lower end of its range.
        let key = match (right.level(), from) {
            (1.., 0) => separator,
            _ => right.key(from),
        };
        left.insert_at(start + from, key.head(), right.word(from), key.word());
    }
    parent.remove_at(place + 1);
    (right.level() == 0).then_some(separator.word())
}
