//! Transactions, cancellation, closing and kills while writers outrun a checkpoint, so that
//! extensions of the log are delayed.

use std::collections::BTreeSet;
use std::future::Future;
use std::path::Path;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::thread::scope;
use std::time::Duration;

use futures_util::future::join_all;
use pollster::block_on;

use super::super::{Database, Error, Options, Table, Transaction, Tuning};
use crate::Durability;
use crate::common::{PART_SECONDS, Watched, with_limit};

pub(super) const SEGMENT_BYTES: u64 = 1 << 20;
/// A segment takes ten of these values.
pub(super) const VALUE_BYTES: usize = 100_000;
/// Values of this size are written until the pause begins.
pub(super) const LARGE_BYTES: usize = 1_000_000;
/// The pause after 16 MiB; after a segment it is a sixteenth.
const PAUSE: Duration = Duration::from_millis(300);
/// Keys of records that are written before a test.
pub(super) const OTHER_KEYS: u64 = 1 << 32;

pub(super) type Records = Table<u64, [u8]>;

fn open(directory: &Path, workers: usize) -> (Database, Records) {
    open_with(directory, Options::default().workers(workers).durability(Durability::Relaxed))
}

pub(super) fn open_with(directory: &Path, options: Options) -> (Database, Records) {
    let tuning = Tuning::default().log_segment_bytes(SEGMENT_BYTES);
    let db = Database::open(directory, options.tuning(tuning)).unwrap().watched();
    let table = block_on(db.open_or_create_table("records")).unwrap();
    (db, table)
}

/// Begins a checkpoint that does not end before the result is dropped, and writes until a
/// transaction has waited for a pause.
pub(super) fn outrun<'d>(db: &'d Database, table: &Records) -> impl Sized + use<'d> {
    let running = db.shared.engine.checkpoints.begin().expect("no checkpoint is due yet");
    write_until_paused(db, table).unwrap();
    running
}

pub(super) fn write_until_paused(db: &Database, table: &Records) -> Result<(), Error> {
    let engine = &db.shared.engine;
    let (mut key, mut waits) = (OTHER_KEYS, 0);
    loop {
        let (pause, before) = (engine.checkpoints.pause_of_writers(engine.log.tail()), waits);
        waits = db.stats().suspensions.log_space;
        if pause >= PAUSE && waits > before {
            return Ok(());
        }
        block_on(db.put(table, &key, &[1; LARGE_BYTES][..]))?;
        key += 1;
    }
}

async fn put(db: &Database, table: &Records, key: u64) -> Result<(), Error> {
    db.put(table, &key, &[key as u8; VALUE_BYTES][..]).await
}

pub(super) fn keys(db: &Database, table: &Records) -> BTreeSet<u64> {
    let table = table.clone();
    let read = async move |tx: &Transaction| {
        let (mut scan, mut keys) = (tx.scan(&table, ..OTHER_KEYS)?, BTreeSet::new());
        while let Some((key, value)) = scan.next().await? {
            assert_eq!(value, [key as u8; VALUE_BYTES], "key {key}");
            keys.insert(key);
        }
        Ok(keys)
    };
    db.run_blocking(read).unwrap()
}

/// Lets each of `writers` tasks write several records, and returns the number of records.
fn all_writers_continue(workers: usize, writers: u64) -> usize {
    const RECORDS: u64 = 4;
    with_limit(PART_SECONDS, move |_| {
        let directory = tempfile::tempdir().unwrap();
        let (db, table) = open(directory.path(), workers);
        let running = outrun(&db, &table);
        let write = async |writer: u64| {
            for number in 0..RECORDS {
                put(&db, &table, writer * RECORDS + number).await.unwrap();
            }
        };
        block_on(join_all((0..writers).map(write)));
        drop(running);
        let written = keys(&db, &table).len();
        db.close().unwrap();
        written
    })
}

#[test]
fn all_writers_continue_after_a_pause() {
    assert_eq!(all_writers_continue(1, 1), 4);
    assert_eq!(all_writers_continue(2, 16), 64);
}

#[test]
fn dropped_writers_leave_nothing_behind() {
    with_limit(PART_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let (db, table) = open(directory.path(), 1);
        let running = outrun(&db, &table);
        let mut written = BTreeSet::new();
        for key in 0..60 {
            let mut writing = pin!(put(&db, &table, key));
            let mut polls = 0;
            while polls < key {
                polls += 1;
                match writing.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                    Poll::Ready(result) => {
                        result.unwrap();
                        written.insert(key);
                        break;
                    }
                    Poll::Pending => std::thread::sleep(Duration::from_millis(1)),
                }
            }
        }
        block_on(put(&db, &table, 60)).unwrap();
        let found = keys(&db, &table);
        assert!(found.is_superset(&written) && found.contains(&60));
        drop(running);
        block_on(db.checkpoint()).unwrap();
        db.close().unwrap();
        let (db, table) = open(directory.path(), 1);
        assert_eq!(keys(&db, &table), found);
        db.close().unwrap();
    });
}

