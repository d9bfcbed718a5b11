//! Scans of records that are only in the log: neighbours are read together in both directions, and
//! an unreadable record is reported by its key.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::common::{Watched, with_limit};
use braiddb::{Database, Error, LogError, Options, Table, TableOptions, Transaction, Tuning};
use futures_util::future::join;
use pollster::block_on;

const LIMIT_SECONDS: u64 = 300;
const RECORDS: u64 = 20_000;
const A_TRANSACTION: u64 = 1000;

/// The number of records that scans have passed.
static PASSED: AtomicU64 = AtomicU64::new(0);

fn options() -> Options {
    Options::default()
        .workers(1)
        .memory_budget(Some(80 << 20))
        .tuning(Tuning::default().log_segment_bytes(1 << 20).log_ring_bytes(64 << 20))
}

/// Returns a unique value.
fn value(key: u64) -> Vec<u8> {
    let mark = key.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes();
    mark.repeat(10 + (key % 7) as usize)
}

/// Creates a database whose records are in the log in key order.
fn fill(directory: &Path) {
    let db = Database::open(directory, options()).unwrap().watched();
    let table: Table<u64, [u8]> = block_on(db.create_table("records")).unwrap();
    for first in (0..RECORDS).step_by(A_TRANSACTION as usize) {
        let table = table.clone();
        let insert = async move |tx: &Transaction| {
            for key in first..first + A_TRANSACTION {
                tx.insert(&table, &key, &value(key)[..]).await?;
            }
            Ok(())
        };
        db.run_blocking(insert).unwrap();
    }
    block_on(db.checkpoint()).unwrap();
    db.close().unwrap();
}

fn open(directory: &Path) -> (Database, Table<u64, [u8]>) {
    let db = Database::open(directory, options()).unwrap().watched();
    let table = block_on(db.open_table("records")).unwrap();
    (db, table)
}

/// Scans. Returns the keys and the number of waits for storage.
fn scan(directory: &Path, reverse: bool, most: u64) -> (Vec<u64>, u64) {
    let (db, table) = open(directory);
    let before = db.stats().suspensions.storage;
    let keys = db.run_blocking(async move |tx| {
        let scan = tx.scan(&table, ..)?.limit(most);
        let mut scan = if reverse { scan.rev() } else { scan };
        let mut keys = Vec::new();
        while let Some((key, found)) = scan.next().await? {
            assert!(found == value(key), "record {key}");
            keys.push(key);
            PASSED.fetch_add(1, Ordering::Relaxed);
        }
        Ok(keys)
    });
    let waited = db.stats().suspensions.storage - before;
    db.close().unwrap();
    (keys.unwrap(), waited)
}

#[test]
fn records_adjacent_in_the_log_are_read_together() {
    with_limit(LIMIT_SECONDS, |limit| {
        limit.on_timeout("records passed", || PASSED.load(Ordering::Relaxed).to_string());
        let directory = tempfile::tempdir().unwrap();
        fill(directory.path());
        let (keys, waited) = scan(directory.path(), false, u64::MAX);
        assert!(keys.into_iter().eq(0..RECORDS));
        assert!((1..100).contains(&waited), "waited {waited} times");
        let (keys, waited) = scan(directory.path(), true, u64::MAX);
        assert!(keys.into_iter().eq((0..RECORDS).rev()));
        assert!((1..100).contains(&waited), "waited {waited} times in reverse");
        let (keys, waited) = scan(directory.path(), false, 10);
        assert!(keys.into_iter().eq(0..10));
        assert_eq!(waited, 1);
    });
}

/// Records that compaction moved within the log are found at their new place.
#[test]
fn scans_read_records_that_compaction_moved() {
    with_limit(LIMIT_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        fill(directory.path());
        let (db, table) = open(directory.path());
        let moved = table.clone();
        let odd = (0..RECORDS).filter(|key| key % 64 == 1);
        let source = db.run_source(0, odd, async move |tx, key: &u64| match key % 128 {
            1 => tx.put(&moved, key, &value(*key)[..]).await,
            _ => tx.delete(&moved, key).await.map(drop),
        });
        source.unwrap().wait().unwrap();
        db.close().unwrap();
        drop((db, table));
        for reverse in [false, true] {
            let (mut keys, _) = scan(directory.path(), reverse, u64::MAX);
            keys.sort_unstable();
            assert!(keys.into_iter().eq((0..RECORDS).filter(|key| key % 128 != 65)));
        }
    });
}

/// Damages the value of a record in the files of a closed database.
fn damage(directory: &Path, key: u64) {
    let wanted = value(key);
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let Ok(mut bytes) = std::fs::read(&path) else { continue };
        if let Some(place) = bytes.windows(wanted.len()).position(|some| some == wanted) {
            bytes[place + 3] ^= 1;
            std::fs::write(&path, bytes).unwrap();
            return;
        }
    }
    panic!("record {key} is in no file");
}

