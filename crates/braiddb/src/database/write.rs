//! Encoded writes, which borrow nothing and can be sent to a worker.

use super::encode::encode_checked;
use super::error::Result;
use super::table::Table;
use super::transaction::Transaction;
use crate::memory::Buffer;
use crate::transaction::{GuestWrite, GuestWriters, WriteIntent};
use crate::types::{KeyBuffer, TableKey, Value};

/// A write to one record.
pub(super) struct EncodedWrite {
    table: Table<[u8], [u8]>,
    key: KeyBuffer,
    /// The encoded value; empty for a deletion.
    value: Buffer,
    intent: fn(&[u8]) -> WriteIntent<'_>,
}

impl EncodedWrite {
    /// Encodes an insertion. Like the functions below, it fails if the key or the value cannot be
    /// encoded.
    pub(super) fn insert<K, V>(table: &Table<K, V>, key: &K, value: &V::Input) -> Result<Self>
    where
        K: TableKey + ?Sized,
        V: Value + ?Sized,
    {
        Self::of(table, key, Some(value), |value| WriteIntent::Insert(value))
    }

    /// Encodes an insertion or update.
    pub(super) fn put<K, V>(table: &Table<K, V>, key: &K, value: &V::Input) -> Result<Self>
    where
        K: TableKey + ?Sized,
        V: Value + ?Sized,
    {
        Self::of(table, key, Some(value), |value| WriteIntent::Put(value))
    }

    /// Encodes an update of an existing record.
    pub(super) fn update<K, V>(table: &Table<K, V>, key: &K, value: &V::Input) -> Result<Self>
    where
        K: TableKey + ?Sized,
        V: Value + ?Sized,
    {
        Self::of(table, key, Some(value), |value| WriteIntent::Update(value))
    }

    /// Encodes a deletion.
    pub(super) fn delete<K, V>(table: &Table<K, V>, key: &K) -> Result<Self>
    where
        K: TableKey + ?Sized,
        V: Value + ?Sized,
    {
        Self::of(table, key, None, |_| WriteIntent::Delete)
    }

    fn of<K, V>(
        table: &Table<K, V>,
        key: &K,
        value: Option<&V::Input>,
        intent: fn(&[u8]) -> WriteIntent<'_>,
    ) -> Result<Self>
    where
        K: TableKey + ?Sized,
        V: Value + ?Sized,
    {
        let key = encode_checked(key)?;
        let value = value.map(V::encode).transpose()?.map(|value| Buffer::from(&*value));
        Ok(Self { table: table.encoded(), key, value: value.unwrap_or_default(), intent })
    }

    /// Attempts the write on this thread.
    pub(super) fn run_as_guest(
        &self,
        guests: &GuestWriters,
        is_restricted: impl Fn() -> bool,
    ) -> Option<GuestWrite> {
        guests.write(&self.table.core, &self.key, (self.intent)(&self.value), is_restricted)
    }

    /// Runs the write. Returns `false` for the deletion of a record that does not exist.
    pub(super) async fn run(&self, transaction: &Transaction) -> Result<bool> {
        let intent = (self.intent)(&self.value);
        transaction.write_encoded(&self.table, &self.key, intent).await
    }
}
