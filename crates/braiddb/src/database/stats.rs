//! Statistics of a database.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::handle::{Database, Shared};
use super::recovery::Recovery;
use super::table::Table;
use crate::log::{LogStats, Lsn};
use crate::memory::MemoryKind;
use crate::sched::{SchedulerCounters, WaitCause};
use crate::transaction::{AbortCause, Engine, WorkerCounters};

/// Counters of a database since its opening, and its fill levels. Each figure is exact, but the
/// figures are not read at the same instant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Stats {
    /// Committed transactions: their number. Their counterpart is [`AbortStats::total`].
    pub committed: u64,
    /// Committed transactions that wrote nothing.
    pub committed_read_only: u64,
    /// Aborted transactions, by cause; [`AbortStats::total`] is their number.
    pub aborted: AbortStats,
    /// Retries made by `run`, not counting first attempts.
    pub retries: u64,
    /// Times that a transaction moved its snapshot forward. When it met a newer version, everything
    /// it had read was still current, so it continued as if it had begun later.
    pub snapshots_extended: u64,
    /// Freed superseded versions.
    pub versions_freed: u64,
    /// Superseded versions that were freed during an older snapshot, because no snapshot could see
    /// them.
    pub versions_pruned: u64,
    /// Superseded versions and deleted records that a transaction may still see.
    pub versions_waiting: u64,
    /// Versions evicted from memory, because the log on disk has them.
    pub versions_evicted: u64,
    /// Deleted records whose index entry and id were reclaimed.
    pub records_reclaimed: u64,
    /// Entries of secondary indexes that were added or removed, including those of aborted
    /// transactions.
    pub index_entries: u64,
    /// Expired records deleted by sweeps ([`TableOptions::ttl`](crate::TableOptions::ttl)).
    pub expired_swept: u64,
    /// Dropped tables and indexes whose records are being deleted, including those left by an
    /// earlier run of the program.
    pub removals_under_way: u64,
    /// Committed bulk operations ([`Database::run_bulk`](crate::Database::run_bulk)).
    pub bulk_operations: u64,
    /// Records and secondary index entries written by bulk operations, including aborted ones.
    pub bulk_records: u64,
    /// Leaves visited to clean up after bulk operations.
    pub bulk_leaves_swept: u64,
    /// Open snapshots. Each keeps versions that it may read, in memory and in the log.
    pub snapshots_open: u64,
    /// Bytes of the newest checkpoint's file.
    pub checkpoint_bytes: u64,
    /// Panics in destructors of callers' values on workers that changed no result. Each one is
    /// logged through `tracing`.
    pub destructor_panics: u64,
    /// The scheduler of each worker.
    pub workers: Vec<WorkerStats>,
    /// Suspensions on all workers, by cause.
    pub suspensions: SuspensionStats,
    /// Positions in the log.
    pub lsn: LogPositions,
    /// Change slots, change feeds and readers of past changes that hold the log, in the order of
    /// their positions: the first one keeps the most.
    pub log_holders: Vec<LogHolder>,
    /// Log output.
    pub log: LogStats,
    /// Memory use in bytes.
    pub memory: MemoryStats,
    /// The pages of paged tables.
    pub pages: PageStats,
    /// The result of opening the database; empty for a database that exists only in memory.
    pub recovery: Recovery,
}

/// Aborted transactions, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
#[non_exhaustive]
pub struct AbortStats {
    /// Another transaction wrote the same record first.
    pub conflict: u64,
    /// Validation at commit failed: others had changed records that the transaction read.
    pub certification: u64,
    /// The transaction tried to write after others had changed records that it read. It was aborted
    /// before its commit.
    pub stale_read: u64,
    /// The closure returned an error, or the caller asked for it.
    pub requested: u64,
    /// The closure panicked.
    pub panic: u64,
    /// The caller dropped the future or the handle.
    pub dropped: u64,
    /// An interactive transaction exceeded a time limit in the options.
    pub expired: u64,
    /// The log failed, or the transaction could not be logged.
    pub log: u64,
}

