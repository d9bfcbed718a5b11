//! Status table: the state of every transaction that may have versions in flight.
//!
//! A worker owns a row of contexts, which take memory from their first use on. A context serves one
//! transaction after another. Its state word holds the sequence of the current transaction and that
//! transaction's phase:
//!
//! ```text
//! Active -> Committing -> Committed(lsn)
//!    \           \
//!     \-> Aborted <-/
//! ```
//!
//! Invariants:
//! - Only the owning worker writes a context.
//! - `Committing` is stored before the commit LSN is drawn, and the LSN is published immediately
//!   after. Before that, `commit` is [`NOT_DRAWN`] while the phase is `Committing`. A reader with a
//!   later begin stamp than that LSN read the log's tail after it was advanced, so it cannot still
//!   see `Active`.
//! - A context moves to its next sequence only after every version of the transaction has its final
//!   stamp. So a reader that finds an outdated name reads the version's stamp again.

use std::alloc::{Layout, handle_alloc_error};

use crossbeam_utils::CachePadded;

use super::stamp::{Stamp, TransactionName};
use crate::log::Lsn;
use crate::memory::{Reserved, Zero};
use crate::planted::{Bug, is_planted};
use crate::sync::atomic::{AtomicU64, Ordering};

const PHASE_BITS: u32 = 2;
const PHASE_MASK: u64 = (1 << PHASE_BITS) - 1;

/// Replaces the LSN of a committing transaction that has not drawn it: no log block has this LSN.
const NOT_DRAWN: u64 = u64::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
enum ContextPhase {
    /// Zero: sequence 0 has ended from the start. The first transaction has sequence 1.
    Aborted = 0,
    Active = 1,
    Committing = 2,
    Committed = 3,
}

impl ContextPhase {
    fn of(word: u64) -> Self {
        match word & PHASE_MASK {
            0 => Self::Aborted,
            1 => Self::Active,
            2 => Self::Committing,
            _ => Self::Committed,
        }
    }
}

/// State of a named transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TransactionStatus {
    /// Still running: its versions are invisible to others.
    Active,
    /// It commits at this LSN, unless its certification fails; `None` if the LSN is not published
    /// yet.
    Committing(Option<Lsn>),
    /// Committed at this LSN; its versions are being stamped.
    Committed(Lsn),
    /// Aborted; its versions are being unlinked.
    Aborted,
    /// Ended, and its versions are stamped: the caller must read the version's stamp again.
    Stale,
}

#[derive(Debug)]
struct ContextState {
    state: AtomicU64,
    commit: AtomicU64,
}

impl ContextState {
    /// Sets the phase of the transaction `name`, which is in the phase `from`, or already in `or`.
    #[inline(always)]
    fn set(&self, name: TransactionName, from: ContextPhase, or: ContextPhase, to: ContextPhase) {
        let word = |phase| name.sequence() << PHASE_BITS | phase as u64;
        // Relaxed: only this worker writes the word. Omitted in models: loom treats a load right
        // before a store as the only access that the store depends on, and tries no other order of
        // the two threads.
        #[cfg(not(loom))]
        {
            let now = self.state.load(Ordering::Relaxed);
            assert!(now == word(from) || now == word(or), "phases follow their order");
        }
        _ = (from, or);
        // Release pairs with the Acquire in `outcome`: a thread that sees the phase sees everything
        // before it.
        self.state.store(word(to), Ordering::Release);
    }
}

// SAFETY: two atomic words and padding, which zeros are values of; they need no drop.
unsafe impl Zero for CachePadded<ContextState> {
    #[cfg(loom)]
    fn zero() -> Self {
        Self::new(ContextState { state: AtomicU64::new(0), commit: AtomicU64::new(0) })
    }
}

/// Contexts of all workers.
#[derive(Debug)]
pub(crate) struct StatusTable {
    contexts: Reserved<CachePadded<ContextState>>,
    per_worker: usize,
}

