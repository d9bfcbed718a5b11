//! One snapshot of everything that is counted.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Database, Recovery, Table};
use crate::log::LogStats;
use crate::memory::MemoryKind;
use crate::sched::{SchedulerCounters, WaitCause};
use crate::transaction::{AbortCause, Engine, WorkerCounters};

/// What a database has done since it was opened, and how full it is; each figure is exact, but they
/// are not taken at one instant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Stats {
    /// Transactions committed.
    pub committed: u64,
    /// Of these, transactions that wrote nothing.
    pub committed_read_only: u64,
    /// Transactions aborted, by cause.
    pub aborted: AbortStats,
    /// Attempts after the first that `run` made.
    pub retries: u64,
    /// Times that a transaction met what was written after it began, and went on as if it had begun then, as
    /// all that it had been told was still so.
    pub snapshots_extended: u64,
    /// Superseded versions that were freed.
    pub versions_freed: u64,
    /// Superseded versions that were freed although an old snapshot was open, because no snapshot
    /// saw them.
    pub versions_pruned: u64,
    /// Superseded versions and deleted records that a transaction may still see.
    pub versions_waiting: u64,
    /// Versions that gave way to their place on disk.
    pub versions_evicted: u64,
    /// Deleted records whose index entry and id were reclaimed.
    pub records_reclaimed: u64,
    /// Entries of secondary indexes that were made or removed, by transactions that aborted too.
    pub index_entries: u64,
    /// Records that had expired and were deleted by sweeps ([`TableOptions::ttl`](crate::TableOptions::ttl)).
    pub expired_swept: u64,
    /// Dropped tables and indexes whose records are being deleted now, also those that a program left behind which has ended.
    pub removals_under_way: u64,
    /// Bulk operations that were committed ([`Database::run_bulk`](crate::Database::run_bulk)).
    pub bulk_operations: u64,
    /// Records that bulk operations wrote, and entries of secondary indexes, by those that were aborted too.
    pub bulk_records: u64,
    /// Leaves that were looked at for what bulk operations had left on them.
    pub bulk_leaves_swept: u64,
    /// Panics in destructors of callers' values on workers that changed nobody's outcome; each is told in
    /// the program's trace.
    pub destructor_panics: u64,
    /// Each worker's scheduler.
    pub workers: Vec<WorkerStats>,
    /// Suspensions of all workers, by cause.
    pub suspensions: SuspensionStats,
    /// Where the log stands.
    pub lsn: LogPositions,
    /// What the log has written.
    pub log: LogStats,
    /// Bytes in use.
    pub memory: MemoryStats,
    /// The pages of paged tables.
    pub pages: PageStats,
    /// What opening the database did; nothing for one in memory only.
    pub recovery: Recovery,
}

/// Aborted transactions by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
#[non_exhaustive]
pub struct AbortStats {
    /// Another transaction wrote the same record first.
    pub conflict: u64,
    /// Others had changed what the transaction read when it committed.
    pub certification: u64,
    /// The transaction wrote, and read what others had changed since it began; it did not come to its
    /// commit.
    pub stale_read: u64,
    /// The closure returned an error, or the caller asked for it.
    pub requested: u64,
    /// The closure panicked.
    pub panic: u64,
    /// The caller dropped the future or the handle.
    pub dropped: u64,
    /// An interactive transaction was open for longer than the options allow.
    pub expired: u64,
    /// The log failed, or the transaction could not be logged.
    pub log: u64,
}

/// One worker's scheduler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
#[non_exhaustive]
pub struct WorkerStats {
    /// Transactions in the hot queue.
    pub hot: u64,
    /// Transactions waiting for storage or their commit.
    pub cold: u64,
    /// Transactions ready and waiting for room in the hot queue.
    pub parked: u64,
    /// Transactions waiting for their callers' own futures.
    pub foreign: u64,
    /// Transactions the hot queue takes at the moment.
    pub width: u64,
    /// Tasks finished.
    pub finished: u64,
    /// Times it slept in the kernel.
    pub sleeps: u64,
    /// Transactions it began that were sent to another worker, which did not come back: a closure blocked its thread.
    pub taken_over: u64,
    /// Longest time for which it did nothing but run transactions. It looks at everything else every few
    /// hundred microseconds; if this is far more, a closure has blocked the worker's thread, as
    /// `std::thread::sleep`, a lock or a long computation does, and others waited for it; or the machine had no
    /// time for the worker.
    pub longest_stretch: Duration,
}

/// Suspensions by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
#[non_exhaustive]
pub struct SuspensionStats {
    /// For a cache line.
    pub memory: u64,
    /// For another worker's decision, or to stand back for a few rounds after a conflict.
    pub undecided: u64,
    /// For a block of storage.
    pub storage: u64,
    /// For a commit to be durable.
    pub commit: u64,
    /// For room in the log.
    pub log_space: u64,
    /// For transactions that were active to be over; the engine's upkeep does.
    pub grace_period: u64,
    /// To stand back for a time after many conflicts.
    pub back_off: u64,
    /// For a future from outside the engine.
    pub foreign: u64,
}

