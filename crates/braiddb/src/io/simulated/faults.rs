//! Faults of a simulated disk, and counts of their occurrences.

/// Faults of the disk. Probabilities are one in this number of operations; 0 is never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Operations other than syncs that fail with an I/O error.
    pub errors: u32,
    /// Syncs and synced writes that fail; their data may be lost.
    pub failed_syncs: u32,
    /// Transfers that move only some of their bytes at a time.
    pub short_transfers: u32,
    /// Maximum number of other operations by which an operation is delayed.
    pub max_delay: u32,
    /// Number of sectors of the disk; 0 for no bound.
    pub capacity: u64,
    /// Number of free sectors that an allocation needs in addition: file systems write where the
    /// parts of a file are.
    pub metadata: u64,
    /// The one write that fails, counted from 1 by [`FaultCounts::writes`]; 0 for none. A synced
    /// write fails in its sync, so some of its sectors may be written.
    pub failing_write: u64,
    /// Number of writes that need space and find none, before others find some again.
    pub full_for: u64,
}

/// Numbers of operations and faults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct FaultCounts {
    /// Operations, including blocking calls.
    pub operations: u64,
    /// Writes among the operations.
    pub writes: u64,
    /// Operations that completed after an operation submitted later.
    pub reordered: u64,
    /// Reads that moved only some bytes.
    pub short_reads: u64,
    /// Writes that moved only some bytes.
    pub short_writes: u64,
    /// Reads that failed.
    pub read_errors: u64,
    /// Writes that failed.
    pub write_errors: u64,
    /// Syncs and synced writes that failed.
    pub failed_syncs: u64,
    /// Writes that failed because the disk was full.
    pub full: u64,
}

/// Effects of crashes on unsynced data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct CrashCounts {
    /// Sectors that were kept.
    pub kept: u64,
    /// Sectors that were lost.
    pub dropped: u64,
    /// Sectors that were partly kept.
    pub torn: u64,
    /// Changes of names that were lost.
    pub names_undone: u64,
}

impl FaultCounts {
    /// Adds the counts of another disk.
    pub fn add(&mut self, other: &Self) {
        self.operations += other.operations;
        self.writes += other.writes;
        self.reordered += other.reordered;
        self.short_reads += other.short_reads;
        self.short_writes += other.short_writes;
        self.read_errors += other.read_errors;
        self.write_errors += other.write_errors;
        self.failed_syncs += other.failed_syncs;
        self.full += other.full;
    }

    /// Returns whether an operation failed.
    #[must_use]
    pub fn any_failed(&self) -> bool {
        self.read_errors + self.write_errors + self.failed_syncs + self.full > 0
    }
}

impl CrashCounts {
    /// Adds the counts of another disk.
    pub fn add(&mut self, other: &Self) {
        self.kept += other.kept;
        self.dropped += other.dropped;
        self.torn += other.torn;
        self.names_undone += other.names_undone;
    }
}
