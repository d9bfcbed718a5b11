//! Collection of decided changes by their transaction: committed changes when they are due, and
//! aborted ones after they are rolled back.

use super::chain::{ChainRef, MAPPED};
use super::change::ChangeRef;
use crate::log::Lsn;
use crate::memory::MemoryCounters;
use crate::planted::{Bug, is_planted};
use crate::rid::TableId;
use crate::sync::atomic::Ordering;
use crate::version::{BeginStamps, StatusTable};

/// Reference to the chain of a collected change, which keeps the chain allocated.
#[derive(Debug)]
#[must_use]
pub(crate) struct LeftChain(ChainRef);

impl LeftChain {
    /// Returns the record's key if the chain has no changes but is still in its page's mapping
    /// table. The caller then removes it from there.
    pub(crate) fn key_if_empty(&self) -> Option<&[u8]> {
        // SAFETY: this value is a reference to the chain.
        let chain = unsafe { self.0.get() };
        // Relaxed: a hint; the task that removes the chain checks under the page's latch.
        let mapped = chain.references().load(Ordering::Relaxed) & MAPPED != 0;
        (mapped && chain.is_empty()).then(|| chain.key())
    }

    /// Releases the chain.
    ///
    /// # Safety
    /// It was allocated with these counters.
    pub(crate) unsafe fn release(self, memory: &MemoryCounters) {
        // SAFETY: this value is a reference to the chain.
        unsafe { self.0.release(memory) };
    }
}

