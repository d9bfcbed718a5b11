//! Transactions of one operation each.

use std::borrow::Borrow;
use std::future::Future;

use super::encode::{check_key, encode_checked};
use super::error::Result;
use super::handle::Database;
use super::table::Table;
use super::transaction::Transaction;
use super::write::EncodedWrite;
use crate::memory::Buffer;
use crate::sched::engine_code;
use crate::types::{TableKey, Value};

impl Database {
    /// Returns the value of `key`, in a separate transaction. If the record is in memory, committed
    /// and durable, the thread that polls the future reads it itself, and decodes the value.
    /// Otherwise a worker does.
    ///
    /// Like every single-operation method, it encodes keys, values and arguments immediately, so
    /// the future borrows nothing. The exception is a key type that borrows ([`TableKey`]): then
    /// the type of the future borrows too. To spawn such a future, let it own the text: `async move
    /// { db.get(&table, &(&*name, 7)).await }`.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let db = Database::in_memory(Options::default().workers(1))?;
    ///         let cities: Table<str, u64> = db.create_table("cities").await?;
    ///         db.put(&cities, "Ljubljana", &285_604).await?;
    ///         assert_eq!(db.get(&cities, "Ljubljana").await?, Some(285_604));
    ///         assert!(db.delete(&cities, "Ljubljana").await?);
    ///         assert!(!db.contains(&cities, "Ljubljana").await?);
    ///         Ok(())
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`Transaction::get`] and [`Database::run`].
    pub fn get<K, V>(
        &self,
        table: &Table<K, V>,
        key: &K,
    ) -> impl Future<Output = Result<Option<V::Owned>>> + Send + use<K, V>
    where
        K: TableKey + ?Sized,
        V: Value + ?Sized,
    {
        let (db, table, key) = (self.clone(), table.stored(), encode_checked(key));
        async move {
            let key = key?;
            let decode = |value: &[u8]| Ok(V::into_owned(V::decode(value)?));
            if let Some(result) = db.read_as_guest(&table.core, &key, decode).await {
                return result;
            }
            let body = async move |tx: &Transaction| tx.get_owned(&table, &key).await;
            Ok(db.transaction().read_only(true).run(body).await?.value)
        }
    }

    /// Returns the number of records in a table without visiting them. The number is exact, except
    /// that a transaction which is committing may be counted partly. [`Transaction::count`] counts
    /// the records of one snapshot, and visits all of them. If the table's records expire, this
    /// method visits them too.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let db = Database::in_memory(Options::default().workers(1))?;
    ///         let cities: Table<str, u64> = db.create_table("cities").await?;
    ///         db.put(&cities, "Ljubljana", &285_604).await?;
    ///         db.put(&cities, "Ljubljana", &285_605).await?;
    ///         assert_eq!(db.len(&cities).await?, 1);
    ///         Ok(())
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`Transaction::count`] and [`Database::run`].
    pub fn len<K, V>(
        &self,
        table: &Table<K, V>,
    ) -> impl Future<Output = Result<u64>> + Send + use<K, V>
    where
        K: TableKey + ?Sized,
        V: Value + ?Sized,
    {
        let (db, table) = (self.clone(), table.stored());
        async move {
            let body = async move |tx: &Transaction| tx.len_now(&table).await;
            Ok(db.transaction().read_only(true).run(body).await?.value)
        }
    }

    /// Returns whether a table is empty, in a separate transaction.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let db = Database::in_memory(Options::default().workers(1))?;
    ///         let cities: Table<str, u64> = db.create_table("cities").await?;
    ///         assert!(db.is_empty(&cities).await?);
    ///         Ok(())
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`Transaction::is_empty`] and [`Database::run`].
    pub fn is_empty<K, V>(
        &self,
        table: &Table<K, V>,
    ) -> impl Future<Output = Result<bool>> + Send + use<K, V>
    where
        K: TableKey + ?Sized,
        V: Value + ?Sized,
    {
        let (db, table) = (self.clone(), table.stored());
        async move {
            let body = async move |tx: &Transaction| tx.is_empty(&table).await;
            Ok(db.transaction().read_only(true).run(body).await?.value)
        }
    }

    /// Returns whether a record with this key exists, in a separate transaction.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let db = Database::in_memory(Options::default().workers(1))?;
    ///         let cities: Table<str, u64> = db.create_table("cities").await?;
    ///         db.put(&cities, "Ljubljana", &285_604).await?;
    ///         assert!(
    ///             db.contains(&cities, "Ljubljana").await?
    ///                 && !db.contains(&cities, "Ljublana").await?
    ///         );
    ///         Ok(())
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`Transaction::contains`] and [`Database::run`].
    pub fn contains<K, V>(
        &self,
        table: &Table<K, V>,
        key: &K,
    ) -> impl Future<Output = Result<bool>> + Send + use<K, V>
    where
        K: TableKey + ?Sized,
        V: Value + ?Sized,
    {
        let (db, table, key) = (self.clone(), table.stored(), encode_checked(key));
        async move {
            let key = key?;
            if let Some(result) = db.read_as_guest(&table.core, &key, |_| Ok(())).await {
                return result.map(|found| found.is_some());
            }
            let body = async move |tx: &Transaction| {
                let records = tx.records(&table)?;
                check_key(records, &key)?;
                Ok(engine_code(tx.core().contains(records, &key)).await?)
            };
            Ok(db.transaction().read_only(true).run(body).await?.value)
        }
    }

    /// Inserts a new record, in a separate transaction.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let db = Database::in_memory(Options::default().workers(1))?;
    ///         let cities: Table<str, u64> = db.create_table("cities").await?;
    ///         db.insert(&cities, "Ljubljana", &285_604).await?;
    ///         assert!(matches!(db.insert(&cities, "Ljubljana", &0).await, Err(Error::KeyExists(_))));
    ///         Ok(())
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`Transaction::insert`] and [`Database::run`].
    pub fn insert<K, V>(
        &self,
        table: &Table<K, V>,
        key: &K,
        value: &V::Input,
    ) -> impl Future<Output = Result<()>> + Send + use<K, V>
    where
        K: TableKey + ?Sized,
        V: Value + ?Sized,
    {
        let write = self.write(EncodedWrite::insert(table, key, value));
        async move { write.await.map(drop) }
    }

    /// Inserts a record or replaces its value, in a separate transaction. Like [`Database::insert`],
    /// [`Database::update`] and [`Database::delete`], it writes on the thread that polls the future, if
    /// the result need not wait for the log ([`Durability`](crate::Durability)), and nothing else is
    /// waited for. Otherwise a worker writes.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let db = Database::in_memory(Options::default().workers(1))?;
    ///         let cities: Table<str, u64> = db.create_table("cities").await?;
    ///         db.put(&cities, "Ljubljana", &285_604).await?;
    ///         db.put(&cities, "Ljubljana", &285_605).await?;
    ///         assert_eq!(db.get(&cities, "Ljubljana").await?, Some(285_605));
    ///         Ok(())
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`Transaction::put`] and [`Database::run`].
    pub fn put<K, V>(
        &self,
        table: &Table<K, V>,
        key: &K,
        value: &V::Input,
    ) -> impl Future<Output = Result<()>> + Send + use<K, V>
    where
        K: TableKey + ?Sized,
        V: Value + ?Sized,
    {
        let write = self.write(EncodedWrite::put(table, key, value));
        async move { write.await.map(drop) }
    }

    /// Replaces the value of an existing record, in a separate transaction.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let db = Database::in_memory(Options::default().workers(1))?;
    ///         let cities: Table<str, u64> = db.create_table("cities").await?;
    ///         assert!(matches!(
    ///             db.update(&cities, "Ljubljana", &1).await,
    ///             Err(Error::KeyNotFound(_))
    ///         ));
    ///         db.put(&cities, "Ljubljana", &285_604).await?;
    ///         db.update(&cities, "Ljubljana", &285_605).await?;
    ///         Ok(())
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`Transaction::update`] and [`Database::run`].
    pub fn update<K, V>(
        &self,
        table: &Table<K, V>,
        key: &K,
        value: &V::Input,
    ) -> impl Future<Output = Result<()>> + Send + use<K, V>
    where
        K: TableKey + ?Sized,
        V: Value + ?Sized,
    {
        let write = self.write(EncodedWrite::update(table, key, value));
        async move { write.await.map(drop) }
    }

    /// Deletes a record, in a separate transaction. Returns `false` if the record does not exist.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let db = Database::in_memory(Options::default().workers(1))?;
    ///         let cities: Table<str, u64> = db.create_table("cities").await?;
    ///         db.put(&cities, "Ljubljana", &285_604).await?;
    ///         assert!(db.delete(&cities, "Ljubljana").await?);
    ///         assert!(!db.delete(&cities, "Ljubljana").await?);
    ///         Ok(())
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`Transaction::delete`] and [`Database::run`].
    pub fn delete<K, V>(
        &self,
        table: &Table<K, V>,
        key: &K,
    ) -> impl Future<Output = Result<bool>> + Send + use<K, V>
    where
        K: TableKey + ?Sized,
        V: Value + ?Sized,
    {
        self.write(EncodedWrite::delete(table, key))
    }

    /// Replaces the value of a record with the result of `change` for the current value, in a
    /// separate transaction. Returns `false` if the record does not exist. After a conflict,
    /// `change` is called again with the new current value.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let db = Database::in_memory(Options::default().workers(1))?;
    ///         let visits: Table<str, u64> = db.create_table("visits").await?;
    ///         db.put(&visits, "home", &1).await?;
    ///         assert!(db.update_with(&visits, "home", |count| count + 1).await?);
    ///         assert_eq!(db.get(&visits, "home").await?, Some(2));
    ///         Ok(())
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`Transaction::update_with`] and [`Database::run`].
    pub fn update_with<K, V, T, F>(
        &self,
        table: &Table<K, V>,
        key: &K,
        change: F,
    ) -> impl Future<Output = Result<bool>> + Send + use<K, V, T, F>
    where
        K: TableKey + ?Sized,
        V: Value + ?Sized,
        T: Borrow<V::Input>,
        F: Fn(V::Ref<'_>) -> T + Send + 'static,
    {
        let (db, table, key) = (self.clone(), table.stored(), encode_checked(key));
        async move {
            let key = key?;
            db.run(async move |tx| tx.update_with_encoded(&table, &key, &change).await).await
        }
    }

    /// Replaces a record with the result of `change`, in a separate transaction, and returns the
    /// previous value. `change` receives `None` if the record does not exist, and returns `None` to
    /// delete it. After a conflict, it is called again with the new current value.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let db = Database::in_memory(Options::default().workers(1))?;
    ///         let visits: Table<str, u64> = db.create_table("visits").await?;
    ///         let one_more = |count: Option<u64>| Some(count.unwrap_or(0) + 1);
    ///         assert_eq!(db.fetch_update(&visits, "home", one_more).await?, None);
    ///         assert_eq!(db.fetch_update(&visits, "home", one_more).await?, Some(1));
    ///         Ok(())
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`Transaction::fetch_update`] and [`Database::run`].
    pub fn fetch_update<K, V, T, F>(
        &self,
        table: &Table<K, V>,
        key: &K,
        change: F,
    ) -> impl Future<Output = Result<Option<V::Owned>>> + Send + use<K, V, T, F>
    where
        K: TableKey + ?Sized,
        V: Value + ?Sized,
        T: Borrow<V::Input>,
        F: Fn(Option<V::Ref<'_>>) -> Option<T> + Send + 'static,
    {
        let (db, table, key) = (self.clone(), table.stored(), encode_checked(key));
        async move {
            let key = key?;
            db.run(async move |tx| tx.fetch_update_encoded(&table, &key, &change).await).await
        }
    }

    /// Replaces the value of a record if the current value equals the expected one, like
    /// [`Transaction::compare_and_set`], in a separate transaction. Otherwise changes nothing and
    /// returns `false`.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let db = Database::in_memory(Options::default().workers(1))?;
    ///         let leader: Table<str, str> = db.create_table("leader").await?;
    ///         assert!(db.compare_and_set(&leader, "shard 7", None, Some("a")).await?);
    ///         assert!(!db.compare_and_set(&leader, "shard 7", None, Some("b")).await?);
    ///         assert_eq!(db.get(&leader, "shard 7").await?.as_deref(), Some("a"));
    ///         Ok(())
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`Transaction::compare_and_set`] and [`Database::run`].
    pub fn compare_and_set<K, V>(
        &self,
        table: &Table<K, V>,
        key: &K,
        expected: Option<&V::Input>,
        value: Option<&V::Input>,
    ) -> impl Future<Output = Result<bool>> + Send + use<K, V>
    where
        K: TableKey + ?Sized,
        V: Value + ?Sized,
    {
        let encode = |value: Option<&V::Input>| -> Result<Option<Buffer>> {
            Ok(value.map(V::encode).transpose()?.map(|value| Buffer::from(&*value)))
        };
        let (db, table) = (self.clone(), table.stored());
        let (key, expected, value) = (encode_checked(key), encode(expected), encode(value));
        async move {
            let (key, expected, value) = (key?, expected?, value?);
            let body = async move |tx: &Transaction| {
                let (expected, value) = (expected.as_deref(), value.as_deref());
                tx.compare_and_set_encoded(&table, &key, expected, value).await
            };
            db.run(body).await
        }
    }

    /// Runs a write in a separate transaction. Returns `false` for the deletion of a record that
    /// does not exist.
    fn write(
        &self,
        write: Result<EncodedWrite>,
    ) -> impl Future<Output = Result<bool>> + Send + use<> {
        let db = self.clone();
        async move {
            let write = write?;
            if let Some(written) = db.write_as_guest(&write).await {
                return Ok(written);
            }
            db.run(async move |tx| write.run(tx).await).await
        }
    }
}
