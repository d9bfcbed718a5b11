//! A worker's transaction state: contexts, begin stamps, garbage and waiters.
//!
//! All of it belongs to one thread. Invariant: the worker's published stamp is not later than the
//! begin stamp of any of its active transactions.

use std::cell::{Cell, Ref, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use smallvec::SmallVec;

use super::begin_stamps::Begins;
use super::counters::WorkerCounters;
use super::engine::Engine;
use super::transaction_state::{ContextExtras, TransactionContext};
use crate::log::Lsn;
use crate::page::{LargeRef, LargeValues, PagedTable};
use crate::record::{PagedRecords, RecordsRef};
use crate::transaction::memory::garbage::GarbageList;
use crate::transaction::memory::memory_watch::MemoryWatch;
use crate::transaction::memory::page_share::PageWatch;
use crate::transaction::memory::recent_commits::RecentChange;
use crate::transaction::schedule::deferred_work::{DeferredWork, DiscardedValue, LeafCleanup};
use crate::transaction::schedule::ordered_admission::OrderedAdmission;
use crate::transaction::schedule::timers::Timers;
use crate::transaction::schedule::waiters::{CommitQueue, GracePeriodWaiter, LargeWrites};
use crate::version::TransactionName;

thread_local! {
    static CURRENT: RefCell<Option<Rc<WorkerTransactions>>> = const { RefCell::new(None) };
}

/// The transactions of one worker.
pub(crate) struct WorkerTransactions {
    engine: Arc<Engine>,
    number: usize,
    pub(in crate::transaction) contexts: RefCell<Contexts>,
    /// Number of contexts reserved for transactions between two attempts.
    pub(in crate::transaction) kept: Cell<usize>,
    /// Number of open interactive transactions.
    pub(in crate::transaction) interactive: Cell<usize>,
    /// Transactions that were dropped while they ended: some of their writes are not yet stamped
    /// (after a commit) or undone (after an abort).
    pub(in crate::transaction) ending: RefCell<VecDeque<Box<TransactionContext>>>,
    pub(in crate::transaction) garbage: RefCell<GarbageList>,
    /// Number of commits to paged tables whose changes are not collected yet.
    pub(in crate::transaction) commits_waiting: Cell<usize>,
    /// Deferred rollbacks: changes of aborted transactions on pages that were not resident.
    pub(in crate::transaction) aborted: DeferredWork<RecentChange>,
    /// Large values to remove from their pages.
    pub(in crate::transaction) discarded: DeferredWork<DiscardedValue>,
    /// Leaves to clean up.
    pub(in crate::transaction) cleanup: DeferredWork<LeafCleanup>,
    pub(in crate::transaction) commits: RefCell<CommitQueue>,
    /// Reads from the log and from zones.
    pub(in crate::transaction) reads: Rc<OrderedAdmission>,
    pub(in crate::transaction) large_writes: LargeWrites,
    /// Number of housekeeping turns so far.
    pub(in crate::transaction) turns: Cell<u32>,
    pub(in crate::transaction) memory: MemoryWatch,
    pub(in crate::transaction) pages: PageWatch,
    /// Tasks that wait until all transactions active at an LSN have ended.
    pub(in crate::transaction) grace_period_waiters: RefCell<Vec<GracePeriodWaiter>>,
    pub(crate) timers: Timers,
}

/// The contexts of one worker.
#[derive(Default)]
pub(in crate::transaction) struct Contexts {
    #[expect(clippy::vec_box, reason = "a transaction takes its context by the box")]
    free: Vec<Box<TransactionContext>>,
    pub(in crate::transaction) begins: Begins,
}

impl std::fmt::Debug for WorkerTransactions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "WorkerTransactions({})", self.number)
    }
}

/// Error: every context of the worker is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoContext;

impl WorkerTransactions {
    /// Makes this thread run a worker's transactions.
    pub(in crate::transaction) fn install(engine: Arc<Engine>, number: usize) -> Rc<Self> {
        engine.readers.wake(number, engine.log.tail());
        engine.horizon.wake(number, engine.log.tail());
        let worker = Self::new(engine, number);
        CURRENT.with(|current| {
            let before = current.borrow_mut().replace(worker.clone());
            assert!(before.is_none(), "a thread is one worker");
        });
        worker
    }

    /// Creates the state of a worker, or of guests that write.
    pub(in crate::transaction) fn new(engine: Arc<Engine>, number: usize) -> Rc<Self> {
        let reads = OrderedAdmission::new(engine.max_read_bytes(), engine.memory.clone());
        Rc::new(Self {
            engine,
            number,
            contexts: RefCell::default(),
            kept: Cell::new(0),
            interactive: Cell::new(0),
            ending: RefCell::default(),
            garbage: RefCell::default(),
            commits_waiting: Cell::new(0),
            aborted: DeferredWork::default(),
            discarded: DeferredWork::default(),
            cleanup: DeferredWork::default(),
            commits: RefCell::default(),
            reads,
            large_writes: LargeWrites::default(),
            turns: Cell::new(0),
            memory: MemoryWatch::default(),
            pages: PageWatch::default(),
            grace_period_waiters: RefCell::default(),
            timers: Timers::default(),
        })
    }

