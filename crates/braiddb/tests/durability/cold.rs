//! Data larger than memory: evicted, read again, changed, scanned, and present after reopening.

use std::collections::BTreeMap;

use crate::common::{Watched, with_limit};
use braiddb::{
    Database, Error, Options, Overload, Policy, Table, TableOptions, Transaction, Tuning,
};
use futures_util::future::join_all;
use pollster::block_on;

/// A limit far above the duration of any test.
const LIMIT_SECONDS: u64 = 300;

const MIB: u64 = 1 << 20;
/// The log's ring, and a few MiB for records.
const BUDGET: u64 = 64 * MIB + 8 * MIB;
const RECORDS: u64 = 20_000;
const VALUE_BYTES: usize = 1000;

fn options() -> Options {
    Options::default()
        .workers(2)
        .memory_budget(Some(BUDGET))
        .tuning(Tuning::default().log_segment_bytes(4 * MIB).log_ring_bytes(64 << 20))
}

fn value(key: u64, round: u64) -> Vec<u8> {
    let word = key.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ round;
    word.to_le_bytes().iter().copied().cycle().take(VALUE_BYTES + (key % 50) as usize).collect()
}

/// Writes all records, one batch in each transaction, with the values of `round`.
fn fill(db: &Database, table: &Table<u64, [u8]>, round: u64) {
    let table = table.clone();
    let batches = (0..RECORDS).step_by(100);
    let run = db.run_source(0, batches, async move |tx, first: &u64| {
        for key in *first..first + 100 {
            tx.put(&table, &key, &value(key, round)[..]).await?;
        }
        Ok(())
    });
    run.unwrap().wait().unwrap();
}

/// Reads keys in an order that defeats any cache, on both workers.
fn check(
    db: &Database,
    table: &Table<u64, [u8]>,
    round: impl Fn(u64) -> u64 + Copy + Send + 'static,
) {
    let run = |worker: u64| {
        let table = table.clone();
        let keys = (0..RECORDS / 2).map(move |n| (n * 2 + worker) * 7919 % RECORDS);
        db.run_source(worker as usize, keys, async move |tx: &Transaction, key: &u64| {
            let found = tx.get(&table, key).await?;
            assert!(found == Some(&value(*key, round(*key))[..]), "record {key}");
            Ok(())
        })
    };
    [run(0), run(1)].into_iter().for_each(|run| run.unwrap().wait().unwrap());
}

#[test]
fn records_that_exceed_memory_are_read_from_disk() {
    with_limit(LIMIT_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let db = Database::open(directory.path(), options()).unwrap().watched();
        let table: Table<u64, [u8]> = block_on(db.create_table("large")).unwrap();
        fill(&db, &table, 0);
        check(&db, &table, |_| 0);
        let stats = db.stats();
        assert!(stats.versions_evicted > RECORDS, "{stats:?}");
        assert!(stats.suspensions.storage > RECORDS / 2, "{stats:?}");
        settle(&db);

        // Cold records are changed blindly, read and changed, and deleted.
        let changes = table.clone();
        let run = db.run_source(1, (0..RECORDS).step_by(3), async move |tx, key: &u64| {
            match key % 4 {
                0 => assert!(tx.delete(&changes, key).await?),
                1 => {
                    let old = tx.get(&changes, key).await?.expect("it is there").to_vec();
                    assert!(old == value(*key, 0));
                    tx.update(&changes, key, &value(*key, 1)[..]).await?;
                }
                _ => tx.put(&changes, key, &value(*key, 1)[..]).await?,
            }
            Ok(())
        });
        run.unwrap().wait().unwrap();
        let expected: BTreeMap<u64, Vec<u8>> = (0..RECORDS)
            .filter(|key| key % 3 != 0 || key % 4 != 0)
            .map(|key| (key, value(key, u64::from(key % 3 == 0))))
            .collect();
        scan(&db, &table, &expected);
        db.close().unwrap();
        drop(db);

        let db = Database::open(directory.path(), options()).unwrap().watched();
        let table: Table<u64, [u8]> = block_on(db.open_table("large")).unwrap();
        scan(&db, &table, &expected);
        let keys: Vec<u64> = (0..2000).map(|n| n * 7919 % RECORDS).collect();
        let wanted: Vec<_> = keys.iter().map(|key| expected.get(key).cloned()).collect();
        let found = db.run_blocking(async move |tx| {
            let found = tx.multi_get(&table, &keys).await?;
            Ok(found.into_iter().map(|value| value.map(<[u8]>::to_vec)).collect::<Vec<_>>())
        });
        assert!(found.unwrap() == wanted);
    });
}

/// Waits until the records in memory are within the budget, bounded by transactions.
fn settle(db: &Database) {
    for _ in 0..100_000 {
        db.run_blocking(async |tx| tx.tables().await).unwrap();
        if db.stats().memory.versions < 6 * MIB {
            return;
        }
        std::thread::yield_now();
    }
    panic!("{:?}", db.stats());
}

