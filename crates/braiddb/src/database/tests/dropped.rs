//! Dropped tables in memory are freed once nothing can hold them.

use pollster::block_on;

use super::super::{Database, Error, IndexOptions, Options, Table, Transaction};
use crate::common::{Watched, with_limit};
use crate::transaction::Durability;

const LIMIT: u64 = 120;
const RECORDS: u64 = 2000;

async fn fill(tx: &Transaction, table: &Table<u64, u64>) -> Result<(), Error> {
    for key in 0..RECORDS {
        tx.put(table, &key, &(key % 7)).await?;
    }
    Ok(())
}

/// Creates a table with an index, fills it, and drops it. Returns a handle of it.
fn create_and_drop(db: &Database, drops_index: bool) -> Table<u64, u64> {
    let table: Table<u64, u64> = block_on(db.create_table("records")).unwrap();
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

fn check(db: &Database) {
    let engine = &db.shared.engine;
    // The catalog, and tables for the ids of dropped tables in the replayed log.
    let most = engine.tables().len().max(1);
    create_and_drop(db, false);
    let settle = || {
        while engine.tables().len() > most {
            std::thread::yield_now();
        }
    };
    settle();
    let before = engine.memory.array_bytes();
    let nodes = db.stats().memory.index_nodes;
    for round in 0..8 {
        drop(create_and_drop(db, round % 2 == 0));
    }
    settle();
    // The memory is freed when each worker has taken another turn.
    while engine.memory.array_bytes() > before || db.stats().memory.index_nodes > nodes {
        std::thread::yield_now();
    }
    let handle = create_and_drop(db, true);
    settle();
    assert!(matches!(block_on(db.get(&handle, &1)), Err(Error::TableNotFound(_))));
    assert!(matches!(block_on(db.open_table::<u64, u64>("records")), Err(Error::TableNotFound(_))));
    assert_eq!(engine.tables().len(), most);
}

#[test]
fn dropped_tables_and_indexes_are_freed() {
    with_limit(LIMIT, |_| {
        let options = Options::default().workers(2);
        check(&Database::in_memory(options.clone()).unwrap().watched());
        let directory = tempfile::tempdir().unwrap();
        let options = options.durability(Durability::Relaxed);
        let db = Database::open(directory.path(), options.clone()).unwrap().watched();
        check(&db);
        db.close().unwrap();
        let db = Database::open(directory.path(), options).unwrap().watched();
        check(&db);
        db.close().unwrap();
    });
}
