//! Tables that are filled before anybody sees them: by many transactions, and published by one.
//!
//! Until it is published, a staged table is listed in the catalog as a dropped one is (`drop.rs`), and by no name. So
//! after a crash, or if it is never published, opening the database deletes its records; and whoever opens
//! tables by their names finds it wholly, or not at all.

use super::catalog::{TableDescription, check_name, name_key, type_name};
use super::drop::{DroppedTable, drop_staged};
use super::error::{Error, Result};
use super::table::Table;
use super::table_options::TableOptions;
use super::transaction::Transaction;
use super::{Database, refuse_on_worker};
use crate::rid::TableId;
use crate::sched::engine_code;
use crate::transaction::{OperationError, WriteIntent};
use crate::types::{Key, Value};

/// A table that is being filled, and that nobody finds by its name until it is published: for loading more than
/// fits into one transaction, all of it or nothing.
///
/// Dropping it leaves the table as it is, and unpublished; its records are deleted when the database is opened
/// the next time.
///
/// ```
/// use braiddb::{Database, Error, Options};
///
/// # pollster::block_on(async {
/// let db = Database::in_memory(Options::default().workers(1))?;
/// let staged = db.stage_table::<u64, str>("cities").await?;
/// for (code, name) in [(1000, "Ljubljana"), (2000, "Maribor")] {
///     db.put(staged.table(), &code, name).await?;
/// }
/// let cities = staged.publish().await?;
/// assert_eq!(db.len(&cities).await?, 2);
///
/// let given_up = db.stage_table::<u64, str>("streets").await?;
/// db.put(given_up.table(), &1, "Slovenska").await?;
/// given_up.discard().await?;
/// # Ok::<_, Error>(()) }).unwrap();
/// ```
#[derive(Debug)]
#[must_use = "a staged table is to be published or discarded"]
pub struct StagedTable<K: ?Sized, V: ?Sized> {
    db: Database,
    table: Table<K, V>,
    description: TableDescription,
}

impl Database {
    /// Makes a table that is published under `name` once it is filled.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options};
    ///
    /// # pollster::block_on(async {
    /// let db = Database::in_memory(Options::default().workers(1))?;
    /// let staged = db.stage_table::<u64, str>("cities").await?;
    /// db.put(staged.table(), &1000, "Ljubljana").await?;
    /// assert!(db.tables().await?.is_empty());
    /// let cities = staged.publish().await?;
    /// assert_eq!(db.get(&cities, &1000).await?.as_deref(), Some("Ljubljana"));
    /// # Ok::<_, Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// [`Misuse::TableName`](crate::Misuse); [`Error::TableExists`]; as [`Database::run`].
    pub async fn stage_table<K, V>(&self, name: &str) -> Result<StagedTable<K, V>>
    where
        K: Key + ?Sized,
        V: Value + ?Sized,
    {
        self.stage_table_with(name, TableOptions::default()).await
    }

    /// As [`Database::stage_table`], with options.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, TableOptions};
    ///
    /// # pollster::block_on(async {
    /// let db = Database::in_memory(Options::default().workers(1))?;
    /// let paged = TableOptions::default().paged();
    /// let staged = db.stage_table_with::<u64, str>("cities", paged).await?;
    /// db.put(staged.table(), &1000, "Ljubljana").await?;
    /// let cities = staged.publish().await?;
    /// assert_eq!(db.len(&cities).await?, 1);
    /// # Ok::<_, Error>(()) }).unwrap();
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
        check_name(name)?;
        V::check()?;
        options.check(&self.shared.engine)?;
        let (key_type, value_type) = (type_name(K::type_name())?, type_name(V::type_name())?);
        let name = name.to_owned();
        let wanted = TableDescription { name, id: 0, key_type, value_type, options };
        let staged = wanted.clone();
        let (table, id) = self.run(async move |tx| tx.stage(&staged).await).await?;
        let description = TableDescription { id, ..wanted };
        Ok(StagedTable { db: self.clone(), table, description })
    }
}

