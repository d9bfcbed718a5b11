//! A worker's share of the transaction machinery: contexts, begin stamps, garbage, waiters.
//!
//! Everything here belongs to one thread. Invariant: the worker's published stamp is not later than the
//! begin stamp of any of its active transactions.

use std::cell::{Cell, Ref, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use smallvec::SmallVec;

use super::begin_stamps::Begins;
use super::context::{Transaction, TransactionContext};
use super::counters::WorkerCounters;
use super::durable::CommitQueue;
use super::engine::Engine;
use super::evict::MemoryWatch;
use super::garbage::GarbageList;
use super::isolation::Mode;
use super::large::Discarded;
use super::leaf_cleanup::UntidyLeaf;
use super::page_share::PageWatch;
use super::reading::Reads;
use super::recent_commits::RecentChange;
use super::timers::Timers;
use crate::log::Lsn;
use crate::record::RecordsRef;
use crate::sched::Waiter;
use crate::version::TransactionName;

thread_local! {
    static CURRENT: RefCell<Option<Rc<WorkerTransactions>>> = const { RefCell::new(None) };
}

/// One worker's transactions.
pub(crate) struct WorkerTransactions {
    engine: Arc<Engine>,
    number: usize,
    #[expect(clippy::vec_box, reason = "a transaction takes its context by the box")]
    free: RefCell<Vec<Box<TransactionContext>>>,
    begins: RefCell<Begins>,
    /// Contexts kept for transactions between two attempts.
    pub(super) kept: Cell<usize>,
    /// Interactive transactions that are open.
    pub(super) interactive: Cell<usize>,
    pub(super) garbage: RefCell<GarbageList>,
    /// Commits to paged tables whose changes are to be collected.
    pub(super) commits_waiting: Cell<usize>,
    /// Changes of aborted transactions that are to be taken back, as their pages were not in memory; whether a task does
    /// it; and when it is to be tried again.
    pub(super) aborted: RefCell<VecDeque<RecentChange>>,
    pub(super) taking_back: Cell<bool>,
    pub(super) take_back_at: Cell<Option<Instant>>,
    /// Large values that are to be removed from their pages; whether a task does it; and when it is to be tried again.
    pub(super) discarded: RefCell<VecDeque<Discarded>>,
    pub(super) discarding: Cell<bool>,
    pub(super) discard_at: Cell<Option<Instant>>,
    /// Leaves to which something is to be done by who can wait for pages; whether a task does it; and when it is to be tried again.
    pub(super) untidy: RefCell<VecDeque<UntidyLeaf>>,
    pub(super) tidying: Cell<bool>,
    pub(super) tidy_at: Cell<Option<Instant>>,
    pub(super) commits: RefCell<CommitQueue>,
    pub(super) reads: Rc<Reads>,
    /// Turns of housekeeping so far.
    pub(super) turns: Cell<u32>,
    pub(super) memory: MemoryWatch,
    pub(super) pages: PageWatch,
    /// Tasks that wait until the transactions of a moment are over.
    pub(super) grace_period_waiters: RefCell<Vec<(Lsn, Waiter)>>,
    pub(crate) timers: Timers,
}

impl std::fmt::Debug for WorkerTransactions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "WorkerTransactions({})", self.number)
    }
}

/// Every context of the worker is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoContext;

impl WorkerTransactions {
    /// Makes this thread the home of a worker's transactions.
    pub(super) fn install(engine: Arc<Engine>, number: usize) -> Rc<Self> {
        engine.readers.wake(number, engine.log.tail());
        engine.horizon.wake(number, engine.log.tail());
        let reads = Reads::new(engine.most_read_bytes(), engine.memory.clone());
        let worker = Rc::new(Self {
            engine,
            number,
            free: RefCell::default(),
            begins: RefCell::default(),
            kept: Cell::new(0),
            interactive: Cell::new(0),
            garbage: RefCell::default(),
            commits_waiting: Cell::new(0),
            aborted: RefCell::default(),
            taking_back: Cell::new(false),
            take_back_at: Cell::new(None),
            discarded: RefCell::default(),
            discarding: Cell::new(false),
            discard_at: Cell::new(None),
            untidy: RefCell::default(),
            tidying: Cell::new(false),
            tidy_at: Cell::new(None),
            commits: RefCell::default(),
            reads,
            turns: Cell::new(0),
            memory: MemoryWatch::default(),
            pages: PageWatch::default(),
            grace_period_waiters: RefCell::default(),
            timers: Timers::default(),
        });
        CURRENT.with(|current| {
            let before = current.borrow_mut().replace(worker.clone());
            assert!(before.is_none(), "a thread is one worker");
        });
        worker
    }

