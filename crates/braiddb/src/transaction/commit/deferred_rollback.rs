//! Deferred rollback of aborted writes on pages that are not resident. An abort does not wait. It
//! stamps its changes as aborted, so no reader sees them, and queues them for a task of the worker
//! that loads the pages.
//!
//! Invariant: a queued change is stamped aborted, may be retired only by its transaction's worker,
//! and is retired once, by the code that dequeues it. Tables of queued changes exist. A table counts
//! its queued changes, so a dropped one is not freed before; a table whose creation is rolled back
//! dequeues its changes. The first change is retried until it is rolled back or its page cannot be
//! loaded, so new changes cannot starve it.

use std::time::Instant;

use crate::page::{HeldPages, Interrupted, PageNeeds};
use crate::record::{PagedRecords, RecordsRef};
use crate::sched::{self, Job};
use crate::transaction::context::worker::WorkerTransactions;
use crate::transaction::memory::recent_commits::RecentChange;

/// Steps that the rollback of one change counts.
const STEPS_PER_CHANGE: u32 = 8;

impl WorkerTransactions {
    /// Rolls back an aborted change: immediately if the record's page is resident, else queued.
    ///
    /// # Safety
    /// A transaction of this worker wrote the change and stamped it aborted; it is passed here
    /// once.
    pub(in crate::transaction) unsafe fn roll_back(
        &self,
        table: RecordsRef<PagedRecords>,
        change: crate::page::ChangeRef,
    ) {
        let one = RecentChange::uncertified(table, change);
        // SAFETY: the contract of this function.
        if unsafe { self.try_roll_back(one) }.is_err() {
            // SAFETY: the caller's transaction has written the table and has not ended.
            unsafe { table.get() }.count_listed();
            self.aborted.queue.borrow_mut().push_back(one);
        }
    }

    /// Rolls back an aborted change if the record's page is resident, or the visit of another change
    /// has unlinked it.
    ///
    /// # Safety
    /// A transaction of this worker wrote the change and stamped it aborted.
    unsafe fn try_roll_back(&self, one: RecentChange) -> Result<(), Interrupted> {
        let engine = self.engine();
        // SAFETY: the contract of this function.
        if unsafe { one.change.is_rolled_back(&engine.status) } {
            // SAFETY: stamped by its transaction, and unlinked; in no list any more.
            unsafe { one.change.retire_aborted(&engine.memory) };
            return Ok(());
        }
        // SAFETY: tables that an ending transaction has used, and those of queued changes,
        // exist; the change is not retired yet.
        let (table, (_, key)) = unsafe { (one.table.get(), one.change.record()) };
        if let Some(what) = table.pages().roll_back(key, &engine.status)? {
            self.enqueue_leaf_cleanup(table, key, what);
        }
        // SAFETY: stamped by its transaction and rolled back above, with the page latched; in no
        // list any more.
        unsafe { one.change.retire_aborted(&engine.memory) };
        Ok(())
    }

    /// The task that rolls back queued changes, if it is needed and not running. Also returns when
    /// to ask again, if it is not due yet.
    pub(in crate::transaction) fn deferred_rollback_job(&self) -> (Option<Job>, Option<Instant>) {
        let is_needed = !self.aborted.queue.borrow().is_empty();
        match self.aborted.start(is_needed, self.engine().checkpoints.ended()) {
            Ok(()) => (Some(Box::new(|| Box::pin(roll_back_all()))), None),
            Err(at) => (None, at),
        }
    }

    /// Dequeues the changes of a table that is closed to all and about to be freed with its pages,
    /// because its creation was rolled back.
    pub(super) fn forget_aborted(&self, table: &PagedRecords) {
        let engine = self.engine();
        self.forget_leaf_cleanups(table);
        self.aborted.queue.borrow_mut().retain(|one| {
            let is_of_table = one.table == RecordsRef::new(table);
            if is_of_table {
                // SAFETY: stamped by its transaction; it leaves the queue, which held it once; the
                // table was closed before.
                unsafe { one.change.retire_unrestored(&engine.status, &engine.memory) };
            }
            !is_of_table
        });
    }
}

async fn roll_back_all() {
    let worker = WorkerTransactions::current();
    // Pages that the first queued change needs resident; they are held until it has been retried.
    let mut there = None::<(PageNeeds, HeldPages)>;
    loop {
        let Some(one) = worker.aborted.queue.borrow_mut().pop_front() else { break };
        // SAFETY: it was queued, so its table exists, and it is stamped and not retired.
        let (table, tried) = unsafe { (one.table.get(), worker.try_roll_back(one)) };
        let needs = there.take().map(|(needs, _held)| needs);
        let Err(why) = tried else {
            table.uncount_listed();
            sched::count_steps(STEPS_PER_CHANGE).await;
            continue;
        };
        let paged = table.pages();
        let mended = paged.mend(needs.unwrap_or_else(|| paged.needs()), why);
        // Queued while this waits, because the table's creation may be rolled back.
        worker.aborted.queue.borrow_mut().push_front(one);
        match mended.await {
            Ok(mended) => there = Some(mended),
            Err(error) => {
                tracing::warn!(
                    "cannot roll back writes of aborted transactions yet, will retry: {error}"
                );
                worker.aborted.retry_others_first(worker.engine().checkpoints.ended());
                break;
            }
        }
    }
    worker.aborted.end();
}
