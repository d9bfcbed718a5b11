//! Panics planted in the engine's own code. The engine stops for all users, every waiter receives
//! the reason, no commit is acknowledged any more, and the database opens again with all
//! acknowledged commits.

use crate::database::Tuning;
use crate::database::error::BusyWith;
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use futures_util::FutureExt;
use pollster::block_on;

use super::super::{Database, Error, Options, Outcome, Result, Table, TableOptions, Transaction};
use crate::common::{Watched, with_limit};
use crate::transaction::PanicPoint;

type Records = Table<u64, u64>;

/// A time limit far above the duration of a test on a loaded machine.
const LIMIT_SECONDS: u64 = 120;

fn options() -> Options {
    Options::default().workers(2).tuning(Tuning::default().log_segment_bytes(1 << 20))
}

fn is_failed<T: std::fmt::Debug>(result: Result<T>, message: &str) {
    match result {
        Err(Error::Failed { message: told }) => assert_eq!(told, message),
        other => panic!("{other:?}"),
    }
}

/// Repeats an operation until it fails, and returns the error.
fn until_failed(
    db: &Database,
    mut act: impl FnMut(&Database) -> Result<()> + Send + 'static,
) -> JoinHandle<Error> {
    let db = db.clone();
    std::thread::spawn(move || {
        loop {
            match act(&db) {
                Ok(()) | Err(Error::Busy(BusyWith::Checkpoint) | Error::Conflict { .. }) => {}
                Err(error) => return error,
            }
        }
    })
}

/// Callers of every kind, running or waiting.
struct Callers {
    working: Vec<(&'static str, JoinHandle<Error>)>,
    /// The last acknowledged put.
    acknowledged: Arc<AtomicU64>,
    drawn: Arc<AtomicU64>,
    replied: Arc<AtomicU64>,
    /// True if the upkeep caller also compacts.
    compacts: Arc<AtomicBool>,
}

impl Callers {
    fn begin(db: &Database, table: &Records, paged: &Records) -> Self {
        let mut callers = Self {
            working: Vec::new(),
            acknowledged: Arc::default(),
            drawn: Arc::default(),
            replied: Arc::default(),
            compacts: Arc::default(),
        };
        callers.put_and_scan(db, table);
        callers.use_pages(db, paged);
        callers.roll_back(db, table);
        callers.abort(db, table);
        let working = &mut callers.working;
        // One after the other: only one can run at a time.
        let compacts = callers.compacts.clone();
        let keep_up = move |db: &Database| {
            if compacts.load(Ordering::SeqCst) {
                block_on(db.compact())?;
            }
            block_on(db.checkpoint())?;
            db.check().map(drop)
        };
        working.push(("upkeep", until_failed(db, keep_up)));
        let transaction = block_on(db.begin()).unwrap();
        let steps = table.clone();
        let step = move |_: &Database| block_on(transaction.get(&steps, &1)).map(drop);
        working.push(("steps", until_failed(db, step)));
        let waiting =
            |db: &Database| db.run_blocking(async |_tx| std::future::pending::<Result<()>>().await);
        working.push(("a wait for something foreign", until_failed(db, waiting)));
        callers.source(db, table);
        callers
    }

    fn put_and_scan(&mut self, db: &Database, table: &Records) {
        let (table, acknowledged, mut next) = (table.clone(), self.acknowledged.clone(), 0);
        let put = move |db: &Database| {
            let table = table.clone();
            next += 1;
            db.run_blocking(async move |tx| {
                tx.put(&table, &next, &next).await?;
                tx.scan(&table, ..)?.next().await?;
                Ok::<_, Error>(())
            })?;
            acknowledged.store(next, Ordering::SeqCst);
            Ok(())
        };
        self.working.push(("a put", until_failed(db, put)));
    }

    fn use_pages(&mut self, db: &Database, paged: &Records) {
        let paged = paged.clone();
        let use_pages = move |db: &Database| {
            let paged = paged.clone();
            db.run_blocking(async move |tx| {
                let key = fastrand::u64(..1000);
                tx.put(&paged, &key, &key).await?;
                tx.get(&paged, &fastrand::u64(..1000)).await?;
                Ok(())
            })
        };
        self.working.push(("pages", until_failed(db, use_pages)));
    }

    fn roll_back(&mut self, db: &Database, table: &Records) {
        let table = table.clone();
        let roll_back = move |db: &Database| {
            let table = table.clone();
            db.run_blocking(async move |tx| {
                tx.put(&table, &(u64::MAX - 1), &1).await?;
                let savepoint = tx.savepoint();
                tx.put(&table, &(u64::MAX - 1), &2).await?;
                tx.put(&table, &(u64::MAX - 2), &2).await?;
                tx.rollback_to(&savepoint).await
            })
        };
        self.working.push(("a rollback", until_failed(db, roll_back)));
    }

    fn abort(&mut self, db: &Database, table: &Records) {
        let table = table.clone();
        let abort = move |db: &Database| {
            let table = table.clone();
            let aborted = db.run_blocking(async move |tx| {
                tx.put(&table, &u64::MAX, &1).await?;
                Err::<(), _>(Error::Closed)
            });
            if matches!(aborted, Err(Error::Closed)) { Ok(()) } else { aborted }
        };
        self.working.push(("an abort", until_failed(db, abort)));
    }

