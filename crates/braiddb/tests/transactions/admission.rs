//! Admission of transactions: no transaction waits for a slot whose holder waits for it, and a
//! transaction that never waits lets others in.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use braiddb::{Database, Durability, Error, Options, Policy, Table, Tuning, Width};
use futures_util::future::join_all;
use pollster::block_on;
use tokio::sync::Barrier;

use crate::common::{Watched, with_limit};

const LIMIT_SECONDS: u64 = 60;
const MAX_OPEN: usize = 64;
const POLICIES: [Policy; 4] =
    [Policy::Sequential, Policy::Batch, Policy::Pipeline, Policy::DualQueue];

type Records = Table<u64, u64>;

fn options() -> Options {
    Options::default().workers(1).tuning(Tuning::default().max_open(MAX_OPEN))
}

fn open(options: Options) -> (Database, Records) {
    let db = Database::in_memory(options).unwrap().watched();
    let table = block_on(db.create_table("records")).unwrap();
    (db, table)
}

async fn put(db: &Database, table: &Records, key: u64) -> Result<(), Error> {
    let table = table.clone();
    db.run(async move |tx| tx.put(&table, &key, &key).await).await
}

/// All slots of a worker hold transactions that each wait for one nested transaction.
#[test]
fn nested_runs_are_admitted_while_their_callers_wait() {
    with_limit(LIMIT_SECONDS, |_| {
        for policy in POLICIES {
            let (db, table) = open(options().tune(|tuning| tuning.policy(policy)));
            let all_are_in = Arc::new(Barrier::new(MAX_OPEN));
            let runs = (0..MAX_OPEN as u64).map(|key| {
                let (inner, table, all_are_in) = (db.clone(), table.clone(), all_are_in.clone());
                db.run(async move |_| {
                    all_are_in.wait().await;
                    put(&inner, &table, key).await
                })
            });
            let results: Vec<Result<(), Error>> = block_on(join_all(runs));
            results.into_iter().for_each(|result| result.unwrap());
            assert_eq!(db.stats().committed_read_only, MAX_OPEN as u64, "{policy:?}");
            block_on(put(&db, &table, 0)).unwrap();
        }
    });
}

type Nested = Pin<Box<dyn Future<Output = Result<u64, Error>> + Send>>;

/// Runs nested transactions until one is refused. Returns the depth.
fn nest(db: Database, depth: u64) -> Nested {
    Box::pin(async move {
        let inner = db.clone();
        let run = db.run(async move |_| match nest(inner.clone(), depth + 1).await {
            Err(Error::Overloaded) => Ok(depth),
            deepest => deepest,
        });
        run.await
    })
}

#[test]
fn runs_nested_too_deeply_fail_immediately() {
    with_limit(LIMIT_SECONDS, |_| {
        let (db, table) = open(options());
        assert_eq!(block_on(nest(db.clone(), 1)).unwrap(), 2 * MAX_OPEN as u64);
        block_on(put(&db, &table, 1)).unwrap();
    });
}

/// A task of another runtime runs the nested transaction, so the worker cannot know the dependency.
/// More transactions run than are admitted at a time.
#[test]
fn runs_that_wait_for_runs_through_another_runtime_all_end() {
    with_limit(LIMIT_SECONDS, |_| {
        let (db, table) = open(options());
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build();
        let runtime = runtime.unwrap();
        for requests in [MAX_OPEN as u64, 10 * MAX_OPEN as u64] {
            let runs = (0..requests).map(|key| {
                let (inner, table, handle) = (db.clone(), table.clone(), runtime.handle().clone());
                db.run(async move |_| {
                    let (inner, table) = (inner.clone(), table.clone());
                    handle.spawn(async move { put(&inner, &table, key).await }).await.unwrap()
                })
            });
            let results: Vec<Result<(), Error>> = block_on(join_all(runs));
            for result in &results {
                assert!(matches!(result, Ok(()) | Err(Error::Overloaded)), "{result:?}");
            }
            let all_done = results.iter().all(Result::is_ok);
            assert!(all_done || requests > MAX_OPEN as u64, "{results:?}");
        }
        block_on(put(&db, &table, 0)).unwrap();
    });
}

#[test]
fn interactive_transactions_beyond_the_limit_fail_immediately() {
    with_limit(LIMIT_SECONDS, |_| {
        let (db, table) = open(options());
        let mut begun: Vec<_> = (0..MAX_OPEN).map(|_| block_on(db.begin()).unwrap()).collect();
        for _ in 0..3 {
            let refused = block_on(db.begin());
            assert!(matches!(refused, Err(Error::Overloaded)), "{refused:?}");
            assert!(refused.unwrap_err().is_retryable());
        }
        // The open transactions continue, and new runs, also nested ones, are admitted.
        for (key, transaction) in begun.iter().enumerate() {
            block_on(transaction.put(&table, &(key as u64), &7)).unwrap();
        }
        let (inner, records) = (db.clone(), table.clone());
        let nested = db.run(async move |_| put(&inner, &records, 1000).await);
        block_on(nested).unwrap_or_else(|error: Error| panic!("{error}"));
        block_on(begun.pop().unwrap().commit()).unwrap();
        let again = block_on(db.begin()).unwrap();
        assert_eq!(block_on(again.get(&table, &(MAX_OPEN as u64 - 1))).unwrap(), Some(7));
        assert!(matches!(block_on(db.begin()), Err(Error::Overloaded)));
    });
}

