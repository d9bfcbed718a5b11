//! Panics in user code on a worker: in closures, futures, iterators, replies, destructors, wakers
//! and encodings. A panic either becomes the error of its transaction or source, or is only
//! counted. No data is lost, and all other work continues.

mod destructors;

use std::cell::Cell;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use crate::common::{Watched, once_free, with_limit};
use braiddb::{
    Database, DecodeError, EncodeError, EncodedValue, Error, Key, KeyBuffer, Options, Result,
    Table, Transaction, TransactionEnd, Tuning, Value,
};
use futures_channel::oneshot;
use pollster::block_on;

type Records = Table<u64, u64>;

/// A limit far above the duration of any test, even on a loaded machine.
const LIMIT_SECONDS: u64 = 120;

/// A value whose destructor panics on worker threads and counts on all threads.
#[derive(Debug)]
struct Bomb {
    dropped: Arc<AtomicU64>,
}

impl Drop for Bomb {
    fn drop(&mut self) {
        self.dropped.fetch_add(1, Ordering::SeqCst);
        let on_worker =
            std::thread::current().name().is_some_and(|name| name.starts_with("braid-"));
        if on_worker && !std::thread::panicking() {
            panic!("a destructor");
        }
    }
}

/// A database with one table, and bombs for it.
struct Bench {
    db: Database,
    table: Records,
    dropped: Arc<AtomicU64>,
}

impl Bench {
    fn new(workers: usize) -> Self {
        let db = Database::in_memory(Options::default().workers(workers)).unwrap().watched();
        let table = block_on(db.create_table("records")).unwrap();
        Self { db, table, dropped: Arc::default() }
    }

    fn bomb(&self) -> Bomb {
        Bomb { dropped: self.dropped.clone() }
    }

    fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::SeqCst)
    }

    fn get(&self, key: u64) -> Option<u64> {
        let table = self.table.clone();
        self.db
            .run_blocking(async move |tx| tx.get(&table, &key).await)
            .unwrap_or_else(|error: Error| panic!("{error}"))
    }

    fn put(&self, key: u64, value: u64) -> Result<()> {
        let table = self.table.clone();
        self.db.run_blocking(async move |tx| tx.put(&table, &key, &value).await)
    }

    /// Checks that the database works on each worker, and closes it.
    fn finish(self) {
        for key in 1_000..1_010 {
            self.put(key, key).unwrap();
            assert_eq!(self.get(key), Some(key));
        }
        self.db.close().unwrap();
    }
}

fn message<T>(result: Result<T>) -> String {
    match result {
        Err(Error::Panicked(message)) => message,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it did not panic"),
    }
}

/// Waits for one request on the worker. Earlier requests may still be waiting for their first poll.
fn settle(bench: &Bench) {
    bench.get(0);
}

