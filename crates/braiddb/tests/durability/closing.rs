//! Closing, by a call or by dropping the last handle, at any time and on any thread. It completes,
//! all waiters receive a result, every drawn input gets a reply, and the directory is unlocked.

mod cancelled_calls;

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};
use std::time::Duration;

use crate::common::{Watched, with_limit};
use braiddb::{
    BusyWith, Database, Durability, Error, Misuse, Options, Outcome, Policy, Result, SourceRun,
    Table, Transaction, TransactionEnd, Tuning,
};
use pollster::block_on;

type Records = Table<u64, u64>;

/// Far more than a test takes, or a round of one with rounds, on a loaded machine.
const LIMIT_SECONDS: u64 = 120;

fn options() -> Options {
    Options::default().workers(2).tuning(Tuning::default().log_segment_bytes(1 << 20))
}

/// Opens a database in a directory or in memory; the time limit prints its state.
fn open(directory: Option<&Path>) -> (Database, Records) {
    let db = match directory {
        Some(directory) => Database::open(directory, options()).unwrap().watched(),
        None => Database::in_memory(options()).unwrap().watched(),
    };
    let table = block_on(db.open_or_create_table("records")).unwrap();
    (db, table)
}

/// Counts drawn inputs and replies.
#[derive(Clone, Debug, Default)]
struct Counts(Arc<(AtomicU64, AtomicU64)>);

impl Counts {
    fn drawn(&self) -> u64 {
        self.0.0.load(Ordering::SeqCst)
    }

    fn draw(&self) -> u64 {
        self.0.0.fetch_add(1, Ordering::SeqCst)
    }

    fn replied(&self) -> u64 {
        self.0.1.load(Ordering::SeqCst)
    }

    fn reply(&self) {
        self.0.1.fetch_add(1, Ordering::SeqCst);
    }
}

/// Starts an endless source; every `waits`-th of its transactions waits for an event that never
/// happens.
fn endless(
    db: &Database,
    table: &Records,
    worker: usize,
    waits: u64,
    counts: &Counts,
) -> SourceRun {
    let (table, drawn, replied) = (table.clone(), counts.clone(), counts.clone());
    let body = async move |tx: &Transaction, input: &u64| {
        tx.put(&table, &(input % 100), input).await?;
        if *input % waits == waits - 1 {
            std::future::pending::<()>().await;
        }
        Ok(())
    };
    let reply = move |_input: u64, result: Result<Outcome<()>>| {
        replied.reply();
        result.map(drop)
    };
    let inputs = std::iter::from_fn(move || Some(drawn.draw()));
    db.transaction().run_source(worker, inputs, body, reply).unwrap()
}

