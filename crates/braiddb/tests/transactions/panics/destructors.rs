//! Destructors that panic on a worker: of captured values, futures, values without a receiver, and
//! panic payloads.

use std::future::Future;
use std::panic::panic_any;
use std::pin::{Pin, pin};
use std::sync::{Mutex, mpsc};
use std::task::{Context, Poll, Waker};

use super::{Bench, Bomb, LIMIT_SECONDS, message, settle};
use crate::common::with_limit;
use braiddb::{Error, Result, Table, TableOptions, Transaction, TransactionEnd};
use futures_channel::oneshot;
use pollster::block_on;

#[test]
fn a_panic_payload_may_panic_when_dropped() {
    with_limit(LIMIT_SECONDS, |_| {
        let bench = Bench::new(1);
        let dropped = bench.dropped.clone();
        let run = bench.db.run_blocking(async move |_tx| -> Result<()> {
            // The destructor's panic payload is a bomb too.
            panic_any(Bomb { dropped: dropped.clone() })
        });
        assert_eq!(message(run), "a panic without a message");
        assert_eq!(bench.dropped(), 1);
        bench.finish();
    });
}

/// A closure's captured values are dropped on the worker after the commit: their panic does not
/// undo the commit.
#[test]
fn a_panic_of_a_captured_values_destructor_undoes_no_commit() {
    with_limit(LIMIT_SECONDS, |_| {
        let bench = Bench::new(1);
        let (bomb, table) = (bench.bomb(), bench.table.clone());
        let run = bench.db.transaction().run(async move |tx| {
            let _captured = &bomb;
            tx.put(&table, &1, &2).await?;
            Ok(42)
        });
        let outcome = block_on(run).unwrap();
        assert_eq!(outcome.value, 42);
        assert!(outcome.commit_lsn > 0);
        assert_eq!(bench.get(1), Some(2));
        assert_eq!((bench.dropped(), bench.db.stats().destructor_panics), (1, 1));
        assert_eq!(bench.db.stats().aborted.panic, 0);
        bench.finish();
    });
}

/// A worker drops a request that its caller dropped before it began.
#[test]
fn a_panic_of_a_captured_values_destructor_before_the_start_is_contained() {
    with_limit(LIMIT_SECONDS, |_| {
        let bench = Bench::new(1);
        let paged: Table<u64, u64> =
            block_on(bench.db.create_table_with("paged", TableOptions::default().paged())).unwrap();
        for bulk in [false, true] {
            let (go_on, wait) = mpsc::channel::<()>();
            let wait = Mutex::new(wait);
            let blocked = bench.db.run(async move |_tx| {
                // Blocks the worker's thread, so that it begins nothing else.
                _ = wait.lock().unwrap().recv();
                Ok(())
            });
            let mut blocked = pin!(blocked);
            let mut context = Context::from_waker(Waker::noop());
            assert!(blocked.as_mut().poll(&mut context).is_pending());
            let bomb = bench.bomb();
            if bulk {
                let mut run = bench.db.run_bulk(&paged, async move |_tx: &Transaction| {
                    let _captured = &bomb;
                    Ok(())
                });
                assert!(run.as_mut().poll(&mut context).is_pending());
            } else {
                let run = bench.db.run(async move |_tx| {
                    let _captured = &bomb;
                    Ok(())
                });
                let mut run = Box::pin(run);
                assert!(run.as_mut().poll(&mut context).is_pending());
            }
            go_on.send(()).unwrap();
            block_on(blocked).unwrap();
            // A later request may run first.
            while bench.dropped() <= u64::from(bulk) {
                settle(&bench);
            }
            assert_eq!(bench.dropped(), 1 + u64::from(bulk));
        }
        // The worker counts the panic after the drop, within the same poll.
        settle(&bench);
        assert_eq!(bench.db.stats().destructor_panics, 2);
        bench.finish();
    });
}

/// A future's destructor runs before the commit, so its panic aborts the transaction.
#[test]
fn a_panic_of_a_futures_destructor_aborts() {
    struct Mine<F>(Pin<Box<F>>, #[expect(dead_code, reason = "dropped")] Bomb);
    impl<F: Future> Future for Mine<F> {
        type Output = F::Output;
        fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
            self.0.as_mut().poll(context)
        }
    }
    with_limit(LIMIT_SECONDS, |_| {
        let bench = Bench::new(1);
        let dropped = bench.dropped.clone();
        let run = bench.db.run_blocking(move |_tx: &Transaction| {
            let bomb = Bomb { dropped: dropped.clone() };
            Mine(Box::pin(async { Ok(()) }), bomb)
        });
        assert_eq!(message(run), "a destructor");
        assert_eq!(bench.dropped(), 1);
        assert_eq!(bench.db.stats().aborted.panic, 1);
        bench.finish();
    });
}

