//! Transactions that read records which later commits have changed. They may continue to read, but
//! their first write fails immediately.

use std::ops::Bound;

use crate::common::with_limit;
use crate::one_table::{in_memory, write_now};
use braiddb::{
    Database, Error, InteractiveTransaction, Isolation, Options, Stats, Table, Transaction,
};
use pollster::block_on;

fn scan(
    tx: &InteractiveTransaction,
    table: &Table<u64, u64>,
    reverse: bool,
    limit: u64,
) -> Result<Vec<u64>, Error> {
    let records = block_on(tx.scan(table, 4..=6, reverse, limit))?;
    Ok(records.into_iter().map(|record| record.0).collect())
}

fn contains(tx: &InteractiveTransaction, table: &Table<u64, u64>) -> Result<bool, Error> {
    let table = table.clone();
    block_on(tx.step(async move |tx: &Transaction| tx.contains(&table, &5).await))
}

/// Returns true if the error names key 5.
fn is_of_five(error: &Error) -> bool {
    let Error::NotSerializable { read, .. } = error else { return false };
    let five = Bound::Included(5_u64.to_be_bytes().to_vec());
    read.table == "records" && read.keys == (five.clone(), five)
}

type Reading = fn(&InteractiveTransaction, &Table<u64, u64>) -> Result<(), Error>;

/// Ways to read an old state of key 5, and true if it had a record then.
const READINGS: [(&str, bool, Reading); 8] = [
    ("a value", true, |tx, table| {
        assert_eq!(block_on(tx.get(table, &5))?, Some(50));
        Ok(())
    }),
    ("no value", false, |tx, table| {
        assert_eq!(block_on(tx.get(table, &5))?, None);
        Ok(())
    }),
    ("that it is there", true, |tx, table| {
        assert!(contains(tx, table)?);
        Ok(())
    }),
    ("that it is not there", false, |tx, table| {
        assert!(!contains(tx, table)?);
        Ok(())
    }),
    ("a scan that met it", true, |tx, table| {
        assert_eq!(scan(tx, table, false, 9)?, [4, 5, 6]);
        Ok(())
    }),
    ("a scan that did not", false, |tx, table| {
        assert_eq!(scan(tx, table, false, 9)?, [4, 6]);
        Ok(())
    }),
    ("a scan in reverse", false, |tx, table| {
        assert_eq!(scan(tx, table, true, 2)?, [6, 4]);
        Ok(())
    }),
    ("a scan up to it", true, |tx, table| {
        assert_eq!(scan(tx, table, false, 2)?, [4, 5]);
        Ok(())
    }),
];

/// Creates a database with keys 4 and 6, and 5 if required, begins a transaction, and then changes
/// key 5.
fn changed(
    exists: bool,
    isolation: Isolation,
    before: impl Fn(&InteractiveTransaction, &Table<u64, u64>),
) -> (Database, Table<u64, u64>, InteractiveTransaction) {
    let (db, table) = in_memory(Options::default().workers(2));
    write_now(&db, &table, 4, Some(40));
    write_now(&db, &table, 6, Some(60));
    if exists {
        write_now(&db, &table, 5, Some(50));
    }
    let tx = block_on(db.transaction().isolation(isolation).begin()).unwrap();
    before(&tx, &table);
    write_now(&db, &table, 5, if exists { None } else { Some(51) });
    (db, table, tx)
}

fn causes(stats: &Stats) -> [u64; 3] {
    [stats.aborted.stale_read, stats.aborted.certification, stats.aborted.conflict]
}

/// A transaction that has read an old state fails at its next write, not at its commit. The error
/// names the key.
#[test]
fn a_write_after_a_superseded_read_fails() {
    with_limit(60, |_| {
        for (what, exists, reading) in READINGS {
            let (db, table, tx) = changed(exists, Isolation::Serializable, |_, _| {});
            reading(&tx, &table).unwrap();
            // Refused writes are answers, like reads.
            assert!(matches!(block_on(tx.insert(&table, &4, &0)), Err(Error::KeyExists(_))));
            assert!(!block_on(tx.delete(&table, &100)).unwrap());
            for refused in [
                block_on(tx.put(&table, &4, &1)),
                block_on(tx.insert(&table, &100, &1)),
                block_on(tx.delete(&table, &4)).map(drop),
            ] {
                let error = refused.unwrap_err();
                assert!(is_of_five(&error) && error.is_retryable(), "{what}: {error:?}");
            }
            assert!(is_of_five(&block_on(tx.commit()).unwrap_err()), "{what}");
            assert_eq!(causes(&db.stats()), [1, 0, 0], "{what}");
        }
    });
}