fn wait_until(condition: impl Fn() -> bool) {
    while !condition() {
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn is_closed<T: std::fmt::Debug>(result: Result<T>) {
    assert!(matches!(result, Err(Error::Closed)), "{result:?}");
}

/// Yields forever, like a loop that polls a flag which is never set.
async fn give_way_for_ever() {
    std::future::poll_fn(|context| {
        context.waker().wake_by_ref();
        std::task::Poll::<()>::Pending
    })
    .await;
}

#[test]
fn closing_ends_tasks_that_wake_themselves() {
    with_limit(LIMIT_SECONDS, |_| {
        for policy in [Policy::DualQueue, Policy::Batch, Policy::Pipeline, Policy::Sequential] {
            let db = Database::in_memory(options().tune(|tuning| tuning.policy(policy)))
                .unwrap()
                .watched();
            let (begins, begun) = channel();
            let waiting: Vec<_> = (0..4)
                .map(|_| {
                    let (db, begins) = (db.clone(), begins.clone());
                    std::thread::spawn(move || {
                        db.run_blocking(async move |_| {
                            _ = begins.send(());
                            give_way_for_ever().await;
                            Ok(())
                        })
                    })
                })
                .collect();
            // Each policy begins at least one.
            begun.recv().unwrap();
            db.close().unwrap();
            waiting.into_iter().for_each(|waiting| is_closed(waiting.join().unwrap()));
        }
    });
}

#[test]
fn closing_ends_endless_sources() {
    with_limit(LIMIT_SECONDS, |_| {
        for waits in [u64::MAX, 7] {
            let (db, table) = open(None);
            let counts = Counts::default();
            let sources: Vec<_> =
                (0..2).map(|worker| endless(&db, &table, worker, waits, &counts)).collect();
            // This source is queued behind an endless one and never begins.
            let behind = Counts::default();
            let queued = endless(&db, &table, 0, waits, &behind);
            wait_until(|| counts.replied() > 20);
            db.close().unwrap();
            for source in sources {
                is_closed(source.wait());
            }
            is_closed(queued.wait());
            assert_eq!(counts.drawn(), counts.replied());
            assert_eq!(behind.drawn(), 0);
            is_closed(db.run_source(0, 0..3, async |_tx, _input: &i32| Ok(())).map(drop));
        }
    });
}

#[test]
fn a_source_that_ended_before_closing_succeeded() {
    with_limit(LIMIT_SECONDS, |_| {
        let (db, table) = open(None);
        let (counts, over) = (Counts::default(), Arc::new(AtomicBool::new(false)));
        let (replied, ended) = (counts.clone(), over.clone());
        let inputs = (0..10_u64).chain(std::iter::from_fn(move || {
            ended.store(true, Ordering::SeqCst);
            None
        }));
        let body = async move |tx: &Transaction, input: &u64| tx.put(&table, input, input).await;
        let reply = move |_input, result: Result<Outcome<()>>| {
            replied.reply();
            result.map(drop)
        };
        let source = db.transaction().run_source(0, inputs, body, reply).unwrap();
        wait_until(|| over.load(Ordering::SeqCst) && counts.replied() == 10);
        db.close().unwrap();
        source.wait().unwrap();
    });
}

/// A source's transaction retries while an interactive transaction holds the record.
#[test]
fn closing_ends_tasks_that_wait_for_an_open_transaction() {
    with_limit(LIMIT_SECONDS, |_| {
        let (db, table) = open(None);
        let holder = block_on(db.begin()).unwrap();
        block_on(holder.put(&table, &1, &1)).unwrap();
        let (puts, runs) = (table.clone(), table.clone());
        let source =
            db.run_source(1, [1_u64], async move |tx, key| tx.put(&puts, key, &2).await).unwrap();
        let begun = Arc::new(AtomicBool::new(false));
        let noted = begun.clone();
        let run = db.transaction().max_attempts(u32::MAX).run(async move |tx| {
            // Relaxed: a flag that is polled until it is set.
            noted.store(true, Ordering::Relaxed);
            tx.put(&runs, &1, &3).await
        });
        let run = std::thread::spawn(move || block_on(run).map_err(|error: Error| error));
        wait_until(|| begun.load(Ordering::Relaxed) && db.stats().retries > 10);
        db.close().unwrap();
        // Closing aborted the transaction that they waited for, so they completed normally.
        run.join().unwrap().unwrap();
        let ended = source.wait();
        assert!(matches!(ended, Ok(()) | Err(Error::Closed)), "{ended:?}");
        assert!(matches!(
            block_on(holder.commit()),
            Err(Error::TransactionEnded(TransactionEnd::Finished))
        ));
    });
}

#[test]
#[ignore = "slow: the gate runs it"]
fn several_threads_may_close_at_the_same_time() {
    for round in 0..20_u64 {
        with_limit(LIMIT_SECONDS, move |_| {
            let directory = tempfile::tempdir().unwrap();
            let (db, table) = open(Some(directory.path()));
            let counts = Counts::default();
            let source = endless(&db, &table, 0, 5, &counts);
            let open_one = block_on(db.begin()).unwrap();
            block_on(open_one.put(&table, &u64::MAX, &round)).unwrap();
            let closers: Vec<_> = (0..4)
                .map(|_| {
                    let (db, directory) = (db.clone(), directory.path().to_owned());
                    std::thread::spawn(move || {
                        db.close().unwrap();
                        // The lock is free once any call has returned. The test takes it
                        // shared, because other threads test it too.
                        let lock = std::fs::File::open(directory.join("LOCK")).unwrap();
                        lock.try_lock_shared().is_ok()
                    })
                })
                .collect();
            assert!(
                closers.into_iter().all(|closer| closer.join().unwrap()),
                "locked after closing"
            );
            is_closed(source.wait());
            assert_eq!(counts.drawn(), counts.replied());
            db.close().unwrap();
        });
    }
}

/// The directory is unlocked when `close` returns, although handles of all kinds still exist.
#[test]
fn a_closed_database_releases_its_directory() {
    with_limit(LIMIT_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let (db, table) = open(Some(directory.path()));
        let put = |db: &Database, table: &Records, value: u64| {
            let table = table.clone();
            db.run_blocking(async move |tx| tx.put(&table, &1, &value).await)
        };
        put(&db, &table, 1).unwrap_or_else(|error: Error| panic!("{error}"));
        let other = db.clone();
        let transaction = block_on(db.begin()).unwrap();
        let before = db.stats();
        db.close().unwrap();
        let again = Database::open(directory.path(), options()).unwrap().watched();
        let reopened: Records = block_on(again.open_table("records")).unwrap();
        put(&again, &reopened, 2).unwrap_or_else(|error: Error| panic!("{error}"));

        is_closed(put(&other, &table, 3));
        is_closed(block_on(other.begin()).map(drop));
        is_closed(block_on(other.checkpoint()));
        is_closed(block_on(other.compact()));
        is_closed(other.check());
        is_closed(other.backup(directory.path().join("backup")));
        is_closed(other.log_blocks(0, 10));
        is_closed(block_on(other.tables()));
        assert!(matches!(
            block_on(transaction.commit()),
            Err(Error::TransactionEnded(TransactionEnd::Finished))
        ));
        let after = other.stats();
        assert_eq!((after.committed, after.log.disk_bytes > 0), (before.committed, true));
        other.close().unwrap();
        drop((db, other, table));

        again.close().unwrap();
        std::fs::remove_dir_all(directory.path()).unwrap();
        std::fs::create_dir(directory.path()).unwrap();
    });
}

#[test]
fn a_closed_read_only_database_releases_its_directory() {
    with_limit(LIMIT_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let (db, _) = open(Some(directory.path()));
        db.close().unwrap();
        let volatile = options().durability(Durability::Volatile);
        let reader = Database::open(directory.path(), volatile).unwrap().watched();
        assert!(Database::open(directory.path(), options()).is_err(), "it is locked");
        reader.close().unwrap();
        Database::open(directory.path(), options()).unwrap().watched();
    });
}

