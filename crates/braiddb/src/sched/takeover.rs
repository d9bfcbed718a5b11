//! Takeover of jobs from blocked workers. If a closure blocks a worker's thread, another worker
//! takes over the jobs that were sent to it.
//!
//! Each worker watches the next one in a circle, and past blocked ones also the next but one: every
//! [`WINDOW`] it checks whether that worker took a turn. Tasks that have started stay, because they
//! are bound to their thread.
//!
//! Invariant: while a worker runs tasks, the previous worker is awake, or sleeps for a window at
//! most. Before a longer sleep, a worker records that and then checks that the next one sleeps. A
//! worker that wakes records that, and notifies the previous one if that sleeps for longer, before
//! it runs a task. (It does not if it runs none; otherwise the workers would wake each other
//! forever.) A sequentially consistent fence separates the two steps of each, so at least one sees
//! the other. A worker that took turns since the last check counts as awake. Otherwise a frequently
//! woken worker would notify the previous one each time.

use std::time::{Duration, Instant};

use super::group::WorkerGroup;
use super::pulse::is_unwatched;

/// Maximum time without a turn before other workers take over a worker's jobs. Normally, turns are
/// a few hundred microseconds apart.
pub(super) const WINDOW: Duration = Duration::from_millis(10);

/// A worker's knowledge of the workers it watches.
#[derive(Debug)]
pub(super) struct WorkerWatch {
    worker: usize,
    /// The turns of each worker, as last seen.
    seen: Vec<u64>,
    look_at: Instant,
}

impl WorkerWatch {
    pub(super) fn new(worker: usize, workers: usize, now: Instant) -> Self {
        Self { worker, seen: vec![0; workers], look_at: now + WINDOW }
    }

    /// Iterates over the others, from the next one on.
    fn others(&self) -> impl Iterator<Item = usize> + use<> {
        let (worker, workers) = (self.worker, self.seen.len());
        (1..workers).map(move |distance| (worker + distance) % workers)
    }

    /// Counts a turn, and takes over the jobs of blocked workers. Returns the number of jobs taken.
    pub(super) fn look(&mut self, group: &WorkerGroup, now: Instant) -> u64 {
        let mine = &group.mailboxes[self.worker];
        mine.pulse.count();
        if now < self.look_at {
            return 0;
        }
        self.look_at = now + WINDOW;
        let mut taken = 0;
        for other in self.others() {
            let mailbox = &group.mailboxes[other];
            let turns = mailbox.pulse.turns();
            let comes_back = std::mem::replace(&mut self.seen[other], turns) != turns;
            if comes_back || mailbox.doorbell.is_asleep() {
                break;
            }
            mailbox.pulse.set_overdue();
            while let Some(job) = mailbox.jobs.pop() {
                // This worker has not ended, and checks its jobs before it does.
                mine.jobs.push(job);
                taken += 1;
            }
        }
        taken
    }

    /// Takes over all jobs that other workers have not started, when the worker must stop. A
    /// blocked task may wait for one of these jobs. No job is sent any more at this time. Returns
    /// the number of jobs taken.
    pub(super) fn take_all(&self, group: &WorkerGroup) -> u64 {
        let mine = &group.mailboxes[self.worker];
        let mut taken = 0;
        for other in self.others() {
            while let Some(job) = group.mailboxes[other].jobs.pop() {
                mine.jobs.push(job);
                taken += 1;
            }
        }
        if taken > 0 {
            // It must not sleep before it has checked them.
            mine.ring();
        }
        taken
    }

    /// Called after the worker recorded that it sleeps. Returns when it must wake to check another
    /// worker, if necessary.
    pub(super) fn begin_sleep(&self, group: &WorkerGroup) -> Option<Instant> {
        let next = self.others().next()?;
        let (mine, other) = (&group.mailboxes[self.worker], &group.mailboxes[next]);
        let next = (&other.doorbell, &other.pulse);
        mine.pulse.begin_sleep(next, self.seen[self.others().next()?]).then_some(self.look_at)
    }

    /// Called before the worker records that it is awake.
    pub(super) fn end_sleep(&self, group: &WorkerGroup) {
        group.mailboxes[self.worker].pulse.end_sleep();
        group.mailboxes[self.worker].pulse.count();
    }

    /// Called after the worker recorded that it is awake, before it runs a task. Ensures that
    /// another worker watches it.
    pub(super) fn be_watched(&self, group: &WorkerGroup) {
        let Some(before) = self.others().last() else { return };
        let mailbox = &group.mailboxes[before];
        if is_unwatched((&mailbox.doorbell, &mailbox.pulse)) {
            mailbox.ring();
        }
    }
}
