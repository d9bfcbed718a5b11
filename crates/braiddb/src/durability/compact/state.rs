//! State of a compaction.

use std::sync::Arc;

use super::find::{RecordToMove, Victims};
use crate::log::{LogFiles, Lsn};
use crate::record::{MemoryRecords, Records};

/// State of a compaction.
#[derive(Debug)]
pub(super) struct CompactionState {
    pub(super) files: LogFiles,
    /// Bytes of live records in the log.
    pub(super) alive: u64,
    pub(super) victims: Victims,
    pub(super) tables: Vec<Arc<Records>>,
    /// Records that pointed to a victim, in log order.
    pub(super) items: Vec<RecordToMove>,
    /// Number of records copied.
    pub(super) copied: u64,
    /// LSN of the last copy.
    pub(super) last: Lsn,
}

impl CompactionState {
    pub(super) fn table(&self, item: &RecordToMove) -> &MemoryRecords {
        self.tables[item.table as usize].in_memory().expect("only tables in memory are compacted")
    }
}
