//! Database check: verifies every block of the log, and that every key points to its record.
//!
//! Attached indexes are compared with their tables. For paged tables, the check verifies that all
//! records are on their pages, in order, and that their values are complete. Their durable images
//! are verified with the checkpoint's chunks.
//!
//! Keys are looked up a few at a time, each time in a new snapshot that ends before the records are
//! read. So a check does not prevent old versions from being freed, regardless of its duration.
//! Records of many keys are then read in the order of the log, neighbors in one piece. The caller
//! keeps segments of the log from being freed.

use std::ops::Bound;
use std::rc::Rc;

use crate::durability::STEPS_PER_TABLE;
use crate::index::Cursor;
use crate::log::{ColdStore, RecordView};
use crate::page::KeyBytes;
use crate::reclaim;
use crate::record::{MemoryRecords, PagedRecords, Records, TableKind};
use crate::rid::Rid;
use crate::sched::{self, Interleaved, WaitCause};
use crate::transaction::{OperationError, ScanBounds, WorkerTransactions, check_index};
use crate::types::KeyBuffer;
use crate::version::Address;

/// Number of keys looked up in one snapshot.
const RECORDS_PER_SNAPSHOT: usize = 32;
/// Minimum number of keys whose records are read together, unless few are left.
const RECORDS_PER_BATCH: usize = if cfg!(braid_simulation) { 40 } else { 16 << 10 };
/// Maximum number of a paged table's records read in one snapshot, and maximum bytes of their
/// values.
const PAGED_RECORDS_PER_BATCH: u64 = if cfg!(braid_simulation) { 512 } else { 16 << 10 };
const MAX_PAGED_BATCH_BYTES: usize = 4 << 20;
/// Bytes of the log read in one piece, unless a single record is larger.
const MAX_SPAN_BYTES: u64 = 256 << 10;
/// Bytes between two records that are read in one piece.
const MAX_GAP_BYTES: u64 = 16 << 10;
/// Number of pieces read at a time.
const SPANS_AT_ONCE: usize = 4;

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
        sched::count_steps(STEPS_PER_TABLE).await;
        let before = checked.problems.len();
        match table.kind() {
            TableKind::Memory(table) => check_table(&worker, &store, table, &mut checked).await?,
            TableKind::Paged(table) => check_paged_table(&worker, table, &mut checked).await?,
        }
        if table.is_gone() {
            // The records that it had are being discarded: their values may be incomplete.
            checked.problems.truncate(before);
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
    table: &MemoryRecords,
    checked: &mut TableCheckResult,
) -> Result<(), OperationError> {
    let mut cursor = table.index().cursor_to_last_key(&reclaim::enter()).await;
    let mut is_over = false;
    while !is_over {
        let mut listed = Vec::new();
        while !is_over && listed.len() < RECORDS_PER_BATCH {
            is_over = !list(worker, table, &mut cursor, &mut listed).await?;
        }
        listed.sort_unstable_by_key(|one| one.address.lsn());
        // Records must be on disk before they are read.
        if let Some(last) = listed.last() {
            worker.wait_durable(last.address.lsn()).await?;
        }
        let spans: Vec<_> = listed.chunk_by(are_read_together).flat_map(spans_of).collect();
        for some in spans.chunks(SPANS_AT_ONCE) {
            let reads = some.iter().map(|span| check_span(store, table, span));
            checked.problems.extend(Interleaved::new(reads).await.into_iter().flatten());
        }
        checked.records += listed.len() as u64;
    }
    Ok(())
}

/// Returns whether two records, in the order of the log, are neighbors.
fn are_read_together(one: &LocatedKey, next: &LocatedKey) -> bool {
    let end = one.address.lsn().0 + one.address.read_bytes() as u64;
    next.address.lsn().0 <= end + MAX_GAP_BYTES
}

/// Divides neighbors into pieces of bounded length.
fn spans_of(neighbors: &[LocatedKey]) -> impl Iterator<Item = &[LocatedKey]> {
    let mut left = neighbors;
    std::iter::from_fn(move || {
        let from = left.first()?.address.lsn().0;
        let ends = |one: &LocatedKey| one.address.lsn().0 + one.address.read_bytes() as u64;
        let count = left.partition_point(|one| ends(one) <= from + MAX_SPAN_BYTES).max(1);
        let (span, rest) = left.split_at(count);
        left = rest;
        Some(span)
    })
}

/// Checks records that are read in one piece, and returns their problems.
async fn check_span(store: &ColdStore, table: &Records, span: &[LocatedKey]) -> Vec<String> {
    let mut problems = Vec::new();
    let [first, last] = [span.first(), span.last()].map(|one| one.expect("not empty").address);
    let read = store.read_span(first.lsn(), last.lsn(), last.read_bytes()).await.ok();
    for (number, one) in span.iter().enumerate() {
        if number % RECORDS_PER_SNAPSHOT == 0 {
            sched::count_steps(RECORDS_PER_SNAPSHOT as u32).await;
        }
        match read.as_ref().and_then(|read| read.record(one.address.lsn())) {
            Some(found) => problems.extend(one.problem(table, found)),
            // The error of this record alone.
            None => problems.extend(check_record(store, table, one).await),
        }
    }
    problems
}

