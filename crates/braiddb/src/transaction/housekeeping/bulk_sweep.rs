//! Sweeps of marks: a worker's task removes the marks of bulk operations from pages. Marks of an aborted
//! operation are removed immediately. Marks of a committed one are removed once it is durable and
//! visible to every snapshot.

use std::time::Duration;

use crate::page::{PagedTable, SweepPosition};
use crate::sched::{self, Job, WaitCause};
use crate::sync::atomic::Ordering;
use crate::sync::clock;
use crate::transaction::context::engine::Engine;
use crate::transaction::context::worker::WorkerTransactions;
use crate::transaction::schedule::marked_tables::MarkedTable;

/// Delay before the next attempt after a page could not be loaded.
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// Number of leaves that a task processes before it yields.
const LEAVES_PER_STEP: u32 = 4;

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
        let Some(first) = take(engine) else {
            // Release pairs with the Acquire above.
            sweeps.in_progress.store(false, Ordering::Release);
            return None;
        };
        Some(Box::new(move || Box::pin(sweep_all(first))))
    }
}

/// Takes the next table that needs a pass now.
fn take(engine: &Engine) -> Option<MarkedTable> {
    let horizon = engine.horizon.oldest(engine.log.tail()).min(engine.log.durable());
    engine.bulk_sweeps.take(horizon)
}

async fn sweep_all(first: MarkedTable) {
    let worker = WorkerTransactions::current();
    let engine = worker.engine().clone();
    let sweeps = &engine.bulk_sweeps;
    let mut next = Some(first);
    while let Some(one) = next {
        // An operation that aborts later may have left marks behind the position of this pass.
        let paged = one.table.pages();
        let aborted = paged.bulk().epochs.aborted();
        match sweep(&worker, paged).await {
            Ok(true) => {
                if let Some(epoch) = aborted {
                    paged.bulk().epochs.settle(epoch);
                }
            }
            // The database is closing; page contents are discarded.
            Ok(false) => break,
            Err(error) => {
                tracing::warn!(
                    "cannot remove marks of bulk operations from pages yet, will retry: {error}"
                );
                sweeps.retry_later(one, clock::now() + RETRY_DELAY);
            }
        }
        next = take(&engine);
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
