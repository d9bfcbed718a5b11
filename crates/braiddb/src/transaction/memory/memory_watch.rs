//! A worker's view of the memory in use: how fast it evicts, and when nothing can be evicted.

use std::cell::Cell;
use std::time::{Duration, Instant};

use crate::log::Lsn;
use crate::sync::clock;

/// Bytes that a worker allocates or frees before it measures memory use again, with and without
/// ready tasks. A measurement reads the counters of every worker.
pub(in crate::transaction) const BYTES_PER_CHECK: u64 = 256 << 10;
pub(in crate::transaction) const IDLE_BYTES_PER_CHECK: u64 = 4 << 10;
/// Delay before an idle worker in the slow state passes over more entries.
pub(in crate::transaction) const SLOW_DELAY: Duration = Duration::from_millis(20);
/// Divisor: freeing one eighth of the excess counts as progress.
const PROGRESS_DIVISOR: u64 = 8;

/// A worker's view of the memory in use.
#[derive(Debug, Default)]
pub(in crate::transaction) struct MemoryWatch {
    /// Bytes in use when this worker last measured.
    pub(in crate::transaction) in_use: Cell<u64>,
    pub(in crate::transaction) pace: Cell<EvictionPace>,
    /// The current double pass over all entries.
    passage: Cell<Option<ClockPass>>,
    /// This worker's net allocated bytes at the last measurement.
    pub(in crate::transaction) allocated: Cell<i64>,
    /// True if guests may have allocated memory since the last measurement.
    pub(in crate::transaction) others_allocated: Cell<bool>,
    /// Peak of the memory in use since memory was last returned.
    pub(in crate::transaction) most: Cell<u64>,
    /// Time at which to return memory.
    pub(in crate::transaction) give_back_at: Cell<Option<Instant>>,
}

/// The conditions that decide which versions may be evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::transaction) struct EvictionConditions {
    pub(in crate::transaction) oldest: Lsn,
    pub(in crate::transaction) durable: Lsn,
    pub(in crate::transaction) excess: u64,
}

/// Eviction pace of an idle worker.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::transaction) enum EvictionPace {
    #[default]
    Eager,
    Slow,
    /// Stopped, because nothing could be evicted under these conditions.
    Stopped(EvictionConditions),
}

/// A double pass of the clock's hand over all entries.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClockPass {
    /// The conditions at its start.
    circumstances: EvictionConditions,
    entries: u64,
    freed: u64,
}

/// The action of an idle worker on memory above the budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::transaction) struct Eviction {
    /// Set to continue immediately.
    pub(in crate::transaction) at_once: bool,
    /// When to continue, if the worker sleeps.
    pub(in crate::transaction) at: Option<Instant>,
}

impl Eviction {
    pub(in crate::transaction) fn later() -> Self {
        Self { at_once: false, at: Some(clock::now() + SLOW_DELAY) }
    }
}

impl EvictionConditions {
    /// Returns whether everything evictable now was already evictable under `before`.
    fn allow_no_more_than(self, before: Self) -> bool {
        (self.oldest, self.durable) == (before.oldest, before.durable)
            && self.excess <= before.excess
    }
}

impl MemoryWatch {
    /// Notes the memory in use, and the excess over the budget.
    pub(in crate::transaction) fn note(&self, in_use: u64, excess: u64) {
        self.in_use.set(in_use);
        self.most.set(self.most.get().max(in_use));
        if excess == 0 {
            self.pace.set(EvictionPace::Eager);
            self.passage.set(None);
        }
    }

    /// Returns whether nothing is evictable that was not already in an unsuccessful pass.
    pub(in crate::transaction) fn stops(&self, now: EvictionConditions) -> bool {
        let EvictionPace::Stopped(before) = self.pace.get() else { return false };
        let stops = now.allow_no_more_than(before);
        // If the excess rises above its current value, the state has changed.
        self.pace.set(if stops { EvictionPace::Stopped(now) } else { EvictionPace::Slow });
        stops
    }

    /// Counts the passed entries, of `all`, and the bytes freed; `left` is the remaining excess.
    pub(in crate::transaction) fn pass(
        &self,
        now: EvictionConditions,
        entries: u64,
        freed: u64,
        all: u64,
        left: u64,
    ) {
        let much = |freed: u64| freed > 0 && freed >= left / PROGRESS_DIVISOR;
        let mut passage =
            self.passage.get().unwrap_or(ClockPass { circumstances: now, entries: 0, freed: 0 });
        passage.entries += entries;
        passage.freed += freed;
        if much(freed) {
            self.pace.set(EvictionPace::Eager);
        }
        if passage.entries < 2 * all {
            self.passage.set(Some(passage));
            return;
        }
        self.passage.set(None);
        self.pace.set(match passage.freed {
            // If more became evictable during the pass, earlier entries need another pass: no event
            // wakes this worker for it.
            0 if now.allow_no_more_than(passage.circumstances) => {
                EvictionPace::Stopped(passage.circumstances)
            }
            freed if much(freed) => EvictionPace::Eager,
            _ => EvictionPace::Slow,
        });
    }

    /// Returns the next step for the remaining excess.
    pub(in crate::transaction) fn next(&self, left: u64) -> Eviction {
        match self.pace.get() {
            EvictionPace::Eager => Eviction { at_once: left > 0, at: None },
            EvictionPace::Slow => Eviction::later(),
            EvictionPace::Stopped(_) => Eviction::default(),
        }
    }
}
