//! Files of segments and their names.

use std::sync::Arc;

use super::Lsn;
use crate::io::File;
use crate::sync::Mutex;

/// The file of a segment.
#[derive(Clone, Debug)]
pub(super) struct SegmentFile {
    pub(super) file: Arc<File>,
    /// The start of the first segment that the file stored, which its name contains.
    called: Lsn,
    /// True if all of it was written before, as an earlier segment.
    pub(super) written: bool,
}

impl SegmentFile {
    pub(super) fn new(file: File, called: Lsn) -> Self {
        Self { file: Arc::new(file), called, written: false }
    }

    pub(super) fn name(&self) -> String {
        name_of(self.called)
    }
}

/// Returns the name of a file that first stores the segment that starts at `start`.
pub(super) fn name_of(start: Lsn) -> String {
    format!("wal-{:016x}.seg", start.0)
}

/// Returns the start positions in the names of segment files among `names`.
pub(super) fn starts_of(names: &[String]) -> Vec<u64> {
    let start = |name: &String| {
        let start = name.strip_prefix("wal-")?.strip_suffix(".seg")?;
        u64::from_str_radix(start, 16).ok()
    };
    names.iter().filter_map(start).collect()
}

/// The spare files.
#[derive(Debug, Default)]
pub(super) struct Spares(Mutex<Vec<SegmentFile>>);

impl Spares {
    pub(super) fn count(&self) -> usize {
        self.0.lock().len()
    }

    pub(super) fn add(&self, file: SegmentFile) {
        self.0.lock().push(file);
    }

    /// Closes the files without removing them.
    pub(super) fn forget(&self) {
        self.0.lock().clear();
    }

    /// Takes a spare file, which becomes a segment once it has its header.
    pub(super) fn take(&self) -> Option<SegmentFile> {
        self.0.lock().pop()
    }
}
