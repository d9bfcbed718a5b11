//! Worker housekeeping between transactions: flushes the log, releases commit waiters, publishes
//! begin stamps and epochs, and frees garbage. Workers do all of it; the engine has no other
//! threads (MosaicDB §5).

use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::sweep;
use crate::io::{Completion, Device};
use crate::log::{FlushState, Lsn};
use crate::planted::{Bug, is_planted};
use crate::reclaim::Participation;
use crate::sched::{Driver, Turn, WorkerHandles};
use crate::sync::clock;
use crate::transaction::context::durability_level::Durability;
use crate::transaction::context::engine::Engine;
use crate::transaction::context::fault::PanicPoint;
use crate::transaction::context::worker::WorkerTransactions;
use crate::transaction::operations::guest_write::GuestWriters;

/// Delay before a worker that would sleep checks again for garbage that it cannot free yet.
const GARBAGE_DELAY: Duration = Duration::from_millis(20);

/// Maximum delay before a worker adopts what guests have left, and flushes what they have logged.
/// Each adoption costs a wake-up, and one more for the next write of a guest.
const ADOPTION_DELAY: Duration = Duration::from_millis(5);

/// One worker's housekeeping.
pub(crate) struct WorkerDriver {
    /// Declared before the worker, which may hold the engine and with it the domain.
    participation: Participation,
    worker: Rc<WorkerTransactions>,
    flush: FlushState,
    handles: WorkerHandles,
    guests: Arc<GuestWriters>,
    /// When this worker adopts what guests have left, if they have written.
    adopt_at: Option<Instant>,
    /// Set if an operation of this worker completed since its last turn: this worker then wakes the
    /// others.
    completed: bool,
    /// The `recent` stamp of this worker's last publication of begin stamps.
    published_at: Lsn,
    /// Set once this worker has no task left and has flushed everything.
    drained: bool,
}

impl WorkerDriver {
    /// Makes the calling thread run a worker's transactions.
    pub(crate) fn new(
        engine: Arc<Engine>,
        number: usize,
        handles: WorkerHandles,
        guests: Arc<GuestWriters>,
    ) -> Self {
        let participation = engine.domain.participate();
        let worker = WorkerTransactions::install(engine, number);
        let flush = FlushState::default();
        Self {
            worker,
            participation,
            flush,
            handles,
            guests,
            adopt_at: None,
            completed: false,
            published_at: Lsn::ZERO,
            drained: false,
        }
    }

    /// Flushes what is due, or everything if `wanted`. Wakes the workers whose transactions wait
    /// for what became durable. Returns whether to repeat the turn soon, and when at the latest.
    fn flush(&mut self, device: &mut dyn Device, wanted: bool) -> (bool, Option<Instant>) {
        let engine = self.worker.engine();
        if engine.durability != Durability::Volatile {
            let pause = engine.checkpoints.pause_of_writers(engine.log.tail());
            engine.log.pause_between_extensions(pause);
        }
        let turn = engine.log.turn(&mut self.flush, device, wanted);
        if turn.advanced {
            let failed = engine.log.poisoned().is_some();
            let mut commits = self.worker.commits.borrow_mut();
            commits.release(engine.log.durable(), failed);
            commits.release_space();
            if commits.is_empty() {
                engine.waiting.lower(self.worker.number());
            }
            drop(commits);
            engine.watch.advance(engine.log.durable());
            if failed {
                engine.watch.end();
            }
            if turn.extended {
                engine.expect_checkpoint();
            }
            // The worker whose completion advanced the durable LSN wakes the others. An advance
            // without a completion is announced by every worker that sees it.
            let tells = !is_planted(Bug::OtherWorkersNotWoken);
            if (std::mem::take(&mut self.completed) || failed || turn.news) && tells {
                for other in engine.waiting.others(self.worker.number()) {
                    self.handles.get(other).wake();
                }
            }
        }
        let is_lost = is_planted(Bug::PausedWorkerNotWoken);
        (turn.pending, turn.paused_until.filter(|_| !is_lost))
    }

    /// Publishes the begin stamps of this worker's transactions. Later transactions of this worker
    /// begin at or after `recent`; if that is [`Lsn::MAX`], they are announced first.
    fn publish_begins(&mut self, recent: Lsn) {
        let (engine, number) = (self.worker.engine(), self.worker.number());
        let begins = self.worker.begins();
        engine.readers.publish(number, begins.iter(), begins.oldest_extended(), recent);
        self.published_at = recent;
    }

    /// Adopts what guests have left, at intervals. Returns when this is due next.
    fn adopt_from_guests(&mut self) -> Option<Instant> {
        if !self.guests.have_written() {
            self.adopt_at = None;
            return None;
        }
        let now = clock::now();
        let at = *self.adopt_at.get_or_insert(now + ADOPTION_DELAY);
        if now < at {
            return Some(at);
        }
        self.guests.adopt(&self.worker);
        self.adopt_at = self.guests.have_written().then(|| now + ADOPTION_DELAY);
        self.adopt_at
    }

