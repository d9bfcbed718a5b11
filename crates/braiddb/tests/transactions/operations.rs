//! Operations that read and write in one call, single-operation transactions, and keys of all
//! kinds.

use std::cmp::Reverse;
use std::future::IntoFuture;

use crate::common::{Watched, with_limit};
use braiddb::{
    Database, DecodeError, Error, IndexKeys, IndexOptions, MAX_KEY_BYTES, Misuse, Options,
    Postcard, Schema, Table, TableOptions, Tuning,
};
use pollster::block_on;

/// The log's buffer, which the budget includes.
const RING_BYTES: u64 = 64 << 20;
const LIMIT_SECONDS: u64 = 120;

fn in_memory() -> Database {
    Database::in_memory(Options::default().workers(2)).unwrap().watched()
}

#[test]
fn a_single_operation_is_a_transaction() {
    with_limit(LIMIT_SECONDS, |_| {
        let db = in_memory();
        let table: Table<str, [u8]> = block_on(db.create_table("t")).unwrap();
        assert_eq!(block_on(db.get(&table, "a")).unwrap(), None);
        assert!(matches!(block_on(db.update(&table, "a", b"1")), Err(Error::KeyNotFound(_))));
        block_on(db.insert(&table, "a", b"1")).unwrap();
        assert!(matches!(block_on(db.insert(&table, "a", b"2")), Err(Error::KeyExists(_))));
        block_on(db.update(&table, "a", b"2")).unwrap();
        assert_eq!(block_on(db.get(&table, "a")).unwrap(), Some(b"2".to_vec()));
        block_on(db.put(&table, "b", &[0; 5000])).unwrap();
        assert!(block_on(db.contains(&table, "b")).unwrap());
        assert!(block_on(db.delete(&table, "b")).unwrap());
        assert!(!block_on(db.delete(&table, "b")).unwrap());
        assert!(!block_on(db.contains(&table, "b")).unwrap());
        db.close().unwrap();
        assert!(matches!(block_on(db.get(&table, "a")), Err(Error::Closed)));
    });
}

#[test]
fn errors_name_the_table_and_the_key() {
    with_limit(LIMIT_SECONDS, |_| {
        let db = in_memory();
        let options = || [TableOptions::default(), TableOptions::default().paged()];
        for (options, name) in options().into_iter().zip(["plain", "paged"]) {
            let made = db.run_blocking(async move |tx| tx.create_table_with(name, options).await);
            let table: Table<(String, u64), u64> = made.unwrap();
            let key = ("eu".to_owned(), 7);
            let shown = "(\"eu\", 7)";
            let missing = block_on(db.update(&table, &key, &1)).unwrap_err();
            let expected = format!("table {name:?} has no record with the key {shown}; ");
            assert!(missing.to_string().starts_with(&expected), "{missing}");
            let own = table.key_not_found(&key);
            assert_eq!(own.to_string(), missing.to_string());
            block_on(db.insert(&table, &key, &1)).unwrap();
            let exists = block_on(db.insert(&table, &key, &2)).unwrap_err();
            let expected = format!("table {name:?} already has a record with the key {shown}; ");
            assert!(exists.to_string().starts_with(&expected), "{exists}");
            // Encoded keys have no type, and are shown as bytes.
            let Error::KeyExists(record) = exists else { panic!("{exists}") };
            let encoded = block_on(db.insert(&table.encoded(), &record.key, b"")).unwrap_err();
            assert!(matches!(encoded, Error::KeyExists(record) if record.table == name));
            // The conflict of an interactive transaction names its record.
            let first = block_on(db.begin()).unwrap();
            let second = block_on(db.begin()).unwrap();
            block_on(first.put(&table, &key, &3)).unwrap();
            let conflict = block_on(second.put(&table, &key, &4)).unwrap_err();
            let expected = format!("another transaction wrote table {name:?}, key {shown} first");
            assert!(conflict.to_string().contains(&expected), "{conflict}");
            block_on(first.abort()).unwrap();
        }
    });
}

