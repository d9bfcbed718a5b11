//! Reading records from the log, and pages from zones, so many bytes at a time: what is being read takes memory
//! beside what is in use, and large records, or many pages, would take all of it.
//!
//! Each worker admits reads up to a bound, in the order in which they come; one is always admitted. A
//! read counts from its admission to when its bytes were decoded or copied, which is up to the
//! transaction. Whatever gives bytes back admits those who wait for them: the end of a read, and a read
//! that is given up before it was admitted, after it, or while under way.
//!
//! A transaction may keep a read that it does not go on with, as one that polls another future until
//! that is ready. So that such reads cannot hold up the others for ever, one more is admitted whenever
//! no transaction reads.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use super::context::Transaction;
use super::error::OperationError;
use crate::log::ColdRecord;
use crate::memory::{Kind, MemoryCounters};
use crate::reclaim;
use crate::record::{ColdVersion, Records};
use crate::rid::Rid;
use crate::sched::{self, Cause, Waiter};

/// Turns without a transaction's read after which one more read is admitted although tasks are ready.
const STALLED_TURNS: u32 = 64;

/// The reads of one worker.
///
/// Invariants: `admitted` is the sum of all permits, and of all in line that were admitted; those are
/// first in line, so reads are admitted in order. The first of the others has no room, or was
/// admitted since.
#[derive(Debug)]
pub(super) struct Reads {
    most: u64,
    admitted: Cell<u64>,
    line: RefCell<VecDeque<Waiting>>,
    next_number: Cell<u64>,
    /// Turns since a transaction last read while a read waited.
    stalled: Cell<u32>,
    memory: Arc<MemoryCounters>,
}

/// A read that waits to be admitted, or was admitted and does not know yet.
#[derive(Debug)]
struct Waiting {
    number: u64,
    bytes: u64,
    /// The task to be resumed; none once that was done.
    waiter: Option<Waiter>,
    admitted: bool,
}

/// A read that was admitted; its bytes count until this is dropped.
#[derive(Debug)]
pub(super) struct ReadPermit {
    reads: Rc<Reads>,
    bytes: u64,
}

/// An entry of the line of waiting reads, removed when dropped.
struct InLine<'r> {
    reads: &'r Rc<Reads>,
    number: u64,
}

impl Reads {
    /// Admits `most` bytes at a time, or one read.
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
        let in_line = InLine::join(self, bytes);
        loop {
            if let Some(permit) = in_line.permit(sched::current_waiter().await) {
                return permit;
            }
            sched::park(Cause::Storage).await;
        }
    }

    fn has_room(&self, bytes: u64) -> bool {
        let admitted = self.admitted.get();
        admitted == 0 || admitted + bytes <= self.most
    }

    fn count(&self, bytes: u64) {
        self.admitted.set(self.admitted.get() + bytes);
        self.memory.count(Kind::Reading, bytes as i64);
    }

    /// Counts bytes of a read that is over, and admits those for whom there is room now.
    fn give_back(&self, bytes: u64) {
        self.admitted.set(self.admitted.get() - bytes);
        self.memory.count(Kind::Reading, -(bytes as i64));
        self.admit_waiting();
    }

    fn admit_waiting(&self) {
        while self.admit_first(|first| self.has_room(first.bytes)) {}
    }

    /// Admits the first in line that is not admitted, if `may`; whether one was.
    fn admit_first(&self, may: impl FnOnce(&Waiting) -> bool) -> bool {
        let mut line = self.line.borrow_mut();
        let first = line.iter_mut().find(|one| !one.admitted);
        let Some(first) = first.filter(|first| may(first)) else { return false };
        first.admitted = true;
        self.count(first.bytes);
        first.waiter.take().into_iter().for_each(sched::resume);
        true
    }

    /// To be called at every turn of the worker; `idle` if no task of it is ready. Admits one more read
    /// if those that were admitted do not get on; whether it did. Then there is to be another turn: the one that was
    /// admitted may be polled no more, and begins no transfer whose end would bring about the next turn.
    pub(super) fn unblock(&self, idle: bool) -> bool {
        if self.line.borrow().iter().all(|one| one.admitted) || sched::ordinary_transfers() > 0 {
            self.stalled.set(0);
            return false;
        }
        self.stalled.set(self.stalled.get() + 1);
        if !idle && self.stalled.get() <= STALLED_TURNS {
            return false;
        }
        self.stalled.set(0);
        self.admit_first(|_| true)
    }
}

