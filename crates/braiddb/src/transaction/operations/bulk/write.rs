//! Bulk writes to tables without secondary indexes.

use std::cell::Cell;

use super::ActiveTransaction;
use crate::page::{BulkWriteRefusal, BulkWriteResult, PagedTable};
use crate::reclaim;
use crate::record::Records;
use crate::sched;
use crate::transaction::context::durability_level::Durability;
use crate::transaction::context::error::OperationError;
use crate::transaction::context::write_intent::WriteIntent;
use crate::transaction::operations::large::slot_value;
use crate::transaction::operations::paged::check_fits;
use crate::transaction::operations::required_pages::RequiredPages;

impl ActiveTransaction {
    /// Writes as part of this transaction's bulk operation.
    ///
    /// # Errors
    /// Those of `write`.
    pub(in crate::transaction) async fn write_bulk(
        &self,
        table: &Records,
        paged: &PagedTable,
        key: &[u8],
        intent: WriteIntent<'_>,
        epoch: u64,
    ) -> Result<bool, OperationError> {
        check_fits(paged, key)?;
        // Fails the transaction: a closure may continue after this error and would lose records.
        self.log_blocks_of_bulk().await.map_err(|error| self.fail_halfway(error))?;
        let mut draft = self.draft(paged, intent.value()).await?;
        let mut required = RequiredPages::new();
        loop {
            let operation = reclaim::enter();
            let are_held = required.are_held();
            if !are_held {
                sched::count_steps(1).await;
            }
            let value = intent.value().map(|value| slot_value(value, draft.as_ref()));
            let (told, existed) = (Cell::new(None), Cell::new(false));
            let applies = |exists, committed| {
                told.set(committed);
                existed.set(exists);
                intent.applies(exists)
            };
            let view = || self.view();
            let written =
                paged.write_bulk(key, value, epoch, are_held, view, &operation, applies).await;
            required.release();
            if let Some(lsn) = told.get() {
                self.note_lsn(lsn);
            }
            match written {
                // Nothing suspends from here on.
                Ok(BulkWriteResult::Done { gone, covers }) => {
                    if let Some(gone) = gone {
                        let values = paged.large().expect("the table stores large values").clone();
                        self.worker().discard(values, gone);
                    }
                    self.note_bulk_write(table, key, intent, (existed.get(), covers));
                    draft.inspect(|draft| draft.set_written(true));
                    return Ok(true);
                }
                Ok(BulkWriteResult::Not) => {
                    return match intent {
                        WriteIntent::Insert(_) => Err(OperationError::KeyExists),
                        WriteIntent::Update(_) => Err(OperationError::KeyNotFound),
                        WriteIntent::Put(_) | WriteIntent::Delete | WriteIntent::Expire => {
                            Ok(false)
                        }
                    };
                }
                Err(BulkWriteRefusal::TooLong) => {
                    drop(operation);
                    let value = intent.value().expect("a deletion leaves none");
                    draft = Some(self.write_draft(paged, value).await?);
                }
                Err(BulkWriteRefusal::Conflict) => return Err(self.conflict_at(table, key)),
                Err(BulkWriteRefusal::WouldSuspend(why)) => {
                    drop(operation);
                    required.load(self, paged, why).await?;
                }
            }
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
