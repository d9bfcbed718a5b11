//! Paged tables whose inner pages do not fit into memory. Long keys leave few children per page, so
//! the trees have four levels and more inner pages than frames. The contents always equal the
//! writes, and deleted data leaves no pages.

use std::collections::BTreeMap;

use futures_util::future::join_all;
use pollster::block_on;

use super::super::{Database, Error, Options, Table, TableOptions, Transaction, Tuning};
use super::paged_disk::{give_way, is_of_disk, wait_until};
use super::polls::poll_at_most;
use crate::common::{Watched, with_limit};
use crate::io::{Faults, SimulatedDisk};
use crate::page::PagedTable;
use crate::transaction::Durability;

/// Time limit of a test, in seconds.
const LIMIT: u64 = 300;
const RECORDS: u64 = 500;
const TASKS: u64 = 4;
/// Frames for the path of one operation, and a few more.
const FRAMES: u32 = 9;

type Records = Table<[u8], [u8]>;
type Model = BTreeMap<u64, Vec<u8>>;

/// Keys have the maximum length. Keys of one group share nearly all bytes, and keys of different
/// groups share hardly any. Neither the common prefix of a page nor short separators save space.
fn key(number: u64) -> Vec<u8> {
    const GROUP: u64 = 25;
    const BYTES: usize = 500;
    let mut key = (number / GROUP).to_be_bytes()[4..].to_vec();
    key.resize(BYTES - 8, 7);
    key.extend((number % GROUP).to_be_bytes());
    key
}

fn number(key: &[u8]) -> u64 {
    (0..2 * RECORDS).find(|number| self::key(*number) == key).expect("it is one of the keys")
}

fn value(number: u64, version: u64) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(number << 16 ^ version);
    let bytes = if random.u8(..8) == 0 { 1000..6000 } else { 100..500 };
    (0..random.usize(bytes)).map(|_| random.u8(..)).collect()
}

/// Opens a table without a log, so that only pages are written and read.
fn open(seed: u64, frames: u32) -> (SimulatedDisk, Database, Records) {
    let disk = SimulatedDisk::new(seed);
    let options = Options::default()
        .durability(Durability::Volatile)
        .tuning(Tuning::default().page_frames(Some(frames)));
    let db = Database::open_simulated(&disk, options, seed).unwrap().watched();
    let table = create(&db, "records");
    (disk, db, table)
}

fn create(db: &Database, name: &'static str) -> Records {
    let paged = TableOptions::default().paged();
    db.run_blocking(async move |tx: &Transaction| tx.create_table_with(name, paged).await).unwrap()
}

/// Inserts all records in random order, so that pages are filled as in practice.
fn fill(db: &Database, table: &Records) -> Model {
    let model: Model = (0..RECORDS).map(|number| (number, value(number, 0))).collect();
    let mut all: Vec<_> = model.clone().into_iter().collect();
    fastrand::Rng::with_seed(1).shuffle(&mut all);
    for some in all.chunks(20) {
        let (table, some) = (table.clone(), some.to_vec());
        let insert = async move |tx: &Transaction| {
            for (number, value) in &some {
                tx.insert(&table, &key(*number)[..], value).await?;
            }
            Ok(())
        };
        db.run_blocking(insert).unwrap();
    }
    model
}

/// Inserts all records in one transaction.
async fn insert_all(tx: &Transaction, table: &Records) -> Result<(), Error> {
    for number in 0..RECORDS {
        tx.insert(table, &key(number)[..], &value(number, 0)).await?;
    }
    Ok(())
}

/// Creates a table, inserts all records, and rolls everything back.
fn take_back_table(db: &Database) {
    let body = async move |tx: &Transaction| {
        let paged = TableOptions::default().paged();
        insert_all(tx, &tx.create_table_with("taken back", paged).await?).await?;
        Err::<(), _>(Error::Closed)
    };
    assert!(matches!(db.run_blocking(body), Err(Error::Closed)));
}

