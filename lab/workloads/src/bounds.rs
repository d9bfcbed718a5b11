//! Quantities that grow, read from a database and its directory, and their bounds
//! (`docs/internals/bounds.md`).

use anyhow::{Result, ensure};
use braiddb::Stats;
use serde::Serialize;

const MIB: u64 = 1 << 20;
/// Without the reserve, the disk may hold this multiple of the live data, in addition to a fixed
/// part: two generations of images, each twice the data because pages are half full, a third as much
/// of free places between them, and log for two intervals.
const DISK_FACTOR: u64 = 7;
/// The fixed part: this number of segments, and the chunks of a checkpoint.
const FIXED_SEGMENTS: u64 = 8;
const FIXED_BYTES: u64 = 64 * MIB;
/// The reserve may hold the live data, in addition to this.
const FIXED_RESERVE_BYTES: u64 = 256 * MIB;
/// Tasks of the engine, in addition to those of clients.
const ENGINE_TASKS: u64 = 64;

/// Bytes of a database's files, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DiskUse {
    /// Segments of the log, in use or spare.
    pub log: u64,
    /// Zones: images of pages.
    pub pages: u64,
    /// Checkpoints, complete or not.
    pub checkpoints: u64,
    /// The reserve.
    pub reserve: u64,
    /// All other files.
    pub other: u64,
    /// The number of files.
    pub files: u64,
    /// The number of checkpoints.
    pub checkpoint_files: u64,
    /// The number of log files.
    pub log_files: u64,
    /// Bytes of the largest log file: a whole segment if several exist.
    pub largest_log_file: u64,
}

impl DiskUse {
    /// Adds up files, given by name and bytes.
    pub fn of(files: impl IntoIterator<Item = (String, u64)>) -> Self {
        let mut sum = Self::default();
        for (name, bytes) in files {
            let kind = match () {
                () if name.ends_with(".seg") => &mut sum.log,
                () if name.ends_with(".zone") => &mut sum.pages,
                () if name.starts_with("checkpoint") => &mut sum.checkpoints,
                () if name.starts_with("braid.reserve") => &mut sum.reserve,
                () => &mut sum.other,
            };
            *kind += bytes;
            sum.files += 1;
            sum.checkpoint_files += u64::from(name.starts_with("checkpoint"));
            if name.ends_with(".seg") {
                sum.log_files += 1;
                sum.largest_log_file = sum.largest_log_file.max(bytes);
            }
        }
        sum
    }

    /// Adds up the disk blocks of a directory's files. A file that is removed at the same time may
    /// be left out.
    ///
    /// # Errors
    /// The directory cannot be read.
    #[cfg(not(braid_simulation))]
    pub fn of_directory(directory: &std::path::Path) -> std::io::Result<Self> {
        use std::os::unix::fs::MetadataExt;
        const BLOCK_BYTES: u64 = 512;
        let files = std::fs::read_dir(directory)?.filter_map(|entry| {
            let entry = entry.ok()?;
            let name = entry.file_name().into_string().ok()?;
            Some((name, entry.metadata().ok()?.blocks() * BLOCK_BYTES))
        });
        Ok(Self::of(files))
    }

    /// Returns the bytes of all files.
    pub fn bytes(&self) -> u64 {
        self.log + self.pages + self.checkpoints + self.reserve + self.other
    }
}

/// A quantity with its bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quantity {
    /// Its name.
    pub name: &'static str,
    /// Its value.
    pub value: u64,
    /// Its bound, if it has one.
    pub bound: Option<u64>,
}

/// The load that bounds depend on.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Bytes of keys and values of all records.
    pub live_bytes: u64,
    /// Bytes of a segment of the log.
    pub segment_bytes: u64,
    /// Transactions that clients run or hold at the same time.
    pub clients: u64,
}

