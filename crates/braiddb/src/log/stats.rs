//! Statistics of the log.

use crate::sync::atomic::{AtomicU64, Ordering};

/// A counter that only grows.
#[derive(Debug, Default)]
pub(super) struct SharedCounter(AtomicU64);

impl SharedCounter {
    pub(super) fn add(&self, amount: u64) {
        // Relaxed: a statistic, ordered with nothing.
        self.0.fetch_add(amount, Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> u64 {
        // Relaxed: as in `add`.
        self.0.load(Ordering::Relaxed)
    }
}

/// Counters since the log was opened.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) flushes: SharedCounter,
    pub(super) bytes_written: SharedCounter,
    pub(super) padding_bytes: SharedCounter,
    pub(super) segments_created: SharedCounter,
    pub(super) segments_reused: SharedCounter,
}

/// A snapshot of the log's counters since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(default)]
#[non_exhaustive]
pub struct LogStats {
    /// Groups of commits written to disk.
    pub flushes: u64,
    /// Bytes written by flushes.
    pub bytes_written: u64,
    /// Padding bytes among these, which only fill sectors.
    pub padding_bytes: u64,
    /// Segment files created ahead of need.
    pub segments_created: u64,
    /// Files among these that were another segment before.
    pub segments_reused: u64,
    /// Segment files freed.
    pub segments_freed: u64,
    /// Size of all segment files and spare files in bytes.
    pub disk_bytes: u64,
    /// Disk space reserved for checkpoints and compaction on a full disk, in bytes.
    pub reserve_bytes: u64,
    /// Number of times that commits were refused because the log could not be extended.
    pub extensions_refused: u64,
    /// Files that all databases of this process have open. A database has one file per segment.
    /// Files without recent use are closed if the operating system's limit is low.
    pub files_open: u64,
    /// Number of times that such a file was reopened.
    pub files_reopened: u64,
    #[cfg(feature = "experiment")]
    /// Bytes by which [`HoleTracker::Grasshopper`](crate::HoleTracker) advanced by crawling.
    pub crawled_bytes: u64,
    #[cfg(feature = "experiment")]
    /// Bytes by which it advanced by hopping.
    pub hopped_bytes: u64,
}

impl Counters {
    pub(super) fn snapshot(&self) -> LogStats {
        LogStats {
            flushes: self.flushes.get(),
            bytes_written: self.bytes_written.get(),
            padding_bytes: self.padding_bytes.get(),
            segments_created: self.segments_created.get(),
            segments_reused: self.segments_reused.get(),
            ..LogStats::default()
        }
    }
}
