//! Expiring records: the transaction's time, and its effect on reads and writes.
//!
//! A transaction takes the time once, so a record is either live or expired for its whole duration.
//! The time acts like an argument of the transaction: its result is what it would be alone at that
//! time. The time never decreases from one transaction to another that begins later. So a
//! transaction that begins after a record was swept would have found it expired anyway, and
//! sweeping never changes a result.
//!
//! To reads, an expired record is absent. To the engine it exists, with its index entries, until it
//! is swept or overwritten. Writes read it and treat it as expired.

use std::sync::Arc;

use super::read::SeenRecord;
use super::value_view::FoundValue;
use crate::record::{EXPIRY_BYTES, Records, Secondary, split_expiry, with_expiry};
use crate::transaction::context::active_transaction::ActiveTransaction;
use crate::transaction::context::error::{OperationError, UniqueViolation};
use crate::transaction::context::write_intent::{ExpiryRule, WriteIntent};
use crate::types::KeyBuffer;
use crate::version::MAX_VALUE_BYTES;

impl ActiveTransaction {
    /// The time of this transaction in milliseconds since 1970, taken at the first call.
    pub(crate) fn time(&self) -> u64 {
        self.time_used().set(true);
        self.take_time()
    }

    /// Takes the time now, for a transaction that may use it much later.
    pub(crate) fn take_time(&self) -> u64 {
        match self.time_taken().get() {
            0 => {
                let now = self.engine().steady_clock.now();
                self.time_taken().set(now);
                now
            }
            taken => taken,
        }
    }

    /// Takes the earliest time, at which no record has expired, for a read-only transaction.
    pub(crate) fn take_earliest_time(&self) {
        self.time_taken().set(1);
    }

