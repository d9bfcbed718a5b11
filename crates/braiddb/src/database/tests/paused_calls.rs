//! Calls that are dropped, that panic, or that fail while extensions of the log are delayed. None of
//! them keeps another writer waiting, and no acknowledged record is lost.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::{Mutex, mpsc};
use std::task::{Context, Waker};
use std::thread::scope;
use std::time::Duration;

use pollster::block_on;

use super::super::{Database, Error, Options, Result, TableOptions, Transaction, Tuning};
use super::pauses::{
    OTHER_KEYS, Records, SEGMENT_BYTES, VALUE_BYTES, keys, open_with, outrun, write_until_paused,
};
use super::polls::poll_at_most;
use crate::Durability;
use crate::common::{PART_SECONDS, Watched, with_limit};
use crate::io::{Faults, SimulatedDisk};

/// More records than a segment holds, so that the log must be extended for them.
const RECORDS: u64 = 12;
/// Each call ends with fewer polls.
const MAX_POLLS: usize = 200;

async fn put_all(tx: &Transaction, table: &Records, first: u64) -> Result<()> {
    for key in first..first + RECORDS {
        tx.put(table, &key, &vec![key as u8; VALUE_BYTES][..]).await?;
    }
    Ok(())
}

/// A database during a pause, and its acknowledged records.
struct Paused {
    db: Database,
    table: Records,
    paged: Records,
    next: Cell<u64>,
    acknowledged: RefCell<BTreeSet<u64>>,
}

impl Paused {
    fn new(db: Database, table: Records) -> Self {
        let paged = TableOptions::default().paged();
        let paged = block_on(db.open_or_create_table_with("paged", paged)).unwrap();
        Self { db, table, paged, next: Cell::new(0), acknowledged: RefCell::default() }
    }

    /// Returns the first of a number of unused keys.
    fn take_keys(&self) -> u64 {
        self.next.replace(self.next.get() + RECORDS)
    }

    /// Notes that records are acknowledged, if `is_done`.
    fn note(&self, first: u64, is_done: bool) -> bool {
        if is_done {
            self.acknowledged.borrow_mut().extend(first..first + RECORDS);
        }
        is_done
    }

    fn check_records(&self) {
        let found = keys(&self.db, &self.table);
        let acknowledged = self.acknowledged.borrow();
        assert!(found.is_superset(&acknowledged), "{:?}", acknowledged.difference(&found));
        for records in Vec::from_iter(found).chunk_by(|key, next| key / RECORDS == next / RECORDS) {
            assert_eq!(records.len() as u64, RECORDS, "part of a transaction: {records:?}");
        }
    }
}

/// Polls a future each time it is woken, and drops it after `polls` polls. Returns whether it was
/// ready.
fn is_ready<T>(future: impl Future<Output = Result<T>>, polls: usize) -> bool {
    match block_on(poll_at_most(future, polls)) {
        Some(Ok(_) | Err(Error::Busy(_))) => true,
        Some(Err(error)) => panic!("{error}"),
        None => false,
    }
}

/// A call that is dropped after a number of polls. Returns whether it was ready before.
type Call = fn(&Paused, usize) -> bool;

const CALLS: [(&str, Call); 11] = [
    ("run", |paused, polls| {
        let (table, first) = (paused.table.clone(), paused.take_keys());
        let run = paused.db.run(async move |tx| put_all(tx, &table, first).await);
        paused.note(first, is_ready(run, polls))
    }),
    ("operation", |paused, polls| {
        let (table, first) = (paused.table.clone(), paused.take_keys());
        let run = paused.db.run(async move |tx| {
            let writing = poll_at_most(put_all(tx, &table, first), polls).await;
            // The rest, which replaces the same values.
            put_all(tx, &table, first).await?;
            Ok(writing.is_some())
        });
        let is_done = block_on(run).unwrap();
        paused.note(first, true) && is_done
    }),
    ("step", |paused, polls| {
        let (table, first) = (&paused.table, paused.take_keys());
        let transaction = block_on(paused.db.begin()).unwrap();
        let value = vec![first as u8; VALUE_BYTES];
        let is_done = is_ready(transaction.put(table, &first, &value[..]), polls);
        block_on(transaction.abort()).unwrap();
        is_done
    }),
    ("commit", |paused, polls| {
        let (table, first) = (paused.table.clone(), paused.take_keys());
        let transaction = block_on(paused.db.begin()).unwrap();
        block_on(transaction.step(async move |tx| put_all(tx, &table, first).await)).unwrap();
        paused.note(first, is_ready(transaction.commit(), polls))
    }),
    ("delete", |paused, polls| {
        let key = OTHER_KEYS + polls as u64;
        is_ready(paused.db.delete(&paused.table, &key), polls)
    }),
    ("clear", |paused, polls| {
        let other: Records = block_on(paused.db.open_or_create_table("other")).unwrap();
        block_on(paused.db.put(&other, &0, &vec![0; VALUE_BYTES][..])).unwrap();
        is_ready(paused.db.clear(&other), polls)
    }),
    ("drop", |paused, polls| {
        let name = format!("dropped-{polls}");
        let dropped: Records = block_on(paused.db.open_or_create_table(&name)).unwrap();
        block_on(paused.db.put(&dropped, &0, &vec![0; VALUE_BYTES][..])).unwrap();
        is_ready(paused.db.drop_table(&name), polls)
    }),
    ("bulk operation", |paused, polls| {
        let table = paused.paged.clone();
        let run = paused.db.run_bulk(&paused.paged, async move |tx| put_all(tx, &table, 0).await);
        is_ready(run, polls)
    }),
    ("load", |paused, polls| {
        let staged = block_on(paused.db.stage_table::<u64, [u8]>("staged")).unwrap();
        let rows = (0..RECORDS).map(|key| (key, vec![key as u8; VALUE_BYTES]));
        is_ready(staged.load(rows, |_| ()), polls)
    }),
    ("checkpoint", |paused, polls| is_ready(paused.db.checkpoint(), polls)),
    ("compaction", |paused, polls| is_ready(paused.db.compact(), polls)),
];

