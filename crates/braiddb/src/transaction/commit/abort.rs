//! Abort and savepoints: undoes all writes of a transaction, or those after a savepoint.

use super::ending::MAX_WRITES_AT_ONCE;
use crate::planted::{Bug, is_planted};
use crate::reclaim::{self, OperationGuard};
use crate::transaction::context::active_transaction::ActiveTransaction;
use crate::transaction::context::error::OperationError;
use crate::transaction::context::fault::PanicPoint;
use crate::transaction::context::partial_operation::PartialOperation;
use crate::transaction::memory::garbage::Garbage;
use crate::transaction::sets::savepoints::{WriteMoment, WriteSavepoint};
use crate::transaction::sets::write_set::{PagedWrite, ReplacedWrite, Write, WriteKind, WriteSet};
use crate::version::{Link, Stamp, VersionRef};

impl ActiveTransaction {
    /// Returns a value that changes whenever the transaction writes or rolls back.
    pub(in crate::transaction) fn moment(&self) -> WriteMoment {
        let writes = self.writes().borrow();
        let on_pages = writes.paged.len() + writes.overwrites;
        let written = writes.writes().len() + writes.replaced.len() + on_pages;
        WriteMoment { written, rollbacks: self.savepoints().rollbacks() }
    }

    /// Creates a savepoint.
    pub(crate) fn savepoint(&self) -> WriteSavepoint {
        let savepoints = self.savepoints();
        let number = savepoints.next.get();
        savepoints.next.set(number + 1);
        savepoints.valid.borrow_mut().push(number);
        let mut writes = self.writes().borrow_mut();
        writes.savepoints += 1;
        let paged = writes.next_paged_position();
        savepoints.newest_paged.set(paged);
        WriteSavepoint {
            transaction: self.name(),
            number,
            writes: writes.writes().len(),
            replaced: writes.replaced.len(),
            paged,
            paged_value_bytes: writes.paged_value_bytes(),
            created: self.created().borrow().len(),
        }
    }

    /// Undoes what was written after a savepoint, and discards later savepoints. Reads stay in the
    /// read set, and a conflict remains. If the future does not become ready, some of the writes are
    /// undone, and the transaction cannot commit.
    ///
    /// # Errors
    /// `BulkSavepoint` in a bulk operation. `SavepointOver` if the savepoint belongs to another
    /// transaction, or an earlier one was rolled back to since. If that happens while this waits,
    /// the other rollback undoes the rest.
    pub(crate) async fn rollback_to(
        &self,
        savepoint: WriteSavepoint,
    ) -> Result<(), OperationError> {
        if self.is_bulk() {
            return Err(OperationError::BulkSavepoint);
        }
        let position = self.find_savepoint(&savepoint)?;
        self.savepoints().valid.borrow_mut().truncate(position + 1);
        let under_way = PartialOperation::begin(self, OperationError::RollbackGivenUp);
        let result = self.undo_after(&savepoint).await;
        under_way.complete();
        result
    }

    /// Returns the position of a savepoint among those that may be rolled back to.
    fn find_savepoint(&self, savepoint: &WriteSavepoint) -> Result<usize, OperationError> {
        let found = self.savepoints().valid.borrow().binary_search(&savepoint.number).ok();
        let is_own = savepoint.transaction == self.name();
        found.filter(|_| is_own).ok_or(OperationError::SavepointOver)
    }

    async fn undo_after(&self, savepoint: &WriteSavepoint) -> Result<(), OperationError> {
        self.stamp_undone(savepoint).await?;
        while !self.roll_back_some(savepoint) {
            Self::end_step().await;
            self.find_savepoint(savepoint)?;
        }
        Ok(())
    }

    /// Stamps the changes of paged tables after a savepoint as aborted, newest first, until one step
    /// can do the rest. So the first visit of a leaf undoes all of them there.
    ///
    /// A write at the same time may push a change above stamped ones. It removes those at the head
    /// before, and is undone before those below, because undoing begins with the newest, too.
    async fn stamp_undone(&self, savepoint: &WriteSavepoint) -> Result<(), OperationError> {
        let keep = savepoint.paged as usize;
        let mut left = self.writes().borrow().paged.len();
        while left > keep + MAX_WRITES_AT_ONCE {
            self.begin_rollback_step();
            let first = left - MAX_WRITES_AT_ONCE;
            {
                let writes = self.writes().borrow();
                // During the suspension, another rollback to this savepoint may have removed changes.
                let end = left.min(writes.paged.len());
                self.stamp_and_note(&writes, writes.paged.get(first..end).unwrap_or_default());
            }
            left = first;
            Self::end_step().await;
            self.find_savepoint(savepoint)?;
        }
        Ok(())
    }

    /// Stamps changes of paged tables as aborted, newest first. Adds their records to the read set in
    /// the same step, because others may write them from now on.
    fn stamp_and_note(&self, writes: &WriteSet, changes: &[PagedWrite]) {
        for write in changes.iter().rev() {
            // SAFETY: the change is in the list of its transaction, or was taken out of it by this
            // step, so it is not retired yet.
            let change = unsafe { write.change.get() };
            if change.stamp() == Stamp::ABORTED {
                continue;
            }
            if !is_planted(Bug::UndoneWriteNotNoted) {
                // SAFETY: tables that an active transaction has used exist.
                self.note_key(unsafe { write.table.get() }, writes.paged_key(write));
            }
            change.set_stamp(Stamp::ABORTED);
        }
    }

