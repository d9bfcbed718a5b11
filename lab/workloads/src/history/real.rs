//! Histories of a real database, with both certifiers.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::thread;

use braiddb::{Certifier, Database, Error, Options, Stats, Table, Transaction, Tuning};
use fastrand::Rng;

use crate::limit::{Watched, with_limit};

use super::{History, Shape, let_others_run, transaction};

/// Several times the duration of a test, which may record many histories.
const LIMIT_SECONDS: u64 = 600;
const THREADS: u64 = 8;
const TRANSACTIONS: u64 = 1_500;

/// Runs transactions of several threads on few keys, which yield to each other.
fn history(certifier: Certifier) -> (History, Stats) {
    let options = Options::default().workers(2).tuning(Tuning::default().certifier(certifier));
    let db = Database::in_memory(options).expect("in memory").watched();
    let table: Table<u64, u64> =
        db.run_blocking(async |tx| tx.open_or_create_table("history").await).expect("a new table");
    let history = Mutex::new(History::default());
    thread::scope(|scope| {
        for client in 0..THREADS {
            let (db, table, history) = (&db, &table, &history);
            scope.spawn(move || {
                for number in 0..TRANSACTIONS {
                    let table = table.clone();
                    let read_only = number % 4 == 0;
                    let body = async move |tx: &Transaction| {
                        let seed = client << 32 | number << 8 | u64::from(tx.attempt());
                        let shape = Shape { keys: 12, operations: 6, read_only };
                        let random = &mut Rng::with_seed(seed);
                        let mut answers = transaction(tx, &table, None, shape, random).await?;
                        let_others_run().await;
                        answers.append(&mut transaction(tx, &table, None, shape, random).await?);
                        Ok::<_, Error>((tx.snapshot_lsn(), answers))
                    };
                    let outcome = pollster::block_on(db.transaction().run(body));
                    let outcome = outcome.expect("one of many attempts commits");
                    let (snapshot, answers) = outcome.value;
                    let mut history = history.lock().expect("no thread panics while it is locked");
                    history.add(snapshot, outcome.commit_lsn, answers);
                }
            });
        }
    });
    let stats = db.stats();
    (history.into_inner().expect("no thread panics while it is locked"), stats)
}

/// Records histories and checks each with `check`, until one contains the required event: the
/// scheduling of threads is random.
fn until(certifier: Certifier, mut check: impl FnMut(&History, &Stats) -> bool) {
    const MOST: usize = 100;
    for _ in 0..MOST {
        let (history, stats) = history(certifier);
        assert_eq!(history.len() as u64, THREADS * TRANSACTIONS);
        history.clone().check_graph().unwrap();
        if check(&history, &stats) {
            return;
        }
    }
    panic!("it did not happen in {MOST} histories");
}

#[test]
fn read_validation_serializes_in_lsn_order() {
    with_limit(LIMIT_SECONDS, |_| {
        until(Certifier::ReadValidation, |history, stats| {
            history.clone().replay(&mut BTreeMap::new()).unwrap();
            stats.aborted.certification > 0 && stats.snapshots_extended > 0
        });
    });
}

/// The history has a serial order, but not that of LSNs: transactions commit although their reads
/// have changed.
#[test]
fn the_serial_safety_net_serializes_in_some_order() {
    with_limit(LIMIT_SECONDS, |_| {
        until(Certifier::SerialSafetyNet, |history, stats| {
            assert_eq!((stats.aborted.stale_read, stats.snapshots_extended), (0, 0));
            let is_that_of_lsns = history.clone().replay(&mut BTreeMap::new()).is_ok();
            stats.aborted.certification > 0 && !is_that_of_lsns
        });
    });
}
