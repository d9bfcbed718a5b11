//! Rollbacks to savepoints that take many steps, together with operations of the same transaction and
//! with other transactions.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Poll;

use braiddb::{Database, Error, Misuse, Options, Result, Table, Transaction};
use futures_util::future::join;

use crate::common::{Watched, with_limit};
use crate::table_kind::create_table;

/// More writes than a rollback undoes without suspension.
const MANY: u64 = 600;

type Records = Table<u64, u64>;

/// Runs a part with a database of one worker and a table of each kind.
fn each_kind(part: impl Fn(&Database, &Records) + Send + 'static) {
    with_limit(60, move |_| {
        for paged in [false, true] {
            let db = Database::in_memory(Options::default().workers(1)).unwrap().watched();
            let table = create_table(&db, "records", paged);
            part(&db, &table);
        }
    });
}

/// Polls a future once, and leaks it.
async fn begin_only(future: impl Future<Output = Result<()>>) {
    let mut future = Box::pin(future);
    let is_ready = poll_fn(|context| Poll::Ready(future.as_mut().poll(context).is_ready())).await;
    assert!(!is_ready, "it has many steps");
    std::mem::forget(future);
}

async fn write_many(tx: &Transaction, table: &Records, first: u64, value: u64) -> Result<()> {
    for key in first..first + MANY {
        tx.put(table, &key, &value).await?;
    }
    Ok(())
}

/// The earlier savepoint wins; the rollback to the later one ends, with or without an error.
#[test]
fn rollbacks_at_the_same_time_undo_what_the_earlier_savepoint_has_not() {
    each_kind(|db, table| {
        for is_earlier_first in [true, false] {
            let records = table.clone();
            db.run_blocking(async move |tx| {
                write_many(tx, &records, 0, 1).await?;
                let earlier = tx.savepoint();
                write_many(tx, &records, MANY / 2, 2).await?;
                let later = tx.savepoint();
                write_many(tx, &records, MANY, 3).await?;
                let (earlier, later) = (tx.rollback_to(&earlier), tx.rollback_to(&later));
                let (of_earlier, of_later) = if is_earlier_first {
                    join(earlier, later).await
                } else {
                    let (later, earlier) = join(later, earlier).await;
                    (earlier, later)
                };
                of_earlier?;
                let refused = matches!(of_later, Err(Error::Misuse(Misuse::SavepointEnded)));
                assert!(refused, "{of_later:?}");
                assert_eq!(tx.count(&records, ..).await?, MANY);
                tx.put(&records, &(MANY - 1), &4).await
            })
            .unwrap();
            let records = table.clone();
            db.run_blocking(async move |tx| {
                for key in 0..MANY - 1 {
                    assert_eq!(tx.get(&records, &key).await?, Some(1));
                }
                assert_eq!(tx.get(&records, &(MANY - 1)).await?, Some(4));
                assert_eq!(tx.count(&records, ..).await?, MANY);
                tx.delete_range(&records, ..).await.map(drop)
            })
            .unwrap();
        }
    });
}

/// A commit would make some of the undone writes permanent.
#[test]
fn a_rollback_that_is_leaked_keeps_the_transaction_from_committing() {
    each_kind(|db, table| {
        let records = table.clone();
        let refused = db.run_blocking(async move |tx| {
            let savepoint = tx.savepoint();
            write_many(tx, &records, 0, 1).await?;
            begin_only(tx.rollback_to(&savepoint)).await;
            Ok(())
        });
        assert!(matches!(refused, Err(Error::Misuse(Misuse::IncompleteRollback))), "{refused:?}");
        assert_eq!(pollster::block_on(db.len(table)).unwrap(), 0);
    });
}

/// The transaction learned by an insert that a record is absent, and undoes it. Another transaction
/// inserts the record while the rollback is under way, and changes a value. The first one may not see
/// the new value, because it is serialised before.
#[test]
fn a_record_of_an_undone_write_counts_as_read_before_others_can_write_it() {
    each_kind(|db, table| {
        let (other, records) = (db.clone(), table.clone());
        db.run_blocking(async move |tx| tx.put(&records, &0, &0).await).unwrap();
        let (attempts, records) = (Arc::new(AtomicU32::new(0)), table.clone());
        let counted = attempts.clone();
        let seen = db.run_blocking(async move |tx| {
            if counted.fetch_add(1, Ordering::Relaxed) > 0 {
                return tx.get(&records, &0).await;
            }
            let inserted = MANY + 1;
            let savepoint = tx.savepoint();
            write_many(tx, &records, 1, 1).await?;
            tx.insert(&records, &inserted, &1).await?;
            let mut rollback = pin!(tx.rollback_to(&savepoint));
            let is_ready = poll_fn(|cx| Poll::Ready(rollback.as_mut().poll(cx).is_ready())).await;
            assert!(!is_ready, "it has many steps");
            let table = records.clone();
            let write = async move |tx: &Transaction| {
                tx.insert(&table, &inserted, &2).await?;
                tx.put(&table, &0, &1).await
            };
            let is_written = other.transaction().try_run(write).await.is_ok();
            let seen = tx.get(&records, &0).await?;
            rollback.await?;
            tx.put(&records, &(MANY + 2), &1).await?;
            assert!(is_written || seen == Some(0));
            Ok(seen)
        });
        let (seen, attempts) = (seen.unwrap(), attempts.load(Ordering::Relaxed));
        assert!(attempts > 1 || seen == Some(0), "{seen:?} in attempt {attempts}");
    });
}
