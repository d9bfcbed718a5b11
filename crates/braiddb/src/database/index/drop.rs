//! Dropping indexes, as tables are dropped: the row says *dropping*, nobody reads the index any more; when those are over
//! who may have, it is taken off the list, so that no entries are written any more; when those are over who may
//! have had the list, its entries are deleted, and then the row. All that is done on a worker, so that it
//! goes on if the caller gives up.

use std::sync::Arc;

use super::row::{IndexDescription, IndexStage};
use crate::database::error::{BusyWith, Error, IndexError, Misuse, Result};
use crate::database::run::commit_on_worker;
use crate::database::table::Table;
use crate::database::{Database, refuse_on_worker};
use crate::record::{ChangingIndexes, Records};
use crate::transaction::{WorkerTransactions, clear_dropped};
use crate::types::{TableKey, Value};

impl Database {
    /// Drops an index: it need not be attached. Its entries are deleted while transactions go on; those
    /// that are active when this begins are waited for.
    ///
    /// If the future is dropped, the index is dropped all the same. If the database is closed meanwhile, or
    /// the process ends, the entries left are deleted when it is opened the next time.
    ///
    /// ```
    /// use braiddb::{Database, Error, IndexOptions, Options, Table};
    ///
    /// # pollster::block_on(async {
    /// let db = Database::in_memory(Options::default().workers(1))?;
    /// let names: Table<u64, str> = db.create_table("names").await?;
    /// db.index(&names, "by_name", IndexOptions::default(), |name: &str, keys| keys.push(name)).await?;
    /// db.drop_index(&names, "by_name").await?;
    /// assert!(db.indexes().await?.is_empty());
    /// # Ok::<_, Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// [`IndexError::NotFound`](crate::IndexError); [`BusyWith::TableChange`](crate::BusyWith) while an index of the table is created or dropped;
    /// [`Misuse::WouldBlock`](crate::Misuse) from within a transaction, which it would wait for; as [`Database::run`].
    pub async fn drop_index<K, V>(&self, table: &Table<K, V>, name: &str) -> Result<()>
    where
        K: TableKey + ?Sized,
        V: Value + ?Sized,
    {
        refuse_on_worker()?;
        let table_name = table.name().to_owned();
        if !self.shared.engine.owns(&table.core) {
            return Err(Error::Misuse(Misuse::ForeignTable(table_name)));
        }
        let (table, name) = (table.core.clone(), name.to_owned());
        self.on_worker(async move || drop_index(&table, table_name, name).await).await
    }

    /// Removes an index whose table's indexes only the caller may change. That right is returned; if the
    /// future is dropped, it is held until the index is removed.
    pub(super) async fn remove_index(
        &self,
        index: &IndexDescription,
        changing: ChangingIndexes,
    ) -> Result<ChangingIndexes> {
        let index = index.clone();
        self.on_worker(async move || {
            remove_index(changing.table(), &index).await?;
            Ok::<_, Error>(changing)
        })
        .await
    }
}

async fn drop_index(table: &Arc<Records>, table_name: String, name: String) -> Result<()> {
    let busy = || Error::Busy(BusyWith::TableChange { table: table_name.clone() });
    let _changing = ChangingIndexes::begin(table).ok_or_else(busy)?;
    let (row, _) = commit_on_worker(async |tx| tx.index_row(table.id.0, &name).await).await?;
    match row {
        Some(row) => remove_index(table, &row).await,
        None => Err(Error::Index(IndexError::NotFound { table: table_name, index: name })),
    }
}

async fn remove_index(table: &Records, index: &IndexDescription) -> Result<()> {
    let row = IndexDescription { stage: IndexStage::Dropping, ..index.clone() };
    match commit_on_worker(async |tx| tx.put_row(&row).await).await {
        // It had been dropped before the database was opened, and its deletion came to its end just now.
        Err(Error::Index(IndexError::NotFound { .. })) => return Ok(()),
        put => _ = put?,
    }
    let worker = WorkerTransactions::current();
    if let Some(listed) = table.secondary(&row.name) {
        listed.mark_dropped();
        // Entries are written for as long as anybody may be certified by what the index told.
        if !worker.wait_for_grace_period().await? {
            // The database is closing, and the rest is left to the next opening; so below.
            return Ok(());
        }
        table.unlist_secondary(&listed);
    }
    // So every transaction that begins later sees that it is not listed.
    match commit_on_worker(async |tx| tx.put_row(&row).await).await {
        Err(Error::Index(IndexError::NotFound { .. })) => return Ok(()),
        put => _ = put?,
    }
    if worker.wait_for_grace_period().await? {
        let (entries, row) = row.catalog_row(worker.engine());
        clear_dropped(entries, row).await?;
    }
    Ok(())
}
