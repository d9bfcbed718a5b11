//! The bars: what Braid's figures must reach, in one place.
//!
//! A bar limits a ratio within one run, or a size: figures that do not depend on the machine.
//! Published rates of other systems on other machines are printed next to the measured ones for
//! information only.

use crate::harness::report::Side;

/// A bar: side, limit, unit.
pub(crate) type Limit = (Side, f64, &'static str);

pub(crate) const fn at_least(limit: f64) -> Limit {
    (Side::AtLeast, limit, "×")
}

/// The number of records in the large read workload.
pub(crate) const READS_LARGE: u64 = 50_000_000;
/// The number of records in workloads that are compared with figures of other systems.
pub(crate) const READS_MIDDLE: u64 = 20_000_000;
/// The number of records that stay in the cache.
pub(crate) const READS_CACHED: u64 = 10_000;

/// Large reads: braided over sequential; over the bare lookup loop; two workers over one.
pub(crate) const READS_OVER_SEQUENTIAL: Limit = at_least(5.0);
pub(crate) const READS_OVER_REFERENCE: Limit = at_least(0.75);
pub(crate) const READS_TWO_WORKERS: Limit = at_least(1.9);
/// The self-tuned width over the best fixed width.
pub(crate) const TUNED_OVER_FIXED: Limit = at_least(0.95);
/// Cached reads: interleaving must not slow them down.
pub(crate) const CACHED_OVER_SEQUENTIAL: Limit = at_least(0.95);
/// Published: transactions/s of ten reads over 20 M records, MosaicDB's best with one and with two
/// workers.
pub(crate) const MOSAICDB_READS: [f64; 2] = [249e3, 469e3];
/// The number of records with each form of keys.
pub(crate) const KEYS_RECORDS: u64 = 2_000_000;
/// Reads by keys of any form: braided over sequential; over keys of eight bytes.
pub(crate) const KEYS_OVER_SEQUENTIAL: Limit = at_least(3.0);
pub(crate) const KEYS_OVER_EIGHT: Limit = at_least(0.7);
/// Ten blind updates; ten read-modify-writes.
pub(crate) const UPDATES_OVER_SEQUENTIAL: Limit = at_least(2.0);
pub(crate) const RMW_OVER_SEQUENTIAL: Limit = at_least(2.5);
/// Published: transactions/s of ten read-modify-writes over 20 M records, CoroBase.
pub(crate) const COROBASE_RMW: f64 = 145e3;
/// Flights between airports, durable.
pub(crate) const AIRPORTS: Limit = at_least(50.0);
/// Scans of a hundred.
pub(crate) const SCAN_OVER_SEQUENTIAL: Limit = at_least(0.95);
/// Durable commits: over commits without a log; over one sync for each commit.
pub(crate) const GROUP_OVER_VOLATILE: Limit = at_least(0.65);
pub(crate) const GROUP_OVER_ONE_SYNC: Limit = at_least(50.0);
/// The nested read path's rate over the flattened one's.
pub(crate) const NESTED_OVER_FLAT: Limit = at_least(1.0 / 1.1);
/// The total memory of a loaded record of 8 + 8 bytes.
pub(crate) const RECORD_BYTES: Limit = (Side::AtMost, 90.0, "B");
/// The share of one core that an idle database uses.
pub(crate) const IDLE_PERCENT: Limit = (Side::AtMost, 1.0, "%");
/// The longest read while a transaction blocks its worker and another worker is available.
pub(crate) const BLOCKED_MILLISECONDS: Limit = (Side::AtMost, 50.0, "ms");
/// The additional latency of a read next to a transaction that never waits.
pub(crate) const NOTICED_MICROSECONDS: Limit = (Side::AtMost, 100.0, "µs");
/// Memory at the end of a churn over memory after its first quarter.
pub(crate) const CHURN_GROWTH: Limit = (Side::AtMost, 1.10, "×");

/// Transactions of which a tenth read storage: dual-queue over sequential, and over the same
/// without storage reads.
pub(crate) const DUAL_OVER_SEQUENTIAL: Limit = at_least(3.0);
pub(crate) const COLD_OVER_ALL_HOT: Limit = at_least(0.7);
/// Published by MosaicDB: transactions/s of the same workload.
pub(crate) const MOSAICDB_HOT_COLD: f64 = 117e3;

/// Excess storage-bound transactions fail: the rate of hot transactions over their share of the
/// rate without storage reads; reads over those of `fio` at the same depth.
pub(crate) const HOT_SHARE: Limit = at_least(0.8);
pub(crate) const READS_OVER_FIO: Limit = at_least(0.85);

/// A data set that is overwritten repeatedly: the log on disk over the live data; the rate over
/// that of a log that is never compacted.
pub(crate) const DISK_OVER_LIVE: Limit = (Side::AtMost, 3.0, "×");
pub(crate) const COMPACTING_RATE: Limit = at_least(0.7);

/// Minutes over data larger than memory: the worst ten seconds over the median; the memory of the
/// process over the budget.
pub(crate) const STEADY: Limit = at_least(0.5);
pub(crate) const OVER_BUDGET: Limit = (Side::AtMost, 1.1, "×");

/// The log's bandwidth with blocks of 4 KiB over that of `fio`; commit latency at half load over
/// that of a single commit.
pub(crate) const LOG_OVER_FIO: Limit = at_least(0.85);
pub(crate) const COMMIT_P99: Limit = (Side::AtMost, 3.0, "×");
/// The default hole tracker and Grasshopper, over a bitmap scan and over a global lock.
pub(crate) const TRACKER_OVER_BITMAP: Limit = at_least(5.0);
pub(crate) const TRACKER_OVER_LOCK: Limit = at_least(1.0);

/// Reads of paged tables. A fully cached table over a table in memory. A table of four times its
/// memory: a working set that fits over a fully cached table, and all records over one transaction
/// at a time.
pub(crate) const PAGED_OVER_HOT: Limit = at_least(0.6);
pub(crate) const FITTING_OVER_CACHED: Limit = at_least(0.9);
pub(crate) const PAGED_OVER_SEQUENTIAL: Limit = at_least(3.0);
/// The same table over `fio`'s random reads at depth 64. Updates of a fully cached table over a
/// table in memory. Records of the larger table that are read and changed. Bytes written for each
/// evicted page. Memory for versions during these.
pub(crate) const PAGED_READS_OVER_FIO: Limit = at_least(0.75);
pub(crate) const PAGED_UPDATES_OVER_HOT: Limit = at_least(0.5);
pub(crate) const PAGED_CHANGES: Limit = (Side::AtLeast, 25e3, "/s");
pub(crate) const BYTES_FOR_A_PAGE: Limit = (Side::AtMost, 8192.0, "B");
pub(crate) const PAGED_VERSIONS: Limit = (Side::AtMost, 64e6, "B");
/// Seconds to replay one gibibyte of log onto the larger table.
pub(crate) const PAGED_REPLAY: Limit = (Side::AtMost, 120.0, "s");

/// Bulk operations: loading onto pages without versions over loading in bulk; the memory of
/// versions, which only other tables have; readers during an update of 10 GB of records over
/// readers alone.
pub(crate) const UNVERSIONED_OVER_BULK: Limit = (Side::AtMost, 1.15, "×");
pub(crate) const BULK_VERSIONS: Limit = (Side::AtMost, 1e6, "B");
pub(crate) const BULK_RECORDS: u64 = 60_000_000;
pub(crate) const READERS_BESIDE_BULK: Limit = at_least(0.85);

/// TPC-C: the warehouses of the larger setting; serializable over snapshot isolation, also with
/// projected reads; braided over sequential. Published: transactions/s of systems on one thread
/// without durability.
pub(crate) const TPCC_WAREHOUSES: u16 = 100;
pub(crate) const TPCC_SERIALIZABLE: Limit = at_least(0.85);
pub(crate) const TPCC_PROJECTED: Limit = at_least(0.95);
pub(crate) const TPCC_BRAIDED: Limit = at_least(1.3);
/// On pages: without versions over with versions.
pub(crate) const TPCC_UNVERSIONED: Limit = (Side::AtMost, 1.25, "×");
pub(crate) const MOSAICDB_TPCC: f64 = 85e3;
pub(crate) const COROBASE_TPCC: f64 = 48e3;

/// Skewed YCSB A: serializable over snapshot isolation, with one operation a transaction and with
/// ten.
pub(crate) const YCSB_A_1: Limit = at_least(0.97);
pub(crate) const YCSB_A_10: Limit = at_least(1.0);