impl AbortStats {
    /// Returns the number of aborted transactions, of all causes. Each failed attempt of a
    /// transaction that is retried counts.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let db = Database::in_memory(Options::default().workers(1))?;
    ///         let names: Table<u64, str> = db.create_table("names").await?;
    ///         let refused = db.run(async move |tx| match tx.delete(&names, &1).await? {
    ///             true => Ok(()),
    ///             false => Err(names.key_not_found(&1)),
    ///         });
    ///         assert!(refused.await.is_err());
    ///         let aborted = db.stats().aborted;
    ///         assert_eq!((aborted.total(), aborted.requested), (1, 1));
    ///         Ok(())
    ///     })
    /// }
    /// ```
    #[must_use]
    pub fn total(&self) -> u64 {
        let Self { conflict, certification, stale_read, requested, panic, dropped, expired, log } =
            *self;
        conflict + certification + stale_read + requested + panic + dropped + expired + log
    }
}

/// The scheduler of one worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
#[non_exhaustive]
pub struct WorkerStats {
    /// Transactions in the hot queue.
    pub hot: u64,
    /// Transactions waiting for storage or for their commit.
    pub cold: u64,
    /// Transactions ready to run that wait for room in the hot queue.
    pub parked: u64,
    /// Transactions waiting for futures of the caller's code.
    pub foreign: u64,
    /// The current capacity of the hot queue, in transactions.
    pub width: u64,
    /// Finished tasks.
    pub finished: u64,
    /// Times the worker slept in the kernel.
    pub sleeps: u64,
    /// Transactions it started that were queued on another worker, because a closure blocked that
    /// worker's thread.
    pub taken_over: u64,
    /// The longest stall: a time during which the worker only ran transactions. A worker normally
    /// handles its other work every few hundred microseconds. A much longer stall means that a
    /// closure blocked the thread (`std::thread::sleep`, a lock, a long computation), or that the
    /// machine did not schedule the worker. Other transactions waited in that time.
    pub longest_stretch: Duration,
    /// As `longest_stretch`, in processor time of the thread, which time without a processor does
    /// not increase. Zero unless [`Tuning::trace`](crate::Tuning::trace) is set.
    pub longest_cpu_stretch: Duration,
}

/// Suspensions by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
#[non_exhaustive]
pub struct SuspensionStats {
    /// Waits for a cache line.
    pub memory: u64,
    /// Waits for another worker's decision, or for a few rounds after a conflict.
    pub undecided: u64,
    /// Waits for a block of storage.
    pub storage: u64,
    /// Waits for a commit to become durable.
    pub commit: u64,
    /// Waits for space in the log.
    pub log_space: u64,
    /// Waits of the engine's upkeep for active transactions to end.
    pub grace_period: u64,
    /// Timed waits after repeated conflicts.
    pub back_off: u64,
    /// Waits for a future outside the engine.
    pub foreign: u64,
}

/// Positions in the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
#[non_exhaustive]
pub struct LogPositions {
    /// The position of the next commit.
    pub tail: u64,
    /// The end of the log that is in memory or on disk without a gap.
    pub buffered: u64,
    /// The position at which recovery would start: that of the newest checkpoint, or 0.
    pub checkpoint: u64,
    /// The end of the log that is on disk; [`u64::MAX`] without a log.
    pub durable: u64,
    /// The lowest position that a change feed or a change slot keeps; `tail` if none keeps any.
    pub kept: u64,
    /// No open transaction or snapshot began before this position; `tail` if none is open.
    /// Superseded versions and deleted records are kept while one that began before them is open
    /// ([`Stats::versions_waiting`]). If the position stays, an interactive transaction or a
    /// snapshot is open for long.
    pub oldest_begin: u64,
}