/// Yields to the worker's queue `times` times.
async fn yield_times(times: u64) {
    for _ in 0..times {
        let yielded = Cell::new(false);
        poll_fn(|context| {
            if yielded.replace(true) {
                return Poll::Ready(());
            }
            context.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
    }
}

#[test]
fn a_panic_before_the_closures_future_exists_aborts() {
    with_limit(LIMIT_SECONDS, |_| {
        let bench = Bench::new(1);
        let run = bench.db.run_blocking(|_tx: &Transaction| -> std::future::Ready<Result<()>> {
            panic!("no future")
        });
        assert_eq!(message(run), "no future");
        assert_eq!(bench.db.stats().aborted.panic, 1);
        bench.finish();
    });
}

#[test]
fn a_panic_after_any_operation_aborts() {
    with_limit(LIMIT_SECONDS, |_| {
        let bench = Bench::new(2);
        for step in 0..12_u64 {
            let table = bench.table.clone();
            let run = bench.db.run_blocking(async move |tx| {
                for n in 0..12 {
                    if n == step {
                        panic!("at step {step}");
                    }
                    match n % 4 {
                        0 => tx.put(&table, &n, &n).await?,
                        1 => drop(tx.get(&table, &n).await?),
                        2 => drop(tx.scan(&table, ..)?.next().await?),
                        _ => yield_times(2).await,
                    }
                }
                Ok(())
            });
            assert_eq!(message(run), format!("at step {step}"));
            assert_eq!(bench.get(0), None, "it was aborted");
        }
        assert_eq!(bench.db.stats().aborted.panic, 12);
        bench.finish();
    });
}

#[test]
fn a_panic_in_a_waker_is_contained() {
    struct Loud(std::thread::Thread, AtomicU64);
    impl Wake for Loud {
        fn wake(self: Arc<Self>) {
            self.1.fetch_add(1, Ordering::SeqCst);
            self.0.unpark();
            panic!("a waker");
        }
    }
    with_limit(LIMIT_SECONDS, |_| {
        let bench = Bench::new(1);
        let loud = Arc::new(Loud(std::thread::current(), AtomicU64::new(0)));
        let waker = Waker::from(loud.clone());
        let mut context = Context::from_waker(&waker);
        let (table, (go, gone)) = (bench.table.clone(), oneshot::channel());
        let gone = Mutex::new(Some(gone));
        let mut run = pin!(bench.db.run(async move |tx| {
            let gone = gone.lock().unwrap().take().unwrap();
            gone.await.unwrap();
            tx.put(&table, &1, &1).await
        }));
        assert!(run.as_mut().poll(&mut context).is_pending());
        go.send(()).unwrap();
        let result = loop {
            match run.as_mut().poll(&mut context) {
                Poll::Ready(result) => break result,
                Poll::Pending => std::thread::park(),
            }
        };
        result.unwrap_or_else(|error: Error| panic!("{error}"));
        assert_eq!(bench.get(1), Some(1));
        assert_eq!(loud.1.load(Ordering::SeqCst), 1, "it was woken");
        bench.finish();
    });
}

/// A key and value type whose encoding panics for one value.
#[derive(Clone, Copy, Debug)]
struct Delicate(u64);

const BAD: u64 = 13;

impl Key for Delicate {
    type Owned = u64;
    fn type_name() -> String {
        "delicate".into()
    }
    fn encode(&self, out: &mut KeyBuffer) {
        assert!(self.0 != BAD, "an encoding");
        self.0.encode(out);
    }
    fn decode(bytes: &[u8]) -> Result<u64, DecodeError> {
        <u64 as Key>::decode(bytes).inspect(|key| assert!(*key != BAD + 1, "a decoding"))
    }
    fn decode_part(bytes: &[u8]) -> Result<(u64, &[u8]), DecodeError> {
        u64::decode_part(bytes)
    }
}

impl Value for Delicate {
    type Input = u64;
    type Ref<'a> = u64;
    type Owned = u64;
    fn type_name() -> String {
        "delicate".into()
    }
    fn encode(input: &u64) -> Result<EncodedValue<'_>, EncodeError> {
        assert!(*input != BAD, "a value's encoding");
        <u64 as Value>::encode(input)
    }
    fn decode(bytes: &[u8]) -> Result<u64, DecodeError> {
        <u64 as Value>::decode(bytes)
            .inspect(|value| assert!(*value != BAD + 1, "a value's decoding"))
    }
    fn into_owned(read: u64) -> u64 {
        read
    }
}

#[test]
fn panics_in_encodings_are_contained() {
    with_limit(LIMIT_SECONDS, |_| {
        let bench = Bench::new(1);
        let table: Table<Delicate, Delicate> = block_on(bench.db.create_table("delicate")).unwrap();
        let fill = table.clone();
        let filled = bench.db.run_blocking(async move |tx| {
            tx.put(&fill, &Delicate(BAD + 1), &1).await?;
            tx.put(&fill, &Delicate(1), &(BAD + 1)).await?;
            tx.put(&fill, &Delicate(0), &1).await
        });
        filled.unwrap_or_else(|error: Error| panic!("{error}"));
        let run = |what: usize| {
            let table = table.clone();
            bench.db.run_blocking(async move |tx| {
                match what {
                    0 => drop(tx.get(&table, &Delicate(BAD)).await?),
                    1 => drop(tx.get(&table, &Delicate(1)).await?),
                    2 => tx.put(&table, &Delicate(2), &BAD).await?,
                    3 => drop(tx.last(&table).await?),
                    4 => drop(tx.get_with(&table, &Delicate(1), |value| value).await?),
                    5 => tx
                        .get_with(&table, &Delicate(0), |_| panic!("a lent value"))
                        .await
                        .map(drop)?,
                    6 => drop(tx.scan(&table, Delicate(2)..)?.next().await?),
                    _ => drop(tx.multi_get(&table, &[Delicate(2), Delicate(BAD)]).await?),
                }
                Ok(())
            })
        };
        let told = (0..8).map(run).map(message).collect::<Vec<_>>();
        let expected = [
            "an encoding",
            "a value's decoding",
            "a value's encoding",
            "a decoding",
            "a value's decoding",
            "a lent value",
            "a decoding",
            "an encoding",
        ];
        assert_eq!(told, expected);
        bench.finish();
    });
}

/// The closure's panic drops a suspended read of the engine: that counts as a panic of the closure,
/// not of the engine.
#[test]
fn a_panic_next_to_suspended_reads_aborts() {
    const KEYS: u64 = 66_000;
    with_limit(LIMIT_SECONDS, |_| {
        let bench = Bench::new(1);
        let fill = bench.table.clone();
        let filled = bench.db.run_blocking(async move |tx| {
            for key in 0..KEYS {
                tx.put(&fill, &key, &key).await?;
            }
            Ok(())
        });
        filled.unwrap();
        let mut suspended = 0;
        for round in 0..50_u64 {
            // Another task, without which nothing suspends.
            let table = bench.table.clone();
            let other = bench.db.run(async move |tx| {
                for key in 0..2_000 {
                    tx.get(&table, &(key * 31 % KEYS)).await?;
                }
                Ok(())
            });
            let other = std::thread::spawn(move || block_on(other));
            let (table, pending) = (bench.table.clone(), Arc::new(AtomicU64::new(0)));
            let seen = pending.clone();
            let run = bench.db.run_blocking(async move |tx| -> Result<()> {
                for key in 0..200 {
                    let key = (key * 331 + round * 97) % KEYS;
                    let mut reads = pin!(tx.get(&table, &key));
                    poll_fn(|context| {
                        if reads.as_mut().poll(context).is_ready() {
                            return Poll::Ready(());
                        }
                        seen.fetch_add(1, Ordering::SeqCst);
                        panic!("beside a read");
                    })
                    .await;
                }
                Ok(())
            });
            other.join().unwrap().unwrap();
            suspended += pending.load(Ordering::SeqCst);
            if run.is_err() {
                assert_eq!(message(run), "beside a read");
            }
        }
        assert!(suspended > 0, "no read suspended");
        assert_eq!(bench.db.stats().aborted.panic, suspended);
        bench.finish();
    });
}

/// Steps of an interactive transaction: the step that panics returns the panic, later steps return
/// that the transaction has ended.
#[test]
fn a_step_that_panics_ends_its_transaction() {
    with_limit(LIMIT_SECONDS, |_| {
        let bench = Bench::new(1);
        let transaction = block_on(bench.db.begin()).unwrap();
        block_on(transaction.put(&bench.table, &1, &1)).unwrap();
        let step = transaction.step(async |_tx: &Transaction| -> Result<()> { panic!("a step") });
        assert_eq!(message(block_on(step)), "a step");
        let get = block_on(transaction.get(&bench.table, &1));
        assert!(matches!(get, Err(Error::TransactionEnded(TransactionEnd::Finished))), "{get:?}");
        assert!(matches!(
            block_on(transaction.commit()),
            Err(Error::TransactionEnded(TransactionEnd::Finished))
        ));
        assert_eq!(bench.get(1), None);
        assert_eq!(bench.db.stats().aborted.panic, 1);
        bench.finish();
    });
}

/// Forgotten futures were polled and will never be polled or dropped.
#[test]
fn forgotten_reads_do_not_keep_the_database_from_closing() {
    const KEYS: u64 = 66_000;
    with_limit(LIMIT_SECONDS, |_| {
        let bench = Bench::new(1);
        let fill = bench.table.clone();
        let filled = bench.db.run_blocking(async move |tx| {
            for key in 0..KEYS {
                tx.put(&fill, &key, &key).await?;
            }
            Ok(())
        });
        filled.unwrap();
        let forgotten = Arc::new(AtomicU64::new(0));
        // A read suspends only if another transaction is ready to run, so this repeats until one
        // has suspended.
        while forgotten.load(Ordering::SeqCst) == 0 {
            let (table, counted) = (bench.table.clone(), forgotten.clone());
            let busy = bench.table.clone();
            let other = bench.db.run(async move |tx| {
                for key in 0..20_000 {
                    tx.get(&busy, &(key * 31 % KEYS)).await?;
                }
                Ok(())
            });
            let other = std::thread::spawn(move || block_on(other));
            let run = bench.db.run_blocking(async move |tx| {
                for key in 0..2_000 {
                    let mut get = Box::pin(tx.get(&table, &key));
                    poll_fn(|context| {
                        if get.as_mut().poll(context).is_pending() {
                            counted.fetch_add(1, Ordering::SeqCst);
                        }
                        Poll::Ready(())
                    })
                    .await;
                    std::mem::forget(get);
                    yield_times(1).await;
                }
                Ok(())
            });
            run.unwrap();
            other.join().unwrap().unwrap();
        }
        bench.finish();
    });
}

#[test]
fn simultaneous_panics_on_several_workers_affect_no_other_transaction() {
    const THREADS: u64 = 4;
    const RUNS: u64 = 200;
    with_limit(LIMIT_SECONDS, |_| {
        let bench = Bench::new(3);
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (db, table) = (bench.db.clone(), bench.table.clone());
                std::thread::spawn(move || {
                    let mut committed = 0;
                    for run in 0..RUNS {
                        let table = table.clone();
                        let key = thread * RUNS + run;
                        let result = db.run_blocking(async move |tx| {
                            tx.insert(&table, &key, &key).await?;
                            yield_times(key % 3).await;
                            assert!(key % 3 != 1, "on purpose");
                            Ok(())
                        });
                        match result {
                            Ok(()) => committed += 1,
                            Err(error) => {
                                assert!(matches!(error, Error::Panicked(_)), "{error}");
                                assert_eq!(key % 3, 1);
                            }
                        }
                    }
                    committed
                })
            })
            .collect();
        let committed: u64 = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
        let stats = bench.db.stats();
        assert_eq!(stats.aborted.panic + committed, THREADS * RUNS);
        let table = bench.table.clone();
        let found = bench.db.run_blocking(async move |tx| {
            let (mut scan, mut found) = (tx.scan(&table, ..)?, 0);
            while let Some((key, value)) = scan.next().await? {
                assert!(key == value && key % 3 != 1);
                found += 1;
            }
            Ok(found)
        });
        assert_eq!(found.unwrap(), committed);
        bench.finish();
    });
}

