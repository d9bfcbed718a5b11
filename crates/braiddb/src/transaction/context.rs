//! A transaction: its context on a worker, its snapshot, its read set and its write set.

use std::cell::{Cell, OnceCell, RefCell};
use std::ops::Deref;
use std::rc::Rc;
use std::sync::Arc;

use smallvec::SmallVec;

use super::abort::Savepoints;
use super::counters::AbortCause;
use super::doomed::Conflict;
use super::ending::DecidedOutcome;
use super::engine::Engine;
use super::error::OperationError;
use super::failure_details::FailureDetails;
use super::isolation::TransactionMode;
use super::read_set::{ProjectionCheck, ReadSet};
use super::worker::WorkerTransactions;
use super::write_set::WriteSet;
use crate::log::Lsn;
use crate::planted::{Bug, is_planted};
use crate::record::{Copies, Records, RecordsRef, SeenVersion};
use crate::rid::{Rid, TableId};
use crate::sched;
use crate::sync::thread;
use crate::version::{TransactionName, View};

/// The reusable part of a transaction. A worker keeps unused contexts.
#[derive(Debug)]
pub(super) struct TransactionContext {
    /// Index of this context on its worker.
    pub(super) number: usize,
    state: TransactionState,
    pub(super) writes: RefCell<WriteSet>,
    pub(super) reads: ReadSet,
    /// Copies of values that were returned to the caller.
    pub(super) copies: Copies,
    /// Paged tables whose gates the transaction has joined.
    pub(super) joined: RefCell<SmallVec<[RecordsRef; 4]>>,
    /// The tables and epochs of a bulk operation. Separate from the write set, which may be
    /// borrowed when this is read.
    pub(super) bulk_epochs: RefCell<SmallVec<[(TableId, u64); 2]>>,
    /// Tables created by the transaction.
    pub(super) created: RefCell<Vec<Arc<Records>>>,
    /// Created tables that a rollback to a savepoint undid.
    pub(super) undone_created: RefCell<Vec<Arc<Records>>>,
}

impl TransactionContext {
    /// Creates a context without a transaction. `name` must be a sequence that already ended.
    pub(super) fn new(number: usize, name: TransactionName) -> Self {
        let (writes, reads, copies, joined, bulk_epochs) = Default::default();
        let (created, undone_created) = Default::default();
        let state = TransactionState::new(name, Lsn::MAX, TransactionMode::ReadOnly);
        Self { number, state, writes, reads, copies, joined, bulk_epochs, created, undone_created }
    }
}

/// The record that this transaction has just read; a write that follows need not search for it.
#[derive(Clone, Copy, Debug)]
struct RecentRecord {
    table: RecordsRef,
    head: u64,
    bytes: usize,
    rid: Rid,
}

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
    context: Option<Box<TransactionContext>>,
}

/// Mutable state of an active transaction.
#[derive(Debug)]
pub(crate) struct TransactionState {
    name: TransactionName,
    begin: Cell<Lsn>,
    extensions: Cell<u32>,
    mode: TransactionMode,
    /// The transaction's time for expiring records; 0 until first used (`transaction/expiry.rs`).
    time: Cell<u64>,
    /// Set once an expiry decision used this time.
    time_used: Cell<bool>,
    /// The latest commit that any returned result depends on: a value or deletion that it saw, or
    /// the version that its own write was installed on or refused for.
    depends_on: Cell<Lsn>,
    recent: Cell<Option<RecentRecord>>,
    /// Set if an earlier attempt of this transaction failed.
    repeated: Cell<bool>,
    conflict: Cell<Conflict>,
    /// Created when something happens that it may have to report.
    details: OnceCell<Box<FailureDetails>>,
    cause: Cell<AbortCause>,
    /// False for internal transactions, whose aborts statistics do not count.
    is_counted: Cell<bool>,
    savepoints: Savepoints,
    /// Set if the transaction prepares deletions, so that its blocks may use the space for these.
    frees_space: Cell<bool>,
    /// The priority token, if this transaction holds it, else 0.
    priority_token: Cell<u64>,
    /// Set once the status table has the outcome.
    outcome: Cell<Option<DecidedOutcome>>,
}

