//! What the log counts.

use crate::sync::atomic::{AtomicU64, Ordering};

/// A number that only grows.
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

/// Counts since the log was opened.
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
    /// Groups of commits brought to disk.
    pub flushes: u64,
    /// Bytes written by them.
    pub bytes_written: u64,
    /// Of these, bytes that only fill a sector.
    pub padding_bytes: u64,
    /// Segment files made ahead of need.
    pub segments_created: u64,
    /// Of these, files that were another segment's before.
    pub segments_reused: u64,
    /// Segment files that compaction freed.
    pub segments_freed: u64,
    /// Bytes that the segment files take now, with those kept to become new segments.
    pub disk_bytes: u64,
    /// Bytes of disk that are held back for checkpoints and compaction when the disk is full.
    pub reserve_bytes: u64,
    /// How often commits were refused because the log could not be extended.
    pub extensions_refused: u64,
    /// Files that the databases of this process hold open now; a database has a file a segment, and
    /// those not used lately are closed where the operating system's limit is low.
    pub files_open: u64,
    /// How often such a file was opened again.
    pub files_reopened: u64,
    #[cfg(feature = "experiment")]
    /// Bytes by which [`HoleTracker::Grasshopper`](crate::HoleTracker) advanced crawling.
    pub crawled_bytes: u64,
    #[cfg(feature = "experiment")]
    /// The same hopping.
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
