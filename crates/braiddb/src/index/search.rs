//! Searching a node.

use std::cmp::Ordering as Order;

use super::key::{SearchKey, Word};
use super::node::{GROUP, Node, NodeRef};
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
        (group * GROUP + count_at_most(&self.heads[group], head)).checked_sub(1)
    }
}

impl NodeRef {
    /// The first entry whose key is at least `key` (at most, count); `true` if it is equal.
    ///
    /// # Safety
    /// As for [`NodeRef::get`]; means nothing until validated, unless latched.
    pub(super) unsafe fn lower_bound(self, key: &SearchKey<'_>) -> (usize, bool) {
        // SAFETY: the caller's contract.
        let node = unsafe { self.get() };
        let (mut low, mut high) = (0, node.count());
        while low < high {
            let middle = (low + high) / 2;
            // SAFETY: the caller's contract; cells live as long as the guard.
            match unsafe { key.compare(node.head(middle), self.key_word(middle)) } {
                Order::Greater => low = middle + 1,
                Order::Less => high = middle,
                Order::Equal => return (middle, true),
            }
        }
        (low, false)
    }

    /// The child of an inner node in whose range `key` is.
    ///
    /// # Safety
    /// As for [`NodeRef::get`]; means nothing until validated, unless latched.
    #[inline(always)]
    pub(super) unsafe fn child_place(self, key: &SearchKey<'_>, group: usize) -> usize {
        // SAFETY: the caller's contract.
        let node = unsafe { self.get() };
        match node.place_in(group, key.head) {
            Some(place) if node.head(place) < key.head => place,
            // A tie of heads: the separators themselves decide.
            // SAFETY: the caller's contract.
            _ => unsafe { self.child_place_exact(key) },
        }
    }

    #[cold]
    unsafe fn child_place_exact(self, key: &SearchKey<'_>) -> usize {
        // SAFETY: the caller's contract.
        match unsafe { self.lower_bound(key) } {
            (place, true) => place,
            // Separator 0 is below every key, so only a node being changed gives 0 here.
            (place, false) => place.saturating_sub(1),
        }
    }

    /// The word of `key` in a leaf, given its head's group.
    ///
    /// # Safety
    /// As for [`NodeRef::get`]; means nothing until validated, unless latched.
    #[inline(always)]
    pub(super) unsafe fn find(self, key: &SearchKey<'_>, group: usize) -> Option<Word> {
        // SAFETY: the caller's contract.
        let node = unsafe { self.get() };
        let place = node.place_in(group, key.head)?;
        if node.head(place) != key.head {
            return None;
        }
        let word = Word(node.word(place));
        if word.tag() == key.tag && !key.is_long() {
            return Some(word);
        }
        // Other keys have the same head, or the place is past the last entry.
        // SAFETY: the caller's contract.
        unsafe { self.find_exact(key) }
    }

    #[cold]
    unsafe fn find_exact(self, key: &SearchKey<'_>) -> Option<Word> {
        // SAFETY: the caller's contract.
        match unsafe { self.lower_bound(key) } {
            // SAFETY: the caller's contract.
            (place, true) => Some(Word(unsafe { self.get() }.word(place))),
            (_, false) => None,
        }
    }
}
