//! Finding the contiguous prefix of filled blocks (ELEDA §3.2): blocks are reserved in order and
//! filled in any order, and only what has no hole before it may go to disk.
//!
//! Five ways to do it behind one interface. The default is what measures best; the others are
//! there to be measured against it (`braid bench trackers`).

mod bitmap;
mod consolidation;
mod global_lock;
mod grasshopper;
mod marks;
mod wait;

use std::ops::Range;

pub(super) use bitmap::BitmapScan;
pub(super) use consolidation::ConsolidationArray;
pub(super) use global_lock::GlobalLock;
pub(super) use grasshopper::{Advances, Grasshopper};
pub(super) use marks::InFlightMarks;

use crate::sync::atomic::{AtomicU64, Ordering};

/// Keeps track of holes. A filler (a worker, or the flush leader) has one block in flight at a
/// time, and is played by one thread at a time.
pub(super) trait Tracker: Send + Sync {
    /// The log starts at `lsn`, with everything before filled. Called before anything else, if at
    /// all.
    fn start(&self, _lsn: u64) {}

    /// Reserves a block at the tail of the log.
    #[inline]
    fn reserve(&self, filler: usize, tail: &AtomicU64, bytes: u64) -> u64 {
        // Relaxed: any earlier tail is a bound.
        self.begin(filler, tail.load(Ordering::Relaxed));
        // SeqCst: the tail is the engine's clock; its Release half publishes what `begin` noted.
        tail.fetch_add(bytes, Ordering::SeqCst)
    }

    /// The filler is about to reserve a block that will not start before `bound`. What happens
    /// here happens before the `AcqRel` addition that reserves.
    fn begin(&self, filler: usize, bound: u64);

    /// The filler's block is filled; everything before `durable` is on disk.
    fn end(&self, filler: usize, block: Range<u64>, durable: u64);

    /// Up to where everything is filled, at least, which may be within a block; `tail` was loaded
    /// (Acquire) before. May be below an earlier answer: both are true.
    fn prefix(&self, tail: u64) -> u64;
}

/// How the log finds the contiguous prefix of what concurrent workers have filled.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum HoleTracker {
    /// One word a worker: a bound of its block in flight.
    #[default]
    InFlightMarks,
    /// ELEDA's: lists of pending LSNs that are crawled by a heap, or hopped over by a hopping
    /// index when far behind (its §4).
    Grasshopper,
    /// One bit for every 8 bytes of the ring, set when they are filled.
    BitmapScan,
    /// A lock around reserving and filling: no holes, and nothing concurrent.
    GlobalLock,
    /// Threads that meet reserve together, under a lock (Aether's); groups end in order.
    ConsolidationArray,
}

impl HoleTracker {
    /// All of them, the default first.
    pub const ALL: [Self; 5] = [
        Self::InFlightMarks,
        Self::Grasshopper,
        Self::BitmapScan,
        Self::GlobalLock,
        Self::ConsolidationArray,
    ];
}

impl std::fmt::Display for HoleTracker {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.pad(match self {
            Self::InFlightMarks => "in-flight marks",
            Self::Grasshopper => "grasshopper",
            Self::BitmapScan => "bitmap scan",
            Self::GlobalLock => "global lock",
            Self::ConsolidationArray => "consolidation array",
        })
    }
}

/// The tracker that was chosen when the log was opened.
#[derive(Debug)]
pub(super) enum AnyTracker {
    Marks(InFlightMarks),
    Grasshopper(Box<Grasshopper>),
    Bitmap(Box<BitmapScan>),
    Lock(Box<GlobalLock>),
    Consolidation(Box<ConsolidationArray>),
}

/// Calls the method of whichever tracker it is.
macro_rules! each {
    ($self:ident, $tracker:ident => $call:expr) => {
        match $self {
            AnyTracker::Marks($tracker) => $call,
            AnyTracker::Grasshopper($tracker) => $call,
            AnyTracker::Bitmap($tracker) => $call,
            AnyTracker::Lock($tracker) => $call,
            AnyTracker::Consolidation($tracker) => $call,
        }
    };
}

impl AnyTracker {
    pub(super) fn new(kind: HoleTracker, fillers: usize, ring_bytes: u64) -> Self {
        match kind {
            HoleTracker::InFlightMarks => Self::Marks(InFlightMarks::new(fillers)),
            HoleTracker::Grasshopper => {
                let exponent = grasshopper::HOPPING_EXPONENT;
                Self::Grasshopper(Box::new(Grasshopper::new(fillers, ring_bytes, exponent)))
            }
            HoleTracker::BitmapScan => Self::Bitmap(Box::new(BitmapScan::new(ring_bytes))),
            HoleTracker::GlobalLock => Self::Lock(Box::new(GlobalLock::new())),
            HoleTracker::ConsolidationArray => {
                Self::Consolidation(Box::new(ConsolidationArray::new(fillers)))
            }
        }
    }

    /// How Grasshopper came on; nothing for the others.
    pub(super) fn advances(&self) -> Advances {
        match self {
            Self::Grasshopper(grasshopper) => grasshopper.advances(),
            _ => Advances::default(),
        }
    }
}

impl Tracker for AnyTracker {
    fn start(&self, lsn: u64) {
        each!(self, tracker => tracker.start(lsn));
    }

    #[inline]
    fn reserve(&self, filler: usize, tail: &AtomicU64, bytes: u64) -> u64 {
        each!(self, tracker => tracker.reserve(filler, tail, bytes))
    }

    #[inline]
    fn begin(&self, filler: usize, bound: u64) {
        each!(self, tracker => tracker.begin(filler, bound));
    }

    #[inline]
    fn end(&self, filler: usize, block: Range<u64>, durable: u64) {
        each!(self, tracker => tracker.end(filler, block, durable));
    }

    fn prefix(&self, tail: u64) -> u64 {
        each!(self, tracker => tracker.prefix(tail))
    }
}
