//! Reading records from the log, so many bytes at a time: a record that is being read takes memory
//! beside what is in use, and large ones would take all of it.
//!
//! Each worker admits reads up to a bound, in the order in which they come; one is always admitted. A
//! read counts from its admission to when its bytes were decoded or copied, which is up to the
//! transaction. So that transactions that do not get on, because they wait for something else, cannot
//! hold up the others for ever, one more is admitted whenever no transfer is under way.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use super::context::Transaction;
use super::error::OperationError;
use crate::log::ColdRecord;
use crate::memory::{Kind, MemoryCounters};
use crate::reclaim;
use crate::record::{LogPlace, Table};
use crate::rid::Rid;
use crate::sched::{self, Cause, Waiter};

/// Turns without a transfer after which one more read is admitted although tasks are ready.
const STALLED_TURNS: u32 = 64;

/// The reads of one worker.
///
/// Invariants: `admitted` is the sum of all permits; whoever waits longest is admitted first.
#[derive(Debug)]
pub(super) struct Reads {
    most: u64,
    admitted: Cell<u64>,
    waiting: RefCell<VecDeque<Waiting>>,
    next_number: Cell<u64>,
    /// Turns since a transfer was last under way while somebody waited.
    stalled: Cell<u32>,
    memory: Arc<MemoryCounters>,
}

/// A read that waits to be admitted.
#[derive(Debug)]
struct Waiting {
    number: u64,
    /// Who is to be resumed when it may have become its turn; none once that was done.
    waiter: Option<Waiter>,
    /// Whether it is admitted in any case.
    forced: bool,
}

/// A read that was admitted; its bytes count until this is dropped.
#[derive(Debug)]
pub(super) struct ReadPermit {
    reads: Rc<Reads>,
    bytes: u64,
}

/// A place among those that wait, left when dropped.
struct InLine<'r> {
    reads: &'r Reads,
    number: u64,
}

impl Reads {
    /// Admits `most` bytes at a time, or one read.
    pub(super) fn new(most: u64, memory: Arc<MemoryCounters>) -> Rc<Self> {
        let [admitted, next_number] = [0, 0].map(Cell::new);
        let (waiting, stalled) = (RefCell::default(), Cell::new(0));
        Rc::new(Self { most, admitted, waiting, next_number, stalled, memory })
    }

    /// Waits until `bytes` may be read.
    pub(super) async fn admit(self: &Rc<Self>, bytes: u64) -> ReadPermit {
        if !self.waiting.borrow().is_empty() || !self.has_room(bytes) {
            let in_line = InLine::join(self);
            while !in_line.is_admitted(bytes, sched::current_waiter().await) {
                sched::park(Cause::Storage).await;
            }
        }
        self.admitted.set(self.admitted.get() + bytes);
        self.memory.count(Kind::Reading, bytes as i64);
        ReadPermit { reads: self.clone(), bytes }
    }

    fn has_room(&self, bytes: u64) -> bool {
        let admitted = self.admitted.get();
        admitted == 0 || admitted + bytes <= self.most
    }

    /// Lets the first in line look whether it is admitted.
    fn resume_first(&self) {
        let waiter = self.waiting.borrow_mut().front_mut().and_then(|first| first.waiter.take());
        waiter.into_iter().for_each(sched::resume);
    }

    /// To be called at every turn of the worker; `idle` if no task of it is ready. Admits one more read
    /// if those that were admitted do not get on.
    pub(super) fn unblock(&self, idle: bool) {
        if self.waiting.borrow().is_empty() || sched::transfers() > 0 {
            self.stalled.set(0);
            return;
        }
        self.stalled.set(self.stalled.get() + 1);
        if idle || self.stalled.get() > STALLED_TURNS {
            self.stalled.set(0);
            self.waiting.borrow_mut().iter_mut().take(1).for_each(|first| first.forced = true);
            self.resume_first();
        }
    }
}

impl<'r> InLine<'r> {
    fn join(reads: &'r Reads) -> Self {
        let number = reads.next_number.get();
        reads.next_number.set(number + 1);
        let waiting = Waiting { number, waiter: None, forced: false };
        reads.waiting.borrow_mut().push_back(waiting);
        Self { reads, number }
    }

    /// Whether it is this one's turn; else `waiter` is resumed when it may be.
    fn is_admitted(&self, bytes: u64, waiter: Waiter) -> bool {
        let mut waiting = self.reads.waiting.borrow_mut();
        let place = waiting.iter().position(|waiting| waiting.number == self.number);
        let place = place.expect("it leaves the line when dropped");
        waiting[place].waiter = Some(waiter);
        place == 0 && (waiting[0].forced || self.reads.has_room(bytes))
    }
}

impl Drop for InLine<'_> {
    fn drop(&mut self) {
        self.reads.waiting.borrow_mut().retain(|waiting| waiting.number != self.number);
        self.reads.resume_first();
    }
}

impl Drop for ReadPermit {
    fn drop(&mut self) {
        let reads = &self.reads;
        reads.admitted.set(reads.admitted.get() - self.bytes);
        reads.memory.count(Kind::Reading, -(self.bytes as i64));
        reads.resume_first();
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
        table: &Table,
        rid: Rid,
        place: LogPlace,
    ) -> Result<(ColdRecord, ReadPermit), OperationError> {
        let permit = self.admit_reads(&[place]).await?;
        let record = self.fetch_admitted(table, rid, place).await?;
        Ok((record, permit))
    }

    /// Waits until the records at some places may be read, all of them together.
    ///
    /// # Errors
    /// `Overloaded` if too many of the worker's transactions read, and those beyond are to fail.
    pub(super) async fn admit_reads(
        &self,
        places: &[LogPlace],
    ) -> Result<ReadPermit, OperationError> {
        if self.engine().shed_beyond.is_some_and(|most| sched::transfers() >= most) {
            return Err(OperationError::Overloaded);
        }
        let bytes = places.iter().map(|place| place.address.read_bytes() as u64).sum();
        Ok(self.worker().reads.admit(bytes).await)
    }

    /// As `fetch`, for a read that was admitted.
    ///
    /// # Errors
    /// The log's.
    pub(super) async fn fetch_admitted(
        &self,
        table: &Table,
        rid: Rid,
        place: LogPlace,
    ) -> Result<ColdRecord, OperationError> {
        let record = table.fetch(rid, place).await.map_err(OperationError::Storage)?;
        let value = record.view().value;
        let engine = self.engine();
        if engine.caches(value.len()) {
            let operation = reclaim::enter();
            let acting = match place.leads_on() {
                true => engine.horizon.act(self.worker().number(), engine.log.tail()),
                false => None,
            };
            // SAFETY: this transaction is active, and saw the version there.
            unsafe { table.bring_back(rid, place, value, &operation, acting.as_ref()) };
        }
        Ok(record)
    }
}
