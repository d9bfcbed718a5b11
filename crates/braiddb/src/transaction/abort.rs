//! Taking back what a transaction wrote: all of it when it aborts, or what came after a savepoint.

use std::cell::{Cell, RefCell};

use super::context::Transaction;
use super::error::OperationError;
use super::fault::PanicPoint;
use super::garbage::Garbage;
use super::write_set::{PagedWrite, Replaced, Write, WriteKind, WriteSet};
use crate::planted::{Bug, is_planted};
use crate::reclaim::{self, OperationGuard};
use crate::version::{Link, Stamp, TransactionName, VersionRef};

/// How far a transaction had got: what it had written, and which tables it had created.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Savepoint {
    transaction: TransactionName,
    number: u64,
    writes: usize,
    replaced: usize,
    paged: u32,
    paged_value_bytes: usize,
    created: usize,
}

/// What a transaction had written when it was asked; equal as long as it writes nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Moment {
    written: usize,
    pub(super) rollbacks: u64,
}

/// The savepoints of a transaction.
#[derive(Debug, Default)]
pub(super) struct Savepoints {
    /// Those that may be rolled back to, in the order in which they were made.
    valid: RefCell<Vec<u64>>,
    next: Cell<u64>,
    rollbacks: Cell<u64>,
    /// Writes to paged tables before the newest savepoint: they are not overwritten.
    newest_paged: Cell<u32>,
}

impl Savepoints {
    /// How often the transaction was rolled back.
    pub(super) fn rollbacks(&self) -> u64 {
        self.rollbacks.get()
    }

    /// Writes to paged tables before the newest savepoint.
    pub(super) fn newest_paged(&self) -> u32 {
        self.newest_paged.get()
    }
}

impl Transaction {
    /// Tells whether the transaction wrote, or took something back, between two calls.
    pub(super) fn moment(&self) -> Moment {
        let writes = self.writes().borrow();
        let on_pages = writes.paged.len() + writes.overwrites;
        let written = writes.writes().len() + writes.replaced.len() + on_pages;
        Moment { written, rollbacks: self.savepoints().rollbacks() }
    }

    /// Remembers how far the transaction has got.
    pub(crate) fn savepoint(&self) -> Savepoint {
        let savepoints = self.savepoints();
        let number = savepoints.next.get();
        savepoints.next.set(number + 1);
        savepoints.valid.borrow_mut().push(number);
        let writes = self.writes().borrow();
        let paged = writes.next_paged_position();
        savepoints.newest_paged.set(paged);
        Savepoint {
            transaction: self.name(),
            number,
            writes: writes.writes().len(),
            replaced: writes.replaced.len(),
            paged,
            paged_value_bytes: writes.paged_value_bytes(),
            created: self.created().borrow().len(),
        }
    }

    /// Takes back what was written after a savepoint, and forgets the savepoints after it. What was read
    /// stays read, and a conflict stays one.
    ///
    /// # Errors
    /// `BulkSavepoint` if it is a bulk operation; `SavepointOver` if it is another transaction's, or an earlier one was rolled back to since.
    pub(crate) fn rollback_to(&self, savepoint: Savepoint) -> Result<(), OperationError> {
        if self.is_bulk() {
            return Err(OperationError::BulkSavepoint);
        }
        let savepoints = self.savepoints();
        {
            let valid = &mut *savepoints.valid.borrow_mut();
            let own = savepoint.transaction == self.name();
            let position = valid.binary_search(&savepoint.number).ok().filter(|_| own);
            valid.truncate(position.ok_or(OperationError::SavepointOver)? + 1);
        }
        savepoints.rollbacks.set(savepoints.rollbacks.get() + 1);
        let operation = reclaim::enter();
        let writes = &mut *self.writes().borrow_mut();
        self.engine().planted_panic.panic_if_planted(PanicPoint::Rollback);
        put_replaced_back(writes, savepoint.replaced);
        let mut undone = Vec::new();
        let later = writes.writes()[savepoint.writes..].iter().rev();
        for write in later.filter(|write| write.kind != WriteKind::Void) {
            self.note_undone(writes, write);
            self.take_back(writes, write, &operation);
            undone.push((write.table, write.version));
        }
        writes.undone.append(&mut undone);
        writes.truncate(savepoint.writes);
        let paged = writes.split_off_paged(savepoint.paged as usize, savepoint.paged_value_bytes);
        savepoints.newest_paged.set(savepoint.paged);
        self.note_undone_on_pages(&paged);
        self.take_back_from_pages(&paged);
        self.discard_values(&paged);
        self.undo_created(savepoint.created);
        self.forget_recent();
        Ok(())
    }

    /// That a write succeeded told something too, which first updater wins protects only as long as the
    /// write stands: so what it was installed on is noted as read.
    fn note_undone(&self, writes: &WriteSet, write: &Write) {
        if !self.mode().notes() || is_planted(Bug::UndoneWriteNotNoted) {
            return;
        }
        // SAFETY: tables live as long as the engine, which `self` holds.
        let (table, key) = (unsafe { write.table.get() }, writes.key(write));
        if write.existed() {
            self.note_record(table, write.rid, key);
        } else {
            self.note_absence(table, key);
        }
    }

