//! Tables of both kinds are created, filled, indexed and dropped by several threads, beside snapshots,
//! aborted creations, discarded staged tables, checkpoints, compactions, backups, and the closing of the
//! database.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use crate::common::{Watched, once_free, with_limit};
use braiddb::{
    Database, Durability, Error, IndexKeys, IndexOptions, Options, Table, TableOptions,
    Transaction, Tuning,
};
use futures_util::FutureExt;
use pollster::block_on;

const LIMIT_SECONDS: u64 = 300;
const RECORDS: u64 = 120;
/// Tables that are dropped before the database is closed, while others are created.
const DROPS: u64 = 60;

type Records = Table<u64, [u8]>;

fn open(directory: &Path) -> Database {
    let tuning = Tuning::default().page_frames(Some(32)).page_bytes(4096);
    let tuning = tuning.log_segment_bytes(1 << 20).checkpoint_bytes(1 << 20);
    let options = Options::default().workers(2).durability(Durability::Relaxed).tuning(tuning);
    Database::open(directory, options).unwrap().watched()
}

fn kind(number: u64) -> TableOptions {
    if number.is_multiple_of(2) { TableOptions::default().paged() } else { TableOptions::default() }
}

fn value(key: u64) -> Vec<u8> {
    vec![key as u8; if key.is_multiple_of(40) { 6000 } else { 90 }]
}

async fn fill(tx: &Transaction, table: &Records) -> Result<(), Error> {
    for key in 0..RECORDS {
        tx.put(table, &key, &value(key)).await?;
    }
    Ok(())
}

/// Creates a table, perhaps with an index, and drops it. Some futures are dropped early.
fn create_and_drop(db: &Database, number: u64) -> Result<(), Error> {
    let (name, aborted) = (format!("table {number}"), format!("aborted {number}"));
    let create = |name: &str, aborts: bool| {
        let name = name.to_owned();
        db.run_blocking(async move |tx| {
            let table: Records = tx.create_table_with(&name, kind(number)).await?;
            fill(tx, &table).await?;
            if aborts { Err(Error::Closed) } else { Ok(table) }
        })
    };
    match create(&aborted, true) {
        Err(Error::Closed) => {}
        other => return other.map(drop),
    }
    let table = create(&name, false)?;
    if number.is_multiple_of(3) {
        let by_byte = |value: &[u8], keys: &mut IndexKeys<'_, u64>| {
            keys.push(&u64::from(value[0]));
        };
        block_on(db.index(&table, "by_byte", IndexOptions::default(), by_byte))?;
    }
    // A write beside the drop, which may see the table dropped.
    match block_on(db.put(&table, &number, &value(1))) {
        Ok(()) | Err(Error::TableNotFound(_)) => {}
        Err(error) => return Err(error),
    }
    if number.is_multiple_of(5) {
        // The drop goes on without its future.
        _ = db.drop_table(&name).now_or_never();
        return Ok(());
    }
    block_on(db.drop_table(&name))
}

fn stage_and_discard(db: &Database, number: u64) -> Result<(), Error> {
    let staged =
        block_on(db.stage_table_with::<u64, [u8]>(&format!("staged {number}"), kind(number)))?;
    let rows = (0..RECORDS).map(|key| (key, value(key)));
    block_on(staged.load(rows, |_| {}))?;
    _ = staged.discard().now_or_never();
    match block_on(db.put(staged.table(), &1, &value(1))) {
        Ok(()) | Err(Error::TableNotFound(_)) => {}
        Err(error) => return Err(error),
    }
    block_on(staged.discard())
}

/// Reads the table that stays, in one snapshot.
fn read(db: &Database, kept: &Records) -> Result<(), Error> {
    let snapshot = block_on(db.snapshot())?;
    let kept = kept.clone();
    let count = block_on(snapshot.run(async move |tx| {
        let mut count = 0;
        let each = |key: u64, found: &[u8]| {
            assert_eq!(found, value(key));
            count += 1;
            ControlFlow::<()>::Continue(())
        };
        tx.scan(&kept, ..)?.visit(each).await?;
        Ok(count)
    }))?;
    assert_eq!(count, RECORDS);
    thread::sleep(Duration::from_millis(2));
    Ok(())
}

fn maintain(db: &Database, backups: &Path, number: u64) -> Result<(), Error> {
    let done = match number % 4 {
        0 => block_on(db.checkpoint()).map(drop),
        1 => block_on(db.compact()).map(drop),
        2 => db.backup(backups.join(number.to_string())).map(drop),
        _ => db.check().map(|report| assert_eq!(report.problems, Vec::<String>::new())),
    };
    match done {
        Err(Error::Busy(_)) => Ok(()),
        done => done,
    }
}

/// Repeats a job until it is told to stop, or the database closes.
fn repeat(stop: &AtomicBool, mut job: impl FnMut(u64) -> Result<(), Error>) {
    for number in 0.. {
        match job(number) {
            Ok(()) if stop.load(Ordering::SeqCst) => break,
            Ok(()) => {}
            Err(Error::Closed) => break,
            Err(error) => panic!("{error:?}"),
        }
    }
}

/// Runs all jobs at the same time, and closes the database meanwhile.
fn attack(db: &Database, kept: &Records, backups: &Path, round: u64) {
    let (stop, dropped) = (&AtomicBool::new(false), &AtomicU64::new(0));
    thread::scope(|scope| {
        for part in 0..3 {
            scope.spawn(move || {
                repeat(stop, |number| {
                    create_and_drop(db, 1_000_000 * round + 3 * number + part)?;
                    dropped.fetch_add(1, Ordering::SeqCst);
                    Ok(())
                });
            });
        }
        scope.spawn(move || repeat(stop, |number| stage_and_discard(db, 10_000 * round + number)));
        scope.spawn(move || repeat(stop, |_| read(db, kept)));
        scope.spawn(move || repeat(stop, |number| maintain(db, backups, number)));
        while dropped.load(Ordering::SeqCst) < DROPS {
            thread::sleep(Duration::from_millis(5));
        }
        db.close().unwrap();
        stop.store(true, Ordering::SeqCst);
    });
}

#[test]
fn tables_are_dropped_beside_everything() {
    with_limit(LIMIT_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path().join("data");
        let db = open(&data);
        let kept: Records = block_on(db.create_table_with("kept", kind(0))).unwrap();
        let filled = kept.clone();
        db.run_blocking(async move |tx| fill(tx, &filled).await).unwrap();
        db.close().unwrap();
        for round in 0..3 {
            let backups = directory.path().join(format!("backups {round}"));
            std::fs::create_dir(&backups).unwrap();
            let db = open(&data);
            let kept: Records = block_on(db.open_table("kept")).unwrap();
            attack(&db, &kept, &backups, round);
        }
        let db = open(&data);
        // Drops that the closing interrupted are finished.
        while block_on(db.tables()).unwrap().iter().any(|table| table.name.starts_with("staged")) {
            thread::sleep(Duration::from_millis(5));
        }
        for table in block_on(db.tables()).unwrap() {
            if table.name != "kept" {
                block_on(db.drop_table(&table.name)).unwrap();
            }
        }
        assert_eq!(once_free(|| db.check()).unwrap().problems, Vec::<String>::new());
        let kept: Records = block_on(db.open_table("kept")).unwrap();
        read(&db, &kept).unwrap();
        db.close().unwrap();
    });
}