#[test]
fn calls_are_dropped_at_each_poll_during_pauses() {
    with_limit(2 * PART_SECONDS, |_| {
        for (workers, durability) in [(1, Durability::Group), (2, Durability::Relaxed)] {
            let directory = tempfile::tempdir().unwrap();
            let options = || Options::default().workers(workers).durability(durability);
            let path = directory.path().join("database");
            let (db, table) = open_with(&path, options());
            let paused = Paused::new(db, table);
            let running = outrun(&paused.db, &paused.table);
            let waits = |paused: &Paused| paused.db.stats().suspensions.log_space;
            let (before, mut cancelled) = (waits(&paused), 0);
            for (name, call) in CALLS {
                let dropped = (1..MAX_POLLS).find(|polls| call(&paused, *polls));
                cancelled += dropped.unwrap_or_else(|| panic!("{name} is never ready")) - 1;
                assert!(block_on(paused.db.get(&paused.table, &u64::MAX)).unwrap().is_none());
            }
            // The machine decides how many had to wait.
            assert!(cancelled > 0, "none was dropped");
            assert!(waits(&paused) > before, "{:?}", paused.db.stats().suspensions);
            paused.check_records();
            drop(running);
            block_on(paused.db.compact()).unwrap();
            paused.db.backup(directory.path().join("backup")).unwrap();
            paused.db.close().unwrap();
            let acknowledged = paused.acknowledged.clone();
            drop(paused);
            for path in [path, directory.path().join("backup")] {
                let (db, table) = open_with(&path, options());
                let acknowledged = acknowledged.clone();
                let reopened = Paused { acknowledged, ..Paused::new(db, table) };
                reopened.check_records();
                reopened.db.close().unwrap();
            }
        }
    });
}

/// Panics when it is dropped, unless its thread panics already.
struct PanicsWhenDropped;

impl Drop for PanicsWhenDropped {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            panic!("a planted panic of a destructor");
        }
    }
}

#[test]
fn writers_that_panic_during_pauses_leave_nothing_behind() {
    with_limit(PART_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let (db, table) = open_with(directory.path(), Options::default().workers(1));
        let paused = Paused::new(db, table);
        let running = outrun(&paused.db, &paused.table);
        let attempt = |in_closure: bool, polls: usize| {
            let (table, first) = (paused.table.clone(), paused.take_keys());
            let run = paused.db.run(async move |tx| {
                let _panics = PanicsWhenDropped;
                put_all(tx, &table, first).await?;
                assert!(!in_closure, "a planted panic of a closure");
                Ok(())
            });
            let ended = block_on(poll_at_most(run, polls));
            assert!(ended.is_none_or(|result| result.is_err()), "its transaction is aborted");
        };
        for in_closure in [false, true] {
            [1, 2, 3, MAX_POLLS].into_iter().for_each(|polls| attempt(in_closure, polls));
        }
        let (table, first) = (paused.table.clone(), paused.take_keys());
        paused.db.run_blocking(async move |tx| put_all(tx, &table, first).await).unwrap();
        paused.note(first, true);
        assert_eq!(keys(&paused.db, &paused.table), (first..first + RECORDS).collect());
        drop(running);
        paused.db.close().unwrap();
    });
}

