//! The records that interactive transactions read and write: each method is a step.

use super::super::encode::{encode_checked, encode_range};
use super::super::error::Result;
use super::super::table::{KeyRange, Table};
use super::super::transaction::Transaction;
use super::super::write::EncodedWrite;
use super::InteractiveTransaction;
use crate::types::{TableKey, Value};

impl InteractiveTransaction {
    /// The value of `key`.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let db = Database::in_memory(Options::default().workers(1))?;
    ///         let names: Table<u64, str> = db.create_table("names").await?;
    ///         let transaction = db.begin().await?;
    ///         assert_eq!(transaction.get(&names, &1).await?, None);
    ///         transaction.put(&names, &1, "ada").await?;
    ///         assert_eq!(transaction.get(&names, &1).await?.as_deref(), Some("ada"));
    ///         transaction.commit().await?;
    ///         Ok(())
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`Transaction::get`] and [`InteractiveTransaction::step`].
    pub async fn get<K, V>(&self, table: &Table<K, V>, key: &K) -> Result<Option<V::Owned>>
    where
        K: TableKey + ?Sized,
        V: Value + ?Sized,
    {
        let (table, key) = (table.stored(), encode_checked(key)?);
        // Owned at once: the transaction may be open for long, and is to keep nothing of it.
        self.step(async move |tx: &Transaction| tx.get_owned(&table, &key).await).await
    }

    /// Makes a record. See [`Transaction::insert`].
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let db = Database::in_memory(Options::default().workers(1))?;
    ///         let names: Table<u64, str> = db.create_table("names").await?;
    ///         let transaction = db.begin().await?;
    ///         transaction.insert(&names, &1, "ada").await?;
    ///         let again = transaction.insert(&names, &1, "bob").await;
    ///         assert!(matches!(again, Err(Error::KeyExists(_))));
    ///         transaction.commit().await?;
    ///         Ok(())
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`Transaction::insert`] and [`InteractiveTransaction::step`].
    pub async fn insert<K, V>(&self, table: &Table<K, V>, key: &K, value: &V::Input) -> Result<()>
    where
        K: TableKey + ?Sized,
        V: Value + ?Sized,
    {
        self.write(EncodedWrite::insert(table, key, value)).await.map(drop)
    }

    /// Makes a record, or gives the one there is a new value. See [`Transaction::put`].
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let db = Database::in_memory(Options::default().workers(1))?;
    ///         let names: Table<u64, str> = db.create_table("names").await?;
    ///         let transaction = db.begin().await?;
    ///         transaction.put(&names, &1, "ada").await?;
    ///         transaction.put(&names, &1, "grace").await?;
    ///         assert_eq!(transaction.get(&names, &1).await?.as_deref(), Some("grace"));
    ///         transaction.commit().await?;
    ///         Ok(())
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`Transaction::put`] and [`InteractiveTransaction::step`].
    pub async fn put<K, V>(&self, table: &Table<K, V>, key: &K, value: &V::Input) -> Result<()>
    where
        K: TableKey + ?Sized,
        V: Value + ?Sized,
    {
        self.write(EncodedWrite::put(table, key, value)).await.map(drop)
    }

    /// Gives a record a new value. See [`Transaction::update`].
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let db = Database::in_memory(Options::default().workers(1))?;
    ///         let names: Table<u64, str> = db.create_table("names").await?;
    ///         let transaction = db.begin().await?;
    ///         let missing = transaction.update(&names, &1, "ada").await;
    ///         assert!(matches!(missing, Err(Error::KeyNotFound(_))));
    ///         transaction.insert(&names, &1, "ada").await?;
    ///         transaction.update(&names, &1, "grace").await?;
    ///         transaction.commit().await?;
    ///         Ok(())
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`Transaction::update`] and [`InteractiveTransaction::step`].
    pub async fn update<K, V>(&self, table: &Table<K, V>, key: &K, value: &V::Input) -> Result<()>
    where
        K: TableKey + ?Sized,
        V: Value + ?Sized,
    {
        self.write(EncodedWrite::update(table, key, value)).await.map(drop)
    }

    /// Deletes a record; `false` if it did not exist. See [`Transaction::delete`].
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let db = Database::in_memory(Options::default().workers(1))?;
    ///         let names: Table<u64, str> = db.create_table("names").await?;
    ///         let transaction = db.begin().await?;
    ///         transaction.put(&names, &1, "ada").await?;
    ///         assert!(transaction.delete(&names, &1).await?);
    ///         assert!(!transaction.delete(&names, &1).await?);
    ///         transaction.commit().await?;
    ///         Ok(())
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`Transaction::delete`] and [`InteractiveTransaction::step`].
    pub async fn delete<K, V>(&self, table: &Table<K, V>, key: &K) -> Result<bool>
    where
        K: TableKey + ?Sized,
        V: Value + ?Sized,
    {
        self.write(EncodedWrite::delete(table, key)).await
    }

    async fn write(&self, write: Result<EncodedWrite>) -> Result<bool> {
        let write = write?;
        self.step(async move |tx: &Transaction| write.run(tx).await).await
    }

    /// The records of a range, at most `limit`, in key order or in reverse.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let db = Database::in_memory(Options::default().workers(1))?;
    ///         let names: Table<u64, str> = db.create_table("names").await?;
    ///         let transaction = db.begin().await?;
    ///         for key in 0..10 {
    ///             transaction.put(&names, &key, "ada").await?;
    ///         }
    ///         let last = transaction.scan(&names, ..8, true, 2).await?;
    ///         assert_eq!(last, [(7, "ada".to_owned()), (6, "ada".to_owned())]);
    ///         transaction.commit().await?;
    ///         Ok(())
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`Transaction::scan`] and [`InteractiveTransaction::step`].
    pub async fn scan<K, V>(
        &self,
        table: &Table<K, V>,
        range: impl KeyRange<K>,
        reverse: bool,
        limit: u64,
    ) -> Result<Vec<(K::Decoded, V::Owned)>>
    where
        K: TableKey + ?Sized,
        V: Value + ?Sized,
    {
        let (table, bounds) = (table.stored(), encode_range(&range));
        self.step(async move |tx: &Transaction| {
            tx.collect_range(&table, bounds, reverse, limit).await
        })
        .await
    }
}