#[test]
fn concurrent_fetch_updates_of_a_counter_lose_nothing() {
    const THREADS: u64 = 4;
    const CHANGES: u64 = 200;
    with_limit(LIMIT_SECONDS, |_| {
        let db = in_memory();
        let table: Table<u64, u64> = block_on(db.create_table("t")).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (db, table) = (&db, &table);
                scope.spawn(move || {
                    for _ in 0..CHANGES {
                        let table = table.clone();
                        db.run_blocking(async move |tx| {
                            if thread % 2 == 0 {
                                let before = |count: Option<u64>| Some(count.unwrap_or(0) + 1);
                                return tx.fetch_update(&table, &0, before).await.map(drop);
                            }
                            if !tx.update_with(&table, &0, |count| count + 1).await? {
                                assert!(tx.compare_and_set(&table, &0, None, Some(&1)).await?);
                            }
                            Ok(())
                        })
                        .unwrap();
                    }
                });
            }
        });
        assert_eq!(block_on(db.get(&table, &0)).unwrap(), Some(THREADS * CHANGES));
    });
}

/// Concurrent insertions and deletions, conflicts and recovery: the count equals that of a scan.
#[test]
fn tables_count_their_records() {
    with_limit(LIMIT_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let open =
            || Database::open(directory.path(), Options::default().workers(2)).unwrap().watched();
        let db = open();
        let table: Table<u64, u64> = block_on(db.create_table("t")).unwrap();
        assert!(block_on(db.is_empty(&table)).unwrap());
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (db, table) = (&db, &table);
                scope.spawn(move || {
                    let mut random = fastrand::Rng::with_seed(thread);
                    for _ in 0..300 {
                        let (table, key) = (table.clone(), random.u64(..60));
                        let changed = db.run_blocking(async move |tx| {
                            if !tx.delete(&table, &key).await? {
                                tx.put(&table, &key, &1).await?;
                                tx.delete(&table, &key).await?;
                                tx.put(&table, &key, &2).await?;
                            }
                            Ok(())
                        });
                        assert!(
                            changed.as_ref().is_err_and(Error::is_retryable) || changed.is_ok()
                        );
                    }
                });
            }
        });
        let counted = |db: &Database, table: &Table<u64, u64>| {
            let scanned = table.clone();
            let scanned = db.run_blocking(async move |tx| tx.count(&scanned, ..).await).unwrap();
            assert!(scanned > 0 && scanned < 60);
            assert_eq!(block_on(db.len(table)).unwrap(), scanned);
            scanned
        };
        let before = counted(&db, &table);
        db.close().unwrap();
        assert!(matches!(block_on(db.len(&table)), Err(Error::Closed)));
        let other = open();
        assert!(matches!(block_on(other.len(&table)), Err(Error::Misuse(Misuse::ForeignTable(_)))));
        let gone: Table<u64, u64> = block_on(other.create_table("gone")).unwrap();
        block_on(other.drop_table("gone")).unwrap();
        assert!(matches!(block_on(other.len(&gone)), Err(Error::TableNotFound(_))));
        let table = block_on(other.open_table("t")).unwrap();
        assert_eq!(counted(&other, &table), before);
    });
}

#[test]
fn compare_and_set_replaces_only_the_expected_value() {
    with_limit(LIMIT_SECONDS, |_| {
        let db = in_memory();
        let table: Table<u64, Postcard<(u8, String)>> = block_on(db.create_table("t")).unwrap();
        db.run_blocking(async move |tx| {
            let [one, two] = [(1, "one".to_owned()), (2, "two".to_owned())];
            assert!(!tx.compare_and_set(&table, &7, Some(&one), Some(&two)).await?);
            assert!(tx.compare_and_set(&table, &7, None, Some(&one)).await?);
            assert!(!tx.compare_and_set(&table, &7, Some(&two), None).await?);
            assert_eq!(tx.get(&table, &7).await?, Some(one.clone()));
            assert!(tx.compare_and_set(&table, &7, Some(&one), Some(&two)).await?);
            assert_eq!(tx.get(&table, &7).await?, Some(two));
            assert_eq!(tx.fetch_update(&table, &7, |_| None::<(u8, String)>).await?.unwrap().0, 2);
            assert!(!tx.contains(&table, &7).await?);
            Ok(())
        })
        .unwrap();
    });
}

