//! Dropping, renaming and clearing tables.
//!
//! | step of a drop | committed |
//! |---|---|
//! | 1. in the catalog, replace the table's row by one that marks it *dropped*; mark its indexes *dropping* | all in one transaction, at LSN `d` |
//! | 2. transactions that begin after `d` can use neither | the row once more |
//! | 3. wait for the transactions that began earlier | |
//! | 4. delete the entries of its indexes, and its records | many at a time |
//! | 5. delete the rows of step 1 | |
//!
//! Step 3 waits for every transaction that began before the row of step 2 was committed. Its writes
//! to the table are deleted with the rest, as if it had committed before `d`. After a crash,
//! opening the database continues with step 4.

use std::sync::Arc;

use super::blocking::refuse_on_worker;
use super::catalog::{check_name, name_key};
use super::dropped_row::{DroppedTable, key_of};
use super::error::{BusyWith, Error, MissingTable, Result};
use super::handle::Database;
use super::index::IndexStage;
use super::run::{commit_on_worker, commit_with};
use super::table::Table;
use super::table_description::TableDescription;
use super::transaction::Transaction;
use super::transaction_builder::TransactionOptions;
use crate::record::{ChangingIndexes, Records};
use crate::rid::TableId;
use crate::sched::engine_code;
use crate::transaction::{
    CatalogRow, OperationError, WorkerTransactions, WriteIntent, clear_dropped,
    records_per_transaction,
};
use crate::types::{KeyBuffer, TableKey, Value};

impl Database {
    /// Drops a table and its indexes. Transactions that begin afterwards do not find the name, and
    /// fail with [`Error::TableNotFound`] if they use a handle of the table. Active transactions
    /// can still use it. When these have ended, the table's records are deleted while other
    /// transactions run, and their space is freed. This method returns when that is done.
    ///
    /// If the future is dropped, the table is still dropped. If the database closes or the process
    /// ends first, the next opening deletes the remaining records. It also does so if deleting them
    /// fails; the error is returned, although the table is dropped.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let db = Database::in_memory(Options::default().workers(1))?;
    ///         let drafts = db.create_table::<u64, str>("drafts").await?;
    ///         db.put(&drafts, &1, "to be").await?;
    ///         db.drop_table("drafts").await?;
    ///         assert!(matches!(db.get(&drafts, &1).await, Err(Error::TableNotFound(_))));
    ///         Ok(())
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// [`Error::TableNotFound`]; [`BusyWith::TableChange`](crate::BusyWith) while an index of the table is created or
    /// dropped; [`Misuse::WouldBlock`](crate::Misuse) if called within a transaction, because it would wait for
    /// that transaction; the errors of [`Database::run`].
    pub async fn drop_table(&self, name: &str) -> Result<()> {
        refuse_on_worker()?;
        self.refuse_if_restricted(name)?;
        let (name, options) = (name.to_owned(), self.options());
        self.on_worker(async move || drop_table(&name, options).await).await
    }

    /// Renames a table, in a separate transaction. Existing handles stay valid, and keep reporting
    /// the name that they were opened with.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let db = Database::in_memory(Options::default().workers(1))?;
    ///         let cities: Table<str, u64> = db.create_table("citys").await?;
    ///         db.rename_table("citys", "cities").await?;
    ///         db.put(&cities, "Ljubljana", &285_604).await?;
    ///         assert_eq!(db.tables().await?[0].name, "cities");
    ///         Ok(())
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// [`Error::TableNotFound`]; [`Error::TableExists`] if another table has the new name;
    /// [`Misuse::TableName`](crate::Misuse); [`BusyWith::TableChange`](crate::BusyWith) while an index of the table is created or
    /// dropped; the errors of [`Database::run`].
    pub async fn rename_table(&self, from: &str, to: &str) -> Result<()> {
        check_name(to)?;
        self.refuse_if_restricted(from)?;
        let (from, to, options) = (from.to_owned(), to.to_owned(), self.options());
        self.on_worker(async move || rename_table(&from, &to, options).await).await
    }

