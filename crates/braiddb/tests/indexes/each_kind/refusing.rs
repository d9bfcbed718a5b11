//! Values that a unique index refuses, and errors in the function that extracts keys.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use braiddb::{Database, Error, IndexError, IndexKeys, IndexOptions, Isolation, Options};
use pollster::block_on;

use super::numbers::{Records, attach, check_now, create_table, extract, in_memory, write};
use crate::common::{Watched, with_limit};

#[test]
fn a_unique_index_rejects_a_duplicate_without_a_trace() {
    with_limit(60, |_| {
        let (db, table, index) = in_memory(2, true);
        write(&db, &table, &[(1, Some("10 11")), (2, Some("20"))]).unwrap();
        let refused = write(&db, &table, &[(3, Some("30 11"))]).unwrap_err();
        let key = 11_u64.to_be_bytes();
        match &refused {
            Error::UniqueViolation(second) => {
                let braiddb::UniqueViolation { table, index, key: found } = &**second;
                assert_eq!((&**table, &**index, &**found), ("records", "numbers", &key[..]));
                assert_eq!(second.key_as::<u64>().unwrap(), 11);
                assert!(second.key_as::<u32>().is_err() && second.key_as::<str>().is_err());
            }
            other => panic!("{other:?}"),
        }
        assert!(refused.to_string().contains("another record has the key 11 in"), "{refused}");
        assert!(!refused.is_retryable());
        let (records, by) = (table.clone(), index.clone());
        db.run_blocking(async move |tx| {
            // The transaction ignores the error, and commits nothing of the write.
            let refused = tx.put(&records, &3, "30 20").await;
            assert!(matches!(refused, Err(Error::UniqueViolation(_))));
            assert!(matches!(tx.update(&records, &1, "20").await, Err(Error::UniqueViolation(_))));
            // An existing key is reported first.
            assert!(matches!(tx.insert(&records, &1, "10").await, Err(Error::KeyExists(_))));
            assert!(matches!(tx.update(&records, &9, "10").await, Err(Error::KeyNotFound(_))));
            assert_eq!(tx.get(&records, &3).await?, None);
            let found = tx.get_by(&by, &11).await?.map(|(key, value)| (key, value.to_owned()));
            assert_eq!(found, Some((1, "10 11".to_owned())));
            assert_eq!(tx.get_by(&by, &30).await?, None);
            // A key moves from one record to another, within one transaction.
            tx.put(&records, &1, "10").await?;
            tx.put(&records, &4, "11").await?;
            assert_eq!(tx.get_by(&by, &11).await?.map(|(key, _)| key), Some(4));
            tx.delete(&records, &4).await?;
            tx.put(&records, &5, "11").await
        })
        .unwrap();
        assert_eq!(check_now(&db, &table, &index), 3);
    });
}

/// Of two transactions that assign the same key to two records, one fails; in both orders, at each
/// isolation level.
#[test]
fn one_of_two_writers_of_a_unique_key_fails() {
    with_limit(60, |_| {
        for isolation in [Isolation::Serializable, Isolation::Snapshot] {
            for first_commits_first in [false, true] {
                let (db, table, index) = in_memory(2, true);
                let transaction = db.transaction().isolation(isolation);
                let one = block_on(transaction.clone().begin()).unwrap();
                let two = block_on(transaction.begin()).unwrap();
                block_on(one.put(&table, &1, "7")).unwrap();
                if first_commits_first {
                    block_on(one.commit()).unwrap();
                    let told = block_on(two.put(&table, &2, "7")).unwrap_err();
                    if isolation == Isolation::Serializable {
                        // Its snapshot is extended, so it sees the other record.
                        assert!(matches!(told, Error::UniqueViolation(_)), "{told:?}");
                    } else {
                        assert!(matches!(told, Error::Conflict { .. }), "{told:?}");
                    }
                } else {
                    assert!(matches!(
                        block_on(two.put(&table, &2, "7")),
                        Err(Error::Conflict { .. })
                    ));
                    block_on(one.commit()).unwrap();
                }
                let extended = first_commits_first && isolation == Isolation::Serializable;
                assert_eq!(block_on(two.commit()).is_ok(), extended);
                assert_eq!(check_now(&db, &table, &index), 1);
            }
        }
    });
}

#[test]
fn a_panic_in_a_key_function_has_no_effect() {
    with_limit(60, |_| {
        let (db, table, index) = in_memory(2, false);
        write(&db, &table, &[(1, Some("1"))]).unwrap();
        let records = table.clone();
        db.run_blocking(async move |tx| {
            for intent in 0..3 {
                let written = match intent {
                    0 => tx.put(&records, &1, "2 panic").await,
                    1 => tx.insert(&records, &2, "2 panic").await,
                    _ => tx.update(&records, &1, "3 panic").await,
                };
                match written {
                    Err(Error::Panicked(message)) => assert!(message.contains("extractor")),
                    other => panic!("{other:?}"),
                }
            }
            assert_eq!(tx.get(&records, &1).await?, Some("1"));
            tx.put(&records, &3, "3").await
        })
        .unwrap();
        assert_eq!(check_now(&db, &table, &index), 2);
        assert_eq!(db.stats().aborted.panic, 0);
    });
}

