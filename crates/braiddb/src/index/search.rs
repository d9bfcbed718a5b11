//! Searching a node.

use std::cmp::Ordering as Order;

use super::key::{HeldKey, SearchKey};
use super::node::{GROUP, HeldNode, Node};
use crate::sync::atomic::{AtomicU64, Ordering};

/// How many of some sorted words are at most `head`, counted without branches.
#[inline(always)]
fn count_at_most<const N: usize>(words: &[AtomicU64; N], head: u64) -> usize {
    let mut count = 0;
    for word in words {
        // Relaxed: validated by the caller.
        count += usize::from(word.load(Ordering::Relaxed) <= head);
    }
    count
}

impl Node {
    /// The group in which the last entry with a head of at most `head` stands.
    #[inline(always)]
    pub(super) fn group(&self, head: u64) -> usize {
        count_at_most(&self.hints, head)
    }

    /// The last entry of a group with a head of at most `head`; `None` if the group's first is
    /// larger already, which can be only in group 0.
    #[inline(always)]
    pub(super) fn place_in(&self, group: usize, head: u64) -> Option<usize> {
        (group * GROUP + count_at_most(&self.groups[group].heads, head)).checked_sub(1)
    }
}

impl<'n> HeldNode<'n> {
    /// The first entry whose key is at least `key` (at most, count); `true` if it is equal. Means
    /// nothing until validated, unless latched; so do the answers of the functions below.
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

    /// The child of an inner node in whose range `key` is.
    #[inline(always)]
    pub(super) fn child_place(self, key: &SearchKey<'_>, group: usize) -> usize {
        match self.place_in(group, key.head) {
            Some(place) if self.head(place) < key.head => place,
            // A tie of heads: the separators themselves decide.
            _ => self.child_place_exact(key),
        }
    }

    #[cold]
    fn child_place_exact(self, key: &SearchKey<'_>) -> usize {
        match self.lower_bound(key) {
            (place, true) => place,
            // Separator 0 is below every key, so only a node being changed gives 0 here.
            (place, false) => place.saturating_sub(1),
        }
    }

    /// The entry of `key` in a leaf, given its head's group.
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
