//! Reads and writes of paged tables: their entries in the read and write sets, and their results.
//! Operations on a page are in `page/table.rs`.
//!
//! An operation that needs a page that is not resident drops its operation guard, which would delay
//! reclamation. It is admitted by the bytes that it will read (`reading.rs`) and waits until the
//! page is resident (`page/resident_set.rs`). Then it starts over under a new guard, without
//! suspension. Reads and writes that belong to a write of several records never suspend. They are
//! undone if one of them cannot proceed.

use std::cell::Cell;
use std::ptr::NonNull;

use smallvec::smallvec;

use super::large::{LargeDraft, slot_value};
use super::read::SeenRecord;
use super::required_pages::RequiredPages;
use super::value_view::FoundValue;
use super::write_attempt::{FetchedValues, VisibleRecord, WriteAttempt, WriteWait, would_suspend};
use crate::page::{
    BulkWriteRefusal, ChainBase, ChangeRef, CopiedValue, LatchedLeaf, PagedRecord, PagedTable,
    RecordBeforeWrite, WouldSuspend, WriteDecision, WriteRefusal, WriteResult,
};
use crate::reclaim::{self, OperationGuard};
use crate::record::{PagedRecords, Records, RecordsRef};
use crate::sched::{self, WaitCause, run_now};
use crate::transaction::context::active_transaction::ActiveTransaction;
use crate::transaction::context::durability_level::Durability;
use crate::transaction::context::error::{OperationError, TooLong};
use crate::transaction::context::fault::PanicPoint;
use crate::transaction::context::write_intent::WriteIntent;
use crate::version::Undecided;

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
                run_now(paged.read(key, self.view(), &operation))
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
        table: &PagedRecords,
        key: &[u8],
        wants_value: bool,
    ) -> Result<Option<(FoundValue<'_>, SeenRecord)>, OperationError> {
        loop {
            let (record, doomed_by) = self.read_paged(table.pages(), key).await?;
            let seen = if record.provenance.own {
                SeenRecord::Own
            } else {
                SeenRecord::Others { point: None, doomed_by }
            };
            let large = match record.value {
                Some(_) if !wants_value => return Ok(Some((FoundValue::empty(self), seen))),
                Some(CopiedValue::Elsewhere(large)) => large,
                Some(CopiedValue::Here(value)) => {
                    let value = NonNull::from(self.copies().keep(&self.engine().memory, &value));
                    // SAFETY: the value is in the transaction's copies.
                    return Ok(Some((unsafe { FoundValue::lasting(self, value) }, seen)));
                }
                None if record.provenance.own => return Ok(None),
                None => {
                    self.note_key(table, key);
                    if doomed_by {
                        self.note_doomed_read(table, key)?;
                    }
                    return Ok(None);
                }
            };
            let then = self.seen_at();
            let read = self.read_large(table.pages(), large, usize::MAX, then).await?;
            if let Some(read) = read.filter(|_| self.is_still(then)) {
                return Ok(Some((FoundValue::large(self, read), seen)));
            }
        }
    }

    /// Does what `write_record` does, for a paged table.
    pub(super) async fn write_paged(
        &self,
        table: &PagedRecords,
        key: &[u8],
        intent: WriteIntent<'_>,
    ) -> Result<bool, OperationError> {
        let epoch = self.bulk_epoch(table);
        // A closure may continue after an error of a bulk operation and would lose records.
        let fail = |error| if epoch.is_some() { self.fail_halfway(error) } else { error };
        self.admit_page_change(intent).await.map_err(fail)?;
        check_fits(table, key)?;
        let paged = table.pages();
        match epoch {
            Some(_) => self.log_blocks_of_bulk().await.map_err(fail)?,
            None => self.join(table)?,
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
                    return self.write_on_leaf(table, leaf, key, what, keep, &operation);
                }
                (Ok(leaf), Some(epoch)) => {
                    match self.write_bulk(table, leaf, key, what, epoch, &operation) {
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
        table: &PagedRecords,
        leaf: LatchedLeaf<'_>,
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
        let written = table.pages().write(leaf, key, value, self.view(), operation, decide);
        match written {
            Err(WriteRefusal::Conflict) => Err(self.conflict_at(table, key)),
            Err(WriteRefusal::Newer) => Err(self.conflict_with_newer(table, key)),
            Ok(WriteResult::Refused(told)) => told,
            Ok(WriteResult::Overwritten) => {
                draft.inspect(|draft| draft.set_written(true));
                Ok(true)
            }
            Ok(WriteResult::Pushed(change)) => {
                self.worker().discard_queued_for_removal(table.pages());
                let (value, deleted) = (self.kept_value(intent), intent == WriteIntent::Delete);
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
        table: &PagedRecords,
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
            return WriteDecision::Refuse(intent.refusal(table, key));
        }
        if let Err(error) = self.check_not_doomed().and_then(|()| self.check_version_bytes()) {
            return WriteDecision::Refuse(Err(error));
        }
        let mut writes = self.writes().borrow_mut();
        match before.base {
            ChainBase::Own(own) if own.position() >= keep => {
                let (value, deleted) = (self.kept_value(intent), intent == WriteIntent::Delete);
                let value = (value, draft.map(LargeDraft::large));
                let memory = &self.engine().memory;
                let replaced = writes.overwrite_paged(own.position(), deleted, value, memory);
                if let Some(replaced) = replaced {
                    self.worker().discard_of(table, replaced);
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

    /// Reads the transaction's view of a record of a paged table.
    pub(super) fn see_on_page<'t, 'o>(
        &self,
        paged: &'t PagedTable,
        key: &[u8],
        fetched: &'o FetchedValues,
        operation: &'o OperationGuard,
    ) -> Result<VisibleRecord<'o>, WriteWait<'t>> {
        match run_now(paged.read(key, self.view(), operation)) {
            Ok(Ok(record)) => {
                if let Some(lsn) = record.provenance.committed {
                    self.note_lsn(lsn);
                }
                match record.value {
                    None => Ok(VisibleRecord::copied(None)),
                    Some(CopiedValue::Here(value)) => Ok(VisibleRecord::copied(Some(value))),
                    Some(CopiedValue::Elsewhere(large)) => match fetched.large(large) {
                        Some(value) => Ok(VisibleRecord::large(value, large)),
                        None => Err(WriteWait::Large(paged, large, self.seen_at())),
                    },
                }
            }
            Ok(Err(Undecided)) => Err(WriteWait::Undecided),
            Err(WouldSuspend::Interrupted(why)) => Err(WriteWait::Interrupted(smallvec![why])),
            Err(WouldSuspend::Failed(error)) => unreachable!("a read allocates no page: {error}"),
        }
    }

    /// Returns whether a record of a paged table exists for a writer; if it does, adds it to the
    /// read set.
    pub(super) fn is_there_now<'t>(
        &self,
        table: &PagedRecords,
        key: &[u8],
        operation: &OperationGuard,
    ) -> WriteAttempt<'t, bool> {
        let look = |before: RecordBeforeWrite<'_>| {
            if let ChainBase::Committed(lsn) = before.base {
                self.note_lsn(lsn);
            }
            self.note_made(table, before.made);
            WriteDecision::Refuse(before.exists)
        };
        let leaf = match table.pages().latch_now(key, None) {
            Ok(leaf) => leaf,
            Err(why) => return would_suspend(why),
        };
        Ok(match table.pages().write(leaf, key, None, self.view(), operation, look) {
            Err(WriteRefusal::Conflict) => Err(self.conflict_at(table, key)),
            Err(WriteRefusal::Newer) => Err(self.conflict_with_newer(table, key)),
            Ok(WriteResult::Refused(true)) => {
                self.note_key(table, key);
                Ok(true)
            }
            Ok(WriteResult::Refused(false)) => Ok(false),
            Ok(WriteResult::Overwritten | WriteResult::Pushed(_)) => unreachable!("a read only"),
        })
    }

    /// Number of writes to paged tables so far, for `undo_paged_writes` to keep.
    pub(super) fn writes_to_keep(&self) -> u32 {
        self.writes().borrow().next_paged_position()
    }

    /// Undoes writes to paged tables after the first `keep`, and their values after `value_bytes`.
    /// Their results were not returned yet, and they overwrote none of the first `keep`. Large
    /// values that they referenced still belong to drafts.
    pub(super) fn undo_paged_writes(&self, keep: u32, value_bytes: usize) {
        let undone = self.writes().borrow_mut().split_off_paged(keep as usize, value_bytes);
        self.roll_back_on_pages(&undone);
    }

    /// Lists a change that was created for the effect of a bulk operation on a record.
    pub(super) fn note_made(&self, table: &PagedRecords, made: Option<ChangeRef>) {
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

    /// The part of the new value that the write set keeps: to log it, or to return it.
    fn kept_value<'v>(&self, intent: WriteIntent<'v>) -> &'v [u8] {
        let is_kept = self.engine().durability != Durability::Volatile || self.keeps_values();
        match intent {
            WriteIntent::Insert(value) | WriteIntent::Put(value) | WriteIntent::Update(value)
                if is_kept =>
            {
                value
            }
            _ => &[],
        }
    }

    /// Adds a key to the read set, whether it has a record or not.
    pub(crate) fn note_key(&self, table: &Records, key: &[u8]) {
        // Behind its gate, a bulk operation is the only writer.
        if self.mode().notes() && self.bulk_epoch(table).is_none() {
            self.reads().note_key(table, key);
        }
    }
}

/// The bytes of the cell that a write leaves on a page; `None` for a deletion.
pub(super) fn cell_bytes(
    (intent, draft): (WriteIntent<'_>, Option<&LargeDraft<'_>>),
) -> Option<usize> {
    intent.value().map(|value| slot_value(value, draft).cell_bytes())
}

/// Checks that a record with this key fits on a page of its table, if that is paged.
///
/// # Errors
/// `TooLongForPage`.
pub(super) fn check_fits(table: &Records, key: &[u8]) -> Result<(), OperationError> {
    let (bytes, limit) = (key.len(), table.max_key_bytes());
    match table.paged() {
        Some(_) if bytes > limit => {
            Err(OperationError::TooLongForPage(Box::new(TooLong { bytes, limit })))
        }
        None if bytes > limit => Err(OperationError::KeyTooLong(bytes)),
        _ => Ok(()),
    }
}
