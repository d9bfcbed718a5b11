//! No operation keeps its worker for long: the engine's loops over a caller's data suspend. Each
//! test checks the longest stretch of processor time between two turns of a worker.

mod common;
#[path = "common/table_kind.rs"]
mod table_kind;

use std::future::{pending, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::task::Poll;
use std::time::{Duration, Instant};

use braiddb::changes::ChangesFrom;
use braiddb::{
    Database, Durability, Error, IndexKeys, IndexOptions, Isolation, Misuse, Options, Table,
    Transaction,
};
use pollster::block_on;

use common::{Watched, with_limit};
use table_kind::create_table;

const LIMIT_SECONDS: u64 = 240;
const RECORDS: u64 = if cfg!(debug_assertions) { 40_000 } else { 200_000 };
/// Most of it is page faults, the return of freed memory, and the memory of a dropped table, which is
/// freed in one piece. Processor time on a busy machine varies by a few times. Without suspension,
/// the same loops take longer than this.
const MAX_STRETCH: Duration = Duration::from_millis(if cfg!(debug_assertions) { 400 } else { 150 });

/// Number of records of a test that waits for the disk, and that the load of a machine delays most.
const FEW_RECORDS: u64 = RECORDS / 4;
/// Number of page frames of a test whose records do not fit in memory.
const FEW_FRAMES: u32 = 64;
/// Number of tables that one transaction creates.
const TABLES: usize = if cfg!(debug_assertions) { 2000 } else { 10_000 };

/// Runs `test` on tables of both kinds, and checks the stretches.
fn each_kind(test: impl Fn(&Database, &Table<u64, [u8]>) + Send + Copy + 'static) {
    each_kind_with(None, test);
}

/// Does what `each_kind` does, with a number of page frames instead of a share of the budget.
fn each_kind_with(
    frames: Option<u32>,
    test: impl Fn(&Database, &Table<u64, [u8]>) + Send + Copy + 'static,
) {
    for paged in [false, true] {
        with_limit(LIMIT_SECONDS, move |_| {
            let directory = tempfile::tempdir().unwrap();
            let options = Options::default().workers(1).durability(Durability::Relaxed);
            // The final validation of a serializable transaction does not suspend.
            let options = options.isolation(Isolation::Snapshot);
            // Only traced workers measure processor time.
            let options = options.memory_budget(1 << 30);
            let options = options.tune(|tuning| tuning.trace(1).page_frames(frames));
            let db = Database::open(directory.path(), options).unwrap().watched();
            let table = create_table(&db, "records", paged);
            test(&db, &table);
            let longest = longest(&db);
            println!("paged: {paged}, longest stretch {longest:?}");
            assert!(longest < MAX_STRETCH, "paged: {paged}, {longest:?}");
            db.close().unwrap();
        });
    }
}

fn longest(db: &Database) -> Duration {
    db.stats().workers.iter().map(|worker| worker.longest_cpu_stretch).max().unwrap()
}

async fn write_all(tx: &Transaction, table: &Table<u64, [u8]>, byte: u8) -> Result<(), Error> {
    write_some(tx, table, RECORDS, byte).await
}

async fn write_some(
    tx: &Transaction,
    table: &Table<u64, [u8]>,
    records: u64,
    byte: u8,
) -> Result<(), Error> {
    for key in 0..records {
        tx.put(table, &key, &[byte; 100]).await?;
    }
    Ok(())
}

fn assert_all(db: &Database, table: &Table<u64, [u8]>, byte: Option<u8>) {
    assert_some(db, table, RECORDS, byte);
}

fn assert_some(db: &Database, table: &Table<u64, [u8]>, records: u64, byte: Option<u8>) {
    let read = db.run_on(table, async move |tx, table| {
        let mut scan = tx.scan(table, ..)?;
        let mut count = 0;
        while let Some((_, value)) = scan.next().await? {
            assert_eq!(Some(value[0]), byte);
            count += 1;
        }
        Ok(count)
    });
    let count: u64 = block_on(read).unwrap();
    assert_eq!(count, if byte.is_some() { records } else { 0 });
}

/// Prints the time of a step.
fn timed<T>(what: &str, db: &Database, step: impl FnOnce() -> T) -> T {
    let begin = Instant::now();
    let result = step();
    println!("{what}: {:?}, longest stretch so far {:?}", begin.elapsed(), longest(db));
    result
}

#[test]
fn large_commits_and_aborts_suspend() {
    each_kind(|db, table| {
        let write = |byte: u8, fails: bool| {
            let table = table.clone();
            let written = db.run_blocking(async move |tx| {
                write_all(tx, &table, byte).await?;
                if fails { Err(Error::Closed) } else { Ok(()) }
            });
            assert_eq!(written.is_err(), fails);
        };
        timed("inserts that abort", db, || write(1, true));
        assert_all(db, table, None);
        timed("inserts", db, || write(2, false));
        assert_all(db, table, Some(2));
        timed("updates that abort", db, || write(3, true));
        assert_all(db, table, Some(2));
        timed("updates", db, || write(4, false));
        assert_all(db, table, Some(4));
    });
}

#[test]
fn rollbacks_to_savepoints_suspend() {
    each_kind(|db, table| {
        let table = table.clone();
        let (watched, records) = (db.clone(), table.clone());
        let rolled_back = db.run_blocking(async move |tx| {
            tx.put(&table, &RECORDS, &[1; 100]).await?;
            let savepoint = tx.savepoint();
            for byte in [2, 3] {
                write_all(tx, &table, byte).await?;
                let begin = Instant::now();
                tx.rollback_to(&savepoint).await?;
                println!("rollback: {:?}, {:?}", begin.elapsed(), longest(&watched));
                assert_eq!(tx.count(&table, ..).await?, 1);
            }
            tx.delete(&table, &RECORDS).await
        });
        assert!(rolled_back.unwrap());
        assert_all(db, &records, None);
    });
}

#[test]
fn a_rollback_that_is_dropped_keeps_the_transaction_from_committing() {
    each_kind(|db, table| {
        let written = table.clone();
        let refused = db.run_blocking(async move |tx| {
            let savepoint = tx.savepoint();
            write_all(tx, &written, 1).await?;
            let mut rollback = pin!(tx.rollback_to(&savepoint));
            poll_fn(|context| {
                assert!(rollback.as_mut().poll(context).is_pending());
                Poll::Ready(())
            })
            .await;
            Ok(())
        });
        assert!(matches!(refused, Err(Error::Misuse(Misuse::IncompleteRollback))), "{refused:?}");
        assert_all(db, table, None);
    });
}

/// Drops a transaction after its writes.
fn write_and_drop(db: &Database, table: &Table<u64, [u8]>, byte: u8) {
    let (written, is_written) = channel();
    let table = table.clone();
    let mut run = Box::pin(db.run(async move |tx| {
        write_all(tx, &table, byte).await?;
        written.send(()).unwrap();
        pending::<Result<(), Error>>().await
    }));
    block_on(poll_fn(|context| {
        assert!(run.as_mut().poll(context).is_pending());
        Poll::Ready(())
    }));
    is_written.recv().unwrap();
}

#[test]
fn dropped_transactions_are_undone_by_housekeeping() {
    each_kind(|db, table| {
        write_and_drop(db, table, 1);
        assert_all(db, table, None);
        let written = table.clone();
        // Conflicts until the record is undone.
        db.run_blocking(async move |tx| write_all(tx, &written, 2).await).unwrap();
        assert_all(db, table, Some(2));
        // Closing undoes the rest.
        write_and_drop(db, table, 3);
    });
}

#[test]
fn reads_of_many_keys_suspend() {
    each_kind(|db, table| {
        let table = table.clone();
        let found = db.run_blocking(async move |tx| {
            write_all(tx, &table, 1).await?;
            let keys: Vec<u64> = (0..2 * RECORDS).collect();
            let found = tx.multi_get(&table, &keys).await?;
            Ok((found.len(), found.iter().flatten().count()))
        });
        assert_eq!(found.unwrap(), (2 * RECORDS as usize, RECORDS as usize));
    });
}

#[test]
fn clearing_and_dropping_suspend() {
    each_kind(|db, table| {
        for byte in [1, 2] {
            let written = table.clone();
            db.run_blocking(async move |tx| write_all(tx, &written, byte).await).unwrap();
            if byte == 1 {
                assert_eq!(timed("clear", db, || block_on(db.clear(table))).unwrap(), RECORDS);
            }
        }
        timed("drop", db, || block_on(db.drop_table("records"))).unwrap();
    });
}

/// Every operation on a whole table, most of whose pages are not in memory.
#[test]
fn operations_on_many_records_suspend_with_few_frames() {
    each_kind_with(Some(FEW_FRAMES), |db, table| {
        let slot = block_on(db.create_change_slot("slot", 1 << 30)).unwrap();
        for (what, byte, fails) in [
            ("inserts that abort", 1, true),
            ("inserts", 2, false),
            ("updates that abort", 3, true),
            ("updates", 4, false),
        ] {
            let written = table.clone();
            let write = || {
                db.run_blocking(async move |tx| {
                    write_some(tx, &written, FEW_RECORDS, byte).await?;
                    if fails { Err(Error::Closed) } else { Ok(()) }
                })
            };
            assert_eq!(timed(what, db, write).is_err(), fails);
        }
        timed("scan", db, || assert_some(db, table, FEW_RECORDS, Some(4)));
        let counted = timed("count", db, || block_on(db.count(table, ..))).unwrap();
        assert_eq!(counted, FEW_RECORDS);
        let by_byte = |value: &[u8], keys: &mut IndexKeys<'_, u64>| keys.push(&value[0].into());
        let index = || block_on(db.index(table, "by_byte", IndexOptions::default(), by_byte));
        timed("index", db, index).unwrap();
        let checked = timed("check", db, || db.check()).unwrap();
        assert!(checked.problems.is_empty(), "{:?}", checked.problems);
        timed("checkpoint", db, || block_on(db.checkpoint())).unwrap();
        timed("compact", db, || block_on(db.compact())).unwrap();
        let of_feed = || {
            let mut feed = db.changes(ChangesFrom::Token(slot));
            let mut changes = 0;
            while changes < 2 * FEW_RECORDS {
                let transaction = block_on(feed.next()).unwrap().expect("a feed has no end");
                changes += transaction.changes.len() as u64;
            }
            changes
        };
        assert_eq!(timed("feed", db, of_feed), 2 * FEW_RECORDS);
        let past = || {
            let past = db.past_changes(Some(slot)).unwrap();
            past.map(|transaction| transaction.unwrap().changes.len() as u64).sum::<u64>()
        };
        assert_eq!(timed("past changes", db, past), 2 * FEW_RECORDS);
        let written = table.clone();
        let execute = || {
            block_on(db.execute(async move |tx| {
                assert_eq!(tx.count(&written, ..).await?, FEW_RECORDS);
                write_some(tx, &written, FEW_RECORDS, 5).await
            }))
        };
        let writes = timed("execute", db, execute).unwrap().writes;
        let apply = || db.run_blocking(async move |tx| tx.apply(&writes).await);
        timed("apply", db, apply).unwrap();
        assert_some(db, table, FEW_RECORDS, Some(5));
        timed("index drop", db, || block_on(db.drop_index(table, "by_byte"))).unwrap();
        let delete = || block_on(db.delete_range(table, FEW_RECORDS / 2..));
        assert_eq!(timed("delete range", db, delete).unwrap(), FEW_RECORDS / 2);
        let written = table.clone();
        let delete = || {
            db.run_blocking(async move |tx| {
                let deleted = tx.delete_range(&written, ..).await?;
                assert_eq!(deleted, FEW_RECORDS / 2);
                Err::<(), _>(Error::Closed)
            })
        };
        timed("delete range that aborts", db, delete).unwrap_err();
        assert_eq!(block_on(db.count(table, ..)).unwrap(), FEW_RECORDS / 2);
    });
}

/// A transaction on the same worker is polled while the keys that another one has read are copied,
/// sorted and encoded.
#[test]
fn other_transactions_run_while_a_proposal_is_built() {
    each_kind(|db, table| {
        let written = table.clone();
        db.run_blocking(async move |tx| write_all(tx, &written, 1).await).unwrap();
        let (polls, is_over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let mut other = {
            let (polls, is_over) = (polls.clone(), is_over.clone());
            Box::pin(db.run(async move |_| {
                poll_fn(|context| {
                    polls.fetch_add(1, Ordering::SeqCst);
                    context.waker().wake_by_ref();
                    if is_over.load(Ordering::SeqCst) { Poll::Ready(()) } else { Poll::Pending }
                })
                .await;
                Ok(())
            }))
        };
        block_on(poll_fn(|context| {
            assert!(other.as_mut().poll(context).is_pending());
            Poll::Ready(())
        }));
        let (read, inner) = (table.clone(), db.clone());
        let executed = db.run_blocking(async move |_| {
            let (read, counted) = (read.clone(), polls.clone());
            let execute = inner.execute(async move |tx| {
                for key in 0..RECORDS {
                    tx.get(&read, &key).await?;
                }
                Ok(counted.load(Ordering::SeqCst))
            });
            let proposal = execute.await?;
            // On the worker, so that it is not polled many more times before.
            Ok((polls.load(Ordering::SeqCst) - proposal.value, proposal.reads.points().count()))
        });
        is_over.store(true, Ordering::SeqCst);
        block_on(other).unwrap();
        let (polls, keys) = executed.unwrap();
        println!("{polls} polls");
        assert!(keys as u64 == RECORDS && polls > RECORDS / 1000, "{polls} polls, {keys} keys");
    });
}

/// Loops over all tables suspend, although the tables have no records.
#[test]
fn creating_and_visiting_many_tables_suspend() {
    each_kind(|db, _| {
        for commits in [false, true] {
            let create = || {
                db.run_blocking(async move |tx| {
                    for number in 0..TABLES {
                        let name = format!("table {number}");
                        let _: Table<u64, [u8]> = tx.create_table(&name).await?;
                    }
                    if commits { Ok(()) } else { Err(Error::Closed) }
                })
            };
            assert_eq!(timed("tables", db, create).is_ok(), commits);
        }
        let listed = timed("list", db, || block_on(db.tables())).unwrap();
        assert_eq!(listed.len(), TABLES + 1);
        timed("checkpoint", db, || block_on(db.checkpoint())).unwrap();
        timed("check", db, || db.check()).unwrap();
        timed("compact", db, || block_on(db.compact())).unwrap();
    });
}