impl StatusTable {
    pub(crate) fn new(workers: usize, per_worker: usize) -> Self {
        assert!(workers <= TransactionName::MAX_WORKERS);
        assert!(per_worker <= TransactionName::MAX_CONTEXTS);
        let count = workers * per_worker;
        let layout = Layout::array::<CachePadded<ContextState>>(count).expect("far less memory");
        let contexts = Reserved::new(count).unwrap_or_else(|_| handle_alloc_error(layout));
        // Few contexts are used: a huge page would take more memory than they do.
        contexts.keep_small(count);
        Self { contexts, per_worker }
    }

    /// Contexts of one worker.
    pub(crate) fn per_worker(&self) -> usize {
        self.per_worker
    }

    #[inline]
    fn context(&self, name: TransactionName) -> &ContextState {
        assert!(name.context() < self.per_worker);
        self.contexts.at(name.worker() * self.per_worker + name.context())
    }

    /// Starts the next transaction of a worker's context and names it.
    #[inline]
    pub(crate) fn begin(&self, worker: usize, context: usize) -> TransactionName {
        let unnumbered = TransactionName::new(worker, context, 0);
        let ContextState { state, commit } = self.context(unnumbered);
        // Relaxed: only this worker writes the word.
        let word = state.load(Ordering::Relaxed);
        let has_ended =
            matches!(ContextPhase::of(word), ContextPhase::Committed | ContextPhase::Aborted);
        assert!(has_ended, "the last transaction has ended");
        let name = TransactionName::new(worker, context, (word >> PHASE_BITS) + 1);
        if is_planted(Bug::CommitLsnClearedEarly) {
            // Release as in `committing`; too early, which is the bug.
            commit.store(0, Ordering::Release);
        }
        let word = name.sequence() << PHASE_BITS | ContextPhase::Active as u64;
        // Release pairs with the Acquire in `outcome`: a thread that finds the name outdated sees
        // its versions' final stamps, written before.
        state.store(word, Ordering::Release);
        name
    }

