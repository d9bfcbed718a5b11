//! One pass over all records.

use std::collections::{BTreeSet, HashMap};
use std::ops::Bound;
use std::rc::Rc;

use crate::index::Entry;
use crate::log::{self, ColdRecord, Lsn, RecordKind};
use crate::reclaim;
use crate::record::{Kept, Newest, Table};
use crate::rid::{Rid, TableId};
use crate::sched::{self, Cause, Interleaved};
use crate::transaction::{OperationError, Worker};
use crate::types::KeyBuffer;
use crate::version::Link;

/// Index entries looked at in one transaction: the more, the more of their records are read at once.
const BATCH: usize = 512;
/// Of these, between two turns of others.
const TURN: usize = 32;
/// Bytes of records in memory at once, and of copies in one block; a single record may be larger.
const READ_BYTES: usize = 4 << 20;
const BLOCK_BYTES: usize = 64 << 10;

/// A copy of a record.
#[derive(Clone, Copy, Debug)]
struct Copy {
    from: Lsn,
    to: Lsn,
}

/// What is to be moved, and what was.
#[derive(Debug)]
pub(super) struct Moving {
    victims: BTreeSet<u64>,
    segment_bytes: u64,
    copies: HashMap<(TableId, Rid), Copy>,
    /// Records that were copied.
    pub(super) copied: u64,
    /// The last copy.
    pub(super) last: Lsn,
}

impl Moving {
    pub(super) fn new(victims: &[u64], segment_bytes: u64) -> Self {
        let victims = victims.iter().copied().collect();
        Self { victims, segment_bytes, copies: HashMap::new(), copied: 0, last: Lsn::ZERO }
    }

    /// Whether a victim holds some of a stretch of the log.
    fn holds(&self, kept: Kept) -> bool {
        let first = kept.lsn.0 / self.segment_bytes;
        let last = (kept.lsn.0 + kept.bytes as u64 - 1) / self.segment_bytes;
        self.victims.range(first..=last).next().is_some()
    }
}

/// A record to be copied.
struct Found<'e> {
    entry: &'e Entry,
    link: Link,
    kept: Kept,
}

/// Looks at every record, once; `true` if nothing leads to a victim any more.
///
/// # Errors
/// The device's, the log's; `Unlogged` for a record that the log does not have.
pub(super) async fn pass(worker: &Rc<Worker>, moving: &mut Moving) -> Result<bool, OperationError> {
    let engine = worker.engine().clone();
    let mut settled = true;
    for table in engine.tables() {
        let mut cursor = table.index.cursor(Bound::Unbounded, Bound::Unbounded, false);
        let mut entries = Vec::<Entry>::new();
        loop {
            let _operation = reclaim::enter();
            if !cursor.next_batch(&mut entries, BATCH).await {
                break;
            }
            table.bring_near(entries.iter().map(|entry| entry.rid)).await;
            let transaction = worker.begin().map_err(|_| OperationError::Overloaded)?;
            let (oldest, durable) =
                (engine.horizon.oldest(engine.log.tail()), engine.log.durable());
            let mut found = Vec::new();
            for (number, entry) in entries.iter().enumerate() {
                if number % TURN == TURN - 1 {
                    sched::yield_now(Cause::Memory).await;
                }
                // SAFETY: the guard above, and the transaction.
                let (link, kept) = match unsafe { table.newest(entry.rid) } {
                    Newest::Gone => continue,
                    Newest::Unlogged => return Err(OperationError::Unlogged),
                    Newest::Undecided(below) => {
                        settled &= !below.is_some_and(|kept| moving.holds(kept));
                        continue;
                    }
                    Newest::Committed(link, kept) => (link, kept),
                };
                if !moving.holds(kept) {
                    continue;
                }
                settled = false;
                match moving.copies.get(&(table.id, entry.rid)) {
                    Some(copy) if copy.from == kept.lsn => {
                        if copy.to < oldest && copy.to < durable {
                            // SAFETY: found just now, under the transaction.
                            let given_way = unsafe { table.lead_to(entry.rid, link, copy.to) };
                            given_way.into_iter().for_each(|version| worker.evicted(version));
                        }
                    }
                    _ => found.push(Found { entry, link, kept }),
                }
            }
            let mut rest = &found[..];
            while !rest.is_empty() {
                let (some, after) = split(rest, READ_BYTES, |found| found.kept.bytes);
                copy(worker, &table, some, moving).await?;
                rest = after;
            }
            transaction.end_uncounted();
            // A pass may be long, and others may just have come.
            sched::yield_now(Cause::Memory).await;
        }
    }
    Ok(settled)
}

