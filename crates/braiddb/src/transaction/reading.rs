//! Read admission: bounds the bytes that are being read from the log and from zones. Reads in
//! progress need memory in addition to the budget, and large records, or many pages, would exhaust
//! it.
//!
//! Each worker admits reads up to a limit, in order of arrival; at least one is always admitted. A
//! read counts from its admission until its bytes were decoded or copied, which is up to the
//! transaction. Released bytes admit the next waiters. They are released at the end of a read, or
//! when a read is dropped: before its admission, after it, or while in progress.
//!
//! A transaction may hold a read without progress, for example while it polls another future until
//! that is ready. So that such reads cannot block the others forever, one more read is admitted
//! whenever no transaction reads.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use super::context::ActiveTransaction;
use super::error::OperationError;
use crate::log::ColdRecord;
use crate::memory::{MemoryCounters, MemoryKind};
use crate::reclaim;
use crate::record::{ColdVersion, Records};
use crate::rid::Rid;
use crate::sched::{self, WaitCause, Waiter};

/// Number of turns without a transaction's read before one more read is admitted although tasks are
/// ready.
const MAX_STALLED_TURNS: u32 = 64;

/// The reads of one worker.
///
/// Invariants: `admitted` is the sum of all permits and of all admitted entries in line. Admitted
/// entries come first in line, so reads are admitted in order. The first of the others has no room,
/// or was admitted since.
#[derive(Debug)]
pub(super) struct ReadAdmission {
    most: u64,
    admitted: Cell<u64>,
    line: RefCell<VecDeque<WaitingRead>>,
    next_number: Cell<u64>,
    /// Turns since a transaction last read while a read waited.
    stalled: Cell<u32>,
    memory: Arc<MemoryCounters>,
}

/// A read that waits for admission, or was admitted and has not resumed yet.
#[derive(Debug)]
struct WaitingRead {
    number: u64,
    bytes: u64,
    /// The task to resume; `None` once resumed.
    waiter: Option<Waiter>,
    admitted: bool,
}

/// An admitted read; its bytes count until this is dropped.
#[derive(Debug)]
pub(super) struct ReadPermit {
    reads: Rc<ReadAdmission>,
    bytes: u64,
}

/// An entry in the queue of waiting reads, removed when dropped.
struct QueuedRead<'r> {
    reads: &'r Rc<ReadAdmission>,
    number: u64,
}

impl ReadAdmission {
    /// Creates admission control for `most` bytes at a time, or one read.
    pub(super) fn new(most: u64, memory: Arc<MemoryCounters>) -> Rc<Self> {
        let [admitted, next_number] = [0, 0].map(Cell::new);
        let (line, stalled) = (RefCell::default(), Cell::new(0));
        Rc::new(Self { most, admitted, line, next_number, stalled, memory })
    }

    /// Waits until `bytes` may be read.
    pub(super) async fn admit(self: &Rc<Self>, bytes: u64) -> ReadPermit {
        if self.line.borrow().iter().all(|one| one.admitted) && self.has_room(bytes) {
            self.count(bytes);
            return ReadPermit { reads: self.clone(), bytes };
        }
        let in_line = QueuedRead::join(self, bytes);
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
        self.memory.count(MemoryKind::Reading, bytes as i64);
    }

    /// Subtracts bytes of a finished read, and admits waiters that now fit.
    fn release(&self, bytes: u64) {
        self.admitted.set(self.admitted.get() - bytes);
        self.memory.count(MemoryKind::Reading, -(bytes as i64));
        self.admit_waiting();
    }

    fn admit_waiting(&self) {
        while self.admit_first(|first| self.has_room(first.bytes)) {}
    }

    /// Admits the first waiting read, if `may`; returns whether it did.
    fn admit_first(&self, may: impl FnOnce(&WaitingRead) -> bool) -> bool {
        let mut line = self.line.borrow_mut();
        let first = line.iter_mut().find(|one| !one.admitted);
        let Some(first) = first.filter(|first| may(first)) else { return false };
        first.admitted = true;
        self.count(first.bytes);
        first.waiter.take().into_iter().for_each(sched::resume);
        true
    }

