//! How a worker sleeps without missing a message: the signal that announces messages, the order in
//! which it is lowered, looked past and slept on.
//!
//! A message is anything another thread wants a worker to see: an entry of one of its queues, the
//! order to stop, or a word that many look at, as the durable LSN. Its sender first makes it
//! visible and then rings. Invariants:
//!
//! - The signal is lowered in one place only, the beginning of [`turn`], *before* the turn looks at
//!   everything that a ring may announce. So a sender that rings after that look, or unseen by it, leaves
//!   the signal raised. Between turns a worker may react to the signal but never lowers it.
//! - Every sleep is preceded by such a turn, with nothing but [`Doorbell::begin_sleep`] between its
//!   looks and the sleep.
//! - The sender raises the signal and then looks whether the worker sleeps; the worker says that it
//!   sleeps and then looks at the signal. A sequentially consistent fence stands between the two
//!   steps of each, so at least one of them sees the other: the worker stays awake, or is notified.

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
    /// After a message was made visible: whether the worker must be notified in the kernel.
    #[must_use = "a worker that sleeps is to be notified"]
    pub(super) fn ring(&self) -> bool {
        // AcqRel pairs with itself in `lower`: who lowers the signal sees the message. An
        // exchange, not a store, so that it continues what another sender's ring released.
        self.signal.swap(true, Ordering::AcqRel);
        // Pairs with the fence in `begin_sleep`.
        fence(Ordering::SeqCst);
        // Relaxed: ordered by the fence.
        self.sleeping.load(Ordering::Relaxed)
    }

    /// Whether a sender rang since the last turn began; cheap enough for every round.
    #[inline(always)]
    pub(super) fn is_rung(&self) -> bool {
        // Relaxed: a hint; `lower` acquires.
        self.signal.load(Ordering::Relaxed)
    }

    /// Before everything that a ring announces is looked at.
    fn lower(&self) {
        // AcqRel pairs with itself in `ring`.
        self.signal.swap(false, Ordering::AcqRel);
    }

    /// Whether the worker has said that it sleeps.
    pub(super) fn is_asleep(&self) -> bool {
        // Relaxed: where it matters, a fence orders it.
        self.sleeping.load(Ordering::Relaxed)
    }

    /// Whether the worker may sleep now; if not, a sender rang since its last turn began.
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
        // Relaxed: a sender that still sees the worker asleep notifies it once too often.
        self.sleeping.store(false, Ordering::Relaxed);
    }
}

/// What a worker does after a turn in which no task was ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IdleAction<E> {
    /// Goes on: there is something to do.
    Run,
    /// Sleeps, if nobody has rung.
    Sleep,
    /// Ends its rounds.
    Exit(E),
}

/// A worker, as far as its sleep goes.
pub(super) trait Sleeper {
    /// Why the worker's rounds end.
    type Exit;

    fn doorbell(&self) -> &Doorbell;

    /// Looks at everything that a ring may announce. `idle` says that no task is ready.
    fn look(&mut self, idle: bool);

    /// After `look` found no task ready: takes in what it brought, and says what to do.
    fn next(&mut self) -> IdleAction<Self::Exit>;

    /// Sleeps until it is notified, or wakes by itself.
    fn sleep(&mut self);

    /// It said that it sleeps, and no longer does.
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

/// Takes a turn while no task is ready, and sleeps if that changes nothing.
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
    // Others may have seen it asleep, also if it did not sleep after all.
    sleeper.awake();
    None
}

#[cfg(all(test, loom))]
mod model {
    use loom::sync::{Arc, Notify};
    use loom::thread;

    use super::*;
    use crate::sync::atomic::AtomicU64;

    /// What senders and the worker share: a queue that rounds look at too, while the signal is
    /// raised, and a word that only turns look at.
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
            // As the worker's admission, which sees more than the turn did, and lowers nothing.
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
            // Loom finds the deadlock if a message is missed and the worker sleeps for ever.
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
