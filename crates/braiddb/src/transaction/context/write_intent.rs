//! Intents of writes.

use super::error::{OperationError, RecordKey};
use crate::record::Records;

/// A write's precondition and the state that it leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteIntent<'v> {
    /// The record must not exist; it is created with this value.
    Insert(&'v [u8]),
    /// The record may exist; it gets this value.
    Put(&'v [u8]),
    /// The record must exist; it gets this value.
    Update(&'v [u8]),
    /// The record is deleted, if it exists.
    Delete,
    /// The record is deleted if it has expired; only for tables with a lifetime.
    Expire,
}

/// How a write to a table with a lifetime treats time, if not by the table's lifetime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExpiryRule {
    /// The value lives for this many milliseconds from the transaction's time.
    Lifetime(u64),
    /// The write was decided elsewhere: its value expires then, and it replaces or deletes the
    /// record whether that has expired or not. Another record that holds a unique key has expired
    /// if it had `now`. Milliseconds since 1970.
    Applied { expiry: u64, now: u64 },
}

impl WriteIntent<'_> {
    /// Returns whether the write changes anything, given whether the record exists.
    pub(in crate::transaction) fn applies(&self, exists: bool) -> bool {
        match self {
            WriteIntent::Insert(_) => !exists,
            WriteIntent::Put(_) => true,
            WriteIntent::Update(_) | WriteIntent::Delete | WriteIntent::Expire => exists,
        }
    }

    /// The result of a write of this key that does not apply.
    #[cold]
    pub(in crate::transaction) fn refusal(
        &self,
        table: &Records,
        key: &[u8],
    ) -> Result<bool, OperationError> {
        match self {
            WriteIntent::Insert(_) => Err(OperationError::KeyExists(RecordKey::boxed(table, key))),
            WriteIntent::Update(_) => {
                Err(OperationError::KeyNotFound(RecordKey::boxed(table, key)))
            }
            WriteIntent::Put(_) | WriteIntent::Delete | WriteIntent::Expire => Ok(false),
        }
    }

    /// The same write of another value.
    pub(in crate::transaction) fn with_value<'v>(&self, value: &'v [u8]) -> WriteIntent<'v> {
        match self {
            WriteIntent::Insert(_) => WriteIntent::Insert(value),
            WriteIntent::Put(_) => WriteIntent::Put(value),
            WriteIntent::Update(_) => WriteIntent::Update(value),
            WriteIntent::Delete => WriteIntent::Delete,
            WriteIntent::Expire => WriteIntent::Expire,
        }
    }

    /// The value that the write leaves.
    pub(in crate::transaction) fn value(&self) -> Option<&[u8]> {
        match self {
            WriteIntent::Insert(value) | WriteIntent::Put(value) | WriteIntent::Update(value) => {
                Some(value)
            }
            WriteIntent::Delete | WriteIntent::Expire => None,
        }
    }
}