/// A change slot or a change feed that holds the log ([`Stats::log_holders`]).
///
/// ```
/// use braiddb::{Database, Options, block_on};
///
/// fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let directory = tempfile::tempdir()?;
///     let db = Database::open(directory.path(), Options::default())?;
///     block_on(db.create_change_slot("search", 4 << 30))?;
///     assert_eq!(db.stats().log_holders[0].slot.as_deref(), Some("search"));
///     Ok(())
/// }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
#[non_exhaustive]
pub struct LogHolder {
    /// Name of the slot; `None` for an active feed, or a reader of past changes.
    pub slot: Option<String>,
    /// The lowest position that it needs.
    pub from: u64,
    /// Bytes of the log from there to the tail.
    pub bytes: u64,
}

/// Memory use in bytes, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
#[non_exhaustive]
pub struct MemoryStats {
    /// Versions of records, and before-images of changed records on pages that transactions may
    /// still see.
    pub versions: u64,
    /// Index nodes.
    pub index_nodes: u64,
    /// Keys of indexes in memory with more than eight bytes behind the prefix that their node shares,
    /// and those prefixes.
    pub keys: u64,
    /// Copies of values handed to active transactions and scans.
    pub copies: u64,
    /// Records that are being read from the log, and large values that wait for memory to be
    /// written.
    pub reads: u64,
    /// Entries of the indirection arrays.
    pub indirection: u64,
    /// Pages of paged tables with their frames, in use or kept for reuse.
    pub pages: u64,
    /// The log's ring, which holds commits until they are on disk.
    pub ring: u64,
    /// The limit for the sum of all of these; `None` without a limit.
    pub budget: Option<u64>,
    /// The resident set of the whole process, as reported by the operating system.
    pub resident: u64,
}

/// Pages of paged tables: where they are, and how often they were loaded and evicted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
#[non_exhaustive]
pub struct PageStats {
    /// The size of a page in bytes ([`Tuning::page_bytes`](crate::Tuning::page_bytes)); 0 before the first
    /// paged table exists.
    pub page_bytes: u64,
    /// The current maximum number of pages in memory; 0 before the first paged table exists.
    pub frames: u64,
    /// Pages in memory.
    pub resident: u64,
    /// Pages in memory with changes that are not on disk.
    pub dirty: u64,
    /// Pages that are not in memory, while transactions may still see older versions of their
    /// records.
    pub orphaned: u64,
    /// Pages loaded from disk.
    pub faults: u64,
    /// Pages evicted from memory.
    pub evicted: u64,
    /// Loaded inner pages, also counted in [`Self::faults`].
    pub inner_faults: u64,
    /// Evicted inner pages, also counted in [`Self::evicted`].
    pub inner_evicted: u64,
    /// Pages written to disk.
    pub written: u64,
    /// Write operations for these pages; each writes several pages.
    pub writes: u64,
    /// Disk space of page images in bytes: of pages not in memory or unchanged in memory, and of
    /// images referenced by the newest checkpoint.
    pub zone_bytes: u64,
    /// Disk space of the files of page images in bytes, with free places for further images.
    pub file_bytes: u64,
}

/// The approximate size of a table, without visiting its records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct TableSize {
    /// Approximate number of records. It includes records that are being written and, for tables in
    /// memory, deleted records until they are reclaimed. Without recent writes it is exact.
    /// [`Transaction::count`](crate::Transaction::count) returns the exact number.
    pub records: u64,
    /// Bytes of the nodes of its index, which are all in memory. For a paged table, bytes of its
    /// inner pages, in memory or on disk.
    pub index_bytes: u64,
    /// The height of its index: the number of nodes visited to find a key, including the leaf page
    /// of a paged table.
    pub index_height: u64,
}

