//! The bars: what Braid's figures must reach, in one place.
//!
//! A bar is a ratio within one run, or a size: what does not depend on the machine. Rates that were published of other
//! systems, on other machines, are told beside what was measured, and judge nothing.

use crate::harness::report::Side;

/// A bar: side, limit, unit.
pub(crate) type Limit = (Side, f64, &'static str);

pub(crate) const fn at_least(limit: f64) -> Limit {
    (Side::AtLeast, limit, "×")
}

/// Records of the large read workload.
pub(crate) const READS_LARGE: u64 = 50_000_000;
/// Records of the workloads that are compared with other systems' figures.
pub(crate) const READS_MIDDLE: u64 = 20_000_000;
/// Records that stay in the cache.
pub(crate) const READS_CACHED: u64 = 10_000;

/// Reads, large: braided over sequential; over the bare lookup loop; two workers over one.
pub(crate) const READS_OVER_SEQUENTIAL: Limit = at_least(5.0);
pub(crate) const READS_OVER_REFERENCE: Limit = at_least(0.75);
pub(crate) const READS_TWO_WORKERS: Limit = at_least(1.9);
/// The width that tunes itself over the best of fixed ones.
pub(crate) const TUNED_OVER_FIXED: Limit = at_least(0.95);
/// Reads, cached: interleaving must not cost.
pub(crate) const CACHED_OVER_SEQUENTIAL: Limit = at_least(0.95);
/// Published: transactions/s of ten reads over 20 M records, MosaicDB's best with one and with two workers.
pub(crate) const MOSAICDB_READS: [f64; 2] = [249e3, 469e3];
/// Ten blind updates; ten read-modify-writes.
pub(crate) const UPDATES_OVER_SEQUENTIAL: Limit = at_least(2.0);
pub(crate) const RMW_OVER_SEQUENTIAL: Limit = at_least(2.5);
/// Published: transactions/s of ten read-modify-writes over 20 M records, CoroBase.
pub(crate) const COROBASE_RMW: f64 = 145e3;
/// Flights between airports, durable.
pub(crate) const AIRPORTS: Limit = at_least(50.0);
/// Scans of a hundred.
pub(crate) const SCAN_OVER_SEQUENTIAL: Limit = at_least(0.95);
/// Durable commits: over the same without a log; over one sync for each commit.
pub(crate) const GROUP_OVER_VOLATILE: Limit = at_least(0.65);
pub(crate) const GROUP_OVER_ONE_SYNC: Limit = at_least(50.0);
/// The nested read path's rate over the flattened one's.
pub(crate) const NESTED_OVER_FLAT: Limit = at_least(1.0 / 1.1);
/// A loaded record of 8 + 8 bytes, all in.
pub(crate) const RECORD_BYTES: Limit = (Side::AtMost, 90.0, "B");
/// Of one core, while nothing is asked of the database.
pub(crate) const IDLE_PERCENT: Limit = (Side::AtMost, 1.0, "%");
/// The longest read while a transaction blocks its worker and another worker is there.
pub(crate) const BLOCKED_MILLISECONDS: Limit = (Side::AtMost, 50.0, "ms");
/// How much longer than alone a read waits beside a transaction that never does.
pub(crate) const NOTICED_MICROSECONDS: Limit = (Side::AtMost, 100.0, "µs");
/// Memory at the end of a churn over memory after its first quarter.
pub(crate) const CHURN_GROWTH: Limit = (Side::AtMost, 1.10, "×");

/// Transactions of which a tenth read storage: dual-queue over sequential, and over the same without such a tenth.
pub(crate) const DUAL_OVER_SEQUENTIAL: Limit = at_least(3.0);
pub(crate) const COLD_OVER_ALL_HOT: Limit = at_least(0.7);
/// Published: the same transactions/s, of MosaicDB.
pub(crate) const MOSAICDB_HOT_COLD: f64 = 117e3;

/// Storage-bound transactions beyond the cold queue fail: the hot ones' rate over their share of the
/// rate without any; reads over those of `fio` at the same depth.
pub(crate) const HOT_SHARE: Limit = at_least(0.8);
pub(crate) const READS_OVER_FIO: Limit = at_least(0.85);

/// A data set overwritten again and again: the log on disk over what is alive; the rate over that
/// of a log that is never compacted.
pub(crate) const DISK_OVER_LIVE: Limit = (Side::AtMost, 3.0, "×");
pub(crate) const COMPACTING_RATE: Limit = at_least(0.7);

/// Minutes over data larger than memory: the worst ten seconds over the median; the process's
/// memory over the budget.
pub(crate) const STEADY: Limit = at_least(0.5);
pub(crate) const OVER_BUDGET: Limit = (Side::AtMost, 1.1, "×");

/// The log's bandwidth with blocks of 4 KiB over that of `fio`; the latency of a commit at half
/// load over that of a commit alone.
pub(crate) const LOG_OVER_FIO: Limit = at_least(0.85);
pub(crate) const COMMIT_P99: Limit = (Side::AtMost, 3.0, "×");
/// The default hole tracker, and Grasshopper, over a bitmap scan and over a global lock.
pub(crate) const TRACKER_OVER_BITMAP: Limit = at_least(5.0);
pub(crate) const TRACKER_OVER_LOCK: Limit = at_least(1.0);

/// Paged tables: reads of what is all in memory over those of a table in memory; over a table of four times its memory,
/// of a working set that fits over all in memory, and of everything over one transaction at a time.
pub(crate) const PAGED_OVER_HOT: Limit = at_least(0.6);
pub(crate) const FITTING_OVER_CACHED: Limit = at_least(0.9);
pub(crate) const PAGED_OVER_SEQUENTIAL: Limit = at_least(3.0);
/// The same over `fio`'s random reads, 64 under way; updates of what is all in memory over a table in memory; records of the
/// larger table that are read and changed; what is written for a page that leaves memory; memory for versions meanwhile.
pub(crate) const PAGED_READS_OVER_FIO: Limit = at_least(0.75);
pub(crate) const PAGED_UPDATES_OVER_HOT: Limit = at_least(0.5);
pub(crate) const PAGED_CHANGES: Limit = (Side::AtLeast, 25e3, "/s");
pub(crate) const BYTES_FOR_A_PAGE: Limit = (Side::AtMost, 8192.0, "B");
pub(crate) const PAGED_VERSIONS: Limit = (Side::AtMost, 64e6, "B");
/// Seconds that it takes to replay a gibibyte of log onto the larger table.
pub(crate) const PAGED_REPLAY: Limit = (Side::AtMost, 120.0, "s");

/// Bulk operations: loading onto pages alone over loading in one; the memory that versions take, which only other tables have;
/// readers beside an update of all records of 10 GB over alone.
pub(crate) const UNVERSIONED_OVER_BULK: Limit = (Side::AtMost, 1.15, "×");
pub(crate) const BULK_VERSIONS: Limit = (Side::AtMost, 1e6, "B");
pub(crate) const BULK_RECORDS: u64 = 60_000_000;
pub(crate) const READERS_BESIDE_BULK: Limit = at_least(0.85);

/// TPC-C: the warehouses of the larger setting; serializable over snapshot isolation, also where parts of
/// records are read; braided over sequential. Published: transactions/s of systems on one thread without durability.
pub(crate) const TPCC_WAREHOUSES: u16 = 100;
pub(crate) const TPCC_SERIALIZABLE: Limit = at_least(0.85);
pub(crate) const TPCC_PROJECTED: Limit = at_least(0.95);
pub(crate) const TPCC_BRAIDED: Limit = at_least(1.3);
/// On pages, without versions over with them.
pub(crate) const TPCC_UNVERSIONED: Limit = (Side::AtMost, 1.25, "×");
pub(crate) const MOSAICDB_TPCC: f64 = 85e3;
pub(crate) const COROBASE_TPCC: f64 = 48e3;

/// YCSB A, skewed, over snapshot isolation: with one operation a transaction, and with ten.
pub(crate) const YCSB_A_1: Limit = at_least(0.97);
pub(crate) const YCSB_A_10: Limit = at_least(1.0);
