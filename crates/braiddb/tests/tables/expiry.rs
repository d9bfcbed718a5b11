//! Expiring records in tables of both kinds: they are invisible from their expiry time on, for
//! every operation, and sweeps delete them without visible effects. The test controls the clock.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::common::{Watched, with_limit};
use crate::expiring::{Clock, TTL, create, expiring};
use crate::polls::poll_at_most;
use braiddb::{
    Database, Durability, Error, Index, IndexKeys, IndexOptions, Isolation, Misuse, Options, Table,
    TableOptions, Transaction,
};
use pollster::block_on;

/// A limit far above the duration of any test.
const LIMIT_SECONDS: u64 = 300;

/// Runs a test on a table of each kind, in memory.
fn for_both_kinds(test: impl Fn(&Database, &Clock, Table<u64, u64>) + Send + Sync + 'static) {
    with_limit(LIMIT_SECONDS, move |_| {
        for paged in [false, true] {
            let clock = Clock::new();
            let db = Database::in_memory(clock.options()).unwrap().watched();
            let table = create(&db, paged);
            test(&db, &clock, table);
            db.close().unwrap();
        }
    });
}

#[test]
fn no_operation_sees_an_expired_record() {
    for_both_kinds(|db, clock, table| {
        let records = table.clone();
        db.run_blocking(async move |tx| {
            for key in 0..10 {
                tx.put(&records, &key, &key).await?;
            }
            tx.put_with_ttl(&records, &4, &4, Duration::from_millis(2 * TTL)).await
        })
        .unwrap();
        clock.pass(TTL - 1);
        assert_eq!(block_on(db.get(&table, &3)).unwrap(), Some(3));
        assert_eq!(block_on(db.len(&table)).unwrap(), 10);
        clock.pass(1);
        db.run_blocking(async move |tx| {
            assert_eq!(tx.get(&table, &3).await?, None);
            assert!(!tx.contains(&table, &3).await?);
            assert_eq!(tx.multi_get(&table, &[3, 4]).await?, [None, Some(4)]);
            assert_eq!(tx.get_with(&table, &3, |value| value).await?, None);
            assert_eq!(tx.get_with(&table, &4, |value| value).await?, Some(4));
            assert_eq!(tx.get_part(&table, &3, |value| value).await?, None);
            assert_eq!(tx.get_part(&table, &4, |value| value).await?, Some(4));
            assert_eq!(tx.expires_at(&table, &3).await?, None);
            assert_eq!(
                (tx.first(&table).await?, tx.last(&table).await?),
                (Some((4, 4)), Some((4, 4)))
            );
            assert_eq!(tx.count(&table, ..).await?, 1);
            assert_eq!(tx.keys(&table, ..)?.limit(1).next().await?, Some(4));
            assert_eq!(tx.scan(&table, ..)?.rev().limit(1).next().await?, Some((4, 4)));
            assert!(!tx.update_with(&table, &3, |value| value).await?);
            assert!(matches!(tx.update(&table, &3, &1).await, Err(Error::KeyNotFound(_))));
            assert!(!tx.delete(&table, &3).await?);
            assert!(!tx.compare_and_set(&table, &3, Some(&3), Some(&4)).await?);
            assert_eq!(tx.fetch_update(&table, &5, |old| old.or(Some(50))).await?, None);
            tx.insert(&table, &3, &30).await?;
            assert!(matches!(tx.insert(&table, &3, &31).await, Err(Error::KeyExists(_))));
            assert_eq!(tx.get(&table, &3).await?, Some(30));
            assert!(tx.delete(&table, &3).await?);
            assert_eq!(tx.delete_range(&table, ..).await?, 2);
            assert!(tx.is_empty(&table).await?);
            Ok(())
        })
        .unwrap();
        // Two were deleted by operations before they expired, and one was replaced by a new
        // insertion.
        assert_eq!(block_on(db.sweep_expired()).unwrap(), 7);
        assert_eq!(db.stats().expired_swept, 7);
    });
}

#[test]
fn a_transaction_has_one_time_throughout() {
    for_both_kinds(|db, clock, table| {
        block_on(async {
            db.put(&table, &1, &10).await?;
            let (interactive, snapshot) = (db.begin().await?, db.snapshot().await?);
            clock.pass(TTL);
            assert_eq!(db.get(&table, &1).await?, None);
            assert_eq!(db.sweep_expired().await?, 1);
            assert_eq!(snapshot.get(&table, &1).await?, Some(10));
            assert_eq!(interactive.get(&table, &1).await?, Some(10));
            interactive.commit().await?;
            assert_eq!(db.snapshot().await?.get(&table, &1).await?, None);
            Ok::<_, Error>(())
        })
        .unwrap();
    });
}