impl TransactionState {
    fn new(name: TransactionName, begin: Lsn, mode: TransactionMode) -> Self {
        Self {
            name,
            begin: Cell::new(begin),
            extensions: Cell::new(0),
            mode,
            time: Cell::new(0),
            time_used: Cell::new(false),
            depends_on: Cell::new(Lsn::ZERO),
            recent: Cell::new(None),
            repeated: Cell::new(false),
            conflict: Cell::default(),
            details: OnceCell::new(),
            cause: Cell::new(AbortCause::Dropped),
            is_counted: Cell::new(true),
            savepoints: Savepoints::default(),
            frees_space: Cell::new(false),
            priority_token: Cell::new(0),
            outcome: Cell::new(None),
        }
    }
}

impl TransactionState {
    /// Makes it the state of a new transaction. Names every field, so that none is forgotten.
    #[inline]
    fn reset(&mut self, name: TransactionName, begin: Lsn, mode: TransactionMode) {
        if self.details.get().is_some() {
            self.forget_details();
        }
        let Self {
            name: own_name,
            begin: own_begin,
            extensions,
            mode: own_mode,
            time,
            time_used,
            depends_on,
            recent,
            repeated,
            conflict,
            details: _,
            cause,
            is_counted,
            savepoints,
            frees_space,
            priority_token,
            outcome,
        } = self;
        (*own_name, *own_mode) = (name, mode);
        own_begin.set(begin);
        extensions.set(0);
        time.set(0);
        time_used.set(false);
        depends_on.set(Lsn::ZERO);
        recent.set(None);
        repeated.set(false);
        conflict.set(Conflict::None);
        cause.set(AbortCause::Dropped);
        is_counted.set(true);
        savepoints.reset();
        frees_space.set(false);
        priority_token.set(0);
        outcome.set(None);
    }

    #[cold]
    fn forget_details(&mut self) {
        self.details.take();
    }
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
    pub(super) fn new(
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
    pub(super) fn resume(worker: Rc<WorkerTransactions>, context: Box<TransactionContext>) -> Self {
        Self { worker, context: Some(context) }
    }

    #[inline(always)]
    fn context(&self) -> &TransactionContext {
        self.context.as_ref().expect("an active transaction has a context")
    }

    pub(super) fn worker(&self) -> &Rc<WorkerTransactions> {
        &self.worker
    }

    pub(crate) fn engine(&self) -> &Engine {
        self.worker.engine()
    }

    pub(super) fn name(&self) -> TransactionName {
        self.name
    }

    pub(super) fn writes(&self) -> &RefCell<WriteSet> {
        &self.context().writes
    }

    pub(super) fn mode(&self) -> TransactionMode {
        self.mode
    }

    pub(super) fn time_taken(&self) -> &Cell<u64> {
        &self.time
    }

    /// Flag: an expiry decision used the time.
    pub(super) fn time_used(&self) -> &Cell<bool> {
        &self.time_used
    }

    /// Returns whether the transaction refuses writes.
    pub(crate) fn is_read_only(&self) -> bool {
        self.mode.is_read_only()
    }

    /// The read set, as far as reads were noted.
    pub(super) fn reads(&self) -> &ReadSet {
        &self.context().reads
    }

    /// Frees copies of returned values. The exclusive borrow proves that no caller still uses one.
    pub(crate) fn free_copies(&mut self) {
        let context = self.context.as_mut().expect("an active transaction has a context");
        context.copies.free(&self.worker.engine().memory);
    }

    /// Makes conflicts and failed certifications name their records: reads are noted with their
    /// keys.
    pub(crate) fn name_conflicts(&self) {
        self.reads().name_points(true);
    }

    /// The details that the transaction reports if it fails, once created.
    #[inline(always)]
    pub(super) fn details(&self) -> &OnceCell<Box<FailureDetails>> {
        &self.details
    }

    pub(super) fn set_priority_token(&self, token: u64) {
        self.priority_token.set(token);
    }

    pub(super) fn priority_token(&self) -> u64 {
        self.priority_token.get()
    }

    /// Adds a record to the read set.
    #[inline(always)]
    pub(super) fn note_record(&self, table: &Records, rid: Rid, key: &[u8]) {
        if self.mode.notes() {
            self.reads().note_point(RecordsRef::new(table), rid, key);
        }
    }

    /// Adds a projection of a record to the read set; `same` returns whether a value has the same
    /// one.
    pub(crate) fn note_part(&self, table: &Records, rid: Rid, key: &[u8], same: ProjectionCheck) {
        if self.mode.notes() {
            self.reads().note_part(RecordsRef::new(table), rid, key, same);
        }
    }

    /// Adds the absence of a key to the read set.
    #[inline(always)]
    pub(super) fn note_absence(&self, table: &Records, key: &[u8]) {
        if self.mode.notes() && !is_planted(Bug::AbsenceNotNoted) {
            self.reads().note_absent(RecordsRef::new(table), key);
        }
    }

    pub(super) fn copies(&self) -> &Copies {
        &self.context().copies
    }

    pub(super) fn joined(&self) -> &RefCell<SmallVec<[RecordsRef; 4]>> {
        &self.context().joined
    }

    pub(super) fn bulk_epochs(&self) -> &RefCell<SmallVec<[(TableId, u64); 2]>> {
        &self.context().bulk_epochs
    }

    pub(super) fn created(&self) -> &RefCell<Vec<Arc<Records>>> {
        &self.context().created
    }

    pub(super) fn undone_created(&self) -> &RefCell<Vec<Arc<Records>>> {
        &self.context().undone_created
    }

    pub(super) fn savepoints(&self) -> &Savepoints {
        &self.savepoints
    }

    /// Returns whether the transaction may use a table: it is published, this transaction created
    /// it, or it existed when the transaction began.
    #[inline(always)]
    pub(crate) fn may_use(&self, table: &Records) -> bool {
        table.may_be_used_by(self.name, self.begin())
    }

    /// The begin stamp: the transaction sees versions committed before this LSN, and its own. An
    /// extension may move it during any operation (`transaction/extend.rs`).
    pub(crate) fn begin(&self) -> Lsn {
        self.begin.get()
    }

    /// Number of extensions of the snapshot.
    pub(super) fn extensions(&self) -> u32 {
        self.extensions.get()
    }

    /// Moves the begin stamp to a later LSN, at which everything that the transaction read still
    /// holds.
    pub(super) fn begin_again(&self, begin: Lsn) {
        let context = self.context.as_ref().expect("an active transaction has a context");
        self.worker.extend(context.number, begin);
        self.begin.set(begin);
        self.extensions.set(self.extensions.get() + 1);
    }

    /// Returns whether the begin stamp has changed since it was `begin`.
    #[inline(always)]
    pub(super) fn has_moved_on_from(&self, begin: Lsn) -> bool {
        self.begin.get() != begin
    }

    /// Notes that an earlier attempt of the transaction failed.
    pub(crate) fn set_repeated(&self) {
        self.repeated.set(true);
    }

    pub(super) fn is_repeated(&self) -> bool {
        self.repeated.get()
    }

    pub(crate) fn view(&self) -> View<'_> {
        // SAFETY: the transaction is active while it is borrowed, because ending it takes it by
        // value.
        unsafe { View::new(self.begin.get(), self.name, &self.engine().status) }
    }

