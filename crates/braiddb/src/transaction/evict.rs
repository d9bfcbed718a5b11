//! Keeping the tables within their memory: each worker, at its turns, evicts what is not of use, also
//! when it has nothing else to do; and gives back to the operating system what has come free.
//!
//! A worker that is idle, and eager, goes on at once until nothing is over the budget. It passes all
//! entries twice, the first time for those that were read since the hand last came by; if that frees
//! little, it goes on slowly, some entries now and then, until those free much; and if it frees nothing,
//! it stops until more can be evicted: what lets it, a later durable LSN or a later horizon, comes about
//! in some worker's turn, and that worker sees it before it sleeps.

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

/// Entries looked at in one turn, at most.
const ENTRIES_PER_TURN: u64 = 16 << 10;
/// Entries looked at between two looks at what is due.
const STRIDE: u64 = 1024;
/// Bytes that a worker allocates, or frees, until it looks again how much memory is in use, which takes
/// a look at what every worker counts, while it is not short: with tasks that are ready, and without.
pub(super) const LOOK_BYTES: u64 = 256 << 10;
const IDLE_LOOK_BYTES: u64 = 4 << 10;
/// After what time an idle worker that is slow looks at some more entries.
pub(super) const SLOW_DELAY: Duration = Duration::from_millis(20);
/// What part of what is over the budget is much.
const MUCH: u64 = 8;
/// Bytes that have come free since more was in use, from which on memory is given back; a sixteenth of
/// what was in use if that is more, because it takes a look at all that is.
const GIVE_BACK_BYTES: u64 = 8 << 20;
/// How long memory that has come free is kept for the next allocations.
const GIVE_BACK_DELAY: Duration = Duration::from_millis(100);

/// What a worker has seen of the memory in use.
#[derive(Debug, Default)]
pub(super) struct MemoryWatch {
    /// How much that was when this worker last looked.
    in_use: Cell<u64>,
    pace: Cell<Pace>,
    /// The passage over all entries that is under way.
    passage: Cell<Option<Passage>>,
    /// What this worker had allocated, and not freed, when it last looked how much is in use.
    allocated: Cell<i64>,
    /// The most that was in use since memory was last given back.
    most: Cell<u64>,
    /// When memory is to be given back.
    give_back_at: Cell<Option<Instant>>,
}

/// What decides which versions may be evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Circumstances {
    oldest: Lsn,
    durable: Lsn,
    excess: u64,
}

/// How an idle worker goes on.
#[derive(Clone, Copy, Debug, Default)]
enum Pace {
    #[default]
    Eager,
    Slow,
    /// Not, while there are these circumstances, under which nothing was found.
    Stopped(Circumstances),
}

/// The hand's way over all entries, twice.
#[derive(Clone, Copy, Debug)]
struct Passage {
    /// When it began.
    circumstances: Circumstances,
    entries: u64,
    freed: u64,
}

/// What a worker is to do about memory that is over the budget, when it has nothing else to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Eviction {
    /// Whether to go on at once.
    pub(super) at_once: bool,
    /// When to go on, if it sleeps.
    pub(super) at: Option<Instant>,
}

impl Eviction {
    fn later() -> Self {
        Self { at_once: false, at: Some(clock::now() + SLOW_DELAY) }
    }
}

impl Circumstances {
    /// Whether all that may be evicted now might have been `before`.
    fn allow_no_more_than(self, before: Self) -> bool {
        (self.oldest, self.durable) == (before.oldest, before.durable)
            && self.excess <= before.excess
    }
}

impl MemoryWatch {
    /// Notes how much memory is in use, and how much of that is over the budget.
    fn note(&self, in_use: u64, excess: u64) {
        self.in_use.set(in_use);
        self.most.set(self.most.get().max(in_use));
        if excess == 0 {
            self.pace.set(Pace::Eager);
            self.passage.set(None);
        }
    }

    /// Whether nothing can be evicted that could not be when all was passed in vain.
    fn stops(&self, now: Circumstances) -> bool {
        let Pace::Stopped(before) = self.pace.get() else { return false };
        let stops = now.allow_no_more_than(before);
        // Should the excess rise from what it is now, there is something new.
        self.pace.set(if stops { Pace::Stopped(now) } else { Pace::Slow });
        stops
    }

