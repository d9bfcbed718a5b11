//! Eviction beside pruning, readers and writers: nothing is lost, nothing is answered twice, and memory
//! comes back.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
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

/// One writer on one worker, readers that come and go on the other, and a budget that leaves hardly
/// any memory: eviction cuts chains at their head while the pruner takes versions out of their middle.
#[test]
fn eviction_beside_pruning_and_readers_that_come_and_go() {
    const RECORDS: u64 = 1_000;
    const READERS: u64 = 6;
    const HELD_MS: u64 = 60;
    const TIME: Duration = Duration::from_secs(4);
    with_limit(240, |limit| {
        let (mut evicted, mut pruned) = (0, 0);
        // How much is pruned and evicted depends on how fast the machine is: one of these does both.
        for room in [MIB * 3 / 4, MIB / 2, MIB / 4] {
            let directory = tempfile::tempdir().unwrap();
            let db = Database::open(directory.path(), options().memory_budget(Some(RING + room)));
            let db = db.unwrap();
            let watched = db.clone();
            limit.on_timeout("db", move || format!("{:#?}", watched.stats()));
            let table: Table<u64, [u8]> = block_on(db.create_table("records")).unwrap();
            let (drawn, answered) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
            let end = Instant::now() + TIME;
            let writer = {
                let (table, drawn, answered) = (table.clone(), drawn.clone(), answered.clone());
                let inputs = std::iter::from_fn(move || {
                    (Instant::now() < end).then(|| drawn.fetch_add(1, Ordering::Relaxed))
                });
                let body = async move |tx: &Transaction, n: &u64| {
                    let value = [*n as u8; 60];
                    tx.put(&table, &(n % RECORDS), &value[..]).await
                };
                db.run_source_with(0, inputs, body, move |_, result| {
                    answered.fetch_add(1, Ordering::Relaxed);
                    result.map(drop)
                })
            };
            let readers: Vec<_> = (1..=READERS)
                .map(|number| {
                    let (db, table) = (db.clone(), table.clone());
                    std::thread::spawn(move || {
                        let (mut random, mut snapshots) = (fastrand::Rng::with_seed(number), 0);
                        while Instant::now() < end {
                            let reader = block_on(db.begin()).unwrap();
                            let key = random.u64(..RECORDS);
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
            assert_eq!(drawn.load(Ordering::Relaxed), answered.load(Ordering::Relaxed));
            assert!(snapshots > 0);
            let stats = db.stats();
            (evicted, pruned) = (evicted + stats.versions_evicted, pruned + stats.versions_pruned);
            let left = block_on(db.run(async move |tx| {
                let (mut scan, mut left) = (tx.scan(&table, ..)?, 0);
                while scan.next().await?.is_some() {
                    left += 1;
                }
                Ok::<_, Error>(left)
            }));
            assert_eq!(left.unwrap(), RECORDS.min(drawn.load(Ordering::Relaxed)));
            db.close().unwrap();
        }
        assert!(evicted > 0 && pruned > 0, "evicted {evicted}, pruned {pruned}");
    });
}