#[test]
fn closing_during_checks_backups_and_checkpoints_succeeds() {
    let mut done = 0;
    for round in 0..12_u64 {
        done += with_limit(LIMIT_SECONDS, move |_| {
            let mut done = 0;
            let directory = tempfile::tempdir().unwrap();
            let home = directory.path().join("db");
            let (db, table) = open(Some(&home));
            let fill = table.clone();
            let filled = db.run_blocking(async move |tx| {
                for key in 0..20_000 {
                    tx.put(&fill, &key, &key).await?;
                }
                Ok(())
            });
            filled.unwrap();
            let began = Arc::new(AtomicU64::new(0));
            let begin = |job: fn(&Database, &Path) -> Result<()>| {
                let (db, path, began) = (db.clone(), directory.path().join("to"), began.clone());
                std::thread::spawn(move || {
                    began.fetch_add(1, Ordering::SeqCst);
                    job(&db, &path)
                })
            };
            let jobs = [
                begin(|db, _| db.check().map(drop)),
                begin(|db, path| db.backup(path).map(drop)),
                begin(|db, _| block_on(db.checkpoint()).map(drop)),
                begin(|db, _| block_on(db.compact()).map(drop)),
                begin(|db, _| db.log_blocks(0, 1 << 20).map(drop)),
            ];
            wait_until(|| began.load(Ordering::SeqCst) == 5);
            std::thread::sleep(Duration::from_micros(round * 700));
            db.close().unwrap();
            Database::open(&home, options()).unwrap().close().unwrap();
            for job in jobs {
                match job.join().unwrap() {
                    Ok(()) => done += 1,
                    Err(Error::Closed | Error::Busy(BusyWith::Checkpoint)) => {}
                    Err(other) => panic!("{other}"),
                }
            }
            done
        });
    }
    assert!(done < 12 * 5, "nothing was under way when the database was closed");
}