    /// Publishes what this worker still needs, and frees what no worker needs. Returns whether more
    /// is due immediately, or when. `idle` means that no task is ready.
    fn collect(&mut self, idle: bool) -> (bool, Option<Instant>) {
        let worker = self.worker.clone();
        let engine = worker.engine();
        let tail = engine.log.tail();
        let oldest = self.worker.oldest_begin().unwrap_or(tail);
        engine.horizon.publish(self.worker.number(), oldest);
        self.participation.turn();
        self.worker.turns.set(self.worker.turns.get().wrapping_add(1));
        if engine.readers.is_requested_since(self.published_at) {
            self.publish_begins(tail);
        }
        let ends_left = self.worker.end_dropped();
        let garbage_left = self.worker.collect_garbage();
        self.worker.free_dropped_tables();
        engine.planted_panic.panic_if_planted(PanicPoint::Turn);
        self.worker.prune(idle);
        self.worker.prune_changes(idle);
        let shrinking = self.worker.share_with_pages();
        let eviction = self.worker.evict(idle);
        if engine.durability != Durability::Volatile {
            engine.follow_dirty_pages();
            let checkpoints = &engine.checkpoints;
            if checkpoints.take_requested() || checkpoints.take_due(tail, engine.log.upkeep_step())
            {
                self.handles.get(self.worker.number()).give(engine.housekeeping.checkpoint_job());
            }
        }
        let give = |job: Option<_>| {
            if let Some(job) = job {
                self.handles.get(worker.number()).give(job);
            }
        };
        let (job, rollback_at) = worker.deferred_rollback_job();
        give(job);
        let (job, discard_at) = worker.discard_job();
        give(job);
        let (job, tidy_at) = worker.leaf_cleanup_job();
        give(job);
        give(worker.bulk_sweep_job());
        let mut sweep_at = engine.sweeps.due_at();
        if sweep_at.is_some() {
            if engine.checkpoints.stopping() {
                sweep_at = None;
            } else if sweep_at <= Some(clock::now()) {
                sweep_at = None;
                give(engine.sweeps.take().then(sweep::job));
            }
        }
        self.worker.release_grace_period_waiters();
        if self.worker.timers.earliest().is_some() {
            self.worker.timers.release(clock::now());
        }
        let waiting = self.worker.garbage_waits();
        self.worker.counters().versions_waiting.set(waiting as u64);
        let due = [eviction.at, shrinking.at, rollback_at, discard_at, tidy_at, sweep_at];
        let due = due.into_iter().flatten().min();
        let is_behind = self.participation.is_behind();
        (ends_left || is_behind || garbage_left || eviction.at_once || shrinking.at_once, due)
    }
}

impl Driver for WorkerDriver {
    fn turn(&mut self, device: &mut dyn Device, idle: bool) -> Turn {
        let waits = !self.worker.commits.borrow().is_empty();
        // Before the flush, which then includes what these guests have logged.
        let adopt_at = self.adopt_from_guests();
        let engine = self.worker.engine();
        // Marks of a bulk operation are removed once it is durable, and another operation may wait
        // for that.
        let wanted =
            waits || engine.durability == Durability::Relaxed || engine.bulk_sweeps.is_waiting();
        let (pending, paused_until) = self.flush(device, wanted);
        let (more, housekeeping_due) = self.collect(idle);
        let admitted = self.worker.reads.unblock(idle) | self.worker.unblock_large_writes(idle);
        let waits = !self.worker.commits.borrow().is_empty();
        if !idle {
            return Turn { busy: true, waits, deadline: None };
        }
        let waits_for_grace_period = !self.worker.grace_period_waiters.borrow().is_empty();
        let left = more
            || waits_for_grace_period
            || self.worker.garbage_waits() > 0
            || self.worker.engine().bulk_sweeps.is_waiting()
            || self.worker.engine().tables.has_dropped()
            || self.participation.turn();
        let garbage_due = left.then(|| clock::now() + GARBAGE_DELAY);
        let busy = pending || more || admitted;
        let memory_due = if busy { None } else { self.worker.return_free_memory() };
        let timer_due = self.worker.timers.earliest();
        let due = [adopt_at, garbage_due, housekeeping_due, memory_due, timer_due, paused_until];
        let deadline = due.into_iter().flatten().min();
        Turn { busy, waits, deadline }
    }

    fn complete(&mut self, completion: Completion) {
        if self.worker.engine().failure.has_begun() {
            // Ignored, so the durable LSN does not advance and nothing is acknowledged.
            return;
        }
        self.worker.engine().planted_panic.panic_if_planted(PanicPoint::Complete);
        self.worker.engine().log.complete(&mut self.flush, completion);
        self.completed = true;
    }

    fn before_sleep(&mut self) {
        self.worker.engine().planted_panic.panic_if_planted(PanicPoint::Sleep);
        self.participation.sleep();
        self.publish_begins(Lsn::MAX);
        if self.worker.active() == 0 {
            self.worker.engine().horizon.publish(self.worker.number(), Lsn::MAX);
        }
    }

    fn after_sleep(&mut self) {
        self.participation.wake();
        let (engine, number) = (self.worker.engine(), self.worker.number());
        let tail = engine.log.tail();
        engine.readers.wake(number, tail);
        self.published_at = tail;
        if self.worker.active() == 0 {
            engine.horizon.wake(number, tail);
        }
    }

    fn drain(&mut self, device: &mut dyn Device) -> bool {
        while self.worker.end_dropped() {}
        // Other workers' transactions may wait for log that this worker flushes.
        self.flush(device, true);
        let engine = self.worker.engine().clone();
        engine.planted_panic.panic_if_planted(PanicPoint::Drain);
        let flushed = engine.log.durable() >= engine.log.tail();
        if flushed && !std::mem::replace(&mut self.drained, true) && engine.drained() {
            // A last block states that everything before it was durable. So recovery does not
            // mistake later damage for a flush torn by a crash.
            engine.log.append_empty_block(self.worker.number());
            return false;
        }
        (flushed || engine.log.poisoned().is_some()) && self.flush.outstanding() == 0
    }
}

impl Drop for WorkerDriver {
    fn drop(&mut self) {
        self.publish_begins(Lsn::MAX);
        let engine = self.worker.engine();
        engine.horizon.publish(self.worker.number(), Lsn::MAX);
        engine.leave(self.worker.garbage.take(), self.worker.aborted.queue.take());
        self.worker.uninstall();
    }
}
