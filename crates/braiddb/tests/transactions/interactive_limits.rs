//! Interactive transactions that are left open: each is aborted after the idle limit, and its
//! records become writable again.

use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use crate::common::{Watched, with_limit};
use braiddb::{
    Database, Error, InteractiveTransaction, Options, Table, Transaction, TransactionEnd,
};
use futures_channel::oneshot;
use pollster::block_on;

const LIMIT_SECONDS: u64 = 120;
const SHORT: Duration = Duration::from_millis(30);

type Numbers = Table<u64, u64>;

fn open(idle: Option<Duration>, age: Option<Duration>) -> (Database, Numbers) {
    let options = Options::default().workers(1).interactive_idle(idle).interactive_age(age);
    let db = Database::in_memory(options).unwrap().watched();
    let table = block_on(db.create_table("t")).unwrap();
    (db, table)
}

/// Waits until this number of transactions was aborted for idleness.
fn wait_for_expired(db: &Database, count: u64) {
    while db.stats().aborted.expired < count {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(db.stats().aborted.expired, count);
}

/// Begins a transaction that writes a record. Returns the number of transactions that expired
/// before they could write, on a slow machine.
fn begin_writing(db: &Database, table: &Numbers) -> (InteractiveTransaction, u64) {
    let mut late = 0;
    loop {
        let open = block_on(db.begin()).unwrap();
        match block_on(open.put(table, &1, &7)) {
            Ok(()) => return (open, late),
            Err(Error::TransactionEnded(TransactionEnd::Expired { .. })) => late += 1,
            Err(error) => panic!("{error}"),
        }
    }
}

fn assert_expired<T: std::fmt::Debug>(result: Result<T, Error>, expected: &str) {
    let Err(Error::TransactionEnded(TransactionEnd::Expired { option, limit })) = &result else {
        panic!("{result:?}")
    };
    assert_eq!((*option, *limit), (expected, SHORT));
    let told = result.unwrap_err().to_string();
    assert!(told.contains(expected) && told.contains("30ms"), "{told}");
}

#[test]
fn an_idle_transaction_is_aborted_and_releases_its_records() {
    with_limit(LIMIT_SECONDS, |_| {
        let (db, table) = open(Some(SHORT), None);
        let begun = Instant::now();
        let (left, late) = begin_writing(&db, &table);
        // The worker has no work and sleeps during the wait.
        wait_for_expired(&db, late + 1);
        assert!(begun.elapsed() >= SHORT);
        block_on(db.put(&table, &1, &8)).unwrap();
        assert_expired(block_on(left.get(&table, &1)), "interactive_idle");
        assert_expired(block_on(left.commit()), "interactive_idle");
        // The handle of this transaction is never dropped.
        let (leaked, later) = begin_writing(&db, &table);
        std::mem::forget(leaked);
        wait_for_expired(&db, late + later + 2);
        assert_eq!(block_on(db.get(&table, &1)).unwrap(), Some(8));
        db.close().unwrap();
    });
}

#[test]
fn an_active_transaction_is_aborted_at_its_maximum_age() {
    with_limit(LIMIT_SECONDS, |_| {
        let (db, table) = open(None, Some(SHORT));
        let (old, late) = begin_writing(&db, &table);
        // The worker always receives the next step soon.
        let failed = loop {
            let step = block_on(old.get(&table, &1));
            if step.is_err() {
                break step;
            }
            assert_eq!(step.unwrap(), Some(7));
        };
        assert_expired(failed, "interactive_age");
        assert_eq!(db.stats().aborted.expired, late + 1);
        assert_eq!(block_on(db.get(&table, &1)).unwrap(), None);
    });
}

#[test]
fn a_step_begun_in_time_completes() {
    with_limit(LIMIT_SECONDS, |_| {
        let (db, table) = open(Some(SHORT), Some(SHORT));
        let (go_on, waits) = oneshot::channel();
        let long = block_on(db.begin()).unwrap();
        let kept = table.clone();
        let step = async move |tx: &Transaction| {
            tx.put(&kept, &1, &9).await?;
            waits.await.expect("it is told to go on");
            tx.get(&kept, &1).await
        };
        let result = std::thread::scope(|scope| {
            let step = scope.spawn(|| block_on(long.step(step)));
            std::thread::sleep(3 * SHORT);
            // The send fails if the step came too late, on a slow machine.
            _ = go_on.send(());
            step.join().unwrap()
        });
        match result {
            Ok(seen) => {
                assert_eq!(seen, Some(9));
                wait_for_expired(&db, 1);
                assert_expired(block_on(long.commit()), "interactive_age");
            }
            Err(error) => assert!(
                matches!(error, Error::TransactionEnded(TransactionEnd::Expired { .. })),
                "{error}"
            ),
        }
        assert_eq!(block_on(db.get(&table, &1)).unwrap(), None);
    });
}

#[test]
fn a_busy_worker_aborts_idle_transactions_in_time() {
    with_limit(LIMIT_SECONDS, |_| {
        let (db, table) = open(Some(SHORT), None);
        let (left, late) = begin_writing(&db, &table);
        let (kept, watched) = (table.clone(), db.clone());
        // This transaction yields without end until the other one has ended.
        db.run_blocking(async move |tx| {
            let mut reads = 0;
            while watched.stats().aborted.expired == late {
                tx.get(&kept, &(reads % 10)).await?;
                reads += 1;
            }
            Ok(())
        })
        .unwrap();
        assert_expired(block_on(left.abort()), "interactive_idle");
    });
}

#[test]
fn without_limits_a_transaction_stays_open() {
    with_limit(LIMIT_SECONDS, |_| {
        for limit in [None, Some(Duration::MAX)] {
            let (db, table) = open(limit, limit);
            let (open, _) = begin_writing(&db, &table);
            std::thread::sleep(3 * SHORT);
            assert_eq!(block_on(open.get(&table, &1)).unwrap(), Some(7));
            block_on(open.commit()).unwrap();
            assert_eq!(db.stats().aborted.expired, 0);
        }
        for limit in [Duration::ZERO, Duration::from_micros(999)] {
            for options in [
                Options::default().interactive_idle(Some(limit)),
                Options::default().interactive_age(Some(limit)),
            ] {
                let refused = Database::in_memory(options);
                assert!(
                    matches!(&refused, Err(Error::Options(told)) if told.contains("interactive_"))
                );
            }
        }
    });
}

/// Polls the future of a step once, and drops it.
fn poll_and_drop<T>(future: impl Future<Output = Result<T, Error>>) {
    let mut context = Context::from_waker(Waker::noop());
    match pin!(future).poll(&mut context) {
        // On a slow machine the transaction may have expired before.
        Poll::Pending
        | Poll::Ready(Err(Error::TransactionEnded(TransactionEnd::Expired { .. }))) => {}
        Poll::Ready(result) => panic!("it is over: {:?}", result.err()),
    }
}

/// A step runs to its end even if its caller dropped the future. It does not count as idle time,
/// and its writes are rolled back when the idle limit after it expires.
#[test]
fn a_step_with_a_dropped_future_counts_as_activity() {
    with_limit(LIMIT_SECONDS, |_| {
        let (db, table) = open(Some(SHORT), None);
        let mut late = 0;
        for (round, drops_handle) in [(1, false), (2, true)] {
            let (left, go_on) = loop {
                let (go_on, waits) = oneshot::channel();
                let (kept, (wrote, written)) = (table.clone(), std::sync::mpsc::channel());
                let left = block_on(db.begin()).unwrap();
                poll_and_drop(left.step(async move |tx: &Transaction| {
                    tx.put(&kept, &1, &9).await?;
                    wrote.send(()).unwrap();
                    waits.await.expect("it is told to go on");
                    tx.put(&kept, &2, &9).await
                }));
                if written.recv().is_ok() {
                    break (left, go_on);
                }
                // The transaction expired before its step, on a slow machine.
                late += 1;
            };
            let left = (!drops_handle).then_some(left);
            std::thread::sleep(3 * SHORT);
            assert_eq!(db.stats().aborted.expired, late + u64::from(round == 2), "it is at work");
            go_on.send(()).unwrap();
            // Others get the record as soon as the transaction has ended.
            block_on(db.put(&table, &1, &round)).unwrap();
            if let Some(left) = left {
                wait_for_expired(&db, late + 1);
                assert_expired(block_on(left.get(&table, &1)), "interactive_idle");
                assert_expired(block_on(left.commit()), "interactive_idle");
            }
            assert_eq!(block_on(db.get(&table, &1)).unwrap(), Some(round));
            assert_eq!(block_on(db.get(&table, &2)).unwrap(), None, "nothing of it is left");
        }
        assert_eq!(db.stats().aborted.expired, late + 1, "whose handle was dropped did not expire");
        db.close().unwrap();
    });
}

/// The database is closed at about the time at which transactions expire.
#[test]
fn closing_during_an_idle_abort_ends_both() {
    const OPEN: u64 = 8;
    const ROUNDS: u32 = 24;
    const MAX_ROUNDS: u32 = 100 * ROUNDS;
    let (mut expired, mut closed) = (0, 0);
    for round in 0..MAX_ROUNDS {
        // More rounds are needed on a slow machine where all transactions expire.
        if round >= ROUNDS && expired > 0 && closed > 0 {
            return;
        }
        let (some, others) = with_limit(LIMIT_SECONDS, move |_| {
            let directory = tempfile::tempdir().unwrap();
            let options = || Options::default().workers(2).interactive_idle(Some(SHORT));
            let db = Database::open(directory.path(), options()).unwrap().watched();
            let table: Numbers = block_on(db.create_table("t")).unwrap();
            block_on(db.put(&table, &0, &1)).unwrap();
            let begin = |key: u64| {
                let open = block_on(db.begin()).unwrap();
                // Late transactions may have expired by then.
                match block_on(open.put(&table, &key, &7)) {
                    Ok(()) | Err(Error::TransactionEnded(TransactionEnd::Expired { .. })) => open,
                    Err(error) => panic!("{error}"),
                }
            };
            let open: Vec<_> = (1..=OPEN).map(begin).collect();
            // A transaction with a step in progress whose caller has dropped it.
            let (kept, (go_on, waits)) = (table.clone(), oneshot::channel::<()>());
            poll_and_drop(open[0].step(async move |tx: &Transaction| {
                _ = waits.await;
                tx.put(&kept, &100, &7).await
            }));
            std::thread::sleep(SHORT * (round % ROUNDS) / (ROUNDS / 2));
            db.close().unwrap();
            _ = go_on.send(());
            let mut ended = (0, 0);
            for open in open {
                match block_on(open.commit()) {
                    Err(Error::TransactionEnded(TransactionEnd::Expired { .. })) => ended.0 += 1,
                    Err(Error::TransactionEnded(TransactionEnd::Finished) | Error::Closed) => {
                        ended.1 += 1
                    }
                    other => panic!("{other:?}"),
                }
            }
            assert!(ended.0 >= db.stats().aborted.expired, "{ended:?}: {:#?}", db.stats());
            let again = Database::open(directory.path(), options()).unwrap().watched();
            let table: Numbers = block_on(again.open_table("t")).unwrap();
            for key in (1..=OPEN).chain([100]) {
                assert_eq!(block_on(again.get(&table, &key)).unwrap(), None, "key {key}");
            }
            assert_eq!(block_on(again.get(&table, &0)).unwrap(), Some(1));
            again.close().unwrap();
            ended
        });
        (expired, closed) = (expired + some, closed + others);
    }
    panic!("{expired} expired, {closed} were ended by closing");
}