fn check(db: &Database, table: &Records, model: &Model) {
    for reverse in [false, true] {
        let table = table.clone();
        let body = async move |tx: &Transaction| {
            let (scan, mut found) = (tx.scan(&table, ..)?, Model::new());
            let mut scan = if reverse { scan.rev() } else { scan };
            while let Some((key, value)) = scan.next().await? {
                found.insert(number(&key), value.to_vec());
            }
            Ok::<_, Error>(found)
        };
        assert!(db.run_blocking(body).unwrap() == *model, "what is there is what was written");
    }
}

fn with_paged<R>(db: &Database, look: impl FnOnce(&PagedTable) -> R) -> R {
    let tables = db.shared.engine.tables();
    look(tables.iter().find_map(|table| table.paged()).expect("a table is paged").pages())
}

/// Runs operations on the keys of one task, in transactions of which some are rolled back. Each
/// operation is dropped after one more poll until it completes. Returns the number of drops and of
/// failures.
async fn work(
    db: &Database,
    table: &Records,
    task: u64,
    mut model: Model,
) -> Result<(Model, [u64; 2]), Error> {
    let mut random = fastrand::Rng::with_seed(task);
    let mut counts = [0; 2];
    for version in 1..30 {
        let (table, before) = (table.clone(), model.clone());
        let (seed, commits) = (random.u64(..), random.u8(..3) > 0);
        let body = async move |tx: &Transaction| {
            let mut random = fastrand::Rng::with_seed(seed);
            let (mut model, mut counts) = (before.clone(), [0; 2]);
            for _ in 0..8 {
                let number = random.u64(..RECORDS / TASKS) * TASKS + task;
                let (key, bytes) = (key(number), value(number, version));
                let (which, mut polls) = (random.u8(..3), 1);
                loop {
                    give_way().await;
                    let done = match which {
                        0 => {
                            let put = tx.put(&table, &key[..], &bytes[..]);
                            poll_at_most(put, polls).await.map(|put| {
                                put?;
                                model.insert(number, bytes.clone());
                                Ok(())
                            })
                        }
                        1 => poll_at_most(tx.delete(&table, &key[..]), polls).await.map(|gone| {
                            assert_eq!(gone?, model.remove(&number).is_some());
                            Ok(())
                        }),
                        _ => poll_at_most(tx.get(&table, &key[..]), polls).await.map(|found| {
                            assert_eq!(found?, model.get(&number).map(Vec::as_slice));
                            Ok(())
                        }),
                    };
                    match done {
                        None => (counts[0], polls) = (counts[0] + 1, polls + 1),
                        Some(Err(error)) if is_of_disk(&error) => counts[1] += 1,
                        Some(result) => break result?,
                    }
                }
            }
            if commits { Ok((model, counts)) } else { Err(Error::Closed) }
        };
        match db.run(body).await {
            Ok((after, more)) => {
                model = after;
                counts = [counts[0] + more[0], counts[1] + more[1]];
            }
            Err(Error::Closed) => {}
            Err(error) => return Err(error),
        }
    }
    Ok((model, counts))
}

fn work_of_all(db: &Database, table: &Records, model: &Model) -> (Model, [u64; 2]) {
    let tasks = (0..TASKS).map(|task| {
        let mine = model.iter().filter(|(number, _)| **number % TASKS == task);
        work(db, table, task, mine.map(|(number, value)| (*number, value.clone())).collect())
    });
    let (mut all, mut counts) = (Model::new(), [0; 2]);
    for result in block_on(join_all(tasks)) {
        let (model, more) = result.unwrap();
        all.extend(model);
        counts = [counts[0] + more[0], counts[1] + more[1]];
    }
    (all, counts)
}

