//! Messages from other threads to a worker: new jobs, wake-ups and the order to stop, with their
//! senders.
//!
//! A message to a worker that may sleep is first made visible, and then announced by a ring
//! (`doorbell.rs` explains why none is lost):
//!
//! | message | sender, which rings | where a turn of the worker finds it |
//! |---|---|---|
//! | a job, for any worker | [`Executor`](super::Executor), any thread | `jobs`, its own or those of a blocked worker (`takeover.rs`) |
//! | a job for this worker only | the worker | `own_jobs` |
//! | a source | [`Executor`](super::Executor), any thread | its queue of sources (`worker/sources.rs`) |
//! | a task may continue | its waker, any thread | `wakes` |
//! | the event of a remote wait has happened (`waiter.rs`) | the worker that caused it, possibly this one | `resumed` |
//! | the database is closing | `Executor::stop` | `stop` |
//! | the engine has failed | the worker that panicked | the failure shared by all workers |
//! | the durable LSN advanced, or the log failed | the worker that advanced it, at its next turn | the log |
//!
//! Resumptions by a worker's own tasks and housekeeping need no ring: they are in the worker's own
//! list of resumed waiters, which is emptied after every turn and before every sleep. A completion
//! of the worker's own device also ends its sleep. Some events are not announced, for example the
//! end of the last transaction that an old version waits for. The worker checks for these after a
//! bounded time ([`Turn::deadline`](super::Turn)).

use std::pin::Pin;
use std::sync::Arc;
use std::task::Wake;

use super::doorbell::Doorbell;
use super::panics::drop_contained;
use super::pulse::Pulse;
use super::waiter::Resumption;
use crate::io::Notify;
use crate::sync::atomic::AtomicBool;
use crate::sync::{OnceLock, SegQueue};

/// A task in transit: the closure runs on the worker and returns the task's future.
pub(crate) type Job = Box<dyn FnOnce() -> Pin<Box<dyn Future<Output = ()>>> + Send>;

/// The part of a worker that other threads access.
pub(super) struct Mailbox {
    pub(super) doorbell: Doorbell,
    pub(super) pulse: Pulse,
    /// Jobs sent to this worker, which another worker may take over.
    pub(super) jobs: SegQueue<Job>,
    /// Jobs for this worker only.
    pub(super) own_jobs: SegQueue<Job>,
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
            own_jobs: SegQueue::new(),
            wakes: SegQueue::new(),
            resumed: SegQueue::new(),
            stop: AtomicBool::new(false),
            notifier: OnceLock::new(),
        }
    }

    /// Sets the notifier that wakes the worker's device; called once, before the worker first
    /// sleeps.
    pub(super) fn set_notifier(&self, notifier: Arc<dyn Notify>) {
        assert!(self.notifier.set(notifier).is_ok(), "a worker has one device");
    }

    /// Drops resumptions of tasks that no longer exist.
    pub(super) fn drop_resumptions(&self) {
        while let Some(resumption) = self.resumed.pop() {
            drop_contained(resumption);
        }
    }

    /// Makes the worker check its queues.
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
    /// Makes the worker take a turn soon, and wakes it if it sleeps.
    pub(crate) fn wake(&self) {
        self.0.ring();
    }

    /// Sends the worker a job for itself. Call it only on the worker's thread, between its tasks:
    /// the worker has not stopped then, so the job will run.
    pub(crate) fn give(&self, job: Job) {
        self.0.own_jobs.push(job);
        self.0.ring();
    }
}

/// The workers' handles, by number.
#[derive(Clone)]
pub(crate) struct WorkerHandles(pub(super) Vec<Arc<Mailbox>>);

impl WorkerHandles {
    /// Returns the handle of one worker.
    pub(crate) fn get(&self, worker: usize) -> WorkerHandle {
        WorkerHandle(self.0[worker].clone())
    }
}

/// Resumes a slot from any thread; it may outlive the worker.
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