    /// Must be called before the commit LSN is drawn; the caller must not suspend until `committed`
    /// or `aborted`.
    #[inline]
    pub(crate) fn committing(&self, name: TransactionName) -> CommittingContext<'_> {
        let context = self.context(name);
        // Here and not earlier: until `begin` the LSN belongs to the last transaction. Release
        // pairs with the Acquire in `outcome`: a thread that sees no LSN sees the new sequence too.
        context.commit.store(NOT_DRAWN, Ordering::Release);
        context.set(name, ContextPhase::Active, ContextPhase::Active, ContextPhase::Committing);
        CommittingContext { context, name }
    }

    /// Sets the final state of a transaction that will never commit.
    #[inline]
    pub(crate) fn aborted(&self, name: TransactionName) {
        let (active, committing) = (ContextPhase::Active, ContextPhase::Committing);
        self.context(name).set(name, active, committing, ContextPhase::Aborted);
    }

    /// The state of the transaction `name`.
    pub(crate) fn outcome(&self, name: TransactionName) -> TransactionStatus {
        let context = self.context(name);
        // Acquire pairs with the Release stores above.
        let mut word = context.state.load(Ordering::Acquire);
        loop {
            if word >> PHASE_BITS != name.sequence() {
                return TransactionStatus::Stale;
            }
            let phase = ContextPhase::of(word);
            match phase {
                ContextPhase::Active => return TransactionStatus::Active,
                ContextPhase::Committing if is_planted(Bug::CommittingTakenForActive) => {
                    return TransactionStatus::Active;
                }
                ContextPhase::Aborted => return TransactionStatus::Aborted,
                ContextPhase::Committing | ContextPhase::Committed => {}
            }
            // Acquire pairs with the Release in `committing` and `drew`, and keeps the second load
            // of the state after it. The LSN belongs to `name` if the state still does: a thread
            // that sees a later transaction's LSN sees the `begin` before it.
            let lsn = context.commit.load(Ordering::Acquire);
            // Acquire as above, for the next round.
            let again = context.state.load(Ordering::Acquire);
            if again == word {
                let lsn = (lsn != NOT_DRAWN).then_some(Lsn(lsn));
                return match lsn {
                    Some(lsn) if phase == ContextPhase::Committed => {
                        TransactionStatus::Committed(lsn)
                    }
                    lsn => TransactionStatus::Committing(lsn),
                };
            }
            word = again;
        }
    }

    /// Visibility of a version with `stamp` at `begin`; `None` while it is undecided. `reload`
    /// reads the version's stamp again.
    #[inline(always)]
    pub(crate) fn visible(
        &self,
        stamp: Stamp,
        begin: Lsn,
        me: Option<TransactionName>,
        reload: impl Fn() -> Stamp,
    ) -> Option<Visibility> {
        match stamp.lsn() {
            Some(lsn) => {
                Some(if lsn < begin { Visibility::Committed(lsn) } else { Visibility::No })
            }
            None => self.visible_in_flight(stamp, begin, me, reload),
        }
    }

    fn visible_in_flight(
        &self,
        mut stamp: Stamp,
        begin: Lsn,
        me: Option<TransactionName>,
        reload: impl Fn() -> Stamp,
    ) -> Option<Visibility> {
        loop {
            let Some(name) = stamp.name() else {
                let lsn = stamp.lsn().expect("not in flight");
                return Some(if lsn < begin { Visibility::Committed(lsn) } else { Visibility::No });
            };
            if Some(name) == me {
                return Some(Visibility::Own);
            }
            match self.outcome(name) {
                TransactionStatus::Active | TransactionStatus::Aborted => {
                    return Some(Visibility::No);
                }
                // Invisible in every case.
                TransactionStatus::Committing(Some(lsn)) if lsn >= begin => {
                    return Some(Visibility::No);
                }
                TransactionStatus::Committing(_) => return None,
                TransactionStatus::Committed(lsn) if lsn < begin => {
                    return Some(Visibility::Committed(lsn));
                }
                TransactionStatus::Committed(_) => return Some(Visibility::No),
                TransactionStatus::Stale if is_planted(Bug::StaleNameNotLookedUpAgain) => {
                    return Some(Visibility::No);
                }
                TransactionStatus::Stale => stamp = reload(),
            }
        }
    }
}

/// The context of a transaction that commits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CommittingContext<'t> {
    context: &'t ContextState,
    name: TransactionName,
}

impl CommittingContext<'_> {
    /// Publishes the commit LSN of the transaction, which may still abort.
    #[inline]
    pub(crate) fn drew(self, lsn: Lsn) {
        // Release pairs with the Acquire in `outcome`.
        self.context.commit.store(lsn.0, Ordering::Release);
    }

    /// The point of commit: from here on the transaction's versions are visible.
    /// Its LSN was published by `drew`.
    #[inline]
    pub(crate) fn committed(self) {
        let committing = ContextPhase::Committing;
        self.context.set(self.name, committing, committing, ContextPhase::Committed);
    }
}

/// Visibility of a version, and the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Visibility {
    /// Invisible to this transaction; continue at the next older version.
    No,
    /// Written by this transaction itself.
    Own,
    /// Committed at this LSN, before the transaction began.
    Committed(Lsn),
}

#[cfg(all(test, target_os = "linux", not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn unused_contexts_take_no_memory() {
        let status = StatusTable::new(4, 1 << 14);
        assert_eq!(status.contexts.resident_bytes(), 0);
        for (worker, context) in (0..4).flat_map(|worker| (0..8).map(move |n| (worker, n))) {
            status.aborted(status.begin(worker, context));
        }
        // One system page of each worker, of up to 64 KiB.
        let resident = status.contexts.resident_bytes();
        assert!(resident <= 4 * (64 << 10), "{resident}");
    }
}
