//! Replay: applies every committed transaction in the log to the tables, by several threads.
//!
//! One thread reads blocks. Each other thread applies the records whose keys are hashed to it, so
//! changes of one key are applied in order. No record is loaded into memory: entries receive
//! addresses. If a record id was freed and reused for another key, two threads may apply records
//! with that id. The record with the later LSN is kept, in either order.
//!
//! Records of paged tables are applied by key, in batches (`key_batch`). They are written to pages
//! that belong to no table yet, on top of the checkpoint's contents.
//!
//! | block | action of replay |
//! |---|---|
//! | commit, no parts | applies its records |
//! | part | keeps it until its commit block; above a memory limit, keeps only its position |
//! | commit naming a first part | applies the parts of the transaction, in order, then its own records |
//! | part without a commit | discards it: the transaction did not commit |
//! | moved | like a commit without parts, but not counted as a transaction |
//! | skip | none |

use std::collections::BTreeMap;

use super::key_batch::{self, KeyBatch};
use super::recovered_pages::{PageMemoryWatch, RecoveringPages};
use super::{RecoveryError, RecoveryObserver, RecoveryStep};
use crate::log::{Block, BlockKind, LogReader, Lsn, RecordKind, RecordView};
use crate::planted::{Bug, is_planted};
use crate::reclaim::{self, OperationGuard};
use crate::record::{IndirectionEntry, MemoryRecords};
use crate::rid::{CATALOG, Rid};
use crate::sync::channel::{Receiver, SyncSender, sync_channel};
use crate::sync::{Mutex, thread};
use crate::transaction::Engine;
use crate::version::{Address, Stamp, VersionRef};

/// Number of blocks that are queued for each thread.
const MAX_QUEUED_BLOCKS: usize = 256;
/// Bytes of the log between two progress reports.
const PROGRESS_BYTES: u64 = 1 << 20;
/// Maximum bytes of blocks that are kept for transactions without a commit yet. Beyond that, for
/// example in bulk operations, parts are read again when the commit is found.
const MAX_KEPT_BYTES: u64 = if cfg!(any(test, braid_simulation)) { 8 << 10 } else { 64 << 20 };
/// Number of locks, which keep two threads from setting one record at the same time.
const LOCK_COUNT: usize = 1024;
/// Maximum number of threads that apply blocks.
const MAX_THREADS: usize = 16;

/// Result of a replay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReplayResult {
    pub(crate) transactions: u64,
    pub(crate) records: u64,
    /// Bytes that were logged by transactions without a commit.
    pub(crate) uncommitted_bytes: u64,
    /// LSN at which replay started.
    pub(crate) start: Lsn,
    /// End of the log.
    pub(crate) end: Lsn,
}

fn replay_threads() -> usize {
    thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS)
}

/// Returns the maximum number of threads of recovery that participate in memory reclamation at the
/// same time. They apply blocks, or parts of a batch. The reader of the log is one more, because it
/// applies a part for which no thread can be started.
pub(crate) fn max_recovery_threads() -> usize {
    replay_threads() + key_batch::max_threads() + 1
}

/// Applies the blocks of the reader to the engine's tables, and to `pages`.
///
/// # Errors
/// When the log cannot be read, or is damaged before its end.
pub(super) fn replay(
    engine: &Engine,
    pages: &RecoveringPages<'_>,
    mut reader: LogReader,
    watch: RecoveryObserver<'_>,
) -> Result<ReplayResult, RecoveryError> {
    let start = reader.end();
    let threads = replay_threads();
    let stripes: Vec<Mutex<()>> = (0..LOCK_COUNT).map(|_| Mutex::new(())).collect();
    let mut replayed = thread::scope(|scope| {
        let (mut senders, mut appliers) = (Vec::new(), Vec::new());
        for number in 0..threads {
            let (sender, blocks) = sync_channel(MAX_QUEUED_BLOCKS);
            let share = ReplayShare { engine, stripes: &stripes, number, threads };
            senders.push(sender);
            let applier = thread::spawn_scoped(scope, move || share.apply_all(&blocks));
            appliers.push(applier.map_err(|error| pages.no_threads(error))?);
        }
        let batch = KeyBatch::new(engine.room_to_replay());
        let mut committed = CommittedBlocks { engine, pages, appliers: senders, batch, by_key: 0 };
        let distributed = distribute(&mut reader, &mut committed, watch)
            .and_then(|replayed| committed.batch.apply(engine, pages).map(|()| replayed));
        let mut records = committed.by_key;
        drop(committed);
        for applier in appliers {
            let applied = applier.join().expect("an applier does not panic")?;
            records += applied;
        }
        Ok::<_, RecoveryError>(ReplayResult { records, ..distributed? })
    })?;
    (replayed.start, replayed.end) = (start, reader.end());
    release_unused_ids(engine);
    Ok(replayed)
}