/// A compaction waits for an open transaction, which waits for a transaction that has not begun.
#[test]
fn a_wait_for_older_transactions_occupies_no_slot() {
    for policy in POLICIES {
        with_limit(LIMIT_SECONDS, move |_| {
            let directory = tempfile::tempdir().unwrap();
            let options = options().tune(|tuning| {
                tuning
                    .policy(policy)
                    .hot_width(Width::Fixed(1))
                    .cold_width(1)
                    .log_segment_bytes(64 << 10)
                    .checkpoint_bytes(1 << 40)
            });
            let db = Database::open(directory.path(), options).unwrap().watched();
            let table: Table<u64, [u8]> = block_on(db.create_table("t")).unwrap();
            for round in 0..20_u8 {
                let table = table.clone();
                let run = db.run(async move |tx| {
                    for key in 0..100 {
                        tx.put(&table, &key, &[round; 300][..]).await?;
                    }
                    Ok(())
                });
                block_on(run).unwrap();
            }
            let holder = block_on(db.begin()).unwrap();
            let other = db.clone();
            let compaction = std::thread::spawn(move || block_on(other.compact()).unwrap());
            while db.stats().suspensions.grace_period == 0 {
                std::thread::yield_now();
            }
            let kept = table.clone();
            let run = db.run(async move |tx| tx.put(&kept, &0, &[1][..]).await);
            block_on(run).unwrap_or_else(|error: Error| panic!("{error}"));
            block_on(holder.commit()).unwrap();
            assert!(compaction.join().unwrap().segments > 0);
        });
    }
}

/// Runs `long` transactions that read until `arrival` has ended. `arrival` would never end if its
/// transactions were not admitted next to these.
fn let_in(
    options: Options,
    long: u64,
    scans: bool,
    arrival: impl AsyncFn(&Database, &Records) -> Result<(), Error> + Send + Sync + Copy + 'static,
) {
    with_limit(LIMIT_SECONDS, move |_| {
        let directory = tempfile::tempdir().unwrap();
        let db = Database::open(directory.path(), options).unwrap().watched();
        let table: Records = block_on(db.create_table("records")).unwrap();
        for key in 0..100 {
            block_on(put(&db, &table, key)).unwrap();
        }
        let (is_over, running) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let readers: Vec<_> = (0..long)
            .map(|_| {
                let (table, is_over, running) = (table.clone(), is_over.clone(), running.clone());
                let run = db.run(async move |tx| {
                    running.fetch_add(1, Ordering::SeqCst);
                    while !is_over.load(Ordering::SeqCst) {
                        if scans {
                            let mut scan = tx.scan(&table, ..)?;
                            while scan.next().await?.is_some() {}
                        } else {
                            tx.get(&table, &7).await?;
                        }
                    }
                    Ok(())
                });
                std::thread::spawn(move || block_on(run).unwrap())
            })
            .collect();
        while running.load(Ordering::SeqCst) < long {
            std::thread::yield_now();
        }
        block_on(arrival(&db, &table)).unwrap();
        is_over.store(true, Ordering::SeqCst);
        readers.into_iter().for_each(|reader| reader.join().unwrap());
    });
}

#[test]
fn a_busy_transaction_lets_a_read_run() {
    for (width, long) in [(Width::Auto, 1), (Width::Fixed(1), 1), (Width::Fixed(4), 12)] {
        for scans in [false, true] {
            let options =
                options().durability(Durability::Volatile).tune(|tuning| tuning.hot_width(width));
            let_in(options, long, scans, async |db: &Database, table: &Records| {
                let table = table.clone();
                db.run(async move |tx| tx.get(&table, &1).await.map(drop)).await
            });
        }
    }
}

#[test]
fn a_busy_transaction_lets_a_commit_become_durable() {
    for (width, long) in [(Width::Auto, 1), (Width::Fixed(1), 1), (Width::Fixed(4), 12)] {
        let options = options().tune(|tuning| tuning.hot_width(width));
        let_in(options, long, false, async |db, table| put(db, table, 1000).await);
    }
}

#[test]
fn a_busy_transaction_lets_steps_run() {
    let_in(
        options().tune(|tuning| tuning.hot_width(Width::Fixed(1))),
        2,
        false,
        async |db, table| {
            let transaction = db.begin().await?;
            for key in 0..10 {
                transaction.put(table, &(1000 + key), &1).await?;
            }
            transaction.commit().await.map(drop)
        },
    );
}