    /// As `note_undone`, of paged tables.
    fn note_undone_on_pages(&self, undone: &[PagedWrite]) {
        for write in undone {
            // SAFETY: tables live as long as the engine, which `self` holds, and the transaction's own changes
            // are not retired yet.
            let (table, (_, key)) = unsafe { (write.table.get(), write.change.record()) };
            self.note_key(table, key);
        }
    }

    /// Takes writes to paged tables back, which the transaction will not commit.
    pub(super) fn take_back_from_pages(&self, undone: &[PagedWrite]) {
        for write in undone {
            // SAFETY: the transaction's own, not retired yet.
            unsafe { write.change.get() }.set_stamp(Stamp::ABORTED);
        }
        let worker = self.worker();
        for write in undone {
            // SAFETY: the transaction's own, stamped above; in no list any more.
            unsafe { worker.take_back(write.table, write.change) };
        }
    }

    /// Has the large values removed that writes had left which were taken back.
    fn discard_values(&self, undone: &[PagedWrite]) {
        for (write, large) in undone.iter().filter_map(|write| Some((write, write.large?))) {
            // SAFETY: tables live as long as the engine, which `self` holds, or are the transaction's own.
            let paged = unsafe { write.table.get() }.paged().expect("a write to a paged table");
            self.worker().discard(paged.large().expect("it led to a value").clone(), large);
        }
    }

    /// Takes back everything the transaction did.
    pub(super) fn abort_now(&mut self) {
        let operation = reclaim::enter();
        let worker = self.worker().clone();
        let engine = worker.engine();
        engine.planted_panic.panic_if_planted(PanicPoint::Abort);
        engine.status.aborted(self.name());
        self.decide_bulk(Stamp::ABORTED);
        {
            let mut writes = self.writes().borrow_mut();
            for write in writes.writes().iter().filter(|write| write.kind != WriteKind::Void) {
                self.take_back(&writes, write, &operation);
                // SAFETY: unlinked above, and in no list of versions to be retired.
                unsafe { write.table.get().retire_version(write.version) };
            }
            retire_unlinked(&mut writes);
            let paged = std::mem::take(&mut writes.paged);
            drop(writes);
            self.take_back_from_pages(&paged);
            self.discard_values(&paged);
        }
        self.drop_created();
        if self.is_counted() {
            worker.counters().aborted[self.cause() as usize].add(1);
        }
        let context = self.take_context().expect("aborts once");
        worker.end(context);
    }

    /// Unlinks one version in flight, which is to be retired.
    fn take_back(&self, writes: &WriteSet, write: &Write, operation: &OperationGuard) {
        // SAFETY: tables live as long as the engine, which `self` holds.
        let table = unsafe { write.table.get() };
        if write.base.is_none() {
            // The record never was: its key goes before its id does.
            table.index.remove(writes.key(write), write.rid, operation);
        }
        // SAFETY: this transaction installed the version on that base, and will not commit it; a new
        // record's key was removed above.
        unsafe { table.take_back(write.rid, write.version, write.base) };
        if let Some(Link::Version(base)) = write.base {
            self.keep_deleted(write, base);
        }
    }

    /// A tombstone that is the newest version again needs its record reclaimed again: while this
    /// transaction's version stood on it, its reclaimer may have given up.
    fn keep_deleted(&self, write: &Write, base: VersionRef) {
        // SAFETY: the newest version of its record again; it was not superseded meanwhile by
        // anyone whose garbage could be due before this transaction's begin stamp is gone.
        if unsafe { base.get() }.is_tombstone() {
            let (table, rid) = (write.table, write.rid);
            let now = self.engine().log.tail();
            let garbage = Garbage::Deleted { table, rid, tombstone: base };
            self.worker().garbage.borrow_mut().push(now, garbage);
        }
    }
}

/// Puts own versions that were replaced since there were `keep` of them back in their places, the newest
/// first.
fn put_replaced_back(writes: &mut WriteSet, keep: usize) {
    while writes.replaced.len() > keep {
        let Replaced { table, version, position, kind } =
            writes.replaced.pop().expect("there are more than are kept");
        let (rid, undone) = writes.restore(position, version, kind);
        // SAFETY: tables live as long as the engine, which the transaction holds; it installed `undone`
        // in the place of `version`.
        unsafe { table.get().put_back(rid, undone, version) };
        writes.undone.push((table, undone));
    }
}

/// Retires versions of the transaction's own that it unlinked itself: others may still pass them, and
/// until now its own references led to them.
#[inline]
pub(super) fn retire_unlinked(writes: &mut WriteSet) {
    if !writes.replaced.is_empty() || !writes.undone.is_empty() {
        retire_some_unlinked(writes);
    }
}

fn retire_some_unlinked(writes: &mut WriteSet) {
    let replaced = writes.replaced.drain(..).map(|replaced| (replaced.table, replaced.version));
    for (table, version) in replaced.chain(writes.undone.drain(..)) {
        // SAFETY: unlinked when it was replaced or undone, freed only by the retirement below.
        unsafe { version.get() }.set_stamp(Stamp::ABORTED);
        // SAFETY: tables live as long as the engine; the version is in one of the two lists.
        unsafe { table.get().retire_version(version) };
    }
}
