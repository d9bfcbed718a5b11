//! Copying of live records from the victims to the log tail.

use std::rc::Rc;

use super::find::{MoveStage, RecordToMove, Victims};
use super::state::CompactionState;
use crate::log::{self, BlockPurpose, ColdSpan, ColdStore, RecordKind, RecordView};
use crate::reclaim;
use crate::record::NewestVersion;
use crate::sched::{self, Interleaved, WaitCause};
use crate::transaction::{OperationError, WorkerTransactions};
use crate::version::Link;

/// Maximum length of a span that is read at a time, and maximum gap between its records: skipping
/// one sector justifies a separate read.
const SPAN_BYTES: u64 = 1 << 20;
const GAP_BYTES: u64 = 4 << 10;
/// Minimum and maximum number of spans that are read concurrently, depending on urgency; and their
/// total bytes.
const MIN_SPANS: u64 = 8;
const MAX_SPANS: u64 = 256;
const READ_BYTES: u64 = 4 << 20;
/// Bytes of copies in one block.
const BLOCK_BYTES: usize = 64 << 10;

/// Copies records to the log tail, in log order, if they are still the newest versions.
///
/// # Errors
/// Errors of the device and of the log.
pub(super) async fn copy_all(
    worker: &Rc<WorkerTransactions>,
    store: &ColdStore,
    mut found: &mut [&mut RecordToMove],
    moving: &mut CompactionState,
) -> Result<(), OperationError> {
    while !found.is_empty() {
        let (mut spans, mut bytes, most) = (Vec::new(), 0, spans_at_once(moving));
        while !found.is_empty() && spans.len() < most && bytes < READ_BYTES {
            let count = span(found, &moving.victims);
            let span = found.split_off_mut(..count).expect("at most the remaining number");
            bytes += end_of(span[count - 1]) - span[0].from.0;
            spans.push(span);
        }
        let read = Interleaved::new(spans.iter().map(|span| read(store, span))).await;
        for (span, read) in spans.into_iter().zip(read) {
            copy(worker, store, span, &read?, moving).await?;
        }
    }
    Ok(())
}

/// Returns the number of spans to read concurrently. It grows with the size of the log beyond twice
/// the live bytes, so transactions are slowed down only as far as necessary to bound the log.
fn spans_at_once(moving: &CompactionState) -> usize {
    let alive = moving.alive.max(moving.files.segment_bytes());
    let over = moving.files.bytes().saturating_sub(2 * alive).min(alive);
    (MIN_SPANS + (MAX_SPANS - MIN_SPANS) * over / alive) as usize
}

/// Returns the end of a record, if its key is not unusually long.
fn end_of(item: &RecordToMove) -> u64 {
    item.from.0 + u64::from(item.bytes)
}

/// Returns the number of records to read together, from the first one.
fn span(found: &[&mut RecordToMove], victims: &Victims) -> usize {
    let first = found[0].from;
    let goes_on = |(one, next): &(&&mut RecordToMove, &&mut RecordToMove)| {
        victims.segment_of(next.from) == victims.segment_of(first)
            && next.from.0 <= end_of(one) + GAP_BYTES
            && end_of(next) - first.0 <= SPAN_BYTES
    };
    1 + found.iter().zip(&found[1..]).take_while(goes_on).count()
}

async fn read(store: &ColdStore, span: &[&mut RecordToMove]) -> Result<ColdSpan, OperationError> {
    let (first, last) = (&span[0], &span[span.len() - 1]);
    store
        .read_span(first.from, last.from, last.bytes as usize)
        .await
        .map_err(OperationError::storage)
}

/// Copies the records of one span.
async fn copy(
    worker: &Rc<WorkerTransactions>,
    store: &ColdStore,
    items: &mut [&mut RecordToMove],
    read: &ColdSpan,
    moving: &mut CompactionState,
) -> Result<(), OperationError> {
    let mut records = Vec::with_capacity(items.len());
    for item in items {
        let damaged = |reason| OperationError::storage(store.damaged(item.from, reason));
        let record =
            read.record(item.from).ok_or_else(|| damaged("a record's checksum is wrong"))?;
        if (record.table, record.rid) != (moving.table(item).id, item.rid) {
            return Err(damaged("another record is where this one was"));
        }
        records.push((item, record));
    }
    let most = BLOCK_BYTES.min(worker.engine().log.common_block_bytes() - log::block_bytes(0));
    let mut rest = &mut records[..];
    while !rest.is_empty() {
        let mut sum = 0;
        let fit = rest.iter().take_while(|(_, record)| {
            sum += logged_bytes(record);
            sum <= most
        });
        let count = fit.count().max(1);
        let some = rest.split_off_mut(..count).expect("at most the remaining number");
        let bytes = block_bytes(some.iter().map(|(_, record)| record));
        worker.wait_for_space(bytes, BlockPurpose::Upkeep).await?;
        let logged = log_block(worker, some, moving)?;
        worker.engine().checkpoints.note_copied(logged as u64);
        sched::yield_now(WaitCause::Memory).await;
    }
    Ok(())
}

fn logged_bytes(record: &RecordView<'_>) -> usize {
    log::record_bytes(record.key.len(), record.value.len())
}

fn block_bytes<'r>(records: impl Iterator<Item = &'r RecordView<'r>>) -> usize {
    log::block_bytes(records.map(logged_bytes).sum())
}

/// Logs a block of copies of those records that are still the newest versions, and returns its
/// bytes. The caller has waited for room.
fn log_block(
    worker: &Rc<WorkerTransactions>,
    records: &mut [(&mut &mut RecordToMove, RecordView<'_>)],
    moving: &mut CompactionState,
) -> Result<usize, OperationError> {
    let operation = reclaim::enter();
    let transaction = worker.begin().map_err(|_| OperationError::Overloaded)?;
    let all_bytes = block_bytes(records.iter().map(|(_, record)| record));
    let mut same = Vec::<(&mut RecordToMove, &RecordView<'_>, Link)>::with_capacity(records.len());
    for (item, record) in records {
        let newest = moving.table(item).newest(item.rid, transaction.view(), &operation);
        if let NewestVersion::Committed(link, kept) = newest
            && kept == item.kept()
        {
            same.push((item, record, link));
        }
    }
    // Room that was promised for a large block must be used.
    let bytes =
        if same.is_empty() { all_bytes } else { block_bytes(same.iter().map(|(_, r, _)| *r)) };
    let mut block = worker.engine().log.reserve(worker.number(), bytes);
    // From here on, a transaction that writes one of the records commits after this block. A write
    // before this point is detected here; the block is then left empty, and the next pass repeats
    // the check.
    let leads = |item: &RecordToMove, link| moving.table(item).points_to(item.rid, link);
    if same.is_empty() || !same.iter().all(|(item, _, link)| leads(item, *link)) {
        block.finish_skip();
    } else {
        moving.copied += same.len() as u64;
        for (item, record, _) in same {
            let RecordView { table, rid, key, value, .. } = *record;
            moving.last = block.append(table, RecordKind::Update, rid, key, value);
            item.stage = MoveStage::Copied(moving.last);
        }
        // Databases without change feeds log copies as updates, as earlier builds did.
        match worker.engine().log.logs_moved() {
            true => block.finish_moved(),
            false => block.finish_commit(None),
        }
    }
    transaction.end_uncounted();
    Ok(bytes)
}
