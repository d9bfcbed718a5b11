//! Grasshopper, as published in ELEDA (§3.2 and §4). A filler lists its filled blocks in order. The
//! leader chases holes by crawling from block to block, smallest first. When it has fallen behind,
//! it hops over whole ranges of 2^H bytes that an index reports as full.
//!
//! Access follows table 2 of the paper. A filler writes the tails of its lists, the index, and
//! its point of garbage collection. The leader, which is the thread that has `chaser`, writes the
//! heads and reads tails and index. The three invariants of the paper are assertions: heads never
//! pass tails, garbage collection never passes the durable LSN (both in `crawling`), and flushing
//! never passes the sequentially buffered LSN (the flush). Unlike in the paper, a node does not
//! contain the commit's callback, which waits in its worker's queue, also in LSN order.

mod chase;
mod crawling;
mod index;
mod lists;

use std::ops::Range;

use crossbeam_utils::CachePadded;

use self::chase::Chaser;
use self::crawling::PendingBlock;
use self::index::HoppingIndex;
use self::lists::{FillerLists, FillerState, Hop};
use super::Tracker;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Mutex, SegQueue};

/// H: the leader hops 4 MiB at a time, as in the paper's experiments (§6).
pub(super) const HOPPING_EXPONENT: u32 = 22;

/// The Grasshopper tracker.
#[derive(Debug)]
pub(in crate::log) struct Grasshopper {
    lists: Box<[CachePadded<FillerLists>]>,
    index: HoppingIndex,
    chaser: Mutex<Chaser>,
    /// A copy of the chaser's value that is read without its lock.
    sbl: CachePadded<AtomicU64>,
}

/// Bytes by which the sequentially buffered LSN advanced, by mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::log) struct Advances {
    pub(in crate::log) crawled: u64,
    pub(in crate::log) hopped: u64,
}

impl Grasshopper {
    pub(in crate::log) fn new(fillers: usize, ring_bytes: u64, exponent: u32) -> Self {
        let (producers, heads) =
            (0..fillers).map(|_| crawling::list()).unzip::<_, _, Vec<_>, Vec<_>>();
        let lists = producers.into_iter().map(|crawling| {
            let owner = Mutex::new(FillerState { crawling, range: None });
            let (crawling, hopping) = (AtomicU64::new(0), SegQueue::new());
            CachePadded::new(FillerLists { crawling, hopping, owner })
        });
        Self {
            lists: lists.collect(),
            index: HoppingIndex::new(ring_bytes, exponent),
            chaser: Mutex::new(Chaser::new(heads.into_iter())),
            sbl: CachePadded::new(AtomicU64::new(0)),
        }
    }

    pub(in crate::log) fn advances(&self) -> Advances {
        let chaser = self.chaser.lock();
        Advances { crawled: chaser.crawled, hopped: chaser.hopped }
    }
}

impl Tracker for Grasshopper {
    fn start(&self, lsn: u64) {
        self.index.start(lsn);
        self.chaser.lock().sbl = lsn;
        // Release as in `prefix`; the threads that will read it are started later.
        self.sbl.store(lsn, Ordering::Release);
    }

    fn begin(&self, _: usize, _: u64) {}

    fn end(&self, filler: usize, block: Range<u64>, durable: u64) {
        let list = &self.lists[filler];
        let mut owner = list.owner.try_lock().expect("one thread at a time uses a filler");
        let mark = owner.crawling.mark();
        // In this order (§4.1.2): a thread that finds a block counted finds it listed.
        owner.crawling.append(&list.crawling, PendingBlock { start: block.start, end: block.end });
        let range = self.index.range(block.start);
        if owner.range.replace(range) != Some(range) {
            list.hopping.push(Hop { range, mark });
        }
        self.index.add(block);
        owner.crawling.collect(durable);
    }

    fn prefix(&self, tail: u64) -> u64 {
        if let Some(mut chaser) = self.chaser.try_lock() {
            chaser.advance(tail, &self.index, &self.lists);
            // Release pairs with the Acquire below: the bytes of every block before.
            self.sbl.store(chaser.sbl, Ordering::Release);
        }
        // Acquire pairs with the Release above, of this thread or of another.
        self.sbl.load(Ordering::Acquire)
    }
}
