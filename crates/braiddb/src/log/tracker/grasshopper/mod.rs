//! Grasshopper, as ELEDA publishes it (§3.2 and §4): a filler lists its filled blocks in order; the
//! leader chases holes by crawling from block to block, smallest first, and hops over whole ranges
//! of 2^H bytes, of which an index tells that they are full, when it has fallen behind.
//!
//! Who may touch what (its table 2): a filler writes the tails of its own lists, the index, and its
//! point of garbage collection; the leader, whoever has `chaser`, writes the heads and reads tails
//! and index. Its three invariants are assertions: heads never pass tails (`list`), garbage
//! collection never passes what is durable (here), flushing never passes what is sequentially
//! buffered (the flush). A commit's callback is not in its node: it waits in its worker's own queue,
//! which is in the order of LSNs too.

mod chase;
mod index;
mod list;

use std::collections::BinaryHeap;
use std::ops::Range;
use std::sync::{Arc, Weak};

use crossbeam_utils::CachePadded;
use parking_lot::Mutex;

use self::chase::{Chaser, Heads};
use self::index::HoppingIndex;
use self::list::{Node, Producer};
use super::Tracker;
use crate::sync::atomic::{AtomicU64, Ordering};

/// H: the leader hops 4 MiB at a time, as in the paper's experiments (§6).
pub(super) const HOPPING_EXPONENT: u32 = 22;

/// A block that is filled and may not be durable.
#[derive(Debug, Default)]
struct Pending {
    start: u64,
    end: u64,
}

type PendingNode = Node<Pending>;

/// The way to a range's first block in a crawling list.
#[derive(Debug, Default)]
struct Hop {
    range: u64,
    /// The node before it; gone once that one is durable.
    before: Weak<PendingNode>,
}

/// The lists of one filler.
#[derive(Debug)]
struct List {
    /// Nodes ever appended to the crawling list: its tail.
    crawling: AtomicU64,
    /// The same of the hopping list.
    hopping: AtomicU64,
    owner: Mutex<Owner>,
}

/// What only the filler touches.
#[derive(Debug)]
struct Owner {
    crawling: Producer<Pending>,
    hopping: Producer<Hop>,
    /// The range of the last node.
    range: Option<u64>,
    /// Nodes before this one are freed.
    gc: Arc<PendingNode>,
}

/// The tracker.
#[derive(Debug)]
pub(in crate::log) struct Grasshopper {
    lists: Box<[CachePadded<List>]>,
    index: HoppingIndex,
    chaser: Mutex<Chaser>,
    /// The chaser's, to look at without its lock.
    sbl: CachePadded<AtomicU64>,
}

/// How the sequentially buffered LSN advanced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::log) struct Advances {
    pub(in crate::log) crawled: u64,
    pub(in crate::log) hopped: u64,
}

impl Grasshopper {
    pub(in crate::log) fn new(fillers: usize, ring_bytes: u64, exponent: u32) -> Self {
        let (lists, heads) = (0..fillers).map(|_| lists()).unzip::<_, _, Vec<_>, Vec<_>>();
        Self {
            lists: lists.into_iter().map(CachePadded::new).collect(),
            index: HoppingIndex::new(ring_bytes, exponent),
            chaser: Mutex::new(Chaser {
                sbl: 0,
                heads: heads.into(),
                heap: BinaryHeap::with_capacity(fillers),
                crawled: 0,
                hopped: 0,
            }),
            sbl: CachePadded::new(AtomicU64::new(0)),
        }
    }

    pub(in crate::log) fn advances(&self) -> Advances {
        let chaser = self.chaser.lock();
        Advances { crawled: chaser.crawled, hopped: chaser.hopped }
    }
}

/// A filler's lists, and their heads.
fn lists() -> (List, Heads) {
    let (crawling, crawled) = list::list(Pending::default());
    let (hopping, hopped) = list::list(Hop::default());
    let gc = crawling.last().clone();
    let owner = Mutex::new(Owner { crawling, hopping, range: None, gc });
    let list = List { crawling: AtomicU64::new(0), hopping: AtomicU64::new(0), owner };
    (list, Heads { crawling: crawled, hopping: hopped, in_heap: false })
}

impl Owner {
    /// Frees nodes whose next one is durable: the head has passed that one.
    fn collect(&mut self, durable: u64) {
        while let Some(next) = self.gc.next().filter(|next| next.value.end <= durable) {
            self.gc = next.clone();
        }
        // Spec 2: where the point of collection is what is durable, it stays.
        assert!(self.gc.value.end <= durable, "garbage collection never passes the durable LSN");
    }
}

impl Tracker for Grasshopper {
    fn start(&self, lsn: u64) {
        self.index.start(lsn);
        self.chaser.lock().sbl = lsn;
        self.sbl.store(lsn, Ordering::Release);
    }

    fn begin(&self, _: usize, _: u64) {}

    fn end(&self, filler: usize, block: Range<u64>, durable: u64) {
        let list = &self.lists[filler];
        let mut owner = list.owner.try_lock().expect("one thread at a time plays a filler");
        let before = Arc::downgrade(owner.crawling.last());
        // In this order (§4.1.2): who finds a block counted finds it listed.
        let Range { start, end } = block;
        owner.crawling.append(&list.crawling, Pending { start, end });
        let range = self.index.range(start);
        if owner.range.replace(range) != Some(range) {
            owner.hopping.append(&list.hopping, Hop { range, before });
        }
        self.index.add(block);
        owner.collect(durable);
    }

    fn prefix(&self, _: u64) -> u64 {
        if let Some(mut chaser) = self.chaser.try_lock() {
            chaser.advance(&self.index, &self.lists);
            // Release pairs with the Acquire below: the bytes of every block before.
            self.sbl.store(chaser.sbl, Ordering::Release);
        }
        self.sbl.load(Ordering::Acquire)
    }
}
