//! The leader's part: chasing holes (ELEDA §4.2), by hopping when far behind, else by crawling.
//!
//! Invariant: every block before `sbl` is filled, and `sbl` is the end of a block. Each crawling
//! list's head is before its first node that starts at or after `sbl`; the heap holds at most one
//! entry a list, of its first pending node.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crossbeam_utils::CachePadded;

use super::crawling::{Consumer, ListMark};
use super::index::HoppingIndex;
use super::{FillerLists, Hop};

/// The heads of one filler's lists.
#[derive(Debug)]
pub(super) struct Heads {
    crawling: Consumer,
    /// The first of the hopping list, if it was looked at.
    hopping: Option<Hop>,
    /// Whether the heap has an entry of it.
    in_heap: bool,
}

/// What the leader holds.
#[derive(Debug)]
pub(super) struct Chaser {
    /// The end of what is sequentially buffered.
    pub(super) sbl: u64,
    heads: Box<[Heads]>,
    /// First pending LSNs: `(start, end, filler)`.
    heap: BinaryHeap<Reverse<(u64, u64, usize)>>,
    /// Bytes passed by crawling and by hopping.
    pub(super) crawled: u64,
    pub(super) hopped: u64,
}

impl Chaser {
    pub(super) fn new(heads: impl Iterator<Item = Consumer>) -> Self {
        let heads = heads.map(|crawling| Heads { crawling, hopping: None, in_heap: false });
        let heads: Box<[Heads]> = heads.collect();
        let heap = BinaryHeap::with_capacity(heads.len());
        Self { sbl: 0, heads, heap, crawled: 0, hopped: 0 }
    }

    /// Brings `sbl` as far as it goes; `tail` is where the next block will be, or was.
    pub(super) fn advance(
        &mut self,
        tail: u64,
        index: &HoppingIndex,
        lists: &[CachePadded<FillerLists>],
    ) {
        loop {
            if self.may_hop(tail, index) {
                self.hop(index, lists);
            } else if !self.crawl(tail, index, lists) {
                return;
            }
        }
    }

    /// The switch between the modes: whether the tail is in a later range and this one is full.
    fn may_hop(&self, tail: u64, index: &HoppingIndex) -> bool {
        let range = index.range(self.sbl);
        range < index.range(tail) && index.is_full(range)
    }

    /// Goes over the ranges that are full.
    fn hop(&mut self, index: &HoppingIndex, lists: &[CachePadded<FillerLists>]) {
        let mut range = index.range(self.sbl);
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
            to = to.max(heads.crawling.taken().end);
        }
        assert!(to > self.sbl, "hopping advances");
        self.hopped += to - self.sbl;
        self.sbl = to;
    }

    /// Passes one block after another; `true` if hopping is to go on.
    fn crawl(
        &mut self,
        tail: u64,
        index: &HoppingIndex,
        lists: &[CachePadded<FillerLists>],
    ) -> bool {
        loop {
            while let Some(&Reverse((start, end, filler))) = self.heap.peek() {
                assert!(start >= self.sbl, "what is pending is not yet passed");
                if start != self.sbl {
                    break;
                }
                if self.may_hop(tail, index) {
                    return true;
                }
                self.crawled += end - self.sbl;
                self.sbl = end;
                self.heap.pop();
                self.heads[filler].crawling.take(&lists[filler].crawling);
                self.insert(filler, &lists[filler]);
            }
            let mut inserted = false;
            for (filler, list) in lists.iter().enumerate() {
                inserted |= !self.heads[filler].in_heap && self.insert(filler, list);
            }
            if !inserted {
                return false;
            }
        }
    }

    /// Puts a list's first pending node into the heap, if it has one.
    fn insert(&mut self, filler: usize, list: &FillerLists) -> bool {
        let heads = &mut self.heads[filler];
        let first = heads.crawling.peek(&list.crawling);
        heads.in_heap = first.is_some();
        self.heap.extend(first.map(|pending| Reverse((pending.start, pending.end, filler))));
        heads.in_heap
    }
}

impl Heads {
    /// Takes every node that starts before `boundary`, where `range` starts.
    fn skip(&mut self, boundary: u64, range: u64, list: &FillerLists) {
        let mut mark: Option<ListMark> = None;
        loop {
            let hop = self.hopping.take().or_else(|| list.hopping.pop());
            let Some(hop) = hop else { break };
            // A pair leads past every node that starts before its range: the first pair of `range` or
            // of a later one leads past all that is to be skipped, and nothing else.
            mark = Some(hop.mark.clone());
            if hop.range >= range {
                self.hopping = Some(hop);
                break;
            }
        }
        if let Some(mark) = mark {
            self.crawling.go_to(&mark, &list.crawling);
        }
        while self.crawling.peek(&list.crawling).is_some_and(|first| first.start < boundary) {
            self.crawling.take(&list.crawling);
        }
    }
}
