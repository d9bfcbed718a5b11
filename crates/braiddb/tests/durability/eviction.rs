//! Eviction during pruning, reads and writes: no record is lost, every read is answered exactly
//! once, and memory is freed again.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::common::{Watched, once_free, with_limit};
use braiddb::{Database, Options, Table, Transaction, Tuning};
use pollster::block_on;

const MIB: u64 = 1 << 20;
/// The size of the log's ring; the rest of a budget is for records.
const RING: u64 = 64 * MIB;

fn options() -> Options {
    Options::default()
        .workers(2)
        .tuning(Tuning::default().log_segment_bytes(4 * MIB).log_ring_bytes(64 << 20))
}

/// Returns the bytes of memory that a budget limits, without the log's ring.
fn in_use(db: &Database) -> u64 {
    let memory = db.stats().memory;
    memory.versions
        + memory.index_nodes
        + memory.keys
        + memory.copies
        + memory.reads
        + memory.indirection
}

fn value(key: u64, round: u64) -> Vec<u8> {
    let word = key.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ round;
    word.to_le_bytes().iter().copied().cycle().take(1000).collect()
}

/// Writes all records, on both workers.
fn fill(db: &Database, table: &Table<u64, [u8]>, records: u64, round: u64) {
    let run = |worker: u64| {
        let (table, keys) = (table.clone(), (worker..records).step_by(2));
        let body = async move |tx: &Transaction, key: &u64| {
            tx.put(&table, key, &value(*key, round)[..]).await
        };
        db.run_source(worker as usize, keys, body).unwrap()
    };
    [run(0), run(1)].into_iter().for_each(|run| run.wait().unwrap());
}

/// Waits until the memory in use is within the budget without the ring; the time limit of the test
/// bounds the wait.
fn wait_until_within(db: &Database, budget: u64) {
    while in_use(db) > budget - RING {
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Runs `work` and returns the maximum memory in use during it. On a loaded machine a thread may
/// hold evicted records for long, so this may exceed the budget.
fn most_in_use(db: &Database, work: impl FnOnce()) -> u64 {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let mut most = 0;
            while !over.load(Ordering::Relaxed) {
                most = most.max(in_use(db));
                std::thread::sleep(Duration::from_millis(2));
            }
            most
        });
        work();
        over.store(true, Ordering::Relaxed);
        watch.join().unwrap()
    })
}

/// A transaction that is open for the whole run retains its begin stamp but no memory: records that
/// others read are cached and evicted as usual.
#[test]
fn an_open_transaction_does_not_keep_records_that_others_read_in_memory() {
    const BUDGET: u64 = RING + 8 * MIB;
    const RECORDS: u64 = 32_000;
    with_limit(240, |_| {
        let directory = tempfile::tempdir().unwrap();
        let db = Database::open(directory.path(), options().memory_budget(Some(BUDGET)))
            .unwrap()
            .watched();
        let table: Table<u64, [u8]> = block_on(db.create_table("records")).unwrap();
        fill(&db, &table, RECORDS, 0);
        let open = block_on(db.begin()).unwrap();
        assert!(block_on(open.get(&table, &7)).unwrap() == Some(value(7, 0)));
        let before = db.stats().versions_evicted;
        let most = most_in_use(&db, || {
            let read = |worker: u64| {
                let table = table.clone();
                let keys = (0..RECORDS).map(move |n| (n * 7919 + worker) % RECORDS);
                let body = async move |tx: &Transaction, key: &u64| {
                    let found = tx.get(&table, key).await?;
                    assert!(found == Some(&value(*key, 0)[..]), "record {key}");
                    Ok(())
                };
                db.run_source(worker as usize, keys, body).unwrap()
            };
            [read(0), read(1)].into_iter().for_each(|run| run.wait().unwrap());
        });
        let stats = db.stats();
        assert!(stats.versions_evicted - before > RECORDS, "{stats:?}");
        assert!(most < 3 * (BUDGET - RING), "{most} bytes at most: {stats:?}");
        wait_until_within(&db, BUDGET);
        assert!(block_on(open.get(&table, &7)).unwrap() == Some(value(7, 0)));
        block_on(open.commit()).unwrap();
        db.close().unwrap();
    });
}

/// Overwrites all records on both workers; two of three were read before.
fn write_over(db: &Database, table: &Table<u64, [u8]>, records: u64, round: u64) {
    let write = |worker: u64| {
        let table = table.clone();
        let keys = (0..records / 2).map(move |n| (n * 2 + worker) * 7919 % records);
        let body = async move |tx: &Transaction, key: &u64| {
            if !key.is_multiple_of(3) {
                let found = tx.get(&table, key).await?;
                assert!(found == Some(&value(*key, round - 1)[..]), "record {key}");
            }
            tx.put(&table, key, &value(*key, round)[..]).await
        };
        db.run_source(worker as usize, keys, body).unwrap()
    };
    [write(0), write(1)].into_iter().for_each(|run| run.wait().unwrap());
}

