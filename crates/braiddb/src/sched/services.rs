//! Thread-local services of a worker for tasks that wait: storage transfers, its mailbox for
//! events of other threads, and its list of resumed waiters.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use super::mailbox::Mailbox;
use super::transfers::Transfers;
use super::waiter::Waiter;

/// The parts of a worker that own waiters.
#[derive(Debug)]
pub(super) struct WorkerServices {
    worker: u32,
    pub(super) mailbox: Arc<Mailbox>,
    /// Waiters resumed by this worker's own tasks or housekeeping.
    pub(super) resumed: RefCell<Vec<Waiter>>,
    /// The storage reads and writes of the tasks.
    pub(super) transfers: Transfers,
}

impl WorkerServices {
    pub(super) fn new(worker: usize, max_reads: usize, mailbox: Arc<Mailbox>) -> Self {
        let (worker, transfers) = (worker as u32, Transfers::new(max_reads));
        Self { worker, mailbox, resumed: RefCell::default(), transfers }
    }

    /// Keeps the memory of an emptied list of resumed waiters for later use.
    pub(super) fn release(&self, mut emptied: Vec<Waiter>) {
        let mut resumed = self.resumed.borrow_mut();
        std::mem::swap(&mut *resumed, &mut emptied);
        resumed.append(&mut emptied);
    }
}

thread_local! {
    static SERVICES: Cell<*const WorkerServices> = const { Cell::new(std::ptr::null()) };
}

/// Makes `services` those of this thread while the returned guard exists.
pub(super) fn enter(services: &WorkerServices) -> EnteredServices<'_> {
    let before = SERVICES.replace(services);
    assert!(before.is_null(), "a thread is one worker");
    EnteredServices(services)
}

/// Keeps a thread's services in place.
pub(super) struct EnteredServices<'w>(&'w WorkerServices);

impl Drop for EnteredServices<'_> {
    fn drop(&mut self) {
        assert!(std::ptr::eq(SERVICES.replace(std::ptr::null()), self.0));
    }
}

/// Calls `look` with the services of this thread's worker, if it is a worker.
#[inline(always)]
pub(super) fn services<R>(look: impl FnOnce(Option<&WorkerServices>) -> R) -> R {
    // SAFETY: the pointer is null or was set by `enter`, whose guard borrows the services and
    // clears the pointer when it is dropped, on this thread.
    look(unsafe { SERVICES.get().as_ref() })
}

/// Resumes a waiter on this thread's worker.
///
/// # Panics
/// On a thread other than that of the waiter's worker.
pub(crate) fn resume(waiter: Waiter) {
    services(|services| {
        let services = services.expect("a worker resumes its own tasks");
        assert_eq!(services.worker, waiter.slot.worker, "a worker resumes its own tasks");
        services.resumed.borrow_mut().push(waiter);
    });
}