/// The first items, of `most` bytes together, or a single one that is larger; and the others.
fn split<T>(items: &[T], most: usize, bytes: impl Fn(&T) -> usize) -> (&[T], &[T]) {
    let mut sum = 0;
    let fit = items.iter().take_while(|item| {
        sum += bytes(item);
        sum <= most
    });
    items.split_at(fit.count().max(1))
}

/// Copies records to the end of the log, as far as they are still what was found. The caller holds
/// an operation guard older than the entries, and an active transaction.
async fn copy(
    worker: &Rc<Worker>,
    table: &Table,
    found: &[Found<'_>],
    moving: &mut Moving,
) -> Result<(), OperationError> {
    let reads = found.iter().map(|found| read(worker, table, found));
    let mut records = Vec::with_capacity(found.len());
    for (found, read) in found.iter().zip(Interleaved::new(reads).await) {
        let mut key = KeyBuffer::new();
        // SAFETY: the caller's guard.
        unsafe { found.entry.copy_key(key.inner_mut()) };
        records.push((found, key, read?));
    }
    let logged_bytes = |(_, key, read): &(&Found<'_>, KeyBuffer, Value<'_>)| {
        log::record_bytes(key.len(), read.value().len())
    };
    let mut rest = &records[..];
    while !rest.is_empty() {
        let (some, after) = split(rest, BLOCK_BYTES, logged_bytes);
        rest = after;
        let bytes = some.iter().map(logged_bytes).sum();
        let block_bytes = log::block_bytes(bytes);
        worker.wait_for_space(block_bytes).await?;
        let mut block = worker.engine().log.reserve(worker.number(), block_bytes);
        // From here on, whoever writes one of the records commits later than this block; whoever
        // wrote it before is seen here. Then the block is left empty, and the next pass looks again.
        if !some.iter().all(|(found, ..)| table.leads_to(found.entry.rid, found.link)) {
            block.finish_skip();
            continue;
        }
        for (found, key, read) in some {
            let rid = found.entry.rid;
            let to = block.append(table.id, RecordKind::Update, rid, key, read.value());
            moving.copies.insert((table.id, rid), Copy { from: found.kept.lsn, to });
            moving.last = to;
        }
        block.finish_commit(None);
        moving.copied += some.len() as u64;
    }
    Ok(())
}

/// A record's value.
enum Value<'t> {
    InMemory(&'t [u8]),
    Read(ColdRecord),
}

impl Value<'_> {
    fn value(&self) -> &[u8] {
        match self {
            Self::InMemory(value) => value,
            Self::Read(record) => record.view().value,
        }
    }
}

/// Reads the value of a record that was found. The caller holds an active transaction.
async fn read<'t>(
    worker: &Worker,
    table: &'t Table,
    found: &Found<'_>,
) -> Result<Value<'t>, OperationError> {
    match found.link {
        // SAFETY: the newest version when the caller's transaction was active, so not freed while
        // it is.
        Link::Version(version) => Ok(Value::InMemory(unsafe { version.get() }.payload())),
        Link::Address(address) => {
            let store = worker.engine().log.cold_store().ok_or(OperationError::Unlogged)?;
            let failed = |error: log::LogError| OperationError::Storage(error.into());
            let record = store.read(address.lsn(), address.read_bytes()).await.map_err(failed)?;
            let same = (record.view().table, record.view().rid) == (table.id, found.entry.rid);
            if !same {
                let reason = "another record is where this one was";
                return Err(failed(store.damaged(address.lsn(), reason)));
            }
            Ok(Value::Read(record))
        }
    }
}
