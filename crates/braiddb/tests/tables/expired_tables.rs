//! Operations on whole tables with expiring records: load, clear, rename, drop, eviction. Expired
//! records that are not swept yet do not disturb them.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::common::{Watched, with_limit};
use crate::expiring::{Clock, TTL, create, expiring};
use braiddb::{
    Certifier, Database, Error, IndexKeys, IndexOptions, Options, Table, TableOptions, Transaction,
};
use pollster::block_on;

/// A limit far above the duration of any test.
const LIMIT_SECONDS: u64 = 300;

fn open(directory: &Path, options: Options) -> Database {
    Database::open(directory, options.tune(|tuning| tuning.log_segment_bytes(1 << 20)))
        .unwrap()
        .watched()
}

fn records_of_log(db: &Database) -> u64 {
    db.check().unwrap().records
}

#[test]
fn staged_tables_may_contain_expiring_records() {
    with_limit(LIMIT_SECONDS, |_| {
        for paged in [false, true] {
            let (clock, directory) = (Clock::new(), tempfile::tempdir().unwrap());
            let db = open(directory.path(), clock.options());
            block_on(async {
                let staged = db.stage_table_with::<u64, u64>("records", expiring(paged)).await?;
                assert_eq!(staged.load((0..1000).map(|key| (key, key)), |_| ()).await?, 1000);
                clock.pass(TTL / 2);
                let table = staged.publish().await?;
                db.put(&table, &7, &70).await?;
                assert_eq!(db.len(&table).await?, 1000);
                clock.pass(TTL / 2);
                assert_eq!(db.len(&table).await?, 1);
                assert_eq!(db.sweep_expired().await?, 999);
                Ok::<_, Error>(())
            })
            .unwrap();
            db.close().unwrap();
        }
    });
}

#[test]
fn tables_with_expired_records_are_cleared_renamed_and_dropped() {
    with_limit(LIMIT_SECONDS, |_| {
        for paged in [false, true] {
            let (clock, directory) = (Clock::new(), tempfile::tempdir().unwrap());
            let db = open(directory.path(), clock.options());
            let catalog = {
                let table = create(&db, paged);
                block_on(db.drop_table("records")).unwrap();
                drop(table);
                records_of_log(&db)
            };
            let table = create(&db, paged);
            let fill = |table: &Table<u64, u64>| {
                (0..50).for_each(|key| block_on(db.put(table, &key, &key)).unwrap());
                clock.pass(TTL);
                (50..60).for_each(|key| block_on(db.put(table, &key, &key)).unwrap());
            };
            fill(&table);
            block_on(db.clear(&table)).unwrap();
            assert_eq!(block_on(db.sweep_expired()).unwrap(), 0, "cleared, also of what expired");
            fill(&table);
            block_on(db.rename_table("records", "others")).unwrap();
            let others: Table<u64, u64> = block_on(db.open_table("others")).unwrap();
            assert_eq!(block_on(db.get(&others, &3)).unwrap(), None);
            assert_eq!(block_on(db.len(&others)).unwrap(), 10);
            block_on(db.drop_table("others")).unwrap();
            assert_eq!(records_of_log(&db), catalog, "nothing of the table is left");
            db.close().unwrap();
        }
    });
}

