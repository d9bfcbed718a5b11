//! Search within a node.

use std::cmp::Ordering as Order;

use super::key::{HeldKey, SearchKey};
use super::node::{GROUP, HeldNode, IndexNode};
use crate::sync::atomic::{AtomicU64, Ordering};

/// Returns the number of sorted words that are at most `head`, counted without branches.
#[inline(always)]
fn count_at_most<const N: usize>(words: &[AtomicU64; N], head: u64) -> usize {
    let mut count = 0;
    for word in words {
        // Relaxed: validated by the caller.
        count += usize::from(word.load(Ordering::Relaxed) <= head);
    }
    count
}

impl IndexNode {
    /// Returns the group with the last entry whose head is at most `head`.
    #[inline(always)]
    pub(super) fn group(&self, head: u64) -> usize {
        count_at_most(&self.hints, head)
    }

    /// Returns the last entry of a group with a head of at most `head`. Returns `None` if the
    /// group's first head is larger, which is possible only in group 0.
    #[inline(always)]
    pub(super) fn place_in(&self, group: usize, head: u64) -> Option<usize> {
        (group * GROUP + count_at_most(&self.groups[group].heads, head)).checked_sub(1)
    }
}

impl<'n> HeldNode<'n> {
    /// Returns the first entry whose key is at least `key`, or the number of entries. The second
    /// result is `true` if the keys are equal. The results of this and the following functions are
    /// meaningless until validated, unless latched.
    pub(super) fn lower_bound(self, key: &SearchKey<'_>) -> (usize, bool) {
        let (mut low, mut high) = (0, self.count());
        while low < high {
            let middle = (low + high) / 2;
            match self.key(middle).compared_with(key) {
                Order::Greater => low = middle + 1,
                Order::Less => high = middle,
                Order::Equal => return (middle, true),
            }
        }
        (low, false)
    }

    /// Returns the child of an inner node whose range contains `key`.
    #[inline(always)]
    pub(super) fn child_place(self, key: &SearchKey<'_>, group: usize) -> usize {
        match self.place_in(group, key.head) {
            Some(place) if self.head(place) < key.head => place,
            // Equal heads: the separators themselves decide.
            _ => self.child_place_exact(key),
        }
    }

    #[cold]
    fn child_place_exact(self, key: &SearchKey<'_>) -> usize {
        match self.lower_bound(key) {
            (place, true) => place,
            // Separator 0 is below every key, so the result is 0 here only for a node that is being
            // changed.
            (place, false) => place.saturating_sub(1),
        }
    }

    /// Returns the entry of `key` in a leaf, given its head's group.
    #[inline(always)]
    pub(super) fn find(self, key: &SearchKey<'_>, group: usize) -> Option<HeldKey<'n>> {
        let place = self.place_in(group, key.head)?;
        if self.head(place) != key.head {
            return None;
        }
        let found = self.key(place);
        if found.word().tag() == key.tag && !key.is_long() {
            return Some(found);
        }
        // Other keys have the same head, or the place is past the last entry.
        self.find_exact(key)
    }

    #[cold]
    fn find_exact(self, key: &SearchKey<'_>) -> Option<HeldKey<'n>> {
        let (place, found) = self.lower_bound(key);
        found.then(|| self.key(place))
    }
}
