//! Dropping, renaming and clearing tables while other transactions use them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::common::{Watched, with_limit};
use braiddb::{
    Database, Error, Index, IndexError, IndexOptions, Misuse, Options, Table, TableOptions,
};
use pollster::block_on;
use tempfile::TempDir;

type Numbers = Table<u64, u64>;
type Halves = Index<u64, u64, u64>;

/// A limit far above the duration of any test, even on a loaded machine.
const LIMIT_SECONDS: u64 = 300;
const RECORDS: u64 = 3000;

fn open() -> (TempDir, Database) {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), Options::default().workers(2)).unwrap().watched();
    (dir, db)
}

fn fill(db: &Database, table: &Numbers, records: u64) {
    let table = table.clone();
    db.run_blocking(async move |tx| {
        for key in 0..records {
            tx.put(&table, &key, &(key * 2)).await?;
        }
        Ok(())
    })
    .unwrap();
}

fn halves(db: &Database, table: &Numbers) -> Halves {
    let options = IndexOptions::default();
    block_on(db.index(table, "halves", options, |value, keys| keys.push(&(value / 2)))).unwrap()
}

fn count(db: &Database, table: &Numbers) -> Result<u64, Error> {
    let table = table.clone();
    db.run_blocking(async move |tx| tx.count(&table, ..).await)
}

/// Waits until this number of deleted records is reclaimed, bounded by transactions, not by time.
fn wait_for_reclaimed(db: &Database, least: u64) {
    while db.stats().records_reclaimed < least {
        db.run_blocking(async |tx| tx.tables().await).unwrap();
        std::thread::yield_now();
    }
}

#[test]
fn a_dropped_table_is_removed_and_its_name_is_free() {
    with_limit(LIMIT_SECONDS, |_| {
        let (_dir, db) = open();
        let table: Numbers = block_on(db.create_table("numbers")).unwrap();
        let index = halves(&db, &table);
        fill(&db, &table, RECORDS);
        let reclaimed = db.stats().records_reclaimed;
        block_on(db.drop_table("numbers")).unwrap();
        assert!(matches!(block_on(db.drop_table("numbers")), Err(Error::TableNotFound(_))));
        assert_eq!(db.run_blocking(async |tx| tx.tables().await).unwrap(), []);
        assert_eq!(block_on(db.indexes()).unwrap(), []);
        assert!(matches!(count(&db, &table), Err(Error::TableNotFound(_))));
        let written = block_on(db.put(&table, &1, &1));
        assert!(matches!(written, Err(Error::TableNotFound(_))), "{written:?}");
        let read =
            db.run_blocking(async move |tx| Ok(tx.scan_by(&index, ..)?.next().await?.is_some()));
        assert!(
            match &read {
                Err(Error::Index(error)) => matches!(**error, IndexError::NotFound { .. }),
                read => matches!(read, Err(Error::TableNotFound(_))),
            },
            "{read:?}"
        );
        let created = block_on(db.index(&table, "other", IndexOptions::default(), |_, _| {}));
        let _: &Result<Halves, Error> = &created;
        assert!(matches!(created, Err(Error::TableNotFound(_))), "{created:?}");

        let again: Numbers = block_on(db.create_table("numbers")).unwrap();
        assert_eq!(count(&db, &again).unwrap(), 0);
        fill(&db, &again, 3);
        assert_eq!(count(&db, &again).unwrap(), 3);
        assert!(matches!(count(&db, &table), Err(Error::TableNotFound(_))));
        // Records and entries.
        wait_for_reclaimed(&db, reclaimed + 2 * RECORDS);
        let check = db.check().unwrap();
        assert!(check.problems.is_empty(), "{:?}", check.problems);
    });
}

#[test]
fn earlier_transactions_continue_to_use_a_dropped_table() {
    with_limit(LIMIT_SECONDS, |_| {
        let (_dir, db) = open();
        let table: Numbers = block_on(db.create_table("numbers")).unwrap();
        fill(&db, &table, RECORDS);
        let open = block_on(db.begin()).unwrap();
        assert_eq!(block_on(open.get(&table, &7)).unwrap(), Some(14));
        let ended = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let dropping = scope.spawn(|| {
                block_on(db.drop_table("numbers")).unwrap();
                // Relaxed: read after `drop_table` has waited for the transaction, or after it was
                // joined.
                assert!(ended.load(Ordering::Relaxed), "a transaction goes on with the table");
            });
            while block_on(db.get(&table, &7)).is_ok() {
                std::thread::yield_now();
            }
            assert_eq!(block_on(open.get(&table, &7)).unwrap(), Some(14));
            block_on(open.put(&table, &7, &1)).unwrap();
            let records = table.clone();
            let counted = block_on(open.step(async move |tx| tx.count(&records, ..).await));
            assert_eq!(counted.unwrap(), RECORDS);
            // Relaxed: see above.
            ended.store(true, Ordering::Relaxed);
            block_on(open.commit()).unwrap();
            dropping.join().unwrap();
        });
        assert!(matches!(count(&db, &table), Err(Error::TableNotFound(_))));
        wait_for_reclaimed(&db, RECORDS);
    });
}

