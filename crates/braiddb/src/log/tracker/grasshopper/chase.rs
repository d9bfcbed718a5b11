//! The leader's part: chasing holes (ELEDA §4.2). It hops when it is far behind, and crawls
//! otherwise.
//!
//! Invariant: every block before `sbl` is filled, and `sbl` is the end of a block. Each crawling
//! list's head is before its first node that starts at or after `sbl`. The heap contains at most
//! one entry per list, for its first pending node.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crossbeam_utils::CachePadded;

use super::crawling::{Consumer, ListMark};
use super::index::HoppingIndex;
use super::lists::{FillerLists, Hop};

/// The heads of one filler's lists.
#[derive(Debug)]
pub(super) struct Heads {
    crawling: Consumer,
    /// The first entry of the hopping list, if it was read.
    hopping: Option<Hop>,
    /// True if the heap contains an entry of this filler.
    in_heap: bool,
}

/// The state of the leader.
#[derive(Debug)]
pub(super) struct Chaser {
    /// The end of the sequentially buffered log.
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

    /// Advances `sbl` as far as possible; `tail` is a recent position of the next block.
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

    /// Selects the mode: hopping is possible if the tail is in a later range and this range is
    /// full.
    fn may_hop(&self, tail: u64, index: &HoppingIndex) -> bool {
        let range = index.range(self.sbl);
        range < index.range(tail) && index.is_full(range)
    }

    /// Hops over the full ranges.
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
            // A block across the boundary is filled, because its bytes before the boundary were
            // counted.
            to = to.max(heads.crawling.taken().end);
        }
        assert!(to > self.sbl, "hopping advances");
        self.hopped += to - self.sbl;
        self.sbl = to;
    }

    /// Passes one block after another. Returns `true` if hopping is possible again.
    fn crawl(
        &mut self,
        tail: u64,
        index: &HoppingIndex,
        lists: &[CachePadded<FillerLists>],
    ) -> bool {
        loop {
            while let Some(&Reverse((start, end, filler))) = self.heap.peek() {
                assert!(start >= self.sbl, "pending blocks are not passed yet");
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
    /// Skips every node that starts before `boundary`, where `range` starts.
    fn skip(&mut self, boundary: u64, range: u64, list: &FillerLists) {
        let mut mark: Option<ListMark> = None;
        loop {
            let hop = self.hopping.take().or_else(|| list.hopping.pop());
            let Some(hop) = hop else { break };
            // A pair points past every node that starts before its range. The first pair of `range`
            // or of a later one therefore points past exactly the nodes to skip.
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
