//! Large writes that wait until eviction has made room for their values: each of them ends, and
//! only those are delayed that need memory.

use std::pin::Pin;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::task::{Context, Poll, Waker};

use crate::common::{Watched, with_limit};
use crate::table_kind::create_table;
use braiddb::{Database, Durability, Error, MAX_VALUE_BYTES, Options, Table, Transaction};
use futures_channel::oneshot;
use futures_util::future::{join_all, maybe_done, poll_fn};
use pollster::block_on;

const MIB: u64 = 1 << 20;
/// The size of the log's ring.
const RING: u64 = 32 * MIB;
/// The budget with which memory has room for two values.
const BUDGET: u64 = RING + 4 * MIB;
const VALUE_BYTES: usize = 5 << 18;
const LIMIT_SECONDS: u64 = 300;

/// Calls `test` with a database, and a table of each kind.
fn each_kind(workers: usize, test: impl Fn(&Database, &Table<u64, [u8]>) + Send + 'static) {
    with_limit(LIMIT_SECONDS, move |_| {
        for paged in [false, true] {
            println!("paged: {paged}");
            let directory = tempfile::tempdir().unwrap();
            let options = Options::default().workers(workers).memory_budget(BUDGET);
            let db = Database::open(directory.path(), options).unwrap().watched();
            test(&db, &create_table(&db, "values", paged));
            let memory = db.stats().memory;
            assert_eq!(memory.reads, 0, "{memory:?}");
            db.close().unwrap();
        }
    });
}

fn value(key: u64) -> Vec<u8> {
    vec![key as u8 + 1; VALUE_BYTES]
}

/// Polls each future once.
async fn poll_each_once<F: Future + Unpin>(futures: &mut [F]) {
    poll_fn(|context| {
        for future in &mut *futures {
            _ = Pin::new(future).poll(context);
        }
        Poll::Ready(())
    })
    .await;
}

#[test]
fn counted_memory_stays_within_the_budget() {
    each_kind(4, |db, table| {
        let (is_over, most) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    // Without the values that wait to be written, which use no memory yet.
                    let memory = db.stats().memory;
                    let used = memory.versions + memory.copies + memory.pages + memory.ring;
                    most.fetch_max(used, Ordering::Relaxed);
                    std::thread::yield_now();
                }
            });
            let puts = (0..40).map(|key| db.put(table, &key, &value(key)[..]));
            block_on(join_all(puts.collect::<Vec<_>>())).into_iter().for_each(Result::unwrap);
            is_over.store(true, Ordering::Relaxed);
        });
        let most = most.into_inner();
        println!("{most} bytes at most: {:?}", db.stats().memory);
        assert!(most <= BUDGET / 10 * 11, "{most}");
    });
}

#[test]
fn cancelled_writes_block_no_other() {
    each_kind(1, |db, table| {
        for round in 0..4 {
            let put = |key| db.put(table, &key, &value(key)[..]);
            // A write may have ended when another one is cancelled.
            let mut puts: Vec<_> = (0..8).map(|key| Box::pin(maybe_done(put(key)))).collect();
            for _ in 0..round {
                block_on(poll_each_once(&mut puts));
                std::thread::yield_now();
            }
            drop(puts.drain(round..round + 3));
            block_on(join_all(&mut puts));
            for mut put in puts {
                put.as_mut().take_output().expect("it has ended").unwrap();
            }
            block_on(db.put(table, &round_key(round), &value(1)[..])).unwrap();
        }
    });
}

fn round_key(round: usize) -> u64 {
    100 + round as u64
}

