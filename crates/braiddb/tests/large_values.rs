//! Values of the maximum size, many more than fit into memory: reading them uses no more than the
//! budget and a few values, and the memory is returned to the operating system. This test is alone
//! in its process, whose memory it measures.

#![cfg(not(braid_simulation))]

mod common;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use braiddb::{Database, MAX_VALUE_BYTES, Options, Table, Tuning};
use common::{Watched, with_limit};
use pollster::block_on;

const MIB: u64 = 1 << 20;
/// The size of the log's ring; the rest of a budget is for records.
const RING: u64 = 64 * MIB;
const BUDGET: u64 = RING + 100 * MIB;
const VALUES: u64 = 40;
const VALUE_BYTES: u64 = MAX_VALUE_BYTES as u64;

fn value(key: u64) -> Vec<u8> {
    vec![key as u8 + 1; MAX_VALUE_BYTES]
}

fn is_value(bytes: &[u8], key: u64) -> bool {
    bytes.len() == MAX_VALUE_BYTES && bytes.iter().step_by(4099).all(|b| *b == key as u8 + 1)
}

fn resident(db: &Database) -> u64 {
    db.stats().memory.resident
}

/// Runs `work` and returns the maximum resident memory during it.
fn most_resident(db: &Database, work: impl FnOnce()) -> u64 {
    let over = AtomicBool::new(false);
    let most = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                most.fetch_max(resident(db), Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        work();
        over.store(true, Ordering::Relaxed);
    });
    most.into_inner()
}

/// Waits until the process uses no more memory than `most`; the time limit of the test bounds the
/// wait.
fn wait_for_resident(db: &Database, most: u64) {
    while resident(db) > most {
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn large_values_stay_within_the_budget_and_their_memory_is_freed() {
    with_limit(300, |_| {
        let directory = tempfile::tempdir().unwrap();
        let options = Options::default()
            .workers(2)
            .memory_budget(BUDGET)
            .tuning(Tuning::default().log_ring_bytes(64 << 20));
        let db = Database::open(directory.path(), options.clone()).unwrap().watched();
        let table: Table<u64, [u8]> = block_on(db.create_table("values")).unwrap();
        for key in 0..VALUES {
            let table = table.clone();
            let bytes = value(key);
            db.run_blocking(async move |tx| tx.put(&table, &key, &bytes[..]).await).unwrap();
        }
        db.close().unwrap();
        drop((db, table));

        let db = Database::open(directory.path(), options).unwrap().watched();
        let table: Table<u64, [u8]> = block_on(db.open_table("values")).unwrap();
        let before = resident(&db);
        let scanned = table.clone();
        let most = most_resident(&db, || {
            let found = db.run_blocking(async move |tx| {
                let (mut scan, mut found) = (tx.scan(&scanned, ..)?, 0);
                while let Some((key, bytes)) = scan.next().await? {
                    assert!(is_value(bytes, key), "key {key}");
                    found += 1;
                }
                Ok(found)
            });
            assert_eq!(found.unwrap(), VALUES);
        });
        let bound = BUDGET - RING + 3 * VALUE_BYTES;
        assert!(most < before + bound, "{most} bytes at most, {before} before: {:?}", db.stats());
        wait_for_resident(&db, before + BUDGET - RING);

        // A transaction may keep as much memory as it wants, but it must free that memory at its
        // end.
        const KEPT: u64 = 20;
        let watched = db.clone();
        let kept = db.run_blocking(async move |tx| {
            let keys: Vec<u64> = (0..KEPT).collect();
            let found = tx.multi_get(&table, &keys).await?;
            assert!(keys.iter().zip(&found).all(|(key, found)| is_value(found.unwrap(), *key)));
            Ok(watched.stats().memory)
        });
        let kept = kept.unwrap();
        assert!(kept.copies >= KEPT * VALUE_BYTES, "{kept:?}");
        assert!(kept.resident > before + BUDGET - RING, "{kept:?}, {before} before");
        wait_for_resident(&db, before + BUDGET - RING);
        db.close().unwrap();
    });
}
