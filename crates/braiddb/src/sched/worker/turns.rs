//! A worker's turns: its checks between rounds, and its sleep.

use std::time::Duration;

use super::super::doorbell::{Doorbell, IdleAction, Sleeper};
use super::super::driver::Driver;
use super::super::policy::Width;
use super::super::runtime;
use super::super::services::WorkerServices;
use super::super::source::TaskSource;
use super::super::trace::SliceActivity;
use super::super::transfers::Transfers;
use super::{RunExit, Worker, WorkerRun};
use crate::io::Completion;
use crate::sync::clock;

impl<S: TaskSource> Sleeper for WorkerRun<'_, '_, S> {
    type Exit = RunExit;

    fn doorbell(&self) -> &Doorbell {
        &self.worker.mailbox.doorbell
    }

    /// Receives messages from other threads, and takes a turn of housekeeping. The following
    /// admission checks for jobs if it has room for them; `exit` checks for sources and the
    /// order to stop.
    fn look(&mut self, idle: bool) {
        self.collect_wakes();
        self.worker.housekeep(idle);
        let counters = &self.worker.counters;
        counters.hot.set(self.queues.hot.len() as u64);
        counters.cold.set(self.queues.cold as u64);
        counters.foreign.set(self.queues.foreign as u64);
        counters.parked.set(self.queues.staged.len() as u64);
    }

    fn next(&mut self) -> IdleAction<RunExit> {
        self.admit();
        if let Some(exit) = self.exit() {
            return IdleAction::Exit(exit);
        }
        // Tasks dropped by `exit` may have let others continue, which the next admission takes.
        let idle = self.queues.hot.is_empty()
            && self.queues.staged.is_empty()
            && self.worker.services.resumed.borrow().is_empty();
        if idle && !self.worker.turn.busy { IdleAction::Sleep } else { IdleAction::Run }
    }

    fn sleep(&mut self) {
        self.worker.sleep(self.queues.open() > 0);
    }

    fn awake(&mut self) {
        self.worker.is_watched = false;
    }
}

impl Worker<'_> {
    /// Starts the transfers that are due and handles completions, until none can be started. A
    /// completion may belong to a transfer whose task is gone; then only this worker notices that
    /// the next transfer can start.
    pub(super) fn poll_device(&mut self) {
        let Self { services, device, driver, .. } = self;
        loop {
            services.transfers.issue(&mut **device);
            device.poll(&mut |completion| deliver(services, &mut **driver, completion));
            if services.transfers.due() == 0 {
                break;
            }
        }
    }

    pub(super) fn wait_for_device(&mut self, timeout: Option<Duration>) {
        let Self { services, device, driver, .. } = self;
        device.wait(timeout, &mut |completion| deliver(services, &mut **driver, completion));
    }

    /// Takes a turn of housekeeping, and updates everything that monitors the worker.
    #[inline(never)]
    fn housekeep(&mut self, idle: bool) {
        let begin = self.begin_slice();
        let now = clock::now();
        self.stretch.end(now, &self.counters);
        let finished = std::mem::take(&mut self.finished_since_turn);
        (self.commits_since_turn, self.rounds_since_turn) = (0, 0);
        self.steps_since_turn = 0;
        if self.options.hot_width == Width::Auto {
            let failed = self.local.failed_attempts.take();
            self.contention.count(finished, failed, self.width);
            if self.contention.bound() < self.tuner.width() {
                // The measurement would belong to another width.
                self.tuner.discard_window();
            }
            self.tuner.advance(finished, now);
            self.width = self.chosen_width();
        }
        self.poll_device();
        self.turn = self.driver.turn(&mut *self.device, idle);
        let taken_over = self.watch.look(&self.group, now);
        self.counters.taken_over.add(taken_over);
        self.counters.width.set(self.width as u64);
        self.end_slice(begin, SliceActivity::Turn);
        if let Some(tracer) = &mut self.tracer {
            tracer.hand_on();
        }
    }

    /// Sleeps until a notification or a deadline; `has_tasks` states that tasks have not ended.
    #[inline(never)]
    fn sleep(&mut self, has_tasks: bool) {
        let stopping = self.drop_foreign_at.filter(|_| has_tasks);
        let watching = self.watch.begin_sleep(&self.group);
        let deadline = [self.turn.deadline, stopping, watching].into_iter().flatten().min();
        let timeout = deadline.map(|at| at.saturating_duration_since(clock::now()));
        self.counters.sleeps.add(1);
        runtime::leave();
        self.driver.before_sleep();
        let begin = self.begin_slice();
        self.wait_for_device(timeout);
        self.end_slice(begin, SliceActivity::Sleep);
        self.stretch.begin(clock::now());
        self.driver.after_sleep();
        self.watch.end_sleep(&self.group);
    }
}

/// Passes a completion to its owner: a task's transfer, or housekeeping.
fn deliver(services: &WorkerServices, driver: &mut dyn Driver, completion: Completion) {
    if !Transfers::owns(&completion) {
        driver.complete(completion);
    } else if let Some(waiter) = services.transfers.complete(completion) {
        services.resumed.borrow_mut().push(waiter);
    }
}
