//! Taking back what aborted transactions wrote to pages that are not in memory: an abort does not wait, so it stamps its
//! changes, which nobody sees then, and leaves them to a task of the worker, which loads the pages.
//!
//! Invariant: a change on the list is stamped aborted, is its transaction's to retire, and is retired once, by who
//! takes it off the list. Tables of changes on the list are there: who drops one takes its changes off.
//! The first on the list is tried again until it is taken back, or its page cannot be had: so each has its turn, however
//! fast others come.

use std::time::{Duration, Instant};

use super::recent_commits::RecentChange;
use super::worker::WorkerTransactions;
use crate::page::{HeldPages, Needs};
use crate::record::{Records, RecordsRef};
use crate::sched::Job;
use crate::sync::clock;

/// After what time it is tried again, if a page could not be loaded.
const AGAIN: Duration = Duration::from_secs(1);

impl WorkerTransactions {
    /// Takes an aborted change back, at once if the record's page is in memory.
    ///
    /// # Safety
    /// The change is one of this worker's transactions, which stamped it aborted; it is given here once.
    pub(super) unsafe fn take_back(&self, table: RecordsRef, change: crate::page::ChangeRef) {
        let one = RecentChange::uncertified(table, change);
        // SAFETY: the caller's contract.
        if unsafe { !self.try_take_back(one) } {
            self.aborted.borrow_mut().push_back(one);
        }
    }

    /// Takes an aborted change back if the record's page is in memory.
    ///
    /// # Safety
    /// As above.
    unsafe fn try_take_back(&self, one: RecentChange) -> bool {
        let engine = self.engine();
        // SAFETY: tables live as long as the engine, or as the changes on the list, which are not retired yet.
        let (table, (_, key)) = unsafe { (one.table.get(), one.change.record()) };
        let paged = table.paged().expect("a write to a paged table");
        let Ok(untidy) = paged.roll_back(key, &engine.status) else { return false };
        if let Some(what) = untidy {
            self.have_tidied(one.table, key, what);
        }
        // SAFETY: stamped by its transaction and rolled back above, with the page latched; in no list any more.
        unsafe { one.change.retire_aborted(&engine.memory) };
        true
    }

    /// The task that takes changes back, if there are some, and it is not there; and when it is to be asked for
    /// again, if that is not now.
    pub(super) fn take_back_job(&self) -> (Option<Job>, Option<Instant>) {
        if self.aborted.borrow().is_empty() || self.taking_back.get() {
            return (None, None);
        }
        let at = self.take_back_at.get();
        if at.is_some_and(|at| clock::now() < at) {
            return (None, at);
        }
        self.taking_back.set(true);
        (Some(Box::new(|| Box::pin(take_all_back()))), None)
    }

    /// Takes the changes of a table off the list that is about to be dropped with all its pages, and is closed to all.
    pub(super) fn forget_aborted(&self, table: &Records) {
        let engine = self.engine();
        self.forget_untidy(table);
        self.aborted.borrow_mut().retain(|one| {
            let is_of_table = one.table == RecordsRef::new(table);
            if is_of_table {
                // SAFETY: stamped by its transaction; it leaves the list, which it was on once; the table was closed before.
                unsafe { one.change.retire_unrestored(&engine.status, &engine.memory) };
            }
            !is_of_table
        });
    }
}

async fn take_all_back() {
    let worker = WorkerTransactions::current();
    // What the first on the list needs at once, and what of it is there until it has been tried again.
    let mut there = None::<(Needs, HeldPages)>;
    loop {
        let Some(one) = worker.aborted.borrow_mut().pop_front() else { break };
        // SAFETY: it was on the list, so its table is there, and it is not retired.
        let interrupted = unsafe {
            let (table, (_, key)) = (one.table.get(), one.change.record());
            let paged = table.paged().expect("a write to a paged table");
            let rolled_back = paged.roll_back(key, &worker.engine().status);
            let needs = there.take().map(|(needs, _held)| needs);
            match rolled_back {
                Ok(untidy) => {
                    if let Some(what) = untidy {
                        worker.have_tidied(one.table, key, what);
                    }
                    None
                }
                Err(why) => Some(paged.mend(needs.unwrap_or_else(|| paged.needs()), why)),
            }
        };
        let Some(mended) = interrupted else {
            // SAFETY: stamped by its transaction and rolled back above, with the page latched; off the list.
            unsafe { one.change.retire_aborted(&worker.engine().memory) };
            continue;
        };
        // On the list while this waits: the table may be dropped.
        worker.aborted.borrow_mut().push_front(one);
        match mended.await {
            Ok(mended) => there = Some(mended),
            Err(error) => {
                // Others go first the next time: their pages may be there to be had.
                let mut aborted = worker.aborted.borrow_mut();
                if let Some(first) = aborted.pop_front() {
                    aborted.push_back(first);
                }
                tracing::warn!("what aborted transactions wrote is not taken back yet: {error}");
                worker.take_back_at.set(Some(clock::now() + AGAIN));
                break;
            }
        }
    }
    worker.taking_back.set(false);
}
