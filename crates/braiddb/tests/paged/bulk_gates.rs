//! Gates of bulk operations: which operations wait for which. Covers snapshots, open writers,
//! closing, backups and compaction.

use std::sync::mpsc;
use std::thread::JoinHandle;

use crate::common::{Watched, with_limit};
use crate::table_kind::create_table;
use braiddb::{Database, Error, Options, Table, Tuning};
use pollster::block_on;

const LIMIT_SECONDS: u64 = 300;

type Numbers = Table<u64, u64>;
type Thread = JoinHandle<Result<(), Error>>;

/// Starts a bulk operation that writes one record, on a separate thread. It sends a message when it
/// begins, behind closed gates.
fn begin(db: &Database, table: &Numbers, value: u64) -> (Thread, mpsc::Receiver<()>) {
    let (begins, has_begun) = mpsc::channel();
    let (db, table) = (db.clone(), table.clone());
    let thread = std::thread::spawn(move || {
        let inner = table.clone();
        block_on(db.run_bulk(&table, async move |tx| {
            // The send fails if no receiver waits any more.
            _ = begins.send(());
            tx.put(&inner, &1, &value).await
        }))
    });
    (thread, has_begun)
}

/// Starts a bulk operation that stays behind closed gates until it receives a message.
fn stay(db: &Database, table: &Numbers) -> (Thread, futures_channel::oneshot::Sender<()>) {
    let ((begins, has_begun), (go_on, word)) =
        (mpsc::channel(), futures_channel::oneshot::channel());
    let (db, table) = (db.clone(), table.clone());
    let thread = std::thread::spawn(move || {
        let inner = table.clone();
        block_on(db.run_bulk(&table, async move |tx| {
            for key in 0..1000 {
                tx.put(&inner, &key, &7).await?;
            }
            begins.send(()).unwrap();
            // An error if the sender was dropped: then the operation ends.
            _ = word.await;
            Ok(())
        }))
    });
    has_begun.recv().unwrap();
    (thread, go_on)
}

fn numbers(db: &Database) -> Numbers {
    let table = create_table(db, "numbers", true);
    block_on(db.put(&table, &1, &1)).unwrap();
    table
}

/// A snapshot sees the state before an operation, so the next operation waits for it. Writers are
/// not refused during that wait.
#[test]
fn a_snapshot_delays_the_second_bulk_operation_but_no_writer() {
    with_limit(LIMIT_SECONDS, |_| {
        let db = Database::in_memory(Options::default().workers(2)).unwrap().watched();
        let table = numbers(&db);
        let snapshot = block_on(db.snapshot()).unwrap();
        let (first, _) = begin(&db, &table, 100);
        first.join().unwrap().unwrap();
        let (second, has_begun) = begin(&db, &table, 200);
        for key in 10..200 {
            block_on(db.put(&table, &key, &key)).unwrap();
            assert_eq!(block_on(snapshot.get(&table, &1)).unwrap(), Some(1));
            assert_eq!(block_on(db.get(&table, &1)).unwrap(), Some(100));
        }
        assert_eq!(has_begun.try_recv(), Err(mpsc::TryRecvError::Empty), "it waits");
        drop(snapshot);
        second.join().unwrap().unwrap();
        assert_eq!(block_on(db.get(&table, &1)).unwrap(), Some(200));
        assert_eq!(block_on(db.count(&table, 10..)).unwrap(), 190);
    });
}

