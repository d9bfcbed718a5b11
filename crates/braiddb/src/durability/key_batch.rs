//! Replay batches: records of paged tables are applied a batch at a time, in key order. A table may
//! be larger than memory. With batches, each leaf is loaded and written once for all of a batch's
//! records in its range.

use super::RecoveryError;
use super::recovered_pages::{PageMemoryWatch, RecoveringPages};
use crate::log::{RecordKind, RecordView};
use crate::rid::TableId;
use crate::sync::thread;
use crate::transaction::Engine;

/// Minimum and maximum bytes of a batch, regardless of the memory budget.
const MIN_BYTES: u64 = if cfg!(any(test, braid_simulation)) { 4 << 10 } else { 1 << 20 };
const MAX_BYTES: u64 = if cfg!(any(test, braid_simulation)) { 4 << 10 } else { 64 << 20 };
/// Number of threads per core that apply a batch. Each waits for the pages that it loads, so
/// several are used.
const THREADS_PER_CORE: usize = if cfg!(braid_simulation) { 1 } else { 8 };
const MAX_CORES: usize = 8;
/// Minimum number of records for a thread.
const MIN_SHARE: usize = if cfg!(any(test, braid_simulation)) { 8 } else { 512 };

/// Records that were put or deleted by key, in log order.
pub(super) struct KeyBatch {
    entries: Vec<BatchEntry>,
    /// Keys and values, one after the other.
    bytes: Vec<u8>,
    max_bytes: usize,
}

/// Position of a record in the batch's bytes.
struct BatchEntry {
    table: TableId,
    key_bytes: u32,
    start: usize,
    /// `None` if the record was deleted.
    value_bytes: Option<u32>,
}

impl BatchEntry {
    fn key<'b>(&self, bytes: &'b [u8]) -> &'b [u8] {
        &bytes[self.start..][..self.key_bytes as usize]
    }

    fn value<'b>(&self, bytes: &'b [u8]) -> Option<&'b [u8]> {
        let start = self.start + self.key_bytes as usize;
        self.value_bytes.map(|len| &bytes[start..][..len as usize])
    }
}

impl KeyBatch {
    /// Creates an empty batch; `room` is the memory that it may take, if that is bounded.
    pub(super) fn new(room: Option<u64>) -> Self {
        let max_bytes = room.unwrap_or(MAX_BYTES).clamp(MIN_BYTES, MAX_BYTES) as usize;
        Self { entries: Vec::new(), bytes: Vec::new(), max_bytes }
    }

    pub(super) fn add(&mut self, record: &RecordView<'_>) {
        let value = (record.kind == RecordKind::PutByKey).then_some(record.value);
        self.entries.push(BatchEntry {
            table: record.table,
            key_bytes: record.key.len() as u32,
            start: self.bytes.len(),
            value_bytes: value.map(|value| value.len() as u32),
        });
        self.bytes.extend_from_slice(record.key);
        self.bytes.extend_from_slice(value.unwrap_or_default());
    }

    /// Returns whether the batch must be applied before another record is added.
    pub(super) fn is_full(&self) -> bool {
        self.bytes.len() + self.entries.len() * size_of::<BatchEntry>() >= self.max_bytes
    }

    /// Applies the newest record of each key to its table's pages, by several threads with disjoint
    /// key ranges. The batch is empty afterwards.
    ///
    /// # Errors
    /// When a page is not available.
    pub(super) fn apply(
        &mut self,
        engine: &Engine,
        pages: &RecoveringPages<'_>,
    ) -> Result<(), RecoveryError> {
        let Self { entries, bytes, .. } = self;
        // The sort is stable: the newest record of a key is the first one, and is kept.
        entries.reverse();
        entries.sort_by(|a, b| (a.table, a.key(bytes)).cmp(&(b.table, b.key(bytes))));
        entries.dedup_by(|a, b| (a.table, a.key(bytes)) == (b.table, b.key(bytes)));
        // Each thread needs several pages at the same time.
        let ahead = engine.pages().map_or(0, |pages| pages.max_prefetched_pages());
        let threads = max_threads().min(ahead.max(cores()));
        let share = entries.len().div_ceil(threads).max(MIN_SHARE);
        let bytes = &*bytes;
        let done = thread::scope(|scope| {
            let (mut appliers, mut done) = (Vec::new(), Ok(()));
            for some in entries.chunks(share) {
                let apply = move || apply_some(engine, pages, some, bytes);
                match thread::spawn_scoped(scope, apply) {
                    Ok(applier) => appliers.push(applier),
                    // If the thread cannot be started, this thread applies the records.
                    Err(_) => done = done.and(apply()),
                }
            }
            for applier in appliers {
                done = done.and(applier.join().expect("an applier does not panic"));
            }
            done
        });
        entries.clear();
        self.bytes.clear();
        done
    }
}

fn cores() -> usize {
    thread::available_parallelism().map_or(1, usize::from).min(MAX_CORES)
}

/// Returns the maximum number of threads that apply a batch at the same time.
pub(super) fn max_threads() -> usize {
    cores() * THREADS_PER_CORE
}

fn apply_some(
    engine: &Engine,
    pages: &RecoveringPages<'_>,
    some: &[BatchEntry],
    bytes: &[u8],
) -> Result<(), RecoveryError> {
    let participation = engine.domain.participate();
    let mut memory = PageMemoryWatch::new(engine);
    for entry in some {
        let (key, value) = (entry.key(bytes), entry.value(bytes));
        pages.replay(entry.table, key, value)?;
        if memory.count(key.len() + value.map_or(0, <[u8]>::len)) {
            participation.turn();
        }
    }
    Ok(())
}