/// A transaction that has written, and whose earlier read has changed, fails when it reads the
/// changed record.
#[test]
fn a_superseded_read_after_a_write_fails() {
    with_limit(60, |_| {
        for (what, exists, reading) in READINGS {
            let (db, table, tx) = changed(exists, Isolation::Serializable, |tx, table| {
                block_on(tx.put(table, &100, &1)).unwrap();
                assert_eq!(block_on(tx.get(table, &1)).unwrap(), None);
            });
            write_now(&db, &table, 1, Some(1));
            assert!(is_of_five(&reading(&tx, &table).unwrap_err()), "{what}");
            assert!(is_of_five(&block_on(tx.commit()).unwrap_err()), "{what}");
            assert_eq!(causes(&db.stats()), [1, 0, 0], "{what}");
        }
    });
}

/// Transactions without certification do not fail.
#[test]
fn uncertified_reads_may_see_superseded_versions() {
    with_limit(60, |_| {
        for (what, exists, reading) in READINGS {
            let snapshot = Isolation::Snapshot;
            let (_db, table, tx) = changed(exists, snapshot, |_, _| {});
            reading(&tx, &table).unwrap();
            block_on(tx.put(&table, &4, &1)).unwrap();
            reading(&tx, &table).unwrap();
            block_on(tx.commit()).unwrap_or_else(|error| panic!("{what}: {error}"));

            let (_db, table, tx) = changed(exists, Isolation::Serializable, |_, _| {});
            reading(&tx, &table).unwrap();
            block_on(tx.commit()).unwrap_or_else(|error| panic!("{what}: {error}"));
        }
    });
}

/// A transaction that rolled back all its writes counts as read-only.
#[test]
fn rolled_back_writes_do_not_conflict() {
    with_limit(60, |_| {
        let (db, table, tx) = changed(true, Isolation::Serializable, |tx, table| {
            let table = table.clone();
            let step = async move |tx: &Transaction| {
                let before = tx.savepoint();
                tx.put(&table, &100, &1).await?;
                tx.rollback_to(&before).await
            };
            block_on(tx.step(step)).unwrap();
        });
        assert_eq!(block_on(tx.get(&table, &5)).unwrap(), Some(50));
        block_on(tx.commit()).unwrap();
        assert_eq!(causes(&db.stats()), [0, 0, 0]);
    });
}

/// Only the projected part of a read is certified, and only the returned records of a scan.
#[test]
fn transactions_without_validation_are_not_doomed() {
    with_limit(60, |_| {
        let (db, table) = in_memory(Options::default().workers(2));
        (0..100).for_each(|key| write_now(&db, &table, key, Some(key)));
        let tx = block_on(db.begin()).unwrap();
        write_now(&db, &table, 5, Some(15));
        write_now(&db, &table, 60, None);
        let read = table.clone();
        let step = async move |tx: &Transaction| {
            assert_eq!(tx.get_part(&read, &5, |value| value % 10).await?, Some(5));
            let mut scan = tx.scan(&read, 10..)?;
            for key in 10..60 {
                assert_eq!(scan.next().await?, Some((key, key)));
            }
            drop(scan);
            tx.put(&read, &0, &1).await
        };
        block_on(tx.step(step)).unwrap();
        block_on(tx.commit()).unwrap();
        assert_eq!(causes(&db.stats()), [0, 0, 0]);
    });
}

/// `run` retries after a stale read up to the limit, like after a failed certification.
#[test]
fn run_retries_after_a_superseded_read() {
    with_limit(60, |_| {
        let (db, table) = in_memory(Options::default().workers(2));
        write_now(&db, &table, 5, Some(0));
        let run = |attempts: u32, passes_over: bool| {
            let (other, table) = (db.clone(), table.clone());
            block_on(db.transaction().max_attempts(attempts).run(async move |tx: &Transaction| {
                if tx.attempt() <= 3 {
                    let table = table.clone();
                    let change = async move |tx: &Transaction| tx.put(&table, &5, &1).await;
                    other.run(change).await?;
                }
                let told = tx.get(&table, &5).await?.unwrap();
                match tx.put(&table, &2, &told).await {
                    Err(_) if passes_over => Ok(()),
                    written => written,
                }
            }))
        };
        for passes_over in [false, true] {
            let before = db.stats().aborted.stale_read;
            let error = run(1, passes_over).unwrap_err();
            assert!(is_of_five(&error), "{error:?}");
            assert_eq!(db.stats().aborted.stale_read, before + 1);
        }
    });
}
