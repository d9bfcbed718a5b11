//! Reads and writes of paged tables: their entries in the read and write sets, and their results.
//! Operations on a page are in `page/table.rs`.
//!
//! An operation that needs a page that is not resident drops its operation guard, which would delay
//! reclamation. It is admitted by the bytes that it will read (`reading.rs`) and waits until the
//! page is resident (`page/resident_set.rs`). Then it starts over under a new guard, without
//! suspension.

use std::cell::Cell;
use std::ptr::NonNull;

use super::large::{LargeDraft, slot_value};
use super::read::SeenRecord;
use super::required_pages::RequiredPages;
use super::value_view::FoundValue;
use crate::page::{
    BulkWriteRefusal, ChainBase, ChangeRef, CopiedValue, LatchedLeaf, PagedRecord, PagedTable,
    RecordBeforeWrite, WriteDecision, WriteRefusal, WriteResult,
};
use crate::reclaim::{self, OperationGuard};
use crate::record::{Records, RecordsRef};
use crate::sched::{self, WaitCause};
use crate::transaction::context::active_transaction::ActiveTransaction;
use crate::transaction::context::durability_level::Durability;
use crate::transaction::context::error::{OperationError, TooLong};
use crate::transaction::context::fault::PanicPoint;
use crate::transaction::context::write_intent::WriteIntent;

impl ActiveTransaction {
    /// Reads the transaction's view of a record, and whether another transaction has committed a
    /// newer version. Notes the commit it depends on. The caller must add the record to the read
    /// set before it suspends.
    async fn read_paged(
        &self,
        paged: &PagedTable,
        key: &[u8],
    ) -> Result<(PagedRecord, bool), OperationError> {
        let mut required = RequiredPages::new();
        loop {
            let operation = reclaim::enter();
            self.engine().planted_panic.panic_if_planted(PanicPoint::PagedRead);
            let begin = self.begin();
            let read = if required.are_held() {
                paged.read_now(key, self.view(), &operation)
            } else {
                sched::count_steps(1).await;
                paged.read(key, self.view(), &operation).await
            };
            required.release();
            let read = match read {
                Ok(read) => read,
                Err(why) => {
                    drop(operation);
                    required.load(self, paged, why).await?;
                    continue;
                }
            };
            if self.has_moved_on_from(begin) {
                continue;
            }
            let Ok(record) = read else {
                drop(operation);
                sched::yield_now(WaitCause::Undecided).await;
                continue;
            };
            let doomed_by = record.provenance.below_newer && self.can_become_doomed();
            if doomed_by && !record.provenance.own && self.extend() {
                continue;
            }
            if let Some(lsn) = record.provenance.committed {
                self.note_lsn(lsn);
            }
            return Ok((record, doomed_by));
        }
    }

    /// Does what `get_unnoted` does, for a paged table.
    pub(super) async fn get_paged(
        &self,
        table: &Records,
        paged: &PagedTable,
        key: &[u8],
    ) -> Result<Option<(FoundValue<'_>, SeenRecord)>, OperationError> {
        loop {
            let (record, doomed_by) = self.read_paged(paged, key).await?;
            let seen = if record.provenance.own {
                SeenRecord::Own
            } else {
                SeenRecord::OnPage { doomed_by }
            };
            let large = match record.value {
                Some(CopiedValue::Elsewhere(large)) => large,
                Some(CopiedValue::Here(value)) => {
                    let value = NonNull::from(self.copies().keep(&self.engine().memory, &value));
                    // SAFETY: the value is in the transaction's copies.
                    return Ok(Some((unsafe { FoundValue::lasting(self, value) }, seen)));
                }
                None => {
                    self.note_key(table, key);
                    if doomed_by {
                        self.note_doomed_read(table, key)?;
                    }
                    return Ok(None);
                }
            };
            let then = self.seen_at();
            let read = self.read_large(paged, large, usize::MAX, then).await?;
            if let Some(read) = read.filter(|_| self.is_still(then)) {
                return Ok(Some((FoundValue::large(self, read), seen)));
            }
        }
    }

    /// Does what `contains` does, for a paged table.
    pub(super) async fn contains_paged(
        &self,
        table: &Records,
        paged: &PagedTable,
        key: &[u8],
    ) -> Result<bool, OperationError> {
        let (record, doomed_by) = self.read_paged(paged, key).await?;
        if !record.provenance.own {
            self.note_key(table, key);
        }
        if doomed_by {
            self.note_doomed_read(table, key)?;
        }
        Ok(record.value.is_some())
    }

