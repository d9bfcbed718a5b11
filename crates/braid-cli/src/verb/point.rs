//! `get`, `put` and `delete`.

use std::process::ExitCode;

use anyhow::{Context, Result};
use braiddb::Database;

use crate::any_table::AnyTable;
use crate::arguments::RecordName;
use crate::exit;
use crate::output::Output;
use crate::store::existing_table;

/// Prints the value of a key.
pub fn get(db: &Database, record: &RecordName, output: &Output) -> Result<ExitCode> {
    let table = existing_table(db, &record.table)?;
    let key = table.key.encode(&record.key)?;
    let (opened, encoded) = (table.clone(), key.clone());
    match db.run_blocking(async move |tx| opened.get(tx, &encoded).await)? {
        Some(value) => {
            output.value(&table, &key, &value)?;
            Ok(ExitCode::SUCCESS)
        }
        None => Ok(report_absent(record)),
    }
}

/// Sets the value of a key.
pub fn put(db: &Database, record: &RecordName, value: &str) -> Result<ExitCode> {
    let name = record.table.clone();
    let table = db.run_blocking(async move |tx| AnyTable::open_or_create(tx, &name).await)?;
    let key = table.key.encode(&record.key).context("the key")?;
    let value = table.value.encode(value).context("the value")?;
    db.run_blocking(async move |tx| tx.put(&table.records, &key, &value).await)?;
    db.close()?;
    Ok(ExitCode::SUCCESS)
}

/// Deletes a key.
pub fn delete(db: &Database, record: &RecordName) -> Result<ExitCode> {
    let table = existing_table(db, &record.table)?;
    let key = table.key.encode(&record.key)?;
    let there = db.run_blocking(async move |tx| tx.delete(&table.records, &key).await)?;
    db.close()?;
    Ok(if there { ExitCode::SUCCESS } else { report_absent(record) })
}

fn report_absent(RecordName { table, key }: &RecordName) -> ExitCode {
    eprintln!("braid: table {table:?} has no key {key:?}");
    exit::not_found()
}