impl<'r> InLine<'r> {
    fn join(reads: &'r Rc<Reads>, bytes: u64) -> Self {
        let number = reads.next_number.get();
        reads.next_number.set(number + 1);
        let waiting = Waiting { number, bytes, waiter: None, admitted: false };
        reads.line.borrow_mut().push_back(waiting);
        Self { reads, number }
    }

    /// The permit, if it was admitted; else `waiter` is resumed when it is.
    fn permit(&self, waiter: Waiter) -> Option<ReadPermit> {
        let mut line = self.reads.line.borrow_mut();
        let position = line.iter().position(|one| one.number == self.number);
        let position = position.expect("it leaves the line when dropped");
        if !line[position].admitted {
            let before = line[position].waiter.replace(waiter);
            drop(line);
            // Dropped last: it may be a user's waker, whose code may do anything.
            drop(before);
            return None;
        }
        let bytes = line.remove(position).expect("found above").bytes;
        Some(ReadPermit { reads: self.reads.clone(), bytes })
    }
}

impl Drop for InLine<'_> {
    fn drop(&mut self) {
        let mut line = self.reads.line.borrow_mut();
        let position = line.iter().position(|one| one.number == self.number);
        // The permit was taken.
        let Some(position) = position else { return };
        let given_up = line.remove(position).expect("found above");
        drop(line);
        if given_up.admitted {
            self.reads.give_back(given_up.bytes);
        } else {
            // Who comes next may need less.
            self.reads.admit_waiting();
        }
    }
}

impl Drop for ReadPermit {
    fn drop(&mut self) {
        self.reads.give_back(self.bytes);
    }
}

impl Transaction {
    /// Reads a record from the log, where the transaction saw it, once that is admitted. The caller
    /// holds no operation guard, which would hold up reclamation.
    ///
    /// # Errors
    /// The log's, if the value is there and cannot be read; `Overloaded`.
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

    /// Waits until so many bytes may be read.
    ///
    /// # Errors
    /// `Overloaded` if too many of the worker's transactions read, and those beyond are to fail; not in the engine's upkeep.
    pub(super) async fn admit_bytes(&self, bytes: u64) -> Result<ReadPermit, OperationError> {
        let sheds =
            self.engine().shed_beyond.is_some_and(|most| sched::ordinary_transfers() >= most);
        if sheds && !sched::is_upkeep() {
            return Err(OperationError::Overloaded);
        }
        Ok(self.worker().reads.admit(bytes).await)
    }

    /// As `fetch`, for a read that was admitted.
    ///
    /// # Errors
    /// The log's.
    pub(super) async fn fetch_admitted(
        &self,
        table: &Records,
        rid: Rid,
        version: ColdVersion,
    ) -> Result<ColdRecord, OperationError> {
        let record = table.fetch(rid, version).await.map_err(OperationError::Storage)?;
        self.bring_back(table, rid, version, record.view().value);
        Ok(record)
    }

    /// Brings the value of a version that the transaction saw back to memory, if it is to be kept there.
    pub(super) fn bring_back(&self, table: &Records, rid: Rid, version: ColdVersion, value: &[u8]) {
        let engine = self.engine();
        if engine.caches(value.len()) {
            engine.note_brought_back(value.len());
            let operation = reclaim::enter();
            let acting = match version.leads_on() {
                true => engine.horizon.act(self.worker().number(), engine.log.tail()),
                false => None,
            };
            // SAFETY: this transaction is active, and saw the version there.
            unsafe { table.bring_back(rid, version, value, &operation, acting.as_ref()) };
        }
    }
}