fn scan(db: &Database, table: &Table<u64, [u8]>, expected: &BTreeMap<u64, Vec<u8>>) {
    for reverse in [false, true] {
        let table = table.clone();
        let found = db.run_blocking(async move |tx| {
            let mut scan = tx.scan(&table, ..)?;
            if reverse {
                scan = scan.rev();
            }
            let mut found = Vec::new();
            while let Some((key, value)) = scan.next().await? {
                found.push((key, value.to_vec()));
            }
            Ok(found)
        });
        let mut found = found.unwrap();
        if reverse {
            found.reverse();
        }
        assert!(found.iter().map(|(key, value)| (key, value)).eq(expected), "reverse: {reverse}");
    }
}

#[test]
fn old_snapshots_read_records_evicted_before_they_began() {
    with_limit(LIMIT_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let db = Database::open(directory.path(), options()).unwrap().watched();
        let table: Table<u64, [u8]> = block_on(db.create_table("large")).unwrap();
        fill(&db, &table, 0);
        fill(&db, &table, 1);
        // Evicts most of the records that the snapshot will read.
        settle(&db);
        let before = db.stats();
        assert!(before.versions_evicted > RECORDS / 2, "{before:?}");
        let snapshot = block_on(db.begin()).unwrap();
        assert!(block_on(snapshot.get(&table, &0)).unwrap() == Some(value(0, 1)));
        for round in 2..4 {
            fill(&db, &table, round);
            for key in (0..RECORDS).step_by(997) {
                let seen = block_on(snapshot.get(&table, &key)).unwrap();
                assert!(seen == Some(value(key, 1)), "round {round}: record {key}");
            }
        }
        let after = db.stats();
        assert!(after.suspensions.storage > before.suspensions.storage, "{after:?}");
        block_on(snapshot.commit()).unwrap();
        check(&db, &table, |_| 3);
    });
}

#[test]
#[ignore = "slow: the gate runs it"]
fn every_scheduler_reads_storage() {
    with_limit(LIMIT_SECONDS, |_| {
        for policy in [Policy::Sequential, Policy::Batch, Policy::Pipeline, Policy::DualQueue] {
            let directory = tempfile::tempdir().unwrap();
            let options = options().tune(|tuning| tuning.policy(policy).read_depth(3));
            let db = Database::open(directory.path(), options.clone()).unwrap().watched();
            let table: Table<u64, [u8]> = block_on(db.create_table("large")).unwrap();
            fill(&db, &table, 5);
            db.close().unwrap();
            drop(db);
            let db = Database::open(directory.path(), options).unwrap().watched();
            let table = block_on(db.open_table("large")).unwrap();
            check(&db, &table, |_| 5);
            // A reader dropped during its read leaves nothing behind.
            for key in 0..200u64 {
                let (db, table) = (db.clone(), table.clone());
                let read =
                    db.run(async move |tx| Ok(tx.get(&table, &(key * 31)).await?.map(<[u8]>::len)));
                drop(poll_once(read));
            }
            check(&db, &table, |_| 5);
        }
    });
}

/// Polls a future once, and drops it.
fn poll_once<F: Future>(future: F) -> Option<F::Output> {
    let mut future = std::pin::pin!(future);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match future.as_mut().poll(&mut context) {
        std::task::Poll::Ready(value) => Some(value),
        std::task::Poll::Pending => None,
    }
}

#[test]
fn transactions_beyond_the_limit_wait_or_fail_as_configured() {
    with_limit(LIMIT_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        const READS: u64 = 400;
        for overload in [Overload::Wait, Overload::Shed] {
            let options =
                options().workers(1).tune(|tuning| tuning.cold_width(2).overload(overload));
            let db = Database::open(directory.path(), options).unwrap().watched();
            let uncached = TableOptions::default().cache_cold(false);
            let (cold, hot): (Table<u64, [u8]>, Table<u64, u64>) =
                block_on(db.run(async move |tx| {
                    if tx.tables().await?.is_empty() {
                        tx.create_table_with::<u64, [u8]>("cold", uncached).await?;
                    }
                    Ok((tx.open_table("cold").await?, tx.open_or_create_table("hot").await?))
                }))
                .unwrap();
            fill(&db, &cold, 7);
            let table = hot.clone();
            block_on(db.run(async move |tx| tx.put(&table, &1, &2).await)).unwrap();
            let (kept, database) = (cold.clone(), db.clone());
            let reads = block_on(async move {
                let reads = (0..READS).map(|number| {
                    let (cold, hot, db) = (kept.clone(), hot.clone(), database.clone());
                    async move {
                        let key = number * 31 % RECORDS;
                        let read = db
                            .run(async move |tx: &Transaction| {
                                Ok(tx.get(&cold, &key).await?.map(<[u8]>::to_vec))
                            })
                            .await;
                        let near = db.run(async move |tx| tx.get(&hot, &1).await).await;
                        assert_eq!(near.unwrap(), Some(2), "memory is not overloaded");
                        (key, read)
                    }
                });
                join_all(reads).await
            });
            let (mut served, mut shed) = (0, 0);
            for (key, read) in reads {
                match read {
                    Ok(found) => {
                        assert_eq!(found, Some(value(key, 7)));
                        served += 1;
                    }
                    Err(error) => {
                        assert!(
                            matches!(error, Error::Overloaded) && error.is_retryable(),
                            "{error}"
                        );
                        shed += 1;
                    }
                }
            }
            assert!(served > 0);
            assert_eq!(shed > 0, overload == Overload::Shed, "{overload:?}: {served} and {shed}");
            db.close().unwrap();
        }
    });
}
