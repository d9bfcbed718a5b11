//! Bulk operations on tables with expiring records.

use std::collections::BTreeMap;
use std::sync::mpsc;
use std::time::Duration;

use crate::common::{Watched, with_limit};
use crate::expiring::{Clock, TTL, create};
use braiddb::{Database, Error, Table, TableOptions};
use pollster::block_on;

const LIMIT_SECONDS: u64 = 180;

type Numbers = Table<u64, u64>;

fn contents(db: &Database, table: &Numbers) -> BTreeMap<u64, u64> {
    let table = table.clone();
    let found = db.run_blocking(async move |tx| {
        let (mut scan, mut found) = (tx.scan(&table, ..)?, BTreeMap::new());
        while let Some((key, value)) = scan.next().await? {
            found.insert(key, value);
        }
        Ok(found)
    });
    found.unwrap()
}

fn numbers(keys: std::ops::Range<u64>, value: u64) -> impl Iterator<Item = (u64, u64)> {
    keys.map(move |key| (key, value))
}

/// Writes of a bulk operation expire after the time to live. Expired records count as missing.
/// Records that an aborted operation wrote expire at their original time.
#[test]
fn records_written_by_bulk_operations_expire() {
    with_limit(LIMIT_SECONDS, |_| {
        let clock = Clock::new();
        let directory = tempfile::tempdir().unwrap();
        let options = clock.options().tune(|tuning| tuning.page_frames(Some(24)));
        let db = Database::open(directory.path(), options.clone()).unwrap().watched();
        let table = create(&db, true);
        for key in 0..100 {
            block_on(db.put(&table, &key, &1)).unwrap();
        }
        let snapshot = block_on(db.snapshot()).unwrap();
        clock.pass(TTL / 2);
        let inner = table.clone();
        block_on(db.run_bulk(&table, async move |tx| {
            for key in 50..150 {
                tx.put(&inner, &key, &2).await?;
            }
            assert!(tx.delete(&inner, &49).await?);
            Ok(())
        }))
        .unwrap();
        let live: BTreeMap<_, _> = numbers(0..49, 1).chain(numbers(50..150, 2)).collect();
        assert_eq!(contents(&db, &table), live);
        // A snapshot uses its own time.
        let (inner, seen) = (table.clone(), numbers(0..100, 1).collect::<BTreeMap<_, _>>());
        let found = block_on(snapshot.run(async move |tx| {
            let (mut scan, mut found) = (tx.scan(&inner, ..)?, BTreeMap::new());
            while let Some((key, value)) = scan.next().await? {
                found.insert(key, value);
            }
            Ok(found)
        }));
        assert_eq!(found.unwrap(), seen);
        drop(snapshot);
        let inner = table.clone();
        let failed = block_on(db.run_bulk(&table, async move |tx| {
            for key in 0..60 {
                tx.put(&inner, &key, &3).await?;
            }
            Err::<(), _>(Error::Closed)
        }));
        assert!(matches!(failed, Err(Error::Closed)), "{failed:?}");
        clock.pass(TTL / 2 + 1);
        assert_eq!(contents(&db, &table), numbers(50..150, 2).collect());
        let inner = table.clone();
        block_on(db.run_bulk(&table, async move |tx| {
            assert_eq!(tx.get(&inner, &7).await?, None);
            assert!(!tx.delete(&inner, &8).await?);
            assert!(matches!(tx.update(&inner, &7, &4).await, Err(Error::KeyNotFound(_))));
            // Inserts over a record that has expired and was not swept.
            tx.insert(&inner, &7, &4).await
        }))
        .unwrap();
        let live: BTreeMap<_, _> = numbers(7..8, 4).chain(numbers(50..150, 2)).collect();
        assert_eq!(contents(&db, &table), live);
        assert_eq!(block_on(db.sweep_expired()).unwrap(), 48, "0 to 48, without 7");
        assert_eq!(contents(&db, &table), live);
        db.close().unwrap();
        let db = Database::open(directory.path(), options).unwrap().watched();
        let table: Numbers = block_on(db.open_table("records")).unwrap();
        assert_eq!(contents(&db, &table), live);
        clock.pass(TTL + 1);
        assert!(contents(&db, &table).is_empty());
        assert_eq!(block_on(db.sweep_expired()).unwrap(), 101);
        assert!(db.check().unwrap().problems.is_empty());
        db.close().unwrap();
    });
}

/// Closed gates refuse a sweep, automatic or requested, and it is repeated later.
#[test]
fn a_sweep_waits_for_a_bulk_operation() {
    with_limit(LIMIT_SECONDS, |_| {
        let clock = Clock::new();
        let db = Database::in_memory(clock.options()).unwrap().watched();
        // Swept each second of real time.
        let lifetime = Duration::from_secs(1);
        let options = TableOptions::default().paged().ttl(lifetime);
        let table: Numbers = db
            .run_blocking(async move |tx| tx.create_table_with("records", options).await)
            .unwrap();
        for key in 0..50 {
            block_on(db.put(&table, &key, &1)).unwrap();
        }
        let ((begins, has_begun), (go_on, word)) =
            (mpsc::channel(), futures_channel::oneshot::channel::<()>());
        let (other, inner) = (db.clone(), table.clone());
        let operation = std::thread::spawn(move || {
            let written = inner.clone();
            block_on(other.run_bulk(&inner, async move |tx| {
                for key in 40..60 {
                    tx.put(&written, &key, &2).await?;
                }
                begins.send(()).unwrap();
                _ = word.await;
                Ok(())
            }))
        });
        has_begun.recv().unwrap();
        let swept = || db.stats().expired_swept;
        clock.pass(1001);
        assert!(contents(&db, &table).is_empty());
        assert_eq!(block_on(db.sweep_expired()).unwrap(), 0, "the gates are closed");
        std::thread::sleep(Duration::from_millis(2500));
        assert_eq!(swept(), 0, "nor do the workers sweep by themselves");
        go_on.send(()).unwrap();
        operation.join().unwrap().unwrap();
        // All records: the operation wrote them before they expired.
        while swept() < 60 {
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(contents(&db, &table).is_empty());
        db.close().unwrap();
    });
}