/// Operations of a transaction on its decided changes.
impl ChangeRef {
    /// Returns the table and the key of the changed record.
    ///
    /// # Safety
    /// The change is not retired for `'a`.
    pub(crate) unsafe fn record<'a>(self) -> (TableId, &'a [u8]) {
        // SAFETY: the chain exists as long as the change is not retired.
        let chain = unsafe { self.get().chain().get() };
        (chain.table(), chain.key())
    }

    /// Cuts a committed change off its chain, with everything else committed before `horizon`, and
    /// retires the change. Returns its reference to the chain.
    ///
    /// # Safety
    /// The caller's transaction made the change with these counters, and committed it before
    /// `horizon`. Everything before `horizon` is durable, and no begin stamp in use, now or later,
    /// is older. The change is collected once.
    pub(crate) unsafe fn collect(self, horizon: Lsn, memory: &MemoryCounters) -> LeftChain {
        // SAFETY: not retired before the end of this call.
        let (change, chain) = unsafe { (self.get(), self.get().chain()) };
        debug_assert!(change.stamp().lsn().is_some_and(|lsn| lsn < horizon), "it is due");
        if is_planted(Bug::CollectorRetiresAllItCuts)
            && let Some(next) = change.next()
        {
            // SAFETY: none: that is the bug.
            unsafe { next.retire(memory) };
        }
        // SAFETY: the change's reference.
        unsafe { chain.get() }.cut(horizon);
        // SAFETY: unlinked above or earlier; the task that unlinked it earlier has released the
        // chain's latch.
        unsafe { self.retire(memory) };
        LeftChain(chain)
    }

    /// Returns whether the change is pruned, so that `collect_pruned` may be called.
    ///
    /// # Safety
    /// The change is not retired before the end of this call.
    pub(crate) unsafe fn is_pruned(self) -> bool {
        // SAFETY: the caller's contract.
        unsafe { self.get() }.is_pruned()
    }

    /// Prunes the chain of a change: see `prune`. Returns the number of changes visited.
    ///
    /// # Safety
    /// The change is not retired before the end of this call.
    pub(crate) unsafe fn prune_chain(self, stamps: &BeginStamps, durable: Lsn) -> usize {
        // SAFETY: the chain exists as long as the change is not retired (the caller's contract).
        unsafe { self.get().chain().get() }.prune(stamps, durable)
    }

    /// Returns whether two changes belong to the same chain.
    ///
    /// # Safety
    /// Neither is retired before the end of this call.
    pub(crate) unsafe fn shares_chain(self, other: Self) -> bool {
        // SAFETY: the caller's contract.
        unsafe { self.get().chain() == other.get().chain() }
    }

    /// Retires a pruned change. Returns its reference to the chain.
    ///
    /// # Safety
    /// The caller's transaction made the change with these counters, it is pruned, and it is
    /// collected once.
    pub(crate) unsafe fn collect_pruned(self, memory: &MemoryCounters) -> LeftChain {
        // SAFETY: not retired before the end of this call.
        let chain = unsafe { self.get().chain() };
        if !is_planted(Bug::PrunedChangeRetiredEarly) {
            // SAFETY: the change, which is not retired yet, has a reference to the chain.
            let chain = unsafe { chain.get() };
            // Once the latch is taken, the task that pruned the change has unlinked it.
            drop(chain.latch());
        }
        // SAFETY: unlinked by the task that pruned it (above), and retired here only.
        unsafe { self.retire(memory) };
        LeftChain(chain)
    }

    /// Like `collect`, but frees the change immediately, when the database is no longer in use.
    ///
    /// # Safety
    /// The change is committed, was made with these counters, and is collected once. No other task
    /// accesses the chain during the call, and no operation holds any part of it.
    pub(crate) unsafe fn collect_at_end(self, memory: &MemoryCounters) {
        // SAFETY: not freed before the end of this call.
        let chain = unsafe { self.get() }.chain();
        // SAFETY: the change's reference.
        unsafe { chain.get() }.cut(Lsn::MAX);
        // SAFETY: unlinked above or earlier.
        unsafe { self.free(memory) };
        // SAFETY: the change's reference.
        if unsafe { chain.release_reference(1) } {
            // SAFETY: the last reference was released; the chain has no changes.
            unsafe { chain.free(memory) };
        }
    }

    /// Returns whether an aborted change is unlinked from its chain.
    ///
    /// # Safety
    /// The change is aborted, and not retired before the end of this call.
    pub(crate) unsafe fn is_rolled_back(self, status: &StatusTable) -> bool {
        // Aborted changes are at the head: if the head is not aborted, all of them are unlinked.
        // SAFETY: the change's reference.
        let chain = unsafe { self.get().chain().get() };
        // A chain that is empty without its latch was emptied by a task that has released it.
        chain.is_empty() || !chain.has_aborted(status)
    }

    /// Retires an aborted change.
    ///
    /// # Safety
    /// The caller's transaction made the change with these counters, and stamped it aborted. Since
    /// then any task has rolled back the chain, and has released the chain's latch. The change is
    /// retired once.
    pub(crate) unsafe fn retire_aborted(self, memory: &MemoryCounters) {
        // SAFETY: not retired before the end of this call.
        let chain = unsafe { self.get() }.chain();
        // SAFETY: the change is unlinked from its chain.
        unsafe { self.retire(memory) };
        // SAFETY: the change's reference.
        unsafe { chain.release(memory) };
    }

    /// Like `retire_aborted`, for a change on a page whose contents are no longer read.
    ///
    /// # Safety
    /// The caller's transaction made the change with these counters, and stamped it aborted. The
    /// record's table was never published, and that was announced before: a reader that is still
    /// active does not use the contents of its pages. The change is retired once.
    pub(crate) unsafe fn retire_unrestored(self, status: &StatusTable, memory: &MemoryCounters) {
        // SAFETY: the change's reference; no task writes to the page, and a reader of it follows
        // the chain under a guard.
        unsafe { self.get().chain().get().roll_back(status, |_| {}) };
        // SAFETY: the caller's contract, and rolled back above.
        unsafe { self.retire_aborted(memory) };
    }

    /// Like `retire_unrestored`, but frees the change immediately, when the database is no longer
    /// in use.
    ///
    /// # Safety
    /// The change is stamped aborted, was made with these counters, and is freed once. No other
    /// task accesses the chain during the call, and no operation holds any part of it.
    pub(crate) unsafe fn free_aborted_at_end(self, status: &StatusTable, memory: &MemoryCounters) {
        // SAFETY: not freed before the end of this call.
        let chain = unsafe { self.get() }.chain();
        // SAFETY: the change's reference; no task reads or writes the page.
        unsafe { chain.get().roll_back(status, |_| {}) };
        // SAFETY: unlinked above or earlier.
        unsafe { self.free(memory) };
        // SAFETY: the change's reference.
        if unsafe { chain.release_reference(1) } {
            // SAFETY: the last reference was released; the chain has no changes.
            unsafe { chain.free(memory) };
        }
    }
}
