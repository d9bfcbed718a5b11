//! Dropping indexes, in these steps:
//!
//! 1. Set the stage in its row to *dropping*, so that no new transaction reads the index.
//! 2. Wait for the transactions that may read it, and remove it from the table's list, so that no
//!    new transaction writes entries.
//! 3. Wait for the transactions that may use the old list, and delete the entries and then the row.
//!
//! Step 2 does not wait if no transaction can have read the index, because it is not attached. It
//! does not wait either while writes are restricted: then the layer above validates transactions.
//!
//! All steps run on a worker, so they continue if the caller's future is dropped. From step 2 on,
//! the table can be renamed and dropped, and its other indexes can be changed.

use std::sync::Arc;

use super::row::{IndexDescription, IndexStage};
use crate::database::blocking::refuse_on_worker;
use crate::database::error::{BusyWith, Error, IndexError, Misuse, Result};
use crate::database::handle::Database;
use crate::database::run::{commit_on_worker, commit_with};
use crate::database::table::Table;
use crate::database::transaction::Transaction;
use crate::database::transaction_builder::TransactionOptions;
use crate::record::{ChangingIndexes, Records};
use crate::transaction::{WorkerTransactions, clear_dropped};
use crate::types::{TableKey, Value};

impl Database {
    /// Drops an index, which need not be attached. Its entries are deleted while transactions run.
    /// The call waits for the transactions that are active at its start. If the index is not
    /// attached, or writes are restricted ([`Database::restrict_writes`]), later writes to the table
    /// need it no more while the call waits.
    ///
    /// If the future is dropped, the index is still dropped. If the database closes or the process
    /// ends first, the next opening deletes the remaining entries.
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
    ///         db.drop_index(&names, "by_name").await?;
    ///         assert!(db.indexes().await?.is_empty());
    ///         Ok(())
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// [`IndexError::NotFound`](crate::IndexError); [`BusyWith::TableChange`](crate::BusyWith) while an index of the table is created;
    /// [`Misuse::WouldBlock`](crate::Misuse) if called within a transaction, because it would wait for
    /// that transaction; the errors of [`Database::run`].
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
        self.refuse_if_restricted(&table_name)?;
        let (table, name, options) = (table.core.clone(), name.to_owned(), self.options());
        self.on_worker(async move || drop_index(&table, table_name, name, options).await).await
    }

    /// Removes an index. The caller passes the exclusive right to change the table's indexes. If the
    /// future is dropped, the index is removed nevertheless.
    pub(super) async fn remove_index(
        &self,
        index: &IndexDescription,
        changing: ChangingIndexes,
    ) -> Result<()> {
        let index = index.clone();
        self.on_worker(async move || {
            remove_index(changing, &index, TransactionOptions::DEFAULT).await
        })
        .await
    }
}

async fn drop_index(
    table: &Arc<Records>,
    table_name: String,
    name: String,
    options: TransactionOptions,
) -> Result<()> {
    let busy = || Error::Busy(BusyWith::TableChange { table: table_name.clone() });
    let changing = ChangingIndexes::begin(table).ok_or_else(busy)?;
    let (row, _) = commit_on_worker(async |tx| tx.index_row(table.id.0, &name).await).await?;
    match row {
        Some(row) => remove_index(changing, &row, options).await,
        None => Err(IndexError::NotFound { table: table_name, index: name }.into()),
    }
}

/// Releases the exclusive right `changing` when no new transaction reads the index. `options` are
/// those of the transaction that decides whether the index is removed.
async fn remove_index(
    changing: ChangingIndexes,
    index: &IndexDescription,
    options: TransactionOptions,
) -> Result<()> {
    let row = IndexDescription { stage: IndexStage::Dropping, ..index.clone() };
    match commit_with(options, async |tx: &Transaction| tx.put_row(&row).await).await {
        // The index was dropped before the database was opened, and its deletion has just finished.
        Err(Error::Index(error)) if matches!(*error, IndexError::NotFound { .. }) => return Ok(()),
        put => _ = put?,
    }
    let (worker, table) = (WorkerTransactions::current(), changing.table().clone());
    // Another task may have removed the index since then, and a new one may have its name.
    let listed = table.secondary(&row.name).filter(|listed| listed.entries().id.0 == row.id);
    if let Some(listed) = &listed {
        listed.mark_dropped();
    }
    let is_attached = listed.as_ref().is_some_and(|listed| listed.code().is_some());
    let may_be_validated = is_attached && !worker.engine().write_restriction.is_set();
    if let Some(listed) = &listed
        && !may_be_validated
    {
        table.unlist_secondary(listed);
    }
    drop(changing);
    if let Some(listed) = &listed
        && may_be_validated
    {
        // Writers add entries while any transaction may still be validated against reads of the
        // index.
        if !worker.wait_for_grace_period(true).await? {
            // The database is closing, so the next opening deletes the rest. The same holds below.
            return Ok(());
        }
        table.unlist_secondary(listed);
    }
    // Every transaction that begins later sees that the index is not listed.
    match commit_on_worker(async |tx| tx.put_row(&row).await).await {
        Err(Error::Index(error)) if matches!(*error, IndexError::NotFound { .. }) => return Ok(()),
        put => _ = put?,
    }
    if worker.wait_for_grace_period(true).await? {
        let (entries, row) = row.catalog_row(worker.engine());
        clear_dropped(entries, row).await?;
    }
    Ok(())
}
