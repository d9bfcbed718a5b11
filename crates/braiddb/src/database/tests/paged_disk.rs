//! Paged tables larger than memory on a simulated disk: futures dropped while pages are loaded and
//! written, failing reads and writes, and a full disk. The contents always equal the writes.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::task::Poll;

use futures_util::future::join_all;
use pollster::block_on;

use super::super::{Database, Error, Options, Table, TableOptions, Transaction, Tuning};
use super::polls::poll_at_most;
use crate::common::{Watched, with_limit};
use crate::io::{CrashCounts, Faults, SimulatedDisk};
use crate::log::LogError;
use crate::transaction::Durability;

/// Time limit of a test, in seconds.
const LIMIT: u64 = 300;
const FRAMES: u32 = 8;
const RECORDS: u64 = 600;
const TASKS: u64 = 6;

pub(super) type Records = Table<u64, [u8]>;
pub(super) type Model = BTreeMap<u64, Vec<u8>>;

pub(super) fn value(key: u64, version: u64) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(key << 16 ^ version);
    // Some values exceed a page.
    let bytes = if random.u8(..8) == 0 { 1000..9000 } else { 200..600 };
    (0..random.usize(bytes)).map(|_| random.u8(..)).collect()
}

/// Opens a table without a log, so that only pages are written and read.
fn open(seed: u64) -> (SimulatedDisk, Database, Records) {
    open_with(seed, FRAMES)
}

/// The same, with a given number of frames.
pub(super) fn open_with(seed: u64, frames: u32) -> (SimulatedDisk, Database, Records) {
    let disk = SimulatedDisk::new(seed);
    let options = Options::default()
        .durability(Durability::Volatile)
        .tuning(Tuning::default().page_frames(Some(frames)));
    let db = Database::open_simulated(&disk, options, seed).unwrap().watched();
    let paged = TableOptions::default().paged();
    let create = async move |tx: &Transaction| tx.create_table_with("records", paged).await;
    let table = db.run_blocking(create).unwrap();
    (disk, db, table)
}

pub(super) fn fill(db: &Database, table: &Records) -> Model {
    let model: Model = (0..RECORDS).map(|key| (key, value(key, 0))).collect();
    for some in model.clone().into_iter().collect::<Vec<_>>().chunks(50) {
        let (table, some) = (table.clone(), some.to_vec());
        let insert = async move |tx: &Transaction| {
            for (key, value) in &some {
                tx.insert(&table, key, value).await?;
            }
            Ok(())
        };
        db.run_blocking(insert).unwrap();
    }
    model
}

async fn contents(tx: &Transaction, table: &Records) -> Result<Model, Error> {
    let (mut scan, mut found) = (tx.scan(table, ..)?, Model::new());
    while let Some((key, value)) = scan.next().await? {
        found.insert(key, value.to_vec());
    }
    Ok(found)
}

pub(super) fn check(db: &Database, table: &Records, model: &Model) {
    let table = table.clone();
    let found = db.run_blocking(async move |tx| contents(tx, &table).await).unwrap();
    assert!(found == *model, "what is there is what was written");
}

