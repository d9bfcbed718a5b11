//! What is left to a transaction of its changes, once they are decided: committed ones are collected when they
//! are due, aborted ones retired when they are taken back.

use super::chain::{ChainRef, MAPPED};
use super::change::ChangeRef;
use crate::log::Lsn;
use crate::memory::MemoryCounters;
use crate::planted::{Bug, is_planted};
use crate::rid::TableId;
use crate::sync::atomic::Ordering;
use crate::version::StatusTable;

/// The chain of a change that was collected, which it keeps allocated.
#[derive(Debug)]
#[must_use]
pub(crate) struct LeftChain(ChainRef);

impl LeftChain {
    /// The key of the record, if the chain is in its page's mapping table, and has no changes: then it is to
    /// be taken out.
    pub(crate) fn key_if_empty(&self) -> Option<&[u8]> {
        // SAFETY: the reference that this is.
        let chain = unsafe { self.0.get() };
        // Relaxed: a hint; who takes it out looks under the page's latch.
        let mapped = chain.references().load(Ordering::Relaxed) & MAPPED != 0;
        (mapped && chain.is_empty()).then(|| chain.key())
    }

    /// Gives the chain up.
    ///
    /// # Safety
    /// It was allocated with these counters.
    pub(crate) unsafe fn release(self, memory: &MemoryCounters) {
        // SAFETY: the reference that this is.
        unsafe { self.0.release(memory) };
    }
}

/// What is left to its transaction of a change that is decided.
impl ChangeRef {
    /// The key of the record that was changed, and its table.
    ///
    /// # Safety
    /// The change is not retired for as long as `'a`.
    pub(crate) unsafe fn record<'a>(self) -> (TableId, &'a [u8]) {
        // SAFETY: the chain is there as long as the change is not retired.
        let chain = unsafe { self.get().chain().get() };
        (chain.table(), chain.key())
    }

    /// Cuts a committed change off its chain, and whatever else was committed before `horizon`, and retires it.
    /// What is left is its reference to the chain.
    ///
    /// # Safety
    /// The caller's transaction made it, with these counters, and committed it before `horizon`; everything
    /// before that is durable, and no begin stamp in use, now or later, is older. It is collected once.
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
        // SAFETY: cut off above, if not before; and who cut it off before has let go of the latch.
        unsafe { self.retire(memory) };
        LeftChain(chain)
    }

    /// As `collect`, when nobody uses the database any more: frees at once.
    ///
    /// # Safety
    /// The change is committed, was made with these counters, and is collected once; nobody else comes to the
    /// chain meanwhile, and no operation holds anything of it.
    pub(crate) unsafe fn collect_at_end(self, memory: &MemoryCounters) {
        // SAFETY: not freed before the end of this call.
        let chain = unsafe { self.get() }.chain();
        // SAFETY: the change's reference.
        unsafe { chain.get() }.cut(Lsn::MAX);
        // SAFETY: cut off.
        unsafe { self.free(memory) };
        // SAFETY: the change's reference.
        if unsafe { chain.take_back(1) } {
            // SAFETY: the last reference was taken back; it has no changes.
            unsafe { chain.free(memory) };
        }
    }

    /// Retires an aborted change.
    ///
    /// # Safety
    /// The caller's transaction made it, with these counters, and stamped it aborted; since then the chain was
    /// rolled back, by whomever, and the caller has had the page latched. It is retired once.
    pub(crate) unsafe fn retire_aborted(self, memory: &MemoryCounters) {
        // SAFETY: not retired before the end of this call.
        let chain = unsafe { self.get() }.chain();
        // SAFETY: the chain does not lead to it any more.
        unsafe { self.retire(memory) };
        // SAFETY: the change's reference.
        unsafe { chain.release(memory) };
    }

    /// As `retire_aborted`, of a change that is on no page any more that anybody looks at.
    ///
    /// # Safety
    /// The caller's transaction made it, with these counters, and stamped it aborted; the record's table never came
    /// to be, which was said before: whoever reads it still makes no use of what is on its pages. It is retired once.
    pub(crate) unsafe fn retire_unrestored(self, status: &StatusTable, memory: &MemoryCounters) {
        // SAFETY: the change's reference; nobody writes to the page, and who reads it goes by the chain, under a guard.
        unsafe { self.get().chain().get().roll_back(status, |_| {}) };
        // SAFETY: the caller's contract, and rolled back above.
        unsafe { self.retire_aborted(memory) };
    }

    /// The same, when nobody uses the database any more: frees at once.
    ///
    /// # Safety
    /// The change is stamped aborted, was made with these counters, and is freed once; nobody else comes to the chain
    /// meanwhile, and no operation holds anything of it.
    pub(crate) unsafe fn free_aborted_at_end(self, status: &StatusTable, memory: &MemoryCounters) {
        // SAFETY: not freed before the end of this call.
        let chain = unsafe { self.get() }.chain();
        // SAFETY: the change's reference; nobody looks at the page, or changes it.
        unsafe { chain.get().roll_back(status, |_| {}) };
        // SAFETY: taken out above, if not before.
        unsafe { self.free(memory) };
        // SAFETY: the change's reference.
        if unsafe { chain.take_back(1) } {
            // SAFETY: the last reference was taken back; it has no changes.
            unsafe { chain.free(memory) };
        }
    }
}