/// Positions in the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
#[non_exhaustive]
pub struct LogPositions {
    /// Where the next commit will be.
    pub tail: u64,
    /// Everything before is in memory or on disk without a gap.
    pub buffered: u64,
    /// Where recovery would start: the newest checkpoint, or 0.
    pub checkpoint: u64,
    /// Everything before is on disk; [`u64::MAX`] if nothing is logged.
    pub durable: u64,
}

/// Bytes in use, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
#[non_exhaustive]
pub struct MemoryStats {
    /// Versions of records, and what transactions may still see of changed records on pages.
    pub versions: u64,
    /// Index nodes.
    pub index_nodes: u64,
    /// Keys longer than eight bytes.
    pub keys: u64,
    /// Copies of values that transactions and scans under way were handed.
    pub copies: u64,
    /// Records that are being read from the log.
    pub reads: u64,
    /// Entries of the indirection arrays.
    pub indirection: u64,
    /// Pages of paged tables, with their frames: those in use, and those that come free are kept for others.
    pub pages: u64,
    /// The log's ring, where commits lie until they are on disk.
    pub ring: u64,
    /// What all these may take together; none if there is no bound.
    pub budget: Option<u64>,
    /// The whole process, as the operating system counts it (resident set).
    pub resident: u64,
}

/// The pages of paged tables: where they are, and how often they came and went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
#[non_exhaustive]
pub struct PageStats {
    /// Bytes of a page ([`Tuning::page_bytes`](crate::Tuning)); 0 as long as there was no paged table.
    pub page_bytes: u64,
    /// Pages that may be in memory now; 0 as long as there was no paged table.
    pub frames: u64,
    /// Pages that are in memory.
    pub resident: u64,
    /// Of these, pages with changes that are in no image on disk.
    pub dirty: u64,
    /// Pages that are not in memory, and of whose records there are versions that somebody may still see.
    pub orphaned: u64,
    /// Times that a page was loaded from disk.
    pub faults: u64,
    /// Times that a page left memory.
    pub evicted: u64,
    /// Of [`Self::faults`], those of pages that lead to others.
    pub inner_faults: u64,
    /// Of [`Self::evicted`], those of pages that lead to others.
    pub inner_evicted: u64,
    /// Pages that were written to disk.
    pub written: u64,
    /// Writes that this took: pages are written several at a time.
    pub writes: u64,
    /// Bytes on disk of pages that are not in memory, or have not changed since they were, and of images to which the newest checkpoint
    /// leads.
    pub zone_bytes: u64,
}

/// How large a table is, as far as that is known without looking at its records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct TableSize {
    /// Its records, about: those that are being written count, and in memory deleted ones do too until they are
    /// reclaimed. Where nothing was written for a while, it is exact. [`Transaction::count`](crate::Transaction::count)
    /// counts.
    pub records: u64,
    /// Bytes of the nodes of its index: all of which are in memory, or of a paged table the pages that lead to those with its
    /// records, wherever they are.
    pub index_bytes: u64,
    /// Levels of its index: so many nodes are looked at to find a key, the page with its record among them if the table is
    /// paged.
    pub index_height: u64,
}

impl Database {
    /// How large a table is, about, at once.
    ///
    /// ```
    /// # use braiddb::{Database, Error, Options, Table};
    /// # let db = Database::in_memory(Options::default().workers(1))?;
    /// # pollster::block_on(async {
    /// let cities: Table<str, u64> = db.create_table("cities").await?;
    /// db.put(&cities, "Maribor", &96_211).await?;
    /// let size = db.table_size(&cities);
    /// assert_eq!((size.records, size.index_height), (1, 1));
    /// # Ok::<_, Error>(()) }).unwrap();
    /// # Ok::<_, Error>(())
    /// ```
    pub fn table_size<K: ?Sized, V: ?Sized>(&self, table: &Table<K, V>) -> TableSize {
        let table = &table.core;
        let (records, (index_height, index_bytes)) = match table.paged() {
            Some(paged) => (paged.stored().records, paged.index_size()),
            None => (table.rids().in_use(), table.index.size()),
        };
        TableSize { records, index_bytes, index_height }
    }

    /// A snapshot of the statistics.
    ///
    /// ```
    /// # use braiddb::{Database, Error, Options};
    /// let db = Database::in_memory(Options::default().workers(1))?;
    /// db.run_blocking(async |tx| tx.tables().await)?;
    /// assert_eq!(db.stats().committed, 1);
    /// # Ok::<_, Error>(())
    /// ```
    pub fn stats(&self) -> Stats {
        let engine = &self.shared.engine;
        let mut stats = Stats::default();
        engine.counters.iter().for_each(|counters| stats.add_transactions(counters));
        self.shared.executor.counters().iter().for_each(|counters| stats.add_scheduler(counters));
        stats.lsn = LogPositions {
            tail: engine.log.tail().0,
            buffered: engine.log.buffered().0,
            checkpoint: engine.checkpoints.newest().0,
            durable: engine.log.readable_until().0,
        };
        stats.log = engine.log.stats();
        stats.memory = memory(engine);
        stats.removals_under_way = engine.removals.count();
        let pages = engine.page_stats();
        stats.pages = PageStats {
            page_bytes: pages.page_bytes,
            frames: pages.frames,
            resident: pages.resident,
            dirty: pages.dirty,
            orphaned: pages.orphaned,
            faults: pages.loaded,
            evicted: pages.evicted,
            inner_faults: pages.inner_loaded,
            inner_evicted: pages.inner_evicted,
            written: pages.written,
            writes: pages.writes,
            zone_bytes: pages.zone_bytes,
        };
        stats.recovery = self.shared.recovery;
        stats
    }
}