#[test]
fn expiry_time_is_monotonic_if_the_clock_goes_back() {
    for_both_kinds(|db, clock, table| {
        block_on(async {
            db.put(&table, &1, &10).await?;
            clock.pass(TTL);
            assert_eq!(db.get(&table, &1).await?, None);
            clock.0.fetch_sub(TTL, Ordering::SeqCst);
            assert_eq!(db.get(&table, &1).await?, None, "what was unseen is seen again");
            db.put(&table, &2, &20).await?;
            clock.pass(2 * TTL - 1);
            assert_eq!(db.get(&table, &2).await?, Some(20));
            clock.pass(1);
            assert_eq!(db.get(&table, &2).await?, None);
            Ok::<_, Error>(())
        })
        .unwrap();
    });
}

fn tens(value: u64, keys: &mut IndexKeys<'_, u64>) {
    keys.push(&(value / 10));
}

#[test]
fn an_expired_record_does_not_conflict_in_a_unique_index() {
    for_both_kinds(|db, clock, table| {
        block_on(async {
            let unique = IndexOptions::default().unique(true);
            let by_tens = db.index(&table, "by_tens", unique, tens).await?;
            db.put(&table, &1, &10).await?;
            db.put(&table, &2, &20).await?;
            db.put(&table, &5, &50).await?;
            let refused = db.put(&table, &3, &11).await;
            assert!(matches!(refused, Err(Error::UniqueViolation(_))), "{refused:?}");
            let index = by_tens.clone();
            let last = db.run(async move |tx| tx.entries_by(&index, ..)?.rev().next().await);
            assert_eq!(last.await?, Some((5, 5)));
            clock.pass(TTL);
            let (records, index) = (table.clone(), by_tens.clone());
            db.run(async move |tx| {
                assert_eq!(tx.get_by(&index, &1).await?, None);
                assert_eq!(tx.scan_by(&index, ..)?.next().await?, None);
                assert_eq!(tx.entries_by(&index, ..)?.next().await?, None);
                tx.put_until(&records, &6, &51, u64::MAX).await?;
                assert_eq!(tx.get_by(&index, &5).await?, Some((6, 51)));
                tx.delete(&records, &6).await?;
                tx.insert(&records, &3, &11).await?;
                assert_eq!(tx.get_by(&index, &1).await?, Some((3, 11)));
                // The entry of the expired record disappears with its replacement.
                tx.insert(&records, &2, &30).await?;
                assert_eq!(tx.get_by(&index, &2).await?, None);
                assert_eq!(tx.get_by(&index, &3).await?, Some((2, 30)));
                Ok(())
            })
            .await?;
            clock.pass(TTL);
            assert_eq!(db.sweep_expired().await?, 2);
            let index = by_tens.clone();
            let entries = db.run(async move |tx| tx.entries_by(&index, ..)?.next().await).await?;
            assert_eq!(entries, None);
            Ok::<_, Error>(())
        })
        .unwrap();
    });
}

#[test]
fn a_unique_index_is_built_over_expired_records_with_the_same_key() {
    for_both_kinds(|db, clock, table| {
        block_on(async {
            for key in 0..100 {
                db.put(&table, &key, &11).await?;
            }
            clock.pass(TTL);
            db.put(&table, &50, &12).await?;
            let unique = IndexOptions::default().unique(true);
            let by_tens = db.index(&table, "by_tens", unique, tens).await?;
            let found = db.run(async move |tx| tx.get_by(&by_tens, &1).await).await?;
            assert_eq!(found, Some((50, 12)));
            assert_eq!(db.len(&table).await?, 1);
            Ok::<_, Error>(())
        })
        .unwrap();
    });
}

#[test]
fn serializable_reads_of_expired_records_are_validated() {
    for_both_kinds(|db, clock, table| {
        block_on(async {
            let serializable = db.transaction().isolation(Isolation::Serializable);
            db.put(&table, &1, &10).await?;
            clock.pass(TTL);
            // Another transaction writes the record that this one found missing.
            let transaction = serializable.clone().begin().await?;
            assert_eq!(transaction.get(&table, &1).await?, None);
            transaction.put(&table, &2, &20).await?;
            db.put(&table, &1, &11).await?;
            let committed = transaction.commit().await;
            assert!(committed.is_err(), "{committed:?}");
            assert_eq!(db.get(&table, &2).await?, None);
            // A record that expires in the meantime changes nothing: a transaction uses a fixed
            // time.
            let transaction = serializable.begin().await?;
            assert_eq!(transaction.get(&table, &1).await?, Some(11));
            clock.pass(TTL);
            transaction.put(&table, &2, &20).await?;
            transaction.commit().await?;
            Ok::<_, Error>(())
        })
        .unwrap();
    });
}