    /// Deletes all records of a table in several transactions, and returns their number. Other
    /// transactions can run at the same time and see some of the records deleted. Records that they
    /// write behind the deletion's position stay. If the future is dropped or fails, some records
    /// are deleted.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let db = Database::in_memory(Options::default().workers(1))?;
    ///         let cities: Table<str, u64> = db.create_table("cities").await?;
    ///         db.put(&cities, "Ljubljana", &285_604).await?;
    ///         assert_eq!(db.clear(&cities).await?, 1);
    ///         assert!(db.is_empty(&cities).await?);
    ///         Ok(())
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`Transaction::delete`] and [`Database::run`].
    pub async fn clear<K, V>(&self, table: &Table<K, V>) -> Result<u64>
    where
        K: TableKey + ?Sized,
        V: Value + ?Sized,
    {
        let (table, mut deleted, mut after) = (table.encoded(), 0, None::<KeyBuffer>);
        loop {
            let (table, from) = (table.clone(), after.take());
            let some = self.run(async move |tx| tx.delete_some(&table, from.clone()).await).await?;
            deleted += some.0;
            after = some.1;
            if after.is_none() {
                return Ok(deleted);
            }
        }
    }
}

/// Returns the table of this name, and the exclusive right to change its indexes.
async fn find(name: &str) -> Result<(Arc<Records>, ChangingIndexes)> {
    let (found, _) = commit_on_worker(async |tx| tx.describe_existing(name).await).await?;
    let table = WorkerTransactions::current().engine().table(TableId(found.id));
    let busy = || Error::Busy(BusyWith::TableChange { table: name.to_owned() });
    let changing = ChangingIndexes::begin(&table).ok_or_else(busy)?;
    Ok((table, changing))
}

async fn drop_table(name: &str, options: TransactionOptions) -> Result<()> {
    let (table, changing) = find(name).await?;
    let dropped = DroppedTable { id: table.id.0, name: name.to_owned(), expires: table.expires() };
    let list = async |tx: &Transaction| tx.list_as_dropped(&dropped).await;
    let (indexes, lsn) = commit_with(options, list).await?;
    table.drop_at(lsn);
    table.secondaries().iter().for_each(|index| index.mark_dropped());
    drop(changing);
    delete_dropped(&dropped, indexes).await
}

/// Deletes the entries of the indexes of a dropped table, then its records, and then the row that
/// marks it as dropped.
async fn delete_dropped(
    dropped: &DroppedTable,
    indexes: Vec<(Arc<Records>, CatalogRow)>,
) -> Result<()> {
    // Every transaction that begins later sees the table as dropped.
    commit_on_worker(async |tx| tx.put_dropped(dropped).await).await?;
    let worker = WorkerTransactions::current();
    if !worker.wait_for_grace_period(true).await? {
        // The database is closing, so the next opening deletes the rest.
        return Ok(());
    }
    for (records, row) in indexes.into_iter().chain([dropped.catalog_row(worker.engine())]) {
        clear_dropped(records, row).await?;
    }
    Ok(())
}

/// Drops a staged table, which has been listed as dropped since its creation. Does nothing if it is
/// no longer listed.
pub(super) async fn drop_staged(dropped: DroppedTable) -> Result<()> {
    let (still, lsn) = commit_on_worker(async |tx| tx.touch_dropped(&dropped).await).await?;
    if !still {
        return Ok(());
    }
    let table = WorkerTransactions::current().engine().table(TableId(dropped.id));
    table.drop_at(lsn);
    delete_dropped(&dropped, Vec::new()).await
}

async fn rename_table(from: &str, to: &str, options: TransactionOptions) -> Result<()> {
    let (table, _changing) = find(from).await?;
    commit_with(options, async |tx| tx.rename(&table, from, to).await).await?;
    table.set_name(to);
    for index in table.secondaries().iter() {
        index.entries().set_name(&format!("{to}.{}", index.name()));
    }
    Ok(())
}

impl Transaction {
    /// Returns the catalog row of this name, which must belong to this table.
    async fn row_of(&self, table: u32, name: &str) -> Result<TableDescription> {
        let found = self.describe(name).await?.filter(|found| found.id == table);
        found.ok_or_else(|| MissingTable::new(name).into())
    }