/// Operations are dropped at any poll, and fail with disk errors, while inner pages are evicted and
/// loaded again.
#[test]
fn trees_whose_inner_pages_do_not_fit_hold_what_was_written() {
    for seed in 0..2 {
        with_limit(LIMIT, move |_| {
            let (disk, db, table) = open(seed, FRAMES);
            let model = fill(&db, &table);
            let levels = with_paged(&db, PagedTable::pages_by_level);
            let inner: u64 = levels[1..].iter().sum();
            assert!(levels.len() >= 4 && inner > 2 * u64::from(FRAMES), "{levels:?}");
            check(&db, &table, &model);
            let errors = if seed % 2 == 0 { 0 } else { 10 };
            disk.set_faults(Faults { errors, max_delay: 10, ..Faults::default() });
            let (model, [dropped, failed]) = work_of_all(&db, &table, &model);
            let pages = db.stats().pages;
            assert!(dropped > 1000 && (errors == 0 || failed > 10), "{dropped}, {failed}");
            assert!(pages.inner_faults > 500 && pages.inner_evicted > 500, "{pages:?}");
            disk.set_faults(Faults::default());
            check(&db, &table, &model);
            db.close().unwrap();
        });
    }
}

/// Inner pages above leaves in use stay while leaves are loaded and evicted, because more descents
/// touch them.
#[test]
fn inner_pages_stay_while_leaves_come_and_go() {
    with_limit(LIMIT, |_| {
        let (_disk, db, _) = open(5, 64);
        let paged = TableOptions::default().paged();
        let create = async move |tx: &Transaction| tx.create_table_with("short", paged).await;
        let table: Table<u64, [u8]> = db.run_blocking(create).unwrap();
        // Two inner pages, and three times as many leaves as frames.
        const KEYS: u64 = 2000;
        for first in (0..KEYS).step_by(100) {
            let table = table.clone();
            let insert = async move |tx: &Transaction| {
                for key in first..first + 100 {
                    tx.insert(&table, &key, &[7; 350][..]).await?;
                }
                Ok(())
            };
            db.run_blocking(insert).unwrap();
        }
        let before = db.stats().pages;
        let mut random = fastrand::Rng::with_seed(5);
        for _ in 0..200 {
            let (table, seed) = (table.clone(), random.u64(..));
            let read = async move |tx: &Transaction| {
                let mut random = fastrand::Rng::with_seed(seed);
                for _ in 0..50 {
                    let found = tx.get(&table, &random.u64(..KEYS)).await?;
                    assert_eq!(found.map(<[u8]>::len), Some(350));
                }
                Ok(())
            };
            db.run_blocking(read).unwrap();
        }
        let after = db.stats().pages;
        let (all, inner) = (after.faults - before.faults, after.inner_faults - before.inner_faults);
        assert!(all > 3000, "{after:?}");
        assert!(inner * 500 < all, "{inner} of {all} faults are of inner pages");
        db.close().unwrap();
    });
}

/// When its creator rolls a table back, all its pages are freed, even if inner pages are on disk.
#[test]
fn a_rolled_back_table_leaves_no_pages() {
    with_limit(LIMIT, |_| {
        let (disk, db, _) = open(6, 16);
        disk.set_faults(Faults { max_delay: 10, ..Faults::default() });
        let before = db.stats().pages;
        take_back_table(&db);
        assert!(db.stats().pages.inner_evicted > 20, "{:?}", db.stats().pages);
        wait_until(&db, || {
            let pages = db.stats().pages;
            // The remaining table has one page.
            pages.zone_bytes <= 4096 && pages.resident <= before.resident
        });
        db.close().unwrap();
    });
}

/// The same, while the database closes before that is done: closing succeeds, and the version
/// chains of the pages are freed.
#[test]
fn a_database_can_be_closed_while_pages_of_a_table_are_given_back() {
    with_limit(LIMIT, |_| {
        for seed in 0..4 {
            let (disk, db, _) = open(seed, 16);
            disk.set_faults(Faults { max_delay: 50, ..Faults::default() });
            take_back_table(&db);
            db.close().unwrap();
        }
    });
}

