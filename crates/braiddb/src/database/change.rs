//! Operations that read and write in one call: updates by closure, compare-and-set, range
//! operations.

use std::borrow::Borrow;

use super::encode::{check_key, encode, encode_range};
use super::error::Result;
use super::table::{KeyRange, Table};
use super::transaction::Transaction;
use crate::sched::engine_code;
use crate::transaction::{ScanBounds, WorkerTransactions, WriteIntent};
use crate::types::{TableKey, Value};

impl Transaction {
    /// Replaces the value of a record with the result of `change` for the current value. Returns
    /// `false` if the record does not exist.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     let db = Database::in_memory(Options::default().workers(1))?;
    ///     let visits: Table<str, u64> = block_on(db.create_table("visits"))?;
    ///     let count = db.run_blocking(async move |tx| {
    ///         tx.put(&visits, "home", &1).await?;
    ///         assert!(tx.update_with(&visits, "home", |count| count + 1).await?);
    ///         tx.get(&visits, "home").await
    ///     })?;
    ///     assert_eq!(count, Some(2));
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`Transaction::get`] and [`Transaction::update`].
    pub async fn update_with<K, V, T>(
        &self,
        table: &Table<K, V>,
        key: &K,
        change: impl FnOnce(V::Ref<'_>) -> T,
    ) -> Result<bool>
    where
        K: TableKey + ?Sized,
        V: Value + ?Sized,
        T: Borrow<V::Input>,
    {
        self.update_with_encoded(table, &encode(key), change).await
    }

    /// [`Transaction::update_with`] for an encoded key.
    pub(super) async fn update_with_encoded<K, V, T>(
        &self,
        table: &Table<K, V>,
        key: &[u8],
        change: impl FnOnce(V::Ref<'_>) -> T,
    ) -> Result<bool>
    where
        K: TableKey + ?Sized,
        V: Value + ?Sized,
        T: Borrow<V::Input>,
    {
        let records = self.records(table)?;
        check_key(records, key)?;
        let changed = {
            let Some(found) = engine_code(self.core.get(records, key)).await? else {
                return Ok(false);
            };
            change(V::decode(found.bytes())?)
        };
        let value = V::encode(changed.borrow())?;
        self.write_encoded(table, key, WriteIntent::Update(&value)).await?;
        Ok(true)
    }

    /// Replaces a record with the result of `change`, and returns the previous value. `change`
    /// receives `None` if the record does not exist, and returns `None` to delete it.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     let db = Database::in_memory(Options::default().workers(1))?;
    ///     let stock: Table<str, u64> = block_on(db.create_table("stock"))?;
    ///     db.run_blocking(async move |tx| {
    ///         tx.put(&stock, "nails", &1).await?;
    ///         // When the last one is taken, the record is deleted.
    ///         let take = |left: Option<u64>| {
    ///             left.and_then(|left| left.checked_sub(1)).filter(|&left| left > 0)
    ///         };
    ///         assert_eq!(tx.fetch_update(&stock, "nails", take).await?, Some(1));
    ///         assert_eq!(tx.fetch_update(&stock, "nails", take).await?, None);
    ///         Ok(())
    ///     })?;
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`Transaction::get`] and [`Transaction::put`].
    pub async fn fetch_update<K, V, T>(
        &self,
        table: &Table<K, V>,
        key: &K,
        change: impl FnOnce(Option<V::Ref<'_>>) -> Option<T>,
    ) -> Result<Option<V::Owned>>
    where
        K: TableKey + ?Sized,
        V: Value + ?Sized,
        T: Borrow<V::Input>,
    {
        self.fetch_update_encoded(table, &encode(key), change).await
    }

    /// [`Transaction::fetch_update`] for an encoded key.
    pub(super) async fn fetch_update_encoded<K, V, T>(
        &self,
        table: &Table<K, V>,
        key: &[u8],
        change: impl FnOnce(Option<V::Ref<'_>>) -> Option<T>,
    ) -> Result<Option<V::Owned>>
    where
        K: TableKey + ?Sized,
        V: Value + ?Sized,
        T: Borrow<V::Input>,
    {
        let records = self.records(table)?;
        check_key(records, key)?;
        let (before, after) = {
            let found = engine_code(self.core.get(records, key)).await?;
            let decode = || found.as_ref().map(|found| V::decode(found.bytes())).transpose();
            (decode()?.map(V::into_owned), change(decode()?))
        };
        let after = after.as_ref().map(|after| V::encode(after.borrow())).transpose()?;
        self.set_encoded(table, key, after.as_deref()).await?;
        Ok(before)
    }

    /// Replaces the value of a record if the current value equals the expected one. Otherwise
    /// changes nothing and returns `false`. `None` means that the record does not exist, or must be
    /// deleted. The comparison uses the stored encoding. Equal values of a type without a fixed
    /// encoding order, such as a hash map, may therefore compare as different.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     let db = Database::in_memory(Options::default().workers(1))?;
    ///     let leader: Table<str, str> = block_on(db.create_table("leader"))?;
    ///     db.run_blocking(async move |tx| {
    ///         assert!(tx.compare_and_set(&leader, "shard 7", None, Some("a")).await?);
    ///         assert!(!tx.compare_and_set(&leader, "shard 7", None, Some("b")).await?);
    ///         assert!(tx.compare_and_set(&leader, "shard 7", Some("a"), None).await?);
    ///         Ok(())
    ///     })?;
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`Transaction::get`] and [`Transaction::put`].
    pub async fn compare_and_set<K, V>(
        &self,
        table: &Table<K, V>,
        key: &K,
        expected: Option<&V::Input>,
        value: Option<&V::Input>,
    ) -> Result<bool>
    where
        K: TableKey + ?Sized,
        V: Value + ?Sized,
    {
        let key = encode(key);
        let (expected, value) =
            (expected.map(V::encode).transpose()?, value.map(V::encode).transpose()?);
        self.compare_and_set_encoded(table, &key, expected.as_deref(), value.as_deref()).await
    }

    /// [`Transaction::compare_and_set`] for an encoded key and encoded values.
    pub(super) async fn compare_and_set_encoded<K, V>(
        &self,
        table: &Table<K, V>,
        key: &[u8],
        expected: Option<&[u8]>,
        value: Option<&[u8]>,
    ) -> Result<bool>
    where
        K: TableKey + ?Sized,
        V: Value + ?Sized,
    {
        let records = self.records(table)?;
        check_key(records, key)?;
        {
            let found = engine_code(self.core.get(records, key)).await?;
            let same = match (&found, expected) {
                (Some(found), Some(expected)) => V::is_same(expected, found.bytes())?,
                (None, None) => true,
                _ => false,
            };
            if !same {
                return Ok(false);
            }
        }
        self.set_encoded(table, key, value).await?;
        Ok(true)
    }

    /// Writes the value of a key, or deletes the record for `None`.
    async fn set_encoded<K, V>(
        &self,
        table: &Table<K, V>,
        key: &[u8],
        value: Option<&[u8]>,
    ) -> Result<()>
    where
        K: TableKey + ?Sized,
        V: Value + ?Sized,
    {
        let intent = value.map_or(WriteIntent::Delete, WriteIntent::Put);
        self.write_encoded(table, key, intent).await.map(drop)
    }

    /// Deletes the records of a key range, and returns their number.
    ///
    /// All deletions belong to this transaction, which needs about 100 bytes for each until it
    /// ends. Delete millions of records in several transactions. If the future is dropped or fails,
    /// some records are already deleted within the transaction.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     let db = Database::in_memory(Options::default().workers(1))?;
    ///     let log: Table<(u64, u64), str> = block_on(db.create_table("log"))?;
    ///     db.run_blocking(async move |tx| {
    ///         for line in 0..5 {
    ///             tx.put(&log, &(7, line), "a line").await?;
    ///         }
    ///         assert_eq!(tx.delete_range(&log, (7, 0)..(7, 3)).await?, 3);
    ///         assert_eq!(tx.count(&log, ..).await?, 2);
    ///         Ok(())
    ///     })?;
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`Transaction::delete`].
    pub async fn delete_range<K, V>(
        &self,
        table: &Table<K, V>,
        range: impl KeyRange<K>,
    ) -> Result<u64>
    where
        K: TableKey + ?Sized,
        V: Value + ?Sized,
    {
        self.delete_encoded_range(table, encode_range(&range)).await
    }

    /// [`Transaction::delete_range`] for encoded keys.
    pub(super) async fn delete_encoded_range<K, V>(
        &self,
        table: &Table<K, V>,
        range: ScanBounds,
    ) -> Result<u64>
    where
        K: TableKey + ?Sized,
        V: Value + ?Sized,
    {
        let (mut keys, mut deleted) = (self.encoded_keys(table, range)?, 0);
        while let Some(key) = keys.next_encoded().await? {
            deleted += u64::from(self.write_encoded(table, key, WriteIntent::Delete).await?);
        }
        Ok(deleted)
    }

    /// Returns the current number of records in a table, independent of the transaction's snapshot.
    /// If the table's records expire, it counts those visible to the transaction.
    pub(super) async fn len_now<K, V>(&self, table: &Table<K, V>) -> Result<u64>
    where
        K: TableKey + ?Sized,
        V: Value + ?Sized,
    {
        let records = self.records(table)?;
        if records.expires() {
            return self.count(table, ..).await;
        }
        let count = records.count().get();
        engine_code(WorkerTransactions::current().wait_for_all_before()).await?;
        Ok(count)
    }

    /// Returns whether a table is empty.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     let db = Database::in_memory(Options::default().workers(1))?;
    ///     let names: Table<str, u64> = block_on(db.create_table("names"))?;
    ///     db.run_blocking(async move |tx| {
    ///         assert!(tx.is_empty(&names).await?);
    ///         tx.put(&names, "ada", &7).await?;
    ///         assert!(!tx.is_empty(&names).await?);
    ///         Ok(())
    ///     })?;
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub async fn is_empty<K, V>(&self, table: &Table<K, V>) -> Result<bool>
    where
        K: TableKey + ?Sized,
        V: Value + ?Sized,
    {
        Ok(self.keys(table, ..)?.limit(1).next_encoded().await?.is_none())
    }

    /// Counts the records of a key range. It visits each record, but reads no values.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     let db = Database::in_memory(Options::default().workers(1))?;
    ///     let names: Table<str, u64> = block_on(db.create_table("names"))?;
    ///     db.run_blocking(async move |tx| {
    ///         for (name, number) in [("ada", 1), ("ben", 2), ("cleo", 3)] {
    ///             tx.put(&names, name, &number).await?;
    ///         }
    ///         assert_eq!(tx.count(&names, "b"..).await?, 2);
    ///         Ok(())
    ///     })?;
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// An error if the table belongs to another database.
    pub async fn count<K, V>(&self, table: &Table<K, V>, range: impl KeyRange<K>) -> Result<u64>
    where
        K: TableKey + ?Sized,
        V: Value + ?Sized,
    {
        self.scan(table, range)?.count().await
    }
}
