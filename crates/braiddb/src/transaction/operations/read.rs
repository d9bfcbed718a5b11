//! Point reads.

use std::ptr::NonNull;

use super::value_view::{FoundValue, ResidentValue};
use crate::index::InsertionPlace;
use crate::reclaim::{self, OperationGuard};
use crate::record::{MemoryRecords, RecordLocation, Records, SeenVersion, TableKind};
use crate::rid::Rid;
use crate::sched::{self, Interleaved, OperationResult, WaitCause, compiled_here};
use crate::transaction::context::active_transaction::ActiveTransaction;
use crate::transaction::context::error::OperationError;
use crate::transaction::context::fault::PanicPoint;
use crate::transaction::sets::read_set::ReadPoint;
use crate::types::KeyBuffer;
use crate::version::{Address, Undecided};

/// The origin of the version that a transaction saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SeenRecord {
    /// The transaction's own version, which needs no certification.
    Own,
    /// Another transaction's version of this record, which is `None` in a paged table. `doomed_by`
    /// if a newer version is committed.
    Others { point: Option<ReadPoint>, doomed_by: bool },
}

/// Number of concurrent lookups: more would evict each other's lines from the processor's caches.
pub(crate) const MAX_CONCURRENT_LOOKUPS: usize = 32;

/// Result of a read that waits for nothing.
#[derive(Debug)]
pub(crate) enum ReadNow<'tx> {
    /// The visible value.
    Found(ResidentValue<'tx>),
    /// No value is visible.
    Absent,
    /// The read may have to wait, or is special in another way; nothing was noted.
    Later,
}

/// `Later` lets the caller try a read that reports it.
impl OperationResult for ReadNow<'_> {
    fn of_blocked() -> Self {
        Self::Later
    }
}

impl ActiveTransaction {
    /// The table, if the steps of a point operation on it are plain functions: its records are in
    /// memory and do not expire.
    #[inline(always)]
    pub(super) fn plain(table: &Records) -> Option<&MemoryRecords> {
        table.in_memory().filter(|table| !table.expires())
    }