impl<K: Key + ?Sized, V: Value + ?Sized> StagedTable<K, V> {
    /// The table, for transactions that fill it. They become visible as any others do, to whoever has
    /// this handle or one that is cloned from it.
    ///
    /// ```
    /// # use braiddb::{Database, Error, Options};
    /// # pollster::block_on(async {
    /// # let db = Database::in_memory(Options::default().workers(1))?;
    /// let staged = db.stage_table::<u64, str>("cities").await?;
    /// db.run_on(staged.table(), async |tx, cities| tx.insert(cities, &1000, "Ljubljana").await).await?;
    /// assert_eq!(db.len(staged.table()).await?, 1);
    /// staged.discard().await?;
    /// # Ok::<_, Error>(()) }).unwrap();
    /// ```
    pub fn table(&self) -> &Table<K, V> {
        &self.table
    }

    /// Lists the table under its name, in a transaction of its own: with it, all that was committed to the
    /// table is there, or nothing of it. Handles of the table stay good. If there is a table of this name by now,
    /// the staged one is discarded; after any other error it is staged still, and this may be tried again. If the
    /// future is dropped, it is published or not.
    ///
    /// ```
    /// # use braiddb::{Database, Error, Options};
    /// # pollster::block_on(async {
    /// # let db = Database::in_memory(Options::default().workers(1))?;
    /// let staged = db.stage_table::<u64, str>("cities").await?;
    /// db.put(staged.table(), &1000, "Ljubljana").await?;
    /// assert!(matches!(db.open_table::<u64, str>("cities").await, Err(Error::TableNotFound(_))));
    /// staged.publish().await?;
    /// let cities = db.open_table::<u64, str>("cities").await?;
    /// assert_eq!(db.len(&cities).await?, 1);
    /// # Ok::<_, Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// [`Error::TableExists`]; [`Error::TableNotFound`] if it was discarded; [`Misuse::WouldBlock`](crate::Misuse) from within a
    /// transaction; as [`Database::run`].
    pub async fn publish(&self) -> Result<Table<K, V>> {
        refuse_on_worker()?;
        let (dropped, description) = (self.dropped(), self.description.clone());
        let publish = async move |tx: &Transaction| tx.publish(&dropped, &description).await;
        match self.db.run(publish).await {
            Ok(()) => Ok(self.table.clone()),
            Err(error @ Error::TableExists(_)) => {
                if let Err(failed) = self.discard().await {
                    tracing::warn!("a staged table is left to the next opening: {failed}");
                }
                Err(error)
            }
            Err(error) => Err(error),
        }
    }

    /// Deletes the table, with all its records, and returns when that is done. Transactions that use a handle of it
    /// fail with [`Error::TableNotFound`] from then on. If the future is dropped, this goes on; if the database is
    /// closed meanwhile, it is done when it is opened the next time.
    ///
    /// ```
    /// # use braiddb::{Database, Error, Options};
    /// # pollster::block_on(async {
    /// # let db = Database::in_memory(Options::default().workers(1))?;
    /// let staged = db.stage_table::<u64, str>("cities").await?;
    /// db.put(staged.table(), &1000, "Ljubljana").await?;
    /// staged.discard().await?;
    /// assert!(matches!(staged.publish().await, Err(Error::TableNotFound(_))));
    /// # Ok::<_, Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// [`Misuse::WouldBlock`](crate::Misuse) from within a transaction, which it would wait for; as [`Database::run`].
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
    /// Makes a table, listed as a dropped one; its handle and its number.
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
        Ok((Table::of_its_types(&wanted.name, core), id))
    }

    /// Lists a staged table by its name.
    async fn publish(&self, dropped: &DroppedTable, description: &TableDescription) -> Result<()> {
        if !self.touch_dropped(dropped).await? {
            let exists = self.describe(&description.name).await?.is_some();
            let name = description.name.clone();
            return Err(if exists { Error::TableExists(name) } else { Error::TableNotFound(name) });
        }
        let row = description.encode();
        match self.write_row(name_key(&description.name), WriteIntent::Insert(&row)).await {
            Err(OperationError::KeyExists) => {
                return Err(Error::TableExists(description.name.clone()));
            }
            inserted => inserted?,
        }
        Ok(self.write_row(&dropped.key(), WriteIntent::Delete).await?)
    }
}
