//! Database check: verifies every block of the log, and that every key points to its record.
//!
//! Attached indexes are compared with their tables. For paged tables, the check verifies that all
//! records are on their pages, in order, and that their values are complete. Their durable images
//! are verified with the checkpoint's chunks.
//!
//! Keys are looked up a few at a time, each time in a new snapshot that ends before the records are
//! read. So a check does not prevent old versions from being freed, regardless of its duration. The
//! caller keeps segments of the log from being freed.

use std::ops::Bound;
use std::rc::Rc;

use crate::index::Cursor;
use crate::log::ColdStore;
use crate::reclaim;
use crate::record::Records;
use crate::rid::Rid;
use crate::sched::{self, Interleaved, WaitCause};
use crate::transaction::{OperationError, ScanBounds, WorkerTransactions, check_index};
use crate::types::KeyBuffer;
use crate::version::Address;

/// Number of keys looked up in one snapshot.
const RECORDS_PER_BATCH: usize = 32;
/// Maximum number of a paged table's records read in one snapshot, and maximum bytes of their
/// values.
const PAGED_RECORDS_PER_BATCH: u64 = 512;
const MAX_PAGED_BATCH_BYTES: usize = 1 << 20;
/// Bytes of records read at a time, unless a single one is larger.
const READ_BYTES: usize = 1 << 20;

/// Result of a check of the tables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TableCheckResult {
    pub(crate) records: u64,
    /// Description and location of each problem.
    pub(crate) problems: Vec<String>,
}

/// A key with the location of its record.
struct LocatedKey {
    key: KeyBuffer,
    rid: Rid,
    address: Address,
}

/// Checks every record of the database to which the current worker thread belongs, in the version
/// that is committed when the check reaches it. The record in the log must be intact and must
/// belong to its key.
///
/// # Errors
/// `Unlogged` if the database has no log.
pub(crate) async fn check_tables() -> Result<TableCheckResult, OperationError> {
    let worker = WorkerTransactions::current();
    let store = worker.engine().log.cold_store().ok_or(OperationError::Unlogged)?;
    let mut checked = TableCheckResult::default();
    for table in worker.engine().tables() {
        match table.paged() {
            Some(_) => check_paged_table(&worker, &table, &mut checked).await?,
            None => check_table(&worker, &store, &table, &mut checked).await?,
        }
        for index in table.secondaries().iter() {
            if index.code().is_some() && index.is_built() {
                checked.problems.extend(check_index(&worker, &table, index).await?);
            }
        }
    }
    Ok(checked)
}

async fn check_table(
    worker: &Rc<WorkerTransactions>,
    store: &ColdStore,
    table: &Records,
    checked: &mut TableCheckResult,
) -> Result<(), OperationError> {
    let mut cursor = table.index.cursor(Bound::Unbounded, Bound::Unbounded, false);
    while let Some(listed) = list(worker, table, &mut cursor).await? {
        // Records must be on disk before they are read.
        if let Some(last) = listed.iter().map(|one| one.address.lsn()).max() {
            worker.wait_durable(last).await?;
        }
        let mut left = &listed[..];
        while !left.is_empty() {
            let (some, rest) = left.split_at(count_to_read(left));
            let reads = some.iter().map(|one| check_record(store, table, one));
            checked.problems.extend(Interleaved::new(reads).await.into_iter().flatten());
            left = rest;
        }
        checked.records += listed.len() as u64;
    }
    Ok(())
}