/// A closure blocks a worker's thread until a writer of another worker has waited for a pause.
/// Another closure waits for a writer with an executor that blocks its worker.
#[test]
fn closures_that_block_a_worker_during_pauses_end() {
    with_limit(PART_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let (db, table) = open_with(directory.path(), Options::default().workers(2));
        let running = outrun(&db, &table);
        let (unblock, wait) = mpsc::channel::<()>();
        let wait = Mutex::new(wait);
        let mut blocked = pin!(db.run(async move |_tx| {
            _ = wait.lock().unwrap().recv();
            Ok(())
        }));
        assert!(blocked.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        let waits = db.stats().suspensions.log_space;
        scope(|scope| {
            let writing = scope.spawn(|| {
                let table = table.clone();
                db.run_blocking(async move |tx| put_all(tx, &table, 0).await).unwrap();
            });
            while !writing.is_finished() && db.stats().suspensions.log_space == waits {
                std::thread::yield_now();
            }
            unblock.send(()).unwrap();
        });
        block_on(blocked).unwrap();
        let blocks = table.clone();
        let blocked = db.run_blocking(async move |tx| block_on(put_all(tx, &blocks, RECORDS)));
        assert!(matches!(blocked, Ok(()) | Err(Error::Misuse(_))), "{blocked:?}");
        let written = if blocked.is_ok() { 2 * RECORDS } else { RECORDS };
        assert_eq!(keys(&db, &table), (0..written).collect());
        drop(running);
        db.close().unwrap();
    });
}

/// Opens a database on a simulated disk, and wakes its worker repeatedly, because few timeouts of a
/// simulated device end.
fn open_on(disk: &SimulatedDisk) -> (Database, Records) {
    let options = Options::default().tuning(Tuning::default().log_segment_bytes(SEGMENT_BYTES));
    let db = Database::open_simulated(disk, options, 1).unwrap().watched();
    let table = block_on(db.open_or_create_table("records")).unwrap();
    let weak = db.downgrade();
    std::thread::spawn(move || {
        while let Some(db) = weak.upgrade() {
            _ = db.run_blocking(async |_tx| Ok(()));
            drop(db);
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    (db, table)
}

/// Lets three threads write until each fails, and returns the acknowledged records and the errors.
/// Calls `interfere` when all have waited for a pause.
fn write_until_failed(
    db: &Database,
    table: &Records,
    interfere: impl FnOnce(),
) -> (BTreeSet<u64>, Vec<Error>) {
    scope(|scope| {
        let waits = db.stats().suspensions.log_space;
        let writing = [0, 1000, 2000].map(|first| {
            scope.spawn(move || {
                let mut written = BTreeSet::new();
                for key in first.. {
                    match block_on(db.put(table, &key, &vec![key as u8; VALUE_BYTES][..])) {
                        Ok(()) => _ = written.insert(key),
                        Err(error) => return (written, error),
                    }
                }
                unreachable!("the keys have no end");
            })
        });
        while db.stats().suspensions.log_space < waits + 6 {
            std::thread::yield_now();
        }
        interfere();
        let (written, errors): (Vec<_>, Vec<_>) =
            writing.into_iter().map(|thread| thread.join().unwrap()).unzip();
        (written.into_iter().flatten().collect(), errors)
    })
}

#[test]
fn a_log_that_fails_during_a_pause_fails_all_writers() {
    with_limit(PART_SECONDS, |_| {
        let disk = SimulatedDisk::new(1);
        let (db, table) = open_on(&disk);
        let running = outrun(&db, &table);
        let fail = || disk.set_faults(Faults { failed_syncs: 1, ..Faults::default() });
        let (written, errors) = write_until_failed(&db, &table, fail);
        assert_eq!(errors.len(), 3, "{errors:?}");
        drop(running);
        _ = db.close();
        drop((db, table));
        disk.set_faults(Faults::default());
        let (db, table) = open_on(&disk);
        assert!(keys(&db, &table).is_superset(&written));
        db.close().unwrap();
    });
}

#[test]
fn a_disk_that_fills_up_during_a_pause_refuses_all_writers() {
    with_limit(PART_SECONDS, |_| {
        let disk = SimulatedDisk::new(2);
        let (db, table) = open_on(&disk);
        let running = outrun(&db, &table);
        let fill = || disk.set_faults(Faults { capacity: 1, ..Faults::default() });
        let (written, errors) = write_until_failed(&db, &table, fill);
        let are_full = errors.iter().all(|error| matches!(error, Error::DiskFull(_)));
        assert!(are_full, "{errors:?}");
        let key = *written.first().unwrap();
        assert!(block_on(db.delete(&table, &key)).unwrap());
        disk.set_faults(Faults::default());
        write_until_paused(&db, &table).unwrap();
        drop(running);
        db.close().unwrap();
        drop((db, table));
        let (db, table) = open_on(&disk);
        let found = keys(&db, &table);
        assert!(
            !found.contains(&key)
                && written.iter().all(|other| *other == key || found.contains(other))
        );
        db.close().unwrap();
    });
}
