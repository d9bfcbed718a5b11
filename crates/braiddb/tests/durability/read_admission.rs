//! Reads of the log that wait for admission by their bytes. Every read that releases bytes admits
//! others, and reads that their transaction never polls again block no other read.

use std::future::{Future, pending, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use crate::common::{Watched, with_limit};
use braiddb::{Database, Error, Options, Table, TableOptions, Tuning};
use futures_util::future::join_all;
use pollster::block_on;

const MIB: u64 = 1 << 20;
/// The size of the log's ring.
const RING: u64 = 64 * MIB;
/// The budget with which a worker admits one value at a time.
const BUDGET: u64 = RING + 4 * MIB;
const VALUES: u64 = 24;
const VALUE_BYTES: usize = MIB as usize;

fn value(key: u64) -> Vec<u8> {
    vec![key as u8 + 1; VALUE_BYTES]
}

/// Opens a database whose values are only on disk and are not cached.
fn open() -> (tempfile::TempDir, Database, Table<u64, [u8]>) {
    let directory = tempfile::tempdir().unwrap();
    let options = Options::default()
        .workers(1)
        .memory_budget(BUDGET)
        .tuning(Tuning::default().log_ring_bytes(64 << 20));
    let db = Database::open(directory.path(), options.clone()).unwrap().watched();
    let uncached = TableOptions::default().cache_cold(false);
    let table: Table<u64, [u8]> =
        db.run_blocking(async move |tx| tx.create_table_with("values", uncached).await).unwrap();
    for key in 0..VALUES {
        let (table, bytes) = (table.clone(), value(key));
        db.run_blocking(async move |tx| tx.put(&table, &key, &bytes[..]).await).unwrap();
    }
    db.close().unwrap();
    drop((db, table));
    let db = Database::open(directory.path(), options).unwrap().watched();
    let table = block_on(db.open_table("values")).unwrap();
    (directory, db, table)
}

/// Polls each future once; none is ready.
async fn poll_each_once<F: Future + Unpin>(futures: &mut [F]) {
    poll_fn(|context| {
        for future in &mut *futures {
            assert!(Pin::new(future).poll(context).is_pending(), "its value is on disk");
        }
        Poll::Ready(())
    })
    .await;
}

#[test]
fn unpolled_reads_block_no_other() {
    with_limit(120, |_| {
        let (_directory, db, table) = open();
        let watched = db.clone();
        let read = db.run_blocking(async move |tx| {
            // The first is admitted and read; the others wait in the queue before those below.
            let keys: Vec<u64> = (0..4).collect();
            let mut kept: Vec<_> = keys.iter().map(|key| Box::pin(tx.get(&table, key))).collect();
            poll_each_once(&mut kept).await;
            assert!(watched.stats().memory.reads < 2 * MIB, "{:?}", watched.stats().memory);
            for key in 4..8 {
                assert!(tx.get(&table, &key).await? == Some(&value(key)[..]), "key {key}");
            }
            // Dropped in the queue, and during the read.
            drop(kept.drain(1..3));
            for key in 8..12 {
                assert!(tx.get(&table, &key).await? == Some(&value(key)[..]), "key {key}");
            }
            for (key, found) in [0, 3].into_iter().zip(join_all(kept).await) {
                assert!(found? == Some(&value(key)[..]), "key {key}");
            }
            Ok(())
        });
        read.unwrap();
        assert_eq!(db.stats().memory.reads, 0, "{:?}", db.stats().memory);
        db.close().unwrap();
    });
}

/// The reads are polled with a waker without effect, so that admitting one of them wakes no task.
#[test]
fn reads_with_an_idle_waker_block_no_other() {
    with_limit(120, |_| {
        let (_directory, db, table) = open();
        let (kept_table, (go_on, waits)) =
            (table.clone(), futures_channel::oneshot::channel::<()>());
        let (keeps, kept) = std::sync::mpsc::channel();
        let holding = std::thread::spawn({
            let db = db.clone();
            move || {
                let waits = std::sync::Mutex::new(Some(waits));
                db.run_blocking(async move |tx| {
                    let keys: Vec<u64> = (0..9).collect();
                    let mut gets: Vec<_> =
                        keys.iter().map(|key| Box::pin(tx.get(&kept_table, key))).collect();
                    let mut nobody = Context::from_waker(Waker::noop());
                    for get in &mut gets {
                        assert!(
                            get.as_mut().poll(&mut nobody).is_pending(),
                            "its value is on disk"
                        );
                    }
                    keeps.send(()).unwrap();
                    let waits = waits.lock().unwrap().take();
                    _ = waits.expect("it runs once").await;
                    for (key, found) in keys.iter().zip(join_all(gets).await) {
                        assert!(found? == Some(&value(*key)[..]), "key {key}");
                    }
                    Ok(())
                })
            }
        });
        kept.recv().unwrap();
        // The worker is otherwise idle.
        assert!(block_on(db.get(&table, &20)).unwrap() == Some(value(20)));
        go_on.send(()).unwrap();
        holding.join().unwrap().unwrap();
        assert_eq!(db.stats().memory.reads, 0, "{:?}", db.stats().memory);
        db.close().unwrap();
    });
}

#[test]
fn concurrent_reads_are_all_admitted_eventually() {
    with_limit(120, |_| {
        let (_directory, db, table) = open();
        let transactions = (0..4u64).map(|number| {
            let table = table.clone();
            db.run(async move |tx| {
                let keys: Vec<u64> = (0..VALUES).map(|key| (key * 7 + number) % VALUES).collect();
                // Each is dropped once, in the queue or during the read.
                let mut dropped: Vec<_> =
                    keys.iter().map(|k| Box::pin(tx.get(&table, k))).collect();
                poll_each_once(&mut dropped).await;
                drop(dropped);
                let found = join_all(keys.iter().map(|key| tx.get(&table, key))).await;
                for (key, found) in keys.iter().zip(found) {
                    assert!(found? == Some(&value(*key)[..]), "key {key}");
                }
                Ok(())
            })
        });
        let ended = block_on(join_all(transactions.collect::<Vec<_>>()));
        ended.into_iter().for_each(Result::unwrap);
        assert_eq!(db.stats().memory.reads, 0, "{:?}", db.stats().memory);
        db.close().unwrap();
    });
}

/// Closing drops the last worker's reads, in progress and in the queue, with their transactions.
#[test]
fn closing_ends_tasks_that_wait_for_admission() {
    with_limit(120, |_| {
        let (_directory, db, table) = open();
        let reads: Vec<_> = (0..VALUES)
            .map(|key| {
                let table = table.clone();
                db.run(async move |tx| Ok(tx.get(&table, &key).await?.map(<[u8]>::len)))
            })
            .collect();
        let mut reads = Box::pin(join_all(reads));
        block_on(poll_each_once(std::slice::from_mut(&mut reads)));
        db.close().unwrap();
        for ended in block_on(reads) {
            assert!(matches!(ended, Ok(Some(VALUE_BYTES)) | Err(Error::Closed)), "{ended:?}");
        }
        assert_eq!(db.stats().memory.reads, 0, "{:?}", db.stats().memory);
    });
}

/// The state of reads that a transaction has begun and does not await.
#[derive(Clone, Copy, Debug)]
enum Reads {
    GivenUp,
    /// Kept, and polled with a waker without effect.
    Kept,
    /// Begun again, and dropped, at each poll.
    Renewed,
}

/// The reads that a transaction began before it suspended do not determine what it waits for: they
/// may be dropped in the same poll, or wake no task when they complete.
#[test]
fn closing_ends_tasks_that_do_not_await_their_reads() {
    with_limit(120, |_| {
        for reads in [Reads::GivenUp, Reads::Kept, Reads::Renewed] {
            let (_directory, db, table) = open();
            let (begins, begun) = std::sync::mpsc::channel();
            let mut waiting = Box::pin(db.run(async move |tx| {
                let keys: Vec<u64> = (0..3).collect();
                let mut gets: Vec<_> =
                    keys.iter().map(|key| Box::pin(tx.get(&table, key))).collect();
                let mut nobody = Context::from_waker(Waker::noop());
                match reads {
                    Reads::Kept => {
                        for get in &mut gets {
                            assert!(get.as_mut().poll(&mut nobody).is_pending(), "it is on disk");
                        }
                    }
                    Reads::GivenUp => {
                        poll_each_once(&mut gets).await;
                        gets.clear();
                    }
                    Reads::Renewed => {
                        let mut first = Some(&begins);
                        poll_fn(|context| {
                            // Only one read: dropping one of several queued reads admits the next
                            // and so wakes the task.
                            let mut get = Box::pin(tx.get(&table, &keys[0]));
                            assert!(get.as_mut().poll(context).is_pending(), "it is on disk");
                            first.take().into_iter().for_each(|begins| begins.send(()).unwrap());
                            Poll::<()>::Pending
                        })
                        .await;
                    }
                }
                begins.send(()).unwrap();
                pending::<Result<(), Error>>().await
            }));
            block_on(poll_each_once(std::slice::from_mut(&mut waiting)));
            begun.recv().unwrap();
            db.close().unwrap();
            let ended = block_on(waiting);
            assert!(matches!(ended, Err(Error::Closed)), "{reads:?}: {ended:?}");
            assert_eq!(db.stats().memory.reads, 0, "{:?}", db.stats().memory);
        }
    });
}
