//! Staged tables: filled by many transactions while invisible, and published by one.
//!
//! Until it is published, a staged table has no name, and is listed in the catalog like a dropped
//! table (`drop.rs`). After a crash, or if it is never published, the next opening therefore
//! deletes its records. A reader that opens tables by name finds either the complete table or none.

use super::blocking::refuse_on_worker;
use super::catalog::{check_name, name_key, type_name};
use super::drop::drop_staged;
use super::dropped_row::DroppedTable;
use super::error::{Error, MissingTable, Result};
use super::handle::Database;
use super::table::Table;
use super::table_description::TableDescription;
use super::table_options::TableOptions;
use super::transaction::Transaction;
use crate::rid::TableId;
use crate::sched::engine_code;
use crate::transaction::{OperationError, WriteIntent};
use crate::types::{Key, Value, ValueShape};

/// A table that is invisible under its name while it is filled, until it is published. It allows an
/// atomic load of more data than fits into one transaction.
///
/// Dropping this value leaves the table unpublished. The next opening of the database deletes its
/// records.
///
/// ```
/// use braiddb::{Database, Error, Options, block_on};
///
/// fn main() -> Result<(), Error> {
///     block_on(async {
///         let db = Database::in_memory(Options::default().workers(1))?;
///         let staged = db.stage_table::<u64, str>("cities").await?;
///         for (code, name) in [(1000, "Ljubljana"), (2000, "Maribor")] {
///             db.put(staged.table(), &code, name).await?;
///         }
///         let cities = staged.publish().await?;
///         assert_eq!(db.len(&cities).await?, 2);
///
///         let given_up = db.stage_table::<u64, str>("streets").await?;
///         db.put(given_up.table(), &1, "Slovenska").await?;
///         given_up.discard().await?;
///         Ok(())
///     })
/// }
/// ```
#[derive(Debug)]
#[must_use = "a staged table must be published or discarded"]
pub struct StagedTable<K: ?Sized, V: ?Sized> {
    db: Database,
    table: Table<K, V>,
    description: TableDescription,
}

impl Database {
    /// Creates a staged table, to be published under `name`.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let db = Database::in_memory(Options::default().workers(1))?;
    ///         let staged = db.stage_table::<u64, str>("cities").await?;
    ///         db.put(staged.table(), &1000, "Ljubljana").await?;
    ///         assert!(db.tables().await?.is_empty());
    ///         let cities = staged.publish().await?;
    ///         assert_eq!(db.get(&cities, &1000).await?.as_deref(), Some("Ljubljana"));
    ///         Ok(())
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// [`Misuse::TableName`](crate::Misuse); [`Error::TableExists`]; the errors of [`Database::run`].
    pub async fn stage_table<K, V>(&self, name: &str) -> Result<StagedTable<K, V>>
    where
        K: Key + ?Sized,
        V: Value + ?Sized,
    {
        self.stage_table_with(name, TableOptions::default()).await
    }

    /// Works like [`Database::stage_table`], with options.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, TableOptions, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let db = Database::in_memory(Options::default().workers(1))?;
    ///         let paged = TableOptions::default().paged();
    ///         let staged = db.stage_table_with::<u64, str>("cities", paged).await?;
    ///         db.put(staged.table(), &1000, "Ljubljana").await?;
    ///         let cities = staged.publish().await?;
    ///         assert_eq!(db.len(&cities).await?, 1);
    ///         Ok(())
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`Database::stage_table`]; [`Error::Options`];
    /// [`Misuse::NeedsReadValidation`](crate::Misuse).
    pub async fn stage_table_with<K, V>(
        &self,
        name: &str,
        options: TableOptions,
    ) -> Result<StagedTable<K, V>>
    where
        K: Key + ?Sized,
        V: Value + ?Sized,
    {
        V::check()?;
        let shapes = V::shape().into_iter().collect();
        self.stage_described(name, [K::type_name(), V::type_name()], shapes, options).await
    }

    /// Begins a table of any types, for programs that know the types only by their names in the
    /// catalog. Its keys and values are given in their stored encoding, and must be valid encodings
    /// of those types ([`Transaction::open_encoded_table`]).
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table, TableOptions, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let db = Database::in_memory(Options::default().workers(1))?;
    ///         let staged =
    ///             db.stage_encoded_table("cities", "u64", "str", TableOptions::default()).await?;
    ///         staged.load([(&1000_u64.to_be_bytes()[..], &b"Ljubljana"[..])], |_| {}).await?;
    ///         staged.publish().await?;
    ///         let cities: Table<u64, str> = db.open_table("cities").await?;
    ///         assert_eq!(db.get(&cities, &1000).await?.as_deref(), Some("Ljubljana"));
    ///         Ok(())
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`Database::stage_table_with`].
    pub async fn stage_encoded_table(
        &self,
        name: &str,
        key_type: &str,
        value_type: &str,
        options: TableOptions,
    ) -> Result<StagedTable<[u8], [u8]>> {
        let types = [key_type, value_type].map(str::to_owned);
        self.stage_described(name, types, Vec::new(), options).await
    }

    async fn stage_described<K, V>(
        &self,
        name: &str,
        [key_type, value_type]: [String; 2],
        shapes: Vec<ValueShape>,
        options: TableOptions,
    ) -> Result<StagedTable<K, V>>
    where
        K: Key + ?Sized,
        V: Value + ?Sized,
    {
        check_name(name)?;
        let (key_type, value_type) = (type_name(key_type)?, type_name(value_type)?);
        let name = name.to_owned();
        let wanted = TableDescription { name, id: 0, key_type, value_type, shapes, options };
        wanted.options.check(&self.shared.engine)?;
        let staged = wanted.clone();
        let (table, id) = self.run(async move |tx| tx.stage(&staged).await).await?;
        let description = TableDescription { id, ..wanted };
        Ok(StagedTable { db: self.clone(), table, description })
    }
}