    /// Undoes `install`.
    pub(super) fn uninstall(&self) {
        assert_eq!(self.active(), 0, "no transaction outlives its worker");
        CURRENT.with(|current| current.borrow_mut().take());
    }

    /// The worker whose thread this is.
    ///
    /// # Panics
    /// On any other thread: transactions run on workers only.
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

    /// Transactions that have begun and are not over.
    pub(super) fn active(&self) -> usize {
        self.begins.borrow().active()
    }

    /// Begins a transaction of the engine's own; that it is aborted is not counted.
    ///
    /// # Errors
    /// When every context is in use.
    pub(crate) fn begin(self: &Rc<Self>) -> Result<Transaction, NoContext> {
        let transaction = self.begin_as(Mode::Snapshot)?;
        transaction.leave_uncounted();
        Ok(transaction)
    }

    /// Begins a transaction.
    ///
    /// # Errors
    /// When every context is in use.
    pub(crate) fn begin_as(self: &Rc<Self>, mode: Mode) -> Result<Transaction, NoContext> {
        let mode = match mode {
            _ if self.engine.read_only => Mode::ReadOnly,
            #[cfg(feature = "experiment")]
            mode if self.engine.certifies_by_safety_net() => mode.under_safety_net(),
            mode => mode,
        };
        let context = self.take_context()?;
        let name = self.engine.status.begin(self.number, context.number);
        // The worker's published stamp, an earlier tail, bounds this one from below.
        let begin = self.engine.log.tail();
        self.begins.borrow_mut().begin(context.number, begin);
        Ok(Transaction::new(self.clone(), context, name, begin, mode))
    }

    pub(super) fn most_contexts(&self) -> usize {
        self.engine.status.per_worker()
    }

    fn take_context(&self) -> Result<Box<TransactionContext>, NoContext> {
        if self.active() + self.kept.get() >= self.most_contexts() {
            return Err(NoContext);
        }
        if let Some(context) = self.free.borrow_mut().pop() {
            return Ok(context);
        }
        let mut begins = self.begins.borrow_mut();
        assert!(begins.contexts() < self.most_contexts(), "contexts not in use are free");
        let number = begins.add_context();
        let name = TransactionName::new(self.number, number, 0);
        Ok(Box::new(TransactionContext::new(number, name)))
    }

    /// A transaction is over: it writes none of these paged tables any more.
    fn leave_gates(&self, joined: &mut SmallVec<[RecordsRef; 4]>) {
        for table in joined.drain(..) {
            // SAFETY: tables live as long as the engine; one that the transaction created in vain is retired, and not
            // freed as long as this thread does not turn.
            let paged = unsafe { table.get() }.paged().expect("only paged tables are joined");
            paged.bulk().gate.leave(self.number);
        }
    }

    /// Ends a transaction: its begin stamp holds nothing back any more.
    pub(super) fn end(&self, mut context: Box<TransactionContext>) {
        context.writes.get_mut().clear(&self.engine.memory);
        if !context.joined.get_mut().is_empty() {
            self.leave_gates(context.joined.get_mut());
        }
        if !context.bulk_epochs.get_mut().is_empty() {
            context.bulk_epochs.get_mut().clear();
        }
        context.reads.clear();
        assert!(context.created.get_mut().is_empty(), "opened by the commit, or taken back");
        assert!(context.undone_created.get_mut().is_empty(), "dropped when the transaction ended");
        context.copies.free(&self.engine.memory);
        self.begins.borrow_mut().end(context.number);
        self.free.borrow_mut().push(context);
    }

    /// The transaction of a context goes on with a later begin stamp.
    pub(super) fn extend(&self, context: usize, begin: Lsn) {
        self.begins.borrow_mut().extend(context, begin);
    }

    /// The begin stamps of the worker's active transactions.
    pub(super) fn begins(&self) -> Ref<'_, Begins> {
        self.begins.borrow()
    }

    /// The begin stamp of the worker's oldest active transaction.
    pub(super) fn oldest_begin(&self) -> Option<Lsn> {
        self.begins.borrow().oldest()
    }
}
