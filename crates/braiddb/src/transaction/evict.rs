//! Eviction: keeps tables within their memory budget. Each worker evicts versions that are not in
//! use at its turns, also when it is idle, and returns freed memory to the operating system.
//!
//! An idle worker in the eager state evicts continuously until memory is within the budget. It
//! passes over all entries twice, because the first pass only clears the access marks of recently
//! read entries. If that frees little, it continues slowly, with some entries at intervals, until a
//! pass frees much. If that frees nothing, it stops until more can be evicted. A later durable LSN
//! or a later horizon allows that; both result from some worker's turn, and that worker sees the
//! change before it sleeps.

use std::cell::Cell;
use std::time::{Duration, Instant};

use super::worker::WorkerTransactions;
use crate::log::Lsn;
use crate::memory;
use crate::reclaim;
use crate::rid::CATALOG;
use crate::sync::atomic::{Ordering, fence};
use crate::sync::clock;
use crate::version::VersionRef;

/// Maximum number of entries that one turn passes over.
const ENTRIES_PER_TURN: u64 = 16 << 10;
/// Number of entries between two checks for more urgent work.
const ENTRIES_PER_CHECK: u64 = 1024;
/// Bytes that a worker allocates or frees before it measures memory use again, with and without
/// ready tasks. A measurement reads the counters of every worker.
pub(super) const BYTES_PER_CHECK: u64 = 256 << 10;
const IDLE_BYTES_PER_CHECK: u64 = 4 << 10;
/// Delay before an idle worker in the slow state passes over more entries.
pub(super) const SLOW_DELAY: Duration = Duration::from_millis(20);
/// Divisor: freeing one eighth of the excess counts as progress.
const PROGRESS_DIVISOR: u64 = 8;
/// Bytes freed since the peak before memory is returned to the operating system. A sixteenth of the
/// peak if that is larger, because returning memory scans all of it.
const RETURN_THRESHOLD_BYTES: u64 = 8 << 20;
/// How long freed memory is kept for the next allocations.
const RETURN_DELAY: Duration = Duration::from_millis(100);

/// A worker's view of the memory in use.
#[derive(Debug, Default)]
pub(super) struct MemoryWatch {
    /// Bytes in use when this worker last measured.
    in_use: Cell<u64>,
    pace: Cell<EvictionPace>,
    /// The current double pass over all entries.
    passage: Cell<Option<ClockPass>>,
    /// This worker's net allocated bytes at the last measurement.
    allocated: Cell<i64>,
    /// Peak of the memory in use since memory was last returned.
    most: Cell<u64>,
    /// Time at which to return memory.
    give_back_at: Cell<Option<Instant>>,
}

/// The conditions that decide which versions may be evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct EvictionConditions {
    oldest: Lsn,
    durable: Lsn,
    excess: u64,
}

/// Eviction pace of an idle worker.
#[derive(Clone, Copy, Debug, Default)]
enum EvictionPace {
    #[default]
    Eager,
    Slow,
    /// Stopped, because nothing could be evicted under these conditions.
    Stopped(EvictionConditions),
}

/// A double pass of the clock's hand over all entries.
#[derive(Clone, Copy, Debug)]
struct ClockPass {
    /// The conditions at its start.
    circumstances: EvictionConditions,
    entries: u64,
    freed: u64,
}

/// The action of an idle worker on memory above the budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Eviction {
    /// Set to continue immediately.
    pub(super) at_once: bool,
    /// When to continue, if the worker sleeps.
    pub(super) at: Option<Instant>,
}

