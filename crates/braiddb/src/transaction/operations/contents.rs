//! Counts the records of a table. Each snapshot covers a few records, so that no old version is
//! retained.

use std::ops::Bound;

use super::scan_bounds::ScanBounds;
use crate::reclaim;
use crate::record::{Contents, Records};
use crate::sched::{self, WaitCause};
use crate::transaction::context::error::OperationError;
use crate::transaction::context::worker::WorkerTransactions;
use crate::types::KeyBuffer;

/// Limits of one snapshot: number of records, and for a paged table bytes of their values.
const MAX_RECORDS_PER_SNAPSHOT: u64 = 1024;
const MAX_BYTES_PER_SNAPSHOT: u64 = 1 << 20;

/// Counts the records of a table by location; those of a paged table count as in memory. Records
/// that are written during the count may or may not be counted.
///
/// # Errors
/// `Overloaded`; for a paged table, errors of reading a page.
pub(crate) async fn count_contents(table: &Records) -> Result<Contents, OperationError> {
    let Some(table) = table.in_memory() else { return count_paged(table).await };
    let worker = WorkerTransactions::current();
    let (mut contents, mut next) = (Contents::default(), Some(0));
    while let Some(from) = next {
        let transaction = worker.begin().map_err(|_| OperationError::Overloaded)?;
        {
            let operation = reclaim::enter();
            let some = (from, MAX_RECORDS_PER_SNAPSHOT);
            next = table.count_contents(some, transaction.view(), &operation, &mut contents);
        }
        transaction.end_uncounted();
        sched::yield_now(WaitCause::Memory).await;
    }
    Ok(contents)
}

async fn count_paged(table: &Records) -> Result<Contents, OperationError> {
    let worker = WorkerTransactions::current();
    let (mut contents, mut last) = (Contents::default(), None::<KeyBuffer>);
    loop {
        let transaction = worker.begin().map_err(|_| OperationError::Overloaded)?;
        let (mut found, mut bytes, mut is_over) = (0, 0, false);
        {
            let low = last.clone().map_or(Bound::Unbounded, Bound::Excluded);
            let mut scan = transaction.scan(table, ScanBounds { low, high: Bound::Unbounded });
            while found < MAX_RECORDS_PER_SNAPSHOT && bytes < MAX_BYTES_PER_SNAPSHOT {
                if !scan.load().await? {
                    is_over = true;
                    break;
                }
                let (key, value) = scan.current().expect("loaded");
                (found, bytes) = (found + 1, bytes + value.len() as u64);
                last = Some(KeyBuffer::from_slice(key));
                scan.pass();
            }
        }
        transaction.end_uncounted();
        contents.hot += found;
        contents.hot_bytes += bytes;
        if is_over {
            return Ok(contents);
        }
        sched::yield_now(WaitCause::Memory).await;
    }
}