/// An operation waits for an open transaction that has written. Other transactions continue to
/// write the table, because the operation opens its gates again if the wait is long.
#[test]
fn an_open_writer_delays_a_bulk_operation_but_no_writer() {
    with_limit(LIMIT_SECONDS, |_| {
        let db = Database::in_memory(Options::default().workers(2)).unwrap().watched();
        let table = numbers(&db);
        let stays = block_on(db.begin()).unwrap();
        block_on(stays.put(&table, &2, &2)).unwrap();
        let (operation, has_begun) = begin(&db, &table, 100);
        for key in 10..20 {
            // The database retries it while the gates are closed.
            block_on(db.put(&table, &key, &key)).unwrap();
        }
        // The open transaction itself continues to use the table.
        block_on(stays.put(&table, &3, &3)).unwrap();
        assert_eq!(has_begun.try_recv(), Err(mpsc::TryRecvError::Empty), "it waits");
        block_on(stays.commit()).unwrap();
        operation.join().unwrap().unwrap();
        for (key, value) in [(1, 100), (2, 2), (3, 3), (19, 19)] {
            assert_eq!(block_on(db.get(&table, &key)).unwrap(), Some(value));
        }
    });
}

/// An operation that waits for a snapshot, and one that waits for an external event behind closed
/// gates, end with their database.
#[test]
fn closing_ends_waiting_bulk_operations() {
    with_limit(LIMIT_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let options = || Options::default().workers(2);
        let db = Database::open(directory.path(), options()).unwrap().watched();
        let (table, other) = (numbers(&db), create_table::<u64, u64>(&db, "other", true));
        let snapshot = block_on(db.snapshot()).unwrap();
        begin(&db, &table, 100).0.join().unwrap().unwrap();
        let (waits, has_begun) = begin(&db, &table, 200);
        let (stays, _go_on) = stay(&db, &other);
        assert_eq!(has_begun.try_recv(), Err(mpsc::TryRecvError::Empty), "it waits");
        db.close().unwrap();
        for ended in [waits, stays] {
            let ended = ended.join().unwrap();
            assert!(matches!(ended, Err(Error::Closed)), "{ended:?}");
        }
        drop((snapshot, db));
        let db = Database::open(directory.path(), options()).unwrap().watched();
        let (table, other): (Numbers, Numbers) = (
            block_on(db.open_table("numbers")).unwrap(),
            block_on(db.open_table("other")).unwrap(),
        );
        assert_eq!(block_on(db.get(&table, &1)).unwrap(), Some(100));
        assert!(block_on(db.is_empty(&other)).unwrap(), "nothing of what was not committed");
    });
}

/// Backups, checks and compaction during an operation do not see its writes. Compaction waits for
/// the end of the operation.
#[test]
fn upkeep_runs_during_a_bulk_operation() {
    with_limit(LIMIT_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let path = |name| directory.path().join(name);
        let options =
            || Options::default().workers(2).tuning(Tuning::default().log_segment_bytes(64 << 10));
        let db = Database::open(path("db"), options()).unwrap().watched();
        let table = numbers(&db);
        for round in 0..400 {
            block_on(db.put(&table, &(round % 5 + 2000), &round)).unwrap();
        }
        let (operation, go_on) = stay(&db, &table);
        db.backup(path("copy")).unwrap();
        assert!(db.check().unwrap().problems.is_empty());
        block_on(db.checkpoint()).unwrap();
        let (compacting, to_compact) = (db.clone(), std::thread::spawn);
        let compaction = to_compact(move || block_on(compacting.compact()));
        assert_eq!(block_on(db.get(&table, &1)).unwrap(), Some(1));
        go_on.send(()).unwrap();
        operation.join().unwrap().unwrap();
        compaction.join().unwrap().unwrap();
        assert_eq!(block_on(db.get(&table, &1)).unwrap(), Some(7));
        assert_eq!(block_on(db.len(&table)).unwrap(), 1005);
        assert!(db.check().unwrap().problems.is_empty());
        db.close().unwrap();
        let copy = Database::open(path("copy"), options()).unwrap().watched();
        let table: Numbers = block_on(copy.open_table("numbers")).unwrap();
        assert_eq!(block_on(copy.get(&table, &1)).unwrap(), Some(1));
        assert_eq!(block_on(copy.len(&table)).unwrap(), 6);
        assert!(copy.check().unwrap().problems.is_empty());
    });
}
