//! A transaction: its place on a worker, its snapshot, what it read and wrote.

use std::cell::{Cell, OnceCell, RefCell};
use std::ops::Deref;
use std::rc::Rc;
use std::sync::Arc;

use smallvec::SmallVec;

use super::abort::Savepoints;
use super::counters::AbortCause;
use super::doomed::Conflict;
use super::engine::Engine;
use super::error::OperationError;
use super::isolation::Mode;
use super::read_set::{NamedKeys, ReadSet, SamePart};
use super::worker::WorkerTransactions;
use super::write_set::WriteSet;
use crate::log::Lsn;
use crate::planted::{Bug, is_planted};
use crate::record::{Copies, Records, RecordsRef, Seen};
use crate::rid::{Rid, TableId};
use crate::sync::thread;
use crate::version::{TransactionName, View};

/// The reusable part of a transaction; a worker keeps those that are not in use.
#[derive(Debug)]
pub(super) struct TransactionContext {
    /// Which of the worker's contexts this is.
    pub(super) number: usize,
    state: State,
    pub(super) writes: RefCell<WriteSet>,
    pub(super) reads: ReadSet,
    /// Values that it was handed.
    pub(super) copies: Copies,
    /// Paged tables whose gates it has joined.
    pub(super) joined: RefCell<SmallVec<[RecordsRef; 4]>>,
    /// Tables of the bulk operation that it is, and their epochs. Beside the write set, which may be borrowed by who asks.
    pub(super) bulk_epochs: RefCell<SmallVec<[(TableId, u64); 2]>>,
    /// Tables it created.
    pub(super) created: RefCell<Vec<Arc<Records>>>,
    /// Those of them that a rollback to a savepoint took back.
    pub(super) undone_created: RefCell<Vec<Arc<Records>>>,
}

impl TransactionContext {
    /// A context that has had no transaction yet. `name` names none: its sequence is over from the start.
    pub(super) fn new(number: usize, name: TransactionName) -> Self {
        let (writes, reads, copies, joined, bulk_epochs) = Default::default();
        let (created, undone_created) = Default::default();
        let state = State::new(name, Lsn::MAX, Mode::ReadOnly);
        Self { number, state, writes, reads, copies, joined, bulk_epochs, created, undone_created }
    }
}

/// A record this transaction has just read, so that the write that follows need not search again.
#[derive(Clone, Copy, Debug)]
struct Recent {
    table: RecordsRef,
    head: u64,
    bytes: usize,
    rid: Rid,
}

/// An active transaction. It lives and dies on one worker's thread; dropping it aborts it.
///
/// Invariants: while it exists, its first begin stamp, and the last, keep every superseded version it may see
/// allocated. A
/// `RefCell` of it is never borrowed across a suspension.
///
/// It moves from one future to the next, so all it has is in its context, which stays where it is.
#[derive(Debug)]
pub(crate) struct Transaction {
    worker: Rc<WorkerTransactions>,
    /// Present until the transaction is over.
    context: Option<Box<TransactionContext>>,
}

/// What is known of a transaction as it goes on.
#[derive(Debug)]
pub(crate) struct State {
    name: TransactionName,
    begin: Cell<Lsn>,
    extensions: Cell<u32>,
    mode: Mode,
    /// The time for it, where records expire; 0 as long as it has not asked (`transaction/expiry.rs`).
    time: Cell<u64>,
    /// Whether anything was judged by it.
    time_used: Cell<bool>,
    /// The latest commit that anything it was told depends on: a value or a deletion that it saw, or
    /// what a write of its own was installed on or refused for.
    depends_on: Cell<Lsn>,
    recent: Cell<Option<Recent>>,
    /// Whether an earlier attempt at it failed.
    repeated: Cell<bool>,
    conflict: Cell<Conflict>,
    /// The record of that conflict, if it is to be told.
    conflict_record: RefCell<Option<Box<NamedKeys>>>,
    /// The table of a bulk operation that refused it.
    bulk_met: OnceCell<(Arc<str>, TableId)>,
    /// The first record that it was told of although another had changed it.
    stale: OnceCell<Box<NamedKeys>>,
    cause: Cell<AbortCause>,
    /// Whether statistics count that it is aborted: those of the engine's own are nobody's.
    is_counted: Cell<bool>,
    savepoints: Savepoints,
    /// The token of the turnstile, if it was taken for this transaction, else 0.
    turnstile: Cell<u64>,
    /// What an operation failed of halfway: then the transaction cannot commit.
    failed: OnceCell<OperationError>,
}

