//! Dropping, renaming and clearing tables.
//!
//! | step of a dropping | committed |
//! |---|---|
//! | 1. the table's row leaves the catalog for one that says *dropped*; its indexes' rows say *dropping* | all in one transaction, at the LSN `d` |
//! | 2. transactions that begin after `d` may use neither any more | the row once more |
//! | 3. transactions that began before are waited for | |
//! | 4. the entries of its indexes are deleted, and its records | many at a time |
//! | 5. the rows of step 1 are deleted | |
//!
//! A transaction that began before the row of step 2 was committed is waited for, whatever it did by then;
//! what it wrote to the table is deleted with the rest, as if it had committed before `d`. After a crash,
//! opening the database goes on from step 4.

use std::sync::Arc;

use super::catalog::{TableDescription, check_name, name_key};
use super::error::{BusyWith, Error, Result};
use super::index::IndexStage;
use super::run::commit_on_worker;
use super::table::Table;
use super::transaction::Transaction;
use super::{Database, refuse_on_worker};
use crate::record::{ChangingIndexes, Records};
use crate::rid::{CATALOG, TableId};
use crate::sched::engine_code;
use crate::transaction::{
    CatalogRow, Engine, OperationError, WorkerTransactions, WriteIntent, clear_dropped,
};
use crate::types::{DecodeError, KeyBuffer, TableKey, Value};

/// The catalog's key of a dropped table goes on with its number, as ten decimal digits.
const PREFIX: &str = "braid.dropped.";
/// Ends the catalog's value of a dropped table, after its name's length `u16` and its name. A build that
/// drops no tables takes that for damage, and so opens no database in which one is being dropped.
const LAST: u8 = 3;
/// The same, of a table whose records expire.
const LAST_EXPIRING: u8 = 4;

/// Whether a key of the catalog is a dropped table's.
pub(super) fn is_dropped_key(key: &[u8]) -> bool {
    key.starts_with(PREFIX.as_bytes())
}

/// The catalog's key of the dropped table with this number.
fn key_of(id: u32) -> Vec<u8> {
    format!("{PREFIX}{id:010}").into_bytes()
}

/// A table that was dropped, and whose records are being deleted; or one that has no name yet (`stage.rs`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DroppedTable {
    pub(super) id: u32,
    pub(super) name: String,
    /// Its records expire.
    pub(super) expires: bool,
}

impl DroppedTable {
    pub(super) fn key(&self) -> Vec<u8> {
        key_of(self.id)
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let length = u16::try_from(self.name.len()).expect("checked when the table was created");
        let mut bytes = length.to_le_bytes().to_vec();
        bytes.extend_from_slice(self.name.as_bytes());
        bytes.push(if self.expires { LAST_EXPIRING } else { LAST });
        bytes
    }

    pub(super) fn decode(key: &[u8], bytes: &[u8]) -> Result<Self, DecodeError> {
        Self::parse(key, bytes).ok_or_else(|| DecodeError::new("a dropped table in the catalog"))
    }

    fn parse(key: &[u8], bytes: &[u8]) -> Option<Self> {
        let id = Self::id_of(key)?;
        let (length, rest) = bytes.split_first_chunk::<2>()?;
        let (name, rest) = rest.split_at_checked(u16::from_le_bytes(*length).into())?;
        let name = String::from_utf8(name.to_vec()).ok()?;
        let expires = match rest {
            [LAST] => false,
            [LAST_EXPIRING] => true,
            _ => return None,
        };
        Some(Self { id, name, expires })
    }

    /// The number in the key of such a row.
    pub(super) fn id_of(key: &[u8]) -> Option<u32> {
        let id = key.strip_prefix(PREFIX.as_bytes())?;
        std::str::from_utf8(id).ok()?.parse().ok()
    }

    /// The table of its records, and its row.
    pub(super) fn catalog_row(&self, engine: &Engine) -> (Arc<Records>, CatalogRow) {
        let row =
            CatalogRow { catalog: engine.table(CATALOG), key: self.key(), value: self.encode() };
        (engine.table(TableId(self.id)), row)
    }
}

