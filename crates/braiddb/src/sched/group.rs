//! What the workers of one executor share, from the first to the last of them: whether they take
//! messages, how they stop, how they fail, and what the last one to leave does.

use std::any::Any;
use std::sync::Arc;

use super::executor::{ExecutorClosed, Job, Message};
use super::local::WorkerLocal;
use super::mailbox::Mailbox;
use super::panics::{Failure, contain, message_of};
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::{Mutex, RwLock};

/// What is done when the last worker has left.
pub(super) type OnEnd = Box<dyn FnOnce() + Send>;

/// The workers of one executor.
///
/// Invariant: a message that was sent is taken by a worker, run or dropped: senders hold `open`
/// shared while they send, and a worker leaves only after it has seen its queues empty with `open` false. A job may be
/// taken over by another worker, which puts it into its own queue between its tasks, when it has not left.
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

    pub(super) fn send(&self, worker: usize, message: Message) -> Result<(), ExecutorClosed> {
        let open = self.open.read();
        if !*open {
            return Err(ExecutorClosed);
        }
        self.mailboxes[worker].messages.push(message);
        self.mailboxes[worker].ring();
        Ok(())
    }

    /// Sends a job to a worker, or to the first one after it that comes back from its tasks.
    pub(super) fn send_job(&self, worker: usize, job: Job) -> Result<(), ExecutorClosed> {
        let open = self.open.read();
        if !*open {
            return Err(ExecutorClosed);
        }
        let (earlier, from) = self.mailboxes.split_at(worker);
        let comes_back =
            |mailbox: &&Arc<Mailbox>| !mailbox.pulse.is_overdue() || mailbox.doorbell.is_asleep();
        let mailbox = from.iter().chain(earlier).find(comes_back);
        let mailbox = mailbox.unwrap_or(&self.mailboxes[worker]);
        mailbox.jobs.push(job);
        mailbox.ring();
        Ok(())
    }

    /// From here on no message is taken.
    pub(super) fn close(&self) {
        *self.open.write() = false;
    }

    /// Tells the workers to end when they have finished what they have.
    pub(super) fn stop(&self) {
        self.close();
        for mailbox in &self.mailboxes {
            // Release pairs with the Acquire in the worker: it sees every job sent before.
            mailbox.stop.store(true, Ordering::Release);
            mailbox.ring();
        }
    }

    /// The engine has panicked on this thread: records it, and tells all workers to end at once.
    pub(super) fn fail(&self, local: &WorkerLocal, panic: Box<dyn Any + Send>) {
        self.fail_with(local, &message_of(panic));
    }

    pub(super) fn fail_with(&self, local: &WorkerLocal, message: &str) {
        if self.failure.record(message) {
            tracing::error!("the engine has failed, and stops: {message}");
        }
        // Its panic is recorded: what panics from here on is a user's.
        local.engine_panicked.set(false);
        self.close();
        for mailbox in &self.mailboxes {
            mailbox.ring();
        }
        self.failure.run_callback();
        local.wake_callers_after_failure();
    }

    /// A worker has left, and holds nothing of the engine's any more.
    pub(super) fn leave(&self) {
        // AcqRel: the last one sees what all others did.
        if self.present.fetch_sub(1, Ordering::AcqRel) != 1 {
            return;
        }
        // Those that came after their worker had left: their wakers may hold the mailbox they lie in.
        self.mailboxes.iter().for_each(|mailbox| mailbox.drop_resumptions());
        let on_end = self.on_end.lock().take();
        if let Some(on_end) = on_end
            && let Err(panic) = contain(on_end)
        {
            // No worker is left to be stopped.
            self.failure.record(&panic.message);
        }
    }
}