/// A writer that found a record unexpired does not see the write of a transaction that found it
/// expired.
#[test]
fn a_later_time_is_not_seen_by_extension() {
    for_both_kinds(|db, clock, table| {
        block_on(async {
            db.put(&table, &1, &10).await?;
            let transaction = db.transaction().isolation(Isolation::Serializable).begin().await?;
            transaction.put(&table, &2, &20).await?;
            assert_eq!(transaction.get(&table, &1).await?, Some(10));
            clock.pass(TTL);
            assert_eq!(db.get(&table, &1).await?, None);
            // The writer knows that record 1 has expired.
            db.put(&table, &3, &30).await?;
            match transaction.get(&table, &3).await {
                Ok(seen) => assert_eq!(seen, None),
                Err(error) => assert!(error.is_retryable(), "{error}"),
            }
            Ok::<_, Error>(())
        })
        .unwrap();
    });
}

#[test]
fn a_cancelled_write_has_no_effect() {
    for_both_kinds(|db, clock, table| {
        for polls in 1..20 {
            block_on(db.put(&table, &1, &1)).unwrap();
            clock.pass(TTL);
            let records = table.clone();
            let outcome = db.run_blocking(async move |tx| {
                let inserted = poll_at_most(tx.insert(&records, &1, &2), polls).await;
                let now = tx.get(&records, &1).await?;
                assert_eq!(now, inserted.map(|inserted| inserted.map(|()| 2)).transpose()?);
                let put = Duration::from_secs(60);
                let put = poll_at_most(tx.put_with_ttl(&records, &1, &3, put), polls).await;
                assert_eq!(tx.get(&records, &1).await?, put.map_or(now, |_| Some(3)));
                Ok(())
            });
            outcome.unwrap();
            clock.pass(60_000);
        }
    });
}

#[test]
fn invalid_expiry_options_are_rejected() {
    for_both_kinds(|db, _, table| {
        let none = TableOptions::default().ttl(Duration::from_micros(999));
        let refused: Result<Table<u64, u64>, _> =
            db.run_blocking(async move |tx| tx.create_table_with("other", none).await);
        assert!(matches!(refused, Err(Error::Options(_))), "{refused:?}");
        let plain: Table<u64, u64> = block_on(db.create_table("plain")).unwrap();
        let refused = db.run_blocking(async move |tx| {
            tx.put_with_ttl(&plain, &1, &1, Duration::from_secs(1)).await
        });
        assert!(matches!(refused, Err(Error::Misuse(Misuse::NotExpiring(_)))), "{refused:?}");
        // A table keeps the options it was created with.
        let longer = TableOptions::default().ttl(Duration::from_secs(60));
        let again: Table<u64, u64> = db
            .run_blocking(async move |tx| tx.open_or_create_table_with("records", longer).await)
            .unwrap();
        assert_eq!(again.name(), table.name());
        let described = block_on(db.tables()).unwrap();
        let described = described.iter().find(|one| one.name == "records").unwrap();
        assert_eq!(described.options.ttl, Some(Duration::from_millis(TTL)));
    });
}

#[test]
fn the_maximum_value_length_leaves_room_for_the_expiry_time() {
    for_both_kinds(|db, _, table| {
        let paged = block_on(db.tables()).unwrap()[0].options.paged;
        drop(table);
        let options = expiring(paged);
        db.run_blocking(async move |tx| {
            let table: Table<u64, [u8]> = tx.create_table_with("texts", options).await?;
            for length in [0, 1, 7, 8, 500, 1000] {
                let value = vec![7; length];
                tx.put(&table, &1, &value).await?;
                assert_eq!(tx.get(&table, &1).await?, Some(&*value));
            }
            let refused = tx.put(&table, &2, &vec![0; 1 << 26]).await;
            assert!(refused.is_err(), "{refused:?}");
            Ok(())
        })
        .unwrap();
    });
}