/// Checks the records of a paged table.
async fn check_paged_table(
    worker: &Rc<WorkerTransactions>,
    table: &PagedRecords,
    checked: &mut TableCheckResult,
) -> Result<(), OperationError> {
    let mut last: Option<KeyBuffer> = None;
    // Writers that append keys do not prolong the check.
    let Some(end) = last_key(table, checked).await? else { return Ok(()) };
    loop {
        let transaction = worker.begin().map_err(|_| OperationError::Overloaded)?;
        let (mut found, mut bytes, mut is_over) = (0, 0, false);
        {
            let mut scan = transaction.scan(table, behind(last.as_ref(), &end));
            while found < PAGED_RECORDS_PER_BATCH && bytes < MAX_PAGED_BATCH_BYTES {
                match scan.load().await {
                    Ok(true) => {}
                    Ok(false) => {
                        is_over = true;
                        break;
                    }
                    Err(error) if error.is_value_not_whole() => {
                        // The next record's value is damaged: it is skipped.
                        let mut keys = transaction.scan(table, behind(last.as_ref(), &end));
                        keys.set_keys_only();
                        if keys.load().await? {
                            let (key, _) = keys.current().expect("loaded");
                            let (name, shown) = (table.name(), table.show_key().show(key));
                            let problem = format!("table {:?}, key {shown}: {error}", &*name);
                            checked.problems.push(problem);
                            (found, last) = (found + 1, Some(KeyBuffer::from_slice(key)));
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
                if last.as_deref().is_some_and(|last| last >= key) {
                    let (name, key) = (table.name(), table.show_key().show(key));
                    checked.problems.push(format!(
                        "table {:?} has the key {key} on a page after a greater key",
                        &*name
                    ));
                    return Ok(());
                }
                (found, bytes) = (found + 1, bytes + value.len());
                last = Some(KeyBuffer::from_slice(key));
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

/// Returns the last key of a paged table; `None` if the table has no key, or if its last page is
/// damaged, which is added to the problems.
async fn last_key(
    table: &PagedRecords,
    checked: &mut TableCheckResult,
) -> Result<Option<KeyBuffer>, OperationError> {
    match table.pages().last_key().await.map_err(OperationError::from) {
        Err(error) if error.is_damaged_page() => {
            let name = table.name();
            checked.problems.push(format!("table {:?}: {error}", &*name));
            Ok(None)
        }
        last => Ok(last?.map(|last: KeyBytes| {
            let mut key = KeyBuffer::new();
            key.inner_mut().extend_from_slice(&last);
            key
        })),
    }
}

/// Returns the bounds of all keys above one, up to `end`.
fn behind(key: Option<&KeyBuffer>, end: &KeyBuffer) -> ScanBounds {
    let low = key.cloned().map_or(Bound::Unbounded, Bound::Excluded);
    ScanBounds { low, high: Bound::Included(end.clone()) }
}

/// Looks up some of the next keys. Returns `false` after the last.
async fn list(
    worker: &Rc<WorkerTransactions>,
    table: &MemoryRecords,
    cursor: &mut Cursor<'_>,
    listed: &mut Vec<LocatedKey>,
) -> Result<bool, OperationError> {
    let operation = reclaim::enter();
    sched::count_steps(RECORDS_PER_SNAPSHOT as u32).await;
    let transaction = worker.begin().map_err(|_| OperationError::Overloaded)?;
    let mut entries = Vec::with_capacity(RECORDS_PER_SNAPSHOT);
    let more = cursor.next_batch(&operation, &mut entries, RECORDS_PER_SNAPSHOT).await;
    table.prefetch(entries.iter().map(|entry| entry.rid())).await;
    for entry in entries {
        if let Some(address) = transaction.locate(table, entry.rid(), &operation).await? {
            let mut key = KeyBuffer::new();
            entry.copy_key(key.inner_mut());
            listed.push(LocatedKey { key, rid: entry.rid(), address });
        }
    }
    transaction.end_uncounted();
    Ok(more)
}

impl LocatedKey {
    /// Returns the problem of the record that was found at the key's address, if it has one.
    fn problem(&self, table: &Records, found: RecordView<'_>) -> Option<String> {
        let Self { key, rid, address } = self;
        let same = (found.table, found.rid, found.key) == (table.id, *rid, &**key);
        (!same).then(|| {
            let (name, key, lsn) = (table.name(), table.show_key().show(key), address.lsn());
            format!("table {:?}: the key {key} points to another record, at LSN {lsn}", &*name)
        })
    }
}

/// Reads one record. Returns its problem, if it has one.
async fn check_record(store: &ColdStore, table: &Records, listed: &LocatedKey) -> Option<String> {
    let LocatedKey { address, .. } = listed;
    match store.read(address.lsn(), address.read_bytes()).await {
        Ok(record) => listed.problem(table, record.view()),
        Err(error) => Some(error.to_string()),
    }
}