/// While a transaction is open, all records, four times the available memory, are overwritten
/// repeatedly. The transaction sees its snapshot, and neither its versions nor newer ones stay in
/// memory.
#[test]
#[ignore = "slow: the gate runs it"]
fn an_open_transaction_does_not_keep_records_that_others_write_in_memory() {
    const BUDGET: u64 = RING + 8 * MIB;
    const RECORDS: u64 = 32_000;
    const ROUNDS: u64 = 3;
    with_limit(240, |_| {
        let directory = tempfile::tempdir().unwrap();
        let db = Database::open(directory.path(), options().memory_budget(Some(BUDGET)))
            .unwrap()
            .watched();
        let table: Table<u64, [u8]> = block_on(db.create_table("records")).unwrap();
        fill(&db, &table, RECORDS, 0);
        let open = block_on(db.begin()).unwrap();
        let sees_what_it_saw = || {
            for key in (0..RECORDS).step_by(101) {
                let seen = block_on(open.get(&table, &key)).unwrap();
                assert!(seen == Some(value(key, 0)), "record {key}");
            }
        };
        sees_what_it_saw();
        for round in 1..=ROUNDS {
            let before = db.stats().versions_evicted;
            let most = most_in_use(&db, || write_over(&db, &table, RECORDS, round));
            let stats = db.stats();
            assert!(stats.versions_evicted - before > RECORDS / 2, "{stats:?}");
            assert!(most < 3 * (BUDGET - RING), "round {round}: {most} bytes at most: {stats:?}");
            wait_until_within(&db, BUDGET);
            sees_what_it_saw();
        }
        block_on(open.commit()).unwrap();
        db.close().unwrap();
    });
}

/// Checks and backups run one after the other for the whole run, next to an open transaction, while
/// all records are overwritten. Neither retains more memory than that transaction.
#[test]
fn checks_and_backups_do_not_keep_records_that_others_write_in_memory() {
    const BUDGET: u64 = RING + 8 * MIB;
    const RECORDS: u64 = 32_000;
    const ROUNDS: u64 = 1;
    with_limit(240, |_| {
        let directory = tempfile::tempdir().unwrap();
        let db = Database::open(directory.path(), options().memory_budget(Some(BUDGET)))
            .unwrap()
            .watched();
        let table: Table<u64, [u8]> = block_on(db.create_table("records")).unwrap();
        fill(&db, &table, RECORDS, 0);
        let open = block_on(db.begin()).unwrap();
        let written = AtomicBool::new(false);
        let (mut checks, mut backups) = (0, 0);
        let most = most_in_use(&db, || {
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    (1..=ROUNDS).for_each(|round| write_over(&db, &table, RECORDS, round));
                    written.store(true, Ordering::Relaxed);
                });
                while !written.load(Ordering::Relaxed) {
                    assert_eq!(once_free(|| db.check()).unwrap().problems, Vec::<String>::new());
                    checks += 1;
                    let copy = tempfile::tempdir().unwrap();
                    once_free(|| db.backup(copy.path())).unwrap();
                    backups += 1;
                }
            });
        });
        assert!(checks > 0 && backups > 0);
        assert!(most < 3 * (BUDGET - RING), "{most} bytes at most: {:?}", db.stats());
        wait_until_within(&db, BUDGET);
        let seen = block_on(open.get(&table, &7)).unwrap();
        assert!(seen == Some(value(7, 0)));
        block_on(open.commit()).unwrap();
        db.close().unwrap();
    });
}

/// Records that are newer than an open transaction, and shorter than their headers, cannot be
/// evicted. All of them were read, so the clock hand skips each once. After that transaction ends,
/// the workers are idle, and nevertheless memory must shrink to the budget.
#[test]
fn an_idle_database_shrinks_to_the_memory_budget() {
    const BUDGET: u64 = RING + 24 * MIB;
    const RECORDS: u64 = 400_000;
    const BATCH: u64 = 200;
    with_limit(240, |_| {
        let directory = tempfile::tempdir().unwrap();
        let db =
            Database::open(directory.path(), options().memory_budget(BUDGET)).unwrap().watched();
        let table: Table<u64, [u8]> = block_on(db.create_table("records")).unwrap();
        let open = block_on(db.begin()).unwrap();
        assert_eq!(block_on(open.get(&table, &0)).unwrap(), None);
        let write = |worker: u64| {
            let table = table.clone();
            let batches = (worker..RECORDS / BATCH).step_by(2);
            let body = async move |tx: &Transaction, batch: &u64| {
                for key in batch * BATCH..(batch + 1) * BATCH {
                    tx.put(&table, &key, &[key as u8; 48][..]).await?;
                }
                Ok(())
            };
            db.run_source(worker as usize, batches, body).unwrap()
        };
        [write(0), write(1)].into_iter().for_each(|run| run.wait().unwrap());
        let scanned = table.clone();
        let read = db.run_blocking(async move |tx| {
            let (mut scan, mut read) = (tx.scan(&scanned, ..)?, 0);
            while scan.next().await?.is_some() {
                read += 1;
            }
            Ok(read)
        });
        assert_eq!(read.unwrap(), RECORDS);
        let stats = db.stats();
        assert!(in_use(&db) > BUDGET - RING && stats.versions_evicted == 0, "{stats:?}");
        block_on(open.commit()).unwrap();
        wait_until_within(&db, BUDGET);
        assert!(db.stats().versions_evicted > RECORDS / 2, "{:?}", db.stats());
        db.close().unwrap();
    });
}

