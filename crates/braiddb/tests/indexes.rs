//! Secondary indexes: what they find, what they refuse, and that they are exactly what the table is, beside
//! writers, across aborts, panics, openings, and while they are created and dropped.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use braiddb::{
    Database, Error, Index, IndexKeys, IndexOptions, IndexStage, Isolation, Options, RunOptions,
    Table, Transaction,
};
use common::{Limit, with_limit};
use pollster::block_on;

/// A value of tests: the keys it has in indexes, as decimal numbers in between blanks.
fn keys_of(value: &str) -> impl Iterator<Item = u64> {
    value.split(' ').filter_map(|word| word.parse().ok())
}

fn extract(value: &str, keys: &mut IndexKeys<'_, u64>) {
    assert!(!value.contains("panic"), "the test's extractor panics");
    keys_of(value).for_each(|key| keys.push(&key));
}

type Records = Table<u64, str>;
type Numbers = Index<u64, u64, str>;

fn in_memory(workers: usize, unique: bool) -> (Database, Records, Numbers) {
    let db = Database::in_memory(Options::default().workers(workers)).unwrap();
    let table = block_on(db.create_table("records")).unwrap();
    let options = IndexOptions::default().unique(unique);
    let index = block_on(db.index(&table, "numbers", options, extract)).unwrap();
    (db, table, index)
}