    /// Runs an endless source. Some of its transactions wait forever.
    fn source(&mut self, db: &Database, table: &Records) {
        let (table, drawn, replied) = (table.clone(), self.drawn.clone(), self.replied.clone());
        let inputs = std::iter::from_fn(move || Some(drawn.fetch_add(1, Ordering::SeqCst)));
        let body = async move |tx: &Transaction, input: &u64| {
            tx.get(&table, &(input % 10)).await?;
            if input.is_multiple_of(1000) {
                std::future::pending::<()>().await;
            }
            Ok(())
        };
        let reply = move |_, result: Result<Outcome<()>>| {
            replied.fetch_add(1, Ordering::SeqCst);
            result.map(drop)
        };
        let source = db.transaction().run_source(1, inputs, body, reply).unwrap();
        let waits = std::thread::spawn(move || source.wait().expect_err("it has no end"));
        self.working.push(("a source", waits));
    }

    /// Asserts that all callers received the error. Returns the last acknowledged put.
    fn are_told(self, message: &str) -> u64 {
        for (what, thread) in self.working {
            match thread.join().unwrap() {
                Error::Failed { message: told } => assert_eq!(told, message, "{what}"),
                other => panic!("{what}: {other:?}"),
            }
        }
        let (drawn, replied) =
            (self.drawn.load(Ordering::SeqCst), self.replied.load(Ordering::SeqCst));
        assert!(drawn > 0 && drawn == replied, "{drawn} drawn, {replied} replied to");
        self.acknowledged.load(Ordering::SeqCst)
    }
}

/// Asserts that every call on a failed database returns the failure.
fn says_so(db: &Database, table: &Records, directory: &Path, message: &str) {
    let put = table.clone();
    is_failed(db.run_blocking(async move |tx| tx.put(&put, &1, &1).await), message);
    is_failed(block_on(db.begin()).map(drop), message);
    is_failed(block_on(db.tables()), message);
    is_failed(block_on(db.checkpoint()), message);
    is_failed(block_on(db.compact()), message);
    is_failed(db.check(), message);
    is_failed(db.backup(directory.join("backup")), message);
    is_failed(db.run_source(0, [1], async |_tx, _input: &i32| Ok(())).map(drop), message);
    is_failed(db.close(), message);
    is_failed(db.close(), message);
    is_failed(db.log_blocks(0, 1), message);
    assert!(db.stats().committed > 0, "statistics answer");
}

fn fails_for_all(point: PanicPoint) {
    with_limit(LIMIT_SECONDS, move |limit| {
        let directory = tempfile::tempdir().unwrap();
        let db = Database::open(directory.path(), options()).unwrap().watched();
        limit.on_timeout("point", move || format!("{point:?}"));
        let table: Records = block_on(db.create_table("records")).unwrap();
        let on_pages = TableOptions::default().paged();
        let paged: Records = block_on(db.create_table_with("paged", on_pages)).unwrap();
        let callers = Callers::begin(&db, &table, &paged);
        while callers.acknowledged.load(Ordering::SeqCst) < 5
            || callers.drawn.load(Ordering::SeqCst) < 5
        {
            std::thread::yield_now();
        }
        db.shared.engine.planted_panic.plant(point);
        // Set only now: an earlier compaction would wait for the transactions that stay open.
        callers.compacts.store(true, Ordering::SeqCst);
        let message = format!("planted in {point:?}");
        let acknowledged = callers.are_told(&message);
        says_so(&db, &table, directory.path(), &message);
        // The directory is released and contains everything acknowledged.
        let again = Database::open(directory.path(), options()).unwrap().watched();
        assert_eq!(again.check().unwrap().problems, Vec::<String>::new());
        let records: Records = block_on(again.open_table("records")).unwrap();
        let there = again.run_blocking(async move |tx| {
            for key in 1..=acknowledged {
                assert_eq!(tx.get(&records, &key).await?, Some(key));
            }
            Ok::<_, Error>(acknowledged)
        });
        assert_eq!(there.unwrap(), acknowledged);
    });
}

#[test]
fn a_panic_in_the_engine_stops_it_for_all() {
    with_limit(LIMIT_SECONDS, |_| {
        for point in PanicPoint::ALL.into_iter().filter(|point| *point != PanicPoint::Drain) {
            fails_for_all(point);
        }
    });
}

/// The last step of a worker can fail too: `close` reports it, also to several threads.
#[test]
fn a_panic_while_closing_is_told_by_close() {
    with_limit(LIMIT_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let db = Database::open(directory.path(), options()).unwrap().watched();
        db.shared.engine.planted_panic.plant(PanicPoint::Drain);
        let others: Vec<_> = (0..3).map(|_| db.clone()).collect();
        let closers: Vec<_> =
            others.into_iter().map(|db| std::thread::spawn(move || db.close())).collect();
        for closer in closers {
            is_failed(closer.join().unwrap(), "planted in Drain");
        }
        Database::open(directory.path(), options()).unwrap().watched();
    });
}