impl Database {
    /// Drops a table, with its indexes. Transactions that begin once it is dropped find no table of this
    /// name, and fail with [`Error::TableNotFound`] if they use a handle of it; those that are active go on
    /// with it. Its records are deleted as soon as those are over, while other transactions go on, and their
    /// space is given back as that of all deleted records is; this returns when that is done.
    ///
    /// If the future is dropped, the table is dropped all the same. If the database is closed meanwhile, or
    /// the process ends, the records left are deleted when it is opened the next time; so they are if deleting
    /// them fails, which is told, although the table is dropped.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options};
    ///
    /// # pollster::block_on(async {
    /// let db = Database::in_memory(Options::default().workers(1))?;
    /// let drafts = db.create_table::<u64, str>("drafts").await?;
    /// db.put(&drafts, &1, "to be").await?;
    /// db.drop_table("drafts").await?;
    /// assert!(matches!(db.get(&drafts, &1).await, Err(Error::TableNotFound(_))));
    /// # Ok::<_, Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// [`Error::TableNotFound`]; [`BusyWith::TableChange`](crate::BusyWith) while an index of the table is created or dropped;
    /// [`Misuse::WouldBlock`](crate::Misuse) from within a transaction, which it would wait for; as [`Database::run`].
    pub async fn drop_table(&self, name: &str) -> Result<()> {
        refuse_on_worker()?;
        let name = name.to_owned();
        self.on_worker(async move || drop_table(&name).await).await
    }

    /// Gives a table another name, in a transaction of its own. Handles of the table stay good, and go on
    /// calling it by the name that they were opened with.
    ///
    /// ```
    /// # use braiddb::{Database, Error, Options, Table};
    /// # pollster::block_on(async {
    /// # let db = Database::in_memory(Options::default().workers(1))?;
    /// let cities: Table<str, u64> = db.create_table("citys").await?;
    /// db.rename_table("citys", "cities").await?;
    /// db.put(&cities, "Ljubljana", &285_604).await?;
    /// assert_eq!(db.tables().await?[0].name, "cities");
    /// # Ok::<_, Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// [`Error::TableNotFound`]; [`Error::TableExists`] if there is another table of the new name;
    /// [`Misuse::TableName`](crate::Misuse); [`BusyWith::TableChange`](crate::BusyWith) while an index of the table is created or dropped; as
    /// [`Database::run`].
    pub async fn rename_table(&self, from: &str, to: &str) -> Result<()> {
        check_name(to)?;
        let (from, to) = (from.to_owned(), to.to_owned());
        self.on_worker(async move || rename_table(&from, &to).await).await
    }

    /// Deletes all records of a table, some in a transaction, and returns how many they were. Transactions
    /// that go on meanwhile see some of them deleted, and what they write into what this has passed stays; if the
    /// future is dropped, or fails, some are deleted.
    ///
    /// ```
    /// # use braiddb::{Database, Error, Options, Table};
    /// # pollster::block_on(async {
    /// # let db = Database::in_memory(Options::default().workers(1))?;
    /// let cities: Table<str, u64> = db.create_table("cities").await?;
    /// db.put(&cities, "Ljubljana", &285_604).await?;
    /// assert_eq!(db.clear(&cities).await?, 1);
    /// assert!(db.is_empty(&cities).await?);
    /// # Ok::<_, Error>(()) }).unwrap();
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

/// The table of a name, and the right to change its indexes.
async fn find(name: &str) -> Result<(Arc<Records>, ChangingIndexes)> {
    let (found, _) = commit_on_worker(async |tx| tx.describe(name).await).await?;
    let found = found.ok_or_else(|| Error::TableNotFound(name.to_owned()))?;
    let table = WorkerTransactions::current().engine().table(TableId(found.id));
    let busy = || Error::Busy(BusyWith::TableChange { table: name.to_owned() });
    let changing = ChangingIndexes::begin(&table).ok_or_else(busy)?;
    Ok((table, changing))
}

async fn drop_table(name: &str) -> Result<()> {
    let (table, changing) = find(name).await?;
    let dropped = DroppedTable { id: table.id.0, name: name.to_owned(), expires: table.expires() };
    let (indexes, lsn) = commit_on_worker(async |tx| tx.list_as_dropped(&dropped).await).await?;
    table.drop_at(lsn);
    table.secondaries().iter().for_each(|index| index.mark_dropped());
    drop(changing);
    delete_dropped(&dropped, indexes).await
}

/// Deletes the records of a table that is listed as dropped, and then the row that says so; those of its
/// indexes first.
async fn delete_dropped(
    dropped: &DroppedTable,
    indexes: Vec<(Arc<Records>, CatalogRow)>,
) -> Result<()> {
    // So every transaction that begins later sees that.
    commit_on_worker(async |tx| tx.put_dropped(dropped).await).await?;
    let worker = WorkerTransactions::current();
    if !worker.wait_for_grace_period().await? {
        // The database is closing: the rest is left to the next opening.
        return Ok(());
    }
    for (records, row) in indexes.into_iter().chain([dropped.catalog_row(worker.engine())]) {
        clear_dropped(records, row).await?;
    }
    Ok(())
}

/// Drops a table that is listed as dropped since it was made; nothing, if it is not listed so any more.
pub(super) async fn drop_staged(dropped: DroppedTable) -> Result<()> {
    let (still, lsn) = commit_on_worker(async |tx| tx.touch_dropped(&dropped).await).await?;
    if !still {
        return Ok(());
    }
    let table = WorkerTransactions::current().engine().table(TableId(dropped.id));
    table.drop_at(lsn);
    delete_dropped(&dropped, Vec::new()).await
}

async fn rename_table(from: &str, to: &str) -> Result<()> {
    let (table, _changing) = find(from).await?;
    commit_on_worker(async |tx| tx.rename(&table, from, to).await).await?;
    table.set_name(to);
    for index in table.secondaries().iter() {
        index.entries().set_name(&format!("{to}.{}", index.name()));
    }
    Ok(())
}

impl Transaction {
    /// The row of a table in the catalog, which must be this table's.
    async fn row_of(&self, table: u32, name: &str) -> Result<TableDescription> {
        let found = self.describe(name).await?.filter(|found| found.id == table);
        found.ok_or_else(|| Error::TableNotFound(name.to_owned()))
    }

