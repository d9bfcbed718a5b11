//! Staged tables: tables that are filled before they are published.

use std::cell::Cell;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::common::{Watched, with_limit};
use braiddb::{
    Database, Error, IndexKeys, IndexOptions, Misuse, Options, StagedTable, Table, TableOptions,
    Transaction, Tuning,
};
use pollster::block_on;

type Numbers = Table<u64, u64>;

/// A limit far above the duration of any test, even on a loaded machine.
const LIMIT_SECONDS: u64 = 300;
const RECORDS: u64 = 3000;
const AT_ONCE: u64 = 500;

fn open(directory: &std::path::Path) -> Database {
    Database::open(directory, Options::default().workers(2)).unwrap().watched()
}

fn stage(db: &Database, paged: bool) -> StagedTable<u64, u64> {
    let options = TableOptions::default();
    let options = if paged { options.paged() } else { options };
    let staged = block_on(db.stage_table_with::<u64, u64>("numbers", options)).unwrap();
    for from in (0..RECORDS).step_by(AT_ONCE as usize) {
        let table = staged.table().clone();
        db.run_blocking(async move |tx| {
            for key in from..from + AT_ONCE {
                tx.insert(&table, &key, &(key * 2)).await?;
            }
            Ok(())
        })
        .unwrap();
    }
    staged
}

fn count<V: braiddb::Value + ?Sized>(db: &Database, table: &Table<u64, V>) -> Result<u64, Error> {
    let table = table.clone();
    db.run_blocking(async move |tx| tx.count(&table, ..).await)
}

fn names(db: &Database) -> Vec<String> {
    block_on(db.tables()).unwrap().into_iter().map(|table| table.name).collect()
}

#[test]
fn a_staged_table_is_visible_only_after_publication() {
    for paged in [false, true] {
        of_kind_a_staged_table_is_visible_only_after_publication(paged);
    }
}

fn of_kind_a_staged_table_is_visible_only_after_publication(paged: bool) {
    with_limit(LIMIT_SECONDS, move |_| {
        let dir = tempfile::tempdir().unwrap();
        let db = open(dir.path());
        let staged = stage(&db, paged);
        assert_eq!(count(&db, staged.table()).unwrap(), RECORDS);
        assert_eq!(names(&db), [""; 0]);
        let opened = block_on(db.open_table::<u64, u64>("numbers"));
        assert!(matches!(opened, Err(Error::TableNotFound(_))), "{opened:?}");
        let before = block_on(db.begin()).unwrap();
        let seen = block_on(before.step(async |tx| tx.tables().await)).unwrap();
        assert_eq!(seen, []);

        let table = block_on(staged.publish()).unwrap();
        let again = block_on(staged.publish());
        assert!(matches!(again, Err(Error::TableExists(_))), "{again:?}");
        block_on(staged.discard()).unwrap();
        assert_eq!(names(&db), ["numbers"]);
        assert_eq!(count(&db, &table).unwrap(), RECORDS);
        let same: Numbers = block_on(db.open_table("numbers")).unwrap();
        assert_eq!(block_on(db.get(&same, &7)).unwrap(), Some(14));
        let encoded = same.encoded();
        let bytes = block_on(db.get(&encoded, &7_u64.to_be_bytes()[..])).unwrap();
        assert_eq!(bytes, Some(14_u64.to_le_bytes().to_vec()));
        // Not visible in an older snapshot.
        assert_eq!(block_on(before.step(async |tx| tx.tables().await)).unwrap(), []);
        drop(before);
        db.close().unwrap();

        let db = open(dir.path());
        let table: Numbers = block_on(db.open_table("numbers")).unwrap();
        assert_eq!(count(&db, &table).unwrap(), RECORDS);
        assert_eq!(db.check().unwrap().problems, [""; 0]);
    });
}

#[test]
fn a_discarded_table_leaves_nothing() {
    for paged in [false, true] {
        of_kind_a_discarded_table_leaves_nothing(paged);
    }
}

