//! How other threads reach a worker: new jobs, wake-ups, the order to stop; and who wakes whom.
//!
//! Every message to a worker that may sleep is made visible first and rung for then (`doorbell.rs`
//! says why none is missed):
//!
//! | message | sender, who rings | where a turn of the worker finds it |
//! |---|---|---|
//! | a job, for whatever worker | [`Executor`](super::Executor), any thread | `jobs`, its own or another's that does not come back (`watch.rs`) |
//! | a source, or a job of this worker alone | [`Executor`](super::Executor), any thread; the worker | `messages` |
//! | a task may go on | its waker, any thread | `wakes` |
//! | what a task waits for remotely has happened (`waiter.rs`) | the worker that brought it about, maybe its own | `resumed` |
//! | the database is closing | `Executor::stop` | `stop` |
//! | the engine has failed | the worker that panicked | the failure that all workers share |
//! | the durable LSN advanced, or the log failed | the worker that saw to it, at its next turn | the log |
//!
//! What a worker's own tasks and housekeeping resume by itself needs no ring: it is in the worker's own list of resumed waiters,
//! which is emptied after every turn and before every sleep. A completion of the worker's own device
//! ends its sleep by itself. What nobody announces, as the end of the last transaction that an old
//! version waits for, is looked for again after a bounded time ([`Turn::deadline`](super::Turn)).

use std::sync::Arc;
use std::task::Wake;

use super::doorbell::Doorbell;
use super::executor::{Job, Message};
use super::panics::drop_contained;
use super::takeover::Pulse;
use super::waiter::Resumption;
use crate::io::Notify;
use crate::sync::atomic::AtomicBool;
use crate::sync::{OnceLock, SegQueue};

/// A worker's end that other threads reach.
pub(super) struct Mailbox {
    pub(super) doorbell: Doorbell,
    pub(super) pulse: Pulse,
    /// Jobs that were sent to this worker, and which another may take over.
    pub(super) jobs: SegQueue<Job>,
    /// What is for this worker alone.
    pub(super) messages: SegQueue<Message>,
    pub(super) wakes: SegQueue<u32>,
    pub(super) resumed: SegQueue<Resumption>,
    pub(super) stop: AtomicBool,
    notifier: OnceLock<Arc<dyn Notify>>,
}

impl std::fmt::Debug for Mailbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mailbox").finish_non_exhaustive()
    }
}

impl Mailbox {
    pub(super) fn new() -> Self {
        Self {
            doorbell: Doorbell::default(),
            pulse: Pulse::default(),
            jobs: SegQueue::new(),
            messages: SegQueue::new(),
            wakes: SegQueue::new(),
            resumed: SegQueue::new(),
            stop: AtomicBool::new(false),
            notifier: OnceLock::new(),
        }
    }

    /// Tells how to wake the worker's device; once, before the worker first sleeps.
    pub(super) fn set_notifier(&self, notifier: Arc<dyn Notify>) {
        assert!(self.notifier.set(notifier).is_ok(), "a worker has one device");
    }

    /// Drops what is there for tasks that are gone.
    pub(super) fn drop_resumptions(&self) {
        while let Some(resumption) = self.resumed.pop() {
            drop_contained(resumption);
        }
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
pub(crate) struct WorkerHandle(pub(super) Arc<Mailbox>);

impl WorkerHandle {
    /// Makes the worker take a turn soon, from sleep if need be.
    pub(crate) fn wake(&self) {
        self.0.ring();
    }

    /// Gives the worker a job of its own. To be called on its own thread only, between its tasks: it has not
    /// stopped then, so the job will run.
    pub(crate) fn give(&self, job: Job) {
        self.0.messages.push(Message::Job(job));
        self.0.ring();
    }
}

/// Resumes a slot from any thread; outlives the worker without harm.
pub(super) struct SlotWaker {
    mailbox: Arc<Mailbox>,
    index: u32,
}

impl SlotWaker {
    pub(super) fn new(mailbox: Arc<Mailbox>, index: u32) -> Self {
        Self { mailbox, index }
    }
}

impl Wake for SlotWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.mailbox.wakes.push(self.index);
        self.mailbox.ring();
    }
}
