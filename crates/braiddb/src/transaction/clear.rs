//! Deleting the records of a table that nobody uses any more, or that is to be empty: a dropped table, the
//! entries of a dropped index. In many short transactions, while others go on.

use std::ops::Bound;
use std::rc::Rc;
use std::sync::Arc;

use super::context::Transaction;
use super::error::OperationError;
use super::scan::Bounds;
use super::starvation_guard::TurnedAway;
use super::worker::WorkerTransactions;
use super::write::Intent;
use crate::record::Records;
use crate::sched::{self, Cause};
use crate::sync::statistic::{AtomicU64, Ordering};
use crate::types::KeyBuffer;

/// Records that are deleted in one transaction.
const DELETED_AT_ONCE: u64 = 1024;

/// A row of the catalog.
#[derive(Debug)]
pub(crate) struct CatalogRow {
    pub(crate) catalog: Arc<Records>,
    pub(crate) key: Vec<u8>,
    pub(crate) value: Vec<u8>,
}

/// Tables whose records are being deleted, or are to be soon.
#[derive(Debug, Default)]
pub(crate) struct Removals(Arc<AtomicU64>);

/// That the records of one are.
#[derive(Debug)]
pub(crate) struct Removal(Arc<AtomicU64>);

impl Removals {
    /// Counts one more until what this returns is dropped.
    pub(crate) fn begin(&self) -> Removal {
        // Relaxed: a statistic.
        self.0.fetch_add(1, Ordering::Relaxed);
        Removal(self.0.clone())
    }

    /// How many there are.
    pub(crate) fn count(&self) -> u64 {
        // Relaxed: a statistic.
        self.0.load(Ordering::Relaxed)
    }
}

impl Drop for Removal {
    fn drop(&mut self) {
        // Relaxed: a statistic.
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Deletes all records of a table that nobody writes any more (it was dropped, or its index was), and then its
/// row in the catalog. If the database is closing before that is done, it is left to the next opening.
///
/// # Errors
/// The device's, the log's; `Overloaded`.
pub(crate) async fn clear_dropped(
    records: Arc<Records>,
    row: CatalogRow,
) -> Result<(), OperationError> {
    let _counted = WorkerTransactions::current().engine().removals.begin();
    match clear_records(&records).await? {
        Some(_) => delete_row(&row).await,
        None => Ok(()),
    }
}

/// Deletes all records of such a table, and returns how many there were; `None` if the database is closing before that is done.
///
/// # Errors
/// As [`clear_dropped`].
pub(crate) async fn clear_records(records: &Records) -> Result<Option<u64>, OperationError> {
    let worker = WorkerTransactions::current();
    let (mut deleted, mut deleted_before, mut after) = (0, 0, None);
    let mut turned_away = TurnedAway::default();
    while !worker.engine().checkpoints.stopping() {
        sched::yield_now(Cause::Memory).await;
        let cleared = match delete_some(&worker, records, after.clone()).await {
            // Somebody else deletes them too; or a bulk operation that began before it was dropped is not over.
            Err(OperationError::Conflict(_) | OperationError::BulkUnderWay(..)) => continue,
            Err(OperationError::TurnedAway) => {
                worker.wait_for_turnstile(&mut turned_away).await;
                continue;
            }
            cleared => cleared?,
        };
        deleted += cleared.0;
        after = cleared.1;
        if after.is_some() {
            continue;
        }
        // Until a pass has met none.
        if deleted == 0 {
            return Ok(Some(deleted_before));
        }
        deleted_before += std::mem::take(&mut deleted);
    }
    Ok(None)
}

/// Deletes a row of the catalog, if it is still the same: somebody else may delete it too, and one of the same name be created
/// meanwhile. If the database is closing before that is done, it is left to the next opening.
///
/// # Errors
/// As [`clear_dropped`].
pub(crate) async fn delete_row(row: &CatalogRow) -> Result<(), OperationError> {
    let worker = WorkerTransactions::current();
    let mut turned_away = TurnedAway::default();
    while !worker.engine().checkpoints.stopping() {
        match delete_row_once(&worker, row).await {
            Err(OperationError::Conflict(_)) => sched::yield_now(Cause::Memory).await,
            Err(OperationError::TurnedAway) => worker.wait_for_turnstile(&mut turned_away).await,
            gone => return gone,
        }
    }
    Ok(())
}

/// Deletes a row of the catalog, unless it is another one by now.
async fn delete_row_once(
    worker: &Rc<WorkerTransactions>,
    row: &CatalogRow,
) -> Result<(), OperationError> {
    let transaction = worker.begin().map_err(|_| OperationError::Overloaded)?;
    let now = transaction.get(&row.catalog, &row.key).await?;
    let still_there = now.is_some_and(|now| now.bytes() == row.value);
    if still_there {
        transaction.write_record(&row.catalog, &row.key, Intent::Delete).await?;
    }
    transaction.commit().await?;
    Ok(())
}

/// Deletes the next records of a table, in a transaction; as [`Transaction::delete_next`].
async fn delete_some(
    worker: &Rc<WorkerTransactions>,
    records: &Records,
    after: Option<KeyBuffer>,
) -> Result<(u64, Option<KeyBuffer>), OperationError> {
    let transaction = worker.begin().map_err(|_| OperationError::Overloaded)?;
    let delete = async |key: &[u8]| {
        transaction.write_record(records, key, Intent::Delete).await?;
        Ok(())
    };
    let deleted = transaction.delete_next(records, after, delete).await?;
    transaction.commit().await?;
    Ok(deleted)
}

impl Transaction {
    /// Deletes the next records of a table after a key, by `delete`; how many, and the last of them if there may
    /// be more.
    ///
    /// # Errors
    /// As for a scan, and those of `delete`.
    pub(crate) async fn delete_next(
        &self,
        records: &Records,
        after: Option<KeyBuffer>,
        delete: impl AsyncFn(&[u8]) -> Result<(), OperationError>,
    ) -> Result<(u64, Option<KeyBuffer>), OperationError> {
        let low = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut scan = self.scan(records, Bounds { low, high: Bound::Unbounded });
        scan.set_keys_only();
        scan.expect_records(DELETED_AT_ONCE);
        let (mut deleted, mut last) = (0, None);
        while deleted < DELETED_AT_ONCE && scan.load().await? {
            let key = scan.current().expect("loaded").0.clone();
            delete(&key).await?;
            (deleted, last) = (deleted + 1, Some(key));
            scan.pass();
        }
        Ok((deleted, last.filter(|_| deleted == DELETED_AT_ONCE)))
    }
}
