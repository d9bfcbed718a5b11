//! Cold records, whose bytes are only in the log (MosaicDB §4.1): reading them, and making them
//! resident again.
//!
//! No operation guard is held while storage is read, which may take long: entries that were loaded
//! before are read again afterwards. An address identifies one version of one record forever,
//! however the record's chain has changed since. So what is read is what was seen.

use std::pin::Pin;
use std::sync::Arc;

use super::indirection::IndirectionEntry;
use super::records::MemoryRecords;
use crate::log::{ColdRecord, ColdSpan, LogError, Lsn, RecordKind, RecordView};
use crate::reclaim::OperationGuard;
use crate::rid::Rid;
use crate::version::{Acting, Address, Stamp, Version, VersionRef};

/// Location in the log of a visible version. It is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ColdVersion {
    pub(crate) address: Address,
    /// Commit LSN of the version whose header the transaction saw; `None` if it met an address,
    /// which has the same meaning for every transaction.
    committed: Option<Lsn>,
}

impl ColdVersion {
    pub(super) fn of_address(address: Address) -> Self {
        Self { address, committed: None }
    }

    /// The location of an evicted version that was committed at `committed`.
    pub(super) fn of_evicted(version: Version<'_>, committed: Lsn) -> Self {
        let record = version.record().expect("versions are evicted if the log has them");
        let address = Address::new(record, version.payload_bytes());
        Self { address, committed: Some(committed) }
    }

    /// An LSN that is durable if the record is, and that a reader of it depends on.
    pub(crate) fn lsn(self) -> Lsn {
        self.committed.unwrap_or(self.address.lsn())
    }

    /// Returns whether a version restored from here links to older versions.
    pub(crate) fn has_older_versions(self) -> bool {
        self.committed.is_some()
    }
}

/// Result of reading a record from the log.
type FetchResult = Result<ColdRecord, Arc<LogError>>;

impl MemoryRecords {
    /// Reads the record of the version `cold` of `rid`, which an active transaction saw.
    ///
    /// # Errors
    /// Those of the device and the log.
    #[cold]
    pub(crate) fn fetch(
        &self,
        rid: Rid,
        cold: ColdVersion,
    ) -> Pin<Box<dyn Future<Output = FetchResult> + '_>> {
        // Boxed, so that reads of resident records do not carry the state of reads of storage.
        Box::pin(async move { self.fetch_now(rid, cold).await.map_err(Arc::new) })
    }

    async fn fetch_now(&self, rid: Rid, cold: ColdVersion) -> Result<ColdRecord, LogError> {
        let store = self.store().expect("addresses are of a log that can be read");
        let (lsn, bytes) = (cold.address.lsn(), cold.address.read_bytes());
        let record = store.read(lsn, bytes).await?;
        if !self.is_of(rid, &record.view()) {
            return Err(store.damaged(lsn, "another record is where this one was"));
        }
        Ok(record)
    }

    /// Segment size of the log in bytes.
    pub(crate) fn log_segment_bytes(&self) -> u64 {
        self.store().expect("addresses are of a log that can be read").segment_bytes()
    }

    /// Reads the log between two durable positions, up to the end of one segment.
    ///
    /// # Errors
    /// Those of the device; `Corrupt` if the segment is missing.
    pub(crate) async fn fetch_span(&self, from: Lsn, to: Lsn) -> Result<ColdSpan, LogError> {
        let store = self.store().expect("addresses are of a log that can be read");
        store.read_segment_span(from, to).await
    }

    /// The value of `cold`, a version of `rid`, if a complete record of it is in `span`.
    pub(crate) fn value_in<'s>(
        &self,
        span: &'s ColdSpan,
        rid: Rid,
        cold: ColdVersion,
    ) -> Option<&'s [u8]> {
        let record = span.record(cold.address.lsn()).filter(|record| self.is_of(rid, record))?;
        Some(record.value)
    }

    /// Returns whether a log record is one of `rid` in this table, with a value.
    fn is_of(&self, rid: Rid, record: &RecordView<'_>) -> bool {
        (record.table, record.rid) == (self.id, rid) && record.kind != RecordKind::Delete
    }

    /// Makes a value that was read for `cold` resident again, as a version at the head of the
    /// record's chain, if the entry is unchanged and the table caches what it reads. `acting`
    /// excludes the pruner; without it, only versions without older versions are restored.
    ///
    /// # Safety
    /// The caller's transaction is active, and saw the version `cold`.
    pub(crate) unsafe fn cache_record(
        &self,
        rid: Rid,
        cold: ColdVersion,
        value: &[u8],
        _operation: &OperationGuard,
        acting: Option<&Acting<'_>>,
    ) {
        let from = match (cold.committed, self.array().load(rid)) {
            (None, from) if from == IndirectionEntry::Address(cold.address) => from,
            (Some(_), from @ IndirectionEntry::Version(_)) if acting.is_some() => from,
            _ => return,
        };
        if !self.caches() {
            return;
        }
        let IndirectionEntry::Version(head) = from else {
            // Every transaction may see the version at an address, so any commit LSN that is not
            // later will do.
            let lsn = cold.address.lsn();
            let version = VersionRef::allocate(self.memory(), Stamp::committed(lsn), value, false);
            // SAFETY: not shared yet.
            unsafe { version.get() }.set_record(lsn, Some(lsn));
            // An address never returns once its record was written again, so the replaced entry is
            // the one that was read.
            self.replace_or_free(rid, from, version);
            return;
        };
        // SAFETY: the head just loaded, under the guard and before the end of an active
        // transaction.
        let evicted = unsafe { head.get() };
        let same = evicted.is_evicted()
            && evicted.stamp().lsn() == cold.committed
            && evicted.payload_bytes() == value.len();
        if same {
            let version = VersionRef::allocate_restored(self.memory(), evicted, value);
            if self.replace_or_free(rid, from, version) {
                self.follow_move(rid, evicted, IndirectionEntry::Version(version));
                // SAFETY: unlinked just now.
                unsafe { self.retire_version(head) };
            }
        }
    }

    fn replace_or_free(&self, rid: Rid, from: IndirectionEntry, version: VersionRef) -> bool {
        let replaced = self.array().replace(rid, from, IndirectionEntry::Version(version));
        if !replaced {
            // SAFETY: never shared.
            unsafe { version.free(self.memory()) };
        }
        replaced
    }
}
