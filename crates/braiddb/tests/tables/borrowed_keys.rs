//! Tables keyed by tuples with borrowed text and bytes.

use std::future::Future;
use std::ops::Bound;

use crate::common::{Watched, with_limit};
use braiddb::{
    Database, Error, Index, IndexOptions, Key, KeyPrefix, Misuse, Options, Table, TableKey,
    Transaction,
};
use pollster::block_on;

const LIMIT_SECONDS: u64 = 120;

type Owned = Table<(String, u64), u64>;
type Borrowed = Table<(&'static str, u64), u64>;

fn in_memory() -> Database {
    Database::in_memory(Options::default().workers(1)).unwrap().watched()
}

/// Creates a table with three records.
fn filled(db: &Database) -> Owned {
    let table: Owned = block_on(db.create_table("t")).unwrap();
    for (region, day, count) in [("eu", 7, 40), ("eu", 8, 2), ("us", 7, 5)] {
        block_on(db.put(&table, &(region.into(), day), &count)).unwrap();
    }
    table
}

#[test]
fn one_table_has_owned_and_borrowed_handles() {
    with_limit(LIMIT_SECONDS, |_| {
        let db = in_memory();
        let owned = filled(&db);
        let opened: Borrowed = block_on(db.open_table("t")).unwrap();
        let region = String::from("eu");
        let name = region.as_str();
        assert_eq!(block_on(db.get(&opened, &(name, 7))).unwrap(), Some(40));
        assert_eq!(block_on(db.get(&owned.borrowed(), &(name, 7_u64))).unwrap(), Some(40));
        assert_eq!(block_on(db.get(&owned, &(name.into(), 8))).unwrap(), Some(2));
        assert!(block_on(db.contains(&opened, &(name, 8))).unwrap());
        block_on(db.put(&opened, &(name, 9), &1)).unwrap();
        assert!(block_on(db.delete(&opened, &(name, 8))).unwrap());
        assert_eq!(block_on(db.get(&owned, &(region.clone(), 9))).unwrap(), Some(1));
        let wrong = block_on(db.open_table::<(&[u8], u64), u64>("t"));
        assert!(matches!(wrong, Err(Error::Misuse(Misuse::TableType { .. }))), "{wrong:?}");
        let snapshot = block_on(db.snapshot()).unwrap();
        let transaction = block_on(db.begin()).unwrap();
        block_on(transaction.put(&opened, &(name, 7), &41)).unwrap();
        assert_eq!(block_on(transaction.get(&opened, &(name, 7))).unwrap(), Some(41));
        let range = (name, 7)..=(name, 9);
        let records = block_on(transaction.scan(&opened, range, true, 1)).unwrap();
        assert_eq!(records, [((region.clone(), 9), 1)]);
        block_on(transaction.commit()).unwrap();
        assert_eq!(block_on(snapshot.get(&opened, &(name, 7))).unwrap(), Some(40));
        assert_eq!(block_on(db.get(&owned, &(region, 7))).unwrap(), Some(41));
        assert_eq!(block_on(db.clear(&opened)).unwrap(), 3);
    });
}

/// Closures own the keys that they pass by reference to operations; their futures are `Send`.
#[test]
fn ranges_and_prefixes_may_borrow_from_a_closures_values() {
    with_limit(LIMIT_SECONDS, |_| {
        let db = in_memory();
        let table: Borrowed = filled(&db).borrowed();
        let region = String::from("eu");
        let counts = db
            .run_blocking(async move |tx| {
                let start = (region.as_str(), 8);
                let after = (Bound::Excluded(&start), Bound::Unbounded);
                Ok([
                    tx.count(&table, (&*region, 7)..(&*region, 8)).await?,
                    tx.count(&table, ..=start).await?,
                    tx.count(&table, after).await?,
                    tx.scan_prefix(&table, &(&*region,))?.count().await?,
                    tx.scan_prefix(&table, &("us",))?.rev().count().await?,
                    tx.multi_get(&table, &[(&*region, 7), ("us", 8)])
                        .await?
                        .iter()
                        .flatten()
                        .count() as u64,
                    u64::from(
                        tx.keys(&table, (&*region, 8)..)?.next().await? == Some(("eu".into(), 8)),
                    ),
                    tx.delete_range(&table, (&*region, 0)..).await?,
                ])
            })
            .unwrap();
        assert_eq!(counts, [1, 2, 1, 2, 1, 1, 1, 3]);
    });
}

async fn bump<K>(tx: &Transaction, table: &Table<K, u64>, key: &K) -> Result<u64, Error>
where
    K: TableKey + ?Sized,
{
    let count = tx.get(table, key).await?.unwrap_or(0) + 1;
    tx.put(table, key, &count).await?;
    Ok(count)
}

/// Generic code that only requires `Key` still compiles, with its closures.
fn put_and_count<K>(db: &Database, table: Table<K, u64>, key: K) -> u64
where
    K: Key + Send + Sync,
{
    let put = db.run_blocking(async move |tx| {
        tx.put(&table, &key, &1).await?;
        let first: Option<(K::Owned, u64)> = tx.first(&table).await?;
        assert!(first.is_some());
        tx.count(&table, ..).await
    });
    put.unwrap()
}

/// Does the same with prefixes.
async fn first_of<K, P>(
    tx: &Transaction,
    table: &Table<K, u64>,
    prefix: &P,
) -> Result<Option<K::Owned>, Error>
where
    K: Key + KeyPrefix<P>,
{
    Ok(tx.scan_prefix(table, prefix)?.next().await?.map(|(key, _)| key))
}

fn sendable<F: Future + Send + 'static>(future: F) -> F {
    future
}