    /// Does what `write_record` does, for a paged table.
    pub(super) async fn write_paged(
        &self,
        table: &Records,
        paged: &PagedTable,
        key: &[u8],
        intent: WriteIntent<'_>,
    ) -> Result<bool, OperationError> {
        let epoch = self.bulk_epoch(table);
        // A closure may continue after an error of a bulk operation and would lose records.
        let fail = |error| if epoch.is_some() { self.fail_halfway(error) } else { error };
        self.admit_page_change(intent).await.map_err(fail)?;
        check_fits(paged, key)?;
        match epoch {
            Some(_) => self.log_blocks_of_bulk().await.map_err(fail)?,
            None => self.join(table, paged)?,
        }
        let mut draft = self.draft(paged, intent.value()).await?;
        let mut required = RequiredPages::new();
        let mut room = None;
        loop {
            let operation = reclaim::enter();
            let what = (intent, draft.as_ref());
            let bytes = cell_bytes(what).max(room);
            let latched = if required.are_held() {
                paged.latch_now(key, bytes)
            } else {
                sched::count_steps(1).await;
                paged.latch(key, bytes).await
            };
            let why = match (latched, epoch) {
                // Nothing suspends from here on.
                (Ok(leaf), None) => {
                    // Another operation may have created a savepoint while this one was suspended.
                    let keep = self.savepoints().newest_paged();
                    return self.write_on_leaf(table, (paged, leaf), key, what, keep, &operation);
                }
                (Ok(leaf), Some(epoch)) => {
                    match self.write_bulk(table, (paged, leaf), key, what, epoch, &operation) {
                        Ok(written) => return written,
                        Err(BulkWriteRefusal::Conflict) => return Err(self.conflict_at(table, key)),
                        Err(BulkWriteRefusal::NoRoom(bytes)) => room = Some(bytes),
                        Err(BulkWriteRefusal::TooLong) => {
                            required.release();
                            drop(operation);
                            let value = intent.value().expect("a deletion leaves none");
                            draft = Some(self.write_draft(paged, value).await?);
                        }
                    }
                    continue;
                }
                (Err(why), _) => why,
            };
            required.release();
            drop(operation);
            required.load(self, paged, why).await.map_err(|error| match intent {
                WriteIntent::Delete if epoch.is_none() => self.refused_deletion(error),
                _ => error,
            })?;
        }
    }

    /// Writes to a record whose leaf is latched, and adds the write to the write set. The first
    /// `keep` writes to paged tables are not overwritten.
    pub(super) fn write_on_leaf(
        &self,
        table: &Records,
        (paged, leaf): (&PagedTable, LatchedLeaf<'_>),
        key: &[u8],
        what @ (intent, draft): (WriteIntent<'_>, Option<&LargeDraft<'_>>),
        keep: u32,
        operation: &OperationGuard,
    ) -> Result<bool, OperationError> {
        let replaced = Cell::new(None);
        let decide = |before: RecordBeforeWrite<'_>| {
            self.decide_write(table, key, what, before, keep, &replaced)
        };
        let value = intent.value().map(|value| slot_value(value, draft));
        let written = paged.write(leaf, key, value, self.view(), operation, decide);
        match written {
            Err(WriteRefusal::Conflict) => Err(self.conflict_at(table, key)),
            Err(WriteRefusal::Newer) => Err(self.conflict_with_newer(table, key)),
            Ok(WriteResult::Refused(told)) => told,
            Ok(WriteResult::Overwritten) => {
                draft.inspect(|draft| draft.set_written(true));
                Ok(true)
            }
            Ok(WriteResult::Pushed(change)) => {
                self.worker().discard_queued_for_removal(paged);
                let (value, deleted) = (self.logged_value(intent), intent == WriteIntent::Delete);
                let value = (value, draft.map(LargeDraft::large));
                let writes = &mut *self.writes().borrow_mut();
                // SAFETY: the change belongs to the transaction.
                writes.version_bytes +=
                    unsafe { change.get() }.memory_bytes() + value.0.len() as u64;
                let (table, memory) = (RecordsRef::new(table), &self.engine().memory);
                writes.push_paged(table, change, deleted, value, replaced.get(), memory);
                draft.inspect(|draft| draft.set_written(true));
                Ok(true)
            }
        }
    }