#[test]
fn reopening_frees_the_rest_of_a_dropped_table() {
    with_limit(LIMIT_SECONDS, |_| {
        let dir = tempfile::tempdir().unwrap();
        let options = Options::default().workers(2);
        let id = {
            let db = Database::open(dir.path(), options.clone()).unwrap().watched();
            let table: Numbers = block_on(db.create_table("numbers")).unwrap();
            halves(&db, &table);
            fill(&db, &table, RECORDS);
            let id = db.run_blocking(async |tx| tx.tables().await).unwrap()[0].id;
            // The open transaction keeps the records from being deleted.
            let open = block_on(db.begin()).unwrap();
            block_on(open.get(&table, &1)).unwrap();
            std::thread::scope(|scope| {
                scope.spawn(|| block_on(db.drop_table("numbers")));
                while block_on(db.get(&table, &7)).is_ok() {
                    std::thread::yield_now();
                }
                db.close().unwrap();
            });
            id
        };
        for opening in 0..2 {
            let db = Database::open(dir.path(), options.clone()).unwrap().watched();
            assert_eq!(db.run_blocking(async |tx| tx.tables().await).unwrap(), []);
            while !block_on(db.indexes()).unwrap().is_empty() {
                std::thread::yield_now();
            }
            if opening == 0 {
                wait_for_reclaimed(&db, 2 * RECORDS);
            }
            let other: Numbers = block_on(db.open_or_create_table("others")).unwrap();
            assert_eq!(count(&db, &other).unwrap(), 0);
            let tables = db.run_blocking(async |tx| tx.tables().await).unwrap();
            assert_ne!(tables[0].id, id, "a number is one table's for ever");
            let check = db.check().unwrap();
            assert!(check.problems.is_empty(), "{:?}", check.problems);
            block_on(db.drop_table("others")).unwrap();
            db.close().unwrap();
        }
    });
}

