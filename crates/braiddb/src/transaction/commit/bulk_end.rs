//! The end of bulk operations: the log blocks of their records, and their outcome.

use crate::log::{Lsn, RecordKind};
use crate::rid::Rid;
use crate::transaction::context::active_transaction::ActiveTransaction;
use crate::transaction::context::durability_level::Durability;
use crate::transaction::context::error::OperationError;
use crate::version::Stamp;

impl ActiveTransaction {
    /// Logs what a bulk operation has written, if it fills a block.
    ///
    /// # Errors
    /// Those of the log; `Refused` if it cannot grow.
    pub(in crate::transaction) async fn log_blocks_of_bulk(&self) -> Result<(), OperationError> {
        let least = self.engine().log.common_block_bytes();
        self.log_bulk(least).await
    }

    /// Logs everything that is not logged yet; returns the LSN of the first part, if the operation
    /// has one.
    ///
    /// # Errors
    /// Those of the log; `Refused` if it cannot grow.
    pub(in crate::transaction) async fn log_rest_of_bulk(
        &self,
    ) -> Result<Option<Lsn>, OperationError> {
        self.log_bulk(1).await?;
        Ok(self.writes().borrow().bulk.as_ref().and_then(|bulk| bulk.log.first_part))
    }

    /// Logs pending records while they are at least `least` bytes.
    async fn log_bulk(&self, least: usize) -> Result<(), OperationError> {
        let engine = self.engine();
        if engine.durability == Durability::Volatile {
            return Ok(());
        }
        loop {
            let most = engine.log.common_block_bytes();
            let admitted = {
                let writes = self.writes().borrow();
                let Some(bulk) = &writes.bulk else { return Ok(()) };
                if bulk.log.log_bytes < least || bulk.log.records.is_empty() {
                    return Ok(());
                }
                bulk.log.part(most).1
            };
            self.admit(admitted).await?;
            // Another operation of the transaction may have logged some of them in the meantime.
            let writes = &mut *self.writes().borrow_mut();
            let log = &mut writes.bulk.as_mut().expect("looked at above").log;
            let (count, bytes) = log.part(admitted);
            if count == 0 || bytes > admitted {
                continue;
            }
            let noted = || engine.checkpoints.log_in_parts(|| engine.log.tail());
            log.noted.get_or_insert_with(noted);
            let mut block = engine.log.reserve(self.worker().number(), bytes);
            let mut at = log.start;
            for record in log.records.iter().take(count) {
                let value = at + record.key..at + record.key + record.value.unwrap_or(0);
                let kind = match record.value {
                    Some(_) => RecordKind::PutByKey,
                    None => RecordKind::DeleteByKey,
                };
                let key = &log.bytes[at..value.start];
                at = value.end;
                block.append(record.table, kind, Rid::new(0), key, &log.bytes[value]);
            }
            let first = *log.first_part.get_or_insert(block.lsn());
            block.finish_part(first);
            log.pass(count);
        }
    }

    /// Returns whether the transaction is a bulk operation.
    pub(in crate::transaction) fn is_bulk(&self) -> bool {
        self.has_extras() && !self.context().extras.bulk_epochs.borrow().is_empty()
    }

    /// Records the outcome of this transaction's bulk operation, if any, in its tables' epochs: the
    /// commit LSN, or `None` if it aborts.
    #[inline]
    pub(in crate::transaction) fn decide_bulk(&self, lsn: Option<Lsn>) {
        if self.is_bulk() {
            self.decide_tables(lsn.map_or(Stamp::ABORTED, Stamp::committed));
        }
    }

    #[cold]
    fn decide_tables(&self, stamp: Stamp) {
        let mut writes = self.writes().borrow_mut();
        let Some(bulk) = &mut writes.bulk else { return };
        let engine = self.engine();
        for one in bulk.tables.drain(..) {
            let epochs = &one.table.pages().bulk().epochs;
            if !one.is_written {
                // The table has no marks.
                epochs.decide(Stamp::ABORTED);
                epochs.settle(one.epoch);
                continue;
            }
            if stamp != Stamp::ABORTED {
                one.table.count().add(self.worker().number(), one.more);
            }
            epochs.decide(stamp);
            let has_pass = one.covers || stamp == Stamp::ABORTED;
            engine.bulk_sweeps.expect(one.table, has_pass);
        }
    }
}
