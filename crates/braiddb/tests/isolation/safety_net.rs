//! The serial safety net: which transactions may commit although their reads have changed.

use crate::common::{Watched, with_limit};
use crate::one_table::{in_memory, write_now};
use braiddb::{
    Certifier, Database, Error, InteractiveTransaction, Isolation, Options, Table, Transaction,
    Tuning,
};
use pollster::block_on;

/// Creates a database with the records 1 -> 10 and 2 -> 20.
fn certified_by(certifier: Certifier) -> (Database, Table<u64, u64>) {
    let (db, table) =
        in_memory(Options::default().workers(2).tuning(Tuning::default().certifier(certifier)));
    write_now(&db, &table, 1, Some(10));
    write_now(&db, &table, 2, Some(20));
    (db, table)
}

fn begin(db: &Database) -> InteractiveTransaction {
    block_on(db.begin()).unwrap()
}

fn get(tx: &InteractiveTransaction, table: &Table<u64, u64>, key: u64) -> Option<u64> {
    block_on(tx.get(table, &key)).unwrap()
}

fn put(tx: &InteractiveTransaction, table: &Table<u64, u64>, key: u64, value: u64) {
    block_on(tx.put(table, &key, &value)).unwrap();
}

fn commits(tx: InteractiveTransaction) -> bool {
    match block_on(tx.commit()) {
        Ok(_) => true,
        Err(Error::NotSerializable { .. }) => false,
        Err(other) => panic!("{other}"),
    }
}

/// A record that a transaction read may be changed before the transaction commits. The two are
/// serializable if the reader comes first in the order.
#[test]
fn a_changed_read_may_still_be_serializable() {
    with_limit(60, |_| {
        for (certifier, expected) in
            [(Certifier::ReadValidation, false), (Certifier::SerialSafetyNet, true)]
        {
            let (db, table) = certified_by(certifier);
            let (one, two) = (begin(&db), begin(&db));
            assert_eq!(get(&one, &table, 1), Some(10));
            put(&one, &table, 3, 30);
            put(&two, &table, 1, 11);
            assert!(commits(two));
            assert_eq!(commits(one), expected, "{certifier:?}");
            let failed = db.stats().aborted.certification;
            assert_eq!(failed, u64::from(!expected), "{certifier:?}");
        }
    });
}

/// `last` precedes `second`, because it did not see the write of `second`. Therefore it also
/// precedes `first`, because `second` does. But `last` saw the write of `first`. It fails although
/// it only reads, and only because `second` passes on its successors.
#[test]
fn the_successor_bound_of_a_commit_is_passed_on() {
    with_limit(60, |_| {
        for declared in [false, true] {
            let (db, table) = certified_by(Certifier::SerialSafetyNet);
            let (first, second) = (begin(&db), begin(&db));
            assert_eq!(get(&second, &table, 1), Some(10));
            put(&first, &table, 1, 11);
            assert!(commits(first));
            let last = block_on(db.transaction().read_only(declared).begin()).unwrap();
            assert_eq!((get(&last, &table, 1), get(&last, &table, 2)), (Some(11), Some(20)));
            put(&second, &table, 2, 21);
            assert!(commits(second));
            assert!(!commits(last), "declared: {declared}");
        }
    });
}

/// A transaction that inserts into a scanned range comes after the scan.
#[test]
fn phantoms_count_as_overwritten_reads() {
    with_limit(60, |_| {
        for by_scan in [false, true] {
            let (db, table) = certified_by(Certifier::SerialSafetyNet);
            let (one, two) = (begin(&db), begin(&db));
            for (tx, key) in [(&one, 3), (&two, 4)] {
                if by_scan {
                    assert_eq!(block_on(tx.scan(&table, 3.., false, 9)).unwrap(), []);
                } else {
                    assert_eq!(get(tx, &table, 7 - key), None);
                }
                put(tx, &table, key, 1);
            }
            assert!(commits(one));
            assert!(!commits(two), "by a scan: {by_scan}");
        }
    });
}

/// Evicted, recovered and deleted records have readers too.
#[test]
fn write_skew_is_found_on_evicted_records() {
    with_limit(60, |_| {
        let directory = tempfile::tempdir().unwrap();
        for round in 0..3 {
            let options = Options::default()
                .workers(2)
                .tuning(Tuning::default().certifier(Certifier::SerialSafetyNet));
            let db = Database::open(directory.path(), options).unwrap().watched();
            let table: Table<u64, u64> = block_on(db.open_or_create_table("test")).unwrap();
            if round == 0 {
                let fill = table.clone();
                let body = async move |tx: &Transaction| {
                    tx.put(&fill, &1, &0).await?;
                    tx.put(&fill, &2, &0).await
                };
                db.run_blocking(body).unwrap();
                db.close().unwrap();
                continue;
            }
            let (one, two) = (begin(&db), begin(&db));
            for tx in [&one, &two] {
                let step = table.clone();
                let read = async move |tx: &Transaction| {
                    Ok((tx.contains(&step, &1).await?, tx.contains(&step, &2).await?))
                };
                assert_eq!(block_on(tx.step(read)).unwrap(), (true, true));
            }
            put(&one, &table, 1, round);
            put(&two, &table, 2, round);
            assert!(commits(one));
            assert!(!commits(two), "round {round}");
            db.close().unwrap();
        }
    });
}

/// Under snapshot isolation such a database certifies nothing either.
#[test]
fn snapshot_reads_are_not_validated() {
    with_limit(60, |_| {
        let (db, table) = certified_by(Certifier::SerialSafetyNet);
        let snapshot = db.transaction().isolation(Isolation::Snapshot);
        let one = block_on(snapshot.clone().begin()).unwrap();
        let two = block_on(snapshot.begin()).unwrap();
        for tx in [&one, &two] {
            assert_eq!((get(tx, &table, 1), get(tx, &table, 2)), (Some(10), Some(20)));
        }
        put(&one, &table, 1, 11);
        put(&two, &table, 2, 21);
        assert!(commits(one) && commits(two));
    });
}
