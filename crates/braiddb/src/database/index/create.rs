//! Creating and attaching indexes.
//!
//! | step of a creation | committed |
//! |---|---|
//! | 1. create the table of its entries, and a catalog row | stage *building* |
//! | 2. list the index with its table: transactions that begin later write entries | the row once more |
//! | 3. wait for the transactions that began earlier | |
//! | 4. add the missing entries of all records | a few records at a time |
//! | 5. allow later transactions to read the index | stage *ready* |
//!
//! After a crash, or if the future is dropped, the entries built so far stay. Attaching the index
//! then continues with step 2.

use std::sync::Arc;

use super::row::{IndexDescription, IndexStage, row_bounds, row_key};
use super::{Index, IndexKeys, IndexOptions, IndexProgress, erase};
use crate::database::blocking::refuse_on_worker;
use crate::database::catalog::{CatalogEntry, check_name, type_name};
use crate::database::error::{BusyWith, Error, IndexError, MissingTable, Misuse, Result};
use crate::database::handle::Database;
use crate::database::table::Table;
use crate::database::transaction::Transaction;
use crate::log::Lsn;
use crate::planted::{Bug, is_planted};
use crate::record::{self, ChangingIndexes, IndexCode, Secondary};
use crate::rid::TableId;
use crate::sched::engine_code;
use crate::transaction::{Engine, Isolation, WorkerTransactions, WriteIntent};
use crate::types::{Key, KeyBuffer, TableKey, Value};

/// Maximum number of records indexed in one transaction.
const FILLED_AT_ONCE: u64 = 256;

impl Database {
    /// Attaches an index of a table, or creates it if no index of the table has this name.
    /// `extract` receives each written value and pushes the index keys of the record: none, one or
    /// several. The engine may call it more than once. It must push the same keys for the same
    /// value and have no other effects. If it panics, the write fails with [`Error::Panicked`] and
    /// has no effect.
    ///
    /// Attach the index after each opening, before the first write to the table. Until then, all
    /// writes to the table, also deletions, fail with [`IndexError::Detached`](crate::IndexError).
    ///
    /// Transactions run while an index is created. The creation waits for the transactions that
    /// were active at its start, so an open interactive transaction delays it. If the future is
    /// dropped, the entries built so far stay, and the next call continues. The first function
    /// passed stays in use until the database is closed or the index is dropped.
    ///
    /// ```
    /// use braiddb::{Database, Error, IndexOptions, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let db = Database::in_memory(Options::default().workers(1))?;
    ///         let persons: Table<u64, str> = db.create_table("persons").await?;
    ///         let by_name = db
    ///             .index(&persons, "by_name", IndexOptions::default(), |name, keys| keys.push(name))
    ///             .await?;
    ///         let found = db
    ///             .run(async move |tx| {
    ///                 tx.insert(&persons, &7, "Ada").await?;
    ///                 let mut scan = tx.scan_by(&by_name, "A".to_owned().."B".to_owned())?;
    ///                 Ok(scan.next().await?.map(|(_, key, _)| key))
    ///             })
    ///             .await?;
    ///         assert_eq!(found, Some(7));
    ///         Ok(())
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// [`IndexError::Mismatch`](crate::IndexError) if it was created with other options or another key type;
    /// [`IndexError::DuplicateKey`](crate::IndexError) if it is unique and two records have the same key, in which case no
    /// index is created; [`BusyWith::TableChange`](crate::BusyWith) while an index of the table is created or dropped;
    /// [`Misuse::TableName`](crate::Misuse); [`Error::Panicked`] if `extract` panicked; [`Error::Decode`];
    /// [`Misuse::WouldBlock`](crate::Misuse) if called within a transaction, because building the index would wait
    /// for that transaction; the errors of [`Database::run`].
    pub async fn index<S, K, V, F>(
        &self,
        table: &Table<K, V>,
        name: &str,
        options: IndexOptions,
        extract: F,
    ) -> Result<Index<S, K, V>>
    where
        S: Key + ?Sized,
        K: TableKey + ?Sized,
        V: Value + ?Sized,
        F: Fn(V::Ref<'_>, &mut IndexKeys<'_, S>) + Send + Sync + 'static,
    {
        self.index_watched(table, name, options, extract, |_| {}).await
    }

