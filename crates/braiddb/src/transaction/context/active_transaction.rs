//! A transaction: its context on a worker, its snapshot, its read set and its write set.

use std::cell::RefCell;
use std::ops::Deref;
use std::rc::Rc;
use std::sync::Arc;

use smallvec::SmallVec;

use super::engine::Engine;
use super::error::OperationError;
use super::isolation::TransactionMode;
use super::transaction_state::{Conflict, ContextExtras, TransactionContext, TransactionState};
use super::worker::WorkerTransactions;
use crate::log::Lsn;
use crate::planted::{Bug, is_planted};
use crate::record::{Copies, MemoryRecords, PagedRecords, Records, RecordsRef};
use crate::rid::{Rid, TableId};
use crate::sched;
use crate::transaction::sets::read_set::{NamedKeys, ProjectionCheck, ReadPoint, ReadSet};
use crate::transaction::sets::write_set::WriteSet;
use crate::version::{TransactionName, View};

/// An active transaction. It stays on one worker's thread. Dropping it aborts it, or completes the
/// end that has begun.
///
/// Invariants: while it exists, its first and its last begin stamp keep every superseded version
/// that it may see allocated. No `RefCell` of it is borrowed across a suspension.
///
/// It moves between futures, so all its state is in its boxed context, which does not move.
#[derive(Debug)]
pub(crate) struct ActiveTransaction {
    worker: Rc<WorkerTransactions>,
    /// Present until the transaction ends.
    pub(in crate::transaction) context: Option<Box<TransactionContext>>,
}

impl Deref for ActiveTransaction {
    type Target = TransactionState;

    #[inline(always)]
    fn deref(&self) -> &TransactionState {
        &self.context().state
    }
}

impl ActiveTransaction {
    #[inline]
    pub(in crate::transaction) fn new(
        worker: Rc<WorkerTransactions>,
        mut context: Box<TransactionContext>,
        name: TransactionName,
        begin: Lsn,
        mode: TransactionMode,
    ) -> Self {
        context.state.reset(name, begin, mode);
        Self { worker, context: Some(context) }
    }

    /// Continues the end of a transaction that was dropped.
    pub(in crate::transaction) fn resume(
        worker: Rc<WorkerTransactions>,
        context: Box<TransactionContext>,
    ) -> Self {
        Self { worker, context: Some(context) }
    }

    #[inline(always)]
    pub(in crate::transaction) fn context(&self) -> &TransactionContext {
        self.context.as_ref().expect("an active transaction has a context")
    }

    /// The extras of the context, to change one.
    #[inline(always)]
    fn extras(&self) -> &ContextExtras {
        let context = self.context();
        context.has_extras.set(true);
        &context.extras
    }

    /// Returns whether the extras of the context may have contents.
    #[inline(always)]
    pub(in crate::transaction) fn has_extras(&self) -> bool {
        self.context().has_extras.get()
    }

    /// Returns whether the parts of the context other than its state and its read set may have
    /// contents.
    #[inline(always)]
    pub(in crate::transaction) fn is_touched(&self) -> bool {
        self.context().is_written.get() || self.has_extras()
    }

    pub(in crate::transaction) fn worker(&self) -> &Rc<WorkerTransactions> {
        &self.worker
    }

    pub(crate) fn engine(&self) -> &Engine {
        self.worker.engine()
    }

    pub(in crate::transaction) fn writes(&self) -> &RefCell<WriteSet> {
        let context = self.context();
        context.is_written.set(true);
        &context.writes
    }

    /// The write set of a transaction that is being ended, and its worker.
    #[inline(always)]
    pub(in crate::transaction) fn ended_writes(
        &mut self,
    ) -> (&mut WriteSet, &Rc<WorkerTransactions>) {
        let context = self.context.as_mut().expect("an active transaction has a context");
        (context.writes.get_mut(), &self.worker)
    }

    /// The read set, as far as reads were noted.
    pub(in crate::transaction) fn reads(&self) -> &ReadSet {
        &self.context().reads
    }

    /// Frees copies of returned values. The exclusive borrow proves that no caller still uses one.
    pub(crate) fn free_copies(&mut self) {
        let context = self.context.as_mut().expect("an active transaction has a context");
        context.extras.copies.free(&self.worker.engine().memory);
    }

    /// Makes conflicts and failed certifications name their records: reads are noted with their
    /// keys.
    pub(crate) fn name_conflicts(&self) {
        self.reads().name_points(true);
    }

    /// Adds a record to the read set.
    #[inline(always)]
    pub(in crate::transaction) fn note_point(&self, point: ReadPoint, key: &[u8]) {
        if self.mode().notes() {
            self.reads().note_point(point, key);
        }
    }

