//! The lists of a scan, whose memory the next scan of the same context uses.

use std::cell::RefCell;

use crate::index::LeafEntry;
use crate::types::ScannedRecord;

/// Maximum bytes of the buffer of keys that is kept.
const MAX_KEPT_BYTES: usize = 16 << 10;

/// Empty lists.
#[derive(Debug, Default)]
pub(in crate::transaction) struct ScanLists {
    pub(in crate::transaction) entries: Vec<LeafEntry<'static>>,
    pub(in crate::transaction) records: Vec<ScannedRecord>,
    pub(in crate::transaction) long_keys: Vec<u8>,
}

/// The lists that no scan uses.
#[derive(Debug, Default)]
pub(in crate::transaction) struct KeptScanLists(RefCell<ScanLists>);

impl KeptScanLists {
    pub(in crate::transaction) fn take(&self) -> ScanLists {
        self.0.take()
    }

    /// Keeps the memory of lists, whose contents are removed.
    pub(in crate::transaction) fn keep(&self, mut lists: ScanLists) {
        lists.entries.clear();
        lists.records.clear();
        lists.long_keys.clear();
        lists.long_keys.shrink_to(MAX_KEPT_BYTES);
        self.0.replace(lists);
    }
}
