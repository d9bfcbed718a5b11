//! Counters of the transactions of one worker.

use std::sync::Arc;

use crate::sched::WorkerCounter;
use crate::sync::statistic::{AtomicU64, Ordering};

/// Reasons why a transaction aborted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum AbortCause {
    /// Another transaction wrote first.
    Conflict,
    /// The read set had changed at commit.
    Certification,
    /// The read set had changed during or soon after a read. The transaction wrote, so it could not
    /// commit.
    SupersededRead,
    /// The caller's closure returned an error, or the caller aborted it.
    Requested,
    /// The caller's closure panicked.
    Panic,
    /// The caller dropped the future, or the interactive transaction.
    Dropped,
    /// An interactive transaction was open for too long.
    Expired,
    /// The log failed, or the transaction could not be logged.
    Log,
}

impl AbortCause {
    pub(crate) const COUNT: usize = 8;
}

/// The statistics of one worker's transactions.
#[derive(Debug, Default)]
pub(crate) struct WorkerCounters {
    pub(crate) committed: WorkerCounter,
    pub(crate) committed_read_only: WorkerCounter,
    pub(crate) aborted: [WorkerCounter; AbortCause::COUNT],
    pub(crate) retries: WorkerCounter,
    pub(crate) extended: WorkerCounter,
    pub(crate) versions_freed: WorkerCounter,
    pub(crate) versions_pruned: WorkerCounter,
    pub(crate) records_reclaimed: WorkerCounter,
    pub(crate) index_entries: WorkerCounter,
    pub(crate) expired_swept: WorkerCounter,
    pub(crate) bulk_operations: WorkerCounter,
    pub(crate) bulk_records: WorkerCounter,
    pub(crate) bulk_leaves_swept: WorkerCounter,
    pub(crate) versions_waiting: WorkerCounter,
    pub(crate) evicted: WorkerCounter,
}

/// Number of tables whose records are being deleted or are about to be.
#[derive(Debug, Default)]
pub(crate) struct Removals(Arc<AtomicU64>);

/// Counts one table until it is dropped.
#[derive(Debug)]
pub(crate) struct Removal(Arc<AtomicU64>);

impl Removals {
    /// Counts one more table until the result is dropped.
    pub(crate) fn begin(&self) -> Removal {
        // Relaxed: a statistic.
        self.0.fetch_add(1, Ordering::Relaxed);
        Removal(self.0.clone())
    }

    /// Number of tables being cleared.
    pub(crate) fn count(&self) -> u64 {
        // Relaxed: a statistic.
        self.0.load(Ordering::Relaxed)
    }
}

impl Drop for Removal {
    fn drop(&mut self) {
        // Relaxed: a statistic.
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