impl Eviction {
    fn later() -> Self {
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
    fn note(&self, in_use: u64, excess: u64) {
        self.in_use.set(in_use);
        self.most.set(self.most.get().max(in_use));
        if excess == 0 {
            self.pace.set(EvictionPace::Eager);
            self.passage.set(None);
        }
    }

    /// Returns whether nothing is evictable that was not already in an unsuccessful pass.
    fn stops(&self, now: EvictionConditions) -> bool {
        let EvictionPace::Stopped(before) = self.pace.get() else { return false };
        let stops = now.allow_no_more_than(before);
        // If the excess rises above its current value, the state has changed.
        self.pace.set(if stops { EvictionPace::Stopped(now) } else { EvictionPace::Slow });
        stops
    }

    /// Counts the passed entries, of `all`, and the bytes freed; `left` is the remaining excess.
    fn pass(&self, now: EvictionConditions, entries: u64, freed: u64, all: u64, left: u64) {
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
    fn next(&self, left: u64) -> Eviction {
        match self.pace.get() {
            EvictionPace::Eager => Eviction { at_once: left > 0, at: None },
            EvictionPace::Slow => Eviction::later(),
            EvictionPace::Stopped(_) => Eviction::default(),
        }
    }
}

impl WorkerTransactions {
    /// Takes over versions that were replaced by their addresses, and frees them once no operation
    /// holds them. Transactions hold their own copies of returned values.
    ///
    /// # Safety
    /// Nothing references them any more, and each is passed here once.
    pub(crate) unsafe fn retire_evicted(&self, versions: Vec<VersionRef>) {
        if versions.is_empty() {
            return;
        }
        self.counters().evicted.add(versions.len() as u64);
        // SAFETY: freed below at the earliest.
        let bytes = versions.iter().map(|version| unsafe { version.get() }.memory_bytes()).sum();
        let engine = self.engine();
        engine.note_evicted(bytes);
        let (memory, budget) = (engine.memory.clone(), engine.budget().cloned());
        reclaim::retire_with(move || {
            for version in versions {
                // SAFETY: nothing referenced it when it was retired, and the grace period has
                // ended.
                unsafe { version.free(&memory) };
            }
            budget.into_iter().for_each(|budget| budget.note_freed(bytes));
        });
    }

    /// Evicts versions if the database exceeds its memory budget. `idle` means that no task of the
    /// worker is ready.
    pub(super) fn evict(&self, idle: bool) -> Eviction {
        let (engine, watch) = (self.engine(), &self.memory);
        if idle {
            // Orders this worker's publications, such as the end of a transaction, before its check
            // whether memory is short. Pairs with the fence in `Horizon::act`, which stands between
            // the note below that memory is short and a read of the publications. So if another
            // worker gave up because of a transaction that this worker just ended, this worker
            // continues.
            fence(Ordering::SeqCst);
        }
        // Other workers check what they allocate themselves.
        let allocated = engine.memory.of_this_thread();
        let moved = allocated.abs_diff(watch.allocated.get());
        let much = moved >= if idle { IDLE_BYTES_PER_CHECK } else { BYTES_PER_CHECK };
        if !engine.memory_is_short() {
            watch.pace.set(EvictionPace::Eager);
            if !much {
                return Eviction::default();
            }
        }
        watch.allocated.set(allocated);
        let in_use = engine.memory.in_use();
        let mut excess = engine.excess_memory(in_use);
        watch.note(in_use, excess);
        engine.note_memory_is_short(excess > 0);
        if excess == 0 {
            return Eviction::default();
        }
        // Otherwise another worker prunes; a later turn tries again.
        let Some(acting) = engine.horizon.act(self.number(), engine.log.tail()) else {
            return Eviction::later();
        };
        let durable = engine.log.durable();
        let now = EvictionConditions { oldest: acting.oldest(), durable, excess };
        if watch.stops(now) {
            return Eviction::default();
        }
        // One round is enough: entries that received a second chance are checked in another turn.
        let (all, mut passed, mut freed) = (engine.entries(), 0, 0);
        while excess > 0 && passed < all.min(ENTRIES_PER_TURN) {
            let Some((table, count)) = engine.next_stride(ENTRIES_PER_CHECK) else { break };
            passed += count;
            // The catalog is small and always needed.
            if table.id == CATALOG {
                continue;
            }
            let mut evicted = Vec::new();
            let bytes = table.evict(count, &acting, durable, |version| evicted.push(version));
            // SAFETY: replaced just now, by this worker alone.
            unsafe { self.retire_evicted(evicted) };
            freed += bytes;
            excess = excess.saturating_sub(bytes);
        }
        // If only tables without entries came next, this counts as many entries.
        watch.pass(now, if passed == 0 { ENTRIES_PER_CHECK } else { passed }, freed, all, excess);
        watch.next(excess)
    }

    /// Returns memory to the operating system that was freed a while ago, such as that of large
    /// values. Returns when to call again, if memory was freed recently. Called when the worker is
    /// idle.
    pub(super) fn return_free_memory(&self) -> Option<Instant> {
        if cfg!(braid_simulation) {
            // A simulation must not depend on the speed of the machine.
            return None;
        }
        let watch = &self.memory;
        let (in_use, most) = (watch.in_use.get(), watch.most.get());
        if most - in_use < RETURN_THRESHOLD_BYTES.max(most / 16) {
            watch.give_back_at.set(None);
            return None;
        }
        let now = clock::now();
        let at = watch.give_back_at.get().unwrap_or(now + RETURN_DELAY);
        if now < at {
            watch.give_back_at.set(Some(at));
            return Some(at);
        }
        memory::return_free_memory();
        watch.most.set(in_use);
        watch.give_back_at.set(None);
        None
    }
}