    /// Decides whether and how to write a record, given its current state; runs without suspension
    /// before the write. The first `keep` writes to paged tables are not overwritten. If this write
    /// replaces one of them that no savepoint needs, `replaced` returns that one.
    fn decide_write(
        &self,
        table: &Records,
        key: &[u8],
        (intent, draft): (WriteIntent<'_>, Option<&LargeDraft<'_>>),
        before: RecordBeforeWrite<'_>,
        keep: u32,
        replaced: &Cell<Option<u32>>,
    ) -> WriteDecision<Result<bool, OperationError>> {
        self.engine().planted_panic.panic_if_planted(PanicPoint::PagedWrite);
        self.note_made(table, before.made);
        // The outcome of the write reveals whether the record exists.
        if let ChainBase::Committed(lsn) = before.base {
            self.note_lsn(lsn);
        }
        if !intent.applies(before.exists) {
            if !matches!(before.base, ChainBase::Own(_)) {
                self.note_key(table, key);
            }
            return WriteDecision::Refuse(intent.refusal());
        }
        if let Err(error) = self.check_not_doomed().and_then(|()| self.check_version_bytes()) {
            return WriteDecision::Refuse(Err(error));
        }
        let mut writes = self.writes().borrow_mut();
        match before.base {
            ChainBase::Own(own) if own.position() >= keep => {
                let (value, deleted) = (self.logged_value(intent), intent == WriteIntent::Delete);
                let value = (value, draft.map(LargeDraft::large));
                let memory = &self.engine().memory;
                let replaced = writes.overwrite_paged(own.position(), deleted, value, memory);
                if let Some(replaced) = replaced {
                    let values = table.paged().and_then(PagedTable::large);
                    let values = values.expect("the table stores large values").clone();
                    self.worker().discard(values, replaced);
                }
                WriteDecision::Overwrite
            }
            base => {
                if let ChainBase::Own(own) = base
                    && own.position() >= self.savepoints().newest_paged()
                {
                    replaced.set(Some(own.position()));
                }
                WriteDecision::Push(writes.next_paged_position())
            }
        }
    }

    /// Lists a change that was created for the effect of a bulk operation on a record.
    pub(super) fn note_made(&self, table: &Records, made: Option<ChangeRef>) {
        if let Some(change) = made {
            let worker = self.worker();
            worker.engine().recent[worker.number()].add_of_bulk(table, change);
            worker.commits_waiting.set(worker.commits_waiting.get() + 1);
        }
    }

    /// Checks the transaction's bytes of versions on paged tables.
    ///
    /// # Errors
    /// `VersionBytes`; the transaction then cannot commit.
    fn check_version_bytes(&self) -> Result<(), OperationError> {
        let Some(limit) = self.engine().version_bytes else { return Ok(()) };
        let bytes = self.writes().borrow().version_bytes;
        if bytes <= limit {
            return Ok(());
        }
        let [bytes, limit] =
            [bytes, limit].map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
        Err(self.fail_halfway(OperationError::VersionBytes(Box::new(TooLong { bytes, limit }))))
    }

    /// The part of the new value that is logged.
    fn logged_value<'v>(&self, intent: WriteIntent<'v>) -> &'v [u8] {
        let is_logged = self.engine().durability != Durability::Volatile;
        match intent {
            WriteIntent::Insert(value) | WriteIntent::Put(value) | WriteIntent::Update(value)
                if is_logged =>
            {
                value
            }
            _ => &[],
        }
    }

    /// Adds a key of a paged table to the read set, whether it has a record or not.
    pub(crate) fn note_key(&self, table: &Records, key: &[u8]) {
        // Behind its gate, a bulk operation is the only writer.
        if self.mode().notes() && self.bulk_epoch(table).is_none() {
            self.reads().note_key(RecordsRef::new(table), key);
        }
    }
}

/// The bytes of the cell that a write leaves on a page; `None` for a deletion.
pub(super) fn cell_bytes(
    (intent, draft): (WriteIntent<'_>, Option<&LargeDraft<'_>>),
) -> Option<usize> {
    intent.value().map(|value| slot_value(value, draft).cell_bytes())
}

/// Checks that a record with this key fits on a page of its table.
///
/// # Errors
/// `TooLongForPage`.
pub(super) fn check_fits(paged: &PagedTable, key: &[u8]) -> Result<(), OperationError> {
    let (bytes, limit) = (key.len(), paged.max_key_bytes());
    if bytes > limit {
        return Err(OperationError::TooLongForPage(Box::new(TooLong { bytes, limit })));
    }
    Ok(())
}
