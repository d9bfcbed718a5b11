//! Records whose newest version is in the log (MosaicDB §4.1): read, and brought back to memory.

use std::cell::RefCell;
use std::pin::Pin;
use std::sync::Arc;

use super::indirection::Entry;
use super::read::Seen;
use super::table::Table;
use crate::log::{LogError, RecordKind};
use crate::memory::MemoryCounters;
use crate::rid::Rid;
use crate::version::{Address, Stamp, VersionRef};

/// Versions that were read from the log for one transaction, or one scan, alone.
#[derive(Debug, Default)]
pub(crate) struct Copies(RefCell<Vec<VersionRef>>);

impl Copies {
    fn keep(&self, version: VersionRef) {
        self.0.borrow_mut().push(version);
    }

    /// Takes over what `other` keeps.
    pub(crate) fn take_over(&self, other: &Copies) {
        self.0.borrow_mut().append(&mut other.0.borrow_mut());
    }

    /// Frees them.
    ///
    /// # Safety
    /// The transaction or the scan that read them does not look at them any more.
    pub(crate) unsafe fn free(&self, memory: &MemoryCounters) {
        for version in self.0.borrow_mut().drain(..) {
            // SAFETY: only its reader could reach it; drained, so freed once.
            unsafe { version.free(memory) };
        }
    }
}

/// What reading a record from the log gives.
type Fetched<'a> = Result<Seen<'a>, Arc<LogError>>;

impl Table {
    /// Reads the record at `address`, which the chain of `rid` led to. From the head of the chain
    /// it is installed there as a version, unless the table does not cache what is cold; else the
    /// transaction keeps it for itself.
    ///
    /// # Safety
    /// The caller holds an operation guard for the length of the call, and an active transaction
    /// that keeps `copies` for the length of `'a`.
    #[cold]
    pub(crate) unsafe fn fetch<'f, 'a: 'f>(
        &'f self,
        rid: Rid,
        address: Address,
        copies: &'f Copies,
    ) -> Pin<Box<dyn Future<Output = Fetched<'a>> + 'f>> {
        // Boxed, so that reads of memory do not carry the state of reads of storage.
        Box::pin(async move {
            // SAFETY: the caller's contract.
            unsafe { self.fetch_now(rid, address, copies).await.map_err(Arc::new) }
        })
    }

    /// # Safety
    /// As for `fetch`.
    async unsafe fn fetch_now<'a>(
        &self,
        rid: Rid,
        address: Address,
        copies: &Copies,
    ) -> Result<Seen<'a>, LogError> {
        let store = self.store().expect("addresses are of a log that can be read");
        let lsn = address.lsn();
        let record = store.read(lsn, address.read_bytes()).await?;
        let found = record.view();
        if (found.table, found.rid) != (self.id, rid) || found.kind == RecordKind::Delete {
            return Err(store.damaged(lsn, "another record is where this one was"));
        }
        let version =
            VersionRef::allocate(self.memory(), Stamp::committed(lsn), found.value, false);
        // SAFETY: not shared yet.
        unsafe { version.get() }.set_record(lsn, Some(lsn));
        // An address never comes back once its record was written again, so what is replaced is
        // what was read.
        let installed = self.caches()
            && self.array().replace(rid, Entry::Address(address), Entry::Version(version));
        if !installed {
            copies.keep(version);
        }
        // SAFETY: in the chain, where it stays allocated for an active transaction, or kept.
        Ok(Seen { version: unsafe { version.get() }, committed: Some(lsn) })
    }
}