/// Leaves of deleted records are removed with their inner pages, even if they were evicted before
/// the records could be cleaned up. They are not reused.
#[test]
fn leaves_of_records_that_are_gone_go() {
    with_limit(LIMIT, |_| {
        let (disk, db, table) = open(3, 16);
        disk.set_faults(Faults { max_delay: 10, ..Faults::default() });
        let model = fill(&db, &table);
        let other = create(&db, "other");
        let before = with_paged(&db, PagedTable::pages_by_level);
        // While the snapshot is open, deleted records stay.
        let snapshot = block_on(db.snapshot()).unwrap();
        let mut all: Vec<_> = model.keys().copied().collect();
        fastrand::Rng::with_seed(2).shuffle(&mut all);
        for some in all.chunks(20) {
            let (table, some) = (table.clone(), some.to_vec());
            let delete = async move |tx: &Transaction| {
                for number in &some {
                    assert!(tx.delete(&table, &key(*number)[..]).await?);
                }
                Ok(())
            };
            db.run_blocking(delete).unwrap();
        }
        fill(&db, &other);
        assert!(db.stats().pages.orphaned > 50, "{:?}", db.stats().pages);
        drop(snapshot);
        wait_until(&db, || with_paged(&db, PagedTable::pages_by_level) == [1]);
        assert!(before.len() >= 4, "{before:?}");
        check(&db, &table, &Model::new());
        db.close().unwrap();
    });
}

/// The same for records that were inserted and rolled back.
#[test]
fn leaves_of_rolled_back_records_are_freed() {
    with_limit(LIMIT, |_| {
        let (disk, db, table) = open(4, 16);
        disk.set_faults(Faults { max_delay: 10, ..Faults::default() });
        let used = table.clone();
        let body = async move |tx: &Transaction| {
            insert_all(tx, &used).await?;
            Err::<(), _>(Error::Closed)
        };
        assert!(matches!(db.run_blocking(body), Err(Error::Closed)));
        wait_until(&db, || with_paged(&db, PagedTable::pages_by_level) == [1]);
        check(&db, &table, &Model::new());
        db.close().unwrap();
    });
}

/// The same for a bulk operation that deletes all records, and for one that inserts them and is
/// rolled back.
#[test]
fn leaves_that_bulk_operations_emptied_go() {
    with_limit(LIMIT, |_| {
        let (disk, db, table) = open(7, 16);
        disk.set_faults(Faults { max_delay: 10, ..Faults::default() });
        fill(&db, &table);
        let before = with_paged(&db, PagedTable::pages_by_level);
        assert!(before.len() >= 4, "{before:?}");
        let used = table.clone();
        let delete = async move |tx: &Transaction| {
            for number in 0..RECORDS {
                assert!(tx.delete(&used, &key(number)[..]).await?);
            }
            Ok(())
        };
        block_on(db.run_bulk(&table, delete)).unwrap();
        wait_until(&db, || with_paged(&db, PagedTable::pages_by_level) == [1]);
        let used = table.clone();
        let insert = async move |tx: &Transaction| {
            insert_all(tx, &used).await?;
            Err::<(), _>(Error::Closed)
        };
        assert!(matches!(block_on(db.run_bulk(&table, insert)), Err(Error::Closed)));
        wait_until(&db, || with_paged(&db, PagedTable::pages_by_level) == [1]);
        check(&db, &table, &Model::new());
        db.close().unwrap();
    });
}

/// On a full disk no page is loaded for cleanup; the cleanup happens once the disk has space.
#[test]
fn on_a_full_disk_what_is_gone_waits() {
    with_limit(LIMIT, |_| {
        let (disk, db, table) = open(8, 16);
        let model = fill(&db, &table);
        let snapshot = block_on(db.snapshot()).unwrap();
        for number in model.keys().copied() {
            let table = table.clone();
            let delete = async move |tx: &Transaction| tx.delete(&table, &key(number)[..]).await;
            assert!(db.run_blocking(delete).unwrap());
        }
        disk.set_faults(Faults { capacity: 1, ..Faults::default() });
        drop(snapshot);
        for _ in 0..2000 {
            db.run_blocking(async |_: &Transaction| Ok::<_, Error>(())).unwrap();
        }
        disk.set_faults(Faults::default());
        wait_until(&db, || with_paged(&db, PagedTable::pages_by_level) == [1]);
        db.close().unwrap();
    });
}
