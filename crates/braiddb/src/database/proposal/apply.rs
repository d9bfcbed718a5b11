//! Application of row writes.

use super::row_writes::{RowWrite, RowWrites};
use crate::database::error::{Error, MissingTable, Misuse, Result};
use crate::database::transaction::Transaction;
use crate::record::Records;
use crate::sched::{self, engine_code};
use crate::transaction::{
    ActiveTransaction, ExpiryRule, OperationError, PartialOperation, WriteIntent,
};

impl Transaction {
    /// Makes the writes that another transaction made when it was executed
    /// ([`Database::execute`](crate::Database::execute)), in this database or in another one with
    /// the same tables. Returns after they are part of this transaction, which may do more and then
    /// commits all.
    ///
    /// - Rows are found by the name of their table and by key. Deletions of absent records and
    ///   insertions of existing ones are no errors: afterwards, each record is as the rows say.
    /// - Secondary indexes are updated. Their key functions must be the same as where the
    ///   transaction was executed, and attached ([`Database::index`](crate::Database::index)).
    ///   Otherwise tables need not have been opened.
    /// - The expiry of a record is that of its row. Which records have expired is decided by
    ///   [`RowWrites::time_ms`], not by the clock.
    /// - Values are not decoded, except by key functions of indexes.
    ///
    /// The call may conflict with other transactions, also with closures that
    /// [`Database::execute`](crate::Database::execute) runs at the same time. If the writes must be
    /// applied, set a high [`TransactionBuilder::max_attempts`](crate::TransactionBuilder).
    /// If the future is dropped early, or fails, the transaction cannot commit.
    ///
    /// For an example see [`Database::execute`](crate::Database::execute).
    ///
    /// # Errors
    /// - [`Error::TableNotFound`] if a table does not exist.
    /// - [`IndexError::Detached`](crate::IndexError) if an index of a table is not attached;
    ///   [`Error::Panicked`] and [`Error::Decode`] of its key function.
    /// - [`Misuse::AppliedExpiry`](crate::Misuse) if records of a table expire only here, or only
    ///   where the transaction was executed.
    /// - [`Error::UniqueViolation`] if a record that the rows do not contain has a key of a unique
    ///   index; the contents of the two databases then differ.
    /// - The errors of [`Transaction::put`].
    pub async fn apply(&self, writes: &RowWrites) -> Result<()> {
        let steps = PartialOperation::begin(self.core(), OperationError::ApplyGivenUp);
        let mut rows: Vec<RowWrite<'_>> = Vec::new();
        for row in writes.rows() {
            sched::count_steps(1).await;
            rows.push(row);
        }
        for of_table in rows.chunk_by(|one, next| one.table == next.table) {
            let table = of_table[0].table;
            let missing = || Error::from(MissingTable::new(table));
            let id = self.table_id_of(table).await?.ok_or_else(missing)?;
            let records = self.engine().table(id);
            if !self.core().may_use(&records) {
                return Err(missing());
            }
            records.set_first_name(table);
            let has_expiry = |row: &RowWrite<'_>| row.expires_at_ms.is_some();
            let fits =
                |row: &RowWrite<'_>| row.value.is_none() || has_expiry(row) == records.expires();
            for row in of_table {
                sched::count_steps(1).await;
                if !fits(row) {
                    return Err(Misuse::AppliedExpiry(table.to_owned()).into());
                }
            }
            let apply = self.core().apply_rows(&records, of_table, writes.time_ms());
            engine_code(apply).await?;
        }
        steps.complete();
        Ok(())
    }
}

impl ActiveTransaction {
    /// Applies rows of one table.
    async fn apply_rows(
        &self,
        table: &Records,
        rows: &[RowWrite<'_>],
        now: u64,
    ) -> Result<(), OperationError> {
        let mut are_deleted = false;
        for (number, row) in rows.iter().enumerate() {
            match self.apply_row(table, row, now).await {
                // A later row may take the key from its record: such records are deleted first.
                Err(OperationError::UniqueViolation(_)) if !are_deleted => {
                    are_deleted = true;
                    for later in &rows[number + 1..] {
                        let deletion = RowWrite { value: None, ..*later };
                        self.apply_row(table, &deletion, now).await?;
                    }
                    self.apply_row(table, row, now).await?;
                }
                applied => applied?,
            }
        }
        Ok(())
    }

    async fn apply_row(
        &self,
        table: &Records,
        row: &RowWrite<'_>,
        now: u64,
    ) -> Result<(), OperationError> {
        let rule = ExpiryRule::Applied { expiry: row.expires_at_ms.unwrap_or(u64::MAX), now };
        let intent = row.value.map_or(WriteIntent::Delete, WriteIntent::Put);
        self.write(table, row.key, intent, Some(rule)).await?;
        Ok(())
    }
}