impl Stats {
    fn add_transactions(&mut self, counters: &WorkerCounters) {
        let aborted = |cause: AbortCause| counters.aborted[cause as usize].get();
        self.committed += counters.committed.get();
        self.committed_read_only += counters.committed_read_only.get();
        self.aborted.conflict += aborted(AbortCause::Conflict);
        self.aborted.certification += aborted(AbortCause::Certification);
        self.aborted.stale_read += aborted(AbortCause::SupersededRead);
        self.aborted.requested += aborted(AbortCause::Requested);
        self.aborted.panic += aborted(AbortCause::Panic);
        self.aborted.dropped += aborted(AbortCause::Dropped);
        self.aborted.expired += aborted(AbortCause::Expired);
        self.aborted.log += aborted(AbortCause::Log);
        self.retries += counters.retries.get();
        self.snapshots_extended += counters.extended.get();
        self.versions_freed += counters.versions_freed.get();
        self.versions_pruned += counters.versions_pruned.get();
        self.versions_evicted += counters.evicted.get();
        self.versions_waiting += counters.versions_waiting.get();
        self.records_reclaimed += counters.records_reclaimed.get();
        self.index_entries += counters.index_entries.get();
        self.expired_swept += counters.expired_swept.get();
        self.bulk_operations += counters.bulk_operations.get();
        self.bulk_records += counters.bulk_records.get();
        self.bulk_leaves_swept += counters.bulk_leaves_swept.get();
    }

    fn add_scheduler(&mut self, counters: &SchedulerCounters) {
        self.workers.push(WorkerStats {
            hot: counters.hot.get(),
            cold: counters.cold.get(),
            parked: counters.parked.get(),
            foreign: counters.foreign.get(),
            width: counters.width.get(),
            finished: counters.tasks_finished.get(),
            sleeps: counters.sleeps.get(),
            taken_over: counters.taken_over.get(),
            longest_stretch: Duration::from_nanos(counters.longest_stretch.get()),
        });
        self.destructor_panics += counters.destructor_panics.get();
        let suspended = |cause: WaitCause| counters.suspensions[cause as usize].get();
        self.suspensions.memory += suspended(WaitCause::Memory);
        self.suspensions.undecided += suspended(WaitCause::Undecided);
        self.suspensions.storage += suspended(WaitCause::Storage);
        self.suspensions.commit += suspended(WaitCause::Commit);
        self.suspensions.log_space += suspended(WaitCause::LogSpace);
        self.suspensions.grace_period += suspended(WaitCause::GracePeriod);
        self.suspensions.back_off += suspended(WaitCause::BackOff);
        self.suspensions.foreign += suspended(WaitCause::Foreign);
    }
}

fn memory(engine: &Engine) -> MemoryStats {
    MemoryStats {
        versions: engine.memory.bytes(MemoryKind::Version)
            + engine.memory.bytes(MemoryKind::Change),
        index_nodes: engine.memory.bytes(MemoryKind::Node),
        keys: engine.memory.bytes(MemoryKind::Key),
        copies: engine.memory.bytes(MemoryKind::Copy),
        reads: engine.memory.bytes(MemoryKind::Reading),
        indirection: engine.memory.array_bytes(),
        pages: engine.page_bytes(),
        ring: engine.log.ring_bytes(),
        budget: engine.memory_budget(),
        resident: resident_bytes().unwrap_or(0),
    }
}

/// The process's resident set, where the operating system says.
fn resident_bytes() -> Option<u64> {
    let pages = std::fs::read_to_string("/proc/self/statm").ok()?;
    let resident: u64 = pages.split_whitespace().nth(1)?.parse().ok()?;
    // SAFETY: asks for a constant of the system.
    let page_bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    Some(resident * u64::try_from(page_bytes).ok()?)
}

/// Reads what memory a database has, also after it is closed.
#[cfg(braid_simulation)]
#[derive(Clone, Debug)]
pub struct MemoryProbe(std::sync::Arc<crate::memory::MemoryCounters>);

#[cfg(braid_simulation)]
impl MemoryProbe {
    /// Bytes of versions, nodes and keys that are allocated.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.0.in_use()
    }
}

#[cfg(braid_simulation)]
impl Database {
    /// What memory the database has; to be asked when it is gone.
    #[must_use]
    pub fn memory_probe(&self) -> MemoryProbe {
        MemoryProbe(self.shared.engine.memory.clone())
    }
}
