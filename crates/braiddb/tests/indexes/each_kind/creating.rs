//! Creation, reopening and drop of indexes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use braiddb::indexes::IndexStage;
use braiddb::{BusyWith, Database, Error, IndexError, IndexOptions, Options, Transaction};
use pollster::block_on;

use super::numbers::{
    ALL, Records, attach, check_now, create_table, extract, in_memory, open, scan, write,
};
use crate::common::{Watched, with_limit};

#[test]
fn an_index_is_usable_after_reopening_once_it_is_attached() {
    with_limit(120, |_| {
        let directory = tempfile::tempdir().unwrap();
        for round in 0..4_u64 {
            let (db, table) = open(directory.path());
            let options = IndexOptions::default().version(3);
            if round > 0 {
                let rows = block_on(db.indexes()).unwrap();
                assert_eq!((rows.len(), rows[0].stage), (1, IndexStage::Ready));
                assert_eq!((&*rows[0].table, &*rows[0].name), ("records", "numbers"));
                // A put and a deletion.
                for value in [Some("1"), None] {
                    let detached = write(&db, &table, &[(0, value)]).unwrap_err();
                    assert!(
                        matches!(&detached, Error::Index(error) if matches!(&**error,
                            IndexError::Detached { table, index } if table == "records" && index == "numbers")),
                        "{detached:?}"
                    );
                }
                for wrong in [options.version(4), options.unique(true)] {
                    let refused = attach(&db, &table, wrong).unwrap_err();
                    assert!(
                        matches!(&refused, Error::Index(error) if matches!(**error, IndexError::Mismatch { .. })),
                        "{refused:?}"
                    );
                }
                let other = block_on(db.index(&table, "numbers", options, |_, keys| {
                    keys.push("a key of another type");
                }));
                assert!(
                    matches!(&other, Err(Error::Index(error)) if matches!(**error, IndexError::Mismatch { .. }))
                );
                // Reading needs no index function.
                let records = table.clone();
                let read = async move |tx: &Transaction| Ok(tx.get(&records, &0).await?.is_some());
                assert!(db.run_blocking(read).unwrap());
            }
            let index = attach(&db, &table, options).unwrap();
            let before = check_now(&db, &table, &index);
            assert_eq!(before == 0, round == 0);
            let value = |key: u64| format!("{} {}", key % 7, key + round);
            for keys in (0..500).collect::<Vec<_>>().chunks(20) {
                let values: Vec<_> = keys.iter().map(|key| value(*key)).collect();
                let own = keys.iter().zip(&values).map(|(key, value)| (*key, Some(&**value)));
                let common = keys.iter().map(|key| (key + 500, (round < 2).then_some("5")));
                write(&db, &table, &own.chain(common).collect::<Vec<_>>()).unwrap();
            }
            write(&db, &table, &[(round, None)]).unwrap();
            write(&db, &table, &[(0, Some("0"))]).unwrap();
            check_now(&db, &table, &index);
            match round {
                1 => drop(block_on(db.checkpoint()).unwrap()),
                2 => drop(block_on(db.compact()).unwrap()),
                _ => {}
            }
            let report = db.check().unwrap();
            assert!(report.problems.is_empty(), "{:?}", report.problems);
            db.close().unwrap();
        }
    });
}

fn dropped_space(db: &Database) -> u64 {
    let memory = db.stats().memory;
    memory.index_nodes + memory.versions + memory.keys + memory.pages
}