#[test]
fn large_values_read_from_the_log_exclude_the_expiry_time() {
    with_limit(LIMIT_SECONDS, |_| {
        let (clock, directory) = (Clock::new(), tempfile::tempdir().unwrap());
        let value = |key: u64| vec![key as u8 + 1; 100 << (10 * (key % 2))];
        let db = open(directory.path(), clock.options());
        let create = async |db: &Database| {
            let options = expiring(false);
            let run = async move |tx: &braiddb::Transaction| {
                tx.open_or_create_table_with::<u64, [u8]>("values", options).await
            };
            db.run(run).await
        };
        let table = block_on(create(&db)).unwrap();
        (0..10).for_each(|key| block_on(db.put(&table, &key, &value(key))).unwrap());
        clock.pass(TTL - 1);
        (5..10).for_each(|key| block_on(db.put(&table, &key, &value(key))).unwrap());
        for expired in [0, 5] {
            db.close().unwrap();
            // All records are only in the log.
            let db = open(directory.path(), clock.options());
            let table = block_on(create(&db)).unwrap();
            let reads = db.stats().suspensions.storage;
            db.run_blocking(async move |tx| {
                let all: Vec<u64> = (0..10).collect();
                let found = tx.multi_get(&table, &all).await?;
                for key in 0..10_u64 {
                    let expected = (key >= expired).then(|| value(key));
                    assert_eq!(found[key as usize], expected.as_deref());
                    assert_eq!(tx.get(&table, &key).await?, expected.as_deref());
                    assert_eq!(tx.contains(&table, &key).await?, expected.is_some());
                }
                let first = tx.first(&table).await?;
                assert_eq!(first, Some((expired, &*value(expired))));
                let (mut scan, mut next) = (tx.scan(&table, ..)?, expired);
                while let Some((key, found)) = scan.next().await? {
                    assert_eq!((key, found), (next, &*value(next)));
                    next += 1;
                }
                assert_eq!(next, 10);
                Ok(())
            })
            .unwrap();
            assert!(db.stats().suspensions.storage > reads, "nothing was read from the log");
            db.close().unwrap();
            clock.pass(1);
        }
    });
}

#[test]
fn the_safety_net_treats_expired_records_as_absent() {
    with_limit(LIMIT_SECONDS, |_| {
        let (clock, directory) = (Clock::new(), tempfile::tempdir().unwrap());
        let options = clock.options().tune(|tuning| tuning.certifier(Certifier::SerialSafetyNet));
        let db = open(directory.path(), options);
        let table = create(&db, false);
        block_on(async {
            let unique = IndexOptions::default().unique(true);
            let half = |value: u64, keys: &mut IndexKeys<'_, u64>| keys.push(&(value / 2));
            let by_half = db.index(&table, "by_half", unique, half).await?;
            db.insert(&table, &1, &10).await?;
            clock.pass(TTL);
            db.insert(&table, &2, &11).await?;
            db.insert(&table, &1, &20).await?;
            let found = db.run(async move |tx| tx.get_by(&by_half, &5).await).await?;
            assert_eq!(found, Some((2, 11)));
            clock.pass(TTL);
            assert_eq!(db.sweep_expired().await?, 2);
            Ok::<_, Error>(())
        })
        .unwrap();
        db.close().unwrap();
    });
}

#[test]
fn a_table_is_not_swept_before_its_indexes_are_attached() {
    with_limit(LIMIT_SECONDS, |_| {
        for paged in [false, true] {
            let (clock, directory) = (Clock::new(), tempfile::tempdir().unwrap());
            let halves = |value: u64, keys: &mut IndexKeys<'_, u64>| keys.push(&(value / 2));
            let db = open(directory.path(), clock.options());
            let table = create(&db, paged);
            block_on(db.index(&table, "halves", IndexOptions::default(), halves)).unwrap();
            block_on(db.put(&table, &1, &10)).unwrap();
            clock.pass(TTL);
            db.close().unwrap();
            let db = open(directory.path(), clock.options());
            let table = create(&db, paged);
            assert_eq!(block_on(db.get(&table, &1)).unwrap(), None);
            assert_eq!(block_on(db.sweep_expired()).unwrap(), 0);
            block_on(db.index(&table, "halves", IndexOptions::default(), halves)).unwrap();
            assert_eq!(block_on(db.sweep_expired()).unwrap(), 1);
            let problems = db.check().unwrap().problems;
            assert!(problems.is_empty(), "{problems:?}");
            db.close().unwrap();
        }
    });
}

