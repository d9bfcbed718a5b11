//! Lookups through an index, and their certification.

use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use braiddb::{
    Database, Error, Index, IndexError, IndexKeys, IndexOptions, Options, Table, Transaction,
};
use pollster::block_on;

use super::numbers::{
    ALL, Range, Records, check_now, create_table, extract, in_memory, scan, write,
};
use crate::common::{Watched, with_limit};

#[test]
fn an_index_finds_records_by_key() {
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
        // Two keys of the first, one each of four, and one removed; unchanged keys are not counted.
        assert_eq!(db.stats().index_entries, 2 + 1 + 1 + 2 + 1);
        write(&db, &table, &[(1, None), (4, None)]).unwrap();
        assert_eq!(of(ALL, false), [(20, 2), (40, 5)]);
        let refused =
            db.run_blocking(async move |tx| Ok(tx.get_by(&index, &20).await?.map(|(key, _)| key)));
        assert!(matches!(refused, Err(Error::Index(error)) if matches!(&*error,
                IndexError::NotUnique { index, .. } if index == "numbers")));
    });
}

#[test]
fn keys_of_text_are_found_by_prefix_and_in_order() {
    with_limit(60, |_| {
        let db = Database::in_memory(Options::default().workers(1)).unwrap().watched();
        let table: Table<str, str> = create_table(&db, "words");
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
            Ok(())
        })
        .unwrap();
    });
}

/// A transaction's reads of an index are certified. It fails if and only if a record enters the
/// range, leaves it, or changes within it.
#[test]
fn phantoms_in_an_index_are_detected() {
    type Change = &'static [(u64, Option<&'static str>)];
    // The changes; then true if a scan of the records, or of the entries, from 20 to 29 must fail.
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
                        return Ok(scan(tx, &by, range, false).await?.len());
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

/// A transaction that began before the index existed does not read it, and is retried.
#[test]
fn transactions_that_began_before_an_index_was_built_do_not_read_it() {
    with_limit(60, |_| {
        let db = Database::in_memory(Options::default().workers(2)).unwrap().watched();
        let table: Records = create_table(&db, "records");
        write(&db, &table, &[(1, Some("1"))]).unwrap();
        let progress = Arc::new(AtomicU64::new(0));
        // The creation waits for active transactions, so this one begins while the index is built.
        let old = std::cell::RefCell::new(None);
        let index = {
            let watch = |told: braiddb::indexes::IndexProgress| {
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

/// Entries are read further ahead than records.
#[test]
fn an_index_scan_checks_entries_that_the_transaction_changed_after_they_were_read() {
    with_limit(60, |_| {
        let (db, table, index) = in_memory(1, false);
        let values: Vec<_> = (0..64_u64).map(|key| (key, key.to_string())).collect();
        let writes: Vec<_> = values.iter().map(|(key, value)| (*key, Some(&**value))).collect();
        write(&db, &table, &writes).unwrap();
        let found = db.run_blocking(async move |tx| {
            let (mut scan, mut found) = (tx.scan_by(&index, ..)?, Vec::new());
            while let Some((number, key, value)) = scan.next().await? {
                assert_eq!(number.to_string(), value, "of record {key}");
                found.push(key);
                if found.len() == 1 {
                    tx.put(&table, &50, "1000").await?;
                }
            }
            Ok::<_, Error>(found)
        });
        // The scan may find the new entry of the changed record, or may have read past it.
        let others = |key: &u64| *key != 50;
        let found: Vec<_> = found.unwrap().into_iter().filter(others).collect();
        assert_eq!(found, (0..64).filter(others).collect::<Vec<_>>());
    });
}
