//! Dropped tables are freed once nothing can hold them.

use std::pin::pin;
use std::task::{Context, Waker};

use pollster::block_on;

use super::super::{
    Database, Error, IndexOptions, Options, Table, TableOptions, Transaction, Tuning,
};
use crate::common::{Watched, with_limit};
use crate::transaction::Durability;

const LIMIT: u64 = 300;
const RECORDS: u64 = 500;

async fn fill(tx: &Transaction, table: &Table<u64, u64>) -> Result<(), Error> {
    for key in 0..RECORDS {
        tx.put(table, &key, &(key % 7)).await?;
    }
    Ok(())
}

/// Creates a table with an index, fills it, and drops it. Returns a handle of it.
fn create_and_drop(db: &Database, kind: TableOptions, drops_index: bool) -> Table<u64, u64> {
    let create = async move |tx: &Transaction| tx.create_table_with("records", kind).await;
    let table: Table<u64, u64> = db.run_blocking(create).unwrap();
    let options = IndexOptions::default();
    block_on(db.index(&table, "by_rest", options, |value, keys| keys.push(&value))).unwrap();
    let filled = table.clone();
    db.run_blocking(async move |tx| fill(tx, &filled).await).unwrap();
    if drops_index {
        block_on(db.drop_index(&table, "by_rest")).unwrap();
    }
    block_on(db.drop_table("records")).unwrap();
    table
}

/// Bytes of indirection arrays, index nodes, and pages that hold something.
fn memory_of_tables(db: &Database) -> [u64; 3] {
    let engine = &db.shared.engine;
    let pages = engine.pages().map_or(0, |pages| pages.stats().resident);
    [engine.memory.array_bytes(), db.stats().memory.index_nodes, pages]
}

fn check(db: &Database, kind: TableOptions) {
    let engine = &db.shared.engine;
    let settle = || {
        while engine.tables().len() > 1 {
            std::thread::yield_now();
        }
    };
    drop(create_and_drop(db, kind, false));
    settle();
    let before = memory_of_tables(db);
    for round in 0..8 {
        drop(create_and_drop(db, kind, round % 2 == 0));
    }
    settle();
    // The memory is freed when each worker has taken another turn.
    while memory_of_tables(db).iter().zip(before).any(|(now, before)| *now > before) {
        std::thread::yield_now();
    }
    let handle = create_and_drop(db, kind, true);
    settle();
    assert!(matches!(block_on(db.get(&handle, &1)), Err(Error::TableNotFound(_))));
    assert!(matches!(block_on(db.open_table::<u64, u64>("records")), Err(Error::TableNotFound(_))));
}

fn assert_freed(kind: TableOptions) {
    with_limit(LIMIT, move |_| {
        let options = Options::default().workers(2);
        check(&Database::in_memory(options.clone()).unwrap().watched(), kind);
        let directory = tempfile::tempdir().unwrap();
        let options = options.durability(Durability::Relaxed);
        for _ in 0..3 {
            let db = Database::open(directory.path(), options.clone()).unwrap().watched();
            check(&db, kind);
            db.close().unwrap();
        }
    });
}

#[test]
fn dropped_tables_and_indexes_are_freed() {
    assert_freed(TableOptions::default());
}

#[test]
fn dropped_paged_tables_and_indexes_are_freed() {
    assert_freed(TableOptions::default().paged());
}

/// With few frames, leaves that become empty have neighbours on disk, so cleaning them up is put off.
/// Snapshots delay the collection of changes.
#[test]
fn dropped_paged_tables_with_pages_on_disk_are_freed() {
    with_limit(LIMIT, |_| {
        let directory = tempfile::tempdir().unwrap();
        let tuning = Tuning::default().page_frames(Some(16)).page_bytes(4096);
        let options = Options::default().workers(2).durability(Durability::Relaxed).tuning(tuning);
        let db = Database::open(directory.path(), options).unwrap().watched();
        for round in 0..40 {
            let name = format!("table {round}");
            let created = name.clone();
            let fill = async move |tx: &Transaction| {
                let kind = TableOptions::default().paged();
                let table: Table<u64, [u8]> = tx.create_table_with(&created, kind).await?;
                for key in 0..RECORDS {
                    tx.put(&table, &key, &[7; 100]).await?;
                }
                Ok(())
            };
            db.run_blocking(fill).unwrap();
            let snapshot = block_on(db.snapshot()).unwrap();
            let mut dropping = pin!(db.drop_table(&name));
            // The drop waits for the snapshot, which began before it.
            assert!(dropping.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            drop(snapshot);
            block_on(dropping).unwrap();
        }
        while db.shared.engine.tables().len() > 1 {
            std::thread::yield_now();
        }
        db.close().unwrap();
    });
}