impl<K: Key + ?Sized, V: Value + ?Sized> StagedTable<K, V> {
    /// Returns the table handle for the transactions that fill it. Their commits are visible
    /// through this handle and its clones.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let db = Database::in_memory(Options::default().workers(1))?;
    ///         let staged = db.stage_table::<u64, str>("cities").await?;
    ///         db.run_on(staged.table(), async |tx, cities| {
    ///             tx.insert(cities, &1000, "Ljubljana").await
    ///         })
    ///         .await?;
    ///         assert_eq!(db.len(staged.table()).await?, 1);
    ///         staged.discard().await?;
    ///         Ok(())
    ///     })
    /// }
    /// ```
    pub fn table(&self) -> &Table<K, V> {
        &self.table
    }

    /// Publishes the table under its name, in a separate transaction. All commits to the table
    /// become visible together. Existing handles of the table stay valid.
    ///
    /// If another table has this name by now, the staged table is discarded. After any other error
    /// the table is still staged, and the call may be repeated. If the future is dropped, the table
    /// may be published or not.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let db = Database::in_memory(Options::default().workers(1))?;
    ///         let staged = db.stage_table::<u64, str>("cities").await?;
    ///         db.put(staged.table(), &1000, "Ljubljana").await?;
    ///         assert!(matches!(
    ///             db.open_table::<u64, str>("cities").await,
    ///             Err(Error::TableNotFound(_))
    ///         ));
    ///         staged.publish().await?;
    ///         let cities = db.open_table::<u64, str>("cities").await?;
    ///         assert_eq!(db.len(&cities).await?, 1);
    ///         Ok(())
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// [`Error::TableExists`]; [`Error::TableNotFound`] if it was discarded; [`Misuse::WouldBlock`](crate::Misuse)
    /// if called within a transaction; the errors of [`Database::run`].
    pub async fn publish(&self) -> Result<Table<K, V>> {
        refuse_on_worker()?;
        let (dropped, description) = (self.dropped(), self.description.clone());
        let publish = async move |tx: &Transaction| tx.publish(&dropped, &description).await;
        match self.db.run(publish).await {
            Ok(()) => Ok(self.table.clone()),
            Err(error @ Error::TableExists(_)) => {
                if let Err(failed) = self.discard().await {
                    tracing::warn!(
                        "cannot delete a staged table now; the next opening deletes it: {failed}"
                    );
                }
                Err(error)
            }
            Err(error) => Err(error),
        }
    }

    /// Deletes the table with all its records, and returns when that is done. Transactions that use
    /// a handle of it then fail with [`Error::TableNotFound`]. If the future is dropped, the
    /// deletion continues. If the database closes first, the next opening finishes it.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let db = Database::in_memory(Options::default().workers(1))?;
    ///         let staged = db.stage_table::<u64, str>("cities").await?;
    ///         db.put(staged.table(), &1000, "Ljubljana").await?;
    ///         staged.discard().await?;
    ///         assert!(matches!(staged.publish().await, Err(Error::TableNotFound(_))));
    ///         Ok(())
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// [`Misuse::WouldBlock`](crate::Misuse) if called within a transaction, because it would wait for that
    /// transaction; the errors of [`Database::run`].
    pub async fn discard(&self) -> Result<()> {
        refuse_on_worker()?;
        let dropped = self.dropped();
        self.db.on_worker(async move || drop_staged(dropped).await).await
    }

    pub(super) fn database(&self) -> &Database {
        &self.db
    }

    fn dropped(&self) -> DroppedTable {
        let TableDescription { id, name, options, .. } = self.description.clone();
        DroppedTable { id, name, expires: options.ttl.is_some() }
    }
}

impl Transaction {
    /// Creates a table that is listed as dropped. Returns its handle and its number.
    async fn stage<K, V>(&self, wanted: &TableDescription) -> Result<(Table<K, V>, u32)>
    where
        K: Key + ?Sized,
        V: Value + ?Sized,
    {
        if self.describe(&wanted.name).await?.is_some() {
            return Err(Error::TableExists(wanted.name.clone()));
        }
        let catalog = self.catalog();
        let row = |id: TableId| {
            let (name, expires) = (wanted.name.clone(), wanted.options.ttl.is_some());
            let dropped = DroppedTable { id: id.0, name, expires };
            (dropped.key(), dropped.encode())
        };
        let paged = wanted.options.paged;
        let core = engine_code(self.core().create_table(&catalog, row, paged)).await?;
        wanted.options.apply_to(&core, self.engine());
        let id = core.id.0;
        let description = TableDescription { id, ..wanted.clone() };
        Ok((self.handle(&description), id))
    }

    /// Lists a staged table under its name.
    async fn publish(&self, dropped: &DroppedTable, description: &TableDescription) -> Result<()> {
        if !self.touch_dropped(dropped).await? {
            let exists = self.describe(&description.name).await?.is_some();
            let name = description.name.clone();
            return Err(match exists {
                true => Error::TableExists(name),
                false => MissingTable::new(name).into(),
            });
        }
        let row = description.encode();
        match self.write_row(name_key(&description.name), WriteIntent::Insert(&row)).await {
            Err(OperationError::KeyExists(_)) => {
                return Err(Error::TableExists(description.name.clone()));
            }
            inserted => inserted?,
        }
        Ok(self.write_row(&dropped.key(), WriteIntent::Delete).await?)
    }
}
