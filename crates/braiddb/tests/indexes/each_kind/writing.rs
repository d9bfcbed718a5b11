//! Effects of writes on an index: of records that are not in memory, of concurrent operations, and
//! of rollbacks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use braiddb::{Database, Error, IndexOptions, Options, Transaction, Tuning};
use pollster::block_on;

use super::numbers::{attach, check, check_now, in_memory, keys_of, open, write};
use crate::common::{Watched, with_limit};

/// Values that are only in the log are read before they are overwritten; a write dropped while it
/// waits for such a read has no effect.
#[test]
fn evicted_records_are_read_before_they_are_overwritten() {
    if super::PAGED {
        // The pages of these tables all stay in memory.
        return;
    }
    with_limit(240, |_| {
        let directory = tempfile::tempdir().unwrap();
        {
            let (db, table) = open(directory.path());
            let index = attach(&db, &table, IndexOptions::default()).unwrap();
            for start in (0..20_000).step_by(500) {
                let table = table.clone();
                db.run_blocking(async move |tx| {
                    for key in start..start + 500 {
                        tx.put(&table, &key, &format!("{} {}", key % 100, "x".repeat(500))).await?;
                    }
                    Ok(())
                })
                .unwrap();
            }
            drop(index);
            db.close().unwrap();
        }
        // After reopening, all records are only in the log.
        let options = Options::default()
            .workers(2)
            .memory_budget(Some(96 << 20))
            .tuning(Tuning::default().log_ring_bytes(64 << 20));
        let db = Database::open(directory.path(), options).unwrap().watched();
        let table = block_on(db.open_table("records")).unwrap();
        let index = attach(&db, &table, IndexOptions::default()).unwrap();
        let (records, by) = (table.clone(), index.clone());
        db.run_blocking(async move |tx| {
            let mut dropped = 0;
            for key in (0..400).step_by(40) {
                let value = format!("5 {}", "z".repeat(500));
                // A write dropped while it waits for the old value has no effect.
                let write = tx.put(&records, &key, &value);
                if futures_util::FutureExt::now_or_never(write).is_none() {
                    dropped += 1;
                    let old = tx.get(&records, &key).await?.expect("there");
                    assert!(old.contains('x'));
                } else {
                    tx.put(&records, &key, &format!("{key} {}", "x".repeat(500))).await?;
                }
            }
            assert!(dropped > 0, "nothing was read from the log");
            let count = check(tx, &records, &by).await?;
            assert_eq!(count, 20_000);
            Err::<(), _>(Error::Closed)
        })
        .unwrap_err();
        for key in (0..20_000).step_by(40) {
            let value = format!("{} {}", 1000 + key % 100, "y".repeat(500));
            write(&db, &table, &[(key, Some(&value)), (key + 1, None)]).unwrap();
        }
        assert_eq!(check_now(&db, &table, &index), 20_000 - 500);
        assert!(db.stats().suspensions.storage > 0);
    });
}

#[test]
fn aborted_transactions_leave_nothing_in_an_index() {
    with_limit(60, |_| {
        let (db, table, index) = in_memory(2, false);
        write(&db, &table, &[(1, Some("1")), (2, Some("2 3"))]).unwrap();
        for _ in 0..100 {
            let records = table.clone();
            let aborted = db.run_blocking(async move |tx| {
                tx.put(&records, &1, "4 5").await?;
                tx.delete(&records, &2).await?;
                tx.put(&records, &3, "1 2 3").await?;
                tx.put(&records, &3, "3").await?;
                tx.put(&records, &2, "3").await?;
                Err::<(), _>(Error::Closed)
            });
            assert!(aborted.is_err());
            let open = block_on(db.begin()).unwrap();
            block_on(open.put(&table, &1, "9")).unwrap();
            drop(open);
        }
        assert_eq!(check_now(&db, &table, &index), 3);
    });
}

