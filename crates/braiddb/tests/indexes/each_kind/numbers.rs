//! A table with an index of numbers, and checks that the index matches the table.

use std::collections::BTreeSet;
use std::ops::Bound;

use braiddb::{
    Database, Error, Index, IndexKeys, IndexOptions, Key, Options, Table, TableOptions,
    Transaction, Tuning, Value,
};
use pollster::block_on;

use crate::common::Watched;

/// A test value: its index keys as decimal numbers separated by blanks.
pub(crate) fn keys_of(value: &str) -> impl Iterator<Item = u64> {
    value.split(' ').filter_map(|word| word.parse().ok())
}

pub(crate) fn extract(value: &str, keys: &mut IndexKeys<'_, u64>) {
    assert!(!value.contains("panic"), "the test's extractor panics");
    keys_of(value).for_each(|key| keys.push(&key));
}

pub(crate) type Records = Table<u64, str>;

pub(crate) type Numbers = Index<u64, u64, str>;

/// Creates a table of the kind under test.
pub(crate) fn create_table<K, V>(db: &Database, name: &'static str) -> Table<K, V>
where
    K: Key + ?Sized + 'static,
    V: Value + ?Sized + 'static,
{
    let options = TableOptions::default();
    let options = if super::PAGED { options.paged() } else { options };
    db.run_blocking(async move |tx| tx.open_or_create_table_with(name, options).await).unwrap()
}

pub(crate) fn in_memory(workers: usize, unique: bool) -> (Database, Records, Numbers) {
    let db = Database::in_memory(Options::default().workers(workers)).unwrap().watched();
    let table = create_table(&db, "records");
    let options = IndexOptions::default().unique(unique);
    let index = block_on(db.index(&table, "numbers", options, extract)).unwrap();
    (db, table, index)
}

/// Makes several writes in one transaction: a value, or `None` to delete.
pub(crate) fn write(
    db: &Database,
    table: &Records,
    writes: &[(u64, Option<&str>)],
) -> Result<(), Error> {
    let table = table.clone();
    let writes: Vec<_> = writes.iter().map(|(k, v)| (*k, v.map(str::to_owned))).collect();
    db.run_blocking(async move |tx| {
        for (key, value) in &writes {
            match value {
                Some(value) => tx.put(&table, key, value).await?,
                None => _ = tx.delete(&table, key).await?,
            }
        }
        Ok(())
    })
}

pub(crate) type Range = (Bound<u64>, Bound<u64>);

pub(crate) async fn scan(
    tx: &Transaction,
    index: &Numbers,
    range: Range,
    reverse: bool,
) -> Result<Vec<(u64, u64, String)>, Error> {
    let scan = tx.scan_by(index, range)?;
    let (mut scan, mut found) = (if reverse { scan.rev() } else { scan }, Vec::new());
    while let Some((number, key, value)) = scan.next().await? {
        found.push((number, key, value.to_owned()));
    }
    Ok(found)
}

pub(crate) const ALL: Range = (Bound::Unbounded, Bound::Unbounded);

/// Returns the expected index contents, computed from the table in the same transaction.
pub(crate) async fn expected(
    tx: &Transaction,
    table: &Records,
) -> Result<Vec<(u64, u64, String)>, Error> {
    let (mut scan, mut all) = (tx.scan(table, ..)?, BTreeSet::new());
    while let Some((key, value)) = scan.next().await? {
        all.extend(keys_of(value).map(|number| (number, key, value.to_owned())));
    }
    Ok(all.into_iter().collect())
}

/// Checks that the index matches the table within a transaction.
pub(crate) async fn check(
    tx: &Transaction,
    table: &Records,
    index: &Numbers,
) -> Result<usize, Error> {
    let found = scan(tx, index, ALL, false).await?;
    assert_eq!(found, expected(tx, table).await?, "attempt {}", tx.attempt());
    let (mut entries, mut keys) = (tx.entries_by(index, ..)?, Vec::new());
    while let Some(entry) = entries.next().await? {
        keys.push(entry);
    }
    assert!(found.iter().map(|(number, key, _)| (*number, *key)).eq(keys));
    Ok(found.len())
}

pub(crate) fn check_now(db: &Database, table: &Records, index: &Numbers) -> usize {
    let (table, index) = (table.clone(), index.clone());
    db.run_blocking(async move |tx| check(tx, &table, &index).await).unwrap()
}

pub(crate) fn open(directory: &std::path::Path) -> (Database, Records) {
    let options =
        Options::default().workers(2).tuning(Tuning::default().log_segment_bytes(1 << 20));
    let db = Database::open(directory, options).unwrap().watched();
    let table = create_table(&db, "records");
    (db, table)
}

pub(crate) fn attach(
    db: &Database,
    table: &Records,
    options: IndexOptions,
) -> Result<Numbers, Error> {
    block_on(db.index(table, "numbers", options, extract))
}
