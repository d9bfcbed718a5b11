//! The prefix that all keys of a node share, or all separators of an inner node.
//!
//! Keys are stored without it, so that heads differ early and most keys need no cell. It depends on
//! the entries: splits and merges choose it again, and an insertion of a key without it shortens it.
//! Nodes with keys of at most eight bytes have none.
//!
//! A search compares the prefix first: a key without it is below or above all entries. The comparison
//! needs a cache line, so it is left out in marked nodes: their range is between two separators that
//! both begin with the prefix. A range grows only if a neighbour is unlinked, which removes the marks
//! of the nodes that take over its range, or by a merge, which chooses the prefix again. A split does
//! not mark a node at an end of its parent, because its fence is farther up.

use std::cmp::Ordering as Order;

use super::key::{HeldKey, KeyCell, MAX_PREFIX_BYTES, SearchKey, UnusedCells, word_of};
use super::node::{FANOUT, HeldNode, LatchedNode};
use super::tree::IndexTree;
use crate::memory::MemoryCounters;
use crate::sync::atomic::Ordering;

/// Shorter prefixes are used only if no key needs a cell then, because each search compares them.
const MIN_PREFIX_BYTES: usize = 4;

impl HeldNode<'_> {
    /// Returns a key behind the node's prefix. Meaningless until validated, unless latched.
    ///
    /// # Errors
    /// If the key does not have the prefix: its order relative to all entries.
    #[inline(always)]
    pub(super) fn relative<'k>(self, key: &SearchKey<'k>) -> Result<SearchKey<'k>, Order> {
        if self.has_prefix() { self.behind_prefix(key) } else { Ok(*key) }
    }

    /// Does what `relative` does in a node with a prefix.
    #[inline(always)]
    pub(super) fn behind_prefix<'k>(self, key: &SearchKey<'k>) -> Result<SearchKey<'k>, Order> {
        let bytes = self.prefix_bytes();
        self.check_prefix(key.bytes, bytes).map(|()| key.behind(bytes))
    }

    /// Does what `behind_prefix` does for a key in the node's range, or at its upper end.
    #[inline(always)]
    pub(super) fn behind_prefix_of_range<'k>(
        self,
        key: &SearchKey<'k>,
    ) -> Result<SearchKey<'k>, Order> {
        if self.has_prefix_of_range() {
            return Ok(key.behind(self.prefix_bytes()));
        }
        self.behind_prefix(key)
    }

    /// Returns a key's head behind the node's prefix, for a prefetch.
    #[inline(always)]
    pub(super) fn relative_head(self, key: &SearchKey<'_>) -> u64 {
        if self.has_prefix() { word_of(key.bytes, self.prefix_bytes()) } else { key.head }
    }

    #[inline]
    fn check_prefix(self, key: &[u8], bytes: usize) -> Result<(), Order> {
        for (number, word) in self.prefix.words.iter().enumerate() {
            let Some(left) = bytes.checked_sub(number * 8).filter(|left| *left > 0) else { break };
            let mask = u64::MAX << (64 - 8 * left.min(8));
            // Relaxed: validated by the caller, or latched.
            let order = (word_of(key, number * 8) & mask).cmp(&word.load(Ordering::Relaxed));
            if order != Order::Equal {
                return Err(order);
            }
        }
        // A shorter key was compared with zeros after its end.
        if key.len() < bytes { Err(Order::Less) } else { Ok(()) }
    }

    /// Compares a searched key with the one at `place`. Meaningless until validated.
    pub(super) fn compare(self, key: &SearchKey<'_>, place: usize) -> Order {
        self.relative(key).map_or_else(|order| order, |key| self.key(place).compared_with(&key))
    }

    /// Returns the first place with a key: separator 0 is minus infinity.
    fn first_key(self) -> usize {
        usize::from(self.level() > 0)
    }
}