/// One transaction writes the same record concurrently, and scans at the same time. The index is
/// too large for the cache, and the worker has other tasks, so the operations suspend.
#[test]
fn concurrent_operations_of_one_transaction_keep_the_index_correct() {
    const MANY: u64 = 40_000;
    const NUMBERS: u64 = 400;
    const ROUNDS: u64 = 60;
    with_limit(120, |_| {
        let (db, table, index) = in_memory(1, false);
        for start in (0..MANY).step_by(1000) {
            let table = table.clone();
            db.run_blocking(async move |tx| {
                for key in start..start + 1000 {
                    tx.insert(&table, &key, &format!("{}", key % NUMBERS)).await?;
                }
                Ok(())
            })
            .unwrap();
        }
        let stop = Arc::new(AtomicBool::new(false));
        let reader = {
            let (db, table, stop) = (db.clone(), table.clone(), stop.clone());
            std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let table = table.clone();
                    let read = async move |tx: &Transaction| {
                        for key in 0..1000 {
                            tx.get(&table, &(key * 79 % MANY)).await?;
                        }
                        Ok(())
                    };
                    db.run_blocking(read).unwrap();
                }
            })
        };
        for round in 0..ROUNDS {
            let (table, index) = (table.clone(), index.clone());
            db.run_blocking(async move |tx| {
                let key = round * 797 % MANY;
                let values: Vec<_> =
                    (0..5).map(|n| format!("{} {n}", NUMBERS + n + round)).collect();
                let writing = values.iter().map(|value| tx.put(&table, &key, value));
                let writing = futures_util::future::join_all(writing);
                let scanning = async {
                    let mut scan = tx.scan_by(&index, key % NUMBERS..=key % NUMBERS)?.limit(100);
                    while let Some((number, _, value)) = scan.next().await? {
                        assert!(keys_of(value).any(|key| key == number), "{number}: {value}");
                    }
                    Ok::<_, Error>(())
                };
                let (written, scanned) = futures_util::future::join(writing, scanning).await;
                written.into_iter().collect::<Result<Vec<_>, _>>()?;
                scanned?;
                let value = tx.get(&table, &key).await?.expect("just put").to_owned();
                // Among the written keys only those of the last value remain.
                for number in (0..5).chain(NUMBERS + round..NUMBERS + round + 5) {
                    let mut scan = tx.entries_by(&index, number..=number)?.rev();
                    let mut found = false;
                    while let Some((_, record)) = scan.next().await? {
                        found |= record == key;
                    }
                    assert_eq!(found, keys_of(&value).any(|key| key == number), "{number}");
                }
                Ok(())
            })
            .unwrap();
        }
        stop.store(true, Ordering::Relaxed);
        reader.join().unwrap();
        let entries = check_now(&db, &table, &index);
        // Each written record now has two keys.
        assert_eq!(entries as u64, MANY + ROUNDS);
    });
}

/// A rollback to a savepoint also undoes index entries, and a scan in progress continues with the
/// restored entries.
#[test]
fn a_rollback_to_a_savepoint_undoes_index_entries() {
    with_limit(60, |_| {
        for unique in [false, true] {
            let (db, table, index) = in_memory(2, unique);
            write(&db, &table, &[(1, Some("1 11")), (2, Some("2")), (3, Some("3"))]).unwrap();
            let (records, by) = (table.clone(), index.clone());
            db.run_blocking(async move |tx| {
                tx.put(&records, &2, "4").await?;
                let mut scan = tx.scan_by(&by, ..)?;
                let savepoint = tx.savepoint();
                tx.put(&records, &1, "1 12").await?;
                tx.put(&records, &2, "5").await?;
                tx.delete(&records, &3).await?;
                tx.put(&records, &4, "3 6").await?;
                check(tx, &records, &by).await?;
                assert_eq!(scan.next().await?.map(|(n, key, _)| (n, key)), Some((1, 1)));
                tx.rollback_to(&savepoint).await?;
                let mut rest = Vec::new();
                while let Some((number, key, value)) = scan.next().await? {
                    rest.push((number, key, value.to_owned()));
                }
                let all = [(3, 3, "3"), (4, 2, "4"), (11, 1, "1 11")];
                assert_eq!(rest, all.map(|(number, key, value)| (number, key, value.to_owned())));
                assert_eq!(check(tx, &records, &by).await?, 4);
                Ok(())
            })
            .unwrap();
            assert_eq!(check_now(&db, &table, &index), 4);
        }
    });
}
