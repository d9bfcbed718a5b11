//! Choice of the hole tracker, for tests and experiments.

use std::ops::Range;

use super::Tracker;
use super::bitmap::BitmapScan;
use super::consolidation::ConsolidationArray;
use super::global_lock::GlobalLock;
use super::grasshopper::{self, Advances, Grasshopper};
use super::marks::InFlightMarks;
use crate::sync::atomic::AtomicU64;

/// The method by which the log finds the contiguous prefix filled by concurrent workers.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum HoleTracker {
    /// One word per worker: a lower bound of its block in flight.
    #[default]
    InFlightMarks,
    /// ELEDA's method: lists of pending LSNs. The leader crawls them with a heap, or hops over
    /// ranges with a hopping index when far behind (its §4).
    Grasshopper,
    /// One bit for every 8 bytes of the ring, set when they are filled.
    BitmapScan,
    /// A lock around reserving and filling: no holes, and no concurrency.
    GlobalLock,
    /// Threads that meet reserve together under a lock (Aether's method); groups end in order.
    ConsolidationArray,
}

impl HoleTracker {
    /// All trackers, the default first.
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

/// The tracker chosen when the log was opened.
#[derive(Debug)]
pub(in crate::log) enum AnyTracker {
    Marks(InFlightMarks),
    Grasshopper(Box<Grasshopper>),
    Bitmap(Box<BitmapScan>),
    Lock(Box<GlobalLock>),
    Consolidation(Box<ConsolidationArray>),
}

/// Calls the method of the chosen tracker.
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
    pub(in crate::log) fn new(kind: HoleTracker, fillers: usize, ring_bytes: u64) -> Self {
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

    /// Returns how far Grasshopper advanced in each mode; zero for the others.
    pub(in crate::log) fn advances(&self) -> Advances {
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
