//! Operations that read and write in one call: changes by closure, comparisons, ranges.

use std::borrow::Borrow;

use super::error::Result;
use super::table::{KeyRange, Table};
use super::transaction::{Transaction, encode_checked};
use crate::sched::engine_code;
use crate::transaction::{Intent, WorkerTransactions};
use crate::types::{TableKey, Value};

impl Transaction {
    /// Gives a record the value that `change` makes of the one it has; `false` if there is no record.
    ///
    /// ```
    /// # use braiddb::{Database, Error, Options, Table};
    /// # let db = Database::in_memory(Options::default().workers(1))?;
    /// let visits: Table<str, u64> = pollster::block_on(db.create_table("visits"))?;
    /// let count = db.run_blocking(async move |tx| {
    ///     tx.put(&visits, "home", &1).await?;
    ///     assert!(tx.update_with(&visits, "home", |count| count + 1).await?);
    ///     tx.get(&visits, "home").await
    /// })?;
    /// assert_eq!(count, Some(2));
    /// # Ok::<_, Error>(())
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
        let changed = {
            let (records, key) = (self.records(table)?, encode_checked(key)?);
            let Some(found) = engine_code(self.core.get(records, &key)).await? else {
                return Ok(false);
            };
            change(V::decode(found.bytes())?)
        };
        self.update(table, key, changed.borrow()).await?;
        Ok(true)
    }

    /// Replaces a record by what `change` makes of it, and returns what there was. `change` is given `None`
    /// if there is no record, and returns `None` if there is to be none.
    ///
    /// ```
    /// # use braiddb::{Database, Error, Options, Table};
    /// # let db = Database::in_memory(Options::default().workers(1))?;
    /// let stock: Table<str, u64> = pollster::block_on(db.create_table("stock"))?;
    /// db.run_blocking(async move |tx| {
    ///     tx.put(&stock, "nails", &1).await?;
    ///     // The last one: the record goes.
    ///     let take = |left: Option<u64>| left.and_then(|left| left.checked_sub(1)).filter(|&left| left > 0);
    ///     assert_eq!(tx.fetch_update(&stock, "nails", take).await?, Some(1));
    ///     assert_eq!(tx.fetch_update(&stock, "nails", take).await?, None);
    ///     Ok(())
    /// })?;
    /// # Ok::<_, Error>(())
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
        let (before, after) = {
            let (records, key) = (self.records(table)?, encode_checked(key)?);
            let found = engine_code(self.core.get(records, &key)).await?;
            let decode = || found.as_ref().map(|found| V::decode(found.bytes())).transpose();
            (decode()?.map(V::into_owned), change(decode()?))
        };
        match after {
            Some(after) => self.put(table, key, after.borrow()).await?,
            None => _ = self.delete(table, key).await?,
        }
        Ok(before)
    }

    /// Replaces the value of a record if it is the expected one, as it is stored; `false` if it is another,
    /// and nothing is changed then. `None` stands for no record, expected or left. Encodings are compared: of a type with
    /// hash maps in it, whose order is any, equal values may be taken for different ones.
    ///
    /// ```
    /// # use braiddb::{Database, Error, Options, Table};
    /// # let db = Database::in_memory(Options::default().workers(1))?;
    /// let leader: Table<str, str> = pollster::block_on(db.create_table("leader"))?;
    /// db.run_blocking(async move |tx| {
    ///     assert!(tx.compare_and_set(&leader, "shard 7", None, Some("a")).await?);
    ///     assert!(!tx.compare_and_set(&leader, "shard 7", None, Some("b")).await?);
    ///     assert!(tx.compare_and_set(&leader, "shard 7", Some("a"), None).await?);
    ///     Ok(())
    /// })?;
    /// # Ok::<_, Error>(())
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
        {
            let (records, key) = (self.records(table)?, encode_checked(key)?);
            let found = engine_code(self.core.get(records, &key)).await?;
            let same = match (&found, expected) {
                (Some(found), Some(expected)) => V::is_encoded_as(expected, found.bytes())?,
                (None, None) => true,
                _ => false,
            };
            if !same {
                return Ok(false);
            }
        }
        match value {
            Some(value) => self.put(table, key, value).await?,
            None => _ = self.delete(table, key).await?,
        }
        Ok(true)
    }

    /// Deletes the records of a range of keys, and returns how many they were.
    ///
    /// All are deletions of this one transaction, which holds some 100 bytes for each until it is over: delete
    /// millions in several. If the future is dropped, or fails, some are deleted in the transaction.
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
        let (mut keys, mut deleted) = (self.keys(table, range)?, 0);
        while let Some(key) = keys.next_encoded().await? {
            deleted += u64::from(self.write_encoded(table, key, Intent::Delete).await?);
        }
        Ok(deleted)
    }

    /// How many records a table has by now, whatever the transaction sees; those of paged tables, and of tables whose
    /// records expire, are counted as it sees them.
    pub(super) async fn len_now<K, V>(&self, table: &Table<K, V>) -> Result<u64>
    where
        K: TableKey + ?Sized,
        V: Value + ?Sized,
    {
        let records = self.records(table)?;
        if records.paged().is_some() || records.expires() {
            return self.count(table, ..).await;
        }
        let count = records.count().get();
        engine_code(WorkerTransactions::current().wait_for_all_before()).await?;
        Ok(count)
    }

    /// Whether a table has no record.
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

    /// How many records a range of keys has; they are visited one by one, their values are not read.
    ///
    /// # Errors
    /// When the table belongs to another database.
    pub async fn count<K, V>(&self, table: &Table<K, V>, range: impl KeyRange<K>) -> Result<u64>
    where
        K: TableKey + ?Sized,
        V: Value + ?Sized,
    {
        self.scan(table, range)?.count().await
    }
}