/// Sends the test the result of a blocking call on a worker.
fn says_it_would_block(db: &Database, said: &Sender<bool>) {
    said.send(matches!(db.close(), Err(Error::Misuse(Misuse::WouldBlock)))).unwrap();
}

#[test]
fn closing_on_a_worker_fails() {
    with_limit(LIMIT_SECONDS, |_| {
        let (db, _table) = open(None);
        let (said, hear) = channel();
        let (inner, tell) = (db.clone(), said.clone());
        let run = db.run_blocking(async move |_tx| {
            says_it_would_block(&inner, &tell);
            Ok(())
        });
        run.unwrap();
        let transaction = block_on(db.begin()).unwrap();
        let (inner, tell) = (db.clone(), said.clone());
        let step = transaction.step(async move |_tx: &Transaction| {
            says_it_would_block(&inner, &tell);
            Ok(())
        });
        block_on(step).unwrap();
        let handles = [db.clone(), db.clone(), db.clone()];
        let [in_input, in_body, in_reply] = handles.map(|db| (db, Mutex::new(said.clone())));
        let inputs = std::iter::once_with(move || {
            says_it_would_block(&in_input.0, &in_input.1.lock().unwrap());
        });
        let body = async move |_tx: &Transaction, _input: &()| {
            says_it_would_block(&in_body.0, &in_body.1.lock().unwrap());
            Ok(())
        };
        let reply = move |_input, result: Result<Outcome<()>>| {
            says_it_would_block(&in_reply.0, &in_reply.1.lock().unwrap());
            result.map(drop)
        };
        db.transaction().run_source(1, inputs, body, reply).unwrap().wait().unwrap();
        drop(said);
        assert_eq!(hear.iter().collect::<Vec<_>>(), [true; 5]);
        db.close().unwrap();
    });
}

/// The place where the last handle of a database is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LastDrop {
    InIterator,
    WithIterator,
    WithInput,
    InBody,
    WithBody,
    InReply,
    InStep,
    WithCancelledRun,
    OnAnotherDatabasesWorker,
}

const LAST_DROPS: [LastDrop; 9] = [
    LastDrop::InIterator,
    LastDrop::WithIterator,
    LastDrop::WithInput,
    LastDrop::InBody,
    LastDrop::WithBody,
    LastDrop::InReply,
    LastDrop::InStep,
    LastDrop::WithCancelledRun,
    LastDrop::OnAnotherDatabasesWorker,
];

/// The last handle, which is dropped after all others.
#[derive(Clone)]
struct Last(Arc<(Mutex<Option<Database>>, AtomicBool)>);

impl Last {
    fn new(db: &Database) -> Self {
        Self(Arc::new((Mutex::new(Some(db.clone())), AtomicBool::new(false))))
    }

    /// Signals that all other handles are gone.
    fn go(&self) {
        self.0.1.store(true, Ordering::SeqCst);
    }

    fn take(&self) -> Option<Database> {
        wait_until(|| self.0.1.load(Ordering::SeqCst));
        self.0.0.lock().unwrap().take()
    }

    fn drop_at(&self, here: LastDrop, place: LastDrop) {
        if here == place {
            drop(self.take().expect("once"));
        }
    }