impl Database {
    /// Returns the approximate size of a table immediately.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     let db = Database::in_memory(Options::default().workers(1))?;
    ///     block_on(async {
    ///         let cities: Table<str, u64> = db.create_table("cities").await?;
    ///         db.put(&cities, "Maribor", &96_211).await?;
    ///         let size = db.table_size(&cities);
    ///         assert_eq!((size.records, size.index_height), (1, 1));
    ///         Ok(())
    ///     })
    /// }
    /// ```
    pub fn table_size<K: ?Sized, V: ?Sized>(&self, table: &Table<K, V>) -> TableSize {
        let table = &table.core;
        let (index_height, index_bytes) = table.index_size();
        TableSize { records: table.stored(), index_bytes, index_height }
    }

    /// Returns the statistics of the database.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options};
    ///
    /// fn main() -> Result<(), Error> {
    ///     let db = Database::in_memory(Options::default().workers(1))?;
    ///     db.run_blocking(async |tx| tx.tables().await)?;
    ///     assert_eq!(db.stats().committed, 1);
    ///     Ok(())
    /// }
    /// ```
    pub fn stats(&self) -> Stats {
        let Shared { engine, executor, recovery, .. } = &*self.shared;
        Stats::collect(engine, executor.counters(), *recovery)
    }
}

impl Stats {
    /// Collects the statistics of an open database.
    pub(super) fn collect(
        engine: &Engine,
        schedulers: &[Arc<SchedulerCounters>],
        recovery: Recovery,
    ) -> Self {
        let mut stats = Stats::default();
        engine.counters.iter().for_each(|counters| stats.add_transactions(counters));
        schedulers.iter().for_each(|counters| stats.add_scheduler(counters));
        let tail = engine.log.tail();
        stats.lsn = LogPositions {
            tail: tail.0,
            buffered: engine.log.buffered().0,
            checkpoint: engine.checkpoints.newest().0,
            durable: engine.log.readable_until().0,
            kept: engine.log.kept_from(tail).0,
            oldest_begin: engine.horizon.oldest(tail).0,
        };
        let holder = |(slot, from): (Option<Arc<str>>, Lsn)| LogHolder {
            slot: slot.map(|name| (*name).to_owned()),
            from: from.0,
            bytes: tail.0.saturating_sub(from.0),
        };
        stats.log_holders = engine.log.holders().into_iter().map(holder).collect();
        stats.log_holders.sort_by_key(|holder| holder.from);
        stats.log = engine.log.stats();
        stats.memory = memory(engine);
        stats.removals_under_way = engine.removals.count();
        stats.snapshots_open = engine.snapshots_open();
        stats.checkpoint_bytes = engine.checkpoints.newest_bytes();
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
            file_bytes: pages.file_bytes,
        };
        stats.recovery = recovery;
        stats
    }

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
            longest_cpu_stretch: Duration::from_nanos(counters.longest_cpu_stretch.get()),
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

/// Returns the resident set of the process, if the operating system reports it.
fn resident_bytes() -> Option<u64> {
    let pages = std::fs::read_to_string("/proc/self/statm").ok()?;
    let resident: u64 = pages.split_whitespace().nth(1)?.parse().ok()?;
    // SAFETY: the call only reads a constant of the system.
    let page_bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    Some(resident * u64::try_from(page_bytes).ok()?)
}

/// Reads the memory use of a database, also after it is closed.
#[cfg(braid_simulation)]
#[derive(Clone, Debug)]
pub struct MemoryProbe(std::sync::Arc<crate::memory::MemoryCounters>);

#[cfg(braid_simulation)]
impl MemoryProbe {
    /// Returns the allocated bytes of versions, nodes and keys.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.0.in_use()
    }
}

#[cfg(braid_simulation)]
impl Database {
    /// Returns a probe of the database's memory use, which is still usable after the database is
    /// dropped.
    #[must_use]
    pub fn memory_probe(&self) -> MemoryProbe {
        MemoryProbe(self.shared.engine.memory.clone())
    }
}