    /// The latest commit that any returned result depends on.
    pub(crate) fn depends_on(&self) -> Lsn {
        self.depends_on.get()
    }

    /// Returns the value that was seen, if any, and notes the commit it depends on, also for a
    /// deletion. Every result must pass through here.
    ///
    /// An absent record depends on nothing that a crash could undo: it was never committed before
    /// the snapshot, or its deletion was durable before it was reclaimed.
    #[inline(always)]
    pub(super) fn note<'a>(&self, seen: Option<SeenVersion<'a>>) -> Option<&'a [u8]> {
        let seen = seen?;
        let value = seen.value();
        if let Some(lsn) = seen.committed
            && (value.is_some() || !is_planted(Bug::TombstoneNotNoted))
        {
            self.note_lsn(lsn);
        }
        value
    }

    /// Notes that a result depends on the commit at `lsn`.
    #[inline(always)]
    pub(crate) fn note_lsn(&self, lsn: Lsn) {
        if lsn > self.depends_on.get() {
            self.depends_on.set(lsn);
        }
    }

    /// Caches the record id of a short key. The transaction saw the record, so the id stays valid
    /// while the transaction is active.
    #[inline(always)]
    pub(super) fn remember(&self, table: &Records, key: &[u8], rid: Rid) {
        if let Some(head) = short(key) {
            let table = RecordsRef::new(table);
            self.recent.set(Some(RecentRecord { table, head, bytes: key.len(), rid }));
        }
    }

    /// Clears the cached record id.
    pub(super) fn forget_recent(&self) {
        self.recent.set(None);
    }

    /// The record id of `key`, if it is the cached one.
    #[inline(always)]
    pub(super) fn recall(&self, table: &Records, key: &[u8]) -> Option<Rid> {
        let recent = self.recent.get()?;
        let same = recent.table == RecordsRef::new(table)
            && recent.bytes == key.len()
            && short(key) == Some(recent.head);
        same.then_some(recent.rid)
    }

    /// Notes that the transaction lost a conflict and must abort.
    pub(super) fn conflict(&self) -> OperationError {
        self.set_conflict(Conflict::Write);
        OperationError::Conflict(None)
    }

    /// As `conflict`, for a record that another transaction is writing.
    #[cold]
    pub(super) fn conflict_at(&self, table: &Records, key: &[u8]) -> OperationError {
        self.conflict_of(Conflict::Write, table, key)
    }

    /// As `conflict`, for a record that was written since the transaction began.
    #[cold]
    pub(super) fn conflict_with_newer(&self, table: &Records, key: &[u8]) -> OperationError {
        self.conflict_of(Conflict::NewerWrite, table, key)
    }

    fn conflict_of(&self, conflict: Conflict, table: &Records, key: &[u8]) -> OperationError {
        if self.conflict_met() == Conflict::None && self.reads().names_points() {
            self.note_conflict_record(table, key);
        }
        self.set_conflict(conflict);
        OperationError::Conflict(self.conflict_record())
    }

    /// Sets the reason why the transaction cannot commit, unless one is set.
    pub(super) fn set_conflict(&self, conflict: Conflict) {
        if self.conflict.get() == Conflict::None {
            self.conflict.set(conflict);
        }
    }

    pub(super) fn replace_conflict(&self, conflict: Conflict) {
        if conflict == Conflict::None {
            self.forget_conflict_record();
        }
        self.conflict.set(conflict);
    }

    pub(super) fn conflict_met(&self) -> Conflict {
        self.conflict.get()
    }

    /// Lets the transaction use the log space for deletions, because it prepares deletions.
    pub(crate) fn note_frees_space(&self) {
        self.frees_space.set(true);
    }

    pub(super) fn frees_space(&self) -> bool {
        self.frees_space.get()
    }

    /// Sets the cause that statistics count if the transaction aborts.
    pub(crate) fn set_abort_cause(&self, cause: AbortCause) {
        self.cause.set(cause);
    }

    /// Excludes the transaction from abort statistics.
    pub(super) fn leave_uncounted(&self) {
        self.is_counted.set(false);
    }

    pub(super) fn is_counted(&self) -> bool {
        self.is_counted.get()
    }

    pub(super) fn cause(&self) -> AbortCause {
        match self.conflict.get() {
            Conflict::None => self.cause.get(),
            Conflict::Write | Conflict::NewerWrite | Conflict::Bulk => AbortCause::Conflict,
            Conflict::SupersededRead => AbortCause::SupersededRead,
            Conflict::FullDisk => AbortCause::Log,
        }
    }

    /// Returns whether the transaction has not ended.
    pub(super) fn is_open(&self) -> bool {
        self.context.is_some()
    }

    /// The outcome, once it is decided.
    pub(super) fn outcome(&self) -> Option<DecidedOutcome> {
        self.outcome.get()
    }

    pub(super) fn set_outcome(&self, outcome: DecidedOutcome) {
        self.outcome.set(Some(outcome));
    }

    pub(super) fn take_context(&mut self) -> Option<Box<TransactionContext>> {
        sched::forget_step();
        self.context.take()
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
        // User code never owns a transaction. So a panic that unwinds through its owner is the
        // engine's, or follows one after which the engine has failed. Memory cannot be trusted
        // then, and nothing is undone: the context and everything its writes reference is leaked.
        if thread::panicking() || self.engine().failure.has_begun() {
            std::mem::forget(self.context.take());
            return;
        }
        if !self.abort_some()
            && let Some(context) = self.context.take()
        {
            self.worker.end_later(context);
        }
    }
}

/// Encodes a key of at most eight bytes as a number; number and length identify the key.
#[inline(always)]
fn short(key: &[u8]) -> Option<u64> {
    if let Ok(whole) = <[u8; 8]>::try_from(key) {
        return Some(u64::from_be_bytes(whole));
    }
    (key.len() < 8).then(|| {
        let mut padded = [0; 8];
        padded[..key.len()].copy_from_slice(key);
        u64::from_be_bytes(padded)
    })
}
