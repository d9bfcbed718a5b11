//! How a simulated disk misbehaves, and how often it did.

/// How the disk behaves; probabilities are one in so many operations, 0 is never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Operations that fail with an I/O error, syncs apart.
    pub errors: u32,
    /// Syncs, and synced writes, that fail; what they were for may be lost.
    pub failed_syncs: u32,
    /// Transfers that move only some of their bytes at a time.
    pub short_transfers: u32,
    /// How many other operations one may be delayed by at most.
    pub most_delay: u32,
    /// Sectors the disk has; 0 for no bound.
    pub capacity: u64,
    /// The one write that fails, counted from 1 by [`FaultCounts::writes`]; 0 for none. A synced
    /// write fails in its sync: some of its sectors may be there.
    pub failing_write: u64,
}

/// How often what happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct FaultCounts {
    /// Operations, blocking calls included.
    pub operations: u64,
    /// Of these, writes.
    pub writes: u64,
    /// Completed after an operation that was asked for later.
    pub reordered: u64,
    /// Reads that moved only some bytes.
    pub short_reads: u64,
    /// Writes that moved only some bytes.
    pub short_writes: u64,
    /// Reads that failed.
    pub read_errors: u64,
    /// Writes that failed.
    pub write_errors: u64,
    /// Syncs, and synced writes, that failed.
    pub failed_syncs: u64,
    /// Writes that found no space.
    pub full: u64,
}

/// What crashes did to what was not synced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct CrashCounts {
    /// Sectors that were left.
    pub kept: u64,
    /// Sectors that were lost.
    pub dropped: u64,
    /// Sectors of which parts were left.
    pub torn: u64,
    /// Changes of names that were lost.
    pub names_undone: u64,
}

impl FaultCounts {
    /// Adds what happened elsewhere.
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

    /// Whether an operation failed.
    #[must_use]
    pub fn any_failed(&self) -> bool {
        self.read_errors + self.write_errors + self.failed_syncs + self.full > 0
    }
}

impl CrashCounts {
    /// Adds what happened elsewhere.
    pub fn add(&mut self, other: &Self) {
        self.kept += other.kept;
        self.dropped += other.dropped;
        self.torn += other.torn;
        self.names_undone += other.names_undone;
    }
}
