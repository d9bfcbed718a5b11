//! Point operations of a transaction: the part that ends without waiting, and the part that may
//! wait.

use super::encode::{encode, encode_for};
use super::error::Result;
use super::table::Table;
use super::transaction::Transaction;
use crate::record::Records;
use crate::sched::{engine_call, engine_code};
use crate::transaction::{ActiveTransaction, ReadNow, WriteIntent};
use crate::types::{TableKey, Value};

impl Transaction {
    /// Reads if nothing must be waited for.
    #[inline(always)]
    pub(super) fn get_now<'tx, K, V>(
        (transaction, table, key): (&'tx Self, &Table<K, V>, &K),
    ) -> Option<Result<Option<V::Ref<'tx>>>>
    where
        K: TableKey + ?Sized,
        V: Value + ?Sized,
    {
        let records = match transaction.records(table) {
            Ok(records) => records,
            Err(error) => return Some(Err(error)),
        };
        // Checked before the key is encoded, which happens again if the read has to wait.
        if !transaction.core.may_read_now(records) {
            return None;
        }
        let key = match encode_for(records, key) {
            Ok(key) => key,
            Err(error) => return Some(Err(error)),
        };
        match engine_call(|| transaction.core.get_now(records, &key)) {
            ReadNow::Found(found) => match found.decode::<V>() {
                Ok(value) => Some(Ok(Some(value))),
                Err(error) => Some(Err(error.into())),
            },
            ReadNow::Absent => Some(Ok(None)),
            ReadNow::Later => None,
        }
    }

    /// Reads after `get_now` could not.
    pub(super) async fn get_later<'tx, K, V>(
        &'tx self,
        table: &Table<K, V>,
        key: &K,
    ) -> Result<Option<V::Ref<'tx>>>
    where
        K: TableKey + ?Sized,
        V: Value + ?Sized,
    {
        let records = self.records(table)?;
        let key = encode_for(records, key)?;
        match engine_code(self.core.get_interleaved(records, &key)).await {
            ReadNow::Found(found) => return Ok(Some(found.decode::<V>()?)),
            ReadNow::Absent => return Ok(None),
            ReadNow::Later => {}
        }
        let found = engine_code(self.core.get(records, &key)).await?;
        Ok(found.map(|found| found.decode::<V>()).transpose()?)
    }

    /// Inserts if nothing must be waited for.
    #[inline(always)]
    pub(super) fn insert_now<K, V>(
        (transaction, table, key, value): (&Self, &Table<K, V>, &K, &V::Input),
    ) -> Option<Result<()>>
    where
        K: TableKey + ?Sized,
        V: Value + ?Sized,
    {
        transaction.encode_and(table, key, value, ActiveTransaction::insert_now)
    }

    /// Puts if nothing must be waited for.
    #[inline(always)]
    pub(super) fn put_now<K, V>(
        (transaction, table, key, value): (&Self, &Table<K, V>, &K, &V::Input),
    ) -> Option<Result<()>>
    where
        K: TableKey + ?Sized,
        V: Value + ?Sized,
    {
        transaction.encode_and(table, key, value, ActiveTransaction::put_now)
    }

    /// Updates if nothing must be waited for.
    #[inline(always)]
    pub(super) fn update_now<K, V>(
        (transaction, table, key, value): (&Self, &Table<K, V>, &K, &V::Input),
    ) -> Option<Result<()>>
    where
        K: TableKey + ?Sized,
        V: Value + ?Sized,
    {
        transaction.encode_and(table, key, value, ActiveTransaction::update_now)
    }

    /// Encodes a key and a value and calls `write`, if nothing must be waited for.
    #[inline(always)]
    fn encode_and<K, V>(
        &self,
        table: &Table<K, V>,
        key: &K,
        value: &V::Input,
        write: impl FnOnce(&ActiveTransaction, &Records, &[u8], &[u8]) -> Option<bool>,
    ) -> Option<Result<()>>
    where
        K: TableKey + ?Sized,
        V: Value + ?Sized,
    {
        let records = match self.records(table) {
            Ok(records) => records,
            Err(error) => return Some(Err(error)),
        };
        // As in `get_now`.
        if !self.core.may_write_now(records) {
            return None;
        }
        let value = match V::encode(value) {
            Ok(value) => value,
            Err(error) => return Some(Err(error.into())),
        };
        let key = encode(key);
        engine_call(|| write(&self.core, records, &key, &value)).map(|_| Ok(()))
    }

    /// Writes after the functions above could not.
    pub(super) async fn write_later<K, V>(
        &self,
        table: &Table<K, V>,
        key: &K,
        value: &V::Input,
        intent: fn(&[u8]) -> WriteIntent<'_>,
    ) -> Result<()>
    where
        K: TableKey + ?Sized,
        V: Value + ?Sized,
    {
        let records = self.records(table)?;
        let value = V::encode(value)?;
        self.write_encoded_later(records, &encode(key), intent(&value)).await.map(drop)
    }

    pub(super) async fn write_encoded<K, V>(
        &self,
        table: &Table<K, V>,
        key: &[u8],
        intent: WriteIntent<'_>,
    ) -> Result<bool>
    where
        K: TableKey + ?Sized,
        V: Value + ?Sized,
    {
        let records = self.records(table)?;
        match engine_call(|| self.core.write_now(records, key, intent)) {
            Some(written) => Ok(written),
            None => self.write_encoded_later(records, key, intent).await,
        }
    }

    /// Writes after `write_now` could not.
    async fn write_encoded_later(
        &self,
        records: &Records,
        key: &[u8],
        intent: WriteIntent<'_>,
    ) -> Result<bool> {
        let write = self.core.write_interleaved(records, key, intent);
        match engine_code(write).await {
            Some(written) => Ok(written),
            None => Ok(engine_code(self.core.write(records, key, intent)).await?),
        }
    }
}
