//! The access stamps of a table; `access` explains them.

use super::chunks::{Chunks, NoMemory};
use crate::sync::atomic::AtomicU64;

/// Commit LSNs of the latest readers of a table.
#[derive(Debug, Default)]
pub(super) struct AccessStamps {
    /// The latest reader of each record.
    pub(super) records: Chunks,
    /// The latest reader of any range: an inserting transaction follows all of them.
    pub(super) ranges: AtomicU64,
    /// The latest deletion whose record was reclaimed.
    pub(super) reclaimed: AtomicU64,
}

impl AccessStamps {
    pub(super) fn grow(&self, number: u64) -> Result<u64, NoMemory> {
        self.records.grow(number)
    }
}
