//! Paged tables larger than memory, with operations that are polled once and kept. Workers load and
//! write pages, and an operation that is never polled again must not block pages or frames that
//! others need.

use std::future::{Future, pending, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use crate::common::{Watched, with_limit};
use crate::table_kind::create_table;
use braiddb::{Database, Durability, Error, Options, Table};
use futures_util::future::{join_all, maybe_done};
use pollster::block_on;

const LIMIT_SECONDS: u64 = 120;
const FRAMES: u32 = 12;
const RECORDS: u64 = 1_000;
const VALUE_BYTES: usize = 400;
/// Keys with this distance are on different leaves.
const APART: u64 = 20;

type Records = Table<u64, [u8]>;

fn value(key: u64, version: u8) -> Vec<u8> {
    vec![(key % 97) as u8 ^ version; VALUE_BYTES]
}

/// The log's ring in the smallest budgets.
const RING_BYTES: u64 = 32 << 20;
const PAGE_BYTES: u64 = 4096;
/// The number of pages that one worker reads at a time in a small budget.
const ADMITTED: u64 = 6;

/// Opens a database with a table of some ten times as many leaves as frames.
fn open(workers: usize) -> (tempfile::TempDir, Database, Records) {
    open_with(Options::default().workers(workers).durability(Durability::Volatile))
}

/// Opens such a database with one worker that reads only a few pages at a time.
fn open_small() -> (tempfile::TempDir, Database, Records) {
    // An eighth of the budget without the ring.
    let budget = RING_BYTES + 8 * ADMITTED * PAGE_BYTES;
    // The ring counts only if the database has a log.
    let options = Options::default().workers(1).durability(Durability::Relaxed);
    open_with(options.memory_budget(budget))
}

fn open_with(options: Options) -> (tempfile::TempDir, Database, Records) {
    let directory = tempfile::tempdir().unwrap();
    let db =
        Database::open(directory.path(), options.tune(|tuning| tuning.page_frames(Some(FRAMES))))
            .unwrap()
            .watched();
    let table: Records = create_table(&db, "records", true);
    for keys in (0..RECORDS).collect::<Vec<_>>().chunks(20) {
        let (table, keys) = (table.clone(), keys.to_vec());
        let write = async move |tx: &braiddb::Transaction| {
            for key in &keys {
                tx.insert(&table, key, &value(*key, 0)[..]).await?;
            }
            Ok::<_, Error>(())
        };
        db.run_blocking(write).unwrap();
    }
    (directory, db, table)
}

/// Polls each future once. Returns the number of futures that wait.
async fn poll_each_once<F: Future + Unpin>(futures: &mut [F]) -> usize {
    poll_fn(|context| {
        let pending = |future: &mut F| Pin::new(future).poll(context).is_pending();
        Poll::Ready(futures.iter_mut().map(pending).filter(|pending| *pending).count())
    })
    .await
}

/// Asserts that a record has its first value.
async fn assert_first(tx: &braiddb::Transaction, table: &Records, key: u64) -> Result<(), Error> {
    assert!(tx.get(table, &key).await? == Some(&value(key, 0)[..]), "key {key}");
    Ok(())
}

/// Returns keys on leaves that are not resident, because all other keys were read since.
async fn absent(tx: &braiddb::Transaction, table: &Records, keys: u64) -> Result<Vec<u64>, Error> {
    for _ in 0..2 {
        for key in (RECORDS / 2..RECORDS).step_by(8) {
            assert_first(tx, table, key).await?;
        }
    }
    Ok((0..keys).map(|number| number * APART).collect())
}

#[test]
fn an_unpolled_read_does_not_block_its_page() {
    with_limit(LIMIT_SECONDS, |_| {
        let (_directory, db, table) = open(1);
        let watched = db.clone();
        let read = db.run_blocking(async move |tx| {
            let key = absent(tx, &table, 1).await?[0];
            let faults = watched.stats().pages.faults;
            let mut kept = [Box::pin(tx.get(&table, &key))];
            assert_eq!(poll_each_once(&mut kept).await, 1, "its page is on disk");
            for other in key..key + 4 {
                assert_first(tx, &table, other).await?;
            }
            assert!(watched.stats().pages.faults > faults, "the page was loaded");
            let [kept] = kept;
            assert!(kept.await? == Some(&value(key, 0)[..]));
            Ok::<_, Error>(())
        });
        read.unwrap();
        db.close().unwrap();
    });
}

#[test]
fn unpolled_reads_hold_no_frame() {
    with_limit(LIMIT_SECONDS, |_| {
        let (_directory, db, table) = open(1);
        let read = db.run_blocking(async move |tx| {
            let keys = absent(tx, &table, 2 * u64::from(FRAMES)).await?;
            let mut kept: Vec<_> = keys.iter().map(|key| Box::pin(tx.get(&table, key))).collect();
            assert_eq!(poll_each_once(&mut kept).await, keys.len(), "their pages are on disk");
            // Reads these pages and others in both directions, and drops some of the reads.
            for (number, key) in (0..RECORDS).step_by(7).chain((0..RECORDS).rev()).enumerate() {
                assert_first(tx, &table, key).await?;
                if number % 16 == 8 && kept.len() > FRAMES as usize {
                    drop(kept.swap_remove(0));
                }
            }
            assert_eq!(kept.len(), FRAMES as usize);
            for found in join_all(kept).await {
                assert_eq!(found?.map(<[u8]>::len), Some(VALUE_BYTES));
            }
            Ok::<_, Error>(())
        });
        read.unwrap();
        db.close().unwrap();
    });
}

#[test]
fn concurrent_page_reads_are_limited_by_admission() {
    with_limit(LIMIT_SECONDS, |_| {
        let (_directory, db, table) = open_small();
        let watched = db.clone();
        let reading = move || watched.stats().memory.reads;
        let read = db.run_blocking(async move |tx| {
            let keys = absent(tx, &table, 2 * u64::from(FRAMES)).await?;
            let mut kept: Vec<_> = keys.iter().map(|key| Box::pin(tx.get(&table, key))).collect();
            assert_eq!(poll_each_once(&mut kept).await, keys.len(), "their pages are on disk");
            assert_eq!(reading(), ADMITTED * PAGE_BYTES, "the others wait in line");
            // The admitted reads are not polled; yet others complete.
            for key in (0..RECORDS).step_by(7) {
                assert_first(tx, &table, key).await?;
            }
            for found in join_all(kept).await {
                assert_eq!(found?.map(<[u8]>::len), Some(VALUE_BYTES));
            }
            assert_eq!(reading(), 0);
            Ok::<_, Error>(())
        });
        read.unwrap();
        db.close().unwrap();
    });
}

#[test]
fn cancelled_reads_count_until_they_complete() {
    with_limit(LIMIT_SECONDS, |_| {
        let (_directory, db, table) = open_small();
        let watched = db.clone();
        let reading = move || watched.stats().memory.reads;
        let read = db.run_blocking(async move |tx| {
            let keys = absent(tx, &table, 2 * u64::from(FRAMES)).await?;
            // In one poll, so that no read completes in between.
            for key in &keys {
                let mut given_up = [Box::pin(tx.get(&table, key))];
                assert_eq!(poll_each_once(&mut given_up).await, 1, "its page is on disk");
            }
            assert_eq!(reading(), ADMITTED * PAGE_BYTES, "no more were begun");
            for key in &keys {
                assert_first(tx, &table, *key).await?;
            }
            assert_eq!(reading(), 0);
            Ok::<_, Error>(())
        });
        read.unwrap();
        db.close().unwrap();
    });
}

/// Garbage of aborted transactions is freed when no operation holds it. An operation that waits for
/// its page does not hold it.
#[test]
fn an_operation_that_waits_for_a_page_does_not_delay_reclamation() {
    const ABORTED: u64 = 500;
    with_limit(LIMIT_SECONDS, |_| {
        for writes in [false, true] {
            let (_directory, db, table) = open(1);
            let inside = db.clone();
            let waiting = db.run_blocking(async move |tx| {
                let key = absent(tx, &table, 1).await?[0];
                let operation = async {
                    match writes {
                        true => tx.put(&table, &key, &value(key, 0)[..]).await.map(drop),
                        false => tx.get(&table, &key).await.map(drop),
                    }
                };
                let mut scan = tx.scan(&table, key..)?;
                let mut kept = [Box::pin(operation)];
                let mut scanning = [Box::pin(scan.next())];
                assert_eq!(poll_each_once(&mut kept).await, 1, "its page is on disk");
                assert_eq!(poll_each_once(&mut scanning).await, 1, "its page is on disk");
                for _ in 0..ABORTED {
                    let table = table.clone();
                    let taken_back = inside.run(async move |tx| {
                        let key = RECORDS - 1;
                        tx.put(&table, &key, &value(key, 1)[..]).await?;
                        Err::<(), _>(Error::Closed)
                    });
                    assert!(matches!(taken_back.await, Err(Error::Closed)));
                }
                let left = |db: &Database| db.stats().memory.versions;
                while left(&inside) > ABORTED * VALUE_BYTES as u64 / 8 {
                    inside.run(async |tx| tx.tables().await.map(drop)).await?;
                }
                let [kept] = kept;
                kept.await?;
                let [scanning] = scanning;
                assert_eq!(scanning.await?.map(|(found, _)| found), Some(key));
                Ok::<_, Error>(())
            });
            waiting.unwrap();
            db.close().unwrap();
        }
    });
}

/// Transactions fill frames with dirty pages, then begin writes that need other frames. They keep
/// these writes without polling them, although the writes have begun to write pages back.
#[test]
fn unpolled_writes_block_no_page() {
    with_limit(LIMIT_SECONDS, |_| {
        let (_directory, db, table) = open(2);
        let transactions = (0..2).map(|half| {
            let (table, watched) = (table.clone(), db.clone());
            db.run(async move |tx| {
                let mine = |number: u64| number * APART + half;
                let count = RECORDS / APART;
                let write = |key: u64| {
                    let (table, tx) = (&table, tx);
                    async move { tx.put(table, &key, &value(key, 1)[..]).await.map(drop) }
                };
                for number in 0..count / 2 {
                    write(mine(number)).await?;
                }
                // Some may find a frame and complete immediately.
                let mut kept: Vec<_> = (count / 2..count)
                    .map(|number| Box::pin(maybe_done(write(mine(number)))))
                    .collect();
                poll_each_once(&mut kept).await;
                for number in (0..count / 2).chain(0..count / 2) {
                    let key = mine(number);
                    assert!(tx.get(&table, &key).await? == Some(&value(key, 1)[..]), "key {key}");
                }
                // Reads pages of other transactions too.
                for key in (4..RECORDS).step_by(APART as usize) {
                    assert_first(tx, &table, key).await?;
                }
                for mut kept in kept {
                    kept.as_mut().await;
                    kept.as_mut().take_output().expect("it is done")?;
                }
                assert!(watched.stats().pages.written > 0);
                Ok::<_, Error>(())
            })
        });
        for ended in block_on(join_all(transactions.collect::<Vec<_>>())) {
            ended.unwrap();
        }
        db.close().unwrap();
    });
}

/// Transactions wait for an external event and hold operations that have begun as many loads as
/// frames exist. When they are dropped, others that need the same pages complete. Closing waits for
/// none of them.
#[test]
fn closing_does_not_wait_for_unpolled_operations() {
    with_limit(LIMIT_SECONDS, |_| {
        let (_directory, db, table) = open(2);
        let (kept_by, keeping) = std::sync::mpsc::channel();
        let keepers = (0..2u64).map(|number| {
            let (table, kept_by) = (table.clone(), kept_by.clone());
            db.run(async move |tx| {
                let keys = absent(tx, &table, 2 * u64::from(FRAMES)).await?;
                let keys = keys.iter().map(|key| key + number);
                let gets = keys.map(|key| {
                    let (table, tx) = (&table, tx);
                    Box::pin(async move { tx.get(table, &key).await.map(drop) })
                });
                let mut kept: Vec<_> = gets.collect();
                assert!(poll_each_once(&mut kept).await > 0, "pages are on disk");
                kept_by.send(()).unwrap();
                pending::<()>().await;
                Ok::<_, Error>(())
            })
        });
        let mut keepers = Box::pin(join_all(keepers.collect::<Vec<_>>()));
        assert!(
            block_on(poll_fn(|context| Poll::Ready(keepers.as_mut().poll(context)))).is_pending()
        );
        (0..2).for_each(|_| keeping.recv().unwrap());
        let others = (0..8u64).map(|number| {
            let table = table.clone();
            db.run(async move |tx| {
                for key in (number..RECORDS).step_by(8) {
                    assert_first(tx, &table, key).await?;
                }
                Ok::<_, Error>(())
            })
        });
        for ended in block_on(join_all(others.collect::<Vec<_>>())) {
            ended.unwrap();
        }
        db.close().unwrap();
        for ended in block_on(keepers) {
            assert!(matches!(ended, Err(Error::Closed)), "{ended:?}");
        }
    });
}

/// Like the test above, but the operations are polled with a waker without effect, or dropped in
/// their first poll. From then on the transactions wait for another event, and no load wakes them.
#[test]
fn closing_ends_tasks_that_do_not_await_their_loads() {
    with_limit(LIMIT_SECONDS, |_| {
        for keeps in [false, true] {
            let (_directory, db, table) = open(1);
            let (begins, begun) = std::sync::mpsc::channel();
            let mut waiting = Box::pin(db.run(async move |tx| {
                let keys = absent(tx, &table, 4).await?;
                let mut kept: Vec<_> =
                    keys.iter().map(|key| Box::pin(tx.get(&table, key))).collect();
                if keeps {
                    let mut nobody = Context::from_waker(Waker::noop());
                    for get in &mut kept {
                        assert!(get.as_mut().poll(&mut nobody).is_pending(), "it is on disk");
                    }
                } else {
                    assert_eq!(poll_each_once(&mut kept).await, keys.len(), "they are on disk");
                    kept.clear();
                }
                begins.send(()).unwrap();
                pending::<Result<(), Error>>().await
            }));
            let first = poll_fn(|context| Poll::Ready(waiting.as_mut().poll(context)));
            assert!(block_on(first).is_pending());
            begun.recv().unwrap();
            db.close().unwrap();
            let ended = block_on(waiting);
            assert!(matches!(ended, Err(Error::Closed)), "kept {keeps}: {ended:?}");
        }
    });
}
