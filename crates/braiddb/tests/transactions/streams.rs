//! Scans as streams and with visitors, over more records than memory holds.

use std::ops::ControlFlow;
use std::path::Path;
use std::pin::pin;

use crate::common::{Watched, with_limit};
use braiddb::{Database, Options, Table, Tuning};
use futures_util::{StreamExt, TryStreamExt};
use pollster::block_on;

const LIMIT_SECONDS: u64 = 120;
const RECORDS: u64 = 6_000;
const A_TRANSACTION: u64 = 100;
const RING_BYTES: usize = 32 << 20;
/// The memory for records, a small part of their size.
const MEMORY_BYTES: u64 = 4 << 20;

type Records = Table<u64, [u8]>;

fn options() -> Options {
    Options::default()
        .workers(1)
        .memory_budget(RING_BYTES as u64 + MEMORY_BYTES)
        .tuning(Tuning::default().log_ring_bytes(RING_BYTES))
}

fn value(key: u64) -> Vec<u8> {
    let mark = key.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes();
    mark.repeat(500 + (key % 7) as usize)
}

/// Opens a database without records in memory.
fn cold(directory: &Path) -> (Database, Records) {
    let db = Database::open(directory, options()).unwrap().watched();
    let table: Records = block_on(db.create_table("records")).unwrap();
    let firsts = (0..RECORDS).step_by(A_TRANSACTION as usize);
    let source = db.run_source(0, firsts, async move |tx, first: &u64| {
        for key in *first..first + A_TRANSACTION {
            tx.insert(&table, &key, &value(key)[..]).await?;
        }
        Ok(())
    });
    source.unwrap().wait().unwrap();
    db.close().unwrap();
    let db = Database::open(directory, options()).unwrap().watched();
    let table = block_on(db.open_table("records")).unwrap();
    (db, table)
}

#[test]
fn a_scan_visits_a_whole_table_larger_than_memory() {
    with_limit(LIMIT_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let (db, table) = cold(directory.path());
        let before = db.stats().suspensions.storage;
        let visited = db.run_blocking(async move |tx| {
            let mut next = 0;
            let each = |key: u64, lent: &[u8]| {
                assert_eq!(key, next);
                assert!(lent == value(key), "the value of {key}");
                next += 1;
                ControlFlow::<()>::Continue(())
            };
            assert_eq!(tx.scan(&table, ..)?.visit(each).await?, None);
            assert_eq!(next, RECORDS);

            // Half of the records, from the last one.
            let (mut visited, middle) = (0, RECORDS / 2);
            let until_middle = |key: u64, lent: &[u8]| {
                visited += 1;
                match key == middle {
                    true => ControlFlow::Break(lent.to_vec()),
                    false => ControlFlow::Continue(()),
                }
            };
            let found = tx.scan(&table, ..)?.rev().visit(until_middle).await?;
            assert!(found == Some(value(middle)));
            Ok(visited)
        });
        assert_eq!(visited.unwrap(), RECORDS / 2);
        assert!(db.stats().suspensions.storage > before, "{:#?}", db.stats());
    });
}

#[test]
fn a_stream_over_a_table_larger_than_memory_may_be_dropped_at_any_record() {
    with_limit(LIMIT_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let (db, table) = cold(directory.path());
        let before = db.stats().suspensions.storage;
        let kept = table.clone();
        db.run_blocking(async move |tx| {
            let mut next = 0;
            let mut stream = pin!(tx.scan(&table, ..)?.into_stream());
            while let Some((key, owned)) = stream.try_next().await? {
                assert_eq!(key, next);
                assert!(owned == value(key), "the value of {key}");
                next += 1;
            }
            assert_eq!(next, RECORDS);
            assert!(stream.next().await.is_none(), "it has ended");

            for taken in [0, 1, 7, 1_000] {
                let stream = tx.scan(&table, 100..)?.rev().into_stream().take(taken);
                let keys: Vec<u64> = stream.map_ok(|(key, _)| key).try_collect().await?;
                let expected = (100..RECORDS).rev().take(taken);
                assert!(keys.iter().copied().eq(expected), "{taken}: {keys:?}");
            }
            // After dropped scans the transaction can continue.
            tx.put(&table, &RECORDS, b"new").await
        })
        .unwrap();
        assert!(db.stats().suspensions.storage > before, "{:#?}", db.stats());
        assert_eq!(block_on(db.get(&kept, &RECORDS)).unwrap(), Some(b"new".to_vec()));
    });
}
