//! Checking a database: every block of its log, and that every key leads to its own record.

use std::ops::Bound;

use crate::index::LeafEntry;
use crate::log::{ColdStore, Lsn};
use crate::reclaim;
use crate::record::Table;
use crate::sched::Interleaved;
use crate::transaction::{OperationError, Transaction, Worker};
use crate::types::KeyBuffer;
use crate::version::Address;

/// Records read at a time.
const BATCH: usize = 32;

/// What a check of the tables found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Checked {
    pub(crate) records: u64,
    /// What is wrong, and where.
    pub(crate) problems: Vec<String>,
}

/// Checks every record that is committed now, of the database whose worker's thread this is: what
/// its key leads to in the log is whole, and is the record of that key.
///
/// # Errors
/// `Unlogged` if the database logs nothing.
pub(crate) async fn check_tables() -> Result<Checked, OperationError> {
    let worker = Worker::current();
    let store = worker.engine().log.cold_store().ok_or(OperationError::Unlogged)?;
    let transaction = worker.begin().map_err(|_| OperationError::Overloaded)?;
    // What is read must be on disk.
    worker.wait_durable(Lsn(transaction.begin().0 - 1)).await?;
    let mut checked = Checked::default();
    for table in worker.engine().tables() {
        check_table(&transaction, &store, &table, &mut checked).await?;
    }
    transaction.commit().await?;
    Ok(checked)
}

async fn check_table(
    transaction: &Transaction,
    store: &ColdStore,
    table: &Table,
    checked: &mut Checked,
) -> Result<(), OperationError> {
    let mut cursor = table.index.cursor(Bound::Unbounded, Bound::Unbounded, false);
    loop {
        let operation = reclaim::enter();
        let mut entries = Vec::with_capacity(BATCH);
        if !cursor.next_batch(&operation, &mut entries, BATCH).await {
            return Ok(());
        }
        table.bring_near(entries.iter().map(|entry| entry.rid)).await;
        let mut records = Vec::with_capacity(entries.len());
        for entry in &entries {
            if let Some(address) = transaction.locate(table, entry.rid).await? {
                records.push((*entry, address));
            }
        }
        let reads =
            records.iter().map(|(entry, address)| check_record(store, table, entry, *address));
        checked.problems.extend(Interleaved::new(reads).await.into_iter().flatten());
        checked.records += records.len() as u64;
    }
}

/// What is wrong with a record, if anything.
async fn check_record(
    store: &ColdStore,
    table: &Table,
    entry: &LeafEntry<'_>,
    address: Address,
) -> Option<String> {
    let record = match store.read(address.lsn(), address.read_bytes()).await {
        Ok(record) => record,
        Err(error) => return Some(error.to_string()),
    };
    let (found, mut key) = (record.view(), KeyBuffer::new());
    entry.copy_key(key.inner_mut());
    let same = (found.table, found.rid, found.key) == (table.id, entry.rid, &*key);
    (!same).then(|| {
        let lsn = address.lsn();
        format!(
            "table {}: a key of {} bytes leads to another record, at LSN {lsn}",
            table.id.0,
            key.len()
        )
    })
}
