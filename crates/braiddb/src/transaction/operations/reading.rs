//! Reads from the log and from zones. They need memory in addition to the budget, and large records,
//! or many pages, would exhaust it, so each worker admits them in order up to a limit
//! (`ordered_admission.rs`). A read counts until its bytes were decoded or copied, which is up to the
//! transaction.

use crate::log::ColdRecord;
use crate::reclaim;
use crate::record::{ColdVersion, MemoryRecords};
use crate::rid::Rid;
use crate::sched;
use crate::transaction::context::active_transaction::ActiveTransaction;
use crate::transaction::context::error::OperationError;
use crate::transaction::schedule::ordered_admission::AdmissionPermit;

impl ActiveTransaction {
    /// Reads a visible record from the log, after admission. The caller holds no operation guard,
    /// which would delay reclamation.
    ///
    /// # Errors
    /// The log's error if the value exists and cannot be read; `Overloaded`.
    pub(super) async fn fetch(
        &self,
        table: &MemoryRecords,
        rid: Rid,
        version: ColdVersion,
    ) -> Result<(ColdRecord, AdmissionPermit), OperationError> {
        let permit = self.admit_bytes(version.address.read_bytes() as u64).await?;
        let record = self.fetch_admitted(table, rid, version).await?;
        Ok((record, permit))
    }

    /// Waits until this many bytes may be read.
    ///
    /// # Errors
    /// `Overloaded` if too many of the worker's transactions read and the configuration rejects
    /// further reads. Never for engine upkeep.
    pub(super) async fn admit_bytes(&self, bytes: u64) -> Result<AdmissionPermit, OperationError> {
        self.check_may_load()?;
        Ok(self.worker().reads.admit(bytes).await)
    }

    /// Checks that the transaction may read from storage.
    ///
    /// # Errors
    /// Those of `admit_bytes`.
    pub(super) fn check_may_load(&self) -> Result<(), OperationError> {
        let sheds =
            self.engine().shed_beyond.is_some_and(|most| sched::ordinary_transfers() >= most);
        if sheds && !sched::is_upkeep() {
            return Err(OperationError::Overloaded);
        }
        Ok(())
    }

    /// Does what `fetch` does, for an admitted read.
    ///
    /// # Errors
    /// Those of the log.
    pub(super) async fn fetch_admitted(
        &self,
        table: &MemoryRecords,
        rid: Rid,
        version: ColdVersion,
    ) -> Result<ColdRecord, OperationError> {
        let record = table.fetch(rid, version).await.map_err(OperationError::Storage)?;
        self.cache_record(table, rid, version, record.view().value);
        Ok(record)
    }

    /// Makes the value of a visible version resident again, if it should be cached.
    pub(super) fn cache_record(
        &self,
        table: &MemoryRecords,
        rid: Rid,
        version: ColdVersion,
        value: &[u8],
    ) {
        let engine = self.engine();
        if engine.caches(value.len()) {
            engine.note_loaded(value.len());
            let operation = reclaim::enter();
            let acting = match version.has_older_versions() {
                true => engine.horizon.act(self.worker().number(), engine.log.tail()),
                false => None,
            };
            // SAFETY: this transaction is active, and saw the version there.
            unsafe { table.cache_record(rid, version, value, &operation, acting.as_ref()) };
        }
    }
}
