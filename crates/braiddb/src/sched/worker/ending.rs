//! End of a worker's rounds: tasks that it still waits for, and tasks that it drops.

use std::time::Duration;

use super::super::source::TaskSource;
use super::sources::drop_sources;
use super::{RunExit, Worker, WorkerRun, dropping};
use crate::sync::atomic::Ordering;
use crate::sync::clock;

/// Maximum time for which tasks that wait for foreign futures delay the end of a worker.
const MAX_FOREIGN_WAIT: Duration = Duration::from_millis(200);

impl<S: TaskSource> WorkerRun<'_, '_, S> {
    /// Returns whether the next task of the source is the only one that can run: resumed tasks
    /// precede it.
    #[inline(always)]
    pub(super) fn has_only_source(&self) -> bool {
        self.queues.hot.len() == 1
            && self.worker.services.resumed.borrow().is_empty()
            && !self.worker.mailbox.doorbell.is_rung()
    }

    /// Returns whether the rounds have ended, and why. Checked after every turn.
    pub(super) fn exit(&mut self) -> Option<RunExit> {
        if self.worker.has_failed() {
            return Some(RunExit::Failed);
        }
        // Acquire pairs with the Release of `WorkerGroup::stop`: jobs spawned before are seen.
        let stopping = self.worker.mailbox.stop.load(Ordering::Acquire);
        if stopping {
            self.end_tasks();
        }
        let open = self.queues.open();
        match (self.typed, stopping) {
            (true, false) => {
                (self.exhausted && self.typed_open == 0).then_some(RunExit::SourceDone)
            }
            (true, true) if self.typed_open == 0 => {
                Some(if self.cut_short { RunExit::Stopped } else { RunExit::SourceDone })
            }
            (false, false) => (!self.worker.sources.is_empty()).then_some(RunExit::SourceCame),
            // Tasks of other workers may wait for the results of detached transfers.
            (false, true) if self.worker.services.transfers.has_detached() => None,
            (false, true) if open == 0 && self.worker.has_no_messages() => {
                let taken_over = self.worker.watch.take_all(&self.worker.group);
                self.worker.counters.taken_over.add(taken_over);
                (taken_over == 0).then_some(RunExit::Stopped)
            }
            _ => None,
        }
    }

    /// Ends the tasks of a worker that must stop. No task of a source starts any more. Tasks that
    /// wait only for something outside the engine are dropped after the grace period, which may let
    /// other tasks that wait for them continue.
    #[cold]
    fn end_tasks(&mut self) {
        let now = clock::now();
        let drop_at = *self.worker.drop_foreign_at.get_or_insert(now);
        drop_sources(&self.worker.sources);
        self.cut_short |= !std::mem::replace(&mut self.exhausted, true);
        // A resumed task no longer waits for the engine.
        self.collect_resumed();
        if now >= drop_at {
            self.worker.drop_foreign_at = Some(now + MAX_FOREIGN_WAIT);
            let local = self.worker.local;
            let dropped = dropping(&mut self.worker.tracer);
            self.typed_open -= self.queues.drop_foreign(local, dropped);
            self.collect_resumed();
        }
    }
}

impl Worker<'_> {
    /// Returns whether the engine has failed, on any worker.
    #[inline(never)]
    fn has_failed(&self) -> bool {
        let Worker { local, group, .. } = self;
        if local.engine_panicked.get() {
            // The panic did not reach a `contain` of the engine.
            group.fail_with(local, "a transaction's own code caught a panic of the engine's");
        }
        group.failure.message().is_some()
    }
}
