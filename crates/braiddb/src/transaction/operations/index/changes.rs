//! Writes to tables with secondary indexes or with expiring records, which usually read the old
//! value.
//!
//! Index entries are records of a separate table, written in the same transaction. So whatever
//! holds for records holds for entries. The same snapshots see them as their record. They are
//! rolled back, certified, logged, recovered and reclaimed like it. Of two transactions that insert
//! the same key into a unique index, one fails, like two that insert the same record key.
//!
//! A write runs without suspension: it reads the record, checks uniqueness, then writes the record
//! and all entries. So a dropped future leaves no partial write. Data that is not resident is
//! loaded first; if the record has changed by then, the write starts over. User code that computes
//! the keys runs before anything is written.
//!
//! During an index build, entries of older records may be missing. A transaction that removes a key
//! from a record without an entry writes a tombstone in the index. If another record owns a unique
//! key's entry, the transaction rewrites that entry unchanged. So this transaction and one that
//! would insert the key for the old record cannot both commit (first updater wins).
//!
//! The entries of a paged table's index are paged too. If a page to write is not resident, this
//! write is undone without suspension (`transaction/operations/paged.rs`). Then all
//! pages known to be needed together are loaded (`page/resident_set.rs`), and the write starts
//! over.

use std::iter;
use std::pin::Pin;
use std::ptr::NonNull;
use std::sync::Arc;

use super::keys::{IndexKeyChange, changes, detached, inconsistent};
use crate::log::Lsn;
use crate::page::{HeldPages, PageNeeds, WouldSuspend};
use crate::planted::{Bug, is_planted};
use crate::reclaim::{self, OperationGuard};
use crate::record::{
    InstallBase, InstallRefusal, MemoryRecords, NotReady, Records, RecordsRef, Secondary, TableKind,
};
use crate::sched::{self, Interleaved, WaitCause, run_now};
use crate::transaction::context::active_transaction::ActiveTransaction;
use crate::transaction::context::error::OperationError;
use crate::transaction::context::write_intent::{ExpiryRule, WriteIntent};
use crate::transaction::operations::large::LargeDraft;
use crate::transaction::operations::paged::{cell_bytes, check_fits};
use crate::transaction::operations::write_attempt::{
    FetchedValues, SeenBytes, VisibleRecord, WriteAttempt, WriteWait, all_prefetched, would_suspend,
};
use crate::transaction::sets::read_set::ReadPoint;

/// The action on an index entry.
#[derive(Clone, Debug, PartialEq, Eq)]
enum EntryWrite {
    Insert,
    Remove,
    /// The entry is missing; writes a tombstone.
    Bury,
    /// Another record owns the entry, which is rewritten unchanged with this value.
    Keep(Vec<u8>),
}