/// Destination of committed blocks: records of paged tables are added to a batch, and blocks with
/// other records are sent to every thread.
struct CommittedBlocks<'r> {
    engine: &'r Engine,
    pages: &'r RecoveringPages<'r>,
    appliers: Vec<SyncSender<Block>>,
    batch: KeyBatch,
    /// Number of records that were added to the batch.
    by_key: u64,
}

impl CommittedBlocks<'_> {
    fn take(&mut self, block: &Block) -> Result<(), RecoveryError> {
        let mut has_others = false;
        for (lsn, record) in block.records() {
            if !record.kind.is_by_key() {
                has_others = true;
                continue;
            }
            self.pages.expect(lsn)?;
            self.by_key += 1;
            self.batch.add(&record);
            if self.batch.is_full() {
                self.batch.apply(self.engine, self.pages)?;
            }
        }
        for applier in self.appliers.iter().filter(|_| has_others) {
            // A thread that failed has closed its channel; its error is reported when it is joined.
            _ = applier.send(block.clone());
        }
        Ok(())
    }
}

/// Distributes committed blocks in commit order. Returns the number of commits, and the bytes
/// without a commit.
fn distribute(
    reader: &mut LogReader,
    committed: &mut CommittedBlocks<'_>,
    watch: RecoveryObserver<'_>,
) -> Result<ReplayResult, RecoveryError> {
    let (start, mut reported) = (reader.end(), reader.end());
    let mut parts = UncommittedParts::default();
    let mut transactions = 0;
    while let Some(block) = reader.next_block()? {
        if block.end.0 - reported.0 >= PROGRESS_BYTES {
            reported = block.end;
            // A checkpoint may be newer than the list of segments, if another process writes.
            let bytes = reader.space_end().0.saturating_sub(start.0);
            watch(RecoveryStep::Log { read: reported.0 - start.0, bytes });
        }
        match block.kind {
            BlockKind::Skip => {}
            BlockKind::Part { .. } if is_planted(Bug::PartsAppliedWithoutCommit) => {
                committed.take(&block)?;
            }
            BlockKind::Part { first_part } => parts.keep(first_part, block),
            BlockKind::Commit { .. } | BlockKind::Moved => {
                let first_part = match block.kind {
                    BlockKind::Commit { first_part } => first_part,
                    _ => None,
                };
                transactions += u64::from(block.kind != BlockKind::Moved);
                if let Some(first) = first_part {
                    parts.take(first, &block, reader, |part| committed.take(part))?;
                }
                committed.take(&block)?;
            }
        }
    }
    Ok(ReplayResult { transactions, uncommitted_bytes: parts.bytes(), ..ReplayResult::default() })
}

/// Parts of transactions without a commit yet, by their start. Ordered, so that the choice between
/// two with equal bytes is deterministic.
#[derive(Default)]
struct UncommittedParts {
    by_start: BTreeMap<Lsn, TransactionParts>,
    /// Bytes of the blocks that are kept.
    kept_bytes: u64,
}

/// Parts that a transaction has logged so far.
struct TransactionParts {
    bytes: u64,
    /// `None` above the memory limit: the blocks are read again.
    blocks: Option<Vec<Block>>,
}

impl TransactionParts {
    fn kept_bytes(&self) -> u64 {
        if self.blocks.is_some() { self.bytes } else { 0 }
    }
}

impl UncommittedParts {
    /// Returns the bytes of all parts.
    fn bytes(&self) -> u64 {
        self.by_start.values().map(|parts| parts.bytes).sum()
    }

    fn keep(&mut self, first: Lsn, block: Block) {
        let begun = || TransactionParts { bytes: 0, blocks: Some(Vec::new()) };
        let parts = self.by_start.entry(first).or_insert_with(begun);
        let bytes = block.end.0 - block.lsn.0;
        parts.bytes += bytes;
        let Some(blocks) = &mut parts.blocks else { return };
        blocks.push(block);
        self.kept_bytes += bytes;
        if self.kept_bytes > MAX_KEPT_BYTES
            && let Some(most) = self.by_start.values_mut().max_by_key(|parts| parts.kept_bytes())
        {
            self.kept_bytes -= most.kept_bytes();
            most.blocks = None;
        }
    }

    /// Passes the parts of a transaction, whose commit was found, to `each`.
    fn take(
        &mut self,
        first: Lsn,
        commit: &Block,
        reader: &LogReader,
        mut each: impl FnMut(&Block) -> Result<(), RecoveryError>,
    ) -> Result<(), RecoveryError> {
        let Some(parts) = self.by_start.remove(&first) else { return Ok(()) };
        self.kept_bytes -= parts.kept_bytes();
        if let Some(blocks) = parts.blocks {
            return blocks.iter().try_for_each(each);
        }
        let is_part = |block: &Block| block.kind == BlockKind::Part { first_part: first };
        let mut done = Ok(());
        reader.read_again(first, commit.lsn, |block| {
            if done.is_ok() && is_part(block) {
                done = each(block);
            }
        })?;
        done
    }
}