    /// Counts entries that were passed, of `all`, and bytes that this freed; `left` are still over the
    /// budget.
    fn pass(&self, now: Circumstances, entries: u64, freed: u64, all: u64, left: u64) {
        let much = |freed: u64| freed > 0 && freed >= left / MUCH;
        let mut passage =
            self.passage.get().unwrap_or(Passage { circumstances: now, entries: 0, freed: 0 });
        passage.entries += entries;
        passage.freed += freed;
        if much(freed) {
            self.pace.set(Pace::Eager);
        }
        if passage.entries < 2 * all {
            self.passage.set(Some(passage));
            return;
        }
        self.passage.set(None);
        self.pace.set(match passage.freed {
            // If more could be evicted on the way than at its beginning, what was passed before is to be
            // passed again: nobody wakes this worker for it.
            0 if now.allow_no_more_than(passage.circumstances) => {
                Pace::Stopped(passage.circumstances)
            }
            freed if much(freed) => Pace::Eager,
            _ => Pace::Slow,
        });
    }

    /// What is to be done about what is still over the budget.
    fn next(&self, left: u64) -> Eviction {
        match self.pace.get() {
            Pace::Eager => Eviction { at_once: left > 0, at: None },
            Pace::Slow => Eviction::later(),
            Pace::Stopped(_) => Eviction::default(),
        }
    }
}

impl WorkerTransactions {
    /// Takes over versions that gave way to their addresses, to free them when no operation holds them
    /// any more: what transactions were handed of them is theirs.
    ///
    /// # Safety
    /// Nothing leads to them any more, and they are handed over once.
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
                // SAFETY: nothing led to it when it was retired, and the grace period is over.
                unsafe { version.free(&memory) };
            }
            budget.into_iter().for_each(|budget| budget.note_freed(bytes));
        });
    }

    /// Evicts versions if the database uses more memory than it may. `idle` if no task of the worker is
    /// ready.
    pub(super) fn evict(&self, idle: bool) -> Eviction {
        let (engine, watch) = (self.engine(), &self.memory);
        if idle {
            // Between what this worker published, as the end of a transaction, and its look whether memory
            // is short; pairs with the fence in `Horizon::act`, which stands between the note that it is,
            // below, and a look at what was published. So if another worker gave up because of what this
            // one ended just now, this one goes on.
            fence(Ordering::SeqCst);
        }
        // Others look after what they allocate.
        let allocated = engine.memory.of_this_thread();
        let moved = allocated.abs_diff(watch.allocated.get());
        let much = moved >= if idle { IDLE_LOOK_BYTES } else { LOOK_BYTES };
        if !engine.memory_is_short() {
            watch.pace.set(Pace::Eager);
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
        // Otherwise another worker prunes; there is another turn.
        let Some(acting) = engine.horizon.act(self.number(), engine.log.tail()) else {
            return Eviction::later();
        };
        let durable = engine.log.durable();
        let now = Circumstances { oldest: acting.oldest(), durable, excess };
        if watch.stops(now) {
            return Eviction::default();
        }
        // Once round is enough: what has its second chance now is looked at in another turn.
        let (all, mut passed, mut freed) = (engine.entries(), 0, 0);
        while excess > 0 && passed < all.min(ENTRIES_PER_TURN) {
            let Some((table, count)) = engine.next_stride(STRIDE) else { break };
            passed += count;
            // The catalog is small and always of use.
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
        // Where only tables without entries came next, many were passed.
        watch.pass(now, if passed == 0 { STRIDE } else { passed }, freed, all, excess);
        watch.next(excess)
    }

    /// Gives memory back to the operating system that came free a while ago, as that of large values
    /// which were read; when it is to be called again, if some came free just now. For when the worker
    /// has nothing else to do.
    pub(super) fn give_memory_back(&self) -> Option<Instant> {
        if cfg!(braid_simulation) {
            // What happens there must not depend on how fast the machine is.
            return None;
        }
        let watch = &self.memory;
        let (in_use, most) = (watch.in_use.get(), watch.most.get());
        if most - in_use < GIVE_BACK_BYTES.max(most / 16) {
            watch.give_back_at.set(None);
            return None;
        }
        let now = clock::now();
        let at = watch.give_back_at.get().unwrap_or(now + GIVE_BACK_DELAY);
        if now < at {
            watch.give_back_at.set(Some(at));
            return Some(at);
        }
        memory::give_back();
        watch.most.set(in_use);
        watch.give_back_at.set(None);
        None
    }
}
