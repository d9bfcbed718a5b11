//! What a worker's transactions did, counted.

use crate::sched::WorkerCounter;

/// Why a transaction ended without effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum AbortCause {
    /// Another transaction wrote first.
    Conflict,
    /// What the transaction read had changed when it committed.
    Certification,
    /// What it read had changed when it read it, or soon after, and it wrote: so it was not to be committed.
    StaleRead,
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
