//! Hole trackers: they find the contiguous prefix of filled blocks (ELEDA §3.2). Blocks are
//! reserved in order and filled in any order; only a prefix without holes may be written to disk.
//!
//! Five methods have one interface. In-flight marks perform best and are the log's default. The
//! others exist for comparison (`braid bench trackers`), in tests and in builds for experiments or
//! simulations.

#[cfg(feature = "experiment")]
mod bitmap;
#[cfg(feature = "experiment")]
mod choice;
#[cfg(feature = "experiment")]
mod consolidation;
#[cfg(feature = "experiment")]
mod global_lock;
#[cfg(feature = "experiment")]
mod grasshopper;
mod marks;
#[cfg(feature = "experiment")]
mod wait;

use std::ops::Range;

#[cfg(test)]
pub(super) use bitmap::BitmapScan;
#[cfg(feature = "experiment")]
pub(super) use choice::AnyTracker;
#[cfg(feature = "experiment")]
pub(super) use choice::AnyTracker as LogTracker;
#[cfg(feature = "experiment")]
pub use choice::HoleTracker;
#[cfg(all(test, loom))]
pub(super) use consolidation::ConsolidationArray;
#[cfg(all(test, loom))]
pub(super) use global_lock::GlobalLock;
#[cfg(test)]
pub(super) use grasshopper::{Advances, Grasshopper};
#[cfg(test)]
pub(super) use marks::InFlightMarks;
#[cfg(not(feature = "experiment"))]
pub(super) use marks::InFlightMarks as LogTracker;

use crate::sync::atomic::{AtomicU64, Ordering};

/// Tracks holes. A filler (a worker, or the flush leader) has one block in flight at a time, and is
/// used by one thread at a time.
pub(super) trait Tracker: Send + Sync {
    /// Starts the log at `lsn`, with everything before filled. Called before anything else, if at
    /// all.
    fn start(&self, _lsn: u64) {}

    /// Reserves a block at the tail of the log.
    #[inline]
    fn reserve(&self, filler: usize, tail: &AtomicU64, bytes: u64) -> u64 {
        // Relaxed: any earlier tail is a bound.
        self.begin(filler, tail.load(Ordering::Relaxed));
        // SeqCst: the tail is the engine's clock; its Release half publishes the writes of `begin`.
        tail.fetch_add(bytes, Ordering::SeqCst)
    }

    /// Notes that the filler is about to reserve a block that will not start before `bound`.
    /// Everything here happens before the `AcqRel` addition that reserves.
    fn begin(&self, filler: usize, bound: u64);

    /// Marks the filler's block as filled; everything before `durable` is on disk.
    fn end(&self, filler: usize, block: Range<u64>, durable: u64);

    /// Returns a position up to which everything is filled, which may be within a block. `tail` was
    /// loaded (Acquire) before. The result may be below an earlier one: both are correct.
    fn prefix(&self, tail: u64) -> u64;
}