impl LatchedNode<'_> {
    /// Returns the place at which a full node is split: near the middle, but if keys are long where
    /// neighbours differ early. So nodes rarely contain the end of one group of keys and the start of
    /// the next, their prefixes are long, and separators are short.
    pub(super) fn split_place(&self) -> usize {
        let middle = FANOUT / 2;
        if !(self.first_key()..self.count()).any(|place| self.key(place).is_longer_than_a_head()) {
            return middle;
        }
        // A separator that is a byte shorter is worth eight places.
        let cost = |place: &usize| {
            let shared_bits = (self.head(place - 1) ^ self.head(*place)).leading_zeros() as usize;
            shared_bits / 8 * 8 + place.abs_diff(middle)
        };
        let range = FANOUT.div_ceil(16).max(2)..=FANOUT - FANOUT.div_ceil(16);
        range.min_by_key(cost).expect("a node has several places")
    }

    /// Returns the length of the prefix that suits the entries; `None` without entries. The keys of the
    /// node's range share `range_bytes`.
    fn best_prefix_bytes(&self, range_bytes: usize) -> Option<usize> {
        let keys = || (self.first_key()..self.count()).map(|place| self.key(place));
        let (first, last) = (keys().next()?, keys().next_back()?);
        if !keys().any(HeldKey::is_longer_than_a_head) {
            return Some(0);
        }
        let shared = first.with_bytes(|first| last.with_bytes(|last| common_bytes(first, last)));
        let (shared, of_range) = (shared.min(MAX_PREFIX_BYTES), shared.min(range_bytes));
        // Returns whether no key needs a cell behind a prefix of this length.
        let suffices = |bytes: usize| {
            keys().all(|key| key.with_bytes(|key| key.len() <= bytes + size_of::<u64>()))
        };
        let of_range = of_range.min(MAX_PREFIX_BYTES);
        if of_range >= MIN_PREFIX_BYTES && (suffices(of_range) || !suffices(shared)) {
            return Some(of_range);
        }
        Some(if shared >= MIN_PREFIX_BYTES || suffices(shared) { shared } else { 0 })
    }

    /// Changes the prefix; the keys of all entries begin with it.
    pub(super) fn set_prefix(
        &self,
        prefix: &[u8],
        memory: &MemoryCounters,
        unused: &mut UnusedCells,
    ) {
        for place in self.first_key()..self.count() {
            let (head, word) = self.key(place).recoded(prefix.len(), memory, unused);
            self.set_key(place, head, word);
        }
        unused.extend(self.prefix_cell());
        let cell = (!prefix.is_empty()).then(|| KeyCell::allocate(memory, prefix, 0));
        self.store_prefix(cell, prefix);
        self.refresh_hints(0, FANOUT);
    }
}

impl IndexTree {
    /// Gives a latched node the prefix that suits its entries. `fences` are the ends of its
    /// range; `None` is an end that the caller does not know.
    pub(super) fn choose_prefix(
        &self,
        node: &LatchedNode<'_>,
        fences: [Option<&[u8]>; 2],
        unused: &mut UnusedCells,
    ) {
        let range_bytes = match fences {
            [Some(low), Some(high)] => common_bytes(low, high),
            _ => 0,
        };
        let Some(bytes) = node.best_prefix_bytes(range_bytes) else {
            return node.mark_prefix_of_range(false);
        };
        if bytes != node.prefix_bytes() {
            let last = node.key(node.count() - 1);
            last.with_bytes(|key| node.set_prefix(&key[..bytes], &self.memory, unused));
        }
        node.mark_prefix_of_range(0 < bytes && bytes <= range_bytes);
    }

    /// Gives an empty node the prefix of another one, which probably suits it.
    pub(super) fn copy_prefix(&self, from: &LatchedNode<'_>, to: &LatchedNode<'_>) {
        if let Some(prefix) = from.prefix() {
            prefix.with_bytes(|prefix| {
                to.set_prefix(prefix, &self.memory, &mut UnusedCells::new());
            });
        }
    }

    /// Returns a key behind a latched node's prefix, which is shortened if the key does not have it.
    #[inline(always)]
    pub(super) fn share_prefix<'k>(
        &self,
        node: &LatchedNode<'_>,
        key: &SearchKey<'k>,
        unused: &mut UnusedCells,
    ) -> SearchKey<'k> {
        if node.has_prefix() { self.shorten_prefix(node, key, unused) } else { *key }
    }

    #[inline(never)]
    fn shorten_prefix<'k>(
        &self,
        node: &LatchedNode<'_>,
        key: &SearchKey<'k>,
        unused: &mut UnusedCells,
    ) -> SearchKey<'k> {
        node.relative(key).unwrap_or_else(|_| {
            let prefix = node.prefix().expect("a node without prefix suits all keys");
            prefix.with_bytes(|prefix| {
                let shared = common_bytes(prefix, key.bytes);
                let shared = if shared < MIN_PREFIX_BYTES { 0 } else { shared };
                node.set_prefix(&prefix[..shared], &self.memory, unused);
                key.behind(shared)
            })
        })
    }
}

/// Returns the number of bytes with which both keys begin.
pub(super) fn common_bytes(left: &[u8], right: &[u8]) -> usize {
    left.iter().zip(right).take_while(|(left, right)| left == right).count()
}