    /// Works like [`Database::index`], and reports progress while the index is built.
    ///
    /// ```
    /// use braiddb::{Database, Error, IndexOptions, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let db = Database::in_memory(Options::default().workers(1))?;
    ///         let names: Table<u64, str> = db.create_table("names").await?;
    ///         let by_name = db
    ///             .index_watched(
    ///                 &names,
    ///                 "by_name",
    ///                 IndexOptions::default(),
    ///                 |name, keys| keys.push(name),
    ///                 |progress| println!("{} of {} records", progress.records, progress.total),
    ///             )
    ///             .await?;
    ///         db.put(&names, &1, "ada").await?;
    ///         let found = db.run(async move |tx| {
    ///             tx.scan_by(&by_name, "ada".to_owned()..)?.next().await.map(|one| one.is_some())
    ///         });
    ///         assert!(found.await?);
    ///         Ok(())
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`Database::index`].
    pub async fn index_watched<S, K, V, F>(
        &self,
        table: &Table<K, V>,
        name: &str,
        options: IndexOptions,
        extract: F,
        watch: impl FnMut(IndexProgress),
    ) -> Result<Index<S, K, V>>
    where
        S: Key + ?Sized,
        K: TableKey + ?Sized,
        V: Value + ?Sized,
        F: Fn(V::Ref<'_>, &mut IndexKeys<'_, S>) + Send + Sync + 'static,
    {
        check_name(name)?;
        let wanted = IndexDescription {
            name: name.to_owned(),
            table: table.name().to_owned(),
            id: 0,
            unique: options.unique,
            version: options.version,
            key_type: type_name(S::type_name())?,
            stage: IndexStage::Building,
            table_id: table.core.id.0,
        };
        let code = erase::<S, V, F>(extract);
        let core = self.open_index(&table.core, wanted, code, watch).await?;
        Ok(Index::new(table, core))
    }

    async fn open_index(
        &self,
        table: &Arc<record::Records>,
        wanted: IndexDescription,
        code: IndexCode,
        watch: impl FnMut(IndexProgress),
    ) -> Result<Arc<Secondary>> {
        if !self.shared.engine.owns(table) {
            return Err(Error::Misuse(Misuse::ForeignTable(wanted.table)));
        }
        let found = {
            let (table_id, name) = (wanted.table_id, wanted.name.clone());
            self.run(async move |tx| tx.index_row(table_id, &name).await).await?
        };
        if let Some(found) = &found
            && found.stage == IndexStage::Ready
            && let Some(listed) = table.secondary(&wanted.name)
            && listed.entries().id.0 == found.id
            && (listed.is_built() || is_planted(Bug::UnbuiltTakenForReady))
        {
            check_definition(found, &wanted)?;
            listed.attach(code);
            return Ok(listed);
        }
        refuse_on_worker()?;
        let busy = || Error::Busy(BusyWith::TableChange { table: wanted.table.clone() });
        let (changing, row) = loop {
            let changing = ChangingIndexes::begin(table).ok_or_else(busy)?;
            let row = self.declare_index(table, &wanted).await?;
            if row.stage != IndexStage::Dropping {
                break (changing, row);
            }
            // Another task may remove it at the same time.
            self.remove_index(&row, changing).await?;
        };
        let (listed, row) = self.list_index(table, row, code).await?;
        match row.stage {
            IndexStage::Building => match self.build_index(table, &listed, &row, watch).await {
                Err(Error::Index(duplicate))
                    if matches!(*duplicate, IndexError::DuplicateKey { .. }) =>
                {
                    self.remove_index(&row, changing).await?;
                    return Err(Error::Index(duplicate));
                }
                built => built?,
            },
            // An earlier builder was dropped after it committed the row, but before transactions
            // could read the index.
            _ if !listed.is_built() => listed.make_usable(self.put_row(&row).await?),
            _ => {}
        }
        Ok(listed)
    }

    /// Creates the catalog row of the index, unless it exists. The existing index may be in the
    /// middle of a drop.
    async fn declare_index(
        &self,
        table: &Arc<record::Records>,
        wanted: &IndexDescription,
    ) -> Result<IndexDescription> {
        let (table, wanted) = (table.clone(), wanted.clone());
        self.run(async move |tx| {
            let row = tx.index_row(wanted.table_id, &wanted.name).await?;
            let Some(row) = row else { return tx.create_index(&table, &wanted).await };
            if row.stage != IndexStage::Dropping {
                check_definition(&row, &wanted)?;
            }
            Ok(row)
        })
        .await
    }

    /// Lists an index with its table and commits, so that every later transaction sees it listed.
    /// Returns the index's current row. The row's stage may be *ready* already, through the last
    /// commit of a builder that was dropped.
    pub(super) async fn list_index(
        &self,
        table: &Arc<record::Records>,
        row: IndexDescription,
        code: IndexCode,
    ) -> Result<(Arc<Secondary>, IndexDescription)> {
        let there = table.secondary(&row.name);
        let index = there.unwrap_or_else(|| self.shared.engine.secondary(&row));
        // Attaches the function before listing the index, so that no writer meets it detached.
        index.attach(code);
        let listed = table.list_secondary(index);
        if row.stage != IndexStage::Building {
            return Ok((listed, row));
        }
        let row = self.run(async move |tx| tx.put_row_as_it_is(&row).await).await?;
        Ok((listed, row))
    }

    /// Adds all missing entries, and then allows reads of the index.
    async fn build_index(
        &self,
        table: &Arc<record::Records>,
        index: &Arc<Secondary>,
        row: &IndexDescription,
        mut watch: impl FnMut(IndexProgress),
    ) -> Result<()> {
        if !is_planted(Bug::GracePeriodSkipped) {
            self.wait_for_grace_period().await?;
        }
        let (mut records, mut after, mut most) = (0, None::<KeyBuffer>, FILLED_AT_ONCE);
        loop {
            watch(IndexProgress { records, total: table.stored().max(records) });
            let (table, index, from) = (table.clone(), index.clone(), after.clone());
            // Snapshot isolation suffices, because its reads need no validation: see `fill_index`.
            let filled = self.transaction().isolation(Isolation::Snapshot).run(async move |tx| {
                let fill = tx.core().fill_index(&table, &index, from.clone(), most);
                Ok::<_, Error>(engine_code(fill).await?)
            });
            match filled.await {
                Ok(filled) => {
                    records += filled.value.records;
                    after = filled.value.last;
                    most = (2 * most).min(FILLED_AT_ONCE);
                    if after.is_none() {
                        break;
                    }
                }
                Err(Error::Conflict { .. } | Error::Overloaded) => most = (most / 2).max(1),
                Err(error) => return Err(error),
            }
        }
        watch(IndexProgress { records, total: records });
        let row = IndexDescription { stage: IndexStage::Ready, ..row.clone() };
        let ready = self.put_row(&row).await?;
        index.make_usable(if is_planted(Bug::UsableBeforeBuilt) { Lsn::ZERO } else { ready });
        Ok(())
    }

    /// Returns all indexes, sorted by table number and name.
    ///
    /// ```
    /// use braiddb::{Database, Error, IndexOptions, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let db = Database::in_memory(Options::default().workers(1))?;
    ///         let names: Table<u64, str> = db.create_table("names").await?;
    ///         db.index(&names, "by_name", IndexOptions::default(), |name: &str, keys| {
    ///             keys.push(name)
    ///         })
    ///         .await?;
    ///         for index in db.indexes().await? {
    ///             println!("{} of {}, keys of type {}", index.name, index.table, index.key_type);
    ///         }
    ///         Ok(())
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`Database::run`]; an error if a catalog row does not decode.
    pub async fn indexes(&self) -> Result<Vec<IndexDescription>> {
        self.run(async |tx| tx.index_rows().await).await
    }

    async fn put_row(&self, row: &IndexDescription) -> Result<Lsn> {
        let row = row.clone();
        let put = self.transaction().run(async move |tx| tx.put_row(&row).await).await?;
        Ok(Lsn(put.commit_lsn))
    }

    /// Waits until all currently active transactions have ended.
    async fn wait_for_grace_period(&self) -> Result<()> {
        let is_over = self
            .on_worker(async || WorkerTransactions::current().wait_for_grace_period(true).await)
            .await?;
        if is_over { Ok(()) } else { Err(self.ended()) }
    }
}

