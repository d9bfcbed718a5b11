//! An executor inside a transaction polls the parts of a future, each only after its own waker was
//! woken. Every wait of a part, for memory, storage or an external event, must wake the part.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use braiddb::{Database, Error, Options, Table, Transaction, Tuning, Width};
use futures_channel::oneshot;
use futures_util::future::{Either, join, join_all, select};
use futures_util::stream::{self, FuturesUnordered, StreamExt};
use pollster::block_on;

use crate::common::{Watched, with_limit};

const LIMIT_SECONDS: u64 = 120;
const MIB: u64 = 1 << 20;
/// So many that index and versions exceed the cache: reads suspend for memory.
const IN_MEMORY: u64 = 100_000;
/// The number and length of records, of which most are only in the log.
const ON_DISK: u64 = 10_000;
const BYTES_ON_DISK: usize = 1000;
/// The number of concurrent transactions: a single one does not suspend for memory.
const SIDE_BY_SIDE: u64 = 4;
/// More than the number up to which `join_all` polls all parts itself.
const PARTS: u64 = 200;

type Records = Table<u64, [u8]>;

fn value(key: u64, bytes: usize) -> Vec<u8> {
    key.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes().into_iter().cycle().take(bytes).collect()
}

fn fill(db: &Database, records: u64, bytes: usize) -> Records {
    let table: Records = block_on(db.create_table("records")).unwrap();
    let filled = table.clone();
    let run = db.run_source(0, (0..records).step_by(100), async move |tx, first: &u64| {
        for key in *first..first + 100 {
            tx.put(&filled, &key, &value(key, bytes)[..]).await?;
        }
        Ok(())
    });
    run.unwrap().wait().unwrap();
    table
}

fn keys(seed: u64, records: u64) -> impl Iterator<Item = u64> {
    (0..PARTS).map(move |n| (seed * PARTS + n) * 7919 % records)
}

/// Runs `body` concurrently in several transactions on one worker, over records in memory and then
/// over records on disk. `body` receives a number, the number of records, and their length.
fn run_everywhere<F>(body: F)
where
    F: AsyncFn(&Transaction, &Records, u64, u64, usize) -> Result<(), Error>
        + Clone
        + Send
        + Sync
        + 'static,
{
    with_limit(LIMIT_SECONDS, move |_| {
        let directory = tempfile::tempdir().unwrap();
        let options =
            Options::default().workers(1).tuning(Tuning::default().hot_width(Width::Fixed(8)));
        let in_memory = Database::in_memory(options.clone()).unwrap().watched();
        let options = options
            .memory_budget(Some(64 * MIB + 4 * MIB))
            .tune(|tuning| tuning.log_segment_bytes(4 * MIB).log_ring_bytes(64 << 20));
        let on_disk = Database::open(directory.path(), options).unwrap().watched();
        for (db, records, bytes) in [(in_memory, IN_MEMORY, 8), (on_disk, ON_DISK, BYTES_ON_DISK)] {
            let table = fill(&db, records, bytes);
            let before = db.stats().suspensions;
            let runs = (0..SIDE_BY_SIDE).map(|number| {
                let (table, body) = (table.clone(), body.clone());
                db.run(async move |tx| body(tx, &table, number, records, bytes).await)
            });
            let results: Vec<Result<(), Error>> = block_on(join_all(runs));
            results.into_iter().for_each(|result| result.unwrap());
            let after = db.stats().suspensions;
            // Counted once for all parts of a transaction that suspend together.
            if bytes == BYTES_ON_DISK {
                assert!(after.storage > before.storage, "{before:?} {after:?}");
            } else {
                assert!(after.memory > before.memory, "{before:?} {after:?}");
            }
        }
    });
}

async fn check(tx: &Transaction, table: &Records, key: u64, bytes: usize) -> Result<(), Error> {
    assert!(tx.get(table, &key).await? == Some(&value(key, bytes)[..]), "record {key}");
    Ok(())
}

#[test]
fn joined_reads_complete() {
    run_everywhere(async |tx, table, number, records, bytes| {
        let reads = keys(number, records).map(|key| check(tx, table, key, bytes));
        join_all(reads).await.into_iter().collect()
    });
}

#[test]
fn buffered_unordered_reads_complete() {
    run_everywhere(async |tx, table, number, records, bytes| {
        let reads = stream::iter(keys(number, records)).map(|key| check(tx, table, key, bytes));
        let results: Vec<_> = reads.buffer_unordered(40).collect().await;
        assert_eq!(results.len() as u64, PARTS);
        results.into_iter().collect()
    });
}

