//! Created tables at the end of their creator: published if it commits, and removed if it aborts.

use std::sync::Arc;

use crate::reclaim;
use crate::transaction::context::active_transaction::ActiveTransaction;

impl ActiveTransaction {
    /// Publishes the tables that the transaction created. Its LSN is drawn, and their catalog rows
    /// are not visible yet. So a transaction that uses them commits later.
    #[cold]
    pub(super) fn open_created(&self) {
        self.created().borrow_mut().drain(..).for_each(|table| table.open_to_all());
    }

    /// Closes up to `most` of the created tables after the first `keep`. Writes to them are undone.
    /// They exist until the transaction ends, because its read set references them. Returns whether
    /// all are closed.
    pub(super) fn undo_created(&self, keep: usize, most: usize) -> bool {
        let created = &mut *self.created().borrow_mut();
        let first = keep.max(created.len().saturating_sub(most));
        created.drain(first..).for_each(|table| {
            table.close_to_all();
            self.undone_created().borrow_mut().push(table);
        });
        created.len() <= keep
    }

    /// Returns whether the transaction created more than `most` tables and undid that.
    pub(super) fn has_many_undone(&self, most: usize) -> bool {
        self.has_extras() && self.undone_created().borrow().len() > most
    }

    /// Removes up to `most` created tables that were not published, after their writes were undone.
    /// Other tasks that visit all tables may still hold them; the last holder frees them. Returns
    /// whether none is left.
    #[cold]
    pub(super) fn drop_created(&self, most: usize) -> bool {
        let (mut created, mut undone) =
            (self.created().borrow_mut(), self.undone_created().borrow_mut());
        for _ in 0..most {
            let Some(table) = undone.pop().or_else(|| created.pop()) else { return true };
            table.close_to_all();
            table.paged().inspect(|table| self.worker().forget_aborted(table));
            let listed = self.engine().release_table_id(table.id);
            assert!(listed.is_some_and(|listed| Arc::ptr_eq(&listed, &table)), "listed once");
            // After earlier retirements of its contents: retired items are freed in order.
            reclaim::retire_with(move || drop(table));
        }
        created.is_empty() && undone.is_empty()
    }
}