/// Yields to the worker's other tasks and its transfers.
pub(super) async fn give_way() {
    let mut gave_way = false;
    poll_fn(move |context| {
        if std::mem::replace(&mut gave_way, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Numbers of observed events.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) dropped: u64,
    pub(super) failed: u64,
}

/// Waits for a condition; the test's time limit ends a wait that takes too long.
pub(super) fn wait_until(db: &Database, is_so: impl Fn() -> bool) {
    while !is_so() {
        // The end of a transaction allows older versions to be collected.
        db.run_blocking(async |_: &Transaction| Ok::<_, Error>(())).unwrap();
        std::thread::yield_now();
    }
}

/// Returns whether the error reports the disk's fault.
pub(super) fn is_of_disk(error: &Error) -> bool {
    matches!(error.log_error(), Some(LogError::Io { .. }))
}

/// Runs operations on the keys of one task, in transactions of which some are rolled back. Each
/// operation is dropped after one more poll and repeated, until it completes without a disk error.
async fn work(
    db: &Database,
    table: &Records,
    task: u64,
    mut model: Model,
) -> Result<(Model, Counts), Error> {
    let mut random = fastrand::Rng::with_seed(task);
    let mut counts = Counts::default();
    for version in 1..40 {
        let (table, before) = (table.clone(), model.clone());
        let (seed, commits) = (random.u64(..), random.u8(..3) > 0);
        let body = async move |tx: &Transaction| {
            let mut random = fastrand::Rng::with_seed(seed);
            let (mut model, mut counts) = (before.clone(), Counts::default());
            for _ in 0..10 {
                let key = random.u64(..RECORDS / TASKS) * TASKS + task;
                let (bytes, which, mut polls) = (value(key, version), random.u8(..3), 1);
                loop {
                    give_way().await;
                    let done = match which {
                        0 => {
                            poll_at_most(tx.put(&table, &key, &bytes[..]), polls).await.map(|put| {
                                put?;
                                model.insert(key, bytes.clone());
                                Ok(())
                            })
                        }
                        1 => poll_at_most(tx.delete(&table, &key), polls).await.map(|deleted| {
                            assert_eq!(deleted?, model.remove(&key).is_some());
                            Ok(())
                        }),
                        _ => poll_at_most(tx.get(&table, &key), polls).await.map(|found| {
                            assert_eq!(found?, model.get(&key).map(Vec::as_slice));
                            Ok(())
                        }),
                    };
                    match done {
                        None => (counts.dropped, polls) = (counts.dropped + 1, polls + 1),
                        Some(Err(error)) if is_of_disk(&error) => counts.failed += 1,
                        Some(result) => break result?,
                    }
                }
            }
            if commits { Ok((model, counts)) } else { Err(Error::Closed) }
        };
        match db.run(body).await {
            Ok((after, more)) => {
                model = after;
                counts.dropped += more.dropped;
                counts.failed += more.failed;
            }
            Err(Error::Closed) => {}
            Err(error) => return Err(error),
        }
    }
    Ok((model, counts))
}

pub(super) fn work_of_all(db: &Database, table: &Records, model: &Model) -> (Model, Counts) {
    let tasks = (0..TASKS).map(|task| {
        let of_task = |(key, _): &(&u64, &Vec<u8>)| **key % TASKS == task;
        let mine = model.iter().filter(of_task).map(|(key, value)| (*key, value.clone()));
        work(db, table, task, mine.collect())
    });
    let (mut all, mut counts) = (Model::new(), Counts::default());
    for result in block_on(join_all(tasks)) {
        let (model, more) = result.unwrap();
        all.extend(model);
        counts.dropped += more.dropped;
        counts.failed += more.failed;
    }
    (all, counts)
}

#[test]
fn operations_that_are_dropped_at_any_poll_leave_pages_as_they_were() {
    for seed in 0..4 {
        with_limit(LIMIT, move |_| {
            let (disk, db, table) = open(seed);
            let model = fill(&db, &table);
            disk.set_faults(Faults { max_delay: 10, short_transfers: 5, ..Faults::default() });
            let (model, counts) = work_of_all(&db, &table, &model);
            assert!(counts.dropped > 1000, "{counts:?}");
            let pages = db.stats().pages;
            assert!(pages.faults > 500 && pages.written > 200, "{pages:?}");
            check(&db, &table, &model);
            db.close().unwrap();
        });
    }
}

#[test]
fn reads_and_writes_of_pages_that_fail_are_told_and_may_be_tried_again() {
    for seed in 0..4 {
        with_limit(LIMIT, move |_| {
            let (disk, db, table) = open(seed);
            let model = fill(&db, &table);
            disk.set_faults(Faults { errors: 10, max_delay: 10, ..Faults::default() });
            let (model, counts) = work_of_all(&db, &table, &model);
            let faults = disk.counts();
            assert!(counts.failed > 20, "{counts:?}, {faults:?}");
            assert!(faults.read_errors > 10 && faults.write_errors > 10, "{faults:?}");
            disk.set_faults(Faults::default());
            check(&db, &table, &model);
            db.close().unwrap();
        });
    }
}

/// If the disk has no space for pages, operations that need a frame fail. Nothing is lost, and
/// resident pages can be read.
#[test]
fn a_full_disk_refuses_what_needs_a_frame() {
    with_limit(LIMIT, move |_| {
        let (disk, db, table) = open(7);
        let mut model = fill(&db, &table);
        disk.set_faults(Faults { capacity: 1, ..Faults::default() });
        let (mut refused, mut key) = (0, RECORDS);
        while refused < 20 {
            let (into, bytes) = (table.clone(), value(key, 1));
            let result = db.run_blocking(async move |tx| tx.put(&into, &key, &bytes[..]).await);
            match result {
                Ok(_) => _ = model.insert(key, value(key, 1)),
                Err(Error::DiskFull(_)) => refused += 1,
                Err(error) => panic!("{error}"),
            }
            key += 1;
        }
        // The last leaf is in memory.
        let (last, expected) =
            model.last_key_value().map(|(key, value)| (*key, value.clone())).unwrap();
        let from = table.clone();
        let found = db.run_blocking(async move |tx| {
            Ok::<_, Error>(tx.get(&from, &last).await?.map(<[u8]>::to_vec))
        });
        assert_eq!(found.unwrap(), Some(expected));
        disk.set_faults(Faults::default());
        check(&db, &table, &model);
        db.close().unwrap();
    });
}

/// If the budget shrinks the page memory and the disk has no space for pages, the pages stay,
/// without constant retries. The database can still be closed.
#[test]
fn pages_that_cannot_be_written_stay_and_the_database_can_be_closed() {
    with_limit(LIMIT, move |_| {
        // Slightly more than the log's ring would take, which does not exist here.
        const BUDGET: u64 = (32 << 20) + 1;
        let disk = SimulatedDisk::new(3);
        let options = Options::default().durability(Durability::Volatile).memory_budget(BUDGET);
        let db = Database::open_simulated(&disk, options, 3).unwrap().watched();
        let paged = TableOptions::default().paged();
        let create = async move |tx: &Transaction| tx.create_table_with("records", paged).await;
        let table: Records = db.run_blocking(create).unwrap();
        let hot: Records = block_on(db.open_or_create_table("hot")).unwrap();
        let write = |table: &Records, keys: std::ops::Range<u64>| {
            let table = table.clone();
            let insert = async move |tx: &Transaction| {
                for key in keys.clone() {
                    tx.insert(&table, &key, &[key as u8; 500][..]).await?;
                }
                Ok(())
            };
            db.run_blocking(insert)
        };
        // Pages take nearly the whole budget.
        let (mut paged_records, mut hot_records) = (0, 0);
        while {
            let pages = db.stats().pages;
            pages.resident < pages.frames / 10 * 9
        } {
            write(&table, paged_records..paged_records + 100).unwrap();
            paged_records += 100;
        }
        disk.set_faults(Faults { capacity: 1, ..Faults::default() });
        let (before, begun) = (disk.counts(), std::time::Instant::now());
        let mut write_hot = || {
            write(&hot, hot_records..hot_records + 20).unwrap();
            hot_records += 20;
        };
        // Writes of records for which pages must be evicted.
        while disk.counts().full == before.full {
            write_hot();
        }
        // Many rounds in which no page can be evicted.
        (0..500).for_each(|_| write_hot());
        let pages = db.stats().pages;
        assert!(pages.resident > pages.frames, "there is something to be written: {pages:?}");
        let counts = disk.counts();
        let (refused, seconds) = (counts.full - before.full, begun.elapsed().as_secs());
        assert!(refused <= 4 + 2 * seconds, "{refused} in {seconds} s: {counts:?}");
        // Nothing is lost, and operations that need no new pages continue.
        let from = table.clone();
        let found = db.run_blocking(async move |tx| contents(tx, &from).await).unwrap();
        assert_eq!(found.len() as u64, paged_records);
        db.close().unwrap();
    });
}

/// Starts a checkpoint while a transaction that created a paged table is active, and rolls the
/// table back some rounds later. Then creates another table with the same id and one record.
/// Returns the contents after a crash.
fn table_rolled_back_during_a_checkpoint(turns: u64) -> Vec<(u64, Vec<u8>)> {
    let disk = SimulatedDisk::new(turns);
    let options = || Options::default().tuning(Tuning::default().page_frames(Some(FRAMES)));
    let db = Database::open_simulated(&disk, options(), turns).unwrap().watched();
    disk.set_faults(Faults { max_delay: 10, ..Faults::default() });
    let paged = TableOptions::default().paged();
    let (beside, files) = (db.clone(), disk.clone());
    let is_begun = |(name, _): &(String, u64)| name.starts_with("checkpoint");
    let taken_back = db.run_blocking(async move |tx| {
        let table: Records = tx.create_table_with("taken back", paged).await?;
        for key in 0..100 {
            tx.insert(&table, &key, &[1; 1000][..]).await?;
        }
        assert!(beside.stats().pages.evicted > 10, "most leaves are absent");
        _ = poll_at_most(beside.checkpoint(), 1).await;
        while !files.files().iter().any(is_begun) {
            give_way().await;
        }
        for _ in 0..turns {
            give_way().await;
        }
        Err::<(), _>(Error::Closed)
    });
    assert!(matches!(taken_back, Err(Error::Closed)));
    while db.shared.engine.checkpoints.begin().is_none() {
        std::thread::yield_now();
    }
    let bytes = db.shared.engine.checkpoints.newest_bytes();
    assert!(bytes > 0, "one was written");
    let sizes: Vec<u64> = disk.files().into_iter().filter(is_begun).map(|(_, size)| size).collect();
    assert_eq!(sizes, [bytes], "nothing is behind what it has");
    let created = db.run_blocking(async move |tx| {
        let table: Records = tx.create_table_with("created", paged).await?;
        tx.insert(&table, &1000, &[2; 10][..]).await
    });
    created.unwrap();
    let crashed = disk.crash(turns, &mut CrashCounts::default());
    db.close().unwrap();
    let db = Database::open_simulated(&crashed, options(), turns).unwrap().watched();
    let found = db.run_blocking(async move |tx| {
        let table: Records = tx.open_table("created").await?;
        contents(tx, &table).await
    });
    found.unwrap().into_iter().collect()
}

/// Aborted writes are not undone on absent leaves when a table is rolled back. A concurrent
/// checkpoint that reads the table must not list it, or its records would appear in the next table
/// with that id.
#[test]
fn a_checkpoint_excludes_a_table_that_is_rolled_back() {
    for turns in 0..24 {
        with_limit(LIMIT, move |_| {
            let found = table_rolled_back_during_a_checkpoint(turns);
            assert_eq!(found, [(1000, vec![2; 10])], "taken back after {turns} turns");
        });
    }
}

/// The disk reserve for the next checkpoint covers its size, even if leaves share key prefixes. The
/// record counts are exact after overwrites, deletions and rollbacks.
#[test]
fn a_checkpoint_takes_no_more_than_was_expected() {
    with_limit(LIMIT, move |_| {
        let disk = SimulatedDisk::new(1);
        let db = Database::open_simulated(&disk, Options::default(), 1).unwrap().watched();
        let paged = TableOptions::default().paged();
        let create = async move |tx: &Transaction| tx.create_table_with("long keys", paged).await;
        let table: Table<String, u64> = db.run_blocking(create).unwrap();
        let prefix = "a long beginning, ".repeat(20);
        let key = |number: u64| format!("{prefix}{number:08}");
        for begin in (0..30_000).step_by(1000) {
            let (table, keys) = (table.clone(), (begin..begin + 1000).map(key).collect::<Vec<_>>());
            let result = db.run_blocking(async move |tx| {
                for (number, key) in keys.iter().enumerate() {
                    tx.insert(&table, key, &7).await?;
                    // Some keys are written again, and some are deleted.
                    match number % 10 {
                        3 => tx.put(&table, key, &8).await?,
                        5 => _ = tx.delete(&table, key).await?,
                        _ => {}
                    }
                }
                if begin % 3000 == 0 { Err(Error::Closed) } else { Ok(()) }
            });
            assert!(result.is_ok() || begin % 3000 == 0);
        }
        let engine = &db.shared.engine;
        let (counted, scanned) = db
            .run_blocking(async move |tx| {
                let (mut scan, mut bytes, mut records) = (tx.scan(&table, ..)?, 0, 0);
                while let Some((key, _)) = scan.next().await? {
                    (bytes, records) = (bytes + key.len() + 8, records + 1);
                }
                Ok::<_, Error>((records, bytes as u64))
            })
            .unwrap();
        let stored =
            engine.tables().into_iter().find_map(|table| Some(table.paged()?.pages().stored()));
        let stored = stored.expect("a table is paged");
        assert_eq!(stored.records, counted);
        assert_eq!(stored.bytes, scanned);
        let expected = crate::durability::estimate_checkpoint(engine);
        let before = db.stats().pages.zone_bytes;
        let written = block_on(db.checkpoint()).unwrap().bytes;
        let written = written + db.stats().pages.zone_bytes - before;
        assert!(written <= expected, "{written} of {expected} bytes");
        // All pages are in memory, and each was written.
        assert!(expected <= written * 2, "{expected} for {written} bytes");
        // The next checkpoint references the same images.
        let (before, first) =
            (db.stats().pages.zone_bytes, block_on(db.checkpoint()).unwrap().bytes);
        assert!(db.stats().pages.zone_bytes - before <= 4 << 12 && first <= 1 << 20);
        db.close().unwrap();
    });
}