#[test]
fn workers_sweep_expired_records_automatically() {
    with_limit(LIMIT_SECONDS, |_| {
        for paged in [false, true] {
            let db = Database::in_memory(Options::default().workers(2)).unwrap().watched();
            let second = TableOptions::default().ttl(Duration::from_secs(1));
            let options = if paged { second.paged() } else { second };
            let table: Table<u64, u64> = db
                .run_blocking(async move |tx| tx.create_table_with("records", options).await)
                .unwrap();
            let count = 3000;
            db.run_blocking(async move |tx| {
                for key in 0..count {
                    let brief = Duration::from_millis(1);
                    tx.put_with_ttl(&table, &key, &key, brief).await?;
                }
                Ok(())
            })
            .unwrap();
            while db.stats().expired_swept < count {
                std::thread::sleep(Duration::from_millis(10));
            }
            assert_eq!(db.stats().expired_swept, count);
            db.close().unwrap();
        }
    });
}

fn open(directory: &Path, clock: &Clock) -> Database {
    let options = clock
        .options()
        .durability(Durability::Group)
        .tune(|tuning| tuning.log_segment_bytes(1 << 20));
    Database::open(directory, options).unwrap().watched()
}

#[test]
fn records_stay_expired_after_reopening_a_checkpoint_and_a_backup() {
    with_limit(LIMIT_SECONDS, |_| {
        for paged in [false, true] {
            let (clock, directory) = (Clock::new(), tempfile::tempdir().unwrap());
            let (here, copy) = (directory.path().join("here"), directory.path().join("copy"));
            std::fs::create_dir(&here).unwrap();
            let db = open(&here, &clock);
            let table = create(&db, paged);
            for key in 0..20 {
                block_on(db.put(&table, &key, &key)).unwrap();
                clock.pass(TTL / 10);
            }
            // The first records have expired: they were written one to two lifetimes ago.
            let alive = |db: &Database| {
                let table = create(db, paged);
                db.run_blocking(async move |tx| {
                    let (mut keys, mut all) = (tx.keys(&table, ..)?, Vec::new());
                    while let Some(key) = keys.next().await? {
                        all.push(key);
                    }
                    Ok(all)
                })
                .unwrap()
            };
            let expected: Vec<u64> = (11..20).collect();
            assert_eq!(alive(&db), expected);
            block_on(db.checkpoint()).unwrap();
            block_on(db.put(&table, &0, &0)).unwrap();
            let expected: Vec<u64> = std::iter::once(0).chain(11..20).collect();
            db.backup(&copy).unwrap();
            db.close().unwrap();
            for directory in [&here, &copy] {
                let db = open(directory, &clock);
                assert_eq!(alive(&db), expected);
                // Earlier records still exist and are swept.
                assert_eq!(block_on(db.sweep_expired()).unwrap(), 10);
                let problems = db.check().unwrap().problems;
                assert!(problems.is_empty(), "{problems:?}");
                db.close().unwrap();
                let db = open(directory, &clock);
                assert_eq!(alive(&db), expected);
                assert_eq!(block_on(db.sweep_expired()).unwrap(), 0);
                db.close().unwrap();
            }
        }
    });
}

/// The expected records, each with its expiry time.
type Model = BTreeMap<u64, (u64, u64)>;

async fn change(
    tx: &Transaction,
    table: &Table<u64, u64>,
    model: &mut Model,
    now: u64,
    random: &mut fastrand::Rng,
) -> Result<(), Error> {
    let (key, value) = (random.u64(0..40), random.u64(0..1000));
    let before = model.get(&key).map(|(value, _)| *value);
    let written = (value, now + TTL);
    match random.u32(0..8) {
        0 | 1 => {
            tx.put(table, &key, &value).await?;
            model.insert(key, written);
        }
        2 => {
            let ttl = random.u64(1..3 * TTL);
            tx.put_with_ttl(table, &key, &value, Duration::from_millis(ttl)).await?;
            model.insert(key, (value, now + ttl));
        }
        3 => match tx.insert(table, &key, &value).await {
            Ok(()) => assert!(model.insert(key, written).is_none()),
            Err(Error::KeyExists(_)) => assert!(before.is_some()),
            Err(error) => return Err(error),
        },
        4 => match tx.update(table, &key, &value).await {
            Ok(()) => assert!(model.insert(key, written).is_some()),
            Err(Error::KeyNotFound(_)) => assert!(before.is_none()),
            Err(error) => return Err(error),
        },
        5 => assert_eq!(tx.delete(table, &key).await?, model.remove(&key).is_some()),
        6 => {
            let there = tx.fetch_update(table, &key, |_| Some(value)).await?;
            assert_eq!(there, before);
            model.insert(key, written);
        }
        _ => assert_eq!(tx.get(table, &key).await?, before),
    }
    Ok(())
}

