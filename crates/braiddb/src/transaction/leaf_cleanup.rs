//! What is left on pages when nobody needs it any more, and has to be loaded to be taken away: leaves on which next to nothing
//! is, chains of pages whose way is not in memory, and the pages of tables that are gone. Who leaves it does not wait; a
//! task of the worker does.
//!
//! It does one thing after the other, and gives way to others in between, the less often the more waits for it. It does
//! nothing while the database closes, when what is on pages goes with it, and nothing where pages cannot be written, as on a
//! full disk: what it loads needs room.
//!
//! Invariant: tables of leaves on the list are there: who drops one takes its leaves off. The first on the list is tried again
//! until it is done, or a page cannot be had.

use std::time::{Duration, Instant};

use super::worker::WorkerTransactions;
use crate::page::{HeldPages, Needs, PageError, Untidy};
use crate::record::{Records, RecordsRef};
use crate::sched::{self, Cause, Job};
use crate::sync::clock;
use crate::types::KeyBuffer;

/// After what time it is tried again, if a page could not be loaded, or written.
const AGAIN: Duration = Duration::from_secs(1);
/// Leaves that are done without giving way to others, at most.
const MAX_CONCURRENT: usize = 16;

/// The leaf of a key of a table.
#[derive(Debug)]
pub(super) struct UntidyLeaf {
    table: RecordsRef,
    key: KeyBuffer,
    what: Untidy,
}

impl WorkerTransactions {
    /// Has done to the leaf of a key what is to be done there.
    pub(super) fn have_tidied(&self, table: RecordsRef, key: &[u8], what: Untidy) {
        let mut copy = KeyBuffer::new();
        copy.extend_from_slice(key);
        self.untidy.borrow_mut().push_back(UntidyLeaf { table, key: copy, what });
    }

    /// Takes the leaves of a table off the list that is about to be dropped.
    pub(super) fn forget_untidy(&self, table: &Records) {
        self.untidy.borrow_mut().retain(|one| one.table != RecordsRef::new(table));
    }

    /// The task that does it, if there is something to do, and it is not there; and when it is to be asked for again, if
    /// that is not now.
    pub(super) fn tidy_job(&self) -> (Option<Job>, Option<Instant>) {
        let engine = self.engine();
        let Some(pages) = engine.pages().filter(|_| !engine.checkpoints.stopping()) else {
            return (None, None);
        };
        let is_due = !self.untidy.borrow().is_empty() || pages.has_to_free();
        if !is_due || self.tidying.get() {
            return (None, None);
        }
        let at = self.tidy_at.get();
        if at.is_some_and(|at| clock::now() < at) {
            return (None, at);
        }
        if pages.has_failed_lately() {
            let at = Some(clock::now() + AGAIN);
            self.tidy_at.set(at);
            return (None, at);
        }
        self.tidying.set(true);
        (Some(Box::new(|| Box::pin(tidy_all()))), None)
    }
}

async fn tidy_all() {
    let worker = WorkerTransactions::current();
    if let Err(error) = try_tidy_all(&worker).await {
        // Others go first the next time: their pages may be there to be had.
        let mut untidy = worker.untidy.borrow_mut();
        if let Some(first) = untidy.pop_front() {
            untidy.push_back(first);
        }
        tracing::warn!("pages on which nothing is are not taken away yet: {error}");
        worker.tidy_at.set(Some(clock::now() + AGAIN));
    }
    worker.tidying.set(false);
}

async fn try_tidy_all(worker: &WorkerTransactions) -> Result<(), PageError> {
    let is_stopping = || worker.engine().checkpoints.stopping();
    if let Some(pages) = worker.engine().pages() {
        pages.free_left(is_stopping).await?;
    }
    // What the first on the list needs at once, and what of it is there until it has been tried again.
    let (mut there, mut done) = (None::<(Needs, HeldPages)>, 0);
    while !is_stopping() {
        let Some(mut one) = worker.untidy.borrow_mut().pop_front() else { break };
        let mended = {
            // SAFETY: it was on the list, so its table is there.
            let table = unsafe { one.table.get() };
            let paged = table.paged().expect("a leaf of a paged table");
            let tidied = paged.tidy_leaf(&one.key, &mut one.what);
            let needs = there.take().map(|(needs, _held)| needs);
            match tidied {
                Ok(()) => None,
                Err(why) => Some(paged.mend(needs.unwrap_or_else(|| paged.needs_to_tidy()), why)),
            }
        };
        let Some(mended) = mended else {
            done += 1;
            let waiting = worker.untidy.borrow().len();
            if done % (1 + waiting.min(MAX_CONCURRENT - 1)) == 0 {
                sched::yield_now(Cause::Memory).await;
            }
            continue;
        };
        // On the list while this waits: the table may be dropped.
        worker.untidy.borrow_mut().push_front(one);
        there = Some(mended.await?);
    }
    Ok(())
}