#[test]
fn generic_code_accepts_owned_and_borrowed_handles() {
    with_limit(LIMIT_SECONDS, |_| {
        let db = in_memory();
        let owned = filled(&db);
        let (table, region) = (owned.borrowed(), String::from("eu"));
        let bumped = db.run_blocking(async move |tx| bump(tx, &table, &(&*region, 7)).await);
        assert_eq!(bumped.unwrap(), 41);
        let numbers: Table<u64, u64> = block_on(db.create_table("numbers")).unwrap();
        let of_numbers = numbers.clone();
        let bumped = db.run_blocking(async move |tx| bump(tx, &of_numbers, &7).await);
        assert_eq!(bumped.unwrap(), 1);
        assert_eq!(put_and_count(&db, numbers, 8), 2);
        assert_eq!(put_and_count(&db, owned.clone(), ("asia".into(), 1)), 4);
        let of_owned = owned.clone();
        let first =
            db.run_blocking(async move |tx| first_of(tx, &of_owned, &("eu".to_owned(),)).await);
        assert_eq!(first.unwrap(), Some(("eu".to_owned(), 7)));
        let (lent, of_lent, region) = (db.clone(), owned.borrowed(), String::from("asia"));
        let read = sendable(async move { lent.get(&of_lent, &(&*region, 1_u64)).await });
        assert_eq!(block_on(read).unwrap(), Some(1));
        let read = sendable(db.get(&owned, &("asia".to_owned(), 1)));
        assert_eq!(block_on(read).unwrap(), Some(1));
    });
}

#[test]
fn indexes_are_read_by_borrowed_keys() {
    with_limit(LIMIT_SECONDS, |_| {
        let db = in_memory();
        let table: Table<u64, str> = block_on(db.create_table("persons")).unwrap();
        let options = IndexOptions::default().unique(true);
        let index: Index<(String, u64), u64, str> = block_on(db.index(
            &table,
            "by name and length",
            options,
            |name, keys: &mut braiddb::IndexKeys<'_, (String, u64)>| {
                keys.push_borrowed(&(name, name.len() as u64));
            },
        ))
        .unwrap();
        block_on(db.put(&table, &1, "ada")).unwrap();
        block_on(db.put(&table, &2, "ben")).unwrap();
        let name = String::from("ben");
        let found = db.run_blocking(async move |tx| {
            let index = index.borrowed();
            let found = tx.get_by(&index, &(&*name, 3)).await?.map(|(key, _)| key);
            let mut from = tx.scan_by(&index, (&*name, 0)..)?;
            let first = from.next().await?.map(|(_, key, _)| key);
            let mut named = tx.scan_prefix_by(&index, &(&*name,))?;
            Ok((found, first, named.next().await?.map(|((name, _), _, _)| name)))
        });
        assert_eq!(found.unwrap(), (Some(2), Some(2), Some("ben".to_owned())));
    });
}
