//! Index keys of records, and the entries that a changed value adds and removes.

use std::cmp::Ordering as Order;
use std::sync::Arc;

use crate::record::{Records, Secondary};
use crate::sched::{Panic, contain};
use crate::transaction::context::error::{IndexError, OperationError, UniqueViolation};
use crate::transaction::operations::paged::check_fits;
use crate::types::KeyBuffer;

/// An index key that a record gains or loses.
#[derive(Debug)]
pub(in crate::transaction) struct IndexKeyChange<'i> {
    pub(in crate::transaction) index: &'i Secondary,
    /// The key of its entry.
    pub(in crate::transaction) entry: KeyBuffer,
    pub(in crate::transaction) gained: bool,
}

impl IndexKeyChange<'_> {
    /// The error if another record has this key of a unique index.
    pub(in crate::transaction) fn violation(&self, table: &Records) -> OperationError {
        let (table, index) = (table.name().to_string(), self.index.name().to_owned());
        let key = self.index.entries().encoded_key(&self.entry);
        UniqueViolation { table, index, key }.into()
    }
}

/// Computes the index keys that a record gains and loses when its value changes.
pub(in crate::transaction) fn changes<'i>(
    table: &Records,
    indexes: &'i [Arc<Secondary>],
    key: &[u8],
    old: Option<&[u8]>,
    new: Option<&[u8]>,
) -> Result<Vec<IndexKeyChange<'i>>, OperationError> {
    let mut changes = Vec::new();
    for index in indexes {
        let (old, new) = (keys_of(table, index, old)?, keys_of(table, index, new)?);
        let (mut old, mut new) = (old.iter().peekable(), new.iter().peekable());
        loop {
            let order = match (old.peek(), new.peek()) {
                (None, None) => break,
                (Some(_), None) => Order::Less,
                (None, Some(_)) => Order::Greater,
                (Some(lost), Some(gained)) => lost.cmp(gained),
            };
            let (part, gained) = match order {
                Order::Less => (old.next(), false),
                Order::Greater => (new.next(), true),
                Order::Equal => {
                    _ = (old.next(), new.next());
                    continue;
                }
            };
            let entry = index.entry_key(part.expect("peeked"), key);
            // Its value is empty or a record's key, which always fits.
            check_fits(index.entries(), &entry)?;
            changes.push(IndexKeyChange { index, entry, gained });
        }
    }
    Ok(changes)
}

/// The index keys of a record, given its stored value, encoded as parts of tuples, in order.
///
/// # Errors
/// Those of [`keys_of_value`].
pub(super) fn keys_of(
    table: &Records,
    index: &Secondary,
    stored: Option<&[u8]>,
) -> Result<Vec<KeyBuffer>, OperationError> {
    match stored {
        Some(stored) => keys_of_value(table, index, table.value_of(stored)),
        // Reports the index without code even if no record exists.
        None if index.code().is_none() => Err(detached(table, index)),
        None => Ok(Vec::new()),
    }
}

pub(in crate::transaction) fn detached(table: &Records, index: &Secondary) -> OperationError {
    let (table, index) = (table.name().to_string(), index.name().to_owned());
    IndexError::Detached { table, index }.into()
}

/// The error for a key function that returned different keys for the same value before.
pub(in crate::transaction) fn inconsistent(table: &Records, index: &Secondary) -> OperationError {
    let (table, index) = (table.name().to_string(), index.name().to_owned());
    IndexError::Inconsistent { table, index }.into()
}

/// The index keys of a record with this value, encoded as parts of tuples, in order.
///
/// # Errors
/// `Panicked`, `Decode`; `IndexError::Detached`.
pub(super) fn keys_of_value(
    table: &Records,
    index: &Secondary,
    value: &[u8],
) -> Result<Vec<KeyBuffer>, OperationError> {
    let Some(code) = index.code() else { return Err(detached(table, index)) };
    let mut keys = Vec::new();
    contain(|| (code.extract)(value, &mut keys))
        .map_err(|Panic { message }| OperationError::Panicked(message.into()))??;
    keys.sort_unstable();
    keys.dedup();
    Ok(keys)
}
