//! Deletion of all records of a dropped table, a dropped index or a table to be emptied, in many
//! short transactions.

use std::ops::Bound;
use std::rc::Rc;
use std::sync::Arc;

use crate::log::Lsn;
use crate::record::Records;
use crate::sched::{self, WaitCause};
use crate::transaction::commit::disk_room::MAX_FREEING_ATTEMPTS;
use crate::transaction::context::active_transaction::ActiveTransaction;
use crate::transaction::context::back_off::YieldedToPriority;
use crate::transaction::context::engine::Engine;
use crate::transaction::context::error::OperationError;
use crate::transaction::context::worker::WorkerTransactions;
use crate::transaction::context::write_intent::WriteIntent;
use crate::transaction::operations::scan_bounds::ScanBounds;
use crate::types::KeyBuffer;

/// Number of records deleted per transaction.
const RECORDS_PER_TRANSACTION: u64 = 1024;
/// The number on a nearly full disk. A page that is evicted before the end of the transaction needs
/// two images.
const MIN_RECORDS_PER_TRANSACTION: u64 = 64;

/// Returns how many records a transaction deletes. Fewer on a nearly full disk, and after an attempt
/// failed.
pub(crate) fn records_per_transaction(engine: &Engine, after_failure: bool) -> u64 {
    let is_scarce =
        || engine.log.files().is_some_and(|files| files.lacks_reserve() || files.is_disk_tight());
    if after_failure || is_scarce() { MIN_RECORDS_PER_TRANSACTION } else { RECORDS_PER_TRANSACTION }
}

/// A row of the catalog.
#[derive(Debug)]
pub(crate) struct CatalogRow {
    pub(crate) catalog: Arc<Records>,
    pub(crate) key: Vec<u8>,
    pub(crate) value: Vec<u8>,
}

/// Deletes all records of a dropped table, or of a dropped index's entries, and then its catalog
/// row. No transaction may write the table any more. If the database closes first, the next opening
/// finishes this.
///
/// # Errors
/// Those of the device and the log; `Overloaded`.
pub(crate) async fn clear_dropped(
    records: Arc<Records>,
    row: CatalogRow,
) -> Result<(), OperationError> {
    let worker = WorkerTransactions::current();
    let _counted = worker.engine().removals.begin();
    if !records.is_gone() {
        // Entries of an index: all transactions that may use them have ended.
        records.drop_at(Lsn::ZERO);
    }
    if clear_records(&records).await?.is_none() {
        return Ok(());
    }
    forget_dropped(records, &row).await
}

/// Deletes the catalog row of a dropped table without records, and queues the table to be freed.
///
/// # Errors
/// Those of [`clear_dropped`].
pub(crate) async fn forget_dropped(
    records: Arc<Records>,
    row: &CatalogRow,
) -> Result<(), OperationError> {
    let worker = WorkerTransactions::current();
    let used_until = worker.engine().log.tail();
    // If another task deletes the row, it queues the table after its own transactions.
    if delete_row(row).await? {
        worker.engine().tables.free_later(used_until, records);
    }
    Ok(())
}

/// Deletes all records of such a table and returns their number; `None` if the database closes
/// first.
///
/// # Errors
/// Those of [`clear_dropped`].
pub(crate) async fn clear_records(records: &Records) -> Result<Option<u64>, OperationError> {
    let worker = WorkerTransactions::current();
    let (mut deleted, mut deleted_before, mut after) = (0, 0, None);
    let (mut yielded, mut refused) = (YieldedToPriority::default(), 0);
    while !worker.engine().checkpoints.stopping() {
        sched::yield_now(WaitCause::Memory).await;
        let most = records_per_transaction(worker.engine(), refused > 0);
        let cleared = match delete_some(&worker, records, after.clone(), most).await {
            Err(OperationError::NoRoomToDelete(_)) if refused < MAX_FREEING_ATTEMPTS => {
                refused += 1;
                worker.free_disk_space().await;
                continue;
            }
            // Another task deletes them too, or a bulk operation that began before the drop has not
            // ended.
            Err(OperationError::Conflict(_) | OperationError::BulkUnderWay(..)) => continue,
            Err(OperationError::YieldedToPriority) => {
                worker.wait_for_priority_token(&mut yielded).await;
                continue;
            }
            cleared => cleared?,
        };
        refused = 0;
        deleted += cleared.0;
        after = cleared.1;
        if after.is_some() {
            continue;
        }
        // Repeats until a pass finds no record.
        if deleted == 0 {
            return Ok(Some(deleted_before));
        }
        deleted_before += std::mem::take(&mut deleted);
    }
    Ok(None)
}

