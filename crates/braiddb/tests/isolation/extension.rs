//! Snapshot extension: a writing transaction that meets newer commits continues with a later
//! snapshot, if all its earlier answers are still true.

use crate::common::{Watched, with_limit};
use crate::one_table::{in_memory, write_now};
use crate::table_kind::create_table;
use braiddb::{Database, Error, IndexOptions, InteractiveTransaction, Options, Table, Transaction};
use pollster::block_on;

/// Creates a database with the records 0 to 99, each with its key as its value.
fn filled() -> (Database, Table<u64, u64>) {
    let (db, table) = in_memory(Options::default().workers(2));
    let fill = table.clone();
    db.run_blocking(async move |tx| {
        for key in 0..100 {
            tx.put(&fill, &key, &key).await?;
        }
        Ok(())
    })
    .unwrap();
    (db, table)
}

fn get(tx: &InteractiveTransaction, table: &Table<u64, u64>, key: u64) -> Option<u64> {
    block_on(tx.get(table, &key)).unwrap()
}

/// Begins a transaction that has read record 1 and written another record.
fn writer(db: &Database, table: &Table<u64, u64>) -> InteractiveTransaction {
    let tx = block_on(db.begin()).unwrap();
    assert_eq!(get(&tx, table, 1), Some(1));
    block_on(tx.put(table, &1000, &0)).unwrap();
    tx
}

fn aborted(db: &Database) -> u64 {
    let aborted = db.stats().aborted;
    aborted.conflict + aborted.certification + aborted.stale_read
}

type Step = fn(&InteractiveTransaction, &Table<u64, u64>);

/// Steps of a writing transaction on records that changed after it began.
const STEPS: [(&str, Step); 8] = [
    ("reads a value", |tx, table| assert_eq!(get(tx, table, 5), Some(50))),
    ("reads a new record", |tx, table| assert_eq!(get(tx, table, 200), Some(2))),
    ("reads that one is gone", |tx, table| assert_eq!(get(tx, table, 6), None)),
    ("writes it over", |tx, table| block_on(tx.put(table, &5, &51)).unwrap()),
    ("updates what is new", |tx, table| block_on(tx.update(table, &200, &51)).unwrap()),
    ("inserts what is gone", |tx, table| block_on(tx.insert(table, &6, &51)).unwrap()),
    ("deletes it", |tx, table| assert!(block_on(tx.delete(table, &5)).unwrap())),
    ("asks for several", |tx, table| {
        let table = table.clone();
        let step = async move |tx: &Transaction| tx.multi_get(&table, &[1, 5, 6, 7, 200]).await;
        let told = [Some(1), Some(50), None, Some(7), Some(2)];
        assert_eq!(block_on(tx.step(step)).unwrap(), told);
    }),
];

#[test]
fn a_writer_continues_with_concurrent_writes() {
    with_limit(60, |_| {
        for (what, step) in STEPS {
            let (db, table) = filled();
            let tx = writer(&db, &table);
            write_now(&db, &table, 5, Some(50));
            write_now(&db, &table, 6, None);
            write_now(&db, &table, 200, Some(2));
            step(&tx, &table);
            assert_eq!(db.stats().snapshots_extended, 1, "{what}");
            assert_eq!(get(&tx, &table, 1), Some(1));
            block_on(tx.commit()).unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_eq!(aborted(&db), 0, "{what}");
        }
    });
}

/// If any earlier answer has changed, the transaction fails instead.
#[test]
fn a_writer_that_read_a_changed_record_does_not_continue() {
    with_limit(60, |_| {
        for key in [5, 6, 200] {
            let (db, table) = filled();
            let tx = writer(&db, &table);
            write_now(&db, &table, 5, Some(50));
            write_now(&db, &table, 6, None);
            write_now(&db, &table, 200, Some(2));
            write_now(&db, &table, 1, Some(11));
            let told = block_on(tx.get(&table, &key));
            assert!(matches!(told, Err(Error::NotSerializable { .. })), "{key}: {told:?}");
            assert!(matches!(block_on(tx.commit()), Err(Error::NotSerializable { .. })), "{key}");
            assert_eq!((db.stats().snapshots_extended, db.stats().aborted.stale_read), (0, 1));
        }
        let (db, table) = filled();
        let tx = writer(&db, &table);
        write_now(&db, &table, 5, Some(50));
        write_now(&db, &table, 1, Some(11));
        assert!(matches!(block_on(tx.put(&table, &5, &0)), Err(Error::Conflict { .. })));
        assert!(matches!(block_on(tx.commit()), Err(Error::Conflict { .. })));
        assert_eq!((db.stats().snapshots_extended, db.stats().aborted.conflict), (0, 1));
    });
}