#[test]
fn ranges_are_counted_and_deleted_without_reading_values() {
    with_limit(LIMIT_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        // Hardly any record stays in memory.
        let options = Options::default()
            .workers(1)
            .memory_budget(RING_BYTES + (1 << 20))
            .tuning(Tuning::default().log_ring_bytes(64 << 20));
        let db = Database::open(directory.path(), options).unwrap().watched();
        let table: Table<u64, [u8]> = block_on(db.create_table("t")).unwrap();
        for first in (0..2_000_u64).step_by(20) {
            let table = table.clone();
            let written = db.run_blocking(async move |tx| {
                for key in first..first + 20 {
                    tx.put(&table, &key, &[key as u8; 10_000]).await?;
                }
                Ok(())
            });
            written.unwrap();
        }
        assert!(db.stats().versions_evicted > 0, "{:#?}", db.stats());
        let before = db.stats().suspensions.storage;
        let all = table.clone();
        let counts = db.run_blocking(async move |tx| {
            let odd = tx.count(&all, 100..).await?;
            let deleted = tx.delete_range(&all, 500..1_500).await?;
            assert_eq!(tx.delete_range(&all, 500..1_500).await?, 0);
            Ok((odd, deleted, tx.count(&all, ..).await?))
        });
        assert_eq!(counts.unwrap(), (1_900, 1_000, 1_000));
        assert_eq!(db.stats().suspensions.storage, before, "no value was read");
        let keys = db.run_blocking(async move |tx| {
            let (mut keys, mut all) = (tx.keys(&table, ..)?.rev().limit(600), Vec::new());
            while let Some(key) = keys.next().await? {
                all.push(key);
            }
            Ok(all)
        });
        let expected: Vec<u64> = (1_500..2_000).rev().chain((400..500).rev()).collect();
        assert_eq!(keys.unwrap(), expected);
    });
}

#[test]
fn reading_an_impossible_key_fails() {
    with_limit(LIMIT_SECONDS, |_| {
        keys_that_are_too_long_are_refused(TableOptions::default(), MAX_KEY_BYTES);
        // A page holds at least eight keys.
        keys_that_are_too_long_are_refused(TableOptions::default().paged(), 512);
    });
}

fn keys_that_are_too_long_are_refused(options: TableOptions, most: usize) {
    let db = in_memory();
    let table: Table<[u8], u64> = block_on(db.create_table_with("t", options)).unwrap();
    let long = vec![1; most + 1];
    let refused = |result: Result<(), Error>| {
        let Err(Error::Misuse(Misuse::KeyTooLong { bytes, limit })) = result else {
            panic!("{result:?}")
        };
        assert_eq!((bytes, limit), (long.len(), most));
    };
    refused(block_on(db.get(&table, &long)).map(drop));
    refused(block_on(db.contains(&table, &long)).map(drop));
    refused(block_on(db.put(&table, &long, &1)));
    refused(block_on(db.delete(&table, &long)).map(drop));
    refused(block_on(db.update_with(&table, &long, |value| value)).map(drop));
    refused(block_on(db.compare_and_set(&table, &long, None, None)).map(drop));
    let snapshot = block_on(db.snapshot()).unwrap();
    refused(block_on(snapshot.get(&table, &long)).map(drop));
    let begun = block_on(db.begin()).unwrap();
    refused(block_on(begun.get(&table, &long)).map(drop));
    let long = long.clone();
    db.run_blocking(async move |tx| {
        let refused = |result: Result<(), Error>| {
            assert!(matches!(result, Err(Error::Misuse(Misuse::KeyTooLong { limit, .. })) if limit == most));
        };
        refused(tx.get(&table, &long).await.map(drop));
        refused(tx.get_with(&table, &long, |value| value).await.map(drop));
        refused(tx.contains(&table, &long).await.map(drop));
        refused(tx.multi_get(&table, [&long[..]]).await.map(drop));
        refused(tx.get_part(&table, &long, |value| value).await.map(drop));
        refused(tx.update_with(&table, &long, |value| value).await.map(drop));
        refused(tx.fetch_update(&table, &long, |value: Option<u64>| value).await.map(drop));
        refused(tx.compare_and_set(&table, &long, None, None).await.map(drop));
        let longest = &long[..most];
        tx.put(&table, longest, &7).await?;
        assert_eq!(tx.get(&table, longest).await?, Some(7));
        // A range may start or end anywhere.
        assert_eq!(tx.count(&table, ..=&long[..]).await?, 1);
        Ok(())
    })
    .unwrap();
}

#[test]
fn a_table_lists_the_newest_first() {
    with_limit(LIMIT_SECONDS, |_| {
        type Reading = (String, Reverse<u64>, f64);
        let db = in_memory();
        let table: Table<Reading, ()> = block_on(db.create_table("readings")).unwrap();
        let newest = db.run_blocking(async move |tx| {
            for time in 0..5 {
                for sensor in ["kitchen", "attic"] {
                    tx.put(&table, &(sensor.to_owned(), Reverse(time), -0.5), &()).await?;
                }
            }
            let from = ("kitchen".to_owned(), Reverse(u64::MAX), f64::NEG_INFINITY);
            tx.keys(&table, from..)?.next().await
        });
        assert_eq!(newest.unwrap(), Some(("kitchen".to_owned(), Reverse(4), -0.5)));
    });
}

