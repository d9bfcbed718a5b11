//! A database in memory with one table of numbers.

use braiddb::{Database, Options, Table};
use pollster::block_on;

use crate::common::Watched;

/// Opens the database.
pub fn in_memory(options: Options) -> (Database, Table<u64, u64>) {
    let db = Database::in_memory(options).unwrap().watched();
    let table = block_on(db.create_table("records")).unwrap();
    (db, table)
}

/// Writes or deletes a record in a separate transaction.
pub fn write_now(db: &Database, table: &Table<u64, u64>, key: u64, value: Option<u64>) {
    let table = table.clone();
    db.run_blocking(async move |tx| match value {
        Some(value) => tx.put(&table, &key, &value).await,
        None => {
            assert!(tx.delete(&table, &key).await?);
            Ok(())
        }
    })
    .unwrap();
}
