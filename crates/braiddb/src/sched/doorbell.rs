//! Sleep of a worker without lost messages: the signal that announces messages, and the order of
//! lowering the signal, looking for messages, and sleeping.
//!
//! A message is anything another thread wants a worker to see: an entry of one of its queues, the
//! order to stop, or a shared word such as the durable LSN. Its sender first makes it visible and
//! then rings. Invariants:
//!
//! - The signal is lowered in one place only, the beginning of [`turn`], *before* the turn looks at
//!   everything that a ring may announce. If a sender rings after that look, or its message is not
//!   seen, the signal stays raised. Between turns a worker may react to the signal but never lowers
//!   it.
//! - Every sleep is preceded by such a turn, with only [`Doorbell::begin_sleep`] between its looks
//!   and the sleep.
//! - The sender raises the signal and then checks whether the worker sleeps. The worker records
//!   that it sleeps and then checks the signal. A sequentially consistent fence separates the two
//!   steps of each, so at least one sees the other: the worker stays awake, or is notified.

use crossbeam_utils::CachePadded;

use crate::planted::{Bug, is_planted};
use crate::sync::atomic::{AtomicBool, Ordering, fence};

/// The flags of one worker's sleep.
#[derive(Debug, Default)]
pub(super) struct Doorbell {
    signal: CachePadded<AtomicBool>,
    sleeping: CachePadded<AtomicBool>,
}

impl Doorbell {
    /// Rings after a message was made visible. Returns whether the worker must be notified in the
    /// kernel.
    #[must_use = "a worker that sleeps is to be notified"]
    pub(super) fn ring(&self) -> bool {
        // AcqRel pairs with itself in `lower`: the thread that lowers the signal sees the message.
        // An exchange, not a store, so that it continues the release sequence of another sender's
        // ring.
        self.signal.swap(true, Ordering::AcqRel);
        // Pairs with the fence in `begin_sleep`.
        fence(Ordering::SeqCst);
        // Relaxed: ordered by the fence.
        self.sleeping.load(Ordering::Relaxed)
    }

    /// Returns whether a sender rang since the last turn began. Cheap enough for every round.
    #[inline(always)]
    pub(super) fn is_rung(&self) -> bool {
        // Relaxed: a hint; `lower` acquires.
        self.signal.load(Ordering::Relaxed)
    }

    /// Called before the worker looks at everything that a ring announces.
    fn lower(&self) {
        // AcqRel pairs with itself in `ring`.
        self.signal.swap(false, Ordering::AcqRel);
    }

    /// Returns whether the worker has recorded that it sleeps.
    pub(super) fn is_asleep(&self) -> bool {
        // Relaxed: ordered by a fence where necessary.
        self.sleeping.load(Ordering::Relaxed)
    }

    /// Returns whether the worker may sleep now. If not, a sender rang since its last turn began.
    pub(super) fn begin_sleep(&self) -> bool {
        // Relaxed, both: ordered by the fence, which pairs with the one in `ring`.
        self.sleeping.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if self.signal.load(Ordering::Relaxed) {
            self.end_sleep();
            return false;
        }
        true
    }

    pub(super) fn end_sleep(&self) {
        // Relaxed: a sender that still sees the worker asleep only sends an unnecessary
        // notification.
        self.sleeping.store(false, Ordering::Relaxed);
    }
}

/// The next action of a worker after a turn in which no task was ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IdleAction<E> {
    /// Continue: work is available.
    Run,
    /// Sleep, unless a sender has rung.
    Sleep,
    /// End the rounds.
    Exit(E),
}

/// The sleep-related functions of a worker.
pub(super) trait Sleeper {
    /// The reason why the worker's rounds end.
    type Exit;

    fn doorbell(&self) -> &Doorbell;

    /// Looks at everything that a ring may announce. `idle` is true if no task is ready.
    fn look(&mut self, idle: bool);

    /// Called after `look` found no task ready: takes the new work, and returns the next action.
    fn next(&mut self) -> IdleAction<Self::Exit>;

