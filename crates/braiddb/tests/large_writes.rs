//! Concurrent reads and writes of large values: memory beyond the budget is what callers hold, and
//! freed memory returns to the operating system. This test is alone in its process, whose memory it
//! measures.

#![cfg(not(braid_simulation))]

mod common;
#[path = "common/table_kind.rs"]
mod table_kind;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use braiddb::{Database, Options, Table};
use common::{Watched, with_limit};
use pollster::block_on;
use table_kind::create_table;

const MIB: u64 = 1 << 20;
const BUDGET: u64 = 64 * MIB;
const MAX_BYTES: u64 = BUDGET / 10 * 11;
const VALUE_BYTES: u64 = 12 * MIB;
const VALUES: u64 = 16;
const WRITERS: u64 = 8;
const READERS: u64 = 16;

fn resident(db: &Database) -> u64 {
    db.stats().memory.resident
}

/// Counts a running thread, also if it panics.
struct Running<'r>(&'r AtomicU64);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Runs `work` for each value on `threads` threads, and returns the maximum resident memory.
fn most_resident(db: &Database, threads: u64, work: impl Fn(u64) + Sync) -> u64 {
    let (running, most, next) = (AtomicU64::new(threads), AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let _running = Running(&running);
                while let key @ 0..VALUES = next.fetch_add(1, Ordering::Relaxed) {
                    work(key);
                }
            });
        }
        while running.load(Ordering::Relaxed) > 0 {
            most.fetch_max(resident(db), Ordering::Relaxed);
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    most.into_inner()
}

/// Waits until the process uses little more than its budget; the time limit of the test bounds the
/// wait.
fn wait_for_budget(db: &Database, before: u64) {
    while resident(db) > before + MAX_BYTES {
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn large_values_take_little_more_than_the_budget_and_what_callers_hold() {
    with_limit(300, |_| {
        for paged in [false, true] {
            let directory = tempfile::tempdir().unwrap();
            let options = Options::default().workers(2).memory_budget(BUDGET);
            let db = Database::open(directory.path(), options).unwrap().watched();
            let table: Table<u64, [u8]> = create_table(&db, "values", paged);
            let before = resident(&db);
            let value = vec![7; VALUE_BYTES as usize];
            let most = most_resident(&db, WRITERS, |key| {
                block_on(db.put(&table, &key, &value[..])).unwrap();
            });
            println!("paged: {paged}, before {before}, puts {most}, {:?}", db.stats().memory);
            // Each call holds an encoded copy of its value.
            let bound = before + MAX_BYTES + (1 + WRITERS) * VALUE_BYTES;
            assert!(most <= bound, "paged: {paged}: {most}, the bound is {bound}");
            drop(value);
            wait_for_budget(&db, before);
            let most = most_resident(&db, READERS, |key| {
                let value = block_on(db.get(&table, &key)).unwrap().unwrap();
                assert_eq!(value.len() as u64, VALUE_BYTES);
            });
            println!("paged: {paged}, gets {most}, {:?}", db.stats().memory);
            let bound = before + MAX_BYTES + READERS * VALUE_BYTES;
            assert!(most <= bound, "paged: {paged}: {most}, the bound is {bound}");
            wait_for_budget(&db, before);
            db.close().unwrap();
        }
    });
}
