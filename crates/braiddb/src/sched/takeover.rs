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

use crossbeam_utils::CachePadded;

use super::doorbell::Doorbell;
use super::group::WorkerGroup;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

/// Maximum time without a turn before other workers take over a worker's jobs. Normally, turns are
/// a few hundred microseconds apart.
pub(super) const WINDOW: Duration = Duration::from_millis(10);

/// The state of a worker that others check.
#[derive(Debug, Default)]
pub(super) struct Pulse {
    /// Number of turns taken and sleeps ended; only the worker counts.
    turns: CachePadded<AtomicU64>,
    /// True if it checks the next worker within a window although it sleeps; only the worker
    /// writes.
    watches: AtomicBool,
    /// True if it was found blocked; the worker itself clears this when it takes a turn again.
    is_overdue: AtomicBool,
}

impl Pulse {
    /// Counts a turn or the end of a sleep.
    pub(super) fn count(&self) {
        // Relaxed, both: only the worker counts, and others only compare the values they saw.
        self.turns.store(self.turns.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        // Relaxed, both: a hint to senders.
        if self.is_overdue.load(Ordering::Relaxed) {
            self.is_overdue.store(false, Ordering::Relaxed);
        }
    }

    /// Returns whether jobs should be sent to another worker.
    pub(super) fn is_overdue(&self) -> bool {
        // Relaxed: a hint.
        self.is_overdue.load(Ordering::Relaxed)
    }

    fn turns(&self) -> u64 {
        // Relaxed: compared with an earlier value.
        self.turns.load(Ordering::Relaxed)
    }

    /// Called after the doorbell has recorded that the worker sleeps. Returns whether it must wake
    /// within a window to check the next worker, whose turns it last saw as `seen`.
    fn begin_sleep(&self, next: (&Doorbell, &Pulse), seen: u64) -> bool {
        // The doorbell's fence is between that record and this check; it pairs with the one in
        // `is_unwatched`.
        let watches = !next.0.is_asleep() || next.1.turns() != seen;
        // Relaxed: if another worker sees this late, it only sends an unnecessary notification.
        self.watches.store(watches, Ordering::Relaxed);
        watches
    }

    /// Called when the worker is awake, before its doorbell records that.
    fn end_sleep(&self) {
        // Relaxed: ordered before the next sleep's check by the doorbell's fence.
        self.watches.store(false, Ordering::Relaxed);
    }
}

/// Returns whether a worker whose doorbell is recorded as awake must wake the previous one.
fn is_unwatched(by: (&Doorbell, &Pulse)) -> bool {
    // Between the worker's record and these checks; pairs with the doorbell's fence in
    // `begin_sleep`.
    fence(Ordering::SeqCst);
    // Relaxed: ordered by the fence.
    by.0.is_asleep() && !by.1.watches.load(Ordering::Relaxed)
}

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
            // Relaxed: a hint to senders.
            mailbox.pulse.is_overdue.store(true, Ordering::Relaxed);
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

#[cfg(all(test, loom))]
mod model {
    use loom::sync::{Arc, Notify};
    use loom::thread;

    use super::*;

    #[derive(Default)]
    struct WatchedWorker {
        doorbell: Doorbell,
        pulse: Pulse,
    }

    impl WatchedWorker {
        fn both(&self) -> (&Doorbell, &Pulse) {
            (&self.doorbell, &self.pulse)
        }
    }

    /// One worker sleeps twice while the next one wakes: it sleeps for a window at most, or is
    /// notified.
    #[test]
    fn model_who_is_awake_is_watched() {
        loom::model(|| {
            let workers =
                Arc::new(([WatchedWorker::default(), WatchedWorker::default()], Notify::new()));
            let sleeper = workers.clone();
            assert!(workers.0[1].doorbell.begin_sleep());
            let before = thread::spawn(move || {
                let ([before, next], kernel) = &*sleeper;
                for _ in 0..2 {
                    if !before.doorbell.begin_sleep() {
                        return;
                    }
                    if !before.pulse.begin_sleep(next.both(), 0) {
                        // loom reports a deadlock if the notification is lost.
                        kernel.wait();
                        return;
                    }
                    before.pulse.end_sleep();
                    before.doorbell.end_sleep();
                }
            });
            {
                let ([before, next], kernel) = &*workers;
                next.doorbell.end_sleep();
                if is_unwatched(before.both()) && before.doorbell.ring() {
                    kernel.notify();
                }
            }
            before.join().unwrap();
        });
    }
}