/// A transaction that waits for room, and is not polled when it has it, is first in line.
#[test]
fn unpolled_writes_block_no_other() {
    each_kind(1, |db, table| {
        let (begins, begun) = channel();
        let hold = |keys: std::ops::Range<u64>, wakes: bool| {
            let (go_on, waits) = oneshot::channel::<()>();
            let (begins, waits) = (begins.clone(), Mutex::new(Some(waits)));
            let body = async move |tx: &Transaction, table: &Table<u64, [u8]>| {
                let waits = waits.lock().unwrap().take().expect("it runs once");
                for key in keys.clone() {
                    let bytes = value(key);
                    let mut put = Box::pin(maybe_done(tx.put(table, &key, &bytes[..])));
                    if wakes {
                        put.as_mut().await;
                    } else {
                        _ = put.as_mut().poll(&mut Context::from_waker(Waker::noop()));
                        begins.send(()).unwrap();
                    }
                    if key + 1 == keys.end {
                        begins.send(()).unwrap();
                        _ = waits.await;
                        put.as_mut().await;
                        return put.as_mut().take_output().expect("it has ended");
                    }
                }
                Ok(())
            };
            (go_on, Box::pin(db.run_on(table, body)))
        };
        // Its versions fill the memory, and cannot be evicted.
        let (first, mut holding) = hold(0..2, true);
        block_on(poll_each_once(std::slice::from_mut(&mut holding)));
        begun.recv().unwrap();
        let (second, mut waiting) = hold(10..11, false);
        block_on(poll_each_once(std::slice::from_mut(&mut waiting)));
        begun.recv().unwrap();
        for key in 20..23 {
            block_on(db.put(table, &key, &value(key)[..])).unwrap();
        }
        drop((first, second));
        block_on(holding).unwrap();
        block_on(waiting).unwrap();
    });
}

/// The budget leaves less memory than a value needs: it is written alone.
#[test]
fn values_larger_than_the_memory_for_records_are_written() {
    with_limit(LIMIT_SECONDS, |_| {
        for (paged, durability) in [(false, Durability::Relaxed), (true, Durability::Group)] {
            let directory = tempfile::tempdir().unwrap();
            let options = Options::default().workers(2).memory_budget(BUDGET);
            let options = options.durability(durability);
            let db = Database::open(directory.path(), options).unwrap().watched();
            let table: Table<u64, [u8]> = create_table(&db, "values", paged);
            let bytes = vec![7; MAX_VALUE_BYTES];
            let puts = (0..3).map(|key| db.put(&table, &key, &bytes[..]));
            block_on(join_all(puts.collect::<Vec<_>>())).into_iter().for_each(Result::unwrap);
            for key in 0..3 {
                assert!(block_on(db.get(&table, &key)).unwrap().as_ref() == Some(&bytes));
            }
            // One transaction with several of them.
            let written = db.run_on(&table, async move |tx, table| {
                for key in 0..2 {
                    tx.put(table, &key, &bytes[..]).await?;
                }
                Ok(())
            });
            block_on(written).unwrap();
            db.close().unwrap();
        }
    });
}

#[test]
fn a_panic_releases_its_room() {
    each_kind(1, |db, table| {
        for _ in 0..3 {
            let panicking = db.run_on(table, async move |tx, table| {
                let bytes = value(0);
                let mut put = Box::pin(tx.put(table, &1, &bytes[..]));
                poll_each_once(std::slice::from_mut(&mut put)).await;
                if tx.is_empty(table).await? || !tx.is_empty(table).await? {
                    panic!("planned");
                }
                put.await
            });
            assert!(matches!(block_on(panicking), Err(Error::Panicked { .. })));
        }
        let puts = (0..6).map(|key| db.put(table, &key, &value(key)[..]));
        block_on(join_all(puts.collect::<Vec<_>>())).into_iter().for_each(Result::unwrap);
    });
}

#[test]
fn closing_ends_writes_that_wait() {
    each_kind(2, |db, table| {
        let puts = (0..12).map(|key| Box::pin(db.put(table, &key, &value(key)[..])));
        let mut puts: Vec<_> = puts.collect();
        block_on(poll_each_once(&mut puts));
        db.close().unwrap();
        for ended in block_on(join_all(puts)) {
            assert!(matches!(ended, Ok(()) | Err(Error::Closed)), "{ended:?}");
        }
    });
}
