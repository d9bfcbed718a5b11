//! Visibility in a transaction whose snapshot was extended.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::*;
use crate::common::{PART_SECONDS, with_limit};

/// Number of versions that a pruner examines in two turns.
const MANY: u64 = 10_000;

fn put(bench: &Bench, value: u64) {
    let transaction = bench.worker.begin().unwrap();
    run_now(async {
        transaction
            .write(&bench.table, b"key", WriteIntent::Put(&value.to_le_bytes()), None)
            .await
            .unwrap();
        transaction.commit().await.unwrap();
    });
}

fn get(bench: &Bench, transaction: &ActiveTransaction) -> u64 {
    let found = run_now(transaction.get(&bench.table, b"key")).unwrap().expect("it is there");
    u64::from_le_bytes(found.bytes().try_into().unwrap())
}

/// Begins a serializable transaction, which writes another record.
fn begin_writer(bench: &Bench) -> ActiveTransaction {
    let transaction = bench.worker.begin_as(TransactionMode::Serializable).unwrap();
    run_now(transaction.write(&bench.table, b"other", WriteIntent::Put(b""), None)).unwrap();
    transaction
}

/// The pruner keeps two versions of a chain: the oldest, which a transaction saw when it began, and
/// one in the middle, which it sees since its extension.
#[test]
fn what_an_extended_snapshot_sees_is_not_pruned() {
    with_limit(PART_SECONDS, |_| {
        let bench = Bench::new();
        put(&bench, 0);
        let transaction = begin_writer(&bench);
        (1..=10).for_each(|value| put(&bench, value));
        let first = transaction.begin();
        assert_eq!(get(&bench, &transaction), 10);
        assert!(transaction.begin() > first && transaction.extensions() == 1);
        (11..MANY).for_each(|value| put(&bench, value));
        let engine = bench.worker.engine();
        for _ in 0..3 {
            let tail = engine.log.tail();
            let begins = bench.worker.begins();
            engine.readers.publish(0, begins.iter(), begins.oldest_extended(), tail);
            engine.horizon.publish(0, bench.worker.oldest_begin().unwrap());
            bench.participation.turn();
            bench.worker.collect_garbage();
            bench.worker.prune(false);
        }
        let pruned = bench.worker.counters().versions_pruned.get();
        assert!(pruned > 4_000, "{pruned} versions were cut out");
        assert_eq!(bench.worker.oldest_begin(), Some(first), "returned values stay until its end");
        let again = run_now(transaction.get_unnoted(&bench.table, b"key", true)).unwrap();
        let (found, seen) = again.expect("it is there");
        assert_eq!(found.bytes(), 10_u64.to_le_bytes());
        assert!(matches!(seen, SeenRecord::Others { doomed_by: true, .. }));
        drop(found);
        // The transaction has read a value that is superseded since, so it is not extended again.
        let told = run_now(transaction.get(&bench.table, b"key"));
        assert!(matches!(told, Err(OperationError::NotSerializable(_))));
    });
}

/// The answers depend only on the transaction's own write, so nothing is certified for them.
#[test]
fn reads_and_refused_writes_after_an_own_deletion_note_nothing() {
    with_limit(PART_SECONDS, |_| {
        let bench = Bench::new();
        put(&bench, 0);
        let transaction = bench.worker.begin_as(TransactionMode::Serializable).unwrap();
        let write = |intent| run_now(transaction.write(&bench.table, b"key", intent, None));
        assert!(write(WriteIntent::Delete).unwrap());
        let noted = transaction.reads().len();
        assert!(run_now(transaction.get(&bench.table, b"key")).unwrap().is_none());
        assert!(!run_now(transaction.contains(&bench.table, b"key")).unwrap());
        assert!(!write(WriteIntent::Delete).unwrap());
        assert!(matches!(write(WriteIntent::Update(b"")), Err(OperationError::KeyNotFound(_))));
        assert_eq!(transaction.reads().len(), noted);
        assert!(run_now(transaction.get(&bench.table, b"absent")).unwrap().is_none());
        assert_eq!(transaction.reads().len(), noted + 1);
        run_now(transaction.commit()).unwrap();
    });
}

/// The caller has seen the record without passing it. A rollback makes the scan read it again, which
/// fails.
#[test]
fn a_known_record_that_a_scan_forgets_is_certified() {
    with_limit(PART_SECONDS, |_| {
        let bench = Bench::new();
        put(&bench, 0);
        let transaction = begin_writer(&bench);
        let savepoint = transaction.savepoint();
        let bounds = ScanBounds { low: Unbounded, high: Unbounded };
        let mut scan = transaction.scan(&bench.table, bounds);
        assert!(run_now(scan.next()).unwrap());
        assert_eq!(scan.current().map(|(key, _)| key), Some(&b"key"[..]));
        run_now(transaction.rollback_to(savepoint)).unwrap();
        bench.worker.engine().planted_panic.plant(PanicPoint::Scan);
        let read_again = catch_unwind(AssertUnwindSafe(|| run_now(scan.next())));
        assert!(read_again.is_err());
        drop(scan);
        put(&bench, 1);
        let committed = run_now(transaction.commit());
        assert!(matches!(committed, Err(OperationError::NotSerializable(_))));
    });
}