/// Checks the records of a paged table.
async fn check_paged_table(
    worker: &Rc<WorkerTransactions>,
    table: &Records,
    checked: &mut TableCheckResult,
) -> Result<(), OperationError> {
    let mut last: Option<KeyBuffer> = None;
    loop {
        let transaction = worker.begin().map_err(|_| OperationError::Overloaded)?;
        let (mut found, mut bytes, mut is_over) = (0, 0, false);
        {
            let mut scan = transaction.scan(table, behind(last.as_ref()));
            while found < PAGED_RECORDS_PER_BATCH && bytes < MAX_PAGED_BATCH_BYTES {
                match scan.load().await {
                    Ok(true) => {}
                    Ok(false) => {
                        is_over = true;
                        break;
                    }
                    Err(error) if error.is_value_not_whole() => {
                        // The next record's value is damaged: it is skipped.
                        let mut keys = transaction.scan(table, behind(last.as_ref()));
                        keys.set_keys_only();
                        if keys.load().await? {
                            let (key, _) = keys.current().expect("loaded");
                            let (name, shown) = (table.name(), table.show_key().show(key));
                            let problem = format!("table {:?}, key {shown}: {error}", &*name);
                            checked.problems.push(problem);
                            (found, last) = (found + 1, Some(key.clone()));
                        }
                        break;
                    }
                    // The keys of the damaged page are unknown: the rest of the table is skipped.
                    Err(error) if error.is_damaged_page() => {
                        let name = table.name();
                        checked.problems.push(format!("table {:?}: {error}", &*name));
                        return Ok(());
                    }
                    Err(error) => return Err(error),
                }
                let (key, value) = scan.current().expect("loaded");
                if last.as_ref().is_some_and(|last| **last >= **key) {
                    let (name, key) = (table.name(), table.show_key().show(key));
                    checked.problems.push(format!(
                        "table {:?} has the key {key} on a page after a greater key",
                        &*name
                    ));
                    return Ok(());
                }
                (found, bytes) = (found + 1, bytes + value.len());
                last = Some(key.clone());
                scan.pass();
            }
        }
        transaction.end_uncounted();
        checked.records += found;
        if is_over {
            return Ok(());
        }
        sched::yield_now(WaitCause::Memory).await;
    }
}

/// Returns the bounds of all keys above one.
fn behind(key: Option<&KeyBuffer>) -> ScanBounds {
    let low = key.cloned().map_or(Bound::Unbounded, Bound::Excluded);
    ScanBounds { low, high: Bound::Unbounded }
}

/// Looks up the next keys; `None` after the last.
async fn list(
    worker: &Rc<WorkerTransactions>,
    table: &Records,
    cursor: &mut Cursor<'_>,
) -> Result<Option<Vec<LocatedKey>>, OperationError> {
    let operation = reclaim::enter();
    let transaction = worker.begin().map_err(|_| OperationError::Overloaded)?;
    let mut entries = Vec::with_capacity(RECORDS_PER_BATCH);
    let more = cursor.next_batch(&operation, &mut entries, RECORDS_PER_BATCH).await;
    table.prefetch(entries.iter().map(|entry| entry.rid)).await;
    let mut listed = Vec::with_capacity(entries.len());
    for entry in entries {
        if let Some(address) = transaction.locate(table, entry.rid, &operation).await? {
            let mut key = KeyBuffer::new();
            entry.copy_key(key.inner_mut());
            listed.push(LocatedKey { key, rid: entry.rid, address });
        }
    }
    transaction.end_uncounted();
    Ok(more.then_some(listed))
}

/// Returns the number of records to read at a time, from the first one.
fn count_to_read(listed: &[LocatedKey]) -> usize {
    let mut bytes = 0;
    let within = |one: &&LocatedKey| {
        bytes += one.address.read_bytes();
        bytes <= READ_BYTES
    };
    listed.iter().take_while(within).count().max(1)
}

/// Returns the problem of a record, if it has one.
async fn check_record(store: &ColdStore, table: &Records, listed: &LocatedKey) -> Option<String> {
    let LocatedKey { key, rid, address } = listed;
    let record = match store.read(address.lsn(), address.read_bytes()).await {
        Ok(record) => record,
        Err(error) => return Some(error.to_string()),
    };
    let found = record.view();
    let same = (found.table, found.rid, found.key) == (table.id, *rid, &**key);
    (!same).then(|| {
        let (name, key, lsn) = (table.name(), table.show_key().show(key), address.lsn());
        format!("table {:?}: the key {key} points to another record, at LSN {lsn}", &*name)
    })
}
