//! Eviction beside pruning, readers and writers: nothing is lost, nothing is answered twice, and memory
//! comes back.

mod common;

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use braiddb::{Database, Error, Options, Table, Transaction};
use common::with_limit;
use pollster::block_on;

const MIB: u64 = 1 << 20;
/// Of the log's ring; what a budget leaves beyond it is for records.
const RING: u64 = 64 * MIB;

fn options() -> Options {
    Options::default().workers(2).log_segment_bytes(4 * MIB)
}

/// One writer on one worker, readers that come and go on the other, and a budget that the records do not
/// fit: eviction cuts chains at their head while the pruner takes versions out of their middle. The
/// writer goes on, and ever more records come, until both happened.
#[test]
fn eviction_beside_pruning_and_readers_that_come_and_go() {
    const HOT_RECORDS: u64 = 1_000;
    const READERS: u64 = 6;
    const HELD_MS: u64 = 60;
    const SHORTEST: Duration = Duration::from_secs(5);
    with_limit(300, |limit| {
        let directory = tempfile::tempdir().unwrap();
        let db =
            Database::open(directory.path(), options().memory_budget(Some(RING + MIB))).unwrap();
        let watched = db.clone();
        limit.on_timeout("db", move || format!("{:#?}", watched.stats()));
        let table: Table<u64, [u8]> = block_on(db.create_table("records")).unwrap();
        let (drawn, answered) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let ended = Arc::new(AtomicBool::new(false));
        let writer = {
            let (table, drawn, answered) = (table.clone(), drawn.clone(), answered.clone());
            let (ended, watched, begun) = (ended.clone(), db.clone(), Instant::now());
            let inputs = std::iter::from_fn(move || {
                let n = drawn.fetch_add(1, Ordering::Relaxed);
                if n.is_multiple_of(1024) && begun.elapsed() > SHORTEST {
                    let stats = watched.stats();
                    if stats.versions_evicted > 0 && stats.versions_pruned > 0 {
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
            db.run_source_with(0, inputs, body, move |_, result| {
                answered.fetch_add(1, Ordering::Relaxed);
                result.map(drop)
            })
        };
        let readers: Vec<_> = (1..=READERS)
            .map(|number| {
                let (db, table, ended) = (db.clone(), table.clone(), ended.clone());
                std::thread::spawn(move || {
                    let (mut random, mut snapshots) = (fastrand::Rng::with_seed(number), 0);
                    while !ended.load(Ordering::Relaxed) {
                        let reader = block_on(db.begin()).unwrap();
                        let key = random.u64(..HOT_RECORDS);
                        let first = block_on(reader.get(&table, &key)).unwrap();
                        std::thread::sleep(Duration::from_millis(random.u64(..HELD_MS)));
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
        let keys: HashSet<u64> =
            (0..drawn).map(|n| if n.is_multiple_of(16) { n } else { n % HOT_RECORDS }).collect();
        let left = block_on(db.run(async move |tx| {
            let (mut scan, mut left) = (tx.scan(&table, ..)?, 0);
            while scan.next().await?.is_some() {
                left += 1;
            }
            Ok::<_, Error>(left)
        }));
        assert_eq!(left.unwrap(), keys.len());
        db.close().unwrap();
    });
}