#[test]
fn concurrent_reads_writes_and_scans_complete() {
    run_everywhere(async |tx, table, number, records, bytes| {
        type Part<'p> = Pin<Box<dyn Future<Output = Result<(), Error>> + 'p>>;
        let mut parts = FuturesUnordered::<Part<'_>>::new();
        for (place, key) in keys(number, records).enumerate() {
            parts.push(match place % 4 {
                // Keys of this transaction only, because transactions run concurrently.
                0 => Box::pin(async move {
                    let mine = records + number * PARTS + place as u64;
                    tx.insert(table, &mine, &value(mine, bytes)[..]).await?;
                    check(tx, table, mine, bytes).await
                }),
                1 => Box::pin(async move {
                    let mut scan = tx.scan(table, key..records)?;
                    for next in key..records.min(key + 10) {
                        let (found, bytes_found) = scan.next().await?.expect("a record");
                        assert!(found == next && bytes_found == &value(next, bytes)[..]);
                    }
                    Ok(())
                }),
                2 => Box::pin(async move {
                    let values = tx.multi_get(table, &[key, records * 2]).await?;
                    assert!(values == [Some(&value(key, bytes)[..]), None]);
                    Ok(())
                }),
                _ => Box::pin(check(tx, table, key, bytes)),
            });
        }
        while let Some(result) = parts.next().await {
            result?;
        }
        Ok(())
    });
}

#[test]
fn select_of_a_read_and_a_pending_future_returns_the_read() {
    run_everywhere(async |tx, table, number, records, bytes| {
        for key in keys(number, records) {
            let read = Box::pin(check(tx, table, key, bytes));
            match select(std::future::pending::<()>(), read).await {
                Either::Left(((), _)) => unreachable!("it never comes"),
                Either::Right((result, _)) => result?,
            }
        }
        Ok(())
    });
}

/// One part waits for a message that another part sends after its read.
#[test]
fn a_part_may_wait_for_another_part() {
    run_everywhere(async |tx, table, number, records, bytes| {
        for key in keys(number, records) {
            let (sender, receiver) = oneshot::channel();
            let reads = async {
                check(tx, table, key, bytes).await?;
                sender.send(()).expect("the other part waits");
                Ok::<_, Error>(())
            };
            let (sent, read) = join(receiver, reads).await;
            read?;
            sent.expect("sent before");
        }
        Ok(())
    });
}

type ReadPart<'p> = Pin<Box<dyn Future<Output = ()> + 'p>>;

/// A minimal executor: parts, each with a flag that requests a poll.
struct Parts<'p> {
    parts: Vec<(Arc<Flag>, ReadPart<'p>)>,
}

struct Flag {
    is_raised: AtomicBool,
    outer: Waker,
}

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.is_raised.store(true, Ordering::SeqCst);
        self.outer.wake_by_ref();
    }
}

impl<'p> Parts<'p> {
    fn new(outer: &Waker, futures: Vec<ReadPart<'p>>) -> Self {
        let flag = || Flag { is_raised: AtomicBool::new(true), outer: outer.clone() };
        Self { parts: futures.into_iter().map(|future| (Arc::new(flag()), future)).collect() }
    }

    fn poll(&mut self) -> Poll<()> {
        self.parts.retain_mut(|(flag, future)| {
            if !flag.is_raised.swap(false, Ordering::SeqCst) {
                return true;
            }
            let waker = Waker::from(flag.clone());
            future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending()
        });
        if self.parts.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    }
}

#[test]
fn parts_complete_in_an_executor_that_polls_only_woken_tasks() {
    run_everywhere(async |tx, table, number, records, bytes| {
        let read = Cell::new(0);
        let mut parts = None;
        poll_fn(|context| {
            let parts = parts.get_or_insert_with(|| {
                let reads = keys(number, records).map(|key| {
                    let read = &read;
                    let part = async move {
                        check(tx, table, key, bytes).await.unwrap();
                        read.set(read.get() + 1);
                    };
                    Box::pin(part) as ReadPart<'_>
                });
                Parts::new(context.waker(), reads.collect())
            });
            parts.poll()
        })
        .await;
        assert_eq!(read.get(), PARTS);
        Ok(())
    });
}