fn of_kind_a_discarded_table_leaves_nothing(paged: bool) {
    with_limit(LIMIT_SECONDS, move |_| {
        let dir = tempfile::tempdir().unwrap();
        let db = open(dir.path());
        let staged = stage(&db, paged);
        let table = staged.table().clone();
        let value = |value: u64, keys: &mut IndexKeys<'_, u64>| keys.push(&value);
        let index = block_on(db.index(&table, "by_value", IndexOptions::default(), value));
        assert!(matches!(index, Err(Error::Misuse(Misuse::IndexOnStagedTable(_)))), "{index:?}");
        block_on(staged.discard()).unwrap();
        block_on(staged.discard()).unwrap();
        let published = block_on(staged.publish());
        assert!(matches!(published, Err(Error::TableNotFound(_))), "{published:?}");
        assert!(matches!(count(&db, &table), Err(Error::TableNotFound(_))));
        assert_eq!(db.check().unwrap().records, 0);
        let again: Numbers = block_on(db.create_table("numbers")).unwrap();
        assert_eq!(count(&db, &again).unwrap(), 0);
    });
}

#[test]
fn publishing_under_an_existing_name_fails_and_discards_the_table() {
    for paged in [false, true] {
        of_kind_publishing_under_an_existing_name_fails_and_discards_the_table(paged);
    }
}

fn of_kind_publishing_under_an_existing_name_fails_and_discards_the_table(paged: bool) {
    with_limit(LIMIT_SECONDS, move |_| {
        let dir = tempfile::tempdir().unwrap();
        let db = open(dir.path());
        let reserved = block_on(db.stage_table::<u64, u64>("braid.numbers"));
        assert!(matches!(reserved, Err(Error::Misuse(Misuse::TableName(_)))), "{reserved:?}");
        let staged = stage(&db, paged);
        let other: Numbers = block_on(db.create_table("numbers")).unwrap();
        block_on(db.put(&other, &1, &1)).unwrap();
        let taken = block_on(db.stage_table::<u64, u64>("numbers"));
        assert!(matches!(taken, Err(Error::TableExists(_))), "{taken:?}");
        let published = block_on(staged.publish());
        assert!(matches!(published, Err(Error::TableExists(_))), "{published:?}");
        assert_eq!(count(&db, &other).unwrap(), 1);
        // The table's row and its record.
        assert_eq!(db.check().unwrap().records, 2);
    });
}

#[test]
fn reopening_frees_unpublished_tables() {
    with_limit(LIMIT_SECONDS, |_| {
        let dir = tempfile::tempdir().unwrap();
        let db = open(dir.path());
        let id = {
            let others: Numbers = block_on(db.create_table("others")).unwrap();
            block_on(db.put(&others, &1, &1)).unwrap();
            drop(stage(&db, false));
            block_on(db.checkpoint()).unwrap();
            drop(stage(&db, true));
            block_on(db.tables()).unwrap()[0].id
        };
        db.close().unwrap();

        let db = open(dir.path());
        // Then all of them are deleted; the table's row and its record remain.
        while db.stats().removals_under_way > 0 {
            std::thread::yield_now();
        }
        assert_eq!(db.check().unwrap().records, 2);
        assert_eq!(names(&db), ["others"]);
        let again: Numbers = block_on(db.create_table("numbers")).unwrap();
        assert_eq!(count(&db, &again).unwrap(), 0);
        let tables = block_on(db.tables()).unwrap();
        // Their ids are not reused while any of their records may remain.
        assert!(
            tables.iter().all(|table| table.name == "others" || table.id > id + 2),
            "{tables:?}"
        );
    });
}

/// The segment size; the loaded records fill many segments.
const SEGMENT_BYTES: u64 = 256 << 10;

