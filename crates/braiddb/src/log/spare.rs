//! Files of freed segments, kept to become new ones: a flush into space that was written before
//! costs the file system nothing.
//!
//! Invariant: a spare has a name of its own, durably, before its bytes change, so no crash finds
//! changed bytes under a segment's name. That name says that it is unfinished: the next opening
//! removes what is left.

use parking_lot::Mutex;

use super::LogError;
use super::identity::UNFINISHED;
use super::segment::Segments;

/// The names of the files that are kept.
#[derive(Debug, Default)]
pub(super) struct Spares {
    ready: Mutex<Vec<String>>,
    /// Their names are not durable yet.
    renamed: Mutex<Vec<String>>,
}

impl Spares {
    pub(super) fn count(&self) -> usize {
        self.ready.lock().len() + self.renamed.lock().len()
    }

    /// One of them, to become a segment.
    pub(super) fn take(&self) -> Option<String> {
        self.ready.lock().pop()
    }
}

impl Segments {
    /// Frees a segment that nothing leads to; its file is kept unless one is already and the log
    /// takes `most` files. To be followed by [`Self::settle_freed`].
    pub(super) fn free(&self, index: u64, most: u64) -> Result<(), LogError> {
        self.retire(index);
        if self.spares.count() > 0 && self.files_on_disk() >= most {
            return Ok(self.directory.remove(&self.name(index))?);
        }
        let spare = format!("spare-{:016x}.seg{UNFINISHED}", self.start(index).0);
        self.directory.rename(&self.name(index), &spare)?;
        self.spares.renamed.lock().push(spare);
        Ok(())
    }

    /// Makes durable what was freed.
    pub(super) fn settle_freed(&self) -> Result<(), LogError> {
        let mut durable = std::mem::take(&mut *self.spares.renamed.lock());
        self.directory.sync()?;
        self.spares.ready.lock().append(&mut durable);
        Ok(())
    }

    /// Removes one of the files that are kept; `false` if there is none.
    pub(super) fn remove_spare(&self) -> bool {
        let spare = self.spares.take().or_else(|| self.spares.renamed.lock().pop());
        if let Some(spare) = &spare
            && let Err(error) = self.directory.remove(spare)
        {
            tracing::warn!("a file of no use is left until the database is opened: {error}");
        }
        spare.is_some()
    }
    /// Removes all of them.
    pub(super) fn remove_spares(&self) {
        while self.remove_spare() {}
    }
}

impl Drop for Segments {
    fn drop(&mut self) {
        self.remove_spares();
    }
}