/// The test is that it compiles: the closures' error types are inferred.
#[test]
fn error_types_of_closures_are_inferred() {
    #[derive(Debug, thiserror::Error)]
    enum Refused {
        #[error("there is nothing left")]
        Nothing,
        #[error(transparent)]
        Database(#[from] Error),
    }

    async fn take(db: &Database, left: &Table<u64, u64>) -> Result<u64, Refused> {
        let table = left.clone();
        db.run(async move |tx| {
            if tx.get(&table, &0).await?.is_none() {
                tx.put(&table, &0, &1).await?;
            }
            Ok(())
        })
        .await?;
        let table = left.clone();
        let took = db.try_run(async move |tx| {
            let Some(left) = tx.get(&table, &0).await? else { return Err(Refused::Nothing) };
            tx.put(&table, &0, &left.checked_sub(1).ok_or(Refused::Nothing)?).await?;
            Ok(left)
        });
        took.await
    }

    with_limit(LIMIT_SECONDS, |_| {
        let db = in_memory();
        let left = block_on(db.create_table("left")).unwrap();
        assert_eq!(block_on(take(&db, &left)).unwrap(), 1);
        assert!(matches!(block_on(take(&db, &left)), Err(Refused::Nothing)));
        db.close().unwrap();
        assert!(matches!(block_on(take(&db, &left)), Err(Refused::Database(Error::Closed))));
    });
}

/// Opens a database with almost no memory except the log's ring.
fn cold(directory: &std::path::Path) -> Database {
    let options = Options::default()
        .workers(2)
        .memory_budget(RING_BYTES + (1 << 20))
        .tuning(Tuning::default().log_ring_bytes(RING_BYTES as usize));
    Database::open(directory, options).unwrap().watched()
}

#[test]
fn single_operations_read_count_and_delete_ranges() {
    with_limit(LIMIT_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let db = cold(directory.path());
        let table: Table<(String, u64), [u8]> = block_on(db.create_table("t")).unwrap();
        let record = |key: u64| (("a".to_owned(), key), vec![key as u8; 10_000]);
        for (key, value) in (0..1_000).map(record) {
            block_on(db.put(&table, &key, &value)).unwrap();
        }
        assert!(db.stats().versions_evicted > 0, "{:#?}", db.stats());
        let borrowed = table.borrowed::<(&str, u64)>();
        let found = block_on(db.scan(&borrowed, ("a", 100)..("a", 900))).unwrap();
        assert!(found == (100..900).map(record).collect::<Vec<_>>());
        let found = block_on(db.scan(&borrowed, ..).rev().limit(700).limit(800)).unwrap();
        assert!(found == (300..1_000).rev().map(record).collect::<Vec<_>>());
        assert!(block_on(db.scan(&borrowed, ..).limit(0)).unwrap().is_empty());
        assert!(block_on(db.scan(&borrowed, ("b", 0)..)).unwrap().is_empty());
        assert!(block_on(db.first(&table)).unwrap() == Some(record(0)));
        assert!(block_on(db.last(&borrowed)).unwrap() == Some(record(999)));

        assert_eq!(block_on(db.count(&borrowed, ("a", 7)..=("a", 9))).unwrap(), 3);
        assert_eq!(block_on(db.delete_range(&borrowed, ("a", 7)..)).unwrap(), 993);
        assert_eq!(block_on(db.delete_range(&borrowed, ("a", 7)..)).unwrap(), 0);
        assert_eq!(block_on(db.count(&table, ..)).unwrap(), 7);
        db.close().unwrap();

        // The acknowledged records are present.
        let db = cold(directory.path());
        let table: Table<(String, u64), [u8]> = block_on(db.open_table("t")).unwrap();
        // On a thread of another executor, with a future that borrows nothing.
        let scan = {
            let key = "a".to_owned();
            db.scan(&table.borrowed(), (&*key, 5)..).into_future()
        };
        let found = std::thread::spawn(move || block_on(scan).unwrap()).join().unwrap();
        assert!(found == [record(5), record(6)]);
        assert_eq!(block_on(db.delete_range(&table, ..)).unwrap(), 7);
        assert!(block_on(db.first(&table)).unwrap().is_none());
        assert!(block_on(db.last(&table)).unwrap().is_none());
        let scan = db.scan(&table, ..);
        db.close().unwrap();
        assert!(matches!(block_on(scan), Err(Error::Closed)));
        assert!(matches!(block_on(db.count(&table, ..)), Err(Error::Closed)));
    });
}

