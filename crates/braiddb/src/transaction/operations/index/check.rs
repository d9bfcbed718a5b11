//! Index verification: every key of every record has its entry, and every entry references a record
//! that has its key. Each snapshot checks a few entries, so that no old version is retained.

use std::ops::Bound;
use std::rc::Rc;

use super::keys::keys_of;
use super::scan::split_entry;
use crate::record::{Records, Secondary};
use crate::sched::{self, WaitCause};
use crate::transaction::context::active_transaction::ActiveTransaction;
use crate::transaction::context::error::OperationError;
use crate::transaction::context::worker::WorkerTransactions;
use crate::transaction::operations::scan_bounds::ScanBounds;
use crate::types::KeyBuffer;

/// Number of records or entries checked per snapshot.
const BATCH: u64 = 32;

/// Checks an attached and complete index; returns one sentence per problem.
///
/// # Errors
/// Those of the device and the log; those of the key function.
pub(crate) async fn check_index(
    worker: &Rc<WorkerTransactions>,
    table: &Records,
    index: &Secondary,
) -> Result<Vec<String>, OperationError> {
    let mut problems = Vec::new();
    for of_entries in [false, true] {
        let scanned = if of_entries { index.entries() } else { table };
        let mut after = None;
        loop {
            let transaction = worker.begin().map_err(|_| OperationError::Overloaded)?;
            if !index.is_usable_at(transaction.begin()) || index.is_dropped() {
                return Ok(problems);
            }
            after = transaction.check_some(table, index, scanned, after, &mut problems).await?;
            let depends_on = transaction.depends_on();
            transaction.end_uncounted();
            // Reported problems must be durable.
            worker.wait_durable(depends_on).await?;
            if after.is_none() {
                break;
            }
            sched::yield_now(WaitCause::Memory).await;
        }
    }
    Ok(problems)
}

impl ActiveTransaction {
    /// Checks the next records of the table, or entries of the index. Returns the last key, if more
    /// may follow.
    async fn check_some(
        &self,
        table: &Records,
        index: &Secondary,
        scanned: &Records,
        after: Option<KeyBuffer>,
        problems: &mut Vec<String>,
    ) -> Result<Option<KeyBuffer>, OperationError> {
        let low = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut scan = self.scan(scanned, ScanBounds { low, high: Bound::Unbounded });
        scan.expect_records(BATCH);
        let (mut looked_at, mut last) = (0, None);
        while looked_at < BATCH {
            if !scan.load().await? {
                return Ok(None);
            }
            let (key, value) = scan.current().expect("loaded");
            let problem = if std::ptr::eq(scanned, table) {
                self.check_record(table, index, key, value).await?
            } else {
                self.check_entry(table, index, key, value).await?
            };
            problems.extend(problem);
            (looked_at, last) = (looked_at + 1, Some(KeyBuffer::from_slice(key)));
            scan.pass();
        }
        Ok(last)
    }

    async fn check_record(
        &self,
        table: &Records,
        index: &Secondary,
        primary: &[u8],
        value: &[u8],
    ) -> Result<Option<String>, OperationError> {
        for part in keys_of(table, index, Some(value))? {
            let entry = self.get(index.entries(), &index.entry_key(&part, primary)).await?;
            if entry.is_none_or(|entry| entry.bytes() != index.entry_value(primary)) {
                let name = index.entries().name();
                let (key, part) = shown(table, index, primary, &part);
                return Ok(Some(format!("index {name}: record {key} has no entry under {part}")));
            }
        }
        Ok(None)
    }

    async fn check_entry(
        &self,
        table: &Records,
        index: &Secondary,
        entry: &[u8],
        value: &[u8],
    ) -> Result<Option<String>, OperationError> {
        let (part, rest) = split_entry(index, entry)?;
        let primary = if index.is_unique() { value } else { rest };
        // Includes an expired record.
        let record = self.get_unnoted(table, primary, true).await?;
        let found = match &record {
            None => false,
            Some((record, _)) => {
                keys_of(table, index, Some(record.bytes()))?.iter().any(|key| **key == *part)
            }
        };
        let name = index.entries().name();
        let (key, part) = shown(table, index, primary, part);
        Ok((!found).then(|| format!("index {name}: record {key} does not have the key {part}")))
    }
}

/// Formats a record's key and its index key for messages.
fn shown(table: &Records, index: &Secondary, primary: &[u8], part: &[u8]) -> (String, String) {
    (table.show_key().show(primary), index.entries().show_key().show(part))
}
