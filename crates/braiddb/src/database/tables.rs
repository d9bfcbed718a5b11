//! Creating and opening tables in separate transactions.

use super::error::Result;
use super::handle::Database;
use super::table::Table;
use super::table_description::TableDescription;
use super::table_options::TableOptions;
use crate::types::{TableKey, Value};

impl Database {
    /// Creates a table, in a separate transaction.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let db = Database::in_memory(Options::default().workers(1))?;
    ///         let cities: Table<str, u64> = db.create_table("cities").await?;
    ///         assert!(matches!(
    ///             db.create_table::<str, u64>("cities").await,
    ///             Err(Error::TableExists(_))
    ///         ));
    ///         assert!(db.is_empty(&cities).await?);
    ///         Ok(())
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`Transaction::create_table`](crate::Transaction::create_table) and [`Database::run`].
    pub async fn create_table<K, V>(&self, name: &str) -> Result<Table<K, V>>
    where
        K: TableKey + ?Sized + 'static,
        V: Value + ?Sized,
    {
        self.create_table_with(name, TableOptions::default()).await
    }

    /// Creates a table with options, in a separate transaction.
    ///
    /// ```
    /// use braiddb::{Database, Options, Table, TableOptions, block_on};
    ///
    /// fn main() -> Result<(), braiddb::Error> {
    ///     block_on(async {
    ///         let db = Database::in_memory(Options::default().workers(1))?;
    ///         let paged = TableOptions::default().paged();
    ///         let measured: Table<u64, u64> = db.create_table_with("measured", paged).await?;
    ///         db.put(&measured, &1, &5).await?;
    ///         Ok(())
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`Transaction::create_table_with`](crate::Transaction::create_table_with) and
    /// [`Database::run`].
    pub async fn create_table_with<K, V>(
        &self,
        name: &str,
        options: TableOptions,
    ) -> Result<Table<K, V>>
    where
        K: TableKey + ?Sized + 'static,
        V: Value + ?Sized,
    {
        let name = name.to_owned();
        self.run(async move |tx| tx.create_table_with(&name, options).await).await
    }

    /// Opens a table, in a separate transaction.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let db = Database::in_memory(Options::default().workers(1))?;
    ///         db.create_table::<str, u64>("cities").await?;
    ///         let cities: Table<str, u64> = db.open_table("cities").await?;
    ///         // Opening it with other types fails.
    ///         assert!(db.open_table::<u64, u64>("cities").await.is_err());
    ///         assert!(db.is_empty(&cities).await?);
    ///         Ok(())
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`Transaction::open_table`](crate::Transaction::open_table) and [`Database::run`].
    pub async fn open_table<K, V>(&self, name: &str) -> Result<Table<K, V>>
    where
        K: TableKey + ?Sized + 'static,
        V: Value + ?Sized,
    {
        let name = name.to_owned();
        self.run(async move |tx| tx.open_table(&name).await).await
    }

    /// Opens a table, or creates it if it does not exist, in a separate transaction.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let db = Database::in_memory(Options::default().workers(1))?;
    ///         let cities: Table<str, u64> = db.open_or_create_table("cities").await?;
    ///         let again: Table<str, u64> = db.open_or_create_table("cities").await?;
    ///         db.put(&cities, "Ljubljana", &285_604).await?;
    ///         assert_eq!(db.len(&again).await?, 1);
    ///         Ok(())
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`Transaction::open_or_create_table`](crate::Transaction::open_or_create_table) and
    /// [`Database::run`].
    pub async fn open_or_create_table<K, V>(&self, name: &str) -> Result<Table<K, V>>
    where
        K: TableKey + ?Sized + 'static,
        V: Value + ?Sized,
    {
        self.open_or_create_table_with(name, TableOptions::default()).await
    }

    /// Opens a table, or creates it with these options if it does not exist, in a separate
    /// transaction. An existing table keeps its options.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use braiddb::{Database, Error, Options, Table, TableOptions, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let db = Database::in_memory(Options::default().workers(1))?;
    ///         let options = TableOptions::default().ttl(Duration::from_hours(1));
    ///         let sessions: Table<str, str> =
    ///             db.open_or_create_table_with("sessions", options).await?;
    ///         assert!(db.is_empty(&sessions).await?);
    ///         Ok(())
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`Transaction::open_or_create_table_with`](crate::Transaction::open_or_create_table_with)
    /// and [`Database::run`].
    pub async fn open_or_create_table_with<K, V>(
        &self,
        name: &str,
        options: TableOptions,
    ) -> Result<Table<K, V>>
    where
        K: TableKey + ?Sized + 'static,
        V: Value + ?Sized,
    {
        let name = name.to_owned();
        self.run(async move |tx| tx.open_or_create_table_with(&name, options).await).await
    }

    /// Returns all tables, sorted by name.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let db = Database::in_memory(Options::default().workers(1))?;
    ///         db.create_table::<(String, u64), u64>("b").await?;
    ///         db.create_table::<u64, str>("a").await?;
    ///         let tables = db.tables().await?;
    ///         let types =
    ///             tables.iter().map(|table| (&*table.name, &*table.key_type, &*table.value_type));
    ///         assert!(types.eq([("a", "u64", "str"), ("b", "(str, u64)", "u64")]));
    ///         Ok(())
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`Transaction::tables`](crate::Transaction::tables) and [`Database::run`].
    pub async fn tables(&self) -> Result<Vec<TableDescription>> {
        self.run(async |tx| tx.tables().await).await
    }
}