#[test]
fn a_record_with_unknown_index_keys_does_not_block_the_sweep_of_others() {
    with_limit(LIMIT_SECONDS, |_| {
        for paged in [false, true] {
            let (clock, directory) = (Clock::new(), tempfile::tempdir().unwrap());
            let db = open(directory.path(), clock.options());
            let table = create(&db, paged);
            let fails = Arc::new(AtomicBool::new(false));
            let seen = fails.clone();
            let same = move |value: u64, keys: &mut IndexKeys<'_, u64>| {
                assert!(
                    value != 20 || !seen.load(Ordering::SeqCst),
                    "a value that it does not know"
                );
                keys.push(&value);
            };
            block_on(db.index(&table, "same", IndexOptions::default(), same)).unwrap();
            for first in (1..=1000).step_by(50) {
                let table = table.clone();
                let filled = db.run_blocking(async move |tx| {
                    for key in first..first + 50 {
                        tx.put(&table, &key, &(10 * key)).await?;
                    }
                    Ok(())
                });
                filled.unwrap();
            }
            clock.pass(TTL);
            fails.store(true, Ordering::SeqCst);
            assert_eq!(block_on(db.sweep_expired()).unwrap(), 999);
            fails.store(false, Ordering::SeqCst);
            assert_eq!(block_on(db.sweep_expired()).unwrap(), 1);
            let problems = db.check().unwrap().problems;
            assert!(problems.is_empty(), "{problems:?}");
            db.close().unwrap();
        }
    });
}

#[test]
fn a_shorter_lifetime_of_one_table_does_not_hasten_the_sweep_of_another() {
    with_limit(LIMIT_SECONDS, |_| {
        let db = Database::in_memory(Options::default().workers(2)).unwrap().watched();
        let create = |name: &'static str, seconds| {
            let options = TableOptions::default().ttl(Duration::from_secs(seconds));
            let create = async move |tx: &Transaction| tx.create_table_with(name, options).await;
            let table: Table<u64, u64> = db.run_blocking(create).unwrap();
            table
        };
        // One is swept every hour, the other every second.
        let (long, short) = (create("long", 36 * 3600), create("short", 1));
        let put = |table: &Table<u64, u64>, key: u64| {
            let table = table.clone();
            db.run_blocking(async move |tx| {
                tx.put_with_ttl(&table, &key, &key, Duration::from_millis(1)).await
            })
            .unwrap();
        };
        put(&long, 0);
        for key in 0..3 {
            put(&short, key);
            while db.stats().expired_swept == key {
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        assert_eq!(db.stats().expired_swept, 3, "the other table's is there still");
        assert_eq!(block_on(db.sweep_expired()).unwrap(), 1);
        db.close().unwrap();
    });
}

#[test]
fn a_sweep_of_a_large_table_does_not_delay_that_of_a_small_one() {
    const MANY: u64 = 20_000;
    with_limit(LIMIT_SECONDS, |_| {
        let db = Database::in_memory(Options::default().workers(2)).unwrap().watched();
        let options = TableOptions::default().ttl(Duration::from_secs(1));
        // Each deletion calls the extractor.
        let deleted = Arc::new(AtomicU64::new(0));
        let counts = deleted.clone();
        let count = move |_: u64, keys: &mut IndexKeys<'_, u64>| {
            counts.fetch_add(1, Ordering::SeqCst);
            keys.push(&0);
        };
        let (seen, last) = (deleted.clone(), Arc::new(AtomicU64::new(0)));
        let when = last.clone();
        let look = move |_: u64, keys: &mut IndexKeys<'_, u64>| {
            when.store(seen.load(Ordering::SeqCst), Ordering::SeqCst);
            keys.push(&0);
        };
        let large: Table<u64, u64> = block_on(db.create_table_with("large", options)).unwrap();
        let small: Table<u64, u64> = block_on(db.create_table_with("small", options)).unwrap();
        block_on(db.index(&large, "count", IndexOptions::default(), count)).unwrap();
        block_on(db.index(&small, "look", IndexOptions::default(), look)).unwrap();
        let counted = deleted.clone();
        db.run_blocking(async move |tx| {
            tx.put(&small, &0, &0).await?;
            for key in 0..MANY {
                tx.put(&large, &key, &key).await?;
            }
            // Before the commit, because a sweep may begin immediately after it.
            assert_eq!(counted.swap(0, Ordering::SeqCst), MANY, "counted when they were put");
            Ok(())
        })
        .unwrap();
        while db.stats().expired_swept <= MANY {
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(deleted.load(Ordering::SeqCst), MANY);
        let before = last.load(Ordering::SeqCst);
        assert!(before < MANY, "swept after {before} records of the other table");
        db.close().unwrap();
    });
}