#[test]
fn tables_in_use_can_be_dropped() {
    const ROUNDS: u64 = 25;
    with_limit(LIMIT_SECONDS, |_| {
        let (_dir, db) = open();
        let (over, refused, written) =
            (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
        // A client must have used the table before each drop.
        let used = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for seed in 0..3 {
                let (db, over, refused, written, used) = (&db, &over, &refused, &written, &used);
                scope.spawn(move || {
                    let mut random = fastrand::Rng::with_seed(seed);
                    // Relaxed: counters, and a stop flag whose delay does not matter.
                    while !over.load(Ordering::Relaxed) {
                        let Ok(table) = block_on(db.open_table::<u64, u64>("numbers")) else {
                            continue;
                        };
                        for _ in 0..random.u32(1..40) {
                            let key = random.u64(0..500);
                            match block_on(db.put(&table, &key, &key)) {
                                Ok(_) => _ = written.fetch_add(1, Ordering::Relaxed),
                                Err(Error::TableNotFound(_)) => {
                                    refused.fetch_add(1, Ordering::Relaxed);
                                    break;
                                }
                                Err(error) => panic!("{error}"),
                            }
                            used.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                });
            }
            for round in 0..ROUNDS {
                let table: Numbers = block_on(db.create_table("numbers")).unwrap();
                if round % 2 == 0 {
                    halves(&db, &table);
                }
                fill(&db, &table, 300);
                let before = used.load(Ordering::Relaxed);
                while used.load(Ordering::Relaxed) < before + 10 {
                    std::thread::yield_now();
                }
                block_on(db.drop_table("numbers")).unwrap();
                assert!(matches!(count(&db, &table), Err(Error::TableNotFound(_))));
            }
            over.store(true, Ordering::Relaxed);
        });
        assert!(written.load(Ordering::Relaxed) > 0 && refused.load(Ordering::Relaxed) > 0);
        assert_eq!(db.run_blocking(async |tx| tx.tables().await).unwrap(), []);
        wait_for_reclaimed(&db, ROUNDS * 300);
        // Nothing of any of them is left, except the catalog's own memory.
        let other: Numbers = block_on(db.create_table("others")).unwrap();
        assert_eq!(count(&db, &other).unwrap(), 0);
        let check = db.check().unwrap();
        assert!(check.problems.is_empty(), "{:?}", check.problems);
    });
}

#[test]
fn a_renamed_table_keeps_its_records_its_indexes_and_its_handles() {
    with_limit(LIMIT_SECONDS, |_| {
        let dir = tempfile::tempdir().unwrap();
        let options = Options::default().workers(1);
        let db = Database::open(dir.path(), options.clone()).unwrap().watched();
        let table: Numbers = block_on(db.create_table("numbers")).unwrap();
        let index = halves(&db, &table);
        fill(&db, &table, 10);
        let _: Numbers = block_on(db.create_table("taken")).unwrap();
        let refused = block_on(db.rename_table("numbers", "taken"));
        assert!(matches!(refused, Err(Error::TableExists(name)) if name == "taken"));
        let refused = block_on(db.rename_table("missing", "free"));
        assert!(matches!(refused, Err(Error::TableNotFound(missing)) if missing.name == "missing"));
        let refused = block_on(db.rename_table("numbers", "braid.numbers"));
        assert!(matches!(refused, Err(Error::Misuse(Misuse::TableName(_)))));
        block_on(db.rename_table("numbers", "numbers")).unwrap();
        block_on(db.rename_table("numbers", "figures")).unwrap();

        assert_eq!(count(&db, &table).unwrap(), 10);
        let found = db.run_blocking(async move |tx| tx.get_by(&index, &3).await);
        assert!(found.is_err(), "the index is not unique, so it finds no single record");
        let names = |db: &Database| -> Vec<String> {
            let tables = db.run_blocking(async |tx| tx.tables().await).unwrap();
            tables.into_iter().map(|table| table.name).collect()
        };
        assert_eq!(names(&db), ["figures", "taken"]);
        assert_eq!(block_on(db.indexes()).unwrap()[0].table, "figures");
        let missing = block_on(db.open_table::<u64, u64>("numbers"));
        assert!(matches!(missing, Err(Error::TableNotFound(_))));
        db.close().unwrap();
        drop((table, db));

        let db = Database::open(dir.path(), options).unwrap().watched();
        assert_eq!(names(&db), ["figures", "taken"]);
        let table: Numbers = block_on(db.open_table("figures")).unwrap();
        let index = halves(&db, &table);
        let found = db.run_blocking(async move |tx| {
            let mut scan = tx.scan_by(&index, 3..=3)?;
            scan.next().await
        });
        assert_eq!(found.unwrap(), Some((3, 3, 6)));
        db.close().unwrap();
    });
}

#[test]
fn a_cleared_table_is_empty_and_usable() {
    with_limit(LIMIT_SECONDS, |_| {
        let (_dir, db) = open();
        let table: Numbers = block_on(db.create_table("numbers")).unwrap();
        assert_eq!(block_on(db.clear(&table)).unwrap(), 0);
        let index = halves(&db, &table);
        // One deletion transaction deletes 1024 records.
        for records in [1, 1023, 1024, 1025, RECORDS] {
            fill(&db, &table, records);
            assert_eq!(block_on(db.clear(&table)).unwrap(), records);
            assert_eq!(count(&db, &table).unwrap(), 0);
        }
        block_on(db.put(&table, &5, &10)).unwrap();
        let found = db.run_blocking(async move |tx| {
            let mut scan = tx.entries_by(&index, ..)?;
            let mut found = Vec::new();
            while let Some(entry) = scan.next().await? {
                found.push(entry);
            }
            Ok(found)
        });
        assert_eq!(found.unwrap(), [(5, 5)]);
    });
}

#[test]
fn paged_tables_are_dropped_renamed_and_cleared() {
    with_limit(LIMIT_SECONDS, |_| {
        let db = Database::in_memory(Options::default().workers(2)).unwrap().watched();
        for round in 0..5 {
            let table: Numbers = db
                .run_blocking(async |tx| {
                    tx.create_table_with("numbers", TableOptions::default().paged()).await
                })
                .unwrap();
            fill(&db, &table, RECORDS);
            assert_eq!(block_on(db.clear(&table)).unwrap(), RECORDS, "round {round}");
            assert_eq!(count(&db, &table).unwrap(), 0);
            fill(&db, &table, RECORDS);
            block_on(db.rename_table("numbers", "figures")).unwrap();
            assert_eq!(count(&db, &table).unwrap(), RECORDS);
            let open = block_on(db.begin()).unwrap();
            assert_eq!(block_on(open.get(&table, &7)).unwrap(), Some(14));
            std::thread::scope(|scope| {
                let dropping = scope.spawn(|| block_on(db.drop_table("figures")).unwrap());
                while block_on(db.get(&table, &7)).is_ok() {
                    std::thread::yield_now();
                }
                block_on(open.put(&table, &7, &1)).unwrap();
                block_on(open.commit()).unwrap();
                dropping.join().unwrap();
            });
            assert!(matches!(count(&db, &table), Err(Error::TableNotFound(_))));
            assert_eq!(db.run_blocking(async |tx| tx.tables().await).unwrap(), []);
        }
    });
}