/// Deletions, rollbacks, savepoints, new and dropped tables, and backups.
#[test]
fn other_work_continues_during_pauses() {
    with_limit(PART_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let (db, table) = open(&directory.path().join("database"), 2);
        (0..20).for_each(|key| block_on(put(&db, &table, key)).unwrap());
        let _running = outrun(&db, &table);
        let write = |first: u64| {
            let (db, table) = (&db, &table);
            move || (first..first + 20).for_each(|key| block_on(put(db, table, key)).unwrap())
        };
        scope(|scope| {
            scope.spawn(write(100));
            scope.spawn(write(200));
            scope.spawn(|| {
                (0..20).for_each(|key| assert!(block_on(db.delete(&table, &key)).unwrap()));
            });
            scope.spawn(|| {
                let table = table.clone();
                let rolled_back = db.run_blocking(async move |tx| {
                    tx.put(&table, &300, &[0; VALUE_BYTES]).await?;
                    let savepoint = tx.savepoint();
                    for key in 301..310 {
                        tx.put(&table, &key, &[0; VALUE_BYTES]).await?;
                    }
                    tx.rollback_to(&savepoint).await?;
                    tx.delete(&table, &300).await
                });
                assert!(rolled_back.unwrap());
            });
            scope.spawn(|| {
                for number in 0..5 {
                    let name = format!("other-{number}");
                    let other: Records = block_on(db.open_or_create_table(&name)).unwrap();
                    block_on(db.put(&other, &0, &[0; VALUE_BYTES][..])).unwrap();
                    block_on(db.drop_table(&name)).unwrap();
                }
            });
        });
        assert_eq!(keys(&db, &table), (100..120).chain(200..220).collect());
        db.close().unwrap();
    });
}

#[test]
fn a_database_is_closed_during_a_pause() {
    with_limit(PART_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        for workers in [1, 2] {
            let (db, table) = open(directory.path(), workers);
            block_on(db.clear(&table)).unwrap();
            let running = outrun(&db, &table);
            let written: BTreeSet<u64> = scope(|scope| {
                let write = |first: u64| {
                    let (db, table) = (&db, &table);
                    scope.spawn(move || {
                        let is_written = |key: &u64| block_on(put(db, table, *key)).is_ok();
                        (first..first + 1000).take_while(is_written).collect::<Vec<_>>()
                    })
                };
                let writing = [0, 1000, 2000].map(write);
                let waits = db.stats().suspensions.log_space;
                while db.stats().suspensions.log_space < waits + 3 {
                    std::thread::yield_now();
                }
                drop(running);
                db.close().unwrap();
                writing.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
            });
            drop((db, table));
            let (db, table) = open(directory.path(), workers);
            let found = keys(&db, &table);
            assert!(found.is_superset(&written), "{:?}", written.difference(&found));
            assert!(found.len() <= written.len() + 3, "at most the last of each writer");
            db.close().unwrap();
        }
    });
}

/// A kill between two commits would leave the files in the copied state.
#[test]
fn a_kill_during_pauses_loses_nothing_acknowledged() {
    with_limit(PART_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let (db, table) = open_with(directory.path(), Options::default().workers(1));
        let running = outrun(&db, &table);
        let copies = [12, 30].map(|count| {
            for key in 0..count {
                block_on(put(&db, &table, key)).unwrap();
            }
            let copy = tempfile::tempdir().unwrap();
            for entry in std::fs::read_dir(directory.path()).unwrap() {
                let entry = entry.unwrap();
                // A new segment may get its name at the same time.
                _ = std::fs::copy(entry.path(), copy.path().join(entry.file_name()));
            }
            (count, copy)
        });
        drop(running);
        db.close().unwrap();
        for (count, copy) in copies {
            let (db, table) = open_with(copy.path(), Options::default().workers(1));
            assert_eq!(keys(&db, &table), (0..count).collect());
            db.close().unwrap();
        }
    });
}

/// The planted bug affects the whole process, so the gate runs this test in a process without tests
/// of other modules.
#[cfg(braid_simulation)]
mod planted {
    use std::thread::{scope, sleep};
    use std::time::{Duration, Instant};

    use super::{PART_SECONDS, open, with_limit, write_until_paused};
    use crate::planted::{Bug, with_and_without};

    /// Far more than a pause, on a loaded machine.
    const HANG: Duration = Duration::from_secs(10);

    /// Returns whether a lone writer continues after each pause.
    fn a_writer_continues() -> bool {
        let directory = tempfile::tempdir().unwrap();
        let (db, table) = open(directory.path(), 1);
        let running = db.shared.engine.checkpoints.begin().expect("no checkpoint is due yet");
        scope(|scope| {
            let writing = scope.spawn(|| write_until_paused(&db, &table));
            let (mut written, mut since) = (0, Instant::now());
            while !writing.is_finished() && since.elapsed() < HANG {
                sleep(Duration::from_millis(10));
                let committed = db.stats().committed;
                if committed > std::mem::replace(&mut written, committed) {
                    since = Instant::now();
                }
            }
            let continues = writing.is_finished();
            // It ends the pause, and wakes the worker.
            drop(running);
            db.close().unwrap();
            _ = writing.join();
            continues
        })
    }

    #[test]
    fn a_worker_that_sleeps_beyond_a_pause_keeps_a_writer_waiting() {
        with_limit(PART_SECONDS, |_| {
            let (with, without) = with_and_without(Bug::PausedWorkerNotWoken, a_writer_continues);
            assert!(!with && without);
        });
    }
}
