//! Filling a secondary index with the records that were there before it, and emptying one that is dropped:
//! in many short transactions, while others go on.

use std::ops::Bound;
use std::rc::Rc;
use std::sync::Arc;

use super::context::Transaction;
use super::error::{IndexError, OperationError};
use super::index_changes::keys_of;
use super::scan::Bounds;
use super::turnstile::TurnedAway;
use super::worker::WorkerTransactions;
use super::write::Intent;
use crate::index::MAX_KEY_BYTES;
use crate::record::{Records, Secondary};
use crate::sched::{self, Cause};
use crate::types::KeyBuffer;

/// Entries that are deleted in one transaction.
const DELETED_AT_ONCE: u64 = 1024;

/// What one transaction did of the filling of an index.
#[derive(Debug)]
pub(crate) struct Filled {
    /// Records that were looked at.
    pub(crate) records: u64,
    /// The last of them; `None` if there are no more.
    pub(crate) last: Option<KeyBuffer>,
}

impl Transaction {
    /// Makes the missing entries of the next records of a table, `most` at most.
    ///
    /// Whoever writes one of the records after this transaction began enters its keys, and takes away
    /// those that it had, be their entries there or not: so of the two who write an entry for one record,
    /// one fails.
    ///
    /// # Errors
    /// `Conflict`; `DuplicateKey`; `Panicked`; as for a scan and a write.
    pub(crate) async fn fill_index(
        &self,
        table: &Records,
        index: &Secondary,
        after: Option<KeyBuffer>,
        most: u64,
    ) -> Result<Filled, OperationError> {
        // Whoever builds it may have been given up, and it been dropped since; and those who drop it wait
        // only for transactions that began before it was marked.
        if index.is_dropped() {
            let (table, index) = (table.name().to_string(), index.name().to_owned());
            return Err(IndexError::IndexNotFound { table, index }.into());
        }
        let low = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut scan = self.scan(table, Bounds { low, high: Bound::Unbounded });
        scan.expect_records(most);
        let (mut records, mut last) = (0, None);
        while records < most {
            if !scan.load().await? {
                return Ok(Filled { records, last: None });
            }
            let (primary, value) = scan.current().expect("loaded");
            for part in keys_of(table, index, Some(value))? {
                self.make_entry(table, index, &part, primary).await?;
            }
            (records, last) = (records + 1, Some(primary.clone()));
            scan.pass();
        }
        Ok(Filled { records, last })
    }

    /// Makes the entry of a record if it is missing.
    async fn make_entry(
        &self,
        table: &Records,
        index: &Secondary,
        part: &[u8],
        primary: &[u8],
    ) -> Result<(), OperationError> {
        let (entries, key) = (index.entries(), index.entry_key(part, primary));
        if key.len() > MAX_KEY_BYTES {
            return Err(OperationError::KeyTooLong(key.len()));
        }
        let value = index.entry_value(primary);
        if !index.is_unique() {
            if !self.contains(entries, &key).await? {
                self.write_record(entries, &key, Intent::Insert(value)).await?;
            }
            return Ok(());
        }
        let Some(owner) = self.get(entries, &key).await? else {
            self.write_record(entries, &key, Intent::Insert(value)).await?;
            return Ok(());
        };
        if owner.bytes() == primary {
            return Ok(());
        }
        let records = Box::new([owner.bytes().to_vec(), primary.to_vec()]);
        let (table, index) = (table.name().to_string(), index.name().to_owned());
        Err(IndexError::DuplicateKey { table, index, key: part.to_vec(), records }.into())
    }
}

/// A row of the catalog.
#[derive(Debug)]
pub(crate) struct CatalogRow {
    pub(crate) catalog: Arc<Records>,
    pub(crate) key: Vec<u8>,
    pub(crate) value: Vec<u8>,
}

/// Deletes all entries of an index that nobody writes any more, and then its row in the catalog, if it is
/// still its: somebody else may delete it too, and an index of the same name be created meanwhile. `false`
/// if the database is closing before that is done, and it is left to the next opening.
///
/// # Errors
/// The device's, the log's; `Overloaded`.
pub(crate) async fn clear_index(
    entries: Arc<Records>,
    row: CatalogRow,
) -> Result<bool, OperationError> {
    let worker = WorkerTransactions::current();
    let (mut deleted, mut after) = (0, None);
    let mut turned_away = TurnedAway::default();
    while !worker.engine().checkpoints.stopping() {
        sched::yield_now(Cause::Memory).await;
        let cleared = match delete_entries(&worker, &entries, after.clone()).await {
            // Somebody else deletes them too.
            Err(OperationError::Conflict) => continue,
            Err(OperationError::TurnedAway) => {
                worker.wait_for_turnstile(&mut turned_away).await;
                continue;
            }
            cleared => cleared?,
        };
        (deleted, after) = (deleted + cleared.records, cleared.last);
        if after.is_some() {
            continue;
        }
        // Until a pass has met none.
        if std::mem::take(&mut deleted) == 0 {
            match delete_row(&worker, &row).await {
                Err(OperationError::Conflict) => continue,
                Err(OperationError::TurnedAway) => {
                    worker.wait_for_turnstile(&mut turned_away).await;
                    continue;
                }
                gone => gone?,
            }
            return Ok(true);
        }
    }
    Ok(false)
}

/// Deletes a row of the catalog, unless it is another one by now.
async fn delete_row(
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

/// Deletes the next entries of an index.
async fn delete_entries(
    worker: &Rc<WorkerTransactions>,
    entries: &Records,
    after: Option<KeyBuffer>,
) -> Result<Filled, OperationError> {
    let transaction = worker.begin().map_err(|_| OperationError::Overloaded)?;
    let low = after.map_or(Bound::Unbounded, Bound::Excluded);
    let (mut records, mut last) = (0, None);
    {
        let mut scan = transaction.scan(entries, Bounds { low, high: Bound::Unbounded });
        scan.set_keys_only();
        scan.expect_records(DELETED_AT_ONCE);
        while records < DELETED_AT_ONCE && scan.load().await? {
            let key = scan.current().expect("loaded").0.clone();
            transaction.write_record(entries, &key, Intent::Delete).await?;
            (records, last) = (records + 1, Some(key));
            scan.pass();
        }
    }
    transaction.commit().await?;
    Ok(Filled { records, last: last.filter(|_| records == DELETED_AT_ONCE) })
}