    /// Returns a handle for an object that is dropped as a whole.
    fn at(&self, here: LastDrop, place: LastDrop) -> Option<DropsLast> {
        (here == place).then(|| DropsLast(self.clone()))
    }
}

/// Drops the last handle in its own drop.
struct DropsLast(Last);

impl Drop for DropsLast {
    fn drop(&mut self) {
        drop(self.0.take().expect("once"));
    }
}

/// Starts a source with one input, whose transaction, reply or destructor drops the last handle.
fn source_that_drops_last(db: &Database, last: &Last, place: LastDrop) -> SourceRun {
    use LastDrop::*;
    let [in_iterator, in_body, in_reply] = [(); 3].map(|()| last.clone());
    let with_iterator = last.at(WithIterator, place);
    let with_body = last.at(WithBody, place);
    let inputs = std::iter::once_with(move || {
        let _with_iterator = &with_iterator;
        in_iterator.drop_at(InIterator, place);
        in_iterator.at(WithInput, place)
    });
    let body = async move |_tx: &Transaction, _input: &Option<DropsLast>| {
        let _with_body = &with_body;
        in_body.drop_at(InBody, place);
        Ok(())
    };
    let reply = move |input, result: Result<Outcome<()>>| {
        drop(input);
        in_reply.drop_at(InReply, place);
        result.map(drop)
    };
    db.transaction().run_source(0, inputs, body, reply).unwrap()
}

#[test]
fn the_last_handle_may_be_dropped_on_a_worker() {
    for place in LAST_DROPS {
        with_limit(LIMIT_SECONDS, move |limit| {
            limit.on_timeout("the place", move || format!("{place:?}"));
            let directory = tempfile::tempdir().unwrap();
            let db = Database::open(directory.path(), options()).unwrap().watched();
            let table: Records = block_on(db.create_table("records")).unwrap();
            let counts = Counts::default();
            let endless = endless(&db, &table, 1, 11, &counts);
            wait_until(|| counts.replied() > 10);
            let last = Last::new(&db);
            let other = Database::in_memory(options()).unwrap().watched();
            let mut thread = None;
            match place {
                LastDrop::InStep => {
                    let (transaction, last) = (block_on(db.begin()).unwrap(), last.clone());
                    thread = Some(std::thread::spawn(move || {
                        let step = transaction.step(async move |_tx: &Transaction| {
                            last.drop_at(LastDrop::InStep, place);
                            Ok(())
                        });
                        // The last step: its transaction ended with its database.
                        _ = block_on(step);
                    }));
                }
                LastDrop::WithCancelledRun => {
                    let with_closure = last.at(place, place);
                    let run = db.run(async move |_tx| {
                        let _with_closure = &with_closure;
                        std::future::pending::<Result<()>>().await
                    });
                    let mut run = Box::pin(run);
                    let mut context = Context::from_waker(Waker::noop());
                    assert!(run.as_mut().poll(&mut context).is_pending());
                }
                LastDrop::OnAnotherDatabasesWorker => {
                    let (other, last) = (other.clone(), last.clone());
                    thread = Some(std::thread::spawn(move || {
                        let run = other.run_blocking(async move |_tx| {
                            last.drop_at(place, place);
                            Ok(())
                        });
                        run.unwrap();
                    }));
                }
                _ => drop(source_that_drops_last(&db, &last, place)),
            }
            drop((db, table));
            last.go();
            // The workers close the database and notify waiters.
            is_closed(endless.wait());
            assert_eq!(counts.drawn(), counts.replied());
            let again = loop {
                match Database::open(directory.path(), options()) {
                    Ok(db) => break db,
                    Err(_) => std::thread::sleep(Duration::from_millis(1)),
                }
            };
            assert_eq!(again.check().unwrap().problems, Vec::<String>::new());
            thread.into_iter().for_each(|thread| thread.join().unwrap());
            other.close().unwrap();
        });
    }
}