async fn compare(
    tx: &Transaction,
    table: &Table<u64, u64>,
    index: &Index<u64, u64, u64>,
    model: &Model,
) -> Result<(), Error> {
    let (mut scan, mut found) = (tx.scan(table, ..)?, Vec::new());
    while let Some(record) = scan.next().await? {
        found.push(record);
    }
    let mut expected: Vec<_> = model.iter().map(|(key, (value, _))| (*key, *value)).collect();
    assert_eq!(found, expected);
    assert_eq!(tx.count(table, ..).await?, expected.len() as u64);
    assert_eq!(tx.last(table).await?, expected.last().copied());
    let (mut scan, mut found) = (tx.scan_by(index, ..)?, Vec::new());
    while let Some((_, key, value)) = scan.next().await? {
        found.push((key, value));
    }
    expected.sort_by_key(|(key, value)| (value / 10, *key));
    assert_eq!(found, expected);
    Ok(())
}

#[test]
#[ignore = "slow: the gate runs it"]
fn an_expiring_table_behaves_as_a_model() {
    with_limit(LIMIT_SECONDS, |_| {
        for (seed, paged) in (0..12).flat_map(|seed| [(seed, false), (seed, true)]) {
            let mut random = fastrand::Rng::with_seed(seed);
            let (clock, directory) = (Clock::new(), tempfile::tempdir().unwrap());
            let mut model = Model::new();
            let mut swept = 0;
            for _ in 0..3 {
                let db = open(directory.path(), &clock);
                let table = create(&db, paged);
                let index =
                    block_on(db.index(&table, "by_tens", IndexOptions::default(), tens)).unwrap();
                for _ in 0..60 {
                    clock.pass(random.u64(0..TTL / 3));
                    let now = clock.now();
                    model.retain(|_, (_, expiry)| *expiry > now);
                    if random.u32(0..10) == 0 {
                        swept += block_on(db.sweep_expired()).unwrap();
                    }
                    let (table, index, before) = (table.clone(), index.clone(), model.clone());
                    let seed = random.u64(..);
                    model = db
                        .run_blocking(async move |tx| {
                            let mut random = fastrand::Rng::with_seed(seed);
                            let mut model = before.clone();
                            for _ in 0..random.u32(1..8) {
                                change(tx, &table, &mut model, now, &mut random).await?;
                            }
                            compare(tx, &table, &index, &model).await?;
                            Ok(model)
                        })
                        .unwrap();
                    assert_eq!(db.stats().aborted.requested, 0);
                }
                let problems = db.check().unwrap().problems;
                assert!(problems.is_empty(), "{problems:?}");
                db.close().unwrap();
            }
            assert!(swept > 0, "nothing was swept");
        }
    });
}

#[test]
fn sweeps_run_during_concurrent_writes() {
    with_limit(LIMIT_SECONDS, |_| {
        for paged in [false, true] {
            let (clock, directory) = (Clock::new(), tempfile::tempdir().unwrap());
            let db = open(directory.path(), &clock);
            let table = create(&db, paged);
            let index =
                block_on(db.index(&table, "by_tens", IndexOptions::default(), tens)).unwrap();
            let (mut swept, mut rounds) = (0, 0);
            // Repeats until the sweeps deleted records while others wrote.
            while swept < 200 {
                let (writer, records, write_clock) = (db.clone(), table.clone(), clock.clone());
                let writing = std::thread::spawn(move || {
                    for round in 0..300 {
                        let (records, key) = (records.clone(), round * 7 % 100);
                        writer
                            .run_blocking(async move |tx| {
                                let count = tx.get(&records, &key).await?.unwrap_or(0);
                                tx.put(&records, &key, &(count + 1)).await
                            })
                            .unwrap();
                        write_clock.pass(TTL / 50);
                    }
                });
                while !writing.is_finished() {
                    swept += block_on(db.sweep_expired()).unwrap();
                }
                writing.join().unwrap();
                rounds += 1;
                assert!(rounds < 1000, "nothing expires");
            }
            clock.pass(TTL);
            block_on(db.sweep_expired()).unwrap();
            assert_eq!(block_on(db.len(&table)).unwrap(), 0);
            let entries = db.run_blocking(async move |tx| tx.entries_by(&index, ..)?.next().await);
            assert_eq!(entries.unwrap(), None);
            let problems = db.check().unwrap().problems;
            assert!(problems.is_empty(), "{problems:?}");
            db.close().unwrap();
        }
    });
}
