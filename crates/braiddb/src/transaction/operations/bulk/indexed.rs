//! Bulk writes to tables with secondary indexes or expiring records.
//!
//! A record and its index entries are written one after the other, and each write may wait for
//! pages. No other transaction sees any of it before the commit, and none writes these tables. An
//! operation runs one such write at a time. If the write is dropped halfway or fails, the operation
//! cannot commit.

use std::sync::Arc;

use super::ActiveTransaction;
use crate::record::{Records, Secondary};
use crate::sched::{self, WaitCause};
use crate::transaction::context::error::OperationError;
use crate::transaction::context::partial_operation::PartialOperation;
use crate::transaction::context::write_intent::{ExpiryRule, WriteIntent};
use crate::transaction::operations::index::keys::{IndexKeyChange, changes, inconsistent};

/// Exclusive right to a write of several steps; an operation runs one at a time.
struct ExclusiveStep<'t>(&'t ActiveTransaction);

impl<'t> ExclusiveStep<'t> {
    async fn wait(transaction: &'t ActiveTransaction) -> Self {
        loop {
            if let Some(bulk) = &mut transaction.writes().borrow_mut().bulk
                && !std::mem::replace(&mut bulk.is_busy, true)
            {
                return Self(transaction);
            }
            sched::yield_now(WaitCause::Undecided).await;
        }
    }
}

impl Drop for ExclusiveStep<'_> {
    fn drop(&mut self) {
        if let Some(bulk) = &mut self.0.writes().borrow_mut().bulk {
            bulk.is_busy = false;
        }
    }
}

impl ActiveTransaction {
    /// Attempts a write to a table and its indexes as part of this transaction's bulk operation.
    ///
    /// # Errors
    /// Those of `write`.
    pub(in crate::transaction) async fn write_bulk_indexed(
        &self,
        table: &Records,
        indexes: &[Arc<Secondary>],
        key: &[u8],
        intent: WriteIntent<'_>,
        rule: Option<ExpiryRule>,
    ) -> Result<bool, OperationError> {
        let _step = ExclusiveStep::wait(self).await;
        let found = self.get_unnoted(table, key, true).await?;
        let old = found.as_ref().map(|(found, _)| found.bytes());
        let intent = match self.for_stored(table, key, intent, old, rule) {
            Ok(intent) => intent,
            Err(answer) => return answer,
        };
        if !intent.applies(old.is_some()) {
            // `write_record` returns the error.
            return self.write_record(table, key, intent).await;
        }
        let changes = changes(table, indexes, key, old, intent.value())?;
        self.check_all_free(table, key, &changes).await?;
        let steps = PartialOperation::begin(self, OperationError::BulkGivenUp);
        for change in &changes {
            let (index, entry) = (change.index, &change.entry);
            let written = match change.gained {
                true => WriteIntent::Put(index.entry_value(key)),
                false => WriteIntent::Delete,
            };
            if !self.write_record(index.entries(), entry, written).await? && !change.gained {
                return Err(inconsistent(table, index));
            }
            self.worker().counters().index_entries.add(1);
        }
        let written = self.write_record(table, key, intent).await?;
        steps.complete();
        Ok(written)
    }

    /// Checks that no other record has the keys of unique indexes that a record is about to gain.
    ///
    /// # Errors
    /// `UniqueViolation`; those of a read.
    async fn check_all_free(
        &self,
        table: &Records,
        key: &[u8],
        changes: &[IndexKeyChange<'_>],
    ) -> Result<(), OperationError> {
        for change in changes.iter().filter(|change| change.gained && change.index.is_unique()) {
            let owner = self.owner_of(change.index, &change.entry).await?;
            if owner.is_some_and(|owner| *owner != *key) {
                return Err(change.violation(table));
            }
        }
        Ok(())
    }
}
