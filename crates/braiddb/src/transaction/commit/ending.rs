//! End of a transaction: after its outcome is decided, its versions are stamped or its writes are
//! undone, a bounded number at a time.
//!
//! The status table has the outcome before the first of these steps, and the transaction keeps its
//! name and its begin stamp until the last one. So other transactions decide about a version
//! without a final stamp by the status table, and never see part of a commit or of an abort.
//!
//! A task that ends its transaction suspends between the steps. A dropped transaction with many
//! writes leaves the rest to its worker's housekeeping.

use std::rc::Rc;

use crate::log::Lsn;
use crate::reclaim;
use crate::record::{MemoryRecords, RecordsRef};
use crate::sched;
use crate::sync::thread;
use crate::transaction::context::active_transaction::ActiveTransaction;
use crate::transaction::context::fault::PanicPoint;
use crate::transaction::context::transaction_state::{DecidedOutcome, TransactionContext};
use crate::transaction::context::worker::WorkerTransactions;
use crate::transaction::memory::garbage::Garbage;
use crate::transaction::sets::write_set::{ReplacedWrite, Write, WriteKind, WriteSet};
use crate::version::{Link, Stamp};

/// Maximum number of writes that are stamped or undone without suspension.
pub(super) const MAX_WRITES_AT_ONCE: usize = if cfg!(braid_simulation) { 2 } else { 64 };
/// Steps that this number of writes counts.
const STEPS: u32 = 4 * MAX_WRITES_AT_ONCE as u32;
/// Number of writes per turn of housekeeping.
const WRITES_PER_TURN: usize = if cfg!(braid_simulation) { 3 } else { 512 };

impl ActiveTransaction {
    /// Aborts: undoes everything that the transaction did. If the future is dropped, the worker
    /// undoes the rest.
    pub(crate) async fn abort(mut self) {
        while !self.abort_some() {
            Self::end_step().await;
        }
    }

    /// Suspends between two steps of an end.
    pub(super) async fn end_step() {
        sched::count_steps(STEPS).await;
    }

    /// Does the next step of an abort, or of the end that has begun. Returns whether the
    /// transaction has ended.
    pub(in crate::transaction) fn abort_some(&mut self) -> bool {
        if self.outcome().is_none() {
            let engine = self.engine();
            engine.planted_panic.panic_if_planted(PanicPoint::Abort);
            engine.status.aborted(self.name());
            self.decide_bulk(None);
            self.set_outcome(DecidedOutcome::Aborted);
        }
        self.end_some(MAX_WRITES_AT_ONCE)
    }

    /// Ends the transaction as far as `most` writes allow, after its outcome was decided. Returns
    /// whether it has ended.
    pub(super) fn end_some(&mut self, most: usize) -> bool {
        let outcome = self.outcome().expect("decided before");
        let is_done = match outcome {
            DecidedOutcome::Committed(lsn) => self.stamp_some(lsn, most),
            DecidedOutcome::Aborted => self.undo_some(most),
            DecidedOutcome::ReadOnly => true,
        };
        if !is_done || !retire_replaced(self.ended_writes().0, most) {
            return false;
        }
        if self.has_extras() && !self.drop_created(most) {
            return false;
        }
        let counters = self.worker().counters();
        match outcome {
            DecidedOutcome::Committed(_) => counters.committed.add(1),
            DecidedOutcome::Aborted if self.is_counted() => {
                counters.aborted[self.cause() as usize].add(1);
            }
            DecidedOutcome::Aborted | DecidedOutcome::ReadOnly => {}
        }
        self.release();
        true
    }

    /// Releases the context, which has no writes left.
    #[inline(always)]
    pub(in crate::transaction) fn release(&mut self) {
        if self.has_extras() {
            self.drop_created(usize::MAX);
        }
        let context = self.take_context().expect("ends once");
        self.worker().end(context);
    }

