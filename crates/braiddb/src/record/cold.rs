//! Records whose bytes are in the log only (MosaicDB §4.1): read, and brought back to memory.
//!
//! Nobody holds an operation guard while storage is read, which may take long: what was found before is
//! looked at again afterwards. An address names one version of one record for ever, wherever the
//! record's chain has gone meanwhile, so what is read is what was seen.

use std::pin::Pin;
use std::sync::Arc;

use super::indirection::IndirectionEntry;
use super::records::Records;
use crate::log::{ColdRecord, ColdSpan, LogError, Lsn, RecordKind, RecordView};
use crate::reclaim::OperationGuard;
use crate::rid::Rid;
use crate::version::{Acting, Address, Stamp, Version, VersionRef};

/// Where in the log what a transaction sees of a record is. It is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ColdVersion {
    pub(crate) address: Address,
    /// When the version was committed whose header the transaction saw; none if it met an address,
    /// under which everyone sees the same.
    committed: Option<Lsn>,
}

impl ColdVersion {
    pub(super) fn of_address(address: Address) -> Self {
        Self { address, committed: None }
    }

    /// Of an evicted version that was committed at `committed`.
    pub(super) fn of_evicted(version: Version<'_>, committed: Lsn) -> Self {
        let record = version.record().expect("versions are evicted if the log has them");
        let address = Address::new(record, version.payload_bytes());
        Self { address, committed: Some(committed) }
    }

    /// An LSN that is durable if the record is, and that a reader of it depends on.
    pub(crate) fn lsn(self) -> Lsn {
        self.committed.unwrap_or(self.address.lsn())
    }

    /// Whether what is brought back from here leads on to older versions.
    pub(crate) fn leads_on(self) -> bool {
        self.committed.is_some()
    }
}

/// What reading a record from the log gives.
type Fetched = Result<ColdRecord, Arc<LogError>>;

impl Records {
    /// Reads the record of the version `cold`, where an active transaction saw a version of `rid`.
    ///
    /// # Errors
    /// The device's, the log's.
    #[cold]
    pub(crate) fn fetch(
        &self,
        rid: Rid,
        cold: ColdVersion,
    ) -> Pin<Box<dyn Future<Output = Fetched> + '_>> {
        // Boxed, so that reads of memory do not carry the state of reads of storage.
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

    /// Bytes of a segment of the log.
    pub(crate) fn log_segment_bytes(&self) -> u64 {
        self.store().expect("addresses are of a log that can be read").segment_bytes()
    }

    /// Reads the log from one position to another, both durable, as far as one segment goes.
    ///
    /// # Errors
    /// The device's; `Corrupt` if the segment is missing.
    pub(crate) async fn fetch_span(&self, from: Lsn, to: Lsn) -> Result<ColdSpan, LogError> {
        let store = self.store().expect("addresses are of a log that can be read");
        store.read_stretch(from, to).await
    }

    /// The value of `cold`, a version of `rid`, if a whole record of it is there in `span`.
    pub(crate) fn value_in<'s>(
        &self,
        span: &'s ColdSpan,
        rid: Rid,
        cold: ColdVersion,
    ) -> Option<&'s [u8]> {
        let record = span.record(cold.address.lsn()).filter(|record| self.is_of(rid, record))?;
        Some(record.value)
    }

    /// Whether a record is one of `rid` in this table, with a value.
    fn is_of(&self, rid: Rid, record: &RecordView<'_>) -> bool {
        (record.table, record.rid) == (self.id, rid) && record.kind != RecordKind::Delete
    }

    /// Brings a value that was read for `cold` back to memory, as a version at the head of the record's
    /// chain, if the entry still leads there and the table keeps what it reads. `acting` excludes the
    /// pruner; without it, nothing comes back whose chain leads on.
    ///
    /// # Safety
    /// The caller's transaction is active, and saw the version `cold`.
    pub(crate) unsafe fn bring_back(
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
            // Everyone may see what an address leads to, so any commit LSN will do that is not later.
            let lsn = cold.address.lsn();
            let version = VersionRef::allocate(self.memory(), Stamp::committed(lsn), value, false);
            // SAFETY: not shared yet.
            unsafe { version.get() }.set_record(lsn, Some(lsn));
            // An address never comes back once its record was written again, so what is replaced is
            // what was read.
            self.replace_or_free(rid, from, version);
            return;
        };
        // SAFETY: the head just loaded, under the guard and before the end of an active transaction.
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
