//! Writes of bulk operations to single records.

use super::ActiveTransaction;
use crate::log::Lsn;
use crate::page::{BulkWriteRefusal, BulkWriteResult, LatchedLeaf};
use crate::reclaim::OperationGuard;
use crate::record::{PagedRecords, Records};
use crate::transaction::context::durability_level::Durability;
use crate::transaction::context::error::OperationError;
use crate::transaction::context::write_intent::WriteIntent;
use crate::transaction::operations::large::{LargeDraft, slot_value};

impl ActiveTransaction {
    /// Writes to a record whose leaf is latched, as part of this transaction's bulk operation.
    ///
    /// # Errors
    /// Nothing of the write is done in that case; the caller may repeat it.
    pub(in crate::transaction::operations) fn write_bulk(
        &self,
        table: &PagedRecords,
        leaf: LatchedLeaf<'_>,
        key: &[u8],
        (intent, draft): (WriteIntent<'_>, Option<&LargeDraft<'_>>),
        epoch: u64,
        operation: &OperationGuard,
    ) -> Result<Result<bool, OperationError>, BulkWriteRefusal> {
        let value = intent.value().map(|value| slot_value(value, draft));
        let mut existed = false;
        let applies = |exists, committed: Option<Lsn>| {
            committed.inspect(|lsn| self.note_lsn(*lsn));
            existed = exists;
            intent.applies(exists)
        };
        match table.pages().write_bulk(leaf, key, value, epoch, self.view(), operation, applies)? {
            BulkWriteResult::Done { gone, covers } => {
                if let Some(gone) = gone {
                    self.worker().discard_of(table, gone);
                }
                self.note_bulk_write(table, key, intent, (existed, covers));
                draft.inspect(|draft| draft.set_written(true));
                Ok(Ok(true))
            }
            BulkWriteResult::Not => Ok(intent.refusal(table, key)),
        }
    }

    /// Counts a written record, given whether it existed and whether a visible version was covered.
    fn note_bulk_write(
        &self,
        table: &Records,
        key: &[u8],
        intent: WriteIntent<'_>,
        (existed, covers): (bool, bool),
    ) {
        let writes = &mut *self.writes().borrow_mut();
        writes.overwrites += 1;
        let bulk = writes.bulk.as_mut().expect("it is a bulk operation");
        let one = bulk.tables.iter_mut().find(|one| one.table.id == table.id);
        let one = one.expect("one of its tables");
        one.is_written = true;
        one.covers |= covers;
        one.more += i64::from(intent.value().is_some()) - i64::from(existed);
        bulk.written += 1;
        bulk.deletes_only &= intent.value().is_none();
        if self.engine().durability != Durability::Volatile {
            bulk.log.add(table.id, key, intent.value());
        }
        self.worker().counters().bulk_records.add(1);
    }
}