/// The next opening frees the disk space of an interrupted load, which is far more than a segment
/// of the log.
#[test]
fn the_space_of_unpublished_tables_is_freed() {
    for paged in [false, true] {
        with_limit(LIMIT_SECONDS, move |_| {
            let dir = tempfile::tempdir().unwrap();
            let open = || {
                let options = Options::default()
                    .workers(2)
                    .tuning(Tuning::default().log_segment_bytes(SEGMENT_BYTES));
                Database::open(dir.path(), options).unwrap().watched()
            };
            // Measured on a closed database: an open one keeps freed files for later segments.
            // Segments prepared beyond the log's tail remain.
            let disk_bytes = || -> u64 {
                let files = std::fs::read_dir(dir.path()).unwrap().map(Result::unwrap);
                let log = files.filter(|file| file.path().extension().is_some_and(|e| e == "seg"));
                log.map(|file| file.metadata().unwrap().blocks() * 512).sum()
            };
            let db = open();
            let others: Numbers = block_on(db.create_table("others")).unwrap();
            block_on(db.put(&others, &1, &1)).unwrap();
            let options = TableOptions::default();
            let options = if paged { options.paged() } else { options };
            let staged = block_on(db.stage_table_with::<u64, [u8]>("bytes", options)).unwrap();
            let rows = (0..20_000).map(|key| (key, vec![key as u8; 1000]));
            block_on(staged.load(rows, |_| ())).unwrap();
            drop((others, staged));
            db.close().unwrap();
            drop(db);
            let before = disk_bytes();
            assert!(before > 50 * SEGMENT_BYTES, "{before}");

            let db = open();
            // The workers delete them next to other work.
            while db.stats().removals_under_way > 0 {
                std::thread::yield_now();
            }
            let freed = db.stats().log.segments_freed;
            assert!(freed > 50, "{freed}");
            let others: Numbers = block_on(db.open_table("others")).unwrap();
            assert_eq!(block_on(db.get(&others, &1)).unwrap(), Some(1));
            drop(others);
            db.close().unwrap();
            drop(db);
            let after = disk_bytes();
            assert!(after < before / 2, "{after} bytes on disk, {before} before, paged: {paged}");
        });
    }
}

/// Returns the squares of a range of numbers.
fn squares(numbers: std::ops::Range<u64>) -> impl Iterator<Item = (u64, u64)> + Send + Clone {
    numbers.map(|number| (number, number * number))
}

fn staged_squares(db: &Database, paged: bool) -> StagedTable<u64, u64> {
    let options = TableOptions::default();
    let options = if paged { options.paged() } else { options };
    block_on(db.stage_table_with("squares", options)).unwrap()
}

/// Returns the contents of a table, in order.
fn contents(db: &Database, table: &Numbers) -> Vec<(u64, u64)> {
    let table = table.clone();
    let all = db.run_blocking(async move |tx| {
        let (mut scan, mut all) = (tx.scan(&table, ..)?, Vec::new());
        while let Some(row) = scan.next().await? {
            all.push(row);
        }
        Ok(all)
    });
    all.unwrap()
}

#[test]
fn rows_may_be_loaded_in_any_order() {
    const ROWS: u64 = 30_500;
    for (paged, shuffled) in [(false, false), (false, true), (true, false)] {
        with_limit(LIMIT_SECONDS, move |_| {
            let dir = tempfile::tempdir().unwrap();
            let db = open(dir.path());
            let staged = staged_squares(&db, paged);
            let mut rows: Vec<_> = squares(0..ROWS).collect();
            if shuffled {
                fastrand::Rng::with_seed(7).shuffle(&mut rows);
            }
            let mut told = Vec::new();
            let loading = staged.load(rows, |durable| told.push(durable));
            assert_eq!(block_on(loading).unwrap(), ROWS);
            assert!(told.len() > 2 && told.is_sorted() && told.last() == Some(&ROWS), "{told:?}");
            // Loads more rows, and none.
            assert_eq!(block_on(staged.load(squares(ROWS..ROWS + 1), |_| ())).unwrap(), 1);
            assert_eq!(block_on(staged.load(squares(0..0), |_| panic!("no rows"))).unwrap(), 0);
            let table = block_on(staged.publish()).unwrap();
            assert!(contents(&db, &table).into_iter().eq(squares(0..ROWS + 1)));
            db.close().unwrap();
            drop((db, table, staged));
            let db = open(dir.path());
            let table: Numbers = block_on(db.open_table("squares")).unwrap();
            assert!(contents(&db, &table).into_iter().eq(squares(0..ROWS + 1)), "opened again");
            assert_eq!(db.check().unwrap().problems, Vec::<String>::new());
        });
    }
}