    /// The table, if `get_now` may be called now. The step is counted.
    #[inline(always)]
    pub(crate) fn may_read_now<'t>(&self, table: &'t Records) -> Option<&'t MemoryRecords> {
        Self::plain(table).filter(|table| sched::may_go_on(|| table.is_cold()))
    }

    /// Reads as `get` does, if nothing must be waited for; called after `may_read_now`.
    #[inline(never)]
    pub(crate) fn get_now(&self, table: &MemoryRecords, key: &[u8]) -> ReadNow<'_> {
        let operation = reclaim::enter();
        let rid = table.look_up_now(key, &operation).ok();
        self.read_found(table, key, rid, operation)
    }

    /// Reads as `get` does, if nothing but cache lines must be waited for.
    pub(crate) fn get_interleaved(
        &self,
        table: &Records,
        key: &[u8],
    ) -> impl Future<Output = ReadNow<'_>> {
        compiled_here(async move {
            let Some(table) = Self::plain(table) else { return ReadNow::Later };
            let operation = reclaim::enter();
            sched::count_steps(1).await;
            let begin = self.begin();
            let rid = table.look_up(key, &operation).await.ok();
            if self.has_moved_on_from(begin) {
                return ReadNow::Later;
            }
            self.read_found(table, key, rid, operation)
        })
    }

    /// Looks up a record as [`MemoryRecords::look_up`] does. The result holds for the current snapshot:
    /// another operation of the transaction may have extended it since the index was searched.
    #[inline]
    pub(super) async fn look_up<'o>(
        &self,
        table: &'o MemoryRecords,
        key: &'o [u8],
        operation: &'o OperationGuard,
    ) -> Result<Rid, InsertionPlace<'o>> {
        loop {
            let begin = self.begin();
            let found = table.look_up(key, operation).await;
            if !self.has_moved_on_from(begin) {
                return found;
            }
        }
    }

    /// Reads the record that a lookup under this guard has found.
    #[inline(always)]
    fn read_found(
        &self,
        table: &MemoryRecords,
        key: &[u8],
        rid: Option<Rid>,
        operation: OperationGuard,
    ) -> ReadNow<'_> {
        self.engine().planted_panic.panic_if_planted(PanicPoint::Read);
        let Some(rid) = rid else {
            self.note_absence(table, key);
            return ReadNow::Absent;
        };
        let newest = table.newest_value(rid, self.view(), &operation);
        let (value, is_own) = if let Some((value, lsn)) = newest {
            self.note_lsn(lsn);
            self.note_record(table, rid, key);
            (value, false)
        } else {
            // Probably the transaction's own version.
            let seen = match table.find_now(rid, self.view(), &operation) {
                Ok(Some(seen)) if !seen.below_newer => seen,
                _ => return ReadNow::Later,
            };
            let Some(value) = self.note(Some(seen)) else { return ReadNow::Later };
            if !seen.is_own() {
                self.note_record(table, rid, key);
            }
            (value, seen.is_own())
        };
        self.remember(table, key, rid);
        let value = (NonNull::from(value), is_own);
        // SAFETY: found under the guard, and seen by this transaction.
        ReadNow::Found(unsafe { ResidentValue::new(self, table, value, operation) })
    }

    /// Returns the visible value of `key`.
    ///
    /// # Errors
    /// The log's error if the value exists and cannot be read; `Overloaded`.
    pub(crate) async fn get(
        &self,
        table: &Records,
        key: &[u8],
    ) -> Result<Option<FoundValue<'_>>, OperationError> {
        self.get_as(table, key, true).await
    }

    /// Does what `get` does. The value is empty unless it is wanted.
    async fn get_as(
        &self,
        table: &Records,
        key: &[u8],
        wants_value: bool,
    ) -> Result<Option<FoundValue<'_>>, OperationError> {
        loop {
            let Some((found, seen)) = self.get_unnoted(table, key, wants_value).await? else {
                return Ok(None);
            };
            let doomed_by = matches!(seen, SeenRecord::Others { doomed_by: true, .. });
            if doomed_by && self.extend() {
                continue;
            }
            self.note_seen(table, key, seen);
            if doomed_by {
                self.note_doomed_read(table, key)?;
            }
            if wants_value && table.expires() {
                return Ok(self.unexpired_found(table, found));
            }
            return Ok(Some(found));
        }
    }

    /// Does what `get` does, but also returns an expired record, with the bytes stored before its
    /// value (`transaction/operations/expiry.rs`). The caller must add a found record to the read
    /// set before it suspends. The value may be empty unless it is wanted.
    pub(crate) fn get_unnoted(
        &self,
        table: &Records,
        key: &[u8],
        wants_value: bool,
    ) -> impl Future<Output = Result<Option<(FoundValue<'_>, SeenRecord)>, OperationError>> {
        compiled_here(async move {
            let table = match table.kind() {
                TableKind::Memory(table) => table,
                TableKind::Paged(table) => return self.get_paged(table, key, wants_value).await,
            };
            loop {
                let operation = reclaim::enter();
                self.engine().planted_panic.panic_if_planted(PanicPoint::Read);
                sched::count_steps(1).await;
                let Ok(rid) = self.look_up(table, key, &operation).await else {
                    self.note_absence(table, key);
                    return Ok(None);
                };
                let begin = self.begin();
                let cold = match table.find(rid, self.view(), &operation).await {
                    _ if self.has_moved_on_from(begin) => continue,
                    Ok(seen) => {
                        let doomed_by = self.is_superseded(table, rid, seen, &operation);
                        let own = seen.is_some_and(SeenVersion::is_own);
                        let Some(value) = self.note(seen) else {
                            if own {
                                return Ok(None);
                            }
                            if doomed_by && self.extend() {
                                continue;
                            }
                            self.note_absence(table, key);
                            if doomed_by {
                                self.note_doomed_read(table, key)?;
                            }
                            return Ok(None);
                        };
                        self.remember(table, key, rid);
                        let value = (NonNull::from(value), own);
                        // SAFETY: found under the guard, and seen by this transaction.
                        let found = unsafe { FoundValue::in_memory(self, table, value, operation) };
                        let others = SeenRecord::Others {
                            point: Some(ReadPoint::new(table, rid)),
                            doomed_by,
                        };
                        return Ok(Some((found, if own { SeenRecord::Own } else { others })));
                    }
                    Err(cold) => cold,
                };
                let doomed_by = self.is_overwritten(table, rid, &operation);
                drop(operation);
                let found = match wants_value {
                    true => {
                        let (record, permit) = self.fetch(table, rid, cold).await?;
                        FoundValue::in_log(self, record, permit)
                    }
                    false => FoundValue::empty(self),
                };
                if self.has_moved_on_from(begin) {
                    continue;
                }
                self.note_lsn(cold.lsn());
                self.remember(table, key, rid);
                let point = Some(ReadPoint::new(table, rid));
                return Ok(Some((found, SeenRecord::Others { point, doomed_by })));
            }
        })
    }

    /// Returns whether `key` has a visible record. Storage is not read, unless records expire.
    ///
    /// # Errors
    /// `NotSerializable` if another transaction has changed the record since, and this one has
    /// written.
    pub(crate) async fn contains(
        &self,
        table: &Records,
        key: &[u8],
    ) -> Result<bool, OperationError> {
        let found = self.get_as(table, key, table.expires()).await?;
        Ok(found.is_some())
    }

    /// Returns the log position of the visible version of a record; `None` if no version is
    /// visible.
    ///
    /// # Errors
    /// `Unlogged` if the version is not in the log.
    pub(crate) async fn locate(
        &self,
        table: &MemoryRecords,
        rid: Rid,
        operation: &OperationGuard,
    ) -> Result<Option<Address>, OperationError> {
        loop {
            match table.locate(rid, self.view(), operation) {
                Ok(None) => return Ok(None),
                Ok(Some(RecordLocation::At(address))) => {
                    self.note_lsn(address.lsn());
                    return Ok(Some(address));
                }
                Ok(Some(RecordLocation::Unlogged)) => return Err(OperationError::Unlogged),
                Err(Undecided) => sched::yield_now(WaitCause::Undecided).await,
            }
        }
    }

    /// Returns the values of some keys in order, looked up concurrently. The values are kept until
    /// the transaction ends. At most [`MAX_CONCURRENT_LOOKUPS`] keys are useful.
    ///
    /// # Errors
    /// Those of `get`.
    pub(crate) async fn multi_get<'a>(
        &'a self,
        table: &Records,
        keys: &[KeyBuffer],
    ) -> Result<Vec<Option<&'a [u8]>>, OperationError> {
        // The caller's work on each key counts too.
        sched::count_steps(keys.len() as u32).await;
        // Kept one by one, so that no read waits for memory that the others hold.
        let reads = keys.iter().map(|key| async {
            let found = self.get(table, key).await?;
            Ok::<_, OperationError>(found.map(|found| found.keep()))
        });
        Interleaved::new(reads).await.into_iter().collect()
    }
}
