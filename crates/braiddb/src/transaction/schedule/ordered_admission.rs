//! Admission in order of arrival: bounds the bytes that a worker's transactions use at a time for one
//! purpose. At least one request is always admitted.
//!
//! A request counts from its admission until its permit is dropped. Released bytes admit the next
//! waiters. A request may be dropped before its admission, after it, or while its permit is in use.
//!
//! A transaction may hold a permit without progress, for example while it polls another future until
//! that is ready. So that such permits cannot block the other requests forever, one more is admitted
//! whenever no holder of a permit makes progress.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use crate::memory::{MemoryCounters, MemoryKind};
use crate::sched::{self, WaitCause, Waiter};

/// Number of turns without progress before one more request is admitted although tasks are ready.
const MAX_STALLED_TURNS: u32 = 64;

/// The requests of one worker for one purpose.
///
/// Invariants: `admitted` is the sum of all permits and of all admitted entries in line. Admitted
/// entries come first in line, so requests are admitted in order. The first of the others has no room,
/// or was admitted since.
#[derive(Debug)]
pub(in crate::transaction) struct OrderedAdmission {
    most: u64,
    admitted: Cell<u64>,
    line: RefCell<VecDeque<WaitingRequest>>,
    next_number: Cell<u64>,
    /// Turns since the last progress while a request waited.
    stalled: Cell<u32>,
    /// Counts admitted bytes as memory, if present.
    memory: Option<Arc<MemoryCounters>>,
}

/// A request that waits for admission, or was admitted and has not resumed yet.
#[derive(Debug)]
struct WaitingRequest {
    number: u64,
    bytes: u64,
    /// The task to resume; `None` once resumed.
    waiter: Option<Waiter>,
    admitted: bool,
}

/// An admitted request; its bytes count until this is dropped.
#[derive(Debug)]
pub(in crate::transaction) struct AdmissionPermit {
    admission: Rc<OrderedAdmission>,
    bytes: u64,
}

/// An entry in the line of waiting requests, removed when dropped.
struct QueuedRequest<'r> {
    admission: &'r Rc<OrderedAdmission>,
    number: u64,
}

impl OrderedAdmission {
    /// Creates admission control for `most` bytes at a time, or one request. `memory` counts the
    /// admitted bytes.
    pub(in crate::transaction) fn new(most: u64, memory: Arc<MemoryCounters>) -> Rc<Self> {
        Self::of(most, Some(memory))
    }

    /// Creates admission control for one request at a time.
    pub(super) fn one_at_a_time() -> Rc<Self> {
        Self::of(0, None)
    }

    fn of(most: u64, memory: Option<Arc<MemoryCounters>>) -> Rc<Self> {
        let [admitted, next_number] = [0, 0].map(Cell::new);
        let (line, stalled) = (RefCell::default(), Cell::new(0));
        Rc::new(Self { most, admitted, line, next_number, stalled, memory })
    }

    /// Waits until `bytes`, at least one, are admitted.
    pub(in crate::transaction) async fn admit(self: &Rc<Self>, bytes: u64) -> AdmissionPermit {
        if self.line.borrow().iter().all(|one| one.admitted) && self.has_room(bytes) {
            self.count(bytes);
            return AdmissionPermit { admission: self.clone(), bytes };
        }
        let in_line = QueuedRequest::join(self, bytes);
        loop {
            if let Some(permit) = in_line.permit(sched::current_waiter().await) {
                return permit;
            }
            sched::park(WaitCause::Storage).await;
        }
    }

    fn has_room(&self, bytes: u64) -> bool {
        let admitted = self.admitted.get();
        admitted == 0 || admitted + bytes <= self.most
    }

    fn count(&self, bytes: u64) {
        self.admitted.set(self.admitted.get() + bytes);
        self.memory.iter().for_each(|memory| memory.count(MemoryKind::Reading, bytes as i64));
    }

    /// Subtracts the bytes of a permit, and admits waiters that now fit.
    fn release(&self, bytes: u64) {
        self.admitted.set(self.admitted.get() - bytes);
        self.memory.iter().for_each(|memory| memory.count(MemoryKind::Reading, -(bytes as i64)));
        self.admit_waiting();
    }

    fn admit_waiting(&self) {
        while self.admit_first(|first| self.has_room(first.bytes)) {}
    }

    /// Admits the first waiting request, if `may`; returns whether it did.
    fn admit_first(&self, may: impl FnOnce(&WaitingRequest) -> bool) -> bool {
        let mut line = self.line.borrow_mut();
        let first = line.iter_mut().find(|one| !one.admitted);
        let Some(first) = first.filter(|first| may(first)) else { return false };
        first.admitted = true;
        self.count(first.bytes);
        first.waiter.take().into_iter().for_each(sched::resume);
        true
    }

    /// Called at every turn of the worker; `idle` means that no task is ready. Admits one more
    /// request if the admitted ones make no progress; returns whether it did. Another turn must
    /// follow then. The admitted task may never be polled again, so it may start no transfer whose
    /// completion would cause a turn.
    pub(in crate::transaction) fn unblock(&self, idle: bool) -> bool {
        if self.line.borrow().iter().all(|one| one.admitted) || sched::ordinary_transfers() > 0 {
            self.stalled.set(0);
            return false;
        }
        self.stalled.set(self.stalled.get() + 1);
        if !idle && self.stalled.get() <= MAX_STALLED_TURNS {
            return false;
        }
        self.stalled.set(0);
        self.admit_first(|_| true)
    }
}

impl<'r> QueuedRequest<'r> {
    fn join(admission: &'r Rc<OrderedAdmission>, bytes: u64) -> Self {
        let number = admission.next_number.get();
        admission.next_number.set(number + 1);
        let waiting = WaitingRequest { number, bytes, waiter: None, admitted: false };
        admission.line.borrow_mut().push_back(waiting);
        Self { admission, number }
    }

    /// Returns the permit, if the request was admitted; else resumes `waiter` on admission.
    fn permit(&self, waiter: Waiter) -> Option<AdmissionPermit> {
        let mut line = self.admission.line.borrow_mut();
        let position = line.iter().position(|one| one.number == self.number);
        let position = position.expect("it leaves the line when dropped");
        if !line[position].admitted {
            let before = line[position].waiter.replace(waiter);
            drop(line);
            // Dropped last: it may be a user's waker, with arbitrary code.
            drop(before);
            return None;
        }
        let bytes = line.remove(position).expect("found above").bytes;
        Some(AdmissionPermit { admission: self.admission.clone(), bytes })
    }
}

impl Drop for QueuedRequest<'_> {
    fn drop(&mut self) {
        let mut line = self.admission.line.borrow_mut();
        let position = line.iter().position(|one| one.number == self.number);
        // The permit was taken.
        let Some(position) = position else { return };
        let given_up = line.remove(position).expect("found above");
        drop(line);
        if given_up.admitted {
            self.admission.release(given_up.bytes);
        } else {
            // The next in line may need less.
            self.admission.admit_waiting();
        }
    }
}

impl Drop for AdmissionPermit {
    fn drop(&mut self) {
        self.admission.release(self.bytes);
    }
}
