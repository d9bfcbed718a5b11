//! Pulse of a worker: signs that it takes turns, which other workers check (`takeover.rs`).

use crossbeam_utils::CachePadded;

use super::doorbell::Doorbell;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

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

    /// Called by another worker that found this one blocked.
    pub(super) fn set_overdue(&self) {
        // Relaxed: a hint to senders.
        self.is_overdue.store(true, Ordering::Relaxed);
    }

    pub(super) fn turns(&self) -> u64 {
        // Relaxed: compared with an earlier value.
        self.turns.load(Ordering::Relaxed)
    }

    /// Called after the doorbell has recorded that the worker sleeps. Returns whether it must wake
    /// within a window to check the next worker, whose turns it last saw as `seen`.
    pub(super) fn begin_sleep(&self, next: (&Doorbell, &Pulse), seen: u64) -> bool {
        // The doorbell's fence is between that record and this check; it pairs with the one in
        // `is_unwatched`.
        let watches = !next.0.is_asleep() || next.1.turns() != seen;
        // Relaxed: if another worker sees this late, it only sends an unnecessary notification.
        self.watches.store(watches, Ordering::Relaxed);
        watches
    }

    /// Called when the worker is awake, before its doorbell records that.
    pub(super) fn end_sleep(&self) {
        // Relaxed: ordered before the next sleep's check by the doorbell's fence.
        self.watches.store(false, Ordering::Relaxed);
    }
}

/// Returns whether a worker whose doorbell is recorded as awake must wake the previous one.
pub(super) fn is_unwatched(by: (&Doorbell, &Pulse)) -> bool {
    // Between the worker's record and these checks; pairs with the doorbell's fence in
    // `begin_sleep`.
    fence(Ordering::SeqCst);
    // Relaxed: ordered by the fence.
    by.0.is_asleep() && !by.1.watches.load(Ordering::Relaxed)
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
