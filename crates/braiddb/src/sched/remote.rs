//! How other threads reach a worker: new jobs, wake-ups, and the handshake with its sleep.
//!
//! Invariant (no lost wake-up): a sender puts its message into a queue, raises `signal`, and then
//! looks at `sleeping`; a worker sets `sleeping` and then looks at `signal` a last time before it
//! sleeps. A sequentially consistent fence stands between the two steps of each, so at least one of
//! them sees the other.

use std::sync::Arc;
use std::task::Wake;

use crossbeam_utils::CachePadded;

use super::executor::{Job, Message};
use crate::io::Notify;
use crate::sync::atomic::{AtomicBool, Ordering, fence};
use crate::sync::{OnceLock, SegQueue};

/// The flags of the sleep handshake.
#[derive(Debug, Default)]
pub(super) struct Doorbell {
    signal: CachePadded<AtomicBool>,
    sleeping: AtomicBool,
}

impl Doorbell {
    /// After a message was queued: whether the worker must be woken from the kernel.
    pub(super) fn ring(&self) -> bool {
        // Release pairs with the exchange in `take`: who sees the signal sees the message.
        self.signal.store(true, Ordering::Release);
        fence(Ordering::SeqCst);
        // Relaxed: ordered by the fence.
        self.sleeping.load(Ordering::Relaxed)
    }

    /// Whether a message may have come; cheap enough for every round.
    #[inline(always)]
    pub(super) fn rung(&self) -> bool {
        // Relaxed: a look; `take` acquires.
        self.signal.load(Ordering::Relaxed)
    }

    /// Before the queues are emptied: lowers the signal, so that a later message raises it again.
    pub(super) fn take(&self) {
        // Acquire pairs with the Release in `ring`.
        self.signal.swap(false, Ordering::Acquire);
    }

    /// Before sleeping; `false` if a message came and the worker must not sleep.
    pub(super) fn lie_down(&self) -> bool {
        // Relaxed, both: ordered by the fence.
        self.sleeping.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if self.signal.load(Ordering::Relaxed) {
            self.get_up();
            return false;
        }
        true
    }

    pub(super) fn get_up(&self) {
        // Relaxed: a sender that still sees the worker asleep wakes it once too often.
        self.sleeping.store(false, Ordering::Relaxed);
    }
}

/// A worker's end that other threads reach.
pub(super) struct Remote {
    pub(super) doorbell: Doorbell,
    pub(super) messages: SegQueue<Message>,
    pub(super) wakes: SegQueue<u32>,
    pub(super) stop: AtomicBool,
    notifier: OnceLock<Arc<dyn Notify>>,
}

impl Remote {
    pub(super) fn new() -> Self {
        Self {
            doorbell: Doorbell::default(),
            messages: SegQueue::new(),
            wakes: SegQueue::new(),
            stop: AtomicBool::new(false),
            notifier: OnceLock::new(),
        }
    }

    /// Tells how to wake the worker's device; once, before the worker first sleeps.
    pub(super) fn set_notifier(&self, notifier: Arc<dyn Notify>) {
        assert!(self.notifier.set(notifier).is_ok(), "a worker has one device");
    }

    /// Makes the worker look at its queues.
    pub(super) fn ring(&self) {
        if self.doorbell.ring()
            && let Some(notifier) = self.notifier.get()
        {
            notifier.notify();
        }
    }
}

/// Wakes a worker from any thread.
#[derive(Clone)]
pub(crate) struct WorkerHandle(pub(super) Arc<Remote>);

impl WorkerHandle {
    /// Makes the worker take a turn soon, from sleep if need be.
    pub(crate) fn wake(&self) {
        self.0.ring();
    }

    /// Gives the worker a job. To be called on its own thread only, between its tasks: it has not
    /// stopped then, so the job will run.
    pub(crate) fn give(&self, job: Job) {
        self.0.messages.push(Message::Job(job));
        self.0.ring();
    }
}

/// Resumes a slot from any thread; outlives the worker without harm.
pub(super) struct SlotWaker {
    remote: Arc<Remote>,
    index: u32,
}

impl SlotWaker {
    pub(super) fn new(remote: Arc<Remote>, index: u32) -> Self {
        Self { remote, index }
    }
}

impl Wake for SlotWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.remote.wakes.push(self.index);
        self.remote.ring();
    }
}

#[cfg(all(test, loom))]
mod model {
    use loom::sync::Notify;
    use loom::thread;

    use super::*;
    use crate::sync::atomic::AtomicU64;

    /// One message, one worker: whatever the interleaving, the worker gets it before it would
    /// sleep for ever (loom finds the deadlock otherwise).
    #[test]
    fn model_of_the_doorbell_loses_no_message() {
        loom::model(|| {
            let doorbell = loom::sync::Arc::new(Doorbell::default());
            let queue = loom::sync::Arc::new(AtomicU64::new(0));
            let kernel = loom::sync::Arc::new(Notify::new());
            let sender = {
                let (doorbell, queue, kernel) = (doorbell.clone(), queue.clone(), kernel.clone());
                thread::spawn(move || {
                    queue.store(1, Ordering::Release);
                    if doorbell.ring() {
                        kernel.notify();
                    }
                })
            };
            loop {
                if doorbell.rung() {
                    doorbell.take();
                    if queue.load(Ordering::Acquire) == 1 {
                        break;
                    }
                }
                if doorbell.lie_down() {
                    kernel.wait();
                    doorbell.get_up();
                }
            }
            sender.join().unwrap();
        });
    }
}