/// State of one thread, which applies its share of the keys.
struct ReplayShare<'r> {
    engine: &'r Engine,
    stripes: &'r [Mutex<()>],
    number: usize,
    threads: usize,
}

impl ReplayShare<'_> {
    /// Applies this thread's records of all blocks; returns their number.
    fn apply_all(&self, blocks: &Receiver<Block>) -> Result<u64, RecoveryError> {
        let participation = self.engine.domain.participate();
        let (mut applied, mut memory) = (0, PageMemoryWatch::new(self.engine));
        let is_mine = |record: &RecordView<'_>| !record.kind.is_by_key() && self.is_mine(record);
        for block in blocks {
            for (lsn, record) in block.records().filter(|(_, record)| is_mine(record)) {
                applied += 1;
                memory.count(record.key.len() + record.value.len());
                if record.table == CATALOG
                    && let Some(id) = self.engine.housekeeping.table_id_of(record.key, record.value)
                {
                    // A later record may delete the row.
                    self.engine.raise_table_id(id);
                }
                let operation = reclaim::enter();
                let table = self.engine.recovered_table(record.table);
                // Only tables in memory have records with ids.
                let Some(table) = table.in_memory() else { continue };
                table.raise_rid(record.rid)?;
                self.apply(table, &record, lsn, &operation);
            }
            participation.turn();
        }
        Ok(applied)
    }

    fn is_mine(&self, record: &RecordView<'_>) -> bool {
        crc32c::crc32c(record.key) as usize % self.threads == self.number
    }

    fn apply(
        &self,
        table: &MemoryRecords,
        record: &RecordView<'_>,
        lsn: Lsn,
        operation: &OperationGuard,
    ) {
        let (rid, key) = (record.rid, record.key);
        match record.kind {
            RecordKind::Delete => {
                table.index().remove(key, rid, operation);
                self.set(table, rid, lsn, None);
            }
            RecordKind::Insert | RecordKind::Update => {
                self.set(table, rid, lsn, Some(Address::new(lsn, record.value.len())));
                if record.kind == RecordKind::Insert {
                    // If the index still has another record for the key, that record was deleted
                    // long ago.
                    if let Ok(old) = table.look_up_now(key, operation)
                        && old != rid
                    {
                        table.index().remove(key, old, operation);
                    }
                    let inserted = table.index().insert(key, rid, operation);
                    assert!(inserted.is_ok() || inserted == Err(rid), "one thread has the key");
                }
            }
            RecordKind::PutByKey | RecordKind::DeleteByKey => {
                unreachable!("records of paged tables have no ids")
            }
        }
    }

    /// Stores the effect of a record's log entry at `lsn`, unless a later entry was applied
    /// already: the record's address, or for a deletion a tombstone with its LSN.
    fn set(&self, table: &MemoryRecords, rid: Rid, lsn: Lsn, address: Option<Address>) {
        let _exclusive = self.stripes[rid.number() as usize % LOCK_COUNT].lock();
        let before = table.array().load(rid);
        let there = match before {
            // SAFETY: replaced and freed under the record's stripe only.
            IndirectionEntry::Version(tombstone) => unsafe { tombstone.get() }.stamp().lsn(),
            IndirectionEntry::Address(address) => Some(address.lsn()),
            IndirectionEntry::Empty | IndirectionEntry::Dead => None,
        };
        if there.is_some_and(|there| there > lsn) {
            return;
        }
        let tombstone = || VersionRef::allocate(table.memory(), Stamp::committed(lsn), &[], true);
        let entry = address
            .map_or_else(|| IndirectionEntry::Version(tombstone()), IndirectionEntry::Address);
        let replaced = table.array().replace(rid, before, entry);
        assert!(replaced, "changed under the record's stripe only");
        if let IndirectionEntry::Version(old) = before {
            // SAFETY: unlinked under the record's stripe; no transaction runs during replay.
            unsafe { old.free(table.memory()) };
        }
    }
}

/// Frees the ids of deleted records and unused ids, and counts the other records.
fn release_unused_ids(engine: &Engine) {
    for table in engine.tables() {
        engine.raise_table_id(table.id);
        let Some(table) = table.in_memory() else { continue };
        let mut records = 0;
        for rid in (0..table.rids().handed_out()).map(Rid::new) {
            match table.array().load(rid) {
                IndirectionEntry::Dead => unreachable!("replay leaves no dead records"),
                IndirectionEntry::Empty => table.rids().release(rid),
                IndirectionEntry::Address(_) => records += 1,
                IndirectionEntry::Version(tombstone) => {
                    table.array().clear(rid);
                    table.rids().release(rid);
                    // SAFETY: unlinked, and the threads of the replay have ended.
                    unsafe { tombstone.free(table.memory()) };
                }
            }
        }
        table.count().add(0, records);
    }
}