    /// Returns the user's part of a stored value, or `None` if the record has expired.
    #[inline(always)]
    pub(super) fn unexpired<'v>(&self, table: &Records, stored: &'v [u8]) -> Option<&'v [u8]> {
        if !table.expires() {
            return Some(stored);
        }
        unexpired_at(Some(self.time()), stored)
    }

    /// Does what `unexpired` does, for a record that was found.
    pub(super) fn unexpired_found<'tx>(
        &self,
        table: &Records,
        mut found: FoundValue<'tx>,
    ) -> Option<FoundValue<'tx>> {
        self.unexpired(table, found.bytes())?;
        found.pass_bytes(EXPIRY_BYTES);
        Some(found)
    }

    /// Does what `unexpired` does, for a record that was found but not noted. If it has expired,
    /// adds it to the read set.
    pub(crate) fn unexpired_or_noted<'v>(
        &self,
        table: &Records,
        key: &[u8],
        (stored, seen): (&'v [u8], SeenRecord),
    ) -> Option<&'v [u8]> {
        let value = self.unexpired(table, stored);
        if value.is_none() {
            self.note_seen(table, key, seen);
        }
        value
    }

    /// Adds a record that was found to the read set.
    pub(crate) fn note_seen(&self, table: &Records, key: &[u8], seen: SeenRecord) {
        match seen {
            SeenRecord::Own => {}
            SeenRecord::Others { point: Some(point), .. } => self.note_point(point, key),
            SeenRecord::Others { point: None, .. } => self.note_key(table, key),
        }
    }

    /// The transaction's time, if a table's records expire.
    pub(crate) fn time_for(&self, table: &Records) -> Option<u64> {
        table.expires().then(|| self.time())
    }

    /// Returns when a record expires, in milliseconds since 1970; `None` if it is absent. Only for
    /// tables with a lifetime.
    ///
    /// # Errors
    /// Those of `get`.
    pub(crate) async fn expiry_of(
        &self,
        table: &Records,
        key: &[u8],
    ) -> Result<Option<u64>, OperationError> {
        let Some((found, seen)) = self.get_unnoted(table, key, true).await? else {
            return Ok(None);
        };
        self.note_seen(table, key, seen);
        let (expiry, _) = split_expiry(found.bytes());
        Ok((expiry > self.time()).then_some(expiry))
    }

    /// Returns the expiry and the stored form of a value that is about to be written to a table with
    /// a lifetime. `None` if the write leaves no value, or records do not expire.
    ///
    /// # Errors
    /// `ValueTooLong`.
    pub(super) fn expiring_value(
        &self,
        table: &Records,
        intent: WriteIntent<'_>,
        rule: Option<ExpiryRule>,
    ) -> Result<Option<(u64, Vec<u8>)>, OperationError> {
        let Some(value) = intent.value().filter(|_| table.expires()) else { return Ok(None) };
        if value.len() + EXPIRY_BYTES > MAX_VALUE_BYTES {
            return Err(OperationError::ValueTooLong(value.len()));
        }
        let expiry = match rule {
            None => self.time().saturating_add(table.lifetime_ms()),
            Some(ExpiryRule::Lifetime(lifetime_ms)) => self.time().saturating_add(lifetime_ms),
            Some(ExpiryRule::Applied { expiry, .. }) => expiry,
        };
        Ok(Some((expiry, with_expiry(expiry, value))))
    }

    /// Translates a write, given the value stored under its key. Returns a write for the engine,
    /// for which an expired record still exists, or an immediate result.
    pub(super) fn for_stored<'v>(
        &self,
        table: &Records,
        key: &[u8],
        intent: WriteIntent<'v>,
        stored: Option<&[u8]>,
        rule: Option<ExpiryRule>,
    ) -> Result<WriteIntent<'v>, Result<bool, OperationError>> {
        if !table.expires() {
            return Ok(intent);
        }
        let now = || match rule {
            Some(ExpiryRule::Applied { now, .. }) => now,
            None | Some(ExpiryRule::Lifetime(_)) => self.time(),
        };
        if matches!(rule, Some(ExpiryRule::Applied { .. })) && intent != WriteIntent::Expire {
            return Ok(intent);
        }
        let has_expired = stored.is_some_and(|stored| unexpired_at(Some(now()), stored).is_none());
        match (intent, has_expired) {
            (WriteIntent::Insert(value), true) => Ok(WriteIntent::Put(value)),
            (WriteIntent::Update(_), true) => Err(intent.refusal(table, key)),
            (WriteIntent::Delete, true) | (WriteIntent::Expire, false) => Err(Ok(false)),
            (WriteIntent::Expire, true) => Ok(WriteIntent::Delete),
            (intent, _) => Ok(intent),
        }
    }

    /// Removes the record that holds a unique key and made a write fail with `error`, if that
    /// record has expired. Returns whether it did. No reader observes the removal.
    pub(super) async fn remove_expired_conflict(
        &self,
        table: &Records,
        indexes: &[Arc<Secondary>],
        error: &OperationError,
        rule: Option<ExpiryRule>,
    ) -> Result<bool, OperationError> {
        if !table.expires() {
            return Ok(false);
        }
        let OperationError::UniqueViolation(violation) = error else { return Ok(false) };
        let UniqueViolation { index, key, .. } = &**violation;
        let named = indexes.iter().find(|one| one.name() == index);
        let Some(index) = named else { return Ok(false) };
        let Some(owner) = self.owner_of(index, key).await? else { return Ok(false) };
        self.write_indexed(table, &owner, WriteIntent::Expire, rule).await
    }

    /// The key of the record that an entry of a unique index references.
    pub(super) async fn owner_of(
        &self,
        index: &Secondary,
        entry: &[u8],
    ) -> Result<Option<KeyBuffer>, OperationError> {
        let found = self.get(index.entries(), entry).await?;
        Ok(found.map(|found| {
            let mut owner = KeyBuffer::new();
            owner.extend_from_slice(found.bytes());
            owner
        }))
    }
}

/// The user's part of a stored value, unless its record has expired at `time`. Without a time,
/// records do not expire.
pub(crate) fn unexpired_at(time: Option<u64>, stored: &[u8]) -> Option<&[u8]> {
    let Some(time) = time else { return Some(stored) };
    let (expiry, value) = split_expiry(stored);
    (expiry > time).then_some(value)
}
