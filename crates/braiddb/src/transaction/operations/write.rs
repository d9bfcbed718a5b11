//! Point writes.

use crate::index::{InsertionPlace, MAX_KEY_BYTES};
use crate::planted::{Bug, is_planted};
use crate::reclaim::{self, OperationGuard};
use crate::record::{InstallBase, InstallRefusal, MemoryRecords, Records, RecordsRef, TableKind};
use crate::rid::Rid;
use crate::sched::{self, compiled_here};
use crate::transaction::context::active_transaction::ActiveTransaction;
use crate::transaction::context::error::{OperationError, RestrictedWrite};
use crate::transaction::context::fault::PanicPoint;
use crate::transaction::context::isolation::TransactionMode;
use crate::transaction::context::write_intent::{ExpiryRule, WriteIntent};
use crate::transaction::sets::write_set::WriteKind;
use crate::version::{MAX_VALUE_BYTES, Stamp, VersionRef};

impl ActiveTransaction {
    /// The table, if `insert_now`, `put_now` and `update_now` may be called now. The step is counted.
    #[inline(always)]
    pub(crate) fn may_write_now<'t>(&self, table: &'t Records) -> Option<&'t MemoryRecords> {
        Self::plain_to_write(table).filter(|table| sched::may_go_on(|| table.is_cold()))
    }

    /// The table, if the steps of a write to it are plain functions.
    #[inline(always)]
    pub(super) fn plain_to_write(table: &Records) -> Option<&MemoryRecords> {
        Self::plain(table).filter(|table| !table.is_indexed())
    }

    /// Returns whether the transaction may write a record, which is not large.
    #[inline(always)]
    fn is_plain_write(&self, key: &[u8], intent: &WriteIntent<'_>) -> bool {
        !intent.is_large() && !self.mode().is_read_only() && check_lengths(key, intent).is_ok()
    }

    /// Inserts as `write` does, if nothing must be waited for and nothing is in the way. Otherwise
    /// returns `None`, and nothing has changed. Called after `may_write_now`, as the two functions
    /// below.
    #[inline(never)]
    pub(crate) fn insert_now(
        &self,
        table: &MemoryRecords,
        key: &[u8],
        value: &[u8],
    ) -> Option<bool> {
        self.write_plain(table, key, WriteIntent::Insert(value))
    }

    /// Puts a record as `insert_now` inserts one.
    #[inline(never)]
    pub(crate) fn put_now(&self, table: &MemoryRecords, key: &[u8], value: &[u8]) -> Option<bool> {
        self.write_plain(table, key, WriteIntent::Put(value))
    }

    /// Updates a record as `insert_now` inserts one.
    #[inline(never)]
    pub(crate) fn update_now(
        &self,
        table: &MemoryRecords,
        key: &[u8],
        value: &[u8],
    ) -> Option<bool> {
        self.write_plain(table, key, WriteIntent::Update(value))
    }

    /// Writes as `write` does, if nothing must be waited for and nothing is in the way. Otherwise
    /// returns `None`, and nothing has changed.
    #[inline(never)]
    pub(crate) fn write_now(
        &self,
        table: &Records,
        key: &[u8],
        intent: WriteIntent<'_>,
    ) -> Option<bool> {
        self.write_plain(self.may_write_now(table)?, key, intent)
    }

    /// Does what `write_now` does. Inlined, so that each kind of write is compiled for itself.
    #[inline(always)]
    pub(super) fn write_plain(
        &self,
        table: &MemoryRecords,
        key: &[u8],
        intent: WriteIntent<'_>,
    ) -> Option<bool> {
        // Since `may_write_now`, the user's encoding has run, and may have extended the transaction past
        // the creation of an index.
        if table.is_indexed() || !self.is_plain_write(key, &intent) {
            return None;
        }
        let operation = reclaim::enter();
        let found = match self.recall(table, key) {
            Some(rid) => Ok(rid),
            None => table.look_up_now(key, &operation),
        };
        self.write_found(table, key, intent, found, &operation)
    }

    /// Writes as `write_now` does, but waits for cache lines.
    pub(crate) fn write_interleaved(
        &self,
        table: &Records,
        key: &[u8],
        intent: WriteIntent<'_>,
    ) -> impl Future<Output = Option<bool>> {
        compiled_here(async move {
            let table = Self::plain_to_write(table)?;
            if !self.is_plain_write(key, &intent) {
                return None;
            }
            let operation = reclaim::enter();
            sched::count_steps(1).await;
            let begin = self.begin();
            let found = match self.recall(table, key) {
                Some(rid) => Ok(rid),
                None => table.look_up(key, &operation).await,
            };
            if self.has_moved_on_from(begin) || table.is_indexed() {
                return None;
            }
            self.write_found(table, key, intent, found, &operation)
        })
    }

    /// Writes the record that a lookup under this guard has found.
    #[inline(always)]
    fn write_found(
        &self,
        table: &MemoryRecords,
        key: &[u8],
        intent: WriteIntent<'_>,
        found: Result<Rid, InsertionPlace<'_>>,
        operation: &OperationGuard,
    ) -> Option<bool> {
        match (found, intent) {
            (Ok(rid), _) => match self.write_on(table, rid, key, intent, operation) {
                Ok(Ok(written)) => Some(written),
                Ok(Err(_)) | Err(_) => None,
            },
            (Err(place), WriteIntent::Insert(value) | WriteIntent::Put(value)) => {
                let written = self.write_new(table, key, value, operation, Some(place));
                written.ok().filter(|written| *written)
            }
            (Err(_), _) => None,
        }
    }

    /// Writes to a table and its secondary indexes; `false` for a delete of an absent record.
    ///
    /// # Errors
    /// `Conflict`, `KeyExists`, `KeyNotFound`, a key or value that is too long, a full table; those
    /// of secondary indexes.
    pub(crate) fn write(
        &self,
        table: &Records,
        key: &[u8],
        intent: WriteIntent<'_>,
        rule: Option<ExpiryRule>,
    ) -> impl Future<Output = Result<bool, OperationError>> {
        compiled_here(async move {
            if self.mode().is_read_only() {
                return Err(self.refused_write(table));
            }
            check_lengths(key, &intent)?;
            let _room = match intent.value() {
                Some(value) if intent.is_large() => self.admit_large_write(value.len()).await,
                _ => None,
            };
            loop {
                // Checked again after an extension: the new snapshot may see records that were written
                // since an index was listed, and have entries.
                if table.is_indexed() || table.expires() {
                    return self.write_indexed(table, key, intent, rule).await;
                }
                let begin = self.begin();
                match self.write_record(table, key, intent).await {
                    Err(OperationError::Conflict(_)) if self.extend_past_conflict(true) => {}
                    // Another operation of the transaction has extended the snapshot in the meantime.
                    Ok(true) if self.has_moved_on_from(begin) && table.is_indexed() => {
                        return Err(self.conflict_with_index(table));
                    }
                    written => return written,
                }
            }
        })
    }

    /// The error of a transaction that may not write.
    #[cold]
    pub(in crate::transaction) fn refused_write(&self, table: &Records) -> OperationError {
        if self.engine().read_only {
            return OperationError::ReadOnlyDatabase;
        }
        match self.engine().write_restriction.writer() {
            Some(writer) if self.mode() == TransactionMode::Restricted => {
                let (table, writer) = (table.name().to_string(), writer.to_string());
                OperationError::RestrictedWrite(Box::new(RestrictedWrite { table, writer }))
            }
            _ => OperationError::ReadOnly,
        }
    }

    /// Writes to a single table.
    pub(in crate::transaction) async fn write_record(
        &self,
        table: &Records,
        key: &[u8],
        intent: WriteIntent<'_>,
    ) -> Result<bool, OperationError> {
        let table = match table.kind() {
            TableKind::Memory(table) => table,
            TableKind::Paged(table) => return self.write_paged(table, key, intent).await,
        };
        let operation = reclaim::enter();
        sched::count_steps(1).await;
        loop {
            let found = match self.recall(table, key) {
                Some(rid) => Ok(rid),
                None => self.look_up(table, key, &operation).await,
            };
            let rid = match (found, intent) {
                (Ok(rid), _) => rid,
                (Err(place), WriteIntent::Insert(value) | WriteIntent::Put(value)) => {
                    if self.write_new(table, key, value, &operation, Some(place))? {
                        return Ok(true);
                    }
                    continue;
                }
                (Err(_), _) => {
                    self.note_absence(table, key);
                    return intent.refusal(table, key);
                }
            };
            match self.write_on(table, rid, key, intent, &operation) {
                Ok(written) => return written,
                // Finishes the work of its reclaimer, then tries again.
                Err(NotWritten::Dead) => _ = table.index().remove(key, rid, &operation),
                Err(NotWritten::Overtaken) => {}
            }
        }
    }

    /// Writes to a record that has an id.
    #[inline(always)]
    fn write_on(
        &self,
        table: &MemoryRecords,
        rid: Rid,
        key: &[u8],
        intent: WriteIntent<'_>,
        operation: &OperationGuard,
    ) -> Result<Result<bool, OperationError>, NotWritten> {
        let entry = table.array().entry(rid);
        let base = match table.base(entry, self.view(), operation) {
            Ok(base) => base,
            Err(InstallRefusal::Dead) => return Err(NotWritten::Dead),
            Err(InstallRefusal::Conflict) => return Ok(Err(self.conflict_at(table, key))),
            Err(InstallRefusal::Newer) => return Ok(Err(self.conflict_with_newer(table, key))),
        };
        // The result of the write reveals whether the record exists.
        if let InstallBase::Committed(_, lsn) = base
            && !is_planted(Bug::RefusalNotNoted)
        {
            self.note_lsn(lsn);
        }
        if !intent.applies(!base.is_tombstone()) {
            // The transaction's own version says nothing about other transactions.
            match base {
                InstallBase::Own(_) => {}
                _ if base.is_tombstone() => self.note_absence(table, key),
                _ if is_planted(Bug::RefusedInsertNotNoted) => {}
                _ => self.note_record(table, rid, key),
            }
            return Ok(intent.refusal(table, key));
        }
        if let Err(error) = self.check_not_doomed() {
            return Ok(Err(error));
        }
        let version = self.allocate(table, key, intent.value());
        if !table.install(entry, base, version) {
            // SAFETY: the version was never shared.
            unsafe { version.free(table.memory()) };
            return Err(NotWritten::Overtaken);
        }
        let writes = &mut *self.writes().borrow_mut();
        // SAFETY: just installed by this transaction, which alone may replace it.
        let installed = unsafe { version.get() };
        match base {
            InstallBase::Own(own) => {
                installed.set_position(own.position());
                let (position, deleted) = (own.position(), intent == WriteIntent::Delete);
                if let Some(before) = writes.replace(position, version, deleted) {
                    // SAFETY: the new version was installed in its place, and `operation` keeps it.
                    unsafe { before.get() }.set_stamp(Stamp::ABORTED);
                    // SAFETY: unlinked above, and no longer in the write set.
                    unsafe { table.retire_version(before) };
                }
            }
            InstallBase::Committed(..) | InstallBase::Cold(_) => {
                installed.set_position(writes.next_position());
                let kind = match intent {
                    WriteIntent::Delete => WriteKind::Delete,
                    // It applies to existing records only.
                    WriteIntent::Update(_) => WriteKind::Update,
                    _ if base.is_tombstone() => WriteKind::Insert,
                    _ => WriteKind::Update,
                };
                writes.push(RecordsRef::new(table), rid, version, base.link(), kind, key);
            }
        }
        Ok(Ok(true))
    }

    /// Inserts a record under a new id, at its place in the index if that is known; `false` if the
    /// key has an id by now.
    #[inline(always)]
    pub(in crate::transaction) fn write_new(
        &self,
        table: &MemoryRecords,
        key: &[u8],
        value: &[u8],
        operation: &OperationGuard,
        place: Option<InsertionPlace<'_>>,
    ) -> Result<bool, OperationError> {
        self.check_not_doomed()?;
        let rid = table.take_rid()?;
        let version = self.allocate(table, key, Some(value));
        let position = {
            let writes = &mut *self.writes().borrow_mut();
            self.engine().planted_panic.panic_if_planted(PanicPoint::Write);
            let position = writes.next_position();
            // SAFETY: the version is not shared yet.
            unsafe { version.get() }.set_position(position);
            // Added to the write set before the index: an abort from here on undoes both.
            table.array().publish(rid, version);
            writes.push(RecordsRef::new(table), rid, version, None, WriteKind::Insert, key);
            position
        };
        if place.is_some_and(|place| table.index().insert_at(place, key, rid))
            || table.index().insert(key, rid, operation).is_ok()
        {
            return Ok(true);
        }
        self.writes().borrow_mut().void(position);
        // SAFETY: installed above on no base, and void in the write set; the index never referenced
        // it.
        unsafe { table.roll_back(rid, version, None) };
        // SAFETY: unlinked above, and in no list.
        unsafe { table.retire_version(version) };
        Ok(false)
    }

    #[inline(always)]
    fn allocate(&self, table: &MemoryRecords, key: &[u8], value: Option<&[u8]>) -> VersionRef {
        let stamp = Stamp::in_flight(self.name());
        // A tombstone contains the key, by which its index entry will be found and removed.
        VersionRef::allocate(table.memory(), stamp, value.unwrap_or(key), value.is_none())
    }
}

/// The reason why a record must be looked up and written again.
enum NotWritten {
    /// It is dead; its index entry is about to be removed.
    Dead,
    /// Its newest version has changed in the meantime.
    Overtaken,
}

fn check_lengths(key: &[u8], intent: &WriteIntent<'_>) -> Result<(), OperationError> {
    if key.len() > MAX_KEY_BYTES {
        return Err(OperationError::KeyTooLong(key.len()));
    }
    match intent.value() {
        Some(value) if value.len() > MAX_VALUE_BYTES => {
            Err(OperationError::ValueTooLong(value.len()))
        }
        _ => Ok(()),
    }
}