    /// Undoes `install`.
    pub(in crate::transaction) fn uninstall(&self) {
        assert_eq!(self.active(), 0, "no transaction outlives its worker");
        CURRENT.with(|current| current.borrow_mut().take());
    }

    /// The worker of the current thread.
    ///
    /// # Panics
    /// Panics on any other thread: transactions run only on workers.
    #[inline]
    pub(crate) fn current() -> Rc<Self> {
        let worker = CURRENT.with(|current| current.borrow().clone());
        worker.expect("transactions begin on a worker's thread")
    }

    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    pub(crate) fn number(&self) -> usize {
        self.number
    }

    pub(crate) fn counters(&self) -> &WorkerCounters {
        &self.engine.counters[self.number]
    }

    /// Number of active transactions.
    pub(in crate::transaction) fn active(&self) -> usize {
        self.contexts.borrow().begins.active()
    }

    pub(super) fn max_contexts(&self) -> usize {
        self.engine.status.per_worker()
    }

    /// Takes a context that no transaction uses.
    ///
    /// # Errors
    /// `NoContext` if every context is in use.
    pub(in crate::transaction) fn take_context(
        &self,
        contexts: &mut Contexts,
    ) -> Result<Box<TransactionContext>, NoContext> {
        let Contexts { free, begins } = contexts;
        if begins.active() + self.kept.get() >= self.max_contexts() {
            return Err(NoContext);
        }
        if let Some(context) = free.pop() {
            return Ok(context);
        }
        assert!(begins.contexts() < self.max_contexts(), "contexts not in use are free");
        let number = begins.add_context();
        let name = TransactionName::new(self.number, number, 0);
        Ok(Box::new(TransactionContext::new(number, name)))
    }

    /// Leaves the gates of paged tables that an ended transaction had joined.
    fn leave_gates(&self, joined: &mut SmallVec<[RecordsRef<PagedRecords>; 4]>) {
        for table in joined.drain(..) {
            // SAFETY: tables that an ending transaction has used exist. A table whose creation is
            // rolled back is retired, and not freed before this thread's next turn.
            unsafe { table.get() }.pages().bulk().gate.leave(self.number);
        }
    }

    /// Ends a transaction: its begin stamp no longer bounds the horizon.
    #[inline(always)]
    pub(in crate::transaction) fn end(&self, mut context: Box<TransactionContext>) {
        context.writes.get_mut().clear(&self.engine.memory);
        context.is_written.set(false);
        context.reads.clear();
        if context.has_extras.replace(false) {
            self.empty(&mut context.extras);
        }
        self.end_empty(context);
    }

    #[inline(never)]
    fn empty(&self, extras: &mut ContextExtras) {
        self.leave_gates(extras.joined.get_mut());
        extras.bulk_epochs.get_mut().clear();
        assert!(extras.created.get_mut().is_empty(), "opened by the commit, or rolled back");
        assert!(extras.undone_created.get_mut().is_empty(), "dropped when the transaction ended");
        extras.copies.free(&self.engine.memory);
    }

    /// Does what `end` does, for a transaction without contents other than a read set.
    #[inline(always)]
    pub(in crate::transaction) fn end_untouched(&self, mut context: Box<TransactionContext>) {
        let is_touched = context.is_written.get() || context.has_extras.get();
        assert!(!is_touched, "its parts are empty");
        context.reads.clear();
        self.end_empty(context);
    }

    #[inline(always)]
    fn end_empty(&self, context: Box<TransactionContext>) {
        let contexts = &mut *self.contexts.borrow_mut();
        contexts.begins.end(context.number);
        contexts.free.push(context);
    }

    /// Moves a context's transaction to a later begin stamp.
    pub(in crate::transaction) fn extend(&self, context: usize, begin: Lsn) {
        self.contexts.borrow_mut().begins.extend(context, begin);
    }

    /// The begin stamps of the worker's active transactions.
    pub(in crate::transaction) fn begins(&self) -> Ref<'_, Begins> {
        Ref::map(self.contexts.borrow(), |contexts| &contexts.begins)
    }

    /// The begin stamp of the worker's oldest active transaction.
    pub(in crate::transaction) fn oldest_begin(&self) -> Option<Lsn> {
        self.contexts.borrow().begins.oldest()
    }

    /// Queues a large value of a table for removal, as `discard` does.
    pub(in crate::transaction) fn discard_of(&self, table: &PagedRecords, large: LargeRef) {
        let values = table.pages().large().expect("the table stores large values");
        self.discard(values.clone(), large);
    }

    /// Queues a value for removal of its pieces; no snapshot can see it any more.
    pub(in crate::transaction) fn discard(&self, values: Arc<LargeValues>, large: LargeRef) {
        values.note_unowned(large);
        self.discarded.queue.borrow_mut().push_back((values, large));
    }

    /// Removes the pieces of large values that are queued for removal; no snapshot sees them any
    /// more.
    #[inline]
    pub(in crate::transaction) fn discard_queued_for_removal(&self, paged: &PagedTable) {
        let Some(values) = paged.large() else { return };
        for large in values.take_removal_queue() {
            self.discard(values.clone(), large);
        }
    }
}
