//! Making and opening tables without a transaction of one's own.

use super::Database;
use super::catalog::{TableDescription, TableOptions};
use super::error::Result;
use super::table::Table;
use crate::types::{TableKey, Value};

impl Database {
    /// Creates a table, in a transaction of its own.
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

    /// Creates a table with options, in a transaction of its own.
    ///
    /// ```
    /// use braiddb::{Database, Options, Table, TableOptions};
    ///
    /// # pollster::block_on(async {
    /// let db = Database::in_memory(Options::default().workers(1))?;
    /// let paged = TableOptions::default().paged();
    /// let measured: Table<u64, u64> = db.create_table_with("measured", paged).await?;
    /// db.put(&measured, &1, &5).await?;
    /// # Ok::<_, braiddb::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// As [`Transaction::create_table_with`](crate::Transaction::create_table_with) and [`Database::run`].
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

    /// Opens a table, in a transaction of its own.
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

    /// Opens a table, or creates it, in a transaction of its own.
    ///
    /// # Errors
    /// As [`Transaction::open_or_create_table`](crate::Transaction::open_or_create_table) and [`Database::run`].
    pub async fn open_or_create_table<K, V>(&self, name: &str) -> Result<Table<K, V>>
    where
        K: TableKey + ?Sized + 'static,
        V: Value + ?Sized,
    {
        self.open_or_create_table_with(name, TableOptions::default()).await
    }

    /// Opens a table, or creates it with options, in a transaction of its own; one that is there keeps its own options.
    ///
    /// # Errors
    /// As [`Transaction::open_or_create_table_with`](crate::Transaction::open_or_create_table_with) and [`Database::run`].
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

    /// The tables there are, in the order of their names.
    ///
    /// # Errors
    /// As [`Transaction::tables`](crate::Transaction::tables) and [`Database::run`].
    pub async fn tables(&self) -> Result<Vec<TableDescription>> {
        self.run(async |tx| tx.tables().await).await
    }
}