    /// Takes a table off the catalog, lists it as dropped, and its indexes; the tables of their entries and
    /// their rows.
    async fn list_as_dropped(
        &self,
        dropped: &DroppedTable,
    ) -> Result<Vec<(Arc<Records>, CatalogRow)>> {
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

    /// Whether a table is listed as dropped: so are staged ones.
    pub(super) async fn is_listed_as_dropped(&self, table: u32) -> Result<bool> {
        let (catalog, key) = (self.catalog(), key_of(table));
        Ok(engine_code(self.core().contains(&catalog, &key)).await?)
    }

    async fn put_dropped(&self, dropped: &DroppedTable) -> Result<()> {
        Ok(self.write_row(&dropped.key(), WriteIntent::Put(&dropped.encode())).await?)
    }

    /// Writes the row of a dropped table anew, and says whether there is one.
    pub(super) async fn touch_dropped(&self, dropped: &DroppedTable) -> Result<bool> {
        match self.write_row(&dropped.key(), WriteIntent::Update(&dropped.encode())).await {
            Err(OperationError::KeyNotFound) => Ok(false),
            written => Ok(written.map(|()| true)?),
        }
    }

    pub(super) async fn write_row(
        &self,
        key: &[u8],
        intent: WriteIntent<'_>,
    ) -> Result<(), OperationError> {
        let catalog = self.catalog();
        engine_code(self.core().write(&catalog, key, intent)).await?;
        Ok(())
    }

    /// Gives a table another name in the catalog.
    async fn rename(&self, table: &Records, from: &str, to: &str) -> Result<()> {
        let mut row = self.row_of(table.id.0, from).await?;
        if from == to {
            return Ok(());
        }
        row.name = to.to_owned();
        match self.write_row(name_key(to), WriteIntent::Insert(&row.encode())).await {
            Err(OperationError::KeyExists) => return Err(Error::TableExists(to.to_owned())),
            inserted => inserted?,
        }
        self.write_row(name_key(from), WriteIntent::Delete).await?;
        for mut row in self.index_rows().await? {
            // Whoever deletes a dropped one knows its row as it is.
            if row.table_id == table.id.0 && row.stage != IndexStage::Dropping {
                row.table = to.to_owned();
                let (_, row) = row.catalog_row(self.engine());
                self.write_row(&row.key, WriteIntent::Update(&row.value)).await?;
            }
        }
        Ok(())
    }

    /// Deletes the next records of a table after a key; how many, and the last of them if there may be more.
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
        let delete = async |key: &[u8]| {
            let deleted = self.core().write(records, key, WriteIntent::Delete).await?;
            if !deleted && records.expires() {
                self.core().write(records, key, WriteIntent::Expire).await?;
            }
            Ok(())
        };
        Ok(engine_code(self.core().delete_next(records, after, delete)).await?)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::common::{PART_SECONDS, with_limit};

    #[test]
    fn rows_keep_their_parts_and_are_told_from_damage() {
        with_limit(PART_SECONDS, |_| {
            for expires in [false, true] {
                let dropped =
                    DroppedTable { id: 1_234_567_890, name: "drafts".to_owned(), expires };
                let (key, bytes) = (dropped.key(), dropped.encode());
                assert!(is_dropped_key(&key) && !is_dropped_key(b"drafts"));
                assert_eq!(DroppedTable::decode(&key, &bytes).unwrap(), dropped);
                for length in 0..bytes.len() {
                    assert!(DroppedTable::decode(&key, &bytes[..length]).is_err());
                }
                assert!(TableDescription::decode(&key, &bytes).is_err());
            }
        });
    }
}
