//! Creating tables: each is its creator's alone until that commits, and goes with it if it aborts.

use std::sync::Arc;

use super::context::Transaction;
use super::engine::Engine;
use super::error::OperationError;
use super::write::Intent;
use crate::reclaim;
use crate::record::Records;
use crate::rid::TableId;

/// A table id that goes back if nothing comes of it.
struct NewId<'e> {
    engine: &'e Engine,
    id: TableId,
}

impl Drop for NewId<'_> {
    fn drop(&mut self) {
        let table = self.engine.give_table_id_back(self.id);
        assert!(table.is_none(), "a table's id goes back with the table");
    }
}

impl Transaction {
    /// Makes a table, and lists it in the catalog by the row, a key and a value, that `row` gives for its id.
    ///
    /// # Errors
    /// As for an insertion into the catalog; the device's. Then, and if the future is dropped before it is ready,
    /// there is no table.
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
        let new = NewId { engine, id: engine.take_table_id() };
        // Before its row, for it may take waiting: nothing is there yet if the future is dropped meanwhile.
        let pages = if paged { Some(engine.empty_pages(new.id).await?) } else { None };
        let (key, description) = row(new.id);
        self.write(catalog, &key, Intent::Insert(&description)).await?;
        if paged {
            // Not before it is known that its name is free. Its row is written, should this fail: the transaction is
            // not to commit then.
            engine.allow_paged().map_err(|error| self.fail_halfway(error))?;
        }
        // From here on the id is taken back with the write.
        let table = match pages {
            Some(pages) => engine.add_paged_table(new.id, pages),
            None => engine.table(new.id),
        };
        std::mem::forget(new);
        table.reserve_for(self.name());
        self.created().borrow_mut().push(table.clone());
        Ok(table)
    }

    /// Lets everybody use the tables that the transaction created; its LSN is drawn, and nobody sees
    /// yet that they are listed. So a transaction that uses them commits later.
    pub(super) fn open_created(&self) {
        let created = &mut *self.created().borrow_mut();
        if !created.is_empty() {
            created.drain(..).for_each(|table| table.open_to_all());
        }
    }

    /// Closes the tables that the transaction created after the first `keep`; its writes to them are
    /// undone. They stay until it is over: what it has noted leads to them.
    pub(super) fn undo_created(&self, keep: usize) {
        let created = &mut *self.created().borrow_mut();
        created.drain(keep..).for_each(|table| {
            table.close_to_all();
            self.undone_created().borrow_mut().push(table);
        });
    }

    /// Takes back the tables that the transaction created and that did not come to be, after its writes. Others may look at them
    /// as they come by all tables, and hold them; they are gone once nobody does.
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
            let listed = self.engine().give_table_id_back(table.id);
            assert!(listed.is_some_and(|listed| Arc::ptr_eq(&listed, &table)), "listed once");
            // After what of it was retired before: what is due is freed in order.
            reclaim::retire_with(move || drop(table));
        }
    }
}
