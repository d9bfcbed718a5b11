//! One compaction pass: copies live records out of the victims, and redirects entries to copies
//! that transactions may see.

use std::rc::Rc;

use super::copy::copy_all;
use super::find::{ENTRIES_PER_TURN, EntryTarget, MoveStage, RecordToMove, entry_target, steps};
use super::state::CompactionState;
use crate::reclaim;
use crate::sched::{self, WaitCause};
use crate::transaction::{OperationError, WorkerTransactions};

/// Number of records examined before the copying of those that need it.
const BATCH: usize = 16 * ENTRIES_PER_TURN;

/// Examines every item once, or until the database is closing. Returns `true` if no item points to
/// a victim any more.
///
/// # Errors
/// Errors of the device and of the log.
pub(super) async fn pass(
    worker: &Rc<WorkerTransactions>,
    moving: &mut CompactionState,
) -> Result<bool, OperationError> {
    let store = worker.engine().log.cold_store().ok_or(OperationError::Unlogged)?;
    let mut items = std::mem::take(&mut moving.items);
    let mut left = Vec::new();
    for batch in items.chunks_mut(BATCH) {
        if worker.engine().checkpoints.stopping() {
            // Items that were not examined stay on the list, so the pass is not the last.
            left.extend_from_slice(batch);
            continue;
        }
        let mut found = Vec::new();
        for some in batch.chunks_mut(ENTRIES_PER_TURN) {
            for of_table in some.chunk_by(|one, next| one.table == next.table) {
                let table = moving.table(&of_table[0]);
                table.prefetch(of_table.iter().map(|item| item.rid)).await;
            }
            sched::count_steps(steps(some.len())).await;
            look_at(worker, moving, some, &mut found)?;
            sched::yield_now(WaitCause::Memory).await;
        }
        copy_all(worker, &store, &mut found, moving).await?;
        left.extend(batch.iter().filter(|item| item.stage != MoveStage::Settled));
    }
    moving.items = left;
    Ok(moving.items.is_empty())
}

/// Examines the entries of items. Redirects entries to copies that transactions may see by now, and
/// adds items that must be copied to `found`.
fn look_at<'i>(
    worker: &Rc<WorkerTransactions>,
    moving: &CompactionState,
    items: &'i mut [RecordToMove],
    found: &mut Vec<&'i mut RecordToMove>,
) -> Result<(), OperationError> {
    let engine = worker.engine();
    let operation = reclaim::enter();
    let transaction = worker.begin().map_err(|_| OperationError::Overloaded)?;
    // While another worker prunes, no entry is redirected; the next pass does it.
    let acting = engine.horizon.act(worker.number(), engine.log.tail());
    let durable = engine.log.durable();
    for item in items {
        let table = moving.table(item);
        let (victims, view) = (&moving.victims, transaction.view());
        let (link, kept) = match entry_target(table, item.rid, view, victims, &operation)? {
            EntryTarget::ToVictim(link, kept) => (link, kept),
            EntryTarget::Elsewhere => {
                item.stage = MoveStage::Settled;
                continue;
            }
            // The next pass examines it again.
            EntryTarget::Deciding => continue,
        };
        if kept != item.kept() {
            item.restart(kept);
        }
        let may_lead = |to| acting.as_ref().filter(|acting| to < acting.oldest() && to < durable);
        match (link, item.stage) {
            (Some(link), MoveStage::Copied(to)) => {
                // Otherwise transactions may not see the copy yet.
                let Some(acting) = may_lead(to) else { continue };
                // SAFETY: found just now, under the guard above.
                let given_way =
                    unsafe { table.move_to_copy(item.rid, link, to, acting, &operation) };
                // SAFETY: replaced just now, by this worker alone.
                unsafe { worker.retire_evicted(given_way.into_iter().collect()) };
            }
            (Some(_), MoveStage::Found) => found.push(item),
            // A write is in flight.
            _ => {}
        }
    }
    transaction.end_uncounted();
    Ok(())
}
