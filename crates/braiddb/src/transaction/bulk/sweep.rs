//! Sweeps: a worker's task removes the marks of bulk operations from pages. Marks of an aborted
//! operation are removed immediately. Marks of a committed one are removed once it is durable and
//! visible to every snapshot.
//!
//! Invariant: a table is listed from the decision of its epoch until the epoch is settled and no
//! pass is pending.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::log::Lsn;
use crate::page::{PagedTable, SweepPosition};
use crate::record::Records;
use crate::sched::{self, Job, WaitCause};
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Mutex, clock};
use crate::transaction::engine::Engine;
use crate::transaction::worker::WorkerTransactions;

/// Delay before the next attempt after a page could not be loaded.
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// Number of leaves that a task processes before it yields.
const LEAVES_PER_STEP: u32 = 4;

/// A table with marks.
#[derive(Debug)]
struct MarkedTable {
    table: Arc<Records>,
    /// True if a pass over the pages is needed. Marks of new records do no harm.
    has_pass: bool,
    not_before: Option<Instant>,
}

impl MarkedTable {
    fn paged(&self) -> &PagedTable {
        self.table.paged().expect("bulk operations are on paged tables")
    }
}

/// The tables with marks to sweep.
#[derive(Debug, Default)]
pub(in crate::transaction) struct BulkSweeps {
    listed: Mutex<Vec<MarkedTable>>,
    any: AtomicBool,
    in_progress: AtomicBool,
}

impl BulkSweeps {
    /// Lists a table whose newest epoch was just decided.
    pub(super) fn expect(&self, table: Arc<Records>, has_pass: bool) {
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

    /// Takes the next table that needs a pass now. Settles and unlists tables that need none.
    fn take(&self, engine: &Engine) -> Option<MarkedTable> {
        let horizon = engine.horizon.oldest(engine.log.tail()).min(engine.log.durable());
        let mut listed = self.listed.lock();
        listed.retain(|one| one.has_pass || !settle_if_due(one.paged(), horizon));
        let is_due = |one: &MarkedTable| {
            let now = one.not_before.is_none_or(|at| at <= clock::now());
            let paged = one.paged();
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

impl WorkerTransactions {
    /// The sweep task, if a table is listed and no sweep is running. It ends immediately if nothing
    /// is due.
    pub(in crate::transaction) fn bulk_sweep_job(&self) -> Option<Job> {
        let engine = self.engine();
        let sweeps = &engine.bulk_sweeps;
        if !sweeps.is_waiting() || engine.checkpoints.stopping() {
            return None;
        }
        // Acquire pairs with the Release at the end of the previous sweep.
        if sweeps.in_progress.swap(true, Ordering::Acquire) {
            return None;
        }
        let Some(first) = sweeps.take(engine) else {
            // Release pairs with the Acquire above.
            sweeps.in_progress.store(false, Ordering::Release);
            return None;
        };
        Some(Box::new(move || Box::pin(sweep_all(first))))
    }
}

async fn sweep_all(first: MarkedTable) {
    let worker = WorkerTransactions::current();
    let engine = worker.engine().clone();
    let sweeps = &engine.bulk_sweeps;
    let mut next = Some(first);
    while let Some(mut one) = next {
        // An operation that aborts later may have left marks behind the position of this pass.
        let aborted = one.paged().bulk().epochs.aborted();
        match sweep(&worker, one.paged()).await {
            Ok(true) => {
                if let Some(epoch) = aborted {
                    one.paged().bulk().epochs.settle(epoch);
                }
            }
            // The database is closing; page contents are discarded.
            Ok(false) => break,
            Err(error) => {
                tracing::warn!(
                    "cannot remove marks of bulk operations from pages yet, will retry: {error}"
                );
                one.not_before = Some(clock::now() + RETRY_DELAY);
                sweeps.listed.lock().push(one);
                // Release: as in `expect`.
                sweeps.any.store(true, Ordering::Release);
            }
        }
        next = sweeps.take(&engine);
    }
    // Release pairs with the Acquire at the start of a sweep.
    sweeps.in_progress.store(false, Ordering::Release);
}

/// Passes over all leaves of a table; `false` if the database closes before the pass is done.
async fn sweep(
    worker: &WorkerTransactions,
    paged: &PagedTable,
) -> Result<bool, crate::page::PageError> {
    let engine = worker.engine();
    let mut position = Some(SweepPosition::default());
    let mut leaves = 0_u32;
    while let Some(at) = position {
        if leaves.is_multiple_of(LEAVES_PER_STEP) {
            sched::yield_now(WaitCause::Memory).await;
        }
        if engine.checkpoints.stopping() {
            return Ok(false);
        }
        leaves += 1;
        position = paged.sweep_leaf(&at, &engine.status).await?;
        worker.discard_queued_for_removal(paged);
        worker.counters().bulk_leaves_swept.add(1);
    }
    Ok(true)
}

impl WorkerTransactions {
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