impl State {
    fn new(name: TransactionName, begin: Lsn, mode: Mode) -> Self {
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
            conflict_record: RefCell::default(),
            bulk_met: OnceCell::new(),
            stale: OnceCell::new(),
            cause: Cell::new(AbortCause::Dropped),
            is_counted: Cell::new(true),
            savepoints: Savepoints::default(),
            turnstile: Cell::new(0),
            failed: OnceCell::new(),
        }
    }
}

impl Deref for Transaction {
    type Target = State;

    #[inline(always)]
    fn deref(&self) -> &State {
        &self.context().state
    }
}

impl Transaction {
    #[inline]
    pub(super) fn new(
        worker: Rc<WorkerTransactions>,
        mut context: Box<TransactionContext>,
        name: TransactionName,
        begin: Lsn,
        mode: Mode,
    ) -> Self {
        context.state = State::new(name, begin, mode);
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

    pub(super) fn mode(&self) -> Mode {
        self.mode
    }

    pub(super) fn time_taken(&self) -> &Cell<u64> {
        &self.time
    }

    /// Whether anything was judged by the time.
    pub(super) fn time_used(&self) -> &Cell<bool> {
        &self.time_used
    }

    /// Whether it refuses to write.
    pub(crate) fn is_read_only(&self) -> bool {
        self.mode.is_read_only()
    }

    /// What it read, as far as that was noted.
    pub(super) fn reads(&self) -> &ReadSet {
        &self.context().reads
    }

    /// Forgets the copies of values that were handed out; nobody has one, as this borrows exclusively.
    pub(crate) fn free_copies(&mut self) {
        let context = self.context.as_mut().expect("an active transaction has a context");
        context.copies.free(&self.worker.engine().memory);
    }

    /// Conflicts and failed certifications are to tell their records: what it reads is noted by name.
    pub(crate) fn name_conflicts(&self) {
        self.reads().name_points(true);
    }

    pub(super) fn set_turnstile(&self, token: u64) {
        self.turnstile.set(token);
    }

    pub(super) fn turnstile(&self) -> u64 {
        self.turnstile.get()
    }

    /// Notes that the transaction was told of a record.
    #[inline(always)]
    pub(super) fn note_record(&self, table: &Records, rid: Rid, key: &[u8]) {
        if self.mode.notes() {
            self.reads().note_point(RecordsRef::new(table), rid, key);
        }
    }

    /// Notes that the transaction was told a part of a record; `same` tells whether a value has the same.
    pub(crate) fn note_part(&self, table: &Records, rid: Rid, key: &[u8], same: SamePart) {
        if self.mode.notes() {
            self.reads().note_part(RecordsRef::new(table), rid, key, same);
        }
    }

    /// Notes that the transaction was told that a key has no record.
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

    /// The table of a bulk operation that refused it.
    pub(super) fn bulk_met(&self) -> &OnceCell<(Arc<str>, TableId)> {
        &self.bulk_met
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

    /// Whether the transaction may use a table: it exists for everybody, for its creator, or did when the
    /// transaction began.
    #[inline(always)]
    pub(crate) fn may_use(&self, table: &Records) -> bool {
        table.may_be_used_by(self.name, self.begin())
    }

    /// What the transaction sees: versions committed before this LSN, and its own. It may become a later
    /// one whenever an operation of the transaction is under way (`transaction/extend.rs`).
    pub(crate) fn begin(&self) -> Lsn {
        self.begin.get()
    }

    /// How often the begin stamp was moved.
    pub(super) fn extensions(&self) -> u32 {
        self.extensions.get()
    }

    /// Moves the begin stamp to a later one, at which all that the transaction was told holds.
    pub(super) fn begin_again(&self, begin: Lsn) {
        let context = self.context.as_ref().expect("an active transaction has a context");
        self.worker.extend(context.number, begin);
        self.begin.set(begin);
        self.extensions.set(self.extensions.get() + 1);
    }

    /// Whether the transaction has another begin stamp by now.
    #[inline(always)]
    pub(super) fn has_moved_on_from(&self, begin: Lsn) -> bool {
        self.begin.get() != begin
    }

    /// Notes that an earlier attempt at the transaction failed.
    pub(crate) fn set_repeated(&self) {
        self.repeated.set(true);
    }

    pub(super) fn is_repeated(&self) -> bool {
        self.repeated.get()
    }

    pub(crate) fn view(&self) -> View<'_> {
        // SAFETY: it is active as long as it is borrowed: ending it takes it.
        unsafe { View::new(self.begin.get(), self.name, &self.engine().status) }
    }

    /// The latest commit that anything it was told depends on.
    pub(crate) fn depends_on(&self) -> Lsn {
        self.depends_on.get()
    }

    /// The value of what was seen, if it is one; notes what it depends on, of a deletion too. Nothing
    /// that was seen is to be told without this.
    ///
    /// A record of which nothing was seen depends on nothing that a crash could undo: it was never
    /// committed before the snapshot, or its deletion was durable before it was reclaimed.
    pub(super) fn note<'a>(&self, seen: Option<Seen<'a>>) -> Option<&'a [u8]> {
        let seen = seen?;
        let value = seen.value();
        if let Some(lsn) = seen.committed
            && (value.is_some() || !is_planted(Bug::TombstoneNotNoted))
        {
            self.note_lsn(lsn);
        }
        value
    }

    /// Notes that what the transaction tells depends on the commit at `lsn`.
    pub(crate) fn note_lsn(&self, lsn: Lsn) {
        if lsn > self.depends_on.get() {
            self.depends_on.set(lsn);
        }
    }

    /// Remembers the record behind a short key. The transaction saw it, so its id stays its own
    /// for as long as the transaction is active.
    pub(super) fn remember(&self, table: &Records, key: &[u8], rid: Rid) {
        if let Some(head) = short(key) {
            let table = RecordsRef::new(table);
            self.recent.set(Some(Recent { table, head, bytes: key.len(), rid }));
        }
    }

    /// Forgets the record that was remembered.
    pub(super) fn forget_recent(&self) {
        self.recent.set(None);
    }

    /// The record behind `key`, if it is the one just remembered.
    pub(super) fn recall(&self, table: &Records, key: &[u8]) -> Option<Rid> {
        let recent = self.recent.get()?;
        let same = recent.table == RecordsRef::new(table)
            && recent.bytes == key.len()
            && short(key) == Some(recent.head);
        same.then_some(recent.rid)
    }

    /// Notes that the transaction lost against another one, and must abort.
    pub(super) fn conflict(&self) -> OperationError {
        self.set_conflict(Conflict::Write);
        OperationError::Conflict(None)
    }

    /// As `conflict`, for a record that another one is writing.
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
            *self.conflict_record.borrow_mut() = Some(Box::new(NamedKeys::record(table, key)));
        }
        self.set_conflict(conflict);
        OperationError::Conflict(self.conflict_record())
    }

    /// The record that the transaction met a conflict at, if that is to be told.
    pub(super) fn conflict_record(&self) -> Option<Box<NamedKeys>> {
        self.conflict_record.borrow().clone()
    }

    /// Notes what keeps the transaction from committing, unless something does already.
    pub(super) fn set_conflict(&self, conflict: Conflict) {
        if self.conflict.get() == Conflict::None {
            self.conflict.set(conflict);
        }
    }

    pub(super) fn replace_conflict(&self, conflict: Conflict) {
        if conflict == Conflict::None {
            self.conflict_record.take();
        }
        self.conflict.set(conflict);
    }

    pub(super) fn conflict_met(&self) -> Conflict {
        self.conflict.get()
    }

    pub(super) fn stale(&self) -> &OnceCell<Box<NamedKeys>> {
        &self.stale
    }

    /// Notes that an operation failed halfway, so that the transaction must abort.
    pub(super) fn fail_halfway(&self, error: OperationError) -> OperationError {
        self.failed.get_or_init(|| error).clone()
    }

    /// What an operation failed of halfway, if one did.
    pub(super) fn failed(&self) -> Option<OperationError> {
        self.failed.get().cloned()
    }

    /// Says what to count the abort as, should it come to that.
    pub(crate) fn set_abort_cause(&self, cause: AbortCause) {
        self.cause.set(cause);
    }

    /// Says that statistics do not count it, if it is aborted.
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
            Conflict::StaleRead => AbortCause::StaleRead,
        }
    }

    pub(super) fn take_context(&mut self) -> Option<Box<TransactionContext>> {
        self.context.take()
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        if self.context.is_none() {
            return;
        }
        // No user's code owns a transaction, so a panic that unwinds through its owner is the
        // engine's, as is any after which the engine has failed. Then what is in memory is not to be
        // trusted, and nothing is taken back: the context, and what its writes lead to, is leaked.
        if thread::panicking() || self.engine().failure.has_begun() {
            std::mem::forget(self.context.take());
            return;
        }
        self.abort_now();
    }
}

/// A key of at most eight bytes as a number; with its length it stands for the key.
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
