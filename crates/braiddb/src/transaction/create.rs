//! Table creation. A new table is private to its creator until the creator commits, and is removed
//! if it aborts.

use std::sync::Arc;

use super::context::ActiveTransaction;
use super::engine::Engine;
use super::error::OperationError;
use super::write::WriteIntent;
use crate::reclaim;
use crate::record::Records;
use crate::rid::TableId;

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
            return Err(self.refused_write());
        }
        let new = ReservedTableId { engine, id: engine.take_table_id() };
        // Before the row is written, because this may wait: if the future is dropped here, nothing
        // exists yet.
        let pages = if paged { Some(engine.empty_pages(new.id).await?) } else { None };
        let (key, description) = row(new.id);
        self.write(catalog, &key, WriteIntent::Insert(&description)).await?;
        if paged {
            // Only after the name is known to be free. The row is already written, so on failure
            // the transaction must not commit.
            engine.allow_paged().map_err(|error| self.fail_halfway(error))?;
        }
        // From here on, undoing the write also frees the id.
        let table = match pages {
            Some(pages) => engine.add_paged_table(new.id, pages),
            None => engine.table(new.id),
        };
        std::mem::forget(new);
        table.reserve_for(self.name());
        self.created().borrow_mut().push(table.clone());
        Ok(table)
    }

    /// Publishes the tables that the transaction created. Its LSN is drawn, and their catalog rows
    /// are not visible yet. So a transaction that uses them commits later.
    pub(super) fn open_created(&self) {
        let created = &mut *self.created().borrow_mut();
        if !created.is_empty() {
            created.drain(..).for_each(|table| table.open_to_all());
        }
    }

    /// Closes the created tables after the first `keep`. Writes to them are undone. They exist
    /// until the transaction ends, because its read set references them.
    pub(super) fn undo_created(&self, keep: usize) {
        let created = &mut *self.created().borrow_mut();
        created.drain(keep..).for_each(|table| {
            table.close_to_all();
            self.undone_created().borrow_mut().push(table);
        });
    }

    /// Removes created tables that were not published, after their writes were undone. Other tasks
    /// that visit all tables may still hold them; the last holder frees them.
    #[inline]
    pub(super) fn drop_created(&self) {
        if !self.created().borrow().is_empty() || !self.undone_created().borrow().is_empty() {
            self.drop_some_created();
        }
    }

    #[cold]
    fn drop_some_created(&self) {
        let created = std::mem::take(&mut *self.created().borrow_mut());
        let undone = std::mem::take(&mut *self.undone_created().borrow_mut());
        for table in created.into_iter().chain(undone) {
            table.close_to_all();
            if table.paged().is_some() {
                self.worker().forget_aborted(&table);
            }
            let listed = self.engine().release_table_id(table.id);
            assert!(listed.is_some_and(|listed| Arc::ptr_eq(&listed, &table)), "listed once");
            // After earlier retirements of its contents: retired items are freed in order.
            reclaim::retire_with(move || drop(table));
        }
    }
}