    /// Adds a record to the read set.
    #[inline(always)]
    pub(in crate::transaction) fn note_record(&self, table: &MemoryRecords, rid: Rid, key: &[u8]) {
        self.note_point(ReadPoint::new(table, rid), key);
    }

    /// Adds a projection of a record to the read set; `same` returns whether a value has the same
    /// one.
    pub(crate) fn note_part(&self, point: ReadPoint, key: &[u8], same: ProjectionCheck) {
        if self.mode().notes() {
            self.reads().note_part(point, key, same);
        }
    }

    /// Adds the absence of a key to the read set.
    #[inline(always)]
    pub(in crate::transaction) fn note_absence(&self, table: &Records, key: &[u8]) {
        if self.mode().notes() && !is_planted(Bug::AbsenceNotNoted) {
            self.reads().note_absent(RecordsRef::new(table), key);
        }
    }

    pub(in crate::transaction) fn copies(&self) -> &Copies {
        &self.extras().copies
    }

    pub(in crate::transaction) fn joined(
        &self,
    ) -> &RefCell<SmallVec<[RecordsRef<PagedRecords>; 4]>> {
        &self.extras().joined
    }

    pub(in crate::transaction) fn bulk_epochs(&self) -> &RefCell<SmallVec<[(TableId, u64); 2]>> {
        &self.extras().bulk_epochs
    }

    pub(in crate::transaction) fn created(&self) -> &RefCell<Vec<Arc<Records>>> {
        &self.extras().created
    }

    pub(in crate::transaction) fn undone_created(&self) -> &RefCell<Vec<Arc<Records>>> {
        &self.extras().undone_created
    }

    /// Moves the begin stamp to a later LSN, at which everything that the transaction read still
    /// holds.
    pub(in crate::transaction) fn begin_again(&self, begin: Lsn) {
        let context = self.context.as_ref().expect("an active transaction has a context");
        self.worker.extend(context.number, begin);
        self.move_begin(begin);
    }

    pub(crate) fn view(&self) -> View<'_> {
        // SAFETY: the transaction is active while it is borrowed, because ending it takes it by
        // value.
        unsafe { View::new(self.begin(), self.name(), &self.engine().status) }
    }

    /// Notes that the transaction began before an index of the table was complete, and must abort.
    #[cold]
    pub(in crate::transaction) fn conflict_with_index(&self, table: &Records) -> OperationError {
        self.conflict_of(Conflict::Write, || NamedKeys::all(table))
    }

    /// Notes that another transaction is writing a record, and that this one must abort.
    #[cold]
    pub(in crate::transaction) fn conflict_at(
        &self,
        table: &Records,
        key: &[u8],
    ) -> OperationError {
        self.conflict_of(Conflict::Write, || NamedKeys::record(table, key))
    }

    /// Notes that a record was written since the transaction began, and that it must abort.
    #[cold]
    pub(in crate::transaction) fn conflict_with_newer(
        &self,
        table: &Records,
        key: &[u8],
    ) -> OperationError {
        self.conflict_of(Conflict::NewerWrite, || NamedKeys::record(table, key))
    }

    fn conflict_of(&self, conflict: Conflict, keys: impl FnOnce() -> NamedKeys) -> OperationError {
        if self.conflict_met() == Conflict::None && self.reads().names_points() {
            self.note_conflict_record(keys());
        }
        self.set_conflict(conflict);
        OperationError::Conflict(self.conflict_record())
    }

    /// Returns whether the transaction has not ended.
    pub(in crate::transaction) fn is_open(&self) -> bool {
        self.context.is_some()
    }

    pub(in crate::transaction) fn take_context(&mut self) -> Option<Box<TransactionContext>> {
        sched::forget_step();
        self.context.take()
    }

    /// The error that keeps the transaction from committing, if any.
    #[inline(always)]
    pub(crate) fn lost(&self) -> Option<OperationError> {
        if self.conflict_met() == Conflict::None { None } else { self.why_lost() }
    }

    #[cold]
    fn why_lost(&self) -> Option<OperationError> {
        match self.conflict_met() {
            Conflict::None => None,
            Conflict::Write | Conflict::NewerWrite => {
                Some(OperationError::Conflict(self.conflict_record()))
            }
            Conflict::Bulk => {
                let (table, id) = self.bulk_met().expect("the conflict is about it");
                Some(OperationError::BulkUnderWay(table.clone(), *id))
            }
            Conflict::FullDisk => self.failed().cloned(),
            Conflict::SupersededRead => {
                let changed = self.doomed_by().expect("the conflict is about it");
                Some(OperationError::NotSerializable(Box::new(changed.clone())))
            }
        }
    }
}