/// Values and errors without a receiver are dropped on the worker.
#[test]
fn panics_of_destructors_of_values_and_errors_are_contained() {
    #[derive(Debug)]
    enum Mine {
        #[expect(dead_code, reason = "dropped")]
        Bomb(Bomb),
        Database(Error),
    }
    impl From<Error> for Mine {
        fn from(error: Error) -> Self {
            Mine::Database(error)
        }
    }
    with_limit(LIMIT_SECONDS, |_| {
        let bench = Bench::new(1);
        for fails in [false, true] {
            // Conflicts with an open transaction, ignores the error, and returns a bomb.
            let holder = block_on(bench.db.begin()).unwrap();
            block_on(holder.put(&bench.table, &1, &1)).unwrap();
            let (table, dropped) = (bench.table.clone(), bench.dropped.clone());
            let run = bench.db.transaction().max_attempts(3).try_run(async move |tx| {
                assert!(tx.put(&table, &1, &2).await.is_err());
                let bomb = Bomb { dropped: dropped.clone() };
                if fails { Err(Mine::Bomb(bomb)) } else { Ok(bomb) }
            });
            let error = block_on(run).unwrap_err();
            assert!(
                matches!(error, Mine::Database(Error::Conflict { attempts: 3, .. })),
                "{error:?}"
            );
            block_on(holder.abort()).unwrap();
        }
        assert_eq!(bench.dropped(), 6);
        assert_eq!(bench.db.stats().destructor_panics, 6);
        bench.finish();
    });
}

/// All values of a transaction that are dropped because its caller dropped the future.
#[test]
fn panics_of_destructors_after_cancellation_are_contained() {
    with_limit(LIMIT_SECONDS, |_| {
        let bench = Bench::new(1);
        let (captured, dropped, table) = (bench.bomb(), bench.dropped.clone(), bench.table.clone());
        let (began, begun) = oneshot::channel();
        let began = Mutex::new(Some(began));
        let run = bench.db.run(async move |tx| {
            let _captured = &captured;
            let _local = Bomb { dropped: dropped.clone() };
            tx.put(&table, &1, &1).await?;
            began.lock().unwrap().take().unwrap().send(()).unwrap();
            std::future::pending::<Result<()>>().await
        });
        let mut run = Box::pin(run);
        let mut context = Context::from_waker(Waker::noop());
        assert!(run.as_mut().poll(&mut context).is_pending());
        block_on(begun).unwrap();
        drop(run);
        while bench.dropped() < 2 {
            settle(&bench);
        }
        settle(&bench);
        assert_eq!(bench.get(1), None);
        let stats = bench.db.stats();
        assert_eq!((stats.destructor_panics, stats.aborted.dropped), (2, 1));
        bench.finish();
    });
}

#[test]
fn panics_of_destructors_after_a_step_are_contained() {
    with_limit(LIMIT_SECONDS, |_| {
        let bench = Bench::new(1);
        let transaction = block_on(bench.db.begin()).unwrap();
        let (bomb, table) = (bench.bomb(), bench.table.clone());
        // Captured by reference by a plain closure's future, and dropped with it as part of the
        // step.
        let step = transaction.step(async move |tx: &Transaction| {
            let _captured = &bomb;
            tx.put(&table, &1, &1).await
        });
        assert_eq!(message(block_on(step)), "a destructor");
        // A step that never runs, in the queue of a transaction that has ended.
        let transaction = block_on(bench.db.begin()).unwrap();
        let bomb = bench.bomb();
        let mut waiting = Box::pin(
            transaction.step(async |_tx: &Transaction| std::future::pending::<Result<()>>().await),
        );
        let mut queued = Box::pin(transaction.step(async move |_tx: &Transaction| {
            let _captured = &bomb;
            Ok(())
        }));
        let mut context = Context::from_waker(Waker::noop());
        assert!(waiting.as_mut().poll(&mut context).is_pending());
        assert!(queued.as_mut().poll(&mut context).is_pending());
        bench.db.close().unwrap();
        assert!(matches!(block_on(queued), Err(Error::TransactionEnded(TransactionEnd::Finished))));
        assert!(matches!(
            block_on(waiting),
            Err(Error::TransactionEnded(TransactionEnd::Finished))
        ));
        assert_eq!(bench.dropped(), 2);
    });
}
