//! State of a transaction: its snapshot, what its result depends on, and why it cannot commit.

use std::cell::{Cell, OnceCell, RefCell};
use std::sync::Arc;

use smallvec::SmallVec;

use super::counters::AbortCause;
use super::error::OperationError;
use super::isolation::TransactionMode;
use crate::log::Lsn;
use crate::planted::{Bug, is_planted};
use crate::record::{Copies, MemoryRecords, PagedRecords, Records, RecordsRef, SeenVersion};
use crate::rid::{Rid, TableId};
use crate::transaction::sets::read_set::{NamedKeys, ReadSet};
use crate::transaction::sets::savepoints::Savepoints;
use crate::transaction::sets::scan_lists::KeptScanLists;
use crate::transaction::sets::write_set::WriteSet;
use crate::version::TransactionName;

/// The reusable part of a transaction. A worker keeps unused contexts.
#[derive(Debug)]
pub(in crate::transaction) struct TransactionContext {
    /// Index of this context on its worker.
    pub(in crate::transaction) number: usize,
    pub(in crate::transaction) state: TransactionState,
    pub(in crate::transaction) reads: ReadSet,
    pub(in crate::transaction) scan_lists: KeptScanLists,
    /// Set by every access that may change the write set. While it is false, the set is empty.
    pub(in crate::transaction) is_written: Cell<bool>,
    pub(in crate::transaction) writes: RefCell<WriteSet>,
    /// Set by every access that may change one of the extras. While it is false, they are empty.
    pub(in crate::transaction) has_extras: Cell<bool>,
    pub(in crate::transaction) extras: ContextExtras,
}

/// Parts of a context that most transactions do not use.
#[derive(Debug, Default)]
pub(in crate::transaction) struct ContextExtras {
    /// Copies of values that were returned to the caller.
    pub(in crate::transaction) copies: Copies,
    /// Paged tables whose gates the transaction has joined.
    pub(in crate::transaction) joined: RefCell<SmallVec<[RecordsRef<PagedRecords>; 4]>>,
    /// The tables and epochs of a bulk operation. Separate from the write set, which may be
    /// borrowed when this is read.
    pub(in crate::transaction) bulk_epochs: RefCell<SmallVec<[(TableId, u64); 2]>>,
    /// Tables created by the transaction.
    pub(in crate::transaction) created: RefCell<Vec<Arc<Records>>>,
    /// Created tables that a rollback to a savepoint undid.
    pub(in crate::transaction) undone_created: RefCell<Vec<Arc<Records>>>,
}

impl TransactionContext {
    /// Creates a context without a transaction. `name` must be a sequence that already ended.
    pub(in crate::transaction) fn new(number: usize, name: TransactionName) -> Self {
        let (reads, scan_lists, is_written, writes, has_extras, extras) = Default::default();
        let state = TransactionState::new(name, Lsn::MAX, TransactionMode::ReadOnly);
        Self { number, state, reads, scan_lists, is_written, writes, has_extras, extras }
    }
}

/// The record that this transaction has just read; a write that follows need not search for it.
#[derive(Clone, Copy, Debug)]
struct RecentRecord {
    table: RecordsRef<MemoryRecords>,
    head: u64,
    bytes: usize,
    rid: Rid,
}

/// Reasons why a transaction cannot commit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::transaction) enum Conflict {
    #[default]
    None,
    /// Another transaction wrote first to a record that this one was to write.
    Write,
    /// As `Write`, but the other transaction had committed: the snapshot may be extended.
    NewerWrite,
    /// A bulk operation holds a table that this transaction was to write.
    Bulk,
    /// Another transaction changed what this one read, and this one writes.
    SupersededRead,
    /// The disk has no room for a page that this transaction needs, which has deleted at most.
    FullDisk,
}

/// Outcome of a transaction that is ending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::transaction) enum DecidedOutcome {
    /// Committed at this LSN: its versions are being stamped.
    Committed(Lsn),
    /// Its writes are being undone.
    Aborted,
    /// It ends without writes. Only versions that it replaced itself are left.
    ReadOnly,
}

/// The details that a transaction reports if it fails.
#[derive(Debug, Default)]
struct FailureDetails {
    /// The record of its conflict, if conflicts are to name their records.
    conflict_record: RefCell<Option<Box<NamedKeys>>>,
    /// The table of the bulk operation that refused it.
    bulk_met: OnceCell<(Arc<str>, TableId)>,
    /// The first record that it read in a superseded version.
    doomed_by: OnceCell<Box<NamedKeys>>,
    /// The error of an operation because of which the transaction cannot commit.
    failed: OnceCell<OperationError>,
    /// Number of operations of several steps that are not complete, and the error of the first.
    partial: Cell<u32>,
    partial_error: OnceCell<OperationError>,
}