/// Deletes a catalog row if it is still the same. Another task may delete it too, and then a table
/// of the same name may be created. If the database closes first, the next opening finishes this.
/// Returns whether it has deleted the row.
///
/// # Errors
/// Those of [`clear_dropped`].
async fn delete_row(row: &CatalogRow) -> Result<bool, OperationError> {
    let worker = WorkerTransactions::current();
    let (mut yielded, mut refused) = (YieldedToPriority::default(), 0);
    while !worker.engine().checkpoints.stopping() {
        match delete_row_once(&worker, row).await {
            Err(OperationError::NoRoomToDelete(_)) if refused < MAX_FREEING_ATTEMPTS => {
                refused += 1;
                worker.free_disk_space().await;
            }
            Err(OperationError::Conflict(_)) => sched::yield_now(WaitCause::Memory).await,
            Err(OperationError::YieldedToPriority) => {
                worker.wait_for_priority_token(&mut yielded).await
            }
            deleted => return deleted,
        }
    }
    Ok(false)
}

/// Deletes a catalog row, unless it is gone or another row has replaced it. Returns whether it has
/// deleted the row.
async fn delete_row_once(
    worker: &Rc<WorkerTransactions>,
    row: &CatalogRow,
) -> Result<bool, OperationError> {
    let transaction = worker.begin().map_err(|_| OperationError::Overloaded)?;
    let now = transaction.get(&row.catalog, &row.key).await?;
    let still_there = now.is_some_and(|now| now.bytes() == row.value);
    if still_there {
        transaction.write_record(&row.catalog, &row.key, WriteIntent::Delete).await?;
    }
    transaction.commit().await?;
    Ok(still_there)
}

/// Deletes the next records of a table in one transaction; see [`ActiveTransaction::delete_next`].
async fn delete_some(
    worker: &Rc<WorkerTransactions>,
    records: &Records,
    after: Option<KeyBuffer>,
    most: u64,
) -> Result<(u64, Option<KeyBuffer>), OperationError> {
    let transaction = worker.begin().map_err(|_| OperationError::Overloaded)?;
    let delete = async |key: &[u8]| {
        transaction.write_record(records, key, WriteIntent::Delete).await?;
        Ok(())
    };
    let deleted = transaction.delete_next(records, (after, most), delete).await?;
    transaction.commit().await?;
    Ok(deleted)
}

impl ActiveTransaction {
    /// Deletes at most `most` of the next records of a table after a key, using `delete`. Returns
    /// their number, and the last key if more records may follow.
    ///
    /// # Errors
    /// Those of a scan, and those of `delete`.
    pub(crate) async fn delete_next(
        &self,
        records: &Records,
        (after, most): (Option<KeyBuffer>, u64),
        delete: impl AsyncFn(&[u8]) -> Result<(), OperationError>,
    ) -> Result<(u64, Option<KeyBuffer>), OperationError> {
        let low = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut scan = self.scan(records, ScanBounds { low, high: Bound::Unbounded });
        scan.set_keys_only();
        scan.expect_records(most);
        let (mut deleted, mut last) = (0, None);
        while deleted < most && scan.load().await.map_err(|error| self.refused_deletion(error))? {
            let key = KeyBuffer::from_slice(scan.current().expect("loaded").0);
            delete(&key).await?;
            (deleted, last) = (deleted + 1, Some(key));
            scan.pass();
        }
        Ok((deleted, last.filter(|_| deleted == most)))
    }
}