#[test]
fn concurrent_single_changes_lose_nothing() {
    const THREADS: u64 = 3;
    const CHANGES: u64 = 200;
    with_limit(LIMIT_SECONDS, |_| {
        let db = in_memory();
        let table: Table<str, u64> = block_on(db.create_table("t")).unwrap();
        assert!(!block_on(db.update_with(&table, "n", |count| count + 1)).unwrap());
        assert!(block_on(db.compare_and_set(&table, "n", None, Some(&0))).unwrap());
        assert!(!block_on(db.compare_and_set(&table, "n", None, Some(&7))).unwrap());
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (db, table) = (&db, &table);
                scope.spawn(move || {
                    for _ in 0..CHANGES {
                        if thread == 0 {
                            let more = |count: Option<u64>| count.map(|count| count + 1);
                            block_on(db.fetch_update(table, "n", more)).unwrap().unwrap();
                        } else if thread == 1 {
                            assert!(block_on(db.update_with(table, "n", |n| n + 1)).unwrap());
                        } else {
                            let mut there = block_on(db.get(table, "n")).unwrap();
                            while !block_on(db.compare_and_set(
                                table,
                                "n",
                                there.as_ref(),
                                there.map(|count| count + 1).as_ref(),
                            ))
                            .unwrap()
                            {
                                there = block_on(db.get(table, "n")).unwrap();
                            }
                        }
                    }
                });
            }
        });
        let all = Some(THREADS * CHANGES);
        assert_eq!(block_on(db.fetch_update(&table, "n", |_| None::<u64>)).unwrap(), all);
        assert_eq!(block_on(db.fetch_update(&table, "n", |_| None::<u64>)).unwrap(), None);
        assert!(block_on(db.is_empty(&table)).unwrap());
        assert!(block_on(db.compare_and_set(&table, "n", None, None)).unwrap());
    });
}

/// Panics of closures and too long keys become errors, also in single operations.
#[test]
fn a_single_change_that_panics_changes_nothing() {
    with_limit(LIMIT_SECONDS, |_| {
        let db = in_memory();
        let table: Table<str, u64> = block_on(db.create_table("t")).unwrap();
        block_on(db.put(&table, "n", &1)).unwrap();
        let panics = db.update_with(&table, "n", |_| -> u64 { panic!("no number") });
        let Err(Error::Panicked(message)) = block_on(panics) else { panic!("it succeeded") };
        assert!(message.contains("no number"), "{message}");
        let panics = db.fetch_update(&table, "n", |_| -> Option<u64> { panic!("no number") });
        assert!(matches!(block_on(panics), Err(Error::Panicked(_))));
        assert_eq!(block_on(db.get(&table, "n")).unwrap(), Some(1));

        let long = "n".repeat(MAX_KEY_BYTES + 1);
        let too_long = |result: Result<bool, Error>| {
            matches!(result, Err(Error::Misuse(Misuse::KeyTooLong { .. })))
        };
        assert!(too_long(block_on(db.update_with(&table, &long, |count| count + 1))));
        assert!(too_long(block_on(db.compare_and_set(&table, &long, None, Some(&1)))));
        let absent = db.fetch_update(&table, &long, |_| Some(1));
        assert!(too_long(block_on(absent).map(|_| true)));
    });
}

/// A value type with a readable older version: an expected value is compared in its current
/// encoding.
#[test]
fn expected_values_are_compared_across_schema_versions() {
    #[derive(serde::Serialize, serde::Deserialize)]
    struct Old(u8);

    impl Schema for Old {
        const NAME: &'static str = "number";
    }

    #[derive(serde::Serialize, serde::Deserialize)]
    struct New(u8, u8);

    impl Schema for New {
        const NAME: &'static str = "number";
        const VERSION: u32 = 2;
        const OLDEST: u32 = 1;

        fn upgrade(_version: u32, bytes: &[u8]) -> Result<Self, DecodeError> {
            bytes.first().map(|&first| New(first, 0)).ok_or_else(|| DecodeError::new("a number"))
        }
    }

    with_limit(LIMIT_SECONDS, |_| {
        let db = in_memory();
        let old: Table<u64, Postcard<Old>> = block_on(db.create_table("t")).unwrap();
        block_on(db.put(&old, &1, &Old(7))).unwrap();
        let new: Table<u64, Postcard<New>> = block_on(db.open_table("t")).unwrap();
        let set = |expected: New| {
            block_on(db.compare_and_set(&new, &1, Some(&expected), Some(&New(8, 8)))).unwrap()
        };
        assert!(!set(New(7, 1)));
        assert!(set(New(7, 0)));
        assert!(!set(New(7, 0)));
        assert_eq!(block_on(db.get(&new, &1)).unwrap().map(|number| number.1), Some(8));
    });
}