#[test]
fn an_invalid_record_ends_a_load() {
    with_limit(LIMIT_SECONDS, |_| {
        let db = Database::in_memory(Options::default().workers(2)).unwrap().watched();
        let staged = staged_squares(&db, false);
        // The key 5 occurs twice, the second time among many others.
        let twice = squares(0..20_000).chain([(5, 0)]).chain(squares(20_000..39_999));
        let failed = block_on(staged.load(twice, |_| ()));
        assert!(matches!(failed, Err(Error::KeyExists(_))), "{failed:?}");
        let over = db.stats().committed;
        assert_eq!(block_on(db.get(staged.table(), &5)).unwrap(), Some(25));
        let left = count(&db, staged.table()).unwrap();
        assert_eq!(left % 8000, 0, "whole batches");
        assert_eq!(db.stats().committed, over + 2, "nothing but the two questions");
        // Other rows can still be loaded.
        assert_eq!(block_on(staged.load(squares(50_000..50_010), |_| ())).unwrap(), 10);
        block_on(staged.discard()).unwrap();
        let gone = block_on(staged.load(squares(0..10), |_| ()));
        assert!(matches!(gone, Err(Error::TableNotFound(_))), "{gone:?}");

        let texts = block_on(db.stage_table::<str, str>("texts")).unwrap();
        let long = "k".repeat(4000);
        let failed = block_on(texts.load([("a", "1"), (long.as_str(), "2")], |_| ()));
        assert!(matches!(failed, Err(Error::Misuse(Misuse::KeyTooLong { .. }))), "{failed:?}");
        let owned = ["b", "c"].map(|key| (key.to_owned(), "x".repeat(2 << 20)));
        assert_eq!(block_on(texts.load(owned, |_| ())).unwrap(), 2);
        let table = block_on(texts.publish()).unwrap();
        assert_eq!(block_on(db.get(&table, "c")).unwrap().map(|text| text.len()), Some(2 << 20));
        db.close().unwrap();
        let closed = block_on(staged.load(squares(0..10), |_| ()));
        assert!(matches!(closed, Err(Error::Closed)), "{closed:?}");
    });
}

/// A load whose iterator or progress callback panics, or that is dropped after some polls, leaves a
/// table that can be discarded, and a free name.
#[test]
fn a_cancelled_load_leaves_no_table() {
    with_limit(LIMIT_SECONDS, |_| {
        let dir = tempfile::tempdir().unwrap();
        let db = open(dir.path());
        for (round, rows) in [0, 999, 1000, 50_000].into_iter().enumerate() {
            let staged = staged_squares(&db, round % 2 == 1);
            let failing = squares(0..rows).chain(std::iter::from_fn(|| panic!("of the iterator")));
            let load = std::panic::AssertUnwindSafe(|| block_on(staged.load(failing, |_| ())));
            assert!(std::panic::catch_unwind(load).is_err());
            block_on(staged.discard()).unwrap();
        }
        for polls in 0..10 {
            let staged = staged_squares(&db, false);
            {
                let told = |durable| assert!(durable < 100_000, "of the progress");
                let mut load = std::pin::pin!(staged.load(squares(0..100_000), told));
                let mut context = std::task::Context::from_waker(std::task::Waker::noop());
                for _ in 0..polls {
                    let load = std::panic::AssertUnwindSafe(|| load.as_mut().poll(&mut context));
                    match std::panic::catch_unwind(load) {
                        Ok(polled) => assert!(polled.is_pending(), "its last progress panics"),
                        Err(_) => break,
                    }
                    std::thread::yield_now();
                }
            }
            block_on(staged.discard()).unwrap();
        }
        let staged = staged_squares(&db, false);
        assert_eq!(block_on(staged.load(squares(0..5000), |_| ())).unwrap(), 5000);
        let table = block_on(staged.publish()).unwrap();
        assert!(contents(&db, &table).into_iter().eq(squares(0..5000)));
        assert_eq!(names(&db), ["squares"]);
        assert_eq!(db.check().unwrap().problems, Vec::<String>::new());
    });
}

