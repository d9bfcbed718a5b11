//! The catalog: a transactional table that describes all tables.
//!
//! It contains rows of tables (`table_description.rs`), of indexes (`index/row.rs`) and of tables
//! that are being dropped (`dropped_row.rs`).

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

use super::dropped_row::{DroppedTable, is_dropped_key};
use super::error::{Error, Misuse, Result, TypeMismatch};
use super::handle::Database;
use super::index::{IndexDescription, IndexStage, is_row_key};
use super::table::Table;
use super::table_description::TableDescription;
use super::table_options::{TableOptions, paged_needs_read_validation};
use super::transaction::Transaction;
use crate::durability::{self, RecoveredPages};
use crate::page::PageError;
use crate::record;
use crate::rid::{CATALOG, TableId};
use crate::sched::{self, engine_code};
use crate::transaction::{
    CatalogRow, OperationError, ScanBounds, WriteIntent, clear_records, forget_dropped,
};
use crate::types::{DecodeError, KeyBuffer, TableKey, Value, ValueShape};

const MAX_NAME_BYTES: usize = 512;
const RESERVED_PREFIX: &str = "braid.";

/// A row of the catalog, of any kind.
#[derive(Debug)]
pub(super) enum CatalogEntry {
    Table(TableDescription),
    Index(IndexDescription),
    DroppedTable(DroppedTable),
}

impl CatalogEntry {
    /// Returns the id of its table, or of the table with the entries of its index.
    pub(super) fn id(&self) -> u32 {
        match self {
            Self::Table(table) => table.id,
            Self::Index(index) => index.id,
            Self::DroppedTable(table) => table.id,
        }
    }

    pub(super) fn decode(key: &[u8], bytes: &[u8]) -> Result<Self, DecodeError> {
        Ok(match key {
            key if is_row_key(key) => CatalogEntry::Index(IndexDescription::decode(key, bytes)?),
            key if is_dropped_key(key) => {
                CatalogEntry::DroppedTable(DroppedTable::decode(key, bytes)?)
            }
            name => CatalogEntry::Table(TableDescription::decode(name, bytes)?),
        })
    }
}

/// Dropped tables whose deletion had not finished when the database was closed or its process
/// ended.
pub(super) struct UnfinishedDrops {
    /// The tables, and their catalog rows.
    left: Vec<(Arc<record::Records>, CatalogRow)>,
    /// True if the newest checkpoint may reference pages of dropped tables.
    pub(super) had_pages: bool,
}

impl Database {
    /// Registers the catalog's contents with the engine when the database is opened: the table ids
    /// in use (also of empty tables), the paged tables with their recovered pages, and the indexes.
    pub(super) async fn load_catalog(&self, mut pages: RecoveredPages) -> Result<UnfinishedDrops> {
        let no_pages = |error: PageError| Error::from(OperationError::from(error));
        let engine = &self.shared.engine;
        let all = async |tx: &Transaction| {
            let rows = tx.catalog_rows(Bound::Unbounded, Bound::Unbounded).await?;
            Ok((rows, tx.restricted_writer().await?))
        };
        let (rows, writer) = self.run(all).await?;
        engine.write_restriction.set(writer);
        engine.end_recovery_of_tables(rows.iter().map(CatalogEntry::id).collect());
        let (mut indexes, mut paged, mut expiring) = (Vec::new(), BTreeSet::new(), false);
        let mut dropped = UnfinishedDrops { left: Vec::new(), had_pages: false };
        for row in rows {
            match row {
                CatalogEntry::Table(table) => {
                    if table.options.paged && !engine.may_have_pages() {
                        return Err(paged_needs_read_validation());
                    }
                    if table.options.paged {
                        pages.list(engine, TableId(table.id)).map_err(no_pages)?;
                        paged.insert(table.id);
                    }
                    if table.options.ttl.is_some() {
                        table.options.apply_to(&engine.table(TableId(table.id)), engine);
                        expiring = true;
                    }
                }
                CatalogEntry::Index(index) => indexes.push(index),
                CatalogEntry::DroppedTable(table) => {
                    dropped.had_pages |= pages.give_up(TableId(table.id));
                    dropped.left.push(table.catalog_row(engine));
                }
            }
        }
        for index in indexes {
            match index.stage {
                IndexStage::Dropping => {
                    // The row of the index's table may already be deleted.
                    dropped.had_pages |= pages.give_up(TableId(index.id));
                    dropped.left.push(index.catalog_row(engine));
                }
                IndexStage::Building | IndexStage::Ready => {
                    if paged.contains(&index.table_id) {
                        pages.list(engine, TableId(index.id)).map_err(no_pages)?;
                    }
                    index.list(engine);
                }
            }
        }
        if expiring {
            // Wakes a worker, which computes when the next expiry sweep is due.
            self.spawn(|| Box::pin(async {}))?;
        }
        for id in pages.unlisted().map_err(no_pages)? {
            // Records left under this id must not appear in a new table.
            engine.raise_table_id(id);
            tracing::debug!("the log has records of table {}, which is not in the catalog", id.0);
        }
        dropped.had_pages |= pages.has_unlisted();
        Ok(dropped)
    }

