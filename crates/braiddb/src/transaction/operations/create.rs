//! Table creation. A new table is private to its creator until it commits (`transaction/commit/created_tables.rs`).

use std::sync::Arc;

use crate::record::Records;
use crate::rid::TableId;
use crate::transaction::context::active_transaction::ActiveTransaction;
use crate::transaction::context::engine::Engine;
use crate::transaction::context::error::OperationError;
use crate::transaction::context::write_intent::WriteIntent;

/// A table id that is freed unless the table is created.
struct ReservedTableId<'e> {
    engine: &'e Engine,
    id: TableId,
}

impl Drop for ReservedTableId<'_> {
    fn drop(&mut self) {
        let table = self.engine.release_table_id(self.id);
        assert!(table.is_none(), "the table was removed with its id");
    }
}

impl ActiveTransaction {
    /// Creates a table and inserts its catalog row; `row` returns the row's key and value for the
    /// id.
    ///
    /// # Errors
    /// Those of an insertion into the catalog; those of the device. On an error, or if the future
    /// is dropped early, no table is created.
    pub(crate) async fn create_table(
        &self,
        catalog: &Records,
        row: impl FnOnce(TableId) -> (Vec<u8>, Vec<u8>),
        paged: bool,
    ) -> Result<Arc<Records>, OperationError> {
        let engine = self.engine();
        if self.mode().is_read_only() {
            return Err(self.refused_write(catalog));
        }
        let new = ReservedTableId { engine, id: engine.take_table_id() };
        // Before the row is written, because this may wait: if the future is dropped here, nothing
        // exists yet.
        let pages = if paged { Some(engine.empty_pages(new.id).await?) } else { None };
        let (key, description) = row(new.id);
        self.write(catalog, &key, WriteIntent::Insert(&description), None).await?;
        if paged {
            // Only after the name is known to be free. The row is already written, so on failure
            // the transaction must not commit.
            engine.allow_paged().map_err(|error| self.fail_halfway(error))?;
        }
        // From here on, undoing the write also frees the id.
        let table = match pages {
            Some(pages) => engine.add_paged(new.id, pages),
            None => engine.table(new.id),
        };
        std::mem::forget(new);
        table.reserve_for(self.name());
        self.created().borrow_mut().push(table.clone());
        Ok(table)
    }
}
