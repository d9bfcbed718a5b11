//! What a worker's transactions did, counted.
//!
//! Only the owning worker writes its counters, so an increment is a load and a store, not an
//! atomic read-modify-write; anyone may read them.

use std::sync::atomic::{AtomicU64, Ordering};

/// Why a transaction ended without effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum AbortCause {
    /// Another transaction wrote first.
    Conflict,
    /// The caller's closure returned an error, or the caller aborted it.
    Requested,
    /// The caller's closure panicked.
    Panic,
    /// The caller dropped the future, or the interactive transaction.
    Dropped,
    /// The log failed, or the transaction could not be logged.
    Log,
}

impl AbortCause {
    pub(crate) const COUNT: usize = 5;
}

/// One statistic of one worker.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// Adds; only the owning worker does.
    pub(crate) fn add(&self, count: u64) {
        // Relaxed: a statistic with one writer, ordered with nothing.
        self.0.store(self.0.load(Ordering::Relaxed) + count, Ordering::Relaxed);
    }

    pub(crate) fn set(&self, value: u64) {
        // Relaxed: as in `add`.
        self.0.store(value, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        // Relaxed: as in `add`.
        self.0.load(Ordering::Relaxed)
    }
}

/// The statistics of one worker's transactions.
#[derive(Debug, Default)]
pub(crate) struct WorkerCounters {
    pub(crate) committed: Counter,
    pub(crate) committed_read_only: Counter,
    pub(crate) aborted: [Counter; AbortCause::COUNT],
    pub(crate) retries: Counter,
    pub(crate) versions_freed: Counter,
    pub(crate) records_reclaimed: Counter,
    pub(crate) versions_waiting: Counter,
}