#[test]
fn a_key_function_that_returns_different_keys_for_one_value_is_reported() {
    with_limit(60, |_| {
        let db = Database::in_memory(Options::default().workers(1)).unwrap().watched();
        let table: Records = create_table(&db, "records");
        let calls = Arc::new(AtomicU64::new(0));
        let changing = move |_: &str, keys: &mut IndexKeys<'_, u64>| {
            keys.push(&calls.fetch_add(1, Ordering::Relaxed));
        };
        let options = IndexOptions::default();
        let index = block_on(db.index(&table, "changing", options, changing)).unwrap();
        write(&db, &table, &[(1, Some("a"))]).unwrap();
        let told = write(&db, &table, &[(1, Some("b"))]).unwrap_err();
        assert!(
            matches!(&told, Error::Index(error) if matches!(**error, IndexError::Inconsistent { .. })),
            "{told:?}"
        );
        let records = table.clone();
        let passed_over = db.run_blocking(async move |tx| {
            assert!(tx.put(&records, &1, "c").await.is_err());
            Ok(())
        });
        assert!(
            matches!(&passed_over, Err(Error::Index(error)) if matches!(**error, IndexError::Inconsistent { .. })),
            "{passed_over:?}"
        );
        let records = table.clone();
        let value =
            db.run_blocking(async move |tx| Ok(tx.get(&records, &1).await?.map(str::to_owned)));
        assert_eq!(value.unwrap().as_deref(), Some("a"), "nothing of it was committed");
        block_on(db.drop_index(&table, "changing")).unwrap();
        write(&db, &table, &[(1, Some("b"))]).unwrap();
        drop(index);
    });
}

/// A refusal by a unique index is certified too.
#[test]
fn a_rejected_duplicate_is_validated() {
    with_limit(60, |_| {
        let (db, table, _index) = in_memory(2, true);
        write(&db, &table, &[(1, Some("7"))]).unwrap();
        let told = block_on(db.begin()).unwrap();
        let refused = block_on(told.put(&table, &2, "7"));
        assert!(matches!(refused, Err(Error::UniqueViolation(_))));
        write(&db, &table, &[(1, Some("8"))]).unwrap();
        block_on(told.put(&table, &3, "9")).unwrap();
        assert!(matches!(block_on(told.commit()), Err(Error::NotSerializable { .. })));
    });
}

#[test]
fn creating_a_unique_index_reports_the_duplicate_key() {
    with_limit(60, |_| {
        let db = Database::in_memory(Options::default().workers(2)).unwrap().watched();
        let table: Records = create_table(&db, "records");
        write(&db, &table, &[(1, Some("1")), (2, Some("2 7")), (3, Some("7"))]).unwrap();
        let refused = attach(&db, &table, IndexOptions::default().unique(true)).unwrap_err();
        let Error::Index(duplicate) = &refused else { panic!("{refused:?}") };
        let IndexError::DuplicateKey { key, records, .. } = &**duplicate else {
            panic!("{duplicate:?}")
        };
        assert_eq!(key[..], 7_u64.to_be_bytes());
        let names: Vec<_> = records.iter().map(|key| key[7]).collect();
        assert_eq!(names, [2, 3]);
        let shown = refused.to_string();
        assert!(shown.contains("the records 2 and 3 both have the key 7"), "{shown}");
        write(&db, &table, &[(3, Some("8"))]).unwrap();
        let index = attach(&db, &table, IndexOptions::default().unique(true)).unwrap();
        assert_eq!(check_now(&db, &table, &index), 4);
    });
}

/// A transaction removes a key from a record while the index is built, and finds that the entry of
/// the key belongs to another record. It must protect this entry from changes. Otherwise the entry
/// could become the first record's again before the key is removed.
#[test]
fn a_failed_writer_keeps_the_entry_of_another_record() {
    with_limit(60, |_| {
        let db = Database::in_memory(Options::default().workers(2)).unwrap().watched();
        let table: Records = create_table(&db, "records");
        write(&db, &table, &[(1, Some("7"))]).unwrap();
        let mut looked = false;
        let watch = |_| {
            if std::mem::replace(&mut looked, true) {
                return;
            }
            write(&db, &table, &[(2, Some("7"))]).unwrap();
            let loses = block_on(db.begin()).unwrap();
            block_on(loses.put(&table, &1, "8")).unwrap();
            let other = block_on(db.begin()).unwrap();
            let taken = block_on(other.delete(&table, &2));
            assert!(matches!(taken, Err(Error::Conflict { .. })), "{taken:?}");
            block_on(loses.commit()).unwrap();
        };
        let options = IndexOptions::default().unique(true);
        let index = block_on(db.index_watched(&table, "numbers", options, extract, watch)).unwrap();
        assert_eq!(check_now(&db, &table, &index), 2);
    });
}
