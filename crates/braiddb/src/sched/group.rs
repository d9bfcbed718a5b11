//! State shared by the workers of one executor: whether they accept messages, how they stop, how
//! they fail, and the last actions of the last worker.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::failure::Failure;
use super::local::WorkerLocal;
use super::mailbox::{Job, Mailbox};
use super::panics::{contain, message_of};
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::{Mutex, RwLock};

/// The executor has been stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ExecutorClosed;

/// Event that `OnEnd` reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WorkersEnd {
    /// A failure is recorded. Workers may still be blocked in user code, so waiters on other threads
    /// cannot wait for them to leave.
    Failed,
    /// The last worker has left.
    Left,
}

/// Called when a failure is recorded, and when the last worker has left.
pub(super) type OnEnd = Box<dyn FnMut(WorkersEnd) + Send>;

/// The workers of one executor.
///
/// Invariant: every sent message is taken by a worker, and run or dropped. Senders hold `open`
/// shared while they send, and a worker leaves only after it has seen its queues empty with `open`
/// false. Another worker may take over a job: it puts the job into its own queue between its tasks,
/// before it leaves.
pub(super) struct WorkerGroup {
    pub(super) mailboxes: Vec<Arc<Mailbox>>,
    pub(super) failure: Arc<Failure>,
    open: RwLock<bool>,
    /// Workers that have not left.
    present: AtomicU32,
    on_end: Mutex<Option<OnEnd>>,
}

impl WorkerGroup {
    pub(super) fn new(workers: usize, failure: Arc<Failure>, on_end: OnEnd) -> Self {
        Self {
            mailboxes: (0..workers).map(|_| Arc::new(Mailbox::new())).collect(),
            failure,
            open: RwLock::new(true),
            present: AtomicU32::new(workers as u32),
            on_end: Mutex::new(Some(on_end)),
        }
    }

    /// Sends to one worker: `push` puts a message into a queue of that worker.
    pub(super) fn send(&self, worker: usize, push: impl FnOnce()) -> Result<(), ExecutorClosed> {
        let open = self.open.read();
        if !*open {
            return Err(ExecutorClosed);
        }
        push();
        self.mailboxes[worker].ring();
        Ok(())
    }

    /// Sends a job to a worker, or to the first one after it that is not blocked.
    pub(super) fn send_job(&self, worker: usize, job: Job) -> Result<(), ExecutorClosed> {
        let open = self.open.read();
        if !*open {
            return Err(ExecutorClosed);
        }
        let mailbox = self.unblocked(worker);
        mailbox.jobs.push(job);
        mailbox.ring();
        Ok(())
    }

    /// Makes a worker take a turn soon.
    pub(super) fn ring(&self) {
        self.unblocked(0).ring();
    }

    /// Returns the mailbox of a worker, or of the first one after it that is not blocked.
    fn unblocked(&self, worker: usize) -> &Mailbox {
        let (earlier, from) = self.mailboxes.split_at(worker);
        let comes_back =
            |mailbox: &&Arc<Mailbox>| !mailbox.pulse.is_overdue() || mailbox.doorbell.is_asleep();
        let mailbox = from.iter().chain(earlier).find(comes_back);
        mailbox.unwrap_or(&self.mailboxes[worker])
    }

    /// Returns whether the workers were ordered to end, or have failed.
    pub(super) fn is_ending(&self) -> bool {
        // Acquire pairs with the Release in `stop`.
        self.mailboxes[0].stop.load(Ordering::Acquire) || self.failure.has_begun()
    }

    /// From here on, no message is accepted.
    pub(super) fn close(&self) {
        *self.open.write() = false;
    }

    /// Orders the workers to end when they have finished their tasks.
    pub(super) fn stop(&self) {
        self.close();
        for mailbox in &self.mailboxes {
            // Release pairs with the Acquire in the worker: it sees every job sent before.
            mailbox.stop.store(true, Ordering::Release);
            mailbox.ring();
        }
    }

    /// Records that the engine has panicked on this thread, and orders all workers to end
    /// immediately.
    pub(super) fn fail(&self, local: &WorkerLocal, panic: Box<dyn Any + Send>) {
        self.fail_with(local, &message_of(panic));
    }

    pub(super) fn fail_with(&self, local: &WorkerLocal, message: &str) {
        self.record_failure(message);
        // The engine's panic is recorded: later panics belong to users.
        local.engine_panicked.set(false);
        self.announce_failure();
        local.wake_callers_after_failure();
    }

    /// Does what `fail` does, for a panic of engine code on a thread that is no worker.
    pub(super) fn fail_on_caller(&self, message: &str) {
        self.record_failure(message);
        self.announce_failure();
    }

    fn record_failure(&self, message: &str) {
        let report = || tracing::error!("the engine failed and stops: {message}");
        // A subscriber is code of the program. Its panic must not keep the failure from others.
        if self.failure.record(message)
            && let Err(panic) = catch_unwind(AssertUnwindSafe(report))
        {
            drop(message_of(panic));
        }
    }

    fn announce_failure(&self) {
        self.close();
        for mailbox in &self.mailboxes {
            mailbox.ring();
        }
        if let Some(on_end) = &mut *self.on_end.lock() {
            on_end(WorkersEnd::Failed);
        }
    }

    /// Called when a worker has left, and holds no state of the engine any more.
    pub(super) fn leave(&self) {
        // AcqRel: the last worker sees the writes of all others.
        if self.present.fetch_sub(1, Ordering::AcqRel) != 1 {
            return;
        }
        // Resumptions that arrived after their worker had left: their wakers may keep the mailbox
        // that contains them alive.
        self.mailboxes.iter().for_each(|mailbox| mailbox.drop_resumptions());
        let on_end = self.on_end.lock().take();
        if let Some(mut on_end) = on_end
            && let Err(panic) = contain(move || on_end(WorkersEnd::Left))
        {
            // No worker is left to stop.
            self.failure.record(&panic.message);
        }
    }
}
