//! One pass over the records whose entries lead to victims: it copies live records out of the segments to be freed, then
//! redirects their entries to the copies, where those may be seen.

use std::rc::Rc;
use std::sync::Arc;

use super::copy::copy_all;
use super::find::{EntryTarget, Item, Stage, TURN, Victims, entry_target};
use crate::log::{LogFiles, Lsn};
use crate::reclaim;
use crate::record::Records;
use crate::sched::{self, Cause};
use crate::transaction::{OperationError, WorkerTransactions};

/// Records looked at before those among them that are to be copied are.
const BATCH: usize = 16 * TURN;

/// What is to be moved, and what was.
#[derive(Debug)]
pub(super) struct Moving {
    pub(super) files: LogFiles,
    /// Bytes that are alive in the log.
    pub(super) alive: u64,
    pub(super) victims: Victims,
    pub(super) tables: Vec<Arc<Records>>,
    /// What led to a victim, in the order of the log.
    pub(super) items: Vec<Item>,
    /// Records that were copied.
    pub(super) copied: u64,
    /// The last copy.
    pub(super) last: Lsn,
}

impl Moving {
    pub(super) fn table(&self, item: &Item) -> &Records {
        &self.tables[item.table as usize]
    }
}

/// Looks at every item, once, or until the database is closing; `true` if none leads to a victim any
/// more.
///
/// # Errors
/// The device's, the log's.
pub(super) async fn pass(
    worker: &Rc<WorkerTransactions>,
    moving: &mut Moving,
) -> Result<bool, OperationError> {
    let store = worker.engine().log.cold_store().ok_or(OperationError::Unlogged)?;
    let mut items = std::mem::take(&mut moving.items);
    for batch in items.chunks_mut(BATCH) {
        if worker.engine().checkpoints.stopping() {
            // What was not looked at stays on the list: nothing is settled.
            break;
        }
        let mut found = Vec::new();
        for some in batch.chunks_mut(TURN) {
            for of_table in some.chunk_by(|one, next| one.table == next.table) {
                let table = moving.table(&of_table[0]);
                table.prefetch(of_table.iter().map(|item| item.rid)).await;
            }
            look_at(worker, moving, some, &mut found)?;
            sched::yield_now(Cause::Memory).await;
        }
        copy_all(worker, &store, &mut found, moving).await?;
    }
    items.retain(|item| item.stage != Stage::Settled);
    moving.items = items;
    Ok(moving.items.is_empty())
}

/// Looks up where the entries of items lead. Redirects those to their copies that may be seen by now, and adds items that
/// are still to be copied to `found`.
fn look_at<'i>(
    worker: &Rc<WorkerTransactions>,
    moving: &Moving,
    items: &'i mut [Item],
    found: &mut Vec<&'i mut Item>,
) -> Result<(), OperationError> {
    let engine = worker.engine();
    let operation = reclaim::enter();
    let transaction = worker.begin().map_err(|_| OperationError::Overloaded)?;
    // While another worker prunes, nothing is redirected to copies: that is left to the next pass.
    let acting = engine.horizon.act(worker.number(), engine.log.tail());
    let durable = engine.log.durable();
    for item in items {
        let table = moving.table(item);
        let (victims, view) = (&moving.victims, transaction.view());
        let (link, kept) = match entry_target(table, item.rid, view, victims, &operation)? {
            EntryTarget::ToVictim(link, kept) => (link, kept),
            EntryTarget::Elsewhere => {
                item.stage = Stage::Settled;
                continue;
            }
            // The next pass looks again.
            EntryTarget::Deciding => continue,
        };
        if kept != item.kept() {
            item.restart(kept);
        }
        let may_lead = |to| acting.as_ref().filter(|acting| to < acting.oldest() && to < durable);
        match (link, item.stage) {
            (Some(link), Stage::Copied(to)) if let Some(acting) = may_lead(to) => {
                // SAFETY: found just now, under the guard above.
                let given_way =
                    unsafe { table.move_to_copy(item.rid, link, to, acting, &operation) };
                // SAFETY: replaced just now, by this worker alone.
                unsafe { worker.retire_evicted(given_way.into_iter().collect()) };
            }
            (Some(_), Stage::Found) => found.push(item),
            // A write is under way, or the copy may not be seen yet.
            _ => {}
        }
    }
    transaction.end_uncounted();
    Ok(())
}