/// Mutable state of an active transaction.
#[derive(Debug)]
pub(crate) struct TransactionState {
    name: TransactionName,
    begin: Cell<Lsn>,
    extensions: Cell<u32>,
    mode: TransactionMode,
    /// The transaction's time for expiring records; 0 until first used
    /// (`transaction/operations/expiry.rs`).
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
    /// False for internal and executed transactions, whose aborts statistics do not count.
    is_counted: Cell<bool>,
    /// Set if the write set keeps new values although nothing is logged.
    keeps_values: Cell<bool>,
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
            keeps_values: Cell::new(false),
            savepoints: Savepoints::default(),
            frees_space: Cell::new(false),
            priority_token: Cell::new(0),
            outcome: Cell::new(None),
        }
    }

    /// Makes it the state of a new transaction. Names every field, so that none is forgotten.
    #[inline]
    pub(in crate::transaction) fn reset(
        &mut self,
        name: TransactionName,
        begin: Lsn,
        mode: TransactionMode,
    ) {
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
            keeps_values,
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
        keeps_values.set(false);
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

impl TransactionState {
    pub(in crate::transaction) fn name(&self) -> TransactionName {
        self.name
    }

    pub(in crate::transaction) fn mode(&self) -> TransactionMode {
        self.mode
    }

    pub(in crate::transaction) fn time_taken(&self) -> &Cell<u64> {
        &self.time
    }

    /// Flag: an expiry decision used the time.
    pub(in crate::transaction) fn time_used(&self) -> &Cell<bool> {
        &self.time_used
    }

    /// Returns whether the transaction refuses writes.
    pub(crate) fn is_read_only(&self) -> bool {
        self.mode.is_read_only()
    }

    pub(super) fn set_priority_token(&self, token: u64) {
        self.priority_token.set(token);
    }

    pub(in crate::transaction) fn priority_token(&self) -> u64 {
        self.priority_token.get()
    }

    pub(in crate::transaction) fn savepoints(&self) -> &Savepoints {
        &self.savepoints
    }

    /// Returns whether the transaction may use a table: it is published, this transaction created
    /// it, or it existed when the transaction began.
    #[inline(always)]
    pub(crate) fn may_use(&self, table: &Records) -> bool {
        table.may_be_used_by(self.name, self.begin.get())
    }

    /// The begin stamp: the transaction sees versions committed before this LSN, and its own. An
    /// extension may move it during any operation (`transaction/validation/extend.rs`).
    pub(crate) fn begin(&self) -> Lsn {
        self.begin.get()
    }

    /// Number of extensions of the snapshot.
    pub(in crate::transaction) fn extensions(&self) -> u32 {
        self.extensions.get()
    }

    /// Moves the snapshot forward. Only for `begin_again`, which publishes the stamp first.
    pub(super) fn move_begin(&self, begin: Lsn) {
        self.begin.set(begin);
        self.extensions.set(self.extensions.get() + 1);
    }

    /// Returns whether the begin stamp has changed since it was `begin`.
    #[inline(always)]
    pub(in crate::transaction) fn has_moved_on_from(&self, begin: Lsn) -> bool {
        self.begin.get() != begin
    }

    /// Notes that an earlier attempt of the transaction failed.
    pub(crate) fn set_repeated(&self) {
        self.repeated.set(true);
    }

    pub(in crate::transaction) fn is_repeated(&self) -> bool {
        self.repeated.get()
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
    pub(in crate::transaction) fn note<'a>(
        &self,
        seen: Option<SeenVersion<'a>>,
    ) -> Option<&'a [u8]> {
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
    pub(in crate::transaction) fn remember(&self, table: &MemoryRecords, key: &[u8], rid: Rid) {
        if let Some(head) = short(key) {
            let table = RecordsRef::new(table);
            self.recent.set(Some(RecentRecord { table, head, bytes: key.len(), rid }));
        }
    }

    /// Clears the cached record id.
    pub(in crate::transaction) fn forget_recent(&self) {
        self.recent.set(None);
    }

    /// The record id of `key`, if it is the cached one.
    #[inline(always)]
    pub(in crate::transaction) fn recall(&self, table: &MemoryRecords, key: &[u8]) -> Option<Rid> {
        let recent = self.recent.get()?;
        let same = recent.table == RecordsRef::new(table)
            && recent.bytes == key.len()
            && short(key) == Some(recent.head);
        same.then_some(recent.rid)
    }

    /// Sets the reason why the transaction cannot commit, unless one is set.
    pub(in crate::transaction) fn set_conflict(&self, conflict: Conflict) {
        if self.conflict.get() == Conflict::None {
            self.conflict.set(conflict);
        }
    }

    pub(in crate::transaction) fn replace_conflict(&self, conflict: Conflict) {
        if conflict == Conflict::None {
            self.forget_conflict_record();
        }
        self.conflict.set(conflict);
    }

    pub(in crate::transaction) fn conflict_met(&self) -> Conflict {
        self.conflict.get()
    }

    /// Lets the transaction use the log space for deletions, because it prepares deletions.
    pub(crate) fn note_frees_space(&self) {
        self.frees_space.set(true);
    }

    pub(in crate::transaction) fn frees_space(&self) -> bool {
        self.frees_space.get()
    }

    /// Sets the cause that statistics count if the transaction aborts.
    pub(crate) fn set_abort_cause(&self, cause: AbortCause) {
        self.cause.set(cause);
    }

    /// Excludes the transaction from abort statistics.
    pub(in crate::transaction) fn leave_uncounted(&self) {
        self.is_counted.set(false);
    }

    /// Makes the write set keep new values although nothing is logged.
    pub(in crate::transaction) fn set_keeps_values(&self) {
        self.keeps_values.set(true);
    }

    pub(in crate::transaction) fn keeps_values(&self) -> bool {
        self.keeps_values.get()
    }

    pub(in crate::transaction) fn is_counted(&self) -> bool {
        self.is_counted.get()
    }

    pub(in crate::transaction) fn cause(&self) -> AbortCause {
        match self.conflict.get() {
            Conflict::None => self.cause.get(),
            Conflict::Write | Conflict::NewerWrite | Conflict::Bulk => AbortCause::Conflict,
            Conflict::SupersededRead => AbortCause::SupersededRead,
            Conflict::FullDisk => AbortCause::Log,
        }
    }

    /// The outcome, once it is decided.
    pub(in crate::transaction) fn outcome(&self) -> Option<DecidedOutcome> {
        self.outcome.get()
    }

    pub(in crate::transaction) fn set_outcome(&self, outcome: DecidedOutcome) {
        self.outcome.set(Some(outcome));
    }
}

impl TransactionState {
    #[cold]
    fn new_details(&self) -> &FailureDetails {
        self.details.get_or_init(Box::default)
    }

    /// The table of the bulk operation that refused the transaction, first `table`.
    pub(in crate::transaction) fn meet_bulk(&self, table: &Records) -> &(Arc<str>, TableId) {
        self.new_details().bulk_met.get_or_init(|| (table.name(), table.id))
    }

    /// The table of the bulk operation that refused the transaction.
    pub(in crate::transaction) fn bulk_met(&self) -> Option<&(Arc<str>, TableId)> {
        self.details.get()?.bulk_met.get()
    }

    /// The record of the conflict, if conflicts name their records.
    pub(in crate::transaction) fn conflict_record(&self) -> Option<Box<NamedKeys>> {
        self.details.get()?.conflict_record.borrow().clone()
    }

    /// Notes the first record that was read in a superseded version.
    pub(in crate::transaction) fn doom(&self, table: &Records, key: &[u8]) {
        let doomed_by = &self.new_details().doomed_by;
        doomed_by.get_or_init(|| Box::new(NamedKeys::record(table, key)));
    }

    /// The first record that was read in a superseded version.
    #[inline(always)]
    pub(in crate::transaction) fn doomed_by(&self) -> Option<&NamedKeys> {
        self.details.get()?.doomed_by.get().map(|record| &**record)
    }

    /// Notes that an operation failed such that the transaction must abort.
    pub(in crate::transaction) fn fail_halfway(&self, error: OperationError) -> OperationError {
        self.new_details().failed.get_or_init(|| error).clone()
    }

    /// The error of an operation that failed halfway, if any.
    pub(in crate::transaction) fn failed(&self) -> Option<&OperationError> {
        self.details.get()?.failed.get()
    }

    /// The error of an operation that failed halfway, or is not complete yet, if any: with it, a
    /// commit fails.
    pub(in crate::transaction) fn unfinished(&self) -> Option<&OperationError> {
        let details = self.details.get()?;
        let partial = || details.partial_error.get().filter(|_| details.partial.get() > 0);
        details.failed.get().or_else(partial)
    }

    /// Notes that an operation of several steps began.
    pub(super) fn begin_partial(&self, error: OperationError) {
        let details = self.new_details();
        details.partial.set(details.partial.get() + 1);
        details.partial_error.get_or_init(|| error);
    }

    /// Notes that an operation of several steps is complete.
    pub(super) fn complete_partial(&self) {
        let partial = &self.new_details().partial;
        partial.set(partial.get() - 1);
    }

    pub(super) fn note_conflict_record(&self, keys: NamedKeys) {
        self.new_details().conflict_record.replace(Some(Box::new(keys)));
    }

    pub(super) fn forget_conflict_record(&self) {
        if let Some(details) = self.details.get() {
            details.conflict_record.take();
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