/// One writer on one worker, short readers on the other, and a budget smaller than the records.
/// Eviction cuts chains at the head while the pruner removes versions from the middle. The writer
/// continues to add records until both have happened.
#[test]
fn eviction_during_pruning_and_short_reads_is_correct() {
    const HOT_RECORDS: u64 = 1_000;
    const READERS: u64 = 6;
    /// Maximum number of writes during a reader's snapshot: enough for a prune, at any speed.
    const HELD_WRITES: u64 = 12_000;
    const MIN_WRITES: u64 = 150_000;
    // The budget's share, versions that readers retain, and records that wait for the disk. The
    // records are larger in total.
    const MAX_IN_USE: u64 = 32 * MIB;
    with_limit(300, |_| {
        let directory = tempfile::tempdir().unwrap();
        let db = Database::open(directory.path(), options().memory_budget(Some(RING + MIB)))
            .unwrap()
            .watched();
        let table: Table<u64, [u8]> = block_on(db.create_table("records")).unwrap();
        let (drawn, answered) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let ended = Arc::new(AtomicBool::new(false));
        let most_in_use = Arc::new(AtomicU64::new(0));
        let writer = {
            let most = most_in_use.clone();
            let (table, drawn, answered) = (table.clone(), drawn.clone(), answered.clone());
            let (ended, watched) = (ended.clone(), db.clone());
            let inputs = std::iter::from_fn(move || {
                let n = drawn.fetch_add(1, Ordering::Relaxed);
                if n.is_multiple_of(1024) {
                    most.fetch_max(in_use(&watched), Ordering::Relaxed);
                    let stats = watched.stats();
                    if n > MIN_WRITES && stats.versions_evicted > 0 && stats.versions_pruned > 0 {
                        drawn.fetch_sub(1, Ordering::Relaxed);
                        ended.store(true, Ordering::Relaxed);
                        return None;
                    }
                }
                Some(n)
            });
            let body = async move |tx: &Transaction, n: &u64| {
                let value = [*n as u8; 60];
                let key = if n.is_multiple_of(16) { *n } else { n % HOT_RECORDS };
                tx.put(&table, &key, &value[..]).await
            };
            db.transaction().run_source(0, inputs, body, move |_, result| {
                answered.fetch_add(1, Ordering::Relaxed);
                result.map(drop)
            })
        };
        let readers: Vec<_> = (1..=READERS)
            .map(|number| {
                let (db, table, ended) = (db.clone(), table.clone(), ended.clone());
                let drawn = drawn.clone();
                std::thread::spawn(move || {
                    let (mut random, mut snapshots) = (fastrand::Rng::with_seed(number), 0);
                    while !ended.load(Ordering::Relaxed) {
                        let reader = block_on(db.begin()).unwrap();
                        let key = random.u64(..HOT_RECORDS);
                        let first = block_on(reader.get(&table, &key)).unwrap();
                        let until = drawn.load(Ordering::Relaxed) + random.u64(..HELD_WRITES);
                        while drawn.load(Ordering::Relaxed) < until
                            && !ended.load(Ordering::Relaxed)
                        {
                            std::thread::sleep(Duration::from_millis(1));
                        }
                        let second = block_on(reader.get(&table, &key)).unwrap();
                        assert!(first == second, "its snapshot stands");
                        block_on(reader.commit()).unwrap();
                        snapshots += 1;
                    }
                    snapshots
                })
            })
            .collect();
        let snapshots: u64 = readers.into_iter().map(|reader| reader.join().unwrap()).sum();
        writer.unwrap().wait().unwrap();
        let drawn = drawn.load(Ordering::Relaxed);
        assert_eq!(drawn, answered.load(Ordering::Relaxed));
        assert!(snapshots > 0);
        let most = most_in_use.load(Ordering::Relaxed);
        assert!(most < MAX_IN_USE, "{} MiB in use", most / MIB);
        let keys: HashSet<u64> =
            (0..drawn).map(|n| if n.is_multiple_of(16) { n } else { n % HOT_RECORDS }).collect();
        let left = block_on(db.run(async move |tx| {
            let (mut scan, mut left) = (tx.scan(&table, ..)?, 0);
            while scan.next().await?.is_some() {
                left += 1;
            }
            Ok(left)
        }));
        assert_eq!(left.unwrap(), keys.len());
        db.close().unwrap();
    });
}
