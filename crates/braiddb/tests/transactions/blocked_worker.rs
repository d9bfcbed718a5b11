//! A closure that blocks its worker's thread delays no transaction that has not begun: another
//! worker takes over the transactions sent to the blocked one.

use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;

use crate::common::{Watched, with_limit};
use braiddb::{Database, Error, Options, Table};
use pollster::block_on;

const LIMIT_SECONDS: u64 = 120;
const RECORDS: u64 = 100;

fn open(workers: usize) -> (Database, Table<u64, u64>) {
    let db = Database::in_memory(Options::default().workers(workers)).unwrap().watched();
    let table: Table<u64, u64> = block_on(db.open_or_create_table("records")).unwrap();
    for key in 0..RECORDS {
        block_on(db.put(&table, &key, &key)).unwrap();
    }
    (db, table)
}

/// Reads a record in a transaction of a worker, which `db.get` may do without.
fn read(db: &Database, table: &Table<u64, u64>, key: &u64) -> Result<Option<u64>, Error> {
    let (table, key) = (table.clone(), *key);
    db.run_blocking(async move |tx| tx.get(&table, &key).await)
}

/// Blocks the threads of this number of workers, runs `body`, and releases them.
fn with_blocked(db: &Database, workers: usize, body: impl FnOnce()) {
    let all_blocked = Arc::new(Barrier::new(workers + 1));
    let blocked: Vec<_> = (0..workers)
        .map(|_| {
            let (go_on, waits) = channel::<()>();
            let (db, all_blocked) = (db.clone(), all_blocked.clone());
            let waits = Mutex::new(waits);
            let thread = std::thread::spawn(move || {
                db.run_blocking(async move |_| {
                    all_blocked.wait();
                    _ = waits.lock().unwrap().recv();
                    Ok(())
                })
            });
            (go_on, thread)
        })
        .collect();
    all_blocked.wait();
    body();
    for (go_on, thread) in blocked {
        drop(go_on);
        thread.join().unwrap().unwrap();
    }
}

#[test]
fn tasks_of_a_blocked_worker_are_taken_over() {
    with_limit(LIMIT_SECONDS, |_| {
        let (db, table) = open(2);
        with_blocked(&db, 1, || {
            // First all at the same time, so that some may be sent before the worker is known to be
            // blocked; then one after the other.
            std::thread::scope(|scope| {
                for key in 0..8 {
                    let (db, table) = (&db, &table);
                    scope.spawn(move || {
                        assert_eq!(read(db, table, &key).unwrap(), Some(key));
                    });
                }
            });
            for key in 0..RECORDS {
                assert_eq!(read(&db, &table, &key).unwrap(), Some(key));
            }
        });
        // The worker takes part again.
        with_blocked(&db, 1, || {
            assert_eq!(read(&db, &table, &1).unwrap(), Some(1));
        });
        db.close().unwrap();
    });
}

#[test]
fn one_unblocked_worker_suffices() {
    with_limit(LIMIT_SECONDS, |_| {
        let (db, table) = open(4);
        with_blocked(&db, 3, || {
            for key in 0..RECORDS {
                assert_eq!(read(&db, &table, &key).unwrap(), Some(key));
                block_on(db.put(&table, &key, &(key + 1))).unwrap();
            }
        });
        db.close().unwrap();
    });
}

/// Requests that arrived while all workers were blocked run on the first worker that is released.
#[test]
fn waiting_requests_run_on_the_first_released_worker() {
    with_limit(LIMIT_SECONDS, |_| {
        let (db, table) = open(2);
        let asked = Mutex::new(Vec::new());
        with_blocked(&db, 1, || {
            with_blocked(&db, 1, || {
                asked.lock().unwrap().extend((0..8u64).map(|key| {
                    let (db, table) = (db.clone(), table.clone());
                    std::thread::spawn(move || read(&db, &table, &key))
                }));
            });
            for (key, asked) in (0..8).zip(asked.lock().unwrap().drain(..)) {
                assert_eq!(asked.join().unwrap().unwrap(), Some(key));
            }
        });
        db.close().unwrap();
    });
}

/// Closing waits for the blocked worker, and every caller gets a result.
#[test]
fn closing_with_a_blocked_worker_answers_all_callers() {
    with_limit(LIMIT_SECONDS, |_| {
        let (db, table) = open(3);
        let (mut asked, mut closing) = (Vec::new(), None);
        with_blocked(&db, 1, || {
            asked.extend((0..32u64).map(|key| {
                let (db, table) = (db.clone(), table.clone());
                std::thread::spawn(move || (key, read(&db, &table, &key)))
            }));
            let db = db.clone();
            closing = Some(std::thread::spawn(move || db.close()));
        });
        for asked in asked {
            let (key, found) = asked.join().unwrap();
            let is_right = match &found {
                Ok(value) => *value == Some(key),
                Err(error) => matches!(error, Error::Closed),
            };
            assert!(is_right, "{key}: {found:?}");
        }
        closing.into_iter().for_each(|closing| closing.join().unwrap().unwrap());
    });
}

/// Workers that watch one another sleep when no worker has work.
#[test]
fn idle_workers_do_not_wake_each_other() {
    with_limit(LIMIT_SECONDS, |_| {
        let (db, table) = open(4);
        with_blocked(&db, 1, || {
            assert_eq!(read(&db, &table, &1).unwrap(), Some(1));
        });
        let sleeps = || db.stats().workers.iter().map(|worker| worker.sleeps).collect::<Vec<_>>();
        // Housekeeping may wake them a few more times. Watching would wake them every 10 ms.
        std::thread::sleep(Duration::from_secs(1));
        let before = sleeps();
        std::thread::sleep(Duration::from_secs(2));
        let after = sleeps();
        for (before, after) in before.iter().zip(&after) {
            assert!(after - before < 50, "{before} to {after}: {:#?}", db.stats().workers);
        }
        db.close().unwrap();
    });
}
