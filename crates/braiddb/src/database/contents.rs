//! Number and size of a table's records, in memory and on disk.

use serde::Serialize;

use super::blocking::refuse_on_worker;
use super::error::Result;
use super::handle::Database;
use super::table::Table;
use crate::record::Contents;
use crate::transaction::count_contents;
use crate::types::{TableKey, Value};

/// The number of records of a table, the size of their values, and where they are stored.
///
/// The counts include expired records that are not yet deleted. In a table whose records expire,
/// each value takes 8 bytes more than the user's value
/// ([`TableOptions::ttl`](crate::TableOptions::ttl)).
///
/// ```
/// use braiddb::{Database, Error, Options, Table, block_on};
///
/// fn main() -> Result<(), Error> {
///     block_on(async {
///         let db = Database::in_memory(Options::default().workers(1))?;
///         let names: Table<u64, str> = db.create_table("names").await?;
///         db.put(&names, &1, "ada").await?;
///         let contents = db.table_contents(&names).await?;
///         assert_eq!((contents.records(), contents.bytes(), contents.hot_share()), (1, 3, 1.0));
///         Ok(())
///     })
/// }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct TableContents {
    /// Records whose values are in memory. In a paged table, all records on resident pages.
    pub hot_records: u64,
    /// Bytes of these values.
    pub hot_bytes: u64,
    /// Records whose values are only on disk.
    pub cold_records: u64,
    /// Approximate bytes of these values. Counting reads nothing from disk, so each size is rounded
    /// up to a multiple of 8, or by up to a thousandth.
    pub cold_bytes: u64,
}

impl TableContents {
    /// Returns the number of all records.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let db = Database::in_memory(Options::default().workers(1))?;
    ///         let names: Table<u64, str> = db.create_table("names").await?;
    ///         db.put(&names, &1, "ada").await?;
    ///         db.put(&names, &2, "bob").await?;
    ///         assert_eq!(db.table_contents(&names).await?.records(), 2);
    ///         Ok(())
    ///     })
    /// }
    /// ```
    #[must_use]
    pub fn records(&self) -> u64 {
        self.hot_records + self.cold_records
    }

    /// Returns the approximate bytes of all values.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let db = Database::in_memory(Options::default().workers(1))?;
    ///         let names: Table<u64, str> = db.create_table("names").await?;
    ///         db.put(&names, &1, "ada").await?;
    ///         db.put(&names, &2, "grace").await?;
    ///         assert_eq!(db.table_contents(&names).await?.bytes(), 8);
    ///         Ok(())
    ///     })
    /// }
    /// ```
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.hot_bytes + self.cold_bytes
    }

    /// Returns the fraction of records whose values are in memory, from 0 to 1; 1 for an empty
    /// table.
    ///
    /// ```
    /// use braiddb::stats::TableContents;
    ///
    /// let mut contents = TableContents::default();
    /// assert_eq!(contents.hot_share(), 1.0);
    /// (contents.hot_records, contents.cold_records) = (1, 3);
    /// assert_eq!(contents.hot_share(), 0.25);
    /// ```
    #[must_use]
    pub fn hot_share(&self) -> f64 {
        if self.records() == 0 { 1.0 } else { self.hot_records as f64 / self.records() as f64 }
    }
}

impl From<Contents> for TableContents {
    fn from(Contents { hot, hot_bytes, cold, cold_bytes }: Contents) -> Self {
        Self { hot_records: hot, hot_bytes, cold_records: cold, cold_bytes }
    }
}

impl Database {
    /// Counts the records and value bytes of a table by visiting every record, while transactions
    /// run. It reads from disk only for a paged table whose pages are there. Concurrent writes may
    /// be counted or not. One worker visits a few million records per second, in steps that let
    /// transactions run between them.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let db = Database::in_memory(Options::default().workers(1))?;
    ///         let cities: Table<str, str> = db.create_table("cities").await?;
    ///         db.put(&cities, "MBX", "Maribor").await?;
    ///         let contents = db.table_contents(&cities).await?;
    ///         assert_eq!((contents.records(), contents.bytes(), contents.hot_share()), (1, 7, 1.0));
    ///         Ok(())
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// [`Misuse::WouldBlock`](crate::Misuse) if called within a transaction;
    /// [`Misuse::ForeignTable`](crate::Misuse); the errors of [`Database::run`].
    pub async fn table_contents<K, V>(&self, table: &Table<K, V>) -> Result<TableContents>
    where
        K: TableKey + ?Sized,
        V: Value + ?Sized,
    {
        refuse_on_worker()?;
        if !self.shared.engine.owns(&table.core) {
            return Err(super::Error::Misuse(super::Misuse::ForeignTable(table.name().to_owned())));
        }
        let records = table.core.clone();
        Ok(self.on_worker(async move || count_contents(&records).await).await?.into())
    }
}