/// A transaction without writes keeps its snapshot, and so does one with many reads.
#[test]
fn only_writers_with_few_reads_are_extended() {
    with_limit(60, |_| {
        let (db, table) = filled();
        let reader = block_on(db.begin()).unwrap();
        write_now(&db, &table, 5, Some(50));
        assert_eq!(get(&reader, &table, 5), Some(5));
        block_on(reader.commit()).unwrap();
        for (reads, extended) in [(64, 1), (65, 1)] {
            let (db, table) = (db.clone(), table.clone());
            write_now(&db, &table, 99, Some(99));
            let tx = block_on(db.begin()).unwrap();
            block_on(tx.put(&table, &1000, &0)).unwrap();
            (10..10 + reads).for_each(|key| assert_eq!(get(&tx, &table, key), Some(key)));
            write_now(&db, &table, 99, Some(990));
            let read = block_on(tx.get(&table, &99));
            assert_eq!(read.is_ok(), reads == 64, "{reads}: {read:?}");
            assert_eq!(db.stats().snapshots_extended, extended, "{reads}");
        }
    });
}

/// Records that a scan has read ahead stay valid after an extension, or the extension does not
/// happen.
#[test]
fn scans_in_progress_keep_their_results() {
    with_limit(60, |_| {
        for (changed, extended) in [(50, 0), (99, 1)] {
            let (db, table) = filled();
            let (other, scanned) = (db.clone(), table.clone());
            let body = async move |tx: &Transaction| {
                tx.put(&scanned, &1000, &0).await?;
                let mut scan = tx.scan(&scanned, 20..60)?;
                for key in 20..30 {
                    assert_eq!(scan.next().await?, Some((key, key)));
                }
                if tx.attempt() == 1 {
                    let table = scanned.clone();
                    other
                        .run(async move |tx: &Transaction| {
                            tx.put(&table, &changed, &7).await?;
                            tx.put(&table, &98, &7).await
                        })
                        .await?;
                }
                assert_eq!(tx.get(&scanned, &98).await?, Some(7));
                let mut met = Vec::new();
                while let Some(record) = scan.next().await? {
                    met.push(record.1);
                }
                Ok(met)
            };
            let outcome = block_on(db.transaction().run(body)).unwrap();
            let mut expected: Vec<u64> = (30..60).collect();
            if changed == 50 {
                expected[20] = 7;
            }
            assert_eq!(outcome.value, expected);
            assert_eq!(db.stats().snapshots_extended, extended, "{changed}");
            assert_eq!(outcome.attempts, 2 - extended as u32);
        }
    });
}

/// From the second attempt on, the snapshot is extended before the first write.
#[test]
fn a_retry_is_extended_before_it_writes() {
    with_limit(60, |_| {
        let (db, table) = filled();
        let (other, counted) = (db.clone(), table.clone());
        let body = async move |tx: &Transaction| {
            let first = tx.get(&counted, &1).await?.unwrap();
            let table = counted.clone();
            let changed = if tx.attempt() == 1 { 1 } else { 2 };
            other.run(async move |tx: &Transaction| tx.put(&table, &changed, &70).await).await?;
            let second = tx.get(&counted, &2).await?.unwrap();
            tx.put(&counted, &3, &(first + second)).await?;
            Ok((first, second))
        };
        let outcome = block_on(db.transaction().run(body)).unwrap();
        assert_eq!((outcome.attempts, outcome.value), (2, (70, 70)));
        assert_eq!(db.stats().snapshots_extended, 1);
    });
}

/// A write to an indexed table uses the current keys of the record.
#[test]
fn indexes_follow_an_extended_write() {
    with_limit(60, |_| {
        let (db, table) = filled();
        let by_value = |value: u64, keys: &mut braiddb::IndexKeys<'_, u64>| keys.push(&value);
        let index =
            block_on(db.index(&table, "by_value", IndexOptions::default(), by_value)).unwrap();
        let tx = writer(&db, &table);
        write_now(&db, &table, 5, Some(500));
        block_on(tx.put(&table, &5, &501)).unwrap();
        block_on(tx.commit()).unwrap();
        assert_eq!((db.stats().snapshots_extended, aborted(&db)), (1, 0));
        let found = db.run_blocking(async move |tx| {
            let mut found = Vec::new();
            for value in [5, 500, 501] {
                let mut scan = tx.scan_by(&index, value..=value)?;
                while let Some(hit) = scan.next().await? {
                    found.push((value, hit.1));
                }
            }
            Ok(found)
        });
        assert_eq!(found.unwrap(), [(501, 5)]);
    });
}

/// They depend only on the transaction's own writes, so they are not certified. There are more of
/// them than the read set of an extended transaction may have.
#[test]
fn answers_after_own_deletions_do_not_prevent_an_extension() {
    with_limit(60, |_| {
        for paged in [false, true] {
            let directory = tempfile::tempdir().unwrap();
            let options = Options::default().workers(2);
            let db = Database::open(directory.path(), options).unwrap().watched();
            let table: Table<u64, u64> = create_table(&db, "records", paged);
            (0..100).for_each(|key| write_now(&db, &table, key, Some(key)));
            let tx = block_on(db.begin()).unwrap();
            for key in 10..90 {
                assert!(block_on(tx.delete(&table, &key)).unwrap());
                assert_eq!(get(&tx, &table, key), None);
            }
            write_now(&db, &table, 5, Some(50));
            assert_eq!(get(&tx, &table, 5), Some(50), "paged: {paged}");
            block_on(tx.commit()).unwrap();
            assert_eq!((db.stats().snapshots_extended, aborted(&db)), (1, 0), "paged: {paged}");
            db.close().unwrap();
        }
    });
}
