//! Tables with marks of bulk operations on their pages, to be swept.
//!
//! Invariant: a table is listed from the decision of its epoch until the epoch is settled and no
//! pass is pending.

use std::sync::Arc;
use std::time::Instant;

use crate::log::Lsn;
use crate::page::PagedTable;
use crate::record::PagedRecords;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Mutex, clock};

/// A table with marks.
#[derive(Debug)]
pub(in crate::transaction) struct MarkedTable {
    pub(in crate::transaction) table: Arc<PagedRecords>,
    /// True if a pass over the pages is needed. Marks of new records do no harm.
    has_pass: bool,
    not_before: Option<Instant>,
}

/// The tables with marks to sweep.
#[derive(Debug, Default)]
pub(in crate::transaction) struct BulkSweeps {
    listed: Mutex<Vec<MarkedTable>>,
    any: AtomicBool,
    pub(in crate::transaction) in_progress: AtomicBool,
}

impl BulkSweeps {
    /// Lists a table whose newest epoch was just decided.
    pub(in crate::transaction) fn expect(&self, table: Arc<PagedRecords>, has_pass: bool) {
        let mut listed = self.listed.lock();
        match listed.iter_mut().find(|one| Arc::ptr_eq(&one.table, &table)) {
            // The pending pass removes these marks too.
            Some(one) => one.has_pass |= has_pass,
            None => listed.push(MarkedTable { table, has_pass, not_before: None }),
        }
        // Release pairs with the Acquire in `is_waiting`, which every worker calls at each turn.
        self.any.store(true, Ordering::Release);
    }

    /// Returns whether tables are listed.
    pub(in crate::transaction) fn is_waiting(&self) -> bool {
        // Acquire pairs with the Release in `expect`.
        self.any.load(Ordering::Acquire)
    }

    /// Lists a table again whose pass failed, until a later time.
    pub(in crate::transaction) fn retry_later(&self, mut table: MarkedTable, at: Instant) {
        table.not_before = Some(at);
        self.listed.lock().push(table);
        // Release: as in `expect`.
        self.any.store(true, Ordering::Release);
    }

    /// Takes the next table that needs a pass now. Settles and unlists tables that need none.
    /// Commits before `horizon` are durable and visible to every snapshot.
    pub(in crate::transaction) fn take(&self, horizon: Lsn) -> Option<MarkedTable> {
        let mut listed = self.listed.lock();
        listed.retain(|one| one.has_pass || !settle_if_due(one.table.pages(), horizon));
        let is_due = |one: &MarkedTable| {
            let now = one.not_before.is_none_or(|at| at <= clock::now());
            let paged = one.table.pages();
            let is_aborted = paged.bulk().epochs.aborted().is_some();
            now && (is_aborted || settle_if_due(paged, horizon))
        };
        let due = listed.iter().position(is_due);
        let taken = due.map(|position| listed.swap_remove(position));
        if listed.is_empty() {
            // Release: as in `expect`, under the lock.
            self.any.store(false, Ordering::Release);
        }
        taken
    }
}

/// Settles the newest epoch of a table if it was committed before `horizon`, so that every snapshot
/// sees it. Returns whether the epoch is settled.
fn settle_if_due(paged: &PagedTable, horizon: Lsn) -> bool {
    let epochs = &paged.bulk().epochs;
    let Some((epoch, stamp)) = epochs.newest() else { return true };
    let is_due = stamp.lsn().is_some_and(|lsn| lsn < horizon);
    if is_due {
        epochs.settle(epoch);
    }
    is_due
}