#[test]
fn a_damaged_record_is_reported_and_its_neighbours_are_read() {
    const DAMAGED: u64 = 7_321;
    with_limit(LIMIT_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        fill(directory.path());
        damage(directory.path(), DAMAGED);
        let (db, table) = open(directory.path());
        let keys = db.run_blocking(async move |tx| {
            let (mut scan, mut keys) = (tx.scan(&table, ..)?, Vec::new());
            let told = loop {
                match scan.next().await {
                    Ok(record) => {
                        keys.push(record.expect("the damaged one comes before the end").0)
                    }
                    Err(error) => break error,
                }
            };
            assert!(
                matches!(&told, Error::Corrupt(error) if matches!(**error, LogError::Corrupt { .. })),
                "{told:?}"
            );
            assert_eq!(scan.next().await.unwrap_err().to_string(), told.to_string());
            drop(scan);
            let mut scan = tx.scan(&table, DAMAGED + 1..)?;
            while let Some((key, found)) = scan.next().await? {
                assert!(found == value(key), "record {key}");
                keys.push(key);
            }
            Ok(keys)
        });
        assert!(keys.unwrap().into_iter().eq((0..RECORDS).filter(|key| *key != DAMAGED)));
        db.close().unwrap();
    });
}

/// After a scan of values larger than memory, all workers fall asleep. Each later commit that comes
/// alone wakes the workers it needs. The wake-up lost here came between a worker's last check of
/// the log and its sleep, as in `wake_ups::a_ring_right_after_the_look`.
#[test]
fn single_commits_after_a_scan_of_large_values_return() {
    const LARGE: usize = 4 << 20;
    const VALUES: u64 = 24;
    with_limit(LIMIT_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let options = options().workers(2).tune(|tuning| tuning.log_segment_bytes(64 << 20));
        let db = Database::open(directory.path(), options).unwrap().watched();
        let table: Table<u64, [u8]> = block_on(db.create_table("records")).unwrap();
        for key in 0..VALUES {
            block_on(db.put(&table, &key, &vec![key as u8; LARGE])).unwrap();
        }
        for round in 0..3 {
            let scanned = table.clone();
            let bytes = db.run_blocking(async move |tx| {
                let (mut scan, mut bytes) = (tx.scan(&scanned, ..VALUES)?, 0);
                while let Some((_, value)) = scan.next().await? {
                    bytes += value.len();
                }
                Ok(bytes)
            });
            assert_eq!(bytes.unwrap(), VALUES as usize * LARGE);
            for key in 0..20 {
                // Long enough for every worker to fall asleep.
                std::thread::sleep(std::time::Duration::from_millis(20));
                block_on(db.put(&table, &(VALUES + key), &[round])).unwrap();
            }
        }
        assert!(db.stats().suspensions.storage > 0, "values are read from the disk");
        db.close().unwrap();
    });
}

/// A visit copies records that it reads from the log, and those in memory between them. The bytes
/// that it copies at a time are limited.
#[test]
fn visits_copy_few_bytes_beside_records_from_the_log() {
    /// A batch takes values of one mebibyte, and one that exceeds it.
    const MAX_COPIED: u64 = 2 << 20;
    with_limit(LIMIT_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let value = |key: u64| vec![key as u8; 200 << 10];
        let db = Database::open(directory.path(), options()).unwrap().watched();
        let table: Table<u64, [u8]> = block_on(db.create_table("records")).unwrap();
        (0..40).for_each(|key| block_on(db.put(&table, &key, &value(key))).unwrap());
        block_on(db.checkpoint()).unwrap();
        db.close().unwrap();
        // Every tenth record remains only in the log.
        let (db, table) = open(directory.path());
        let resident = (0..40).filter(|key| key % 10 != 9);
        resident.for_each(|key| block_on(db.put(&table, &key, &value(key))).unwrap());
        let (most, observed) = (Arc::new(AtomicU64::new(0)), db.clone());
        let seen = most.clone();
        let keys = db.run_blocking(async move |tx| {
            let mut keys = Vec::new();
            let each = |key, found: &[u8]| {
                assert!(found == value(key), "record {key}");
                keys.push(key);
                seen.fetch_max(observed.stats().memory.copies, Ordering::Relaxed);
                ControlFlow::<()>::Continue(())
            };
            tx.scan(&table, ..)?.visit(each).await?;
            Ok(keys)
        });
        assert!(keys.unwrap().into_iter().eq(0..40));
        let most = most.load(Ordering::Relaxed);
        assert!((1..MAX_COPIED).contains(&most), "{most} bytes were copied at a time");
        db.close().unwrap();
    });
}

/// While a count waits for the log, its transaction rolls back. The count includes no undone insert,
/// and every record with an undone deletion.
#[test]
fn a_count_beside_a_rollback_counts_the_records_that_are_left() {
    with_limit(LIMIT_SECONDS, |_| {
        const RECORDS: u64 = 20;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let db = Database::open(path, options()).unwrap().watched();
        let fill = async move |tx: &Transaction| {
            // The count must read a record to know whether it has expired.
            let expiring = TableOptions::default().ttl(Duration::from_hours(1000));
            let table = tx.create_table_with("records", expiring).await?;
            for key in 0..RECORDS {
                tx.insert(&table, &(10 * key), &value(key)[..]).await?;
            }
            Ok::<Table<u64, [u8]>, Error>(table)
        };
        db.run_blocking(fill).unwrap();
        block_on(db.checkpoint()).unwrap();
        db.close().unwrap();
        let (db, table) = open(path);
        let before = db.stats().suspensions.storage;
        let count = db.run_blocking(async move |tx| {
            let savepoint = tx.savepoint();
            for key in 0..RECORDS / 2 {
                tx.insert(&table, &(10 * key + 5), &value(key)[..]).await?;
            }
            tx.delete(&table, &10).await?;
            let count = tx.scan(&table, ..)?.count();
            let (count, undone) = join(count, tx.rollback_to(&savepoint)).await;
            undone?;
            count
        });
        assert_eq!(count.unwrap(), RECORDS);
        assert!(db.stats().suspensions.storage > before, "the count has waited");
    });
}