/// Counting a started scan counts only the rest. Reversing it fails with an error.
#[test]
fn a_started_scan_can_be_counted_but_not_reversed() {
    fn is_refused<T: std::fmt::Debug>(result: Result<T, Error>) {
        match result {
            Err(error @ Error::Misuse(Misuse::ScanBegun)) => {
                assert!(error.to_string().contains("`rev`"), "{error}");
            }
            other => panic!("{other:?}"),
        }
    }

    with_limit(LIMIT_SECONDS, |_| {
        let db = in_memory();
        for (name, options) in
            [("hot", TableOptions::default()), ("paged", TableOptions::default().paged())]
        {
            let table: Table<u64, [u8]> = block_on(db.create_table_with(name, options)).unwrap();
            for key in 0..300 {
                let value = vec![key as u8; if key % 50 == 0 { 3000 } else { 10 }];
                block_on(db.put(&table, &key, &value)).unwrap();
            }
            let by_length = |value: &[u8], keys: &mut IndexKeys<'_, u64>| {
                keys.push(&(value.len() as u64));
            };
            let index = block_on(db.index(&table, "length", IndexOptions::default(), by_length));
            let index = index.unwrap();
            let run = db.run_blocking(async move |tx| {
                for passed in [1, 2, 70, 299, 300] {
                    let mut scan = tx.scan(&table, ..)?;
                    for _ in 0..passed {
                        assert!(scan.next().await?.is_some());
                    }
                    assert_eq!(scan.count().await?, 300 - passed);
                    let mut keys = tx.keys(&table, ..)?.limit(passed + 1);
                    for _ in 0..passed {
                        assert!(keys.next().await?.is_some());
                    }
                    let mut turned = keys.rev().limit(5);
                    is_refused(turned.next().await);
                    is_refused(turned.next().await);
                    let mut scan = tx.scan(&table, ..)?;
                    for _ in 0..passed {
                        assert!(scan.next().await?.is_some());
                    }
                    is_refused(
                        scan.rev().visit(|_, _| std::ops::ControlFlow::<()>::Continue(())).await,
                    );
                    let mut scan = tx.scan_by(&index, ..)?;
                    for _ in 0..passed {
                        assert!(scan.next().await?.is_some());
                    }
                    is_refused(scan.rev().next().await.map(drop));
                    let mut entries = tx.entries_by(&index, ..)?;
                    assert!(entries.next().await?.is_some());
                    is_refused(entries.rev().next().await.map(drop));
                }
                Ok(())
            });
            run.unwrap();
        }
    });
}

/// In a table with a log, whose values may be evicted before the transaction ends; and in a paged one.
#[test]
fn values_are_lent_to_a_closure() {
    with_limit(LIMIT_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let db = Database::open(directory.path(), Options::default().workers(1)).unwrap().watched();
        for paged in [false, true] {
            let (name, options) = match paged {
                true => ("paged", TableOptions::default().paged()),
                false => ("hot", TableOptions::default()),
            };
            let table: Table<u64, [u8]> = block_on(db.create_table_with(name, options)).unwrap();
            block_on(db.put(&table, &1, &[1; 3000])).unwrap();
            let observed = db.clone();
            let run = db.run_blocking(async move |tx| {
                tx.put(&table, &2, &[2; 3000]).await?;
                let copies = || observed.stats().memory.copies;
                for key in 1..3 {
                    let found = tx.get_with(&table, &key, |value| value == [key as u8; 3000]);
                    assert_eq!(found.await?, Some(true));
                }
                assert_eq!(tx.get_with(&table, &3, <[u8]>::len).await?, None);
                assert!(paged || copies() == 0);
                assert!(tx.get(&table, &1).await?.is_some());
                assert!(paged || copies() > 0);
                Ok(())
            });
            run.unwrap();
        }
        db.close().unwrap();
    });
}