    /// Called at every turn of the worker; `idle` means that no task is ready. Admits one more read
    /// if the admitted ones make no progress; returns whether it did. Another turn must follow
    /// then. The admitted read may never be polled again, so it may start no transfer whose
    /// completion would cause a turn.
    pub(super) fn unblock(&self, idle: bool) -> bool {
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

impl<'r> QueuedRead<'r> {
    fn join(reads: &'r Rc<ReadAdmission>, bytes: u64) -> Self {
        let number = reads.next_number.get();
        reads.next_number.set(number + 1);
        let waiting = WaitingRead { number, bytes, waiter: None, admitted: false };
        reads.line.borrow_mut().push_back(waiting);
        Self { reads, number }
    }

    /// Returns the permit, if the read was admitted; else resumes `waiter` on admission.
    fn permit(&self, waiter: Waiter) -> Option<ReadPermit> {
        let mut line = self.reads.line.borrow_mut();
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
        Some(ReadPermit { reads: self.reads.clone(), bytes })
    }
}

impl Drop for QueuedRead<'_> {
    fn drop(&mut self) {
        let mut line = self.reads.line.borrow_mut();
        let position = line.iter().position(|one| one.number == self.number);
        // The permit was taken.
        let Some(position) = position else { return };
        let given_up = line.remove(position).expect("found above");
        drop(line);
        if given_up.admitted {
            self.reads.release(given_up.bytes);
        } else {
            // The next in line may need less.
            self.reads.admit_waiting();
        }
    }
}

impl Drop for ReadPermit {
    fn drop(&mut self) {
        self.reads.release(self.bytes);
    }
}

impl ActiveTransaction {
    /// Reads a visible record from the log, after admission. The caller holds no operation guard,
    /// which would delay reclamation.
    ///
    /// # Errors
    /// The log's error if the value exists and cannot be read; `Overloaded`.
    pub(super) async fn fetch(
        &self,
        table: &Records,
        rid: Rid,
        version: ColdVersion,
    ) -> Result<(ColdRecord, ReadPermit), OperationError> {
        let permit = self.admit_bytes(version.address.read_bytes() as u64).await?;
        let record = self.fetch_admitted(table, rid, version).await?;
        Ok((record, permit))
    }

    /// Waits until this many bytes may be read.
    ///
    /// # Errors
    /// `Overloaded` if too many of the worker's transactions read and the configuration rejects
    /// further reads. Never for engine upkeep.
    pub(super) async fn admit_bytes(&self, bytes: u64) -> Result<ReadPermit, OperationError> {
        let sheds =
            self.engine().shed_beyond.is_some_and(|most| sched::ordinary_transfers() >= most);
        if sheds && !sched::is_upkeep() {
            return Err(OperationError::Overloaded);
        }
        Ok(self.worker().reads.admit(bytes).await)
    }

    /// Does what `fetch` does, for an admitted read.
    ///
    /// # Errors
    /// Those of the log.
    pub(super) async fn fetch_admitted(
        &self,
        table: &Records,
        rid: Rid,
        version: ColdVersion,
    ) -> Result<ColdRecord, OperationError> {
        let record = table.fetch(rid, version).await.map_err(OperationError::Storage)?;
        self.cache_record(table, rid, version, record.view().value);
        Ok(record)
    }

    /// Makes the value of a visible version resident again, if it should be cached.
    pub(super) fn cache_record(
        &self,
        table: &Records,
        rid: Rid,
        version: ColdVersion,
        value: &[u8],
    ) {
        let engine = self.engine();
        if engine.caches(value.len()) {
            engine.note_loaded(value.len());
            let operation = reclaim::enter();
            let acting = match version.has_older_versions() {
                true => engine.horizon.act(self.worker().number(), engine.log.tail()),
                false => None,
            };
            // SAFETY: this transaction is active, and saw the version there.
            unsafe { table.cache_record(rid, version, value, &operation, acting.as_ref()) };
        }
    }
}