impl IndexDescription {
    /// Lists a catalog index with its table when the database is opened. All paged tables are
    /// already registered.
    pub(in crate::database) fn list(&self, engine: &Engine) {
        let table = engine.table(TableId(self.table_id));
        table.set_name(&self.table);
        table.list_secondary(engine.secondary(self));
    }
}

impl Engine {
    /// Creates the engine's object for an index in the catalog.
    fn secondary(&self, row: &IndexDescription) -> Arc<Secondary> {
        let entries = self.table(TableId(row.id));
        entries.set_name(&format!("{}.{}", row.table, row.name));
        let index = Arc::new(Secondary::new(&row.name, entries, row.unique));
        if row.stage == IndexStage::Ready {
            index.make_usable(Lsn::ZERO);
        }
        index
    }
}

fn check_definition(stored: &IndexDescription, wanted: &IndexDescription) -> Result<()> {
    let (stored, requested) = (stored.definition(), wanted.definition());
    if stored == requested {
        return Ok(());
    }
    let (table, index) = (wanted.table.clone(), wanted.name.clone());
    Err(IndexError::Mismatch { table, index, stored, requested }.into())
}

impl Transaction {
    pub(super) async fn index_row(
        &self,
        table_id: u32,
        name: &str,
    ) -> Result<Option<IndexDescription>> {
        let (catalog, key) = (self.catalog(), row_key(table_id, name));
        let Some(found) = engine_code(self.core().get(&catalog, &key)).await? else {
            return Ok(None);
        };
        Ok(Some(IndexDescription::decode(&key, found.bytes())?))
    }