    /// Lists a table and its indexes as dropped in the catalog. Returns the entry tables of the
    /// indexes, and their rows.
    async fn list_as_dropped(
        &self,
        dropped: &DroppedTable,
    ) -> Result<Vec<(Arc<Records>, CatalogRow)>> {
        self.core().note_frees_space();
        self.row_of(dropped.id, &dropped.name).await?;
        self.write_row(name_key(&dropped.name), WriteIntent::Delete).await?;
        self.put_dropped(dropped).await?;
        let mut indexes = Vec::new();
        for mut row in self.index_rows().await? {
            if row.table_id == dropped.id {
                row.stage = IndexStage::Dropping;
                let row = row.catalog_row(self.engine());
                self.write_row(&row.1.key, WriteIntent::Update(&row.1.value)).await?;
                indexes.push(row);
            }
        }
        Ok(indexes)
    }

    /// Returns whether a table is listed as dropped. Staged tables are.
    pub(super) async fn is_listed_as_dropped(&self, table: u32) -> Result<bool> {
        let (catalog, key) = (self.catalog(), key_of(table));
        Ok(engine_code(self.core().contains(&catalog, &key)).await?)
    }

    async fn put_dropped(&self, dropped: &DroppedTable) -> Result<()> {
        self.core().note_frees_space();
        Ok(self.write_row(&dropped.key(), WriteIntent::Put(&dropped.encode())).await?)
    }

    /// Rewrites the row of a dropped table. Returns `false` if the row does not exist.
    pub(super) async fn touch_dropped(&self, dropped: &DroppedTable) -> Result<bool> {
        self.core().note_frees_space();
        match self.write_row(&dropped.key(), WriteIntent::Update(&dropped.encode())).await {
            Err(OperationError::KeyNotFound(_)) => Ok(false),
            written => Ok(written.map(|()| true)?),
        }
    }

    pub(super) async fn write_row(
        &self,
        key: &[u8],
        intent: WriteIntent<'_>,
    ) -> Result<(), OperationError> {
        let catalog = self.catalog();
        engine_code(self.core().write(&catalog, key, intent, None)).await?;
        Ok(())
    }

    /// Renames a table in the catalog.
    async fn rename(&self, table: &Records, from: &str, to: &str) -> Result<()> {
        let mut row = self.row_of(table.id.0, from).await?;
        if from == to {
            return Ok(());
        }
        row.name = to.to_owned();
        match self.write_row(name_key(to), WriteIntent::Insert(&row.encode())).await {
            Err(OperationError::KeyExists(_)) => return Err(Error::TableExists(to.to_owned())),
            inserted => inserted?,
        }
        self.write_row(name_key(from), WriteIntent::Delete).await?;
        for mut row in self.index_rows().await? {
            // The task that deletes a dropped index expects its row unchanged.
            if row.table_id == table.id.0 && row.stage != IndexStage::Dropping {
                row.table = to.to_owned();
                let (_, row) = row.catalog_row(self.engine());
                self.write_row(&row.key, WriteIntent::Update(&row.value)).await?;
            }
        }
        Ok(())
    }

    /// Deletes the next records of a table after a key. Returns their number, and the last key if
    /// more may follow.
    async fn delete_some<K, V>(
        &self,
        table: &Table<K, V>,
        after: Option<KeyBuffer>,
    ) -> Result<(u64, Option<KeyBuffer>)>
    where
        K: TableKey + ?Sized,
        V: Value + ?Sized,
    {
        let records = self.records(table)?;
        let most = records_per_transaction(self.engine(), self.attempt() > 1);
        let delete = async |key: &[u8]| {
            let deleted = self.core().write(records, key, WriteIntent::Delete, None).await?;
            if !deleted && records.expires() {
                self.core().write(records, key, WriteIntent::Expire, None).await?;
            }
            Ok(())
        };
        Ok(engine_code(self.core().delete_next(records, (after, most), delete)).await?)
    }
}