/// Several writes in one transaction: a value, or none to delete.
fn write(db: &Database, table: &Records, writes: &[(u64, Option<&str>)]) -> Result<(), Error> {
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

type Range = (Bound<u64>, Bound<u64>);

async fn scan(
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

const ALL: Range = (Bound::Unbounded, Bound::Unbounded);

/// What the index should be, from the table, in the same transaction.
async fn expected(tx: &Transaction, table: &Records) -> Result<Vec<(u64, u64, String)>, Error> {
    let (mut scan, mut all) = (tx.scan(table, ..)?, BTreeSet::new());
    while let Some((key, value)) = scan.next().await? {
        all.extend(keys_of(value).map(|number| (number, key, value.to_owned())));
    }
    Ok(all.into_iter().collect())
}

/// That what the index says in a transaction is what the table says.
async fn check(tx: &Transaction, table: &Records, index: &Numbers) -> Result<usize, Error> {
    let found = scan(tx, index, ALL, false).await?;
    assert_eq!(found, expected(tx, table).await?, "attempt {}", tx.attempt());
    let (mut entries, mut keys) = (tx.entries_by(index, ..)?, Vec::new());
    while let Some(entry) = entries.next().await? {
        keys.push(entry);
    }
    assert!(found.iter().map(|(number, key, _)| (*number, *key)).eq(keys));
    Ok(found.len())
}

fn check_now(db: &Database, table: &Records, index: &Numbers) -> usize {
    let (table, index) = (table.clone(), index.clone());
    db.run_blocking(async move |tx| check(tx, &table, &index).await).unwrap()
}

#[test]
fn an_index_finds_what_has_a_key() {
    with_limit(60, |_| {
        let (db, table, index) = in_memory(2, false);
        write(&db, &table, &[(1, Some("10 20")), (2, Some("20")), (3, Some("none"))]).unwrap();
        write(&db, &table, &[(4, Some("30 30 30")), (5, Some("20 40"))]).unwrap();
        write(&db, &table, &[(2, Some("20 still")), (5, Some("40"))]).unwrap();
        let of = |range: Range, reverse| {
            let index = index.clone();
            let found = db.run_blocking(async move |tx| scan(tx, &index, range, reverse).await);
            found.unwrap().into_iter().map(|(n, k, _)| (n, k)).collect::<Vec<_>>()
        };
        let all = [(10, 1), (20, 1), (20, 2), (30, 4), (40, 5)];
        assert_eq!(of(ALL, false), all);
        assert_eq!(of(ALL, true), all.iter().rev().copied().collect::<Vec<_>>());
        use Bound::{Excluded, Included};
        assert_eq!(of((Included(20), Included(20)), false), all[1..3]);
        assert_eq!(of((Excluded(10), Excluded(40)), false), all[1..4]);
        assert_eq!(of((Excluded(20), Bound::Unbounded), true), [(40, 5), (30, 4)]);
        assert_eq!(of((Included(31), Excluded(40)), false), []);
        assert_eq!(of((Excluded(u64::MAX), Bound::Unbounded), false), []);
        assert_eq!(check_now(&db, &table, &index), 5);
        // Two keys of the first, one each of four, one that went; not those that stayed.
        assert_eq!(db.stats().index_entries, 2 + 1 + 1 + 2 + 1);
        write(&db, &table, &[(1, None), (4, None)]).unwrap();
        assert_eq!(of(ALL, false), [(20, 2), (40, 5)]);
        let refused = db.run_blocking(async move |tx| {
            Ok::<_, Error>(tx.get_by(&index, &20).await?.map(|(key, _)| key))
        });
        assert!(matches!(refused, Err(Error::IndexNotUnique(name)) if name == "numbers"));
    });
}

#[test]
fn keys_of_text_are_found_by_prefix_and_in_order() {
    with_limit(60, |_| {
        let db = Database::in_memory(Options::default().workers(1)).unwrap();
        let table: Table<str, str> = block_on(db.create_table("words")).unwrap();
        let index: Index<str, str, str> = block_on(db.index(
            &table,
            "words",
            IndexOptions::default(),
            |text: &str, keys: &mut IndexKeys<'_, str>| {
                text.split(' ').for_each(|word| keys.push(word));
            },
        ))
        .unwrap();
        db.run_blocking(async move |tx| {
            tx.put(&table, "z", "a ab a\0b abc b").await?;
            tx.put(&table, "y", "a\0 ab").await?;
            let mut scan = tx.scan_prefix_by(&index, "ab")?;
            let mut found = Vec::new();
            while let Some((word, key, _)) = scan.next().await? {
                found.push((word, key));
            }
            let pair = |word: &str, key: &str| (word.to_owned(), key.to_owned());
            assert_eq!(found, [pair("ab", "y"), pair("ab", "z"), pair("abc", "z")]);
            let mut scan = tx.scan_prefix_by(&index, "a\0")?.rev().limit(1);
            let last = scan.next().await?.map(|(word, key, _)| (word, key));
            assert_eq!(last, Some(pair("a\0b", "z")));
            assert!(scan.next().await?.is_none());
            let mut all = tx.entries_by(&index, ..)?;
            let mut words = Vec::new();
            while let Some((word, _)) = all.next().await? {
                words.push(word);
            }
            assert_eq!(words, ["a", "a\0", "a\0b", "ab", "ab", "abc", "b"]);
            Ok::<_, Error>(())
        })
        .unwrap();
    });
}

#[test]
fn a_unique_index_refuses_a_second_record_and_nothing_of_it_is_there() {
    with_limit(60, |_| {
        let (db, table, index) = in_memory(2, true);
        write(&db, &table, &[(1, Some("10 11")), (2, Some("20"))]).unwrap();
        let refused = write(&db, &table, &[(3, Some("30 11"))]).unwrap_err();
        let key = 11_u64.to_be_bytes();
        match &refused {
            Error::UniqueViolation { table, index, key: k } => {
                assert_eq!((&**table, &**index, &**k), ("records", "numbers", &key[..]));
            }
            other => panic!("{other:?}"),
        }
        assert!(!refused.is_retryable());
        let (records, by) = (table.clone(), index.clone());
        db.run_blocking(async move |tx| {
            // The error is passed over, and what is committed has nothing of the write.
            let refused = tx.put(&records, &3, "30 20").await;
            assert!(matches!(refused, Err(Error::UniqueViolation { .. })));
            assert!(matches!(
                tx.update(&records, &1, "20").await,
                Err(Error::UniqueViolation { .. })
            ));
            // The key exists: that comes first.
            assert!(matches!(tx.insert(&records, &1, "10").await, Err(Error::KeyExists)));
            assert!(matches!(tx.update(&records, &9, "10").await, Err(Error::KeyNotFound)));
            assert_eq!(tx.get(&records, &3).await?, None);
            let found = tx.get_by(&by, &11).await?.map(|(key, value)| (key, value.to_owned()));
            assert_eq!(found, Some((1, "10 11".to_owned())));
            assert_eq!(tx.get_by(&by, &30).await?, None);
            // A key goes from one record to another, within one transaction.
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

/// Of two transactions that give a key to two records, one fails; each way round, under each isolation.
#[test]
fn of_two_who_claim_a_key_one_loses() {
    with_limit(60, |_| {
        for isolation in [Isolation::Serializable, Isolation::Snapshot] {
            for first_commits_first in [false, true] {
                let (db, table, index) = in_memory(2, true);
                let options = || RunOptions::default().isolation(isolation);
                let one = block_on(db.begin_with(options())).unwrap();
                let two = block_on(db.begin_with(options())).unwrap();
                block_on(one.put(&table, &1, "7")).unwrap();
                if first_commits_first {
                    block_on(one.commit()).unwrap();
                    let told = block_on(two.put(&table, &2, "7")).unwrap_err();
                    match isolation {
                        // Its snapshot is extended, so it is told what is there.
                        Isolation::Serializable => {
                            assert!(matches!(told, Error::UniqueViolation { .. }), "{told:?}");
                        }
                        Isolation::Snapshot => {
                            assert!(matches!(told, Error::Conflict { .. }), "{told:?}");
                        }
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
fn a_panic_of_what_gives_the_keys_leaves_nothing() {
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
fn one_that_gives_other_keys_for_the_same_value_is_told() {
    with_limit(60, |_| {
        let db = Database::in_memory(Options::default().workers(1)).unwrap();
        let table: Records = block_on(db.create_table("records")).unwrap();
        let calls = Arc::new(AtomicU64::new(0));
        let changing = move |_: &str, keys: &mut IndexKeys<'_, u64>| {
            keys.push(&calls.fetch_add(1, Ordering::Relaxed));
        };
        let options = IndexOptions::default();
        let index = block_on(db.index(&table, "changing", options, changing)).unwrap();
        write(&db, &table, &[(1, Some("a"))]).unwrap();
        let told = write(&db, &table, &[(1, Some("b"))]).unwrap_err();
        assert!(matches!(told, Error::IndexInconsistent { .. }), "{told:?}");
        let records = table.clone();
        let passed_over = db.run_blocking(async move |tx| {
            assert!(tx.put(&records, &1, "c").await.is_err());
            Ok::<_, Error>(())
        });
        assert!(matches!(passed_over, Err(Error::IndexInconsistent { .. })), "{passed_over:?}");
        let records = table.clone();
        let value = db.run_blocking(async move |tx| {
            Ok::<_, Error>(tx.get(&records, &1).await?.map(str::to_owned))
        });
        assert_eq!(value.unwrap().as_deref(), Some("a"), "nothing of it was committed");
        block_on(db.drop_index(&table, "changing")).unwrap();
        write(&db, &table, &[(1, Some("b"))]).unwrap();
        drop(index);
    });
}

/// What a transaction read of an index is certified: a record that comes into the range, or leaves it, or
/// changes in it; and only then.
#[test]
fn phantoms_through_an_index_are_certified() {
    type Change = &'static [(u64, Option<&'static str>)];
    // Whether a scan of the records, and one of the entries, of 20 to 29 must fail.
    let changes: [(Change, bool, bool); 7] = [
        (&[(9, Some("25"))], true, true),
        (&[(1, Some("12 20"))], true, true),
        (&[(2, Some("30"))], true, true),
        (&[(2, None)], true, true),
        (&[(2, Some("22 other"))], true, false),
        (&[(1, Some("13"))], false, false),
        (&[(9, Some("30"))], false, false),
    ];
    with_limit(60, move |_| {
        for (change, fails_records, fails_entries) in changes {
            for (reads_records, fails) in [(true, fails_records), (false, fails_entries)] {
                let (db, table, index) = in_memory(2, false);
                write(&db, &table, &[(1, Some("12")), (2, Some("22")), (3, Some("33"))]).unwrap();
                let reader = block_on(db.begin()).unwrap();
                let by = index.clone();
                let step = async move |tx: &Transaction| {
                    let range = (Bound::Included(20), Bound::Excluded(30));
                    if reads_records {
                        return Ok::<_, Error>(scan(tx, &by, range, false).await?.len());
                    }
                    let (mut entries, mut count) = (tx.entries_by(&by, range)?, 0);
                    while entries.next().await?.is_some() {
                        count += 1;
                    }
                    Ok(count)
                };
                assert_eq!(block_on(reader.step(step)).unwrap(), 1);
                write(&db, &table, change).unwrap();
                block_on(reader.put(&table, &100, "no number")).unwrap();
                let committed = block_on(reader.commit());
                let what = format!("{change:?}, records read: {reads_records}: {committed:?}");
                assert_eq!(
                    matches!(committed, Err(Error::NotSerializable { .. })),
                    fails,
                    "{what}"
                );
                assert_eq!(committed.is_ok(), !fails, "{what}");
            }
        }
    });
}

/// A refusal by a unique index is certified too.
#[test]
fn a_refusal_is_certified() {
    with_limit(60, |_| {
        let (db, table, _index) = in_memory(2, true);
        write(&db, &table, &[(1, Some("7"))]).unwrap();
        let told = block_on(db.begin()).unwrap();
        let refused = block_on(told.put(&table, &2, "7"));
        assert!(matches!(refused, Err(Error::UniqueViolation { .. })));
        write(&db, &table, &[(1, Some("8"))]).unwrap();
        block_on(told.put(&table, &3, "9")).unwrap();
        assert!(matches!(block_on(told.commit()), Err(Error::NotSerializable { .. })));
    });
}

fn open(directory: &std::path::Path) -> (Database, Records) {
    let options = Options::default().workers(2).log_segment_bytes(1 << 20);
    let db = Database::open(directory, options).unwrap();
    let table = block_on(db.open_or_create_table("records")).unwrap();
    (db, table)
}

fn attach(db: &Database, table: &Records, options: IndexOptions) -> Result<Numbers, Error> {
    block_on(db.index(table, "numbers", options, extract))
}

#[test]
fn an_index_is_there_again_after_opening_once_it_is_attached() {
    with_limit(120, |_| {
        let directory = tempfile::tempdir().unwrap();
        for round in 0..4_u64 {
            let (db, table) = open(directory.path());
            let options = IndexOptions::default().version(3);
            if round > 0 {
                let rows = block_on(db.indexes()).unwrap();
                assert_eq!((rows.len(), rows[0].stage), (1, IndexStage::Ready));
                assert_eq!((&*rows[0].table, &*rows[0].name), ("records", "numbers"));
                let detached = write(&db, &table, &[(1, Some("1"))]).unwrap_err();
                assert!(
                    matches!(&detached, Error::IndexDetached { table, index }
                        if table == "records" && index == "numbers"),
                    "{detached:?}"
                );
                for wrong in [options.version(4), options.unique(true)] {
                    let refused = attach(&db, &table, wrong).unwrap_err();
                    assert!(matches!(refused, Error::IndexMismatch { .. }), "{refused:?}");
                }
                let other = block_on(db.index(&table, "numbers", options, |_, keys| {
                    keys.push("a key of another type");
                }));
                assert!(matches!(other, Err(Error::IndexMismatch { .. })));
                // Reading needs nothing.
                let records = table.clone();
                let read = async move |tx: &Transaction| {
                    Ok::<_, Error>(tx.get(&records, &0).await?.is_some())
                };
                assert!(db.run_blocking(read).unwrap());
            }
            let index = attach(&db, &table, options).unwrap();
            let before = check_now(&db, &table, &index);
            assert_eq!(before == 0, round == 0);
            for key in 0..500 {
                let value = format!("{} {}", key % 7, key + round);
                write(&db, &table, &[(key, Some(&value)), (key + 500, (round < 2).then_some("5"))])
                    .unwrap();
            }
            write(&db, &table, &[(round, None)]).unwrap();
            write(&db, &table, &[(0, Some("0"))]).unwrap();
            check_now(&db, &table, &index);
            if round == 1 {
                block_on(db.checkpoint()).unwrap();
            }
            if round == 2 {
                block_on(db.compact()).unwrap();
            }
            let report = db.check().unwrap();
            assert!(report.problems.is_empty(), "{:?}", report.problems);
            db.close().unwrap();
        }
    });
}

/// Values that are in the log only are read before they are written over; a write that is dropped while it
/// waits for one has not happened.
#[test]
fn what_is_not_in_memory_is_read_before_it_is_written_over() {
    with_limit(240, |limit| {
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
                    Ok::<_, Error>(())
                })
                .unwrap();
            }
            drop(index);
            db.close().unwrap();
        }
        // Opened anew, everything is in the log.
        let options = Options::default().workers(2).memory_budget(Some(96 << 20));
        let db = Database::open(directory.path(), options).unwrap();
        let watched = db.clone();
        limit.on_timeout("db", move || format!("{:#?}", watched.stats()));
        let table = block_on(db.open_table("records")).unwrap();
        let index = attach(&db, &table, IndexOptions::default()).unwrap();
        let (records, by) = (table.clone(), index.clone());
        db.run_blocking(async move |tx| {
            let mut dropped = 0;
            for key in (0..400).step_by(40) {
                let value = format!("5 {}", "z".repeat(500));
                // Dropped when it has to wait for the old value, it has not happened.
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
            Err::<(), _>(Error::KeyNotFound)
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
                Err::<(), _>(Error::KeyNotFound)
            });
            assert!(aborted.is_err());
            let open = block_on(db.begin()).unwrap();
            block_on(open.put(&table, &1, "9")).unwrap();
            drop(open);
        }
        assert_eq!(check_now(&db, &table, &index), 3);
    });
}

fn dropped_space(db: &Database) -> u64 {
    let memory = db.stats().memory;
    memory.index_nodes + memory.versions + memory.keys
}

#[test]
fn a_dropped_index_is_gone_and_gives_its_space_back() {
    with_limit(120, |_| {
        let (db, table, index) = in_memory(2, false);
        let empty = dropped_space(&db);
        for key in 0..3000 {
            write(&db, &table, &[(key, Some("1 2 3 4 5"))]).unwrap();
        }
        let indexed = dropped_space(&db);
        let reader = block_on(db.begin()).unwrap();
        drop(reader);
        block_on(db.drop_index(&table, "numbers")).unwrap();
        assert!(block_on(db.indexes()).unwrap().is_empty());
        let by = index.clone();
        let gone = db.run_blocking(async move |tx| scan(tx, &by, ALL, false).await).unwrap_err();
        assert!(matches!(gone, Error::IndexNotFound { .. }), "{gone:?}");
        let again = block_on(db.drop_index(&table, "numbers")).unwrap_err();
        assert!(matches!(again, Error::IndexNotFound { .. }), "{again:?}");
        write(&db, &table, &[(1, Some("panic is nobody's any more"))]).unwrap();
        // Deleted records are reclaimed some turns later.
        let freed = || dropped_space(&db) < empty + (indexed - empty) / 2;
        for _ in 0..1000 {
            if freed() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        assert!(freed(), "{empty}, {indexed}, {}", dropped_space(&db));
        write(&db, &table, &[(1, Some("6 7"))]).unwrap();
        let options = IndexOptions::default().unique(true).version(1);
        let duplicate = attach(&db, &table, options).unwrap_err();
        assert!(matches!(duplicate, Error::DuplicateKey { .. }), "{duplicate:?}");
        assert!(block_on(db.indexes()).unwrap().is_empty(), "nothing is left of it");
        let index = attach(&db, &table, IndexOptions::default().version(1)).unwrap();
        assert_eq!(check_now(&db, &table, &index), 2999 * 5 + 2);
    });
}

#[test]
fn duplicates_are_named_when_a_unique_index_is_created() {
    with_limit(60, |_| {
        let db = Database::in_memory(Options::default().workers(2)).unwrap();
        let table: Records = block_on(db.create_table("records")).unwrap();
        write(&db, &table, &[(1, Some("1")), (2, Some("2 7")), (3, Some("7"))]).unwrap();
        let refused = attach(&db, &table, IndexOptions::default().unique(true)).unwrap_err();
        let Error::DuplicateKey { key, records, .. } = &refused else { panic!("{refused:?}") };
        assert_eq!(key[..], 7_u64.to_be_bytes());
        let names: Vec<_> = records.iter().map(|key| key[7]).collect();
        assert_eq!(names, [2, 3]);
        write(&db, &table, &[(3, Some("8"))]).unwrap();
        let index = attach(&db, &table, IndexOptions::default().unique(true)).unwrap();
        assert_eq!(check_now(&db, &table, &index), 4);
    });
}

/// Who takes a key from a record while the index is built, and finds the key's entry another record's, keeps
/// that entry from being changed: or it could become the first record's again before the key is gone.
#[test]
fn an_entry_of_another_record_is_kept_by_who_loses_the_key() {
    with_limit(60, |_| {
        let db = Database::in_memory(Options::default().workers(2)).unwrap();
        let table: Records = block_on(db.create_table("records")).unwrap();
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

/// Who wrote before an index was listed is waited for: its entries are made once it is over.
#[test]
fn who_is_active_when_an_index_is_created_is_waited_for() {
    with_limit(60, |_| {
        let db = Database::in_memory(Options::default().workers(2)).unwrap();
        let table: Records = block_on(db.create_table("records")).unwrap();
        let writer = block_on(db.begin()).unwrap();
        block_on(writer.put(&table, &1, "1")).unwrap();
        let filling = Arc::new(AtomicBool::new(false));
        let creating = {
            let (db, table, filling) = (db.clone(), table.clone(), filling.clone());
            std::thread::spawn(move || {
                let watch = |_| filling.store(true, Ordering::SeqCst);
                let options = IndexOptions::default();
                block_on(db.index_watched(&table, "numbers", options, extract, watch)).unwrap()
            })
        };
        // Long enough for a creation that does not wait to be told, most of the time.
        std::thread::sleep(std::time::Duration::from_millis(200));
        assert!(!filling.load(Ordering::SeqCst), "the writer is active");
        block_on(writer.commit()).unwrap();
        let index = creating.join().unwrap();
        assert_eq!(check_now(&db, &table, &index), 1);
    });
}

/// Writes of one transaction to one record, made side by side, and beside a scan; in an index that is too
/// large to stay cached, on a worker with other tasks, so that they suspend.
#[test]
fn operations_of_one_transaction_side_by_side_keep_the_index() {
    const MANY: u64 = 80_000;
    with_limit(120, |limit| {
        let (db, table, index) = in_memory(1, false);
        let watched = db.clone();
        limit.on_timeout("db", move || format!("{:#?}", watched.stats()));
        for start in (0..MANY).step_by(1000) {
            let table = table.clone();
            db.run_blocking(async move |tx| {
                for key in start..start + 1000 {
                    tx.insert(&table, &key, &format!("{}", key % 50)).await?;
                }
                Ok::<_, Error>(())
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
                        Ok::<_, Error>(())
                    };
                    db.run_blocking(read).unwrap();
                }
            })
        };
        for round in 0..100_u64 {
            let (table, index) = (table.clone(), index.clone());
            db.run_blocking(async move |tx| {
                let key = round * 797 % MANY;
                let values: Vec<_> = (0..5).map(|n| format!("{} {n}", 100 + n + round)).collect();
                let writing = values.iter().map(|value| tx.put(&table, &key, value));
                let writing = futures_util::future::join_all(writing);
                let scanning = async {
                    let mut scan = tx.scan_by(&index, key % 50..=key % 50)?.limit(100);
                    while let Some((number, _, value)) = scan.next().await? {
                        assert!(keys_of(value).any(|key| key == number), "{number}: {value}");
                    }
                    Ok::<_, Error>(())
                };
                let (written, scanned) = futures_util::future::join(writing, scanning).await;
                written.into_iter().collect::<Result<Vec<_>, _>>()?;
                scanned?;
                let value = tx.get(&table, &key).await?.expect("just put").to_owned();
                // Of the keys that were written, the last value's alone are left.
                for number in (0..5).chain(100 + round..105 + round) {
                    let mut scan = tx.entries_by(&index, number..=number)?.rev();
                    let mut found = false;
                    while let Some((_, record)) = scan.next().await? {
                        found |= record == key;
                    }
                    assert_eq!(found, keys_of(&value).any(|key| key == number), "{number}");
                }
                Ok::<_, Error>(())
            })
            .unwrap();
        }
        stop.store(true, Ordering::Relaxed);
        reader.join().unwrap();
        let entries = check_now(&db, &table, &index);
        // Each of the records that were written has two keys now.
        assert_eq!(entries as u64, MANY + 100);
    });
}

/// What comes after a savepoint is taken back in an index too, and a scan that is under way goes on with what
/// is there then.
#[test]
fn a_rollback_to_a_savepoint_takes_entries_back() {
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
                tx.rollback_to(&savepoint)?;
                let mut rest = Vec::new();
                while let Some((number, key, value)) = scan.next().await? {
                    rest.push((number, key, value.to_owned()));
                }
                let all = [(3, 3, "3"), (4, 2, "4"), (11, 1, "1 11")];
                assert_eq!(rest, all.map(|(number, key, value)| (number, key, value.to_owned())));
                assert_eq!(check(tx, &records, &by).await?, 4);
                Ok::<_, Error>(())
            })
            .unwrap();
            assert_eq!(check_now(&db, &table, &index), 4);
        }
    });
}

/// A transaction that began before the index was there does not read it, and is run again.
#[test]
fn who_began_before_an_index_was_built_does_not_read_it() {
    with_limit(60, |_| {
        let db = Database::in_memory(Options::default().workers(2)).unwrap();
        let table: Records = block_on(db.create_table("records")).unwrap();
        write(&db, &table, &[(1, Some("1"))]).unwrap();
        let progress = Arc::new(AtomicU64::new(0));
        // It waits for transactions that are active: so this one begins while it is built.
        let old = std::cell::RefCell::new(None);
        let index = {
            let watch = |told: braiddb::IndexProgress| {
                assert!(told.records <= told.total);
                progress.store(1 + told.records, Ordering::Relaxed);
                old.borrow_mut().get_or_insert_with(|| block_on(db.begin()).unwrap());
            };
            let options = IndexOptions::default();
            block_on(db.index_watched(&table, "numbers", options, extract, watch)).unwrap()
        };
        assert_eq!(progress.load(Ordering::Relaxed), 2);
        let old = old.into_inner().expect("progress was told");
        let by = index.clone();
        let refused = block_on(old.step(async move |tx| scan(tx, &by, ALL, false).await));
        assert!(matches!(refused, Err(Error::Conflict { .. })), "{refused:?}");
        assert_eq!(check_now(&db, &table, &index), 1);
    });
}

const RECORDS: u64 = 40;

/// A value with keys that few others have too.
fn random_value(random: &mut fastrand::Rng) -> String {
    let count = random.usize(0..4);
    (0..count).map(|_| format!("{} ", random.u64(0..60))).collect()
}

/// A value for one record with keys that the others have almost never.
fn own_value(random: &mut fastrand::Rng, key: u64, records: u64) -> String {
    let owner = if random.u32(0..3000) == 0 { random.u64(0..records) } else { key };
    (0..3).filter(|_| random.bool()).map(|n| format!("{} ", owner * 3 + n)).collect()
}

/// Clients that write records until they are told to stop; what they committed, or lost. The values of
/// records, of so many, have keys of their own, or share them.
fn writers(
    db: &Database,
    table: &Records,
    stop: &Arc<AtomicBool>,
    count: u64,
    own: Option<u64>,
) -> Vec<std::thread::JoinHandle<(u64, u64)>> {
    let client = |seed: u64| {
        let (db, table, stop) = (db.clone(), table.clone(), stop.clone());
        std::thread::spawn(move || {
            let (mut random, mut counts) = (fastrand::Rng::with_seed(seed), (0, 0));
            while !stop.load(Ordering::Relaxed) {
                let writes: Vec<_> = (0..random.usize(1..4))
                    .map(|_| {
                        let key = random.u64(0..own.unwrap_or(RECORDS));
                        let value = random.bool().then(|| match own {
                            Some(records) => own_value(&mut random, key, records),
                            None => random_value(&mut random),
                        });
                        (key, value)
                    })
                    .collect();
                let give_up = random.u32(0..8) == 0;
                let isolation = [Isolation::Serializable, Isolation::Snapshot][random.usize(0..2)];
                let options = RunOptions::default().isolation(isolation);
                let table = table.clone();
                let done = block_on(db.run_with(options, async move |tx: &Transaction| {
                    for (key, value) in &writes {
                        match value {
                            Some(value) => tx.put(&table, key, value).await?,
                            None => _ = tx.delete(&table, key).await?,
                        }
                    }
                    if give_up { Err(Error::KeyNotFound) } else { Ok(()) }
                }));
                match done {
                    Ok(_) => counts.0 += 1,
                    Err(Error::KeyNotFound | Error::UniqueViolation { .. }) => counts.1 += 1,
                    Err(error) if error.is_retryable() => counts.1 += 1,
                    Err(other) => panic!("{other:?}"),
                }
            }
            counts
        })
    };
    (0..count).map(client).collect()
}

fn stress(limit: &Limit, unique: bool, seconds: u64) {
    let (db, table, index) = in_memory(3, unique);
    let watched = db.clone();
    limit.on_timeout("db", move || format!("{:#?}", watched.stats()));
    let stop = Arc::new(AtomicBool::new(false));
    let writers = writers(&db, &table, &stop, 4, None);
    let end = std::time::Instant::now() + std::time::Duration::from_secs(seconds);
    let mut checks = 0;
    while checks < 50 || std::time::Instant::now() < end {
        check_now(&db, &table, &index);
        checks += 1;
    }
    stop.store(true, Ordering::Relaxed);
    let counts: Vec<_> = writers.into_iter().map(|writer| writer.join().unwrap()).collect();
    let committed: u64 = counts.iter().map(|counts| counts.0).sum();
    assert!(committed > 100, "{counts:?}");
    check_now(&db, &table, &index);
}

/// Keys go from record to record and back beside scans; every scan sees exactly its snapshot.
#[test]
fn an_index_is_what_its_table_is_beside_writers() {
    with_limit(240, |limit| stress(limit, false, 4));
}

#[test]
fn a_unique_index_is_what_its_table_is_beside_writers() {
    with_limit(240, |limit| stress(limit, true, 4));
}

/// Created and dropped again and again while others write: each time it is exactly what the table is.
fn create_beside_writers(limit: &Limit, unique: bool, records: u64) {
    let db = Database::in_memory(Options::default().workers(3)).unwrap();
    let table: Records = block_on(db.create_table("records")).unwrap();
    let watched = db.clone();
    limit.on_timeout("db", move || format!("{:#?}", watched.stats()));
    for key in 0..records {
        write(&db, &table, &[(key, Some(&format!("{}", 3 * key)))]).unwrap();
    }
    let stop = Arc::new(AtomicBool::new(false));
    let writers = writers(&db, &table, &stop, 4, unique.then_some(records));
    let (mut created, mut duplicates) = (0, 0);
    while created < 40 {
        match attach(&db, &table, IndexOptions::default().unique(unique)) {
            Ok(index) => {
                created += 1;
                for _ in 0..5 {
                    check_now(&db, &table, &index);
                }
                block_on(db.drop_index(&table, "numbers")).unwrap();
            }
            Err(Error::DuplicateKey { .. }) if unique => duplicates += 1,
            Err(other) => panic!("{other:?}"),
        }
        assert!(block_on(db.indexes()).unwrap().is_empty());
    }
    stop.store(true, Ordering::Relaxed);
    let counts: Vec<_> = writers.into_iter().map(|writer| writer.join().unwrap()).collect();
    assert!(counts.iter().all(|counts| counts.0 > 0), "{counts:?}");
    println!("{created} created, {duplicates} with duplicates; committed and not: {counts:?}");
}

#[test]
fn an_index_is_created_and_dropped_beside_writers() {
    with_limit(240, |limit| create_beside_writers(limit, false, RECORDS));
}

#[test]
fn a_unique_index_is_created_beside_writers() {
    with_limit(240, |limit| create_beside_writers(limit, true, 300));
}

/// A model of what was committed, by keys.
#[test]
fn an_index_follows_a_model() {
    with_limit(120, |_| {
        let (db, table, index) = in_memory(1, false);
        let mut model = BTreeMap::<u64, String>::new();
        let mut random = fastrand::Rng::with_seed(11);
        for _ in 0..2000 {
            let key = random.u64(0..RECORDS);
            if random.u32(0..3) == 0 {
                write(&db, &table, &[(key, None)]).unwrap();
                model.remove(&key);
            } else {
                let value = random_value(&mut random);
                write(&db, &table, &[(key, Some(&value))]).unwrap();
                model.insert(key, value);
            }
            let (low, high) = (random.u64(0..60), random.u64(0..60));
            let range = (Bound::Included(low.min(high)), Bound::Excluded(low.max(high)));
            let reverse = random.bool();
            let by = index.clone();
            let found =
                db.run_blocking(async move |tx| scan(tx, &by, range, reverse).await).unwrap();
            let expected: BTreeSet<_> = model
                .iter()
                .flat_map(|(key, value)| keys_of(value).map(|n| (n, *key, value.clone())))
                .filter(|(number, ..)| (low.min(high)..low.max(high)).contains(number))
                .collect();
            let mut expected: Vec<_> = expected.into_iter().collect();
            if reverse {
                expected.reverse();
            }
            assert_eq!(found, expected);
        }
    });
}