/// Each poll of a load draws at most a thousand rows from the iterator, and no more rows are
/// buffered.
#[test]
fn a_load_yields_and_buffers_few_rows() {
    struct Row(Vec<u8>, Arc<AtomicU64>);

    impl std::borrow::Borrow<[u8]> for Row {
        fn borrow(&self) -> &[u8] {
            self.1.fetch_add(self.0.len() as u64, Ordering::Relaxed);
            &self.0
        }
    }

    with_limit(LIMIT_SECONDS, |_| {
        let db = Database::in_memory(Options::default().workers(2)).unwrap().watched();
        let staged = staged_squares(&db, false);
        let drawn = Cell::new(0);
        let rows = squares(0..20_000).inspect(|_| drawn.set(drawn.get() + 1));
        let mut load = std::pin::pin!(staged.load(rows, |_| ()));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        let mut before = 0;
        while load.as_mut().poll(&mut context).is_pending() {
            assert!(drawn.get() <= before + 1000, "{before}, then {}", drawn.get());
            before = drawn.get();
            std::thread::yield_now();
        }
        assert_eq!(drawn.get(), 20_000);

        // Nothing runs while this source keeps both workers busy.
        let held: Vec<_> = (0..2)
            .map(|worker| {
                let (release, waits) = futures_channel::oneshot::channel::<()>();
                let waits = std::sync::Mutex::new(Some(waits));
                let body = async move |_: &Transaction, (): &()| {
                    let waits = waits.lock().unwrap().take();
                    _ = waits.expect("it runs once").await;
                    Ok(())
                };
                (db.run_source(worker, [()], body).unwrap(), release)
            })
            .collect();
        let large = block_on(db.stage_table::<u64, [u8]>("large")).unwrap();
        let encoded = Arc::new(AtomicU64::new(0));
        let rows = (0..100).map(|key| (key, Row(vec![7; 1 << 20], encoded.clone())));
        let mut load = Box::pin(large.load(rows, |_| ()));
        for _ in 0..1000 {
            assert!(load.as_mut().poll(&mut context).is_pending());
        }
        assert_eq!(encoded.load(Ordering::Relaxed), 8 << 20, "and one more that is to come");
        for (source, release) in held {
            release.send(()).unwrap();
            source.wait().unwrap();
        }
        assert_eq!(block_on(load).unwrap(), 100);
        assert_eq!(count(&db, &block_on(large.publish()).unwrap()).unwrap(), 100);
    });
}

#[test]
fn a_load_within_a_transaction_fails() {
    with_limit(LIMIT_SECONDS, |_| {
        let db = Database::in_memory(Options::default().workers(1)).unwrap().watched();
        let staged = staged_squares(&db, false);
        let inner = db.run_blocking(async move |_| {
            let loaded = staged.load(squares(0..10), |_| ()).await;
            assert!(matches!(loaded, Err(Error::Misuse(Misuse::WouldBlock))), "{loaded:?}");
            Ok(())
        });
        inner.unwrap();
    });
}

#[test]
fn a_load_may_be_spawned() {
    fn spawned<T: Send>(_: &T) {}
    with_limit(LIMIT_SECONDS, |_| {
        let db = Database::in_memory(Options::default().workers(1)).unwrap().watched();
        let staged = staged_squares(&db, false);
        let load = staged.load(squares(0..10), |_| ());
        spawned(&load);
        assert_eq!(block_on(load).unwrap(), 10);
    });
}