    /// Makes the transaction's other operations look again at what it wrote.
    fn begin_rollback_step(&self) {
        let rollbacks = &self.savepoints().rollbacks;
        rollbacks.set(rollbacks.get() + 1);
        self.forget_recent();
    }

    /// Undoes some of the writes after a savepoint, newest first. Returns whether all are undone.
    fn roll_back_some(&self, savepoint: &WriteSavepoint) -> bool {
        self.begin_rollback_step();
        let savepoints = self.savepoints();
        let operation = reclaim::enter();
        let writes = &mut *self.writes().borrow_mut();
        self.engine().planted_panic.panic_if_planted(PanicPoint::Rollback);
        restore_replaced(writes, savepoint.replaced, MAX_WRITES_AT_ONCE);
        if writes.replaced.len() > savepoint.replaced {
            return false;
        }
        let count = writes.writes().len();
        let first = savepoint.writes.max(count.saturating_sub(MAX_WRITES_AT_ONCE));
        let later = writes.writes()[first..].iter().rev();
        for write in later.filter(|write| write.kind != WriteKind::Void) {
            self.note_undone(writes, write);
            self.roll_back(writes, write, &operation);
            // SAFETY: unlinked above, and in no list of versions to retire.
            unsafe { write.table.get().retire_version(write.version) };
        }
        writes.truncate(first);
        let keep = savepoint.paged as usize;
        let first_paged =
            keep.max(writes.paged.len().saturating_sub(MAX_WRITES_AT_ONCE - (count - first)));
        let is_done = first == savepoint.writes && first_paged == keep;
        // The values of earlier writes may follow those of the writes that are still to be undone.
        let value_bytes =
            if is_done { savepoint.paged_value_bytes } else { writes.paged_value_bytes() };
        let paged = writes.split_off_paged(first_paged, value_bytes);
        savepoints.newest_paged.set(savepoint.paged);
        self.stamp_and_note(writes, &paged);
        self.roll_back_on_pages(&paged);
        self.discard_values(&paged);
        is_done && self.undo_created(savepoint.created, MAX_WRITES_AT_ONCE)
    }

    /// Adds the record of an undone write to the read set. A successful write also reveals which
    /// version it was installed on. First-updater-wins protects that only while the write stands.
    fn note_undone(&self, writes: &WriteSet, write: &Write) {
        if !self.mode().notes() || is_planted(Bug::UndoneWriteNotNoted) {
            return;
        }
        // SAFETY: tables that an active transaction has used exist.
        let (table, key) = (unsafe { write.table.get() }, writes.key(write));
        if write.existed() {
            self.note_record(table, write.rid, key);
        } else {
            self.note_absence(table, key);
        }
    }

    /// Undoes writes to paged tables that the transaction will not commit.
    pub(in crate::transaction) fn roll_back_on_pages(&self, undone: &[PagedWrite]) {
        for write in undone.iter().rev() {
            // SAFETY: the change belongs to this transaction and is not retired yet.
            unsafe { write.change.get() }.set_stamp(Stamp::ABORTED);
        }
        let worker = self.worker();
        for write in undone {
            // SAFETY: the change belongs to this transaction, is stamped above and is in no list
            // any more.
            unsafe { worker.roll_back(write.table, write.change) };
        }
    }

    /// Queues the removal of large values that undone writes left.
    pub(super) fn discard_values(&self, undone: &[PagedWrite]) {
        for (write, large) in undone.iter().filter_map(|write| Some((write, write.large?))) {
            // SAFETY: tables that an active transaction has used exist.
            self.worker().discard_of(unsafe { write.table.get() }, large);
        }
    }

    /// Unlinks one version in flight. The caller retires it.
    pub(in crate::transaction) fn roll_back(
        &self,
        writes: &WriteSet,
        write: &Write,
        operation: &OperationGuard,
    ) {
        // SAFETY: tables that an active transaction has used exist.
        let table = unsafe { write.table.get() };
        if write.base().is_none() {
            // The record was never committed: its key is removed before its id is freed.
            table.index().remove(writes.key(write), write.rid, operation);
        }
        // SAFETY: this transaction installed the version on that base, and will not commit it; a new
        // record's key was removed above.
        unsafe { table.roll_back(write.rid, write.version, write.base()) };
        if let Some(Link::Version(base)) = write.base() {
            self.keep_deleted(write, base);
        }
    }

    /// Schedules reclamation again for a tombstone that is the newest version again. Its reclaimer
    /// may have given up while this transaction's version was above it.
    fn keep_deleted(&self, write: &Write, base: VersionRef) {
        // SAFETY: the base is the newest version of its record again. No version that superseded it
        // can have garbage that is due before this transaction's begin stamp ends.
        if unsafe { base.get() }.is_tombstone() {
            let (table, rid) = (write.table, write.rid);
            let now = self.engine().log.tail();
            let garbage = Garbage::Deleted { table, rid, tombstone: base };
            self.worker().garbage.borrow_mut().push(now, garbage);
        }
    }
}

/// Restores up to `most` of the transaction's own versions that were replaced after the first `keep`
/// replacements, newest first.
fn restore_replaced(writes: &mut WriteSet, keep: usize, most: usize) {
    for _ in 0..most.min(writes.replaced.len().saturating_sub(keep)) {
        let ReplacedWrite { table, version, position, kind } =
            writes.replaced.pop().expect("there are more than are kept");
        let (rid, undone) = writes.restore(position, version, kind);
        // SAFETY: tables that an active transaction has used exist; it installed `undone` in
        // place of `version`. From then on `undone` is in no list.
        unsafe {
            table.get().restore_previous(rid, undone, version);
            table.get().retire_version(undone);
        }
    }
}
