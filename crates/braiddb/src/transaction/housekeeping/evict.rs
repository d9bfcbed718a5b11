//! Eviction: keeps tables within their memory budget. Each worker evicts versions that are not in
//! use at its turns, also when it is idle, and returns freed memory to the operating system.
//!
//! An idle worker in the eager state evicts continuously until memory is within the budget. It
//! passes over all entries twice, because the first pass only clears the access marks of recently
//! read entries. If that frees little, it continues slowly, with some entries at intervals, until a
//! pass frees much. If that frees nothing, it stops until more can be evicted. A later durable LSN
//! or a later horizon allows that; both result from some worker's turn, and that worker sees the
//! change before it sleeps.

use std::time::{Duration, Instant};

use crate::memory;
use crate::page::ShrinkResult;
use crate::reclaim;
use crate::rid::CATALOG;
use crate::sync::atomic::{Ordering, fence};
use crate::sync::clock;
use crate::transaction::context::worker::WorkerTransactions;
use crate::transaction::memory::memory_watch::{
    BYTES_PER_CHECK, Eviction, EvictionConditions, EvictionPace, IDLE_BYTES_PER_CHECK, SLOW_DELAY,
};
use crate::transaction::memory::page_share::{EvictionPause, MAX_SHRINK_FRAMES};
use crate::version::VersionRef;

/// Maximum number of entries that one turn passes over.
const ENTRIES_PER_TURN: u64 = 16 << 10;
/// Number of entries between two checks for more urgent work.
const ENTRIES_PER_CHECK: u64 = 1024;
/// Bytes freed since the peak before memory is returned to the operating system. A sixteenth of the
/// peak if that is larger, because returning memory scans all of it.
const RETURN_THRESHOLD_BYTES: u64 = 8 << 20;
/// How long freed memory is kept for the next allocations.
const RETURN_DELAY: Duration = Duration::from_millis(100);

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
    pub(in crate::transaction) fn evict(&self, idle: bool) -> Eviction {
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
        let much = moved >= if idle { IDLE_BYTES_PER_CHECK } else { BYTES_PER_CHECK }
            || watch.others_allocated.take();
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
            let Some(table) = table.in_memory().filter(|table| table.id != CATALOG) else {
                continue;
            };
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

/// Frames requested by all workers, and bytes allocated or freed by one worker, before it checks
/// again.
const FRAMES_PER_CHECK: u64 = 8;
const SHARE_BYTES_PER_CHECK: u64 = 64 << 10;

impl WorkerTransactions {
    /// Evicts pages, or lets them use more memory, according to their limit.
    pub(in crate::transaction) fn share_with_pages(&self) -> Eviction {
        let (engine, watch) = (self.engine(), &self.pages);
        let Some(pages) = engine.shared_pages() else { return Eviction::default() };
        let allocated = engine.memory.of_this_thread();
        let moved = allocated.abs_diff(watch.allocated.get());
        let changed = pages.wanted() >= FRAMES_PER_CHECK
            || moved >= SHARE_BYTES_PER_CHECK
            || watch.others_allocated.take()
            || engine.memory_is_short();
        if !changed && !watch.shrinking.get() {
            return Eviction::default();
        }
        watch.allocated.set(allocated);
        engine.share_with_pages(pages);
        watch.shrinking.set(pages.has_surplus());
        if !watch.shrinking.get() {
            return Eviction::default();
        }
        let ended = pages.ended();
        if let Some(rest) = watch.rest.get().filter(|rest| rest.ended == ended)
            && clock::now() < rest.until
        {
            return Eviction { at_once: false, at: Some(rest.until) };
        }
        watch.rest.set(None);
        // A database that is closed waits for transfers that have begun.
        match pages.shrink(MAX_SHRINK_FRAMES, !engine.checkpoints.stopping()) {
            ShrinkResult::Enough => {
                watch.shrinking.set(false);
                Eviction::default()
            }
            ShrinkResult::Some => Eviction { at_once: true, at: None },
            ShrinkResult::Nothing => {
                let until = clock::now() + SLOW_DELAY;
                // A simulation must not depend on time.
                watch.rest.set((!cfg!(braid_simulation)).then_some(EvictionPause { until, ended }));
                Eviction { at_once: false, at: Some(until) }
            }
        }
    }
}
