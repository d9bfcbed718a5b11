//! Point reads.

use std::ptr::NonNull;

use super::context::Transaction;
use super::error::OperationError;
use super::fault::PanicPoint;
use super::value_view::Found;
use crate::reclaim::{self, OperationGuard};
use crate::record::{Located, Records, Seen};
use crate::rid::Rid;
use crate::sched::{self, Cause, Interleaved};
use crate::types::KeyBuffer;
use crate::version::{Address, Undecided};

/// Whose version of a record a transaction saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SeenRecord {
    /// Its own, which needs no certification.
    Own,
    /// Another's, of the record with this id; whether yet another one has committed a newer version.
    Others { rid: Rid, stale: bool },
    /// Another's, of a paged table; as above.
    OnPage { stale: bool },
}

impl Transaction {
    /// The value of `key` as the transaction sees it.
    ///
    /// # Errors
    /// The log's, if the value is there and cannot be read; `Overloaded`.
    pub(crate) async fn get(
        &self,
        table: &Records,
        key: &[u8],
    ) -> Result<Option<Found<'_>>, OperationError> {
        loop {
            let Some((found, seen)) = self.get_unnoted(table, key).await? else {
                return Ok(None);
            };
            let stale = match seen {
                SeenRecord::Own => false,
                SeenRecord::Others { stale, .. } if stale && self.extend() => continue,
                SeenRecord::Others { rid, stale } => {
                    self.note_record(table, rid, key);
                    stale
                }
                SeenRecord::OnPage { stale } => {
                    self.note_key(table, key);
                    stale
                }
            };
            if stale {
                self.note_stale_read(table, key)?;
            }
            if table.expires() {
                return Ok(self.unexpired_found(table, found));
            }
            return Ok(Some(found));
        }
    }

    /// As `get`, also of a record that has expired, and with what is stored before its value
    /// (`transaction/expiry.rs`); that there was one is for the caller to note, without a suspension before.
    pub(crate) async fn get_unnoted(
        &self,
        table: &Records,
        key: &[u8],
    ) -> Result<Option<(Found<'_>, SeenRecord)>, OperationError> {
        if let Some(paged) = table.paged() {
            return self.get_paged(table, paged, key).await;
        }
        loop {
            let operation = reclaim::enter();
            self.engine().planted_panic.panic_if_planted(PanicPoint::Read);
            sched::count_steps(1).await;
            let Some(rid) = table.index.get(key, &operation).await else {
                self.note_absence(table, key);
                return Ok(None);
            };
            let begin = self.begin();
            let cold = match table.find(rid, self.view(), &operation).await {
                _ if self.has_moved_on_from(begin) => continue,
                Ok(seen) => {
                    let stale = self.is_stale(table, rid, seen, &operation);
                    let Some(value) = self.note(seen) else {
                        if stale && self.extend() {
                            continue;
                        }
                        self.note_absence(table, key);
                        if stale {
                            self.note_stale_read(table, key)?;
                        }
                        return Ok(None);
                    };
                    let own = seen.is_some_and(Seen::is_own);
                    self.remember(table, key, rid);
                    let value = NonNull::from(value);
                    // SAFETY: found under the guard, and seen by this transaction.
                    let found = unsafe { Found::in_memory(self, table, value, operation) };
                    let others = SeenRecord::Others { rid, stale };
                    return Ok(Some((found, if own { SeenRecord::Own } else { others })));
                }
                Err(cold) => cold,
            };
            let stale = self.is_overwritten(table, rid, &operation);
            drop(operation);
            let (record, permit) = self.fetch(table, rid, cold).await?;
            if self.has_moved_on_from(begin) {
                continue;
            }
            self.note_lsn(cold.lsn());
            self.remember(table, key, rid);
            let found = Found::in_log(self, record, permit);
            return Ok(Some((found, SeenRecord::Others { rid, stale })));
        }
    }

    /// Whether `key` has a record that the transaction sees. Storage is not read, unless records expire.
    ///
    /// # Errors
    /// `NotSerializable`, if others have changed that since, and the transaction has written.
    pub(crate) async fn contains(
        &self,
        table: &Records,
        key: &[u8],
    ) -> Result<bool, OperationError> {
        if table.expires() {
            return Ok(Box::pin(self.get(table, key)).await?.is_some());
        }
        if let Some(paged) = table.paged() {
            return self.contains_paged(table, paged, key).await;
        }
        loop {
            let operation = reclaim::enter();
            sched::count_steps(1).await;
            let Some(rid) = table.index.get(key, &operation).await else {
                self.note_absence(table, key);
                return Ok(false);
            };
            let begin = self.begin();
            let (found, stale) = match table.find(rid, self.view(), &operation).await {
                _ if self.has_moved_on_from(begin) => continue,
                Ok(seen) if seen.is_some_and(Seen::is_own) => return Ok(self.note(seen).is_some()),
                Ok(seen) => {
                    (self.note(seen).is_some(), self.is_stale(table, rid, seen, &operation))
                }
                Err(cold) => {
                    self.note_lsn(cold.lsn());
                    (true, self.is_overwritten(table, rid, &operation))
                }
            };
            if stale && self.extend() {
                continue;
            }
            match found {
                true => self.note_record(table, rid, key),
                false => self.note_absence(table, key),
            }
            if stale {
                self.note_stale_read(table, key)?;
            }
            return Ok(found);
        }
    }

    /// Where in the log the version of a record is that the transaction sees; `None` if it sees
    /// none.
    ///
    /// # Errors
    /// `Unlogged` if the log does not have it.
    pub(crate) async fn locate(
        &self,
        table: &Records,
        rid: Rid,
        operation: &OperationGuard,
    ) -> Result<Option<Address>, OperationError> {
        loop {
            match table.locate(rid, self.view(), operation) {
                Ok(None) => return Ok(None),
                Ok(Some(Located::At(address))) => {
                    self.note_lsn(address.lsn());
                    return Ok(Some(address));
                }
                Ok(Some(Located::Unlogged)) => return Err(OperationError::Unlogged),
                Err(Undecided) => sched::yield_now(Cause::Undecided).await,
            }
        }
    }

    /// The values of many keys, in their order, looked up side by side; kept until the transaction is
    /// over.
    ///
    /// # Errors
    /// As for `get`.
    pub(crate) async fn multi_get<'a>(
        &'a self,
        table: &Records,
        keys: &[KeyBuffer],
    ) -> Result<Vec<Option<&'a [u8]>>, OperationError> {
        /// Look-ups in flight at a time: more would push each other's lines out of the cache.
        const WIDTH: usize = 32;
        let mut values = Vec::with_capacity(keys.len());
        for some in keys.chunks(WIDTH) {
            // Kept one by one, so that none waits for memory that the others hold.
            let reads = some.iter().map(|key| async {
                let found = self.get(table, key).await?;
                Ok::<_, OperationError>(found.map(|found| found.keep()))
            });
            for value in Interleaved::new(reads).await {
                values.push(value?);
            }
        }
        Ok(values)
    }
}