#[test]
fn a_dropped_index_frees_its_space() {
    with_limit(120, |_| {
        let (db, table, index) = in_memory(2, false);
        let empty = dropped_space(&db);
        for key in 0..1500 {
            write(&db, &table, &[(key, Some("1 2 3 4 5"))]).unwrap();
        }
        let indexed = dropped_space(&db);
        let reader = block_on(db.begin()).unwrap();
        drop(reader);
        block_on(db.drop_index(&table, "numbers")).unwrap();
        assert!(block_on(db.indexes()).unwrap().is_empty());
        let by = index.clone();
        let gone = db.run_blocking(async move |tx| scan(tx, &by, ALL, false).await).unwrap_err();
        assert!(
            matches!(&gone, Error::Index(error) if matches!(**error, IndexError::NotFound { .. })),
            "{gone:?}"
        );
        let again = block_on(db.drop_index(&table, "numbers")).unwrap_err();
        assert!(
            matches!(&again, Error::Index(error) if matches!(**error, IndexError::NotFound { .. })),
            "{again:?}"
        );
        write(&db, &table, &[(1, Some("panic is nobody's any more"))]).unwrap();
        // Deleted records are reclaimed some turns later.
        let freed = || dropped_space(&db) < empty + (indexed - empty) / 2;
        for _ in 0..1000 {
            if freed() || super::PAGED {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        assert!(freed() || super::PAGED, "{empty}, {indexed}, {}", dropped_space(&db));
        write(&db, &table, &[(1, Some("6 7"))]).unwrap();
        if super::PAGED {
            // The memory of pages is kept for later pages.
            for round in 0..8 {
                attach(&db, &table, IndexOptions::default().version(round)).unwrap();
                block_on(db.drop_index(&table, "numbers")).unwrap();
            }
            assert!(dropped_space(&db) < 2 * indexed, "{indexed}, {}", dropped_space(&db));
        }
        let options = IndexOptions::default().unique(true).version(1);
        let duplicate = attach(&db, &table, options).unwrap_err();
        assert!(
            matches!(&duplicate, Error::Index(error) if matches!(**error, IndexError::DuplicateKey { .. })),
            "{duplicate:?}"
        );
        assert!(block_on(db.indexes()).unwrap().is_empty(), "nothing is left of it");
        let index = attach(&db, &table, IndexOptions::default().version(1)).unwrap();
        assert_eq!(check_now(&db, &table, &index), 1499 * 5 + 2);
    });
}

/// An open transaction keeps the entries of a dropped index, and prevents no change of its table.
#[test]
fn a_table_is_written_and_renamed_while_its_index_is_dropped() {
    with_limit(120, |_| {
        for is_attached in [false, true] {
            let directory = tempfile::tempdir().unwrap();
            let (db, table) = open(directory.path());
            attach(&db, &table, IndexOptions::default()).unwrap();
            write(&db, &table, &[(0, Some("1"))]).unwrap();
            db.close().unwrap();
            let (db, table) = open(directory.path());
            if is_attached {
                attach(&db, &table, IndexOptions::default()).unwrap();
            }
            let reader = block_on(db.begin()).unwrap();
            std::thread::scope(|scope| {
                let dropping = scope.spawn(|| block_on(db.drop_index(&table, "numbers")));
                while block_on(db.indexes()).unwrap()[0].stage != IndexStage::Dropping {
                    std::thread::yield_now();
                }
                until(|| write(&db, &table, &[(1, Some("2"))]));
                until(|| block_on(db.rename_table("records", "other")));
                let removed = scope.spawn(|| block_on(db.drop_table("other")));
                while !block_on(db.tables()).unwrap().is_empty() {
                    std::thread::yield_now();
                }
                assert!(!dropping.is_finished() && !removed.is_finished());
                drop(reader);
                dropping.join().unwrap().unwrap();
                removed.join().unwrap().unwrap();
            });
            assert!(block_on(db.indexes()).unwrap().is_empty());
            db.close().unwrap();
        }
    });
}

/// Repeats a call until the drop of the index permits it.
fn until(mut call: impl FnMut() -> Result<(), Error>) {
    loop {
        match call() {
            Err(Error::Busy(BusyWith::TableChange { .. })) => std::thread::yield_now(),
            Err(Error::Index(error)) if matches!(*error, IndexError::Detached { .. }) => {
                std::thread::yield_now();
            }
            called => return called.unwrap(),
        }
    }
}

/// The creation waits for transactions that wrote before the index was listed, and creates their
/// entries afterwards.
#[test]
fn creating_an_index_waits_for_active_transactions() {
    with_limit(60, |_| {
        let db = Database::in_memory(Options::default().workers(2)).unwrap().watched();
        let table: Records = create_table(&db, "records");
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
        // Usually long enough for a creation without the wait to complete.
        std::thread::sleep(std::time::Duration::from_millis(200));
        assert!(!filling.load(Ordering::SeqCst), "the writer is active");
        block_on(writer.commit()).unwrap();
        let index = creating.join().unwrap();
        assert_eq!(check_now(&db, &table, &index), 1);
    });
}