#[test]
fn a_panic_in_the_progress_callback_fails_the_opening() {
    with_limit(LIMIT_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let options =
            || Options::default().workers(1).tuning(Tuning::default().log_segment_bytes(1 << 20));
        let db = Database::open(directory.path(), options()).unwrap().watched();
        let table: Table<u64, [u8]> = block_on(db.create_table("records")).unwrap();
        for key in 0..40_u64 {
            let table = table.clone();
            let put = db.run_blocking(async move |tx| tx.put(&table, &key, &[7; 100_000]).await);
            put.unwrap_or_else(|error: Error| panic!("{error}"));
        }
        db.close().unwrap();
        let mut calls = 0;
        let opened = Database::open_watched(directory.path(), options(), |_| {
            calls += 1;
            panic!("a watch");
        });
        assert_eq!(message(opened), "a watch");
        assert_eq!(calls, 1, "it is not called again");
        // The directory is unlocked and intact.
        let db = Database::open(directory.path(), options()).unwrap().watched();
        assert_eq!(once_free(|| db.check()).unwrap().problems, Vec::<String>::new());
    });
}

/// A panic on the caller's own thread propagates to the caller and does not affect workers.
#[test]
fn a_conversion_that_panics_stays_on_its_thread() {
    #[derive(Debug)]
    struct Mine;
    impl From<Error> for Mine {
        fn from(_: Error) -> Self {
            panic!("a conversion");
        }
    }
    with_limit(LIMIT_SECONDS, |_| {
        let bench = Bench::new(1);
        let run = || {
            bench.db.transaction().try_run_blocking::<(), Mine, _>(async |_tx| panic!("a closure"))
        };
        let panic = catch_unwind(AssertUnwindSafe(run)).unwrap_err();
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"a conversion"));
        bench.finish();
    });
}
