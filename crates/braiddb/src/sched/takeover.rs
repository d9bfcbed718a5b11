//! Workers look after one another: jobs that were sent to a worker which does not come back from a task, since a closure
//! blocks its thread, are taken over by another worker.
//!
//! Each worker looks after the next one, in a circle, and past those that do not come back after the next but one: every
//! [`WINDOW`] it looks whether that one took a turn. Tasks that have begun stay: they are bound to their thread.
//!
//! Invariant: while a worker runs tasks, the one before it is awake, or sleeps for a window at most. Who goes to
//! sleep for longer says so and then sees that the next one sleeps; who no longer sleeps says so, and notifies the one before it
//! if that sleeps for longer, before it runs a task. (Not if it runs none: else each would wake another for ever.) A sequentially consistent fence stands between the two steps of each, so at least one sees the other.
//! A worker that took turns since it was last looked at counts as awake: else one that is woken often would
//! notify the other each time.

use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;

use super::doorbell::Doorbell;
use super::group::WorkerGroup;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

/// How long a worker may do without a turn until others take over what was sent to it. Usual are a few hundred
/// microseconds.
pub(super) const WINDOW: Duration = Duration::from_millis(10);

/// What others see of a worker.
#[derive(Debug, Default)]
pub(super) struct Pulse {
    /// Turns taken, and sleeps that ended; only the worker counts.
    turns: CachePadded<AtomicU64>,
    /// Whether it looks at the next one within a window though it sleeps; only the worker writes.
    watches: AtomicBool,
    /// It was found not to come back; it says itself when it has.
    is_overdue: AtomicBool,
}

impl Pulse {
    /// The worker takes a turn, or has slept.
    pub(super) fn count(&self) {
        // Relaxed, both: only the worker counts, and others compare only what they saw.
        self.turns.store(self.turns.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        // Relaxed, both: a hint to senders.
        if self.is_overdue.load(Ordering::Relaxed) {
            self.is_overdue.store(false, Ordering::Relaxed);
        }
    }

    /// Whether jobs are better sent to another worker.
    pub(super) fn is_overdue(&self) -> bool {
        // Relaxed: a hint.
        self.is_overdue.load(Ordering::Relaxed)
    }

    fn turns(&self) -> u64 {
        // Relaxed: compared with what was seen before.
        self.turns.load(Ordering::Relaxed)
    }

    /// The worker has told by its doorbell that it sleeps: whether it is to wake within a window, to look after the
    /// next one, of which it saw so many turns last.
    fn begin_sleep(&self, next: (&Doorbell, &Pulse), seen: u64) -> bool {
        // The doorbell's fence is between what it told and this look; it pairs with the one in `is_unwatched`.
        let watches = !next.0.is_asleep() || next.1.turns() != seen;
        // Relaxed: if another sees this late, it notifies the worker once too often.
        self.watches.store(watches, Ordering::Relaxed);
        watches
    }

    /// The worker is awake; its doorbell does not say so yet.
    fn end_sleep(&self) {
        // Relaxed: ordered before the next sleep's look by the doorbell's fence.
        self.watches.store(false, Ordering::Relaxed);
    }
}

/// Whether a worker whose doorbell says that it is awake has to wake the one before it.
fn is_unwatched(by: (&Doorbell, &Pulse)) -> bool {
    // Between what the worker told and these looks; pairs with the doorbell's in `begin_sleep`.
    fence(Ordering::SeqCst);
    // Relaxed: ordered by the fence.
    by.0.is_asleep() && !by.1.watches.load(Ordering::Relaxed)
}

/// What a worker knows of those it looks after.
#[derive(Debug)]
pub(super) struct WorkerWatch {
    worker: usize,
    /// Turns of each worker, as last seen.
    seen: Vec<u64>,
    look_at: Instant,
}

impl WorkerWatch {
    pub(super) fn new(worker: usize, workers: usize, now: Instant) -> Self {
        Self { worker, seen: vec![0; workers], look_at: now + WINDOW }
    }

    /// The others, from the next one on.
    fn others(&self) -> impl Iterator<Item = usize> + use<> {
        let (worker, workers) = (self.worker, self.seen.len());
        (1..workers).map(move |distance| (worker + distance) % workers)
    }

    /// In a turn: counts it, and takes over what was sent to workers that do not come back. How many jobs it took.
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
                // This worker has not ended, and looks at its jobs before it does.
                mine.jobs.push(job);
                taken += 1;
            }
        }
        taken
    }

    /// When the worker is to stop: takes over what other workers have not begun, for one of them may wait for it, and not come back
    /// before. Nothing is sent any more then. How many jobs it took.
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
            // It is not to sleep before it has looked at them.
            mine.ring();
        }
        taken
    }

    /// The worker has told that it sleeps: when it is to wake to look after another, if it is to.
    pub(super) fn begin_sleep(&self, group: &WorkerGroup) -> Option<Instant> {
        let next = self.others().next()?;
        let (mine, other) = (&group.mailboxes[self.worker], &group.mailboxes[next]);
        let next = (&other.doorbell, &other.pulse);
        mine.pulse.begin_sleep(next, self.seen[self.others().next()?]).then_some(self.look_at)
    }

    /// The worker is about to tell that it is awake.
    pub(super) fn end_sleep(&self, group: &WorkerGroup) {
        group.mailboxes[self.worker].pulse.end_sleep();
        group.mailboxes[self.worker].pulse.count();
    }

    /// The worker has told that it is awake, and is about to run a task: sees to it that it is looked after.
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

    /// One worker sleeps twice while the next one wakes: it sleeps for a window at most, or is notified.
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
                        // Loom finds the deadlock if nobody notifies it.
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