    /// Stamps up to `most` versions of the committed transaction, and adds superseded versions to
    /// the garbage list. Returns whether all are stamped.
    fn stamp_some(&mut self, lsn: Lsn, most: usize) -> bool {
        let stamp = Stamp::committed(lsn);
        let (writes, worker) = self.ended_writes();
        let mut garbage = worker.garbage.borrow_mut();
        // Counts the records that committed writes to a table in memory, if any, added or removed.
        let count = |table: Option<RecordsRef<MemoryRecords>>, more| {
            if let Some(table) = table {
                // SAFETY: the engine is alive; if this transaction created the table, it is
                // committing.
                unsafe { table.get() }.count().add(worker.number(), more);
            }
        };
        let first = writes.writes().len().saturating_sub(most);
        // Records that successive writes to the table `counted` added or removed.
        let mut more = 0;
        let mut counted: Option<RecordsRef<MemoryRecords>> = None;
        for write in writes.writes()[first..].iter().filter(|write| write.kind != WriteKind::Void) {
            let of_write = records_added(write);
            if of_write != 0 {
                if counted != Some(write.table) {
                    count(counted.replace(write.table), more);
                    more = 0;
                }
                more += of_write;
            }
            // SAFETY: the version is in flight until it is stamped here, so no other transaction
            // can have superseded it.
            let version = unsafe { write.version.get() };
            version.set_record(lsn, write.logged());
            version.set_stamp(stamp);
            if let Some(Link::Version(base)) = write.base() {
                let (table, rid) = (write.table, write.rid);
                garbage.push(lsn, Garbage::Superseded { table, rid, version: base });
            }
            if write.kind == WriteKind::Delete {
                let (table, rid, tombstone) = (write.table, write.rid, write.version);
                garbage.push(lsn, Garbage::Deleted { table, rid, tombstone });
            }
        }
        count(counted, more);
        let most = most - (writes.writes().len() - first);
        writes.truncate(first);
        let first = writes.paged.len().saturating_sub(most);
        for write in writes.paged.drain(first..) {
            // SAFETY: the change belongs to the transaction and is collected later.
            let change = unsafe { write.change.get() };
            // Of several changes of a record, each starts from the result of the previous one.
            let more = i64::from(!write.deleted) - i64::from(change.before().is_some());
            if more != 0 {
                // SAFETY: the engine is alive; if this transaction created the table, it is
                // committing.
                let table = unsafe { write.table.get() };
                table.count().add(worker.number(), more);
            }
            change.set_stamp(stamp);
        }
        writes.writes().is_empty() && writes.paged.is_empty()
    }

    /// Undoes up to `most` writes of the aborted transaction, newest first. Returns whether all are
    /// undone.
    fn undo_some(&self, most: usize) -> bool {
        let operation = reclaim::enter();
        let writes = &mut *self.writes().borrow_mut();
        let first = writes.writes().len().saturating_sub(most);
        for write in writes.writes()[first..].iter().rev() {
            if write.kind != WriteKind::Void {
                self.roll_back(writes, write, &operation);
                // SAFETY: unlinked above, and in no list of versions to retire.
                unsafe { write.table.get().retire_version(write.version) };
            }
        }
        let most = most - (writes.writes().len() - first);
        writes.truncate(first);
        let first = writes.paged.len().saturating_sub(most);
        let undone = writes.paged.split_off(first);
        self.roll_back_on_pages(&undone);
        self.discard_values(&undone);
        writes.writes().is_empty() && writes.paged.is_empty()
    }
}

impl Drop for ActiveTransaction {
    #[inline(always)]
    fn drop(&mut self) {
        if self.context.is_some() {
            self.drop_open();
        }
    }
}

impl ActiveTransaction {
    #[cold]
    #[inline(never)]
    fn drop_open(&mut self) {
        // User code never owns a transaction, and its threads are no guests while they unwind. So a
        // panic that unwinds through the owner is the engine's, or follows one after which the engine
        // has failed. Memory cannot be trusted
        // then, and nothing is undone: the context and everything its writes reference is leaked.
        if thread::panicking() || self.engine().failure.has_begun() {
            std::mem::forget(self.context.take());
            return;
        }
        if !self.abort_some()
            && let Some(context) = self.context.take()
        {
            self.worker().end_later(context);
        }
    }
}

impl WorkerTransactions {
    /// Takes over a dropped transaction whose outcome is decided, to end it in later turns.
    pub(super) fn end_later(&self, context: Box<TransactionContext>) {
        self.ending.borrow_mut().push_back(context);
    }

    /// Does the next step for dropped transactions. Returns whether more is left.
    pub(in crate::transaction) fn end_dropped(self: &Rc<Self>) -> bool {
        if self.engine().failure.has_begun() {
            // Memory cannot be trusted, so nothing is undone.
            return false;
        }
        let Some(context) = self.ending.borrow_mut().pop_front() else { return false };
        let mut transaction = ActiveTransaction::resume(self.clone(), context);
        if !transaction.end_some(WRITES_PER_TURN) {
            let context = transaction.take_context().expect("it has not ended");
            self.ending.borrow_mut().push_front(context);
        }
        !self.ending.borrow().is_empty()
    }
}

/// Returns the number of records that a committed write adds to its table.
#[inline(always)]
fn records_added(write: &Write) -> i64 {
    match write.kind {
        WriteKind::Insert => 1,
        // A record that the transaction inserted itself was never counted.
        WriteKind::Delete => -i64::from(write.existed()),
        WriteKind::Update | WriteKind::Void => 0,
    }
}

/// Retires up to `most` versions that the transaction replaced itself, and that a savepoint might
/// have needed. Other threads may still traverse them. Returns whether all are retired.
#[inline]
fn retire_replaced(writes: &mut WriteSet, most: usize) -> bool {
    writes.replaced.is_empty() || retire_some_replaced(writes, most)
}

fn retire_some_replaced(writes: &mut WriteSet, most: usize) -> bool {
    for _ in 0..most {
        let Some(ReplacedWrite { table, version, .. }) = writes.replaced.pop() else { break };
        // SAFETY: unlinked when it was replaced, freed only by the retirement below.
        unsafe { version.get() }.set_stamp(Stamp::ABORTED);
        // SAFETY: tables that an ending transaction has used exist; the version was in the list.
        unsafe { table.get().retire_version(version) };
    }
    writes.replaced.is_empty()
}