impl ActiveTransaction {
    /// Writes to a table with secondary indexes, and to the indexes; or to a table with expiring
    /// records.
    ///
    /// # Errors
    /// Those of `write`.
    #[cold]
    pub(in crate::transaction) fn write_indexed<'a>(
        &'a self,
        table: &'a Records,
        key: &'a [u8],
        intent: WriteIntent<'a>,
        rule: Option<ExpiryRule>,
    ) -> Pin<Box<dyn Future<Output = Result<bool, OperationError>> + 'a>> {
        // Boxed, so that writes to other tables do not carry its state.
        Box::pin(async move {
            let expiring = self.expiring_value(table, intent, rule)?;
            let intent = expiring.as_ref().map_or(intent, |(_, stored)| intent.with_value(stored));
            // The steps of a bulk write are separate writes, which are admitted one by one.
            let is_bulk = self.bulk_epoch(table).is_some();
            if !is_bulk {
                self.admit_page_change(intent).await?;
            }
            let mut fetched = FetchedValues::default();
            let draft = match table.paged() {
                Some(table) if !is_bulk => self.draft(table.pages(), intent.value()).await?,
                _ => None,
            };
            let what = (intent, draft.as_ref());
            // The set of pages that must be resident together is known once the write has met all
            // of them.
            let (mut needs, mut held) = (PageNeeds::new(usize::MAX), None::<HeldPages>);
            loop {
                // Looked up again after an extension: the new snapshot may see records that were
                // written since an index was listed or dropped, with or without entries.
                let begin = self.begin();
                let indexes = table.secondaries();
                if let Some(index) = indexes.iter().find(|index| index.code().is_none()) {
                    return Err(detached(table, index));
                }
                let before = self.moment();
                let are_held = held.is_some();
                let attempt = match is_bulk {
                    true => Ok(self.write_bulk_indexed(table, &indexes, key, intent, rule).await),
                    false => {
                        let attempt = (&fetched, are_held);
                        self.try_write(table, &indexes, begin, key, what, rule, attempt).await
                    }
                };
                drop(held.take());
                match attempt {
                    Ok(Err(OperationError::Conflict(_)))
                        if self.extend_past_conflict(self.moment() == before) => {}
                    Ok(Err(error))
                        if self.remove_expired_conflict(table, &indexes, &error, rule).await? => {}
                    Ok(done) => {
                        if let (Some((expiry, _)), Ok(_)) = (&expiring, &done) {
                            let mut writes = self.writes().borrow_mut();
                            writes.note_expiring(RecordsRef::new(table), *expiry);
                        }
                        return done;
                    }
                    Err(WriteWait::Again) => {}
                    Err(WriteWait::Undecided) => sched::yield_now(WaitCause::Undecided).await,
                    Err(WriteWait::Interrupted(why)) => {
                        let paged = table.paged().expect("a paged table's pages");
                        held = Some(self.hold_pages(paged.pages(), &mut needs, &why).await?);
                    }
                    Err(WriteWait::Large(paged, large, then)) => {
                        // Freed before more memory is requested.
                        fetched.large = None;
                        let read = self.read_large(paged, large, usize::MAX, then).await?;
                        fetched.large = read.map(|read| (large, read));
                    }
                    Err(WriteWait::Fetch(table, rid, location)) => {
                        let (record, _permit) = self.fetch(table, rid, location).await?;
                        fetched.cold.push((location, record.view().value.to_vec()));
                    }
                }
            }
        })
    }

    /// Attempts a write; never suspends if all pages that interrupted it before `are_held`.
    #[expect(
        clippy::too_many_arguments,
        reason = "the parts of one write, made by its only caller"
    )]
    async fn try_write<'t>(
        &self,
        table: &'t Records,
        indexes: &'t [Arc<Secondary>],
        begin: Lsn,
        key: &[u8],
        (intent, draft): (WriteIntent<'_>, Option<&LargeDraft<'_>>),
        rule: Option<ExpiryRule>,
        (fetched, are_held): (&FetchedValues, bool),
    ) -> WriteAttempt<'t, bool> {
        // All gates are joined before anything is written.
        let mut tables = iter::once(table).chain(indexes.iter().map(|index| &**index.entries()));
        let joined = tables.try_for_each(|table| self.join(table));
        if let Err(error) = joined.and_then(|()| check_fits(table, key)) {
            return Ok(Err(error));
        }
        if !are_held {
            sched::count_steps(1).await;
            if let Err(why) = prefetch_path(table, key, cell_bytes((intent, draft))).await {
                return would_suspend(why);
            }
        }
        let operation = reclaim::enter();
        if indexes.is_empty()
            && matches!(intent, WriteIntent::Put(_))
            && !self.has_moved_on_from(begin)
        {
            // The old value does not matter.
            let what = (intent, draft);
            return self.write_without_waiting(table, key, what, self.writes_to_keep(), &operation);
        }
        let old = self.see(table, key, fetched, &operation)?;
        if self.has_moved_on_from(begin) {
            return Err(WriteWait::Again);
        }
        let intent = match self.for_stored(table, key, intent, old.bytes(), rule) {
            Ok(intent) => intent,
            Err(told) => {
                self.note_sight(table, key, &old);
                return Ok(told);
            }
        };
        if !intent.applies(old.value.is_some()) {
            // The write returns the error. Only the transaction's own writes change what it sees.
            let what = (intent, draft);
            return self.write_without_waiting(table, key, what, self.writes_to_keep(), &operation);
        }
        let changes = match changes(table, indexes, key, old.bytes(), intent.value()) {
            Ok(changes) => changes,
            Err(error) => {
                self.note_sight(table, key, &old);
                return Ok(Err(error));
            }
        };
        if !are_held && !changes.is_empty() {
            let prefetches = changes.iter().map(|change| {
                let value = change.index.entry_value(key);
                prefetch_path(change.index.entries(), &change.entry, Some(value.len()))
            });
            if let Err(answer) = all_prefetched(Interleaved::new(prefetches).await) {
                return answer;
            }
            // Under one guard, so values at the same address are the same.
            if self.has_moved_on_from(begin)
                || !self.see(table, key, fetched, &operation)?.is_same_as(&old)
            {
                return Err(WriteWait::Again);
            }
        }
        self.carry_out(table, key, (intent, draft), &old, &changes, fetched, &operation)
    }

    /// Reads the transaction's view of a record.
    fn see<'t, 'o>(
        &self,
        table: &'t Records,
        key: &[u8],
        fetched: &'o FetchedValues,
        operation: &'o OperationGuard,
    ) -> Result<VisibleRecord<'o>, WriteWait<'t>>
    where
        Self: 'o,
    {
        let table = match table.kind() {
            TableKind::Memory(table) => table,
            TableKind::Paged(table) => {
                return self.see_on_page(table.pages(), key, fetched, operation);
            }
        };
        let absent = VisibleRecord { value: None, point: None, location: (None, None, None) };
        let Ok(rid) = table.look_up_now(key, operation) else { return Ok(absent) };
        let point = Some(ReadPoint::new(table, rid));
        match table.find_now(rid, self.view(), operation) {
            Ok(seen) => {
                let value = self.note(seen);
                // SAFETY: found under the guard, which is held for `'o`, by a transaction that is
                // active.
                let value = value.map(|value| unsafe { NonNull::from(value).as_ref() });
                let location = (value.map(|value| NonNull::from(value).cast()), None, None);
                Ok(VisibleRecord { value: value.map(SeenBytes::Borrowed), point, location })
            }
            Err(NotReady::Undecided) => Err(WriteWait::Undecided),
            Err(NotReady::InLog(location)) => {
                let Some((_, value)) = fetched.cold.iter().find(|(at, _)| *at == location) else {
                    return Err(WriteWait::Fetch(table, rid, location));
                };
                self.note_lsn(location.lsn());
                let (value, location) = (SeenBytes::Borrowed(value), (None, Some(location), None));
                Ok(VisibleRecord { value: Some(value), point, location })
            }
        }
    }

    /// Adds the view of a record to the read set.
    fn note_sight(&self, table: &Records, key: &[u8], sight: &VisibleRecord<'_>) {
        match sight.point {
            Some(point) if sight.value.is_some() => self.note_point(point, key),
            _ => self.note_key(table, key),
        }
    }

    /// Writes a record and its entries, if uniqueness allows; never suspends.
    #[expect(
        clippy::too_many_arguments,
        reason = "the parts of one write, made by its only caller"
    )]
    fn carry_out<'t>(
        &self,
        table: &'t Records,
        key: &[u8],
        what @ (_, draft): (WriteIntent<'_>, Option<&LargeDraft<'_>>),
        old: &VisibleRecord<'_>,
        changes: &[IndexKeyChange<'t>],
        fetched: &FetchedValues,
        operation: &OperationGuard,
    ) -> WriteAttempt<'t, bool> {
        let mut writes = Vec::with_capacity(changes.len());
        for change in changes {
            match self.decide_entry(table, key, change, fetched, operation)? {
                Ok(write) => writes.push(write),
                Err(error) => {
                    self.note_sight(table, key, old);
                    return Ok(Err(error));
                }
            }
        }
        let (keep, value_bytes) =
            (self.writes_to_keep(), self.writes().borrow().paged_value_bytes());
        let written = self.write_all(table, key, what, changes, writes, operation);
        if matches!(written, Err(_) | Ok(Err(OperationError::Pages(_)))) {
            self.undo_paged_writes(keep, value_bytes);
            draft.inspect(|draft| draft.set_written(false));
        }
        written
    }

    /// Writes a record and its entries. For paged tables, the caller must ensure atomicity.
    fn write_all<'t>(
        &self,
        table: &'t Records,
        key: &[u8],
        what: (WriteIntent<'_>, Option<&LargeDraft<'_>>),
        changes: &[IndexKeyChange<'t>],
        writes: Vec<EntryWrite>,
        operation: &OperationGuard,
    ) -> WriteAttempt<'t, bool> {
        let keep = self.writes_to_keep();
        match self.write_without_waiting(table, key, what, keep, operation)? {
            Ok(true) => {}
            refused => return Ok(refused),
        }
        for (change, write) in changes.iter().zip(writes) {
            match self.write_entry(table, key, change, write, keep, operation)? {
                Ok(()) => {}
                // The transaction may not commit then, as after any conflict; or all writes are
                // undone.
                Err(error @ (OperationError::Conflict(_) | OperationError::Pages(_))) => {
                    return Ok(Err(error));
                }
                // The record is written, but its entries are not.
                Err(error) => return Ok(Err(self.fail_halfway(error))),
            }
        }
        Ok(Ok(true))
    }

    /// Decides the action on an entry.
    fn decide_entry<'t>(
        &self,
        table: &Records,
        key: &[u8],
        change: &IndexKeyChange<'t>,
        fetched: &FetchedValues,
        operation: &OperationGuard,
    ) -> WriteAttempt<'t, EntryWrite> {
        let index = change.index;
        if change.gained {
            let free =
                if index.is_unique() { self.check_free(table, change, operation)? } else { Ok(()) };
            return Ok(free.map(|()| EntryWrite::Insert));
        }
        if index.is_built() {
            return Ok(Ok(EntryWrite::Remove));
        }
        let there = self.see(index.entries(), &change.entry, fetched, operation)?;
        Ok(Ok(match there.bytes() {
            None => EntryWrite::Bury,
            Some(owner) if index.is_unique() && owner != key => EntryWrite::Keep(owner.to_vec()),
            Some(_) => EntryWrite::Remove,
        }))
    }

    /// Checks that no record has a key of a unique index.
    ///
    /// The result depends only on the transaction's begin stamp and its own writes. A transaction
    /// that inserts the key from here on makes this insertion a conflict.
    ///
    /// # Errors
    /// `UniqueViolation`; `Conflict`.
    fn check_free<'t>(
        &self,
        table: &Records,
        change: &IndexKeyChange<'t>,
        operation: &OperationGuard,
    ) -> WriteAttempt<'t, ()> {
        let entries: &'t Records = change.index.entries();
        let there = match entries.kind() {
            TableKind::Memory(entries) => self.is_there(entries, &change.entry, operation),
            TableKind::Paged(entries) => self.is_there_now(entries, &change.entry, operation)?,
        };
        Ok(there.and_then(|there| {
            if !there {
                return Ok(());
            }
            Err(change.violation(table))
        }))
    }

    /// Returns whether a record exists for a writer; if it does, adds it to the read set.
    fn is_there(
        &self,
        entries: &MemoryRecords,
        key: &[u8],
        operation: &OperationGuard,
    ) -> Result<bool, OperationError> {
        let found = entries.look_up_now(key, operation).ok();
        let Some(rid) = found else { return Ok(false) };
        let base = match entries.base(entries.array().entry(rid), self.view(), operation) {
            Ok(base) => base,
            Err(InstallRefusal::Dead) => return Ok(false),
            Err(InstallRefusal::Conflict) => return Err(self.conflict_at(entries, key)),
            Err(InstallRefusal::Newer) => return Err(self.conflict_with_newer(entries, key)),
        };
        if let InstallBase::Committed(_, lsn) = base {
            self.note_lsn(lsn);
        }
        if base.is_tombstone() {
            return Ok(false);
        }
        self.note_record(entries, rid, key);
        Ok(true)
    }

    fn write_entry<'t>(
        &self,
        table: &Records,
        key: &[u8],
        change: &IndexKeyChange<'t>,
        write: EntryWrite,
        keep: u32,
        operation: &OperationGuard,
    ) -> WriteAttempt<'t, ()> {
        let (index, entry) = (change.index, &change.entry);
        let value = index.entry_value(key);
        let write_now = |intent| {
            self.write_without_waiting(index.entries(), entry, (intent, None), keep, operation)
        };
        let as_expected = match write {
            EntryWrite::Keep(owner) => write_now(WriteIntent::Update(&owner))?,
            EntryWrite::Insert => match write_now(WriteIntent::Insert(value))? {
                Err(OperationError::KeyExists(_)) => Ok(false),
                inserted => inserted,
            },
            EntryWrite::Remove => write_now(WriteIntent::Delete)?,
            EntryWrite::Bury if is_planted(Bug::MissingEntryNotBuried) => Ok(true),
            EntryWrite::Bury => match write_now(WriteIntent::Insert(value))? {
                Ok(_) => write_now(WriteIntent::Delete)?,
                refused => refused,
            },
        };
        self.worker().counters().index_entries.add(1);
        Ok(as_expected.and_then(|as_expected| match as_expected {
            true => Ok(()),
            false => Err(inconsistent(table, index)),
        }))
    }

    /// Writes to a single table without suspension. Does not overwrite the first `keep` writes to
    /// paged tables.
    pub(super) fn write_without_waiting<'t>(
        &self,
        table: &Records,
        key: &[u8],
        what: (WriteIntent<'_>, Option<&LargeDraft<'_>>),
        keep: u32,
        operation: &OperationGuard,
    ) -> WriteAttempt<'t, bool> {
        let Some(table) = table.paged() else {
            return Ok(run_now(self.write_record(table, key, what.0)));
        };
        if let Err(error) = check_fits(table, key).and_then(|()| self.join(table)) {
            return Ok(Err(error));
        }
        match table.pages().latch_now(key, cell_bytes(what)) {
            Ok(leaf) => Ok(self.write_on_leaf(table, leaf, key, what, keep, operation)),
            Err(why) => would_suspend(why),
        }
    }
}

/// Prefetches the path to a record into the processor's caches. Splits its leaf on a page if that
/// lacks room for a cell of this many bytes.
async fn prefetch_path(
    table: &Records,
    key: &[u8],
    bytes: Option<usize>,
) -> Result<(), WouldSuspend> {
    match table.kind() {
        TableKind::Memory(table) => {
            let operation = reclaim::enter();
            _ = table.look_up(key, &operation).await;
            Ok(())
        }
        TableKind::Paged(table) => table.pages().latch(key, bytes).await.map(drop),
    }
}