#[test]
fn a_database_in_memory_fails_for_all_too() {
    for point in [PanicPoint::Read, PanicPoint::Write, PanicPoint::Turn, PanicPoint::Abort] {
        with_limit(LIMIT_SECONDS, move |_| {
            let db = Database::in_memory(options()).unwrap().watched();
            let table: Records = block_on(db.create_table("records")).unwrap();
            let transaction = block_on(db.begin()).unwrap();
            db.shared.engine.planted_panic.plant(point);
            let put = move |db: &Database| {
                let table = table.clone();
                db.run_blocking(async move |tx| {
                    tx.get(&table, &1).await?;
                    tx.put(&table, &fastrand::u64(..), &1).await?;
                    if fastrand::bool() { Ok(()) } else { Err(Error::Busy(BusyWith::Checkpoint)) }
                })
            };
            let message = format!("planted in {point:?}");
            is_failed::<()>(Err(until_failed(&db, put).join().unwrap()), &message);
            is_failed(block_on(transaction.commit()), &message);
            is_failed(db.close(), &message);
        });
    }
}

/// A value whose destructor panics and counts its calls.
struct Bomb(Arc<AtomicU64>);

impl Drop for Bomb {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
        panic!("a destructor");
    }
}

/// Values captured by the failing transaction and others panic when they are dropped during the
/// failure.
#[test]
fn destructors_that_panic_while_the_engine_fails() {
    for point in [PanicPoint::Read, PanicPoint::Commit, PanicPoint::Turn] {
        with_limit(LIMIT_SECONDS, move |_| {
            let directory = tempfile::tempdir().unwrap();
            let db = Database::open(directory.path(), options()).unwrap().watched();
            let table: Records = block_on(db.create_table("records")).unwrap();
            let dropped = [(); 3].map(|()| Arc::<AtomicU64>::default());
            let [first, second, third] = dropped.clone().map(Bomb);
            let (waiting, (began, begun)) = (db.clone(), std::sync::mpsc::channel());
            let began = Mutex::new(began);
            let waits = std::thread::spawn(move || {
                waiting.run_blocking(async move |_tx| {
                    let _captured = &second;
                    began.lock().unwrap().send(()).unwrap();
                    std::future::pending::<Result<()>>().await
                })
            });
            begun.recv().unwrap();
            let source = db.transaction().run_source(
                0,
                [third],
                async |_tx, _input: &Bomb| std::future::pending::<Result<()>>().await,
                |input, result| {
                    // A second panic would hide the reason why the source ended.
                    _ = std::panic::catch_unwind(AssertUnwindSafe(|| drop(input)));
                    result.map(drop)
                },
            );
            let planted = db.clone();
            let run = db.run_blocking(async move |tx| {
                let _captured = &first;
                planted.shared.engine.planted_panic.plant(point);
                tx.get(&table, &1).await?;
                tx.put(&table, &1, &1).await?;
                if point == PanicPoint::Turn {
                    std::future::pending::<()>().await;
                }
                Ok::<_, Error>(())
            });
            let message = format!("planted in {point:?}");
            is_failed(run, &message);
            is_failed(waits.join().unwrap(), &message);
            is_failed(source.unwrap().wait(), &message);
            is_failed(db.close(), &message);
            let dropped = dropped.map(|count| count.load(Ordering::SeqCst));
            assert_eq!(dropped, [1; 3], "{point:?}");
        });
    }
}

/// A closure may catch a panic that passes through `get`. Its transaction must still not be
/// acknowledged.
#[test]
fn a_closure_that_catches_the_engines_panic_commits_nothing() {
    with_limit(LIMIT_SECONDS, |_| {
        let db = Database::in_memory(options()).unwrap().watched();
        let table: Records = block_on(db.create_table("records")).unwrap();
        db.shared.engine.planted_panic.plant(PanicPoint::Read);
        let caught = Arc::new(Mutex::new(false));
        let seen = caught.clone();
        let run = db.run_blocking(async move |tx| {
            let get = AssertUnwindSafe(tx.get(&table, &1)).catch_unwind();
            let is_caught = get.await.is_err();
            *seen.lock().unwrap() = is_caught;
            Ok::<_, Error>(())
        });
        let told = "a transaction's own code caught a panic of the engine's";
        is_failed(run, told);
        is_failed(db.close(), told);
        assert!(*caught.lock().unwrap());
    });
}

/// Repeated drops of the last handle instead of calls of `close`: nothing hangs or aborts.
#[test]
fn engines_that_fail_are_dropped() {
    with_limit(LIMIT_SECONDS, |_| {
        for round in 0..20 {
            let directory = tempfile::tempdir().unwrap();
            let db = Database::open(directory.path(), options()).unwrap().watched();
            let transaction = block_on(db.begin()).unwrap();
            let point = PanicPoint::ALL[round % PanicPoint::ALL.len()];
            db.shared.engine.planted_panic.plant(point);
            drop(db);
            assert!(block_on(transaction.abort()).is_err());
            Database::open(directory.path(), options()).unwrap().watched();
        }
    });
}
