//! Background cleanup of pages that must be loaded first: nearly empty leaves, chains of pages
//! whose path is not resident, and the pages of dropped trees. The transaction that leaves them
//! does not wait; a task of the worker cleans up.
//!
//! The task handles one item at a time and yields in between; the longer its queue, the less often
//! it yields. It pauses while the database closes, when page contents are discarded, and while
//! pages cannot be written, such as on a full disk, because loading pages needs room.
//!
//! Invariant: tables of queued leaves exist. A table counts its queued leaves, so a dropped one is
//! not freed before; a table whose creation is rolled back dequeues its leaves. The first in the
//! queue is retried until it is done or a page cannot be loaded.

use std::time::Instant;

use crate::page::{HeldPages, PageError, PageNeeds, PendingCleanup};
use crate::record::{PagedRecords, RecordsRef};
use crate::sched::{self, Job, WaitCause};
use crate::transaction::context::worker::WorkerTransactions;
use crate::transaction::schedule::deferred_work::LeafCleanup;
use crate::types::KeyBuffer;

/// Maximum number of leaves processed without a yield.
const MAX_CONCURRENT: usize = 16;

impl WorkerTransactions {
    /// Queues the leaf of a key for cleanup.
    pub(in crate::transaction) fn enqueue_leaf_cleanup(
        &self,
        table: &PagedRecords,
        key: &[u8],
        what: PendingCleanup,
    ) {
        let mut copy = KeyBuffer::new();
        copy.extend_from_slice(key);
        table.count_listed();
        let table = RecordsRef::new(table);
        self.cleanup.queue.borrow_mut().push_back(LeafCleanup { table, key: copy, what });
    }

    /// Dequeues the leaves of a table that is about to be freed, because its creation was rolled
    /// back.
    pub(super) fn forget_leaf_cleanups(&self, table: &PagedRecords) {
        self.cleanup.queue.borrow_mut().retain(|one| one.table != RecordsRef::new(table));
    }

    /// The cleanup task, if it is needed and not running. Also returns when to ask again, if it is
    /// not due yet.
    pub(in crate::transaction) fn leaf_cleanup_job(&self) -> (Option<Job>, Option<Instant>) {
        let engine = self.engine();
        let Some(pages) = engine.pages().filter(|_| !engine.checkpoints.stopping()) else {
            return (None, None);
        };
        let is_due = !self.cleanup.queue.borrow().is_empty() || pages.has_to_free();
        let ended = engine.checkpoints.ended();
        if let Err(at) = self.cleanup.start(is_due, ended) {
            return (None, at);
        }
        if pages.has_failed_lately() {
            self.cleanup.end();
            return (None, Some(self.cleanup.retry_later(ended)));
        }
        (Some(Box::new(|| Box::pin(clean_up_leaves()))), None)
    }
}

async fn clean_up_leaves() {
    let worker = WorkerTransactions::current();
    if let Err(error) = try_clean_up_leaves(&worker).await {
        tracing::warn!("cannot clean up pages yet, will retry: {error}");
        worker.cleanup.retry_others_first(worker.engine().checkpoints.ended());
    }
    worker.cleanup.end();
}

async fn try_clean_up_leaves(worker: &WorkerTransactions) -> Result<(), PageError> {
    let is_stopping = || worker.engine().checkpoints.stopping();
    if let Some(pages) = worker.engine().pages() {
        pages.free_left(is_stopping).await?;
    }
    // Pages that the first in the queue needs resident; they are held until it has been retried.
    let (mut there, mut done) = (None::<(PageNeeds, HeldPages)>, 0);
    while !is_stopping() {
        let is_empty = worker.cleanup.queue.borrow().is_empty();
        // No page is held during this wait. The first in the queue was admitted if it has pages.
        if there.is_none() && !is_empty {
            worker
                .admit_own_page_changes(worker.cleanup.may_request_checkpoint(), "merge pages of")
                .await?;
        }
        if is_stopping() {
            break;
        }
        let Some(mut one) = worker.cleanup.queue.borrow_mut().pop_front() else { break };
        let mended = {
            // SAFETY: it was queued, so its table exists.
            let table = unsafe { one.table.get() };
            let paged = table.pages();
            let tidied = paged.clean_up_leaf(&one.key, &mut one.what);
            let needs = there.take().map(|(needs, _held)| needs);
            match tidied {
                Ok(()) => {
                    table.uncount_listed();
                    None
                }
                Err(why) => Some(paged.mend(needs.unwrap_or_else(|| paged.cleanup_needs()), why)),
            }
        };
        let Some(mended) = mended else {
            done += 1;
            let waiting = worker.cleanup.queue.borrow().len();
            if done % (1 + waiting.min(MAX_CONCURRENT - 1)) == 0 {
                sched::yield_now(WaitCause::Memory).await;
            }
            continue;
        };
        // Queued while this waits, because the table's creation may be rolled back.
        worker.cleanup.queue.borrow_mut().push_front(one);
        there = Some(mended.await?);
    }
    Ok(())
}