    /// Continues deleting dropped tables while transactions run. `given_back` is true if the disk
    /// space of their pages is already free.
    pub(super) fn clear_later(&self, dropped: UnfinishedDrops, given_back: bool) -> Result<()> {
        if dropped.left.is_empty() {
            return Ok(());
        }
        let removals: Vec<_> =
            dropped.left.iter().map(|_| self.shared.engine.removals.begin()).collect();
        self.spawn(move || {
            Box::pin(async move {
                let _counted = removals;
                if let Err(error) = clear_and_give_back(&dropped.left, given_back).await {
                    tracing::warn!(
                        "cannot delete dropped tables now; the next opening deletes them: {error}"
                    );
                }
            })
        })
    }
}

/// Deletes the records of dropped tables, frees their disk space, and only then deletes their
/// catalog rows. If this is interrupted, the rows let the next opening find the remaining space.
async fn clear_and_give_back(
    dropped: &[(Arc<record::Records>, CatalogRow)],
    mut given_back: bool,
) -> Result<(), OperationError> {
    for (records, _) in dropped {
        let Some(deleted) = clear_records(records).await? else { return Ok(()) };
        given_back &= deleted == 0;
    }
    if !given_back {
        match durability::compact_in_turn().await {
            Ok(_) | Err(OperationError::Unlogged) => {}
            // The database is closing.
            Err(OperationError::CheckpointUnderWay) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
    for (records, row) in dropped {
        forget_dropped(records.clone(), row).await?;
    }
    Ok(())
}

impl Transaction {
    /// Creates a table. Other transactions see it once this transaction has committed.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let db = Database::in_memory(Options::default().workers(1))?;
    ///         // Creates the table with its first record, atomically.
    ///         let names = db
    ///             .run(async |tx| {
    ///                 let names: Table<u64, str> = tx.create_table("names").await?;
    ///                 tx.put(&names, &1, "ada").await?;
    ///                 Ok(names)
    ///             })
    ///             .await?;
    ///         assert_eq!(db.len(&names).await?, 1);
    ///         Ok(())
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// [`Error::TableExists`]; [`Misuse::TableName`](crate::Misuse); the errors of a write.
    pub async fn create_table<K, V>(&self, name: &str) -> Result<Table<K, V>>
    where
        K: TableKey + ?Sized,
        V: Value + ?Sized,
    {
        self.create_table_with(name, TableOptions::default()).await
    }

    /// Creates a table with options. Other transactions see it once this transaction has committed.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table, TableOptions};
    ///
    /// fn main() -> Result<(), Error> {
    ///     let db = Database::in_memory(Options::default().workers(1))?;
    ///     db.run_blocking(async |tx| {
    ///         let paged = TableOptions::default().paged();
    ///         let pages: Table<u64, [u8]> = tx.create_table_with("pages", paged).await?;
    ///         tx.put(&pages, &1, &[0; 100]).await
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`Transaction::create_table`].
    pub async fn create_table_with<K, V>(
        &self,
        name: &str,
        options: TableOptions,
    ) -> Result<Table<K, V>>
    where
        K: TableKey + ?Sized,
        V: Value + ?Sized,
    {
        check_name(name)?;
        self.create_named(name, options).await
    }

    /// Creates a table with any name, including reserved ones.
    pub(super) async fn create_named<K, V>(
        &self,
        name: &str,
        options: TableOptions,
    ) -> Result<Table<K, V>>
    where
        K: TableKey + ?Sized,
        V: Value + ?Sized,
    {
        V::check()?;
        let types = [K::key_type_name(), V::type_name()];
        let core = self.create_described(name, types, V::shape(), options).await?;
        Ok(Table::of_its_types(name, core))
    }

    /// Creates a table of any types, for programs that know the types only by their names in the
    /// catalog ([`Database::tables`]), such as a copy of another database. Its keys and values are
    /// given in their stored encoding, and must be valid encodings of those types
    /// ([`Transaction::open_encoded_table`]).
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table, TableOptions, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let db = Database::in_memory(Options::default().workers(1))?;
    ///         db.run(async |tx| {
    ///             let options = TableOptions::default();
    ///             let cities = tx.create_encoded_table("cities", "u64", "str", options).await?;
    ///             tx.put(&cities, &1000_u64.to_be_bytes(), b"Ljubljana").await
    ///         })
    ///         .await?;
    ///         let cities: Table<u64, str> = db.open_table("cities").await?;
    ///         assert_eq!(db.get(&cities, &1000).await?.as_deref(), Some("Ljubljana"));
    ///         Ok(())
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`Transaction::create_table_with`].
    pub async fn create_encoded_table(
        &self,
        name: &str,
        key_type: &str,
        value_type: &str,
        options: TableOptions,
    ) -> Result<Table<[u8], [u8]>> {
        check_name(name)?;
        let types = [key_type, value_type].map(str::to_owned);
        Ok(Table::new(name, self.create_described(name, types, None, options).await?))
    }

    /// Creates a table with types of these names, and values of this shape.
    async fn create_described(
        &self,
        name: &str,
        [key_type, value_type]: [String; 2],
        shape: Option<ValueShape>,
        options: TableOptions,
    ) -> Result<Arc<record::Records>> {
        options.check(self.engine())?;
        let (key_type, value_type) = (type_name(key_type)?, type_name(value_type)?);
        let shapes = shape.into_iter().collect();
        let row = |id: TableId| {
            let (key, name) = (name_key(name).to_vec(), name.to_owned());
            let id = id.0;
            let row = TableDescription { name, id, key_type, value_type, shapes, options };
            (key, row.encode())
        };
        let catalog = self.catalog();
        let created = self.core().create_table(&catalog, row, options.paged);
        match engine_code(created).await {
            Ok(core) => {
                options.apply_to(&core, self.engine());
                Ok(core)
            }
            Err(OperationError::KeyExists(_)) => Err(Error::TableExists(name.to_owned())),
            Err(error) => Err(error.into()),
        }
    }

    /// Opens a table.
    ///
    /// If its values were written by an older version of the same type ([`Schema`](crate::Schema)),
    /// the catalog records the new version. Programs that know only the older version then fail to
    /// open the table.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let db = Database::in_memory(Options::default().workers(1))?;
    ///         let names: Table<u64, str> = db.create_table("names").await?;
    ///         db.put(&names, &1, "ada").await?;
    ///         let name = db
    ///             .run(async |tx| {
    ///                 let names: Table<u64, str> = tx.open_table("names").await?;
    ///                 Ok(tx.get(&names, &1).await?.map(str::to_owned))
    ///             })
    ///             .await?;
    ///         assert_eq!(name.as_deref(), Some("ada"));
    ///         Ok(())
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// [`Error::TableNotFound`]; [`Misuse::TableType`](crate::Misuse) if it was created with other types.
    pub async fn open_table<K, V>(&self, name: &str) -> Result<Table<K, V>>
    where
        K: TableKey + ?Sized,
        V: Value + ?Sized,
    {
        V::check()?;
        let description = self.describe_existing(name).await?;
        self.open_described(description).await
    }

    /// Opens the table with this description.
    async fn open_described<K, V>(&self, mut description: TableDescription) -> Result<Table<K, V>>
    where
        K: TableKey + ?Sized,
        V: Value + ?Sized,
    {
        let name = description.name.clone();
        let (key_type, value_type) = (K::key_type_name(), type_name(V::type_name())?);
        let keys = [&*description.key_type, &*key_type];
        let values = [&*description.value_type, &*value_type];
        if let Some(mismatch) = TypeMismatch::find(&name, keys, values, V::reads(values[0])) {
            return Err(Error::Misuse(Misuse::TableType(Box::new(mismatch))));
        }
        // A full disk leaves an update of the structure alone to a later transaction, because that is
        // not worth a failed opening. So does a read-only transaction, for every update.
        let is_full = || self.engine().log.files().is_some_and(|files| files.is_nearly_full());
        let has_same_type = description.value_type == value_type;
        let is_due = !has_same_type || description.shapes.is_empty() && !is_full();
        if is_due
            && !self.core().is_read_only()
            && description.update_values(value_type, V::shape())
        {
            let row = description.encode();
            self.write_row(name_key(&name), WriteIntent::Put(&row)).await?;
        }
        Ok(self.handle(&description))
    }

    /// Opens a table of any types, with its keys and values in their stored encoding. This is for
    /// programs that know the types only by their names in the catalog. Written keys and values
    /// must be valid encodings of those types.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let db = Database::in_memory(Options::default().workers(1))?;
    ///         let names: Table<u64, str> = db.create_table("names").await?;
    ///         db.put(&names, &1, "ada").await?;
    ///         let (key_type, value) = db
    ///             .run(async |tx| {
    ///                 let (table, description) = tx.open_encoded_table("names").await?;
    ///                 let value = tx.get(&table, &1_u64.to_be_bytes()).await?.map(<[u8]>::to_vec);
    ///                 Ok((description.key_type, value))
    ///             })
    ///             .await?;
    ///         assert_eq!((&*key_type, value), ("u64", Some(b"ada".to_vec())));
    ///         Ok(())
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// [`Error::TableNotFound`].
    pub async fn open_encoded_table(
        &self,
        name: &str,
    ) -> Result<(Table<[u8], [u8]>, TableDescription)> {
        let description = self.describe_existing(name).await?;
        Ok((self.handle(&description), description))
    }

    /// Opens a table, or creates it if no table has this name.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table};
    ///
    /// fn main() -> Result<(), Error> {
    ///     let db = Database::in_memory(Options::default().workers(1))?;
    ///     for _ in 0..2 {
    ///         db.run_blocking(async |tx| {
    ///             let names: Table<u64, str> = tx.open_or_create_table("names").await?;
    ///             tx.put(&names, &1, "ada").await
    ///         })?;
    ///     }
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`Transaction::open_table`] and [`Transaction::create_table`].
    pub async fn open_or_create_table<K, V>(&self, name: &str) -> Result<Table<K, V>>
    where
        K: TableKey + ?Sized,
        V: Value + ?Sized,
    {
        self.open_or_create_table_with(name, TableOptions::default()).await
    }

    /// Opens a table, or creates it with these options if no table has this name. An existing table
    /// keeps its options.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table, TableOptions};
    ///
    /// fn main() -> Result<(), Error> {
    ///     let db = Database::in_memory(Options::default().workers(1))?;
    ///     db.run_blocking(async |tx| {
    ///         let paged = TableOptions::default().paged();
    ///         let pages: Table<u64, [u8]> = tx.open_or_create_table_with("pages", paged).await?;
    ///         tx.put(&pages, &1, &[0; 100]).await
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`Transaction::open_table`] and [`Transaction::create_table`].
    pub async fn open_or_create_table_with<K, V>(
        &self,
        name: &str,
        options: TableOptions,
    ) -> Result<Table<K, V>>
    where
        K: TableKey + ?Sized,
        V: Value + ?Sized,
    {
        V::check()?;
        match self.describe(name).await? {
            Some(description) => self.open_described(description).await,
            None => self.create_table_with(name, options).await,
        }
    }

    /// Returns the tables visible to this transaction, sorted by name.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     let db = Database::in_memory(Options::default().workers(1))?;
    ///     block_on(db.create_table::<u64, str>("names"))?;
    ///     let tables = db.run_blocking(async |tx| tx.tables().await)?;
    ///     assert_eq!((&*tables[0].name, &*tables[0].key_type), ("names", "u64"));
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// An error if a catalog row does not decode.
    pub async fn tables(&self) -> Result<Vec<TableDescription>> {
        let rows = self.catalog_rows(Bound::Unbounded, Bound::Unbounded).await?;
        let tables = rows.into_iter().filter_map(|row| match row {
            // Excludes the engine's internal tables.
            CatalogEntry::Table(table) if !is_reserved(&table.name) => Some(table),
            CatalogEntry::Table(_) | CatalogEntry::Index(_) | CatalogEntry::DroppedTable(_) => None,
        });
        Ok(tables.collect())
    }

    /// Returns the catalog rows between two keys, in key order.
    pub(super) async fn catalog_rows(
        &self,
        low: Bound<KeyBuffer>,
        high: Bound<KeyBuffer>,
    ) -> Result<Vec<CatalogEntry>> {
        let catalog = self.catalog();
        let mut scan = self.core().scan(&catalog, ScanBounds { low, high });
        let mut rows = Vec::new();
        while engine_code(scan.load()).await? {
            sched::count_steps(4).await;
            let (key, bytes) = scan.current().expect("loaded");
            rows.push(CatalogEntry::decode(key, bytes)?);
            scan.pass();
        }
        Ok(rows)
    }

    /// Returns the user table of this name, if it exists.
    pub(super) async fn describe(&self, name: &str) -> Result<Option<TableDescription>> {
        // Users cannot open the engine's internal tables.
        if is_reserved(name) { Ok(None) } else { self.describe_any(name).await }
    }

    /// Returns the id of the table of this name, or `None` if none exists.
    ///
    /// # Errors
    /// The errors of [`Transaction::get`].
    pub(super) async fn table_id_of(&self, name: &str) -> Result<Option<TableId>> {
        if is_reserved(name) {
            return Ok(None);
        }
        let catalog = self.catalog();
        let found = engine_code(self.core().get(&catalog, name_key(name))).await?;
        let Some(found) = found else { return Ok(None) };
        Ok(Some(TableDescription::id_of(found.bytes())?))
    }

    pub(super) async fn describe_any(&self, name: &str) -> Result<Option<TableDescription>> {
        let catalog = self.catalog();
        let Some(found) = engine_code(self.core().get(&catalog, name_key(name))).await? else {
            return Ok(None);
        };
        Ok(Some(TableDescription::decode(name.as_bytes(), found.bytes())?))
    }

    pub(super) fn catalog(&self) -> Arc<record::Records> {
        let catalog = self.engine().table(CATALOG);
        catalog.set_name("braid.catalog");
        catalog
    }

    pub(super) fn handle<K, V>(&self, description: &TableDescription) -> Table<K, V>
    where
        K: TableKey + ?Sized,
        V: Value + ?Sized,
    {
        let core = self.engine().table(TableId(description.id));
        core.set_caches(description.options.cache_cold);
        match description.key_type == K::key_type_name() {
            true => Table::of_its_types(&description.name, core),
            // A handle with keys in their stored encoding.
            false => Table::new(&description.name, core),
        }
    }
}

/// Returns whether a name is reserved for the engine.
pub(super) fn is_reserved(name: &str) -> bool {
    name.starts_with(RESERVED_PREFIX)
}

/// Returns the catalog key of a table.
pub(super) fn name_key(name: &str) -> &[u8] {
    name.as_bytes()
}

pub(super) fn check_name(name: &str) -> Result<()> {
    let fits = (1..=MAX_NAME_BYTES).contains(&name.len()) && !is_reserved(name);
    if fits { Ok(()) } else { Err(Error::Misuse(Misuse::TableName(name.to_owned()))) }
}

pub(super) fn type_name(name: String) -> Result<String> {
    if name.len() > usize::from(u16::MAX) {
        return Err(Misuse::TypeNameTooLong { bytes: name.len(), limit: u16::MAX.into() }.into());
    }
    Ok(name)
}
