//! A worker's turns: what it looks at between rounds, and its sleep.

use super::super::doorbell::{Doorbell, Next, Sleeper};
use super::super::policy::Width;
use super::super::runtime;
use super::super::source::Source;
use super::super::trace::Doing;
use super::{Exit, Run};
use crate::sync::clock;

impl<S: Source> Sleeper for Run<'_, '_, S> {
    type Exit = Exit;

    fn doorbell(&self) -> &Doorbell {
        &self.worker.mailbox.doorbell
    }

    /// Takes what came from other threads, and a turn of housekeeping. Jobs are looked at by the
    /// admission after it, where there is room for them; the order to stop by `exit`.
    fn look(&mut self, idle: bool) {
        self.collect_wakes();
        let worker = &mut *self.worker;
        let begin = worker.begin_slice();
        let now = clock::now();
        worker.stretch.end(now, &worker.counters);
        let finished = std::mem::take(&mut worker.finished_since_turn);
        (worker.commits_since_turn, worker.rounds_since_turn) = (0, 0);
        worker.steps_since_turn = 0;
        if worker.options.hot_width == Width::Auto {
            let failed = worker.local.failed_attempts.take();
            worker.contention.count(finished, failed, worker.width());
            if worker.contention.bound() < worker.tuner.width() {
                // What would be measured is another width.
                worker.tuner.discard_window();
            }
            worker.tuner.advance(finished, now);
        }
        worker.poll_device();
        worker.turn = worker.driver.turn(&mut *worker.device, idle);
        let taken_over = worker.watch.look(&worker.group, now);
        worker.counters.taken_over.add(taken_over);
        let counters = &worker.counters;
        counters.hot.set(self.queues.hot.len() as u64);
        counters.cold.set(self.queues.cold as u64);
        counters.foreign.set(self.queues.foreign as u64);
        counters.parked.set(self.queues.staged.len() as u64);
        counters.width.set(worker.width() as u64);
        worker.end_slice(begin, Doing::Turn);
        if let Some(tracer) = &mut worker.tracer {
            tracer.hand_on();
        }
    }

    fn next(&mut self) -> Next<Exit> {
        self.admit();
        if let Some(exit) = self.exit() {
            return Next::Exit(exit);
        }
        // What `exit` dropped may have let others go on, whom the next admission takes.
        let idle = self.queues.hot.is_empty()
            && self.queues.staged.is_empty()
            && self.worker.local.resumed.borrow().is_empty();
        if idle && !self.worker.turn.busy { Next::Sleep } else { Next::Run }
    }

    fn sleep(&mut self) {
        let worker = &mut *self.worker;
        let stopping = worker.drop_foreign_at.filter(|_| self.queues.open() > 0);
        let watching = worker.watch.begin_sleep(&worker.group);
        let deadline = [worker.turn.deadline, stopping, watching].into_iter().flatten().min();
        let timeout = deadline.map(|at| at.saturating_duration_since(clock::now()));
        worker.counters.sleeps.add(1);
        runtime::leave();
        worker.driver.before_sleep();
        let begin = worker.begin_slice();
        worker.wait_for_device(timeout);
        worker.end_slice(begin, Doing::Sleep);
        worker.stretch.begin(clock::now());
        worker.driver.after_sleep();
        worker.watch.end_sleep(&worker.group);
    }

    fn awake(&mut self) {
        self.worker.is_watched = false;
    }
}
