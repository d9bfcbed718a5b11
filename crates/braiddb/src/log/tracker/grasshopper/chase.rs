//! The leader's part: chasing holes (ELEDA §4.2), by hopping when far behind, else by crawling.
//!
//! Invariant: every block before `sbl` is filled, and `sbl` is the end of a block. Each list's head
//! is its last node that starts before `sbl`; the heap holds at most one entry a list, of its first
//! pending node.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use crossbeam_utils::CachePadded;

use super::index::HoppingIndex;
use super::list::Consumer;
use super::{Hop, List, Pending, PendingNode};

/// The heads of one filler's lists.
#[derive(Debug)]
pub(super) struct Heads {
    pub(super) crawling: Consumer<Pending>,
    pub(super) hopping: Consumer<Hop>,
    /// Whether the heap has an entry of it.
    pub(super) in_heap: bool,
}

/// What the leader holds.
#[derive(Debug)]
pub(super) struct Chaser {
    /// The end of what is sequentially buffered.
    pub(super) sbl: u64,
    pub(super) heads: Box<[Heads]>,
    /// First pending LSNs: `(start, end, filler)`.
    pub(super) heap: BinaryHeap<Reverse<(u64, u64, usize)>>,
    /// Bytes passed by crawling and by hopping.
    pub(super) crawled: u64,
    pub(super) hopped: u64,
}

impl Chaser {
    /// Brings `sbl` as far as it goes. A full range has the tail behind it: whether the two fall
    /// into one entry, the paper's switch between the modes, need not be asked too.
    pub(super) fn advance(&mut self, index: &HoppingIndex, lists: &[CachePadded<List>]) {
        loop {
            let range = index.range(self.sbl);
            if index.is_full(range) {
                self.hop(range, index, lists);
            } else if !self.crawl(index, lists) {
                return;
            }
        }
    }

    /// Goes over ranges that are full, from `range` on.
    fn hop(&mut self, mut range: u64, index: &HoppingIndex, lists: &[CachePadded<List>]) {
        while index.is_full(range) {
            range += 1;
        }
        let boundary = index.boundary(range);
        let mut to = boundary;
        self.heap.clear();
        for (heads, list) in self.heads.iter_mut().zip(lists) {
            heads.skip(boundary, range, list);
            heads.in_heap = false;
            // A block across the boundary is filled, as its bytes before it were counted.
            to = to.max(heads.crawling.head().end);
        }
        assert!(to > self.sbl, "hopping advances");
        self.hopped += to - self.sbl;
        self.sbl = to;
    }

    /// Passes one block after another; `true` if hopping is to go on.
    fn crawl(&mut self, index: &HoppingIndex, lists: &[CachePadded<List>]) -> bool {
        loop {
            while let Some(&Reverse((start, end, filler))) = self.heap.peek() {
                assert!(start >= self.sbl, "what is pending is not yet passed");
                if start != self.sbl {
                    break;
                }
                if index.is_full(index.range(self.sbl)) {
                    return true;
                }
                self.crawled += end - self.sbl;
                self.sbl = end;
                self.heap.pop();
                self.heads[filler].pass(index, &lists[filler]);
                self.insert(filler, &lists[filler]);
            }
            let missing = (0..lists.len()).filter(|&filler| !self.heads[filler].in_heap);
            let missing: smallvec::SmallVec<[usize; 16]> = missing.collect();
            let inserted =
                missing.into_iter().filter(|&filler| self.insert(filler, &lists[filler]));
            if inserted.count() == 0 {
                return false;
            }
        }
    }

    /// Puts a list's first pending node into the heap, if it has one.
    fn insert(&mut self, filler: usize, list: &List) -> bool {
        let heads = &mut self.heads[filler];
        let first = heads.crawling.peek(&list.crawling);
        heads.in_heap = first.is_some();
        self.heap.extend(first.map(|pending| Reverse((pending.start, pending.end, filler))));
        heads.in_heap
    }
}

impl Heads {
    /// Takes the first pending node, and the pairs that lead to nodes before the next.
    fn pass(&mut self, index: &HoppingIndex, list: &List) {
        self.crawling.take(&list.crawling);
        let range = index.range(self.crawling.head().start);
        self.pass_pairs(range, list);
    }

    /// Takes the pairs of ranges up to `range`; the node before the last of them, if it is there
    /// still.
    fn pass_pairs(&mut self, range: u64, list: &List) -> Option<Arc<PendingNode>> {
        let mut before = None;
        while self.hopping.peek(&list.hopping).is_some_and(|hop| hop.range <= range) {
            self.hopping.take(&list.hopping);
            before = self.hopping.head().before.upgrade();
        }
        before
    }

    /// Takes every node that starts before `boundary`, where `range` starts.
    fn skip(&mut self, boundary: u64, range: u64, list: &List) {
        // What comes before a range's first node starts before the range.
        if let Some(before) = self.pass_pairs(range, list) {
            self.crawling.take_to(before, &list.crawling);
        }
        while self.crawling.peek(&list.crawling).is_some_and(|first| first.start < boundary) {
            self.crawling.take(&list.crawling);
        }
    }
}