impl Load {
    /// Returns the quantities of an open database with their bounds.
    pub fn quantities(&self, stats: &Stats, disk: &DiskUse) -> Vec<Quantity> {
        let Self { live_bytes, segment_bytes, clients } = *self;
        let memory = &stats.memory;
        let counted = memory.versions
            + memory.index_nodes
            + memory.keys
            + memory.copies
            + memory.reads
            + memory.indirection
            + memory.pages
            + memory.ring;
        let disk_bound = DISK_FACTOR * live_bytes + FIXED_SEGMENTS * segment_bytes + FIXED_BYTES;
        let quantity = |name, value, bound| Quantity { name, value, bound };
        vec![
            quantity(DISK, disk.bytes() - disk.reserve, Some(disk_bound)),
            quantity(RESERVE, disk.reserve, Some(live_bytes + FIXED_RESERVE_BYTES)),
            quantity(VERSIONS, memory.versions, memory.budget),
            quantity(MEMORY, counted, memory.budget.map(|budget| budget + budget / 10)),
            quantity(QUEUED, queued(stats), Some(clients + ENGINE_TASKS)),
            quantity(REMOVALS, stats.removals_under_way, Some(ENGINE_TASKS)),
        ]
    }

    /// Checks the bounds of an open database.
    ///
    /// # Errors
    /// The first quantity above its bound.
    pub fn check(&self, stats: &Stats, disk: &DiskUse) -> Result<()> {
        for Quantity { name, value, bound } in self.quantities(stats, disk) {
            let bound = bound.unwrap_or(u64::MAX);
            ensure!(value <= bound, "{name}: {value}, the bound is {bound}; {disk:?}, {stats:?}");
        }
        Ok(())
    }
}

/// Returns the transactions in the queues of all workers.
fn queued(stats: &Stats) -> u64 {
    let queued = stats.workers.iter().map(|worker| {
        let braiddb::stats::WorkerStats { hot, cold, parked, foreign, .. } = *worker;
        hot + cold + parked + foreign
    });
    queued.sum()
}

/// Complete checkpoints and one that is being written.
const MAX_CHECKPOINTS: u64 = 3;

/// Checks an open database without transactions: the engine knows its log, reserve and checkpoint
/// files, and nothing of a transaction is left.
///
/// # Errors
/// The first quantity above its bound.
pub fn check_idle(stats: &Stats, disk: &DiskUse) -> Result<()> {
    let memory = &stats.memory;
    // The only file may be longer than its header states, if its extension was interrupted.
    let log_files = stats.log.disk_bytes.div_ceil(disk.largest_log_file.max(1));
    let quantities = [
        ("log files", disk.log_files, log_files),
        ("reserve on disk", disk.reserve, stats.log.reserve_bytes),
        ("checkpoint files", disk.checkpoint_files, MAX_CHECKPOINTS),
        ("bytes of copies", memory.copies, 0),
        ("bytes of reads", memory.reads, 0),
        (QUEUED, queued(stats), 0),
    ];
    for (name, value, bound) in quantities {
        ensure!(value <= bound, "{name}: {value}, the bound is {bound}; {disk:?}, {stats:?}");
    }
    Ok(())
}

/// Bytes of all files except the reserve.
pub const DISK: &str = "disk without reserve";
/// Bytes of the reserve.
pub const RESERVE: &str = "reserve";
/// Bytes of versions in memory.
pub const VERSIONS: &str = "versions";
/// Bytes of memory that count against the budget.
pub const MEMORY: &str = "counted memory";
/// Transactions in the queues of all workers.
pub const QUEUED: &str = "queued transactions";
/// Dropped tables and indexes that are being deleted.
pub const REMOVALS: &str = "removals";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_counted_by_kind() {
        let files = [
            ("0000000000000000.seg", 1),
            ("spare-1.seg", 2),
            ("pages-000000.zone", 4),
            ("checkpoint-0000000000000010.ckpt", 8),
            ("checkpoint.new", 16),
            ("braid.reserve", 32),
            ("braid.meta", 64),
        ];
        let found = DiskUse::of(files.map(|(name, bytes)| (name.to_owned(), bytes)));
        let expected = DiskUse {
            log: 3,
            pages: 4,
            checkpoints: 24,
            reserve: 32,
            other: 64,
            files: 7,
            checkpoint_files: 2,
            log_files: 2,
            largest_log_file: 2,
        };
        assert_eq!((found, found.bytes()), (expected, 127));
    }

    #[test]
    fn a_quantity_above_its_bound_is_reported() {
        let load = Load { live_bytes: MIB, segment_bytes: MIB, clients: 1 };
        let of = |log| DiskUse { log, ..DiskUse::default() };
        load.check(&Stats::default(), &of(79 * MIB)).unwrap();
        let error = load.check(&Stats::default(), &of(100 * MIB)).unwrap_err().to_string();
        assert!(
            error.starts_with("disk without reserve: 104857600, the bound is 82837504"),
            "{error}"
        );
    }
}