    pub(in crate::database) async fn index_rows(&self) -> Result<Vec<IndexDescription>> {
        let (low, high) = row_bounds();
        let rows = self.catalog_rows(low, high).await?.into_iter().filter_map(|row| match row {
            CatalogEntry::Index(index) => Some(index),
            CatalogEntry::Table(_) | CatalogEntry::DroppedTable(_) => None,
        });
        Ok(rows.collect())
    }

    async fn create_index(
        &self,
        table: &record::Records,
        wanted: &IndexDescription,
    ) -> Result<IndexDescription> {
        if !self.core().may_use(table) {
            return Err(MissingTable::new(&wanted.table).into());
        }
        // The index would outlive a staged table that is discarded.
        if self.is_listed_as_dropped(wanted.table_id).await? {
            return Err(Misuse::IndexOnStagedTable(wanted.table.clone()).into());
        }
        let (catalog, key) = (self.catalog(), row_key(wanted.table_id, &wanted.name));
        let row = |id: TableId| (key, IndexDescription { id: id.0, ..wanted.clone() }.encode());
        // The entries are paged if the table is, so that both have the same memory bounds.
        let paged = table.paged().is_some();
        let created = self.core().create_table(&catalog, row, paged);
        let entries = engine_code(created).await?;
        Ok(IndexDescription { id: entries.id.0, ..wanted.clone() })
    }

    /// Updates the row of an index. The row must still belong to this index: the operation may have
    /// been abandoned, and another one may have dropped the index or created one of the same name.
    pub(super) async fn put_row(&self, row: &IndexDescription) -> Result<()> {
        if row.stage == IndexStage::Dropping {
            self.core().note_frees_space();
        }
        let now = self.row_before(row, row.stage).await?;
        // The table may have been renamed since.
        self.update_row(&IndexDescription { table: now.table, ..row.clone() }).await
    }

    /// Rewrites the current row of an index, unless it is being dropped, and returns it.
    async fn put_row_as_it_is(&self, row: &IndexDescription) -> Result<IndexDescription> {
        let now = self.row_before(row, IndexStage::Ready).await?;
        self.update_row(&now).await?;
        Ok(now)
    }

    /// Returns the current row of an index, if it belongs to this index and its stage is not past
    /// `last`.
    async fn row_before(
        &self,
        row: &IndexDescription,
        last: IndexStage,
    ) -> Result<IndexDescription> {
        let now = self.index_row(row.table_id, &row.name).await?;
        now.filter(|now| now.id == row.id && now.stage <= last).ok_or_else(|| {
            let (table, index) = (row.table.clone(), row.name.clone());
            Error::from(IndexError::NotFound { table, index })
        })
    }

    async fn update_row(&self, row: &IndexDescription) -> Result<()> {
        let (key, value) = (row_key(row.table_id, &row.name), row.encode());
        Ok(self.write_row(&key, WriteIntent::Update(&value)).await?)
    }
}