    /// Sleeps until a notification or a deadline of the worker.
    fn sleep(&mut self);

    /// Called when the worker no longer sleeps, after it recorded that it sleeps.
    fn awake(&mut self) {}
}

/// Takes a turn.
pub(super) fn turn<S: Sleeper>(sleeper: &mut S, idle: bool) {
    if is_planted(Bug::SignalLoweredAfterLook) {
        sleeper.look(idle);
        sleeper.doorbell().lower();
        return;
    }
    sleeper.doorbell().lower();
    sleeper.look(idle);
}

/// Takes a turn while no task is ready, and sleeps if the turn finds no work.
pub(super) fn idle<S: Sleeper>(sleeper: &mut S) -> Option<S::Exit> {
    turn(sleeper, true);
    match sleeper.next() {
        IdleAction::Run => return None,
        IdleAction::Exit(exit) => return Some(exit),
        IdleAction::Sleep => {}
    }
    if sleeper.doorbell().begin_sleep() {
        sleeper.sleep();
        sleeper.doorbell().end_sleep();
    }
    // Other threads may have seen it asleep, even if it did not sleep.
    sleeper.awake();
    None
}

#[cfg(all(test, loom))]
mod model {
    use loom::sync::{Arc, Notify};
    use loom::thread;

    use super::*;
    use crate::sync::atomic::AtomicU64;

    /// The state shared by senders and the worker: a queue that rounds also check while the signal
    /// is raised, and a word that only turns check.
    struct Shared {
        doorbell: Doorbell,
        queue: AtomicU64,
        durable: AtomicU64,
        kernel: Notify,
    }

    impl Shared {
        /// Sends one message, as `Mailbox` does.
        fn send(&self, message: &AtomicU64) {
            message.fetch_add(1, Ordering::Release);
            if self.doorbell.ring() {
                self.kernel.notify();
            }
        }
    }

    struct Worker {
        shared: Arc<Shared>,
        taken: u64,
        durable: u64,
    }

    impl Worker {
        fn collect(&mut self) {
            self.taken += self.shared.queue.swap(0, Ordering::Acquire);
        }

        fn is_done(&self) -> bool {
            self.taken == 1 && self.durable == 1
        }
    }

    impl Sleeper for Worker {
        type Exit = ();

        fn doorbell(&self) -> &Doorbell {
            &self.shared.doorbell
        }

        fn look(&mut self, _idle: bool) {
            self.collect();
            self.durable = self.shared.durable.load(Ordering::Acquire);
        }

        fn next(&mut self) -> IdleAction<()> {
            // Like the worker's admission, which sees messages after the turn, and never lowers the
            // signal.
            if self.shared.doorbell.is_rung() {
                self.collect();
            }
            if self.is_done() { IdleAction::Exit(()) } else { IdleAction::Sleep }
        }

        fn sleep(&mut self) {
            self.shared.kernel.wait();
        }
    }

    fn check(hot_turn: bool) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(move || {
            let shared = Arc::new(Shared {
                doorbell: Doorbell::default(),
                queue: AtomicU64::new(0),
                durable: AtomicU64::new(0),
                kernel: Notify::new(),
            });
            let senders = [true, false].map(|queued| {
                let shared = shared.clone();
                thread::spawn(move || {
                    shared.send(if queued { &shared.queue } else { &shared.durable });
                })
            });
            let mut worker = Worker { shared, taken: 0, durable: 0 };
            if hot_turn {
                turn(&mut worker, false);
            }
            // loom reports a deadlock if a message is lost and the worker sleeps forever.
            while idle(&mut worker).is_none() {}
            assert!(worker.is_done());
            senders.into_iter().for_each(|sender| sender.join().unwrap());
        });
    }

    #[test]
    fn model_no_message_is_missed_by_sleep() {
        check(false);
    }

    #[test]
    fn model_no_message_is_missed_after_a_turn_among_tasks() {
        check(true);
    }
}
