//! `get`, `put` and `delete`.

use std::process::ExitCode;

use anyhow::Result;
use braiddb::Database;

use crate::exit;
use crate::output::Output;
use crate::store;

/// Prints the value of a key.
pub fn get(db: &Database, table: &str, key: &str, output: &Output) -> Result<ExitCode> {
    let (records, wanted) = (store::existing_table(db, table)?, key.to_owned());
    let value = db.run_blocking(async move |tx| {
        Ok::<_, braiddb::Error>(tx.get(&records, &wanted).await?.map(str::to_owned))
    })?;
    match value {
        Some(value) => {
            output.value(&value)?;
            Ok(ExitCode::SUCCESS)
        }
        None => Ok(absent(table, key)),
    }
}

/// Gives a key a value.
pub fn put(db: &Database, table: &str, key: &str, value: &str) -> Result<ExitCode> {
    let (records, key, value) = (store::table(db, table)?, key.to_owned(), value.to_owned());
    db.run_blocking(async move |tx| tx.put(&records, &key, &value).await)?;
    db.close()?;
    Ok(ExitCode::SUCCESS)
}

/// Deletes a key.
pub fn delete(db: &Database, table: &str, key: &str) -> Result<ExitCode> {
    let (records, wanted) = (store::existing_table(db, table)?, key.to_owned());
    let there = db.run_blocking(async move |tx| tx.delete(&records, &wanted).await)?;
    db.close()?;
    Ok(if there { ExitCode::SUCCESS } else { absent(table, key) })
}

fn absent(table: &str, key: &str) -> ExitCode {
    eprintln!("braid: table {table:?} has no record {key:?}");
    exit::not_found()
}
