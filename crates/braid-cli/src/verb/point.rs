//! `get`, `put` and `delete`.

use std::process::ExitCode;

use anyhow::{Context, Result};
use braiddb::Database;

use crate::exit;
use crate::output::Output;
use crate::store;

/// Prints the value of a key.
pub fn get(db: &Database, table: &str, key: &str, output: &Output) -> Result<ExitCode> {
    let opened = store::existing_table(db, table)?;
    let (records, encoded) = (opened.records.clone(), opened.key.encode(key)?);
    let looked_up = encoded.clone();
    let value = db.run_blocking(async move |tx| {
        Ok(tx.get(&records, &looked_up).await?.map(<[u8]>::to_vec))
    })?;
    match value {
        Some(value) => {
            output.value(&opened, &encoded, &value)?;
            Ok(ExitCode::SUCCESS)
        }
        None => Ok(report_absent(table, key)),
    }
}

/// Sets the value of a key.
pub fn put(db: &Database, table: &str, key: &str, value: &str) -> Result<ExitCode> {
    let opened = store::table(db, table)?;
    let key = opened.key.encode(key).context("the key")?;
    let value = opened.value.encode(value).context("the value")?;
    db.run_blocking(async move |tx| tx.put(&opened.records, &key, &value).await)?;
    db.close()?;
    Ok(ExitCode::SUCCESS)
}

/// Deletes a key.
pub fn delete(db: &Database, table: &str, key: &str) -> Result<ExitCode> {
    let opened = store::existing_table(db, table)?;
    let encoded = opened.key.encode(key)?;
    let there = db.run_blocking(async move |tx| tx.delete(&opened.records, &encoded).await)?;
    db.close()?;
    Ok(if there { ExitCode::SUCCESS } else { report_absent(table, key) })
}

fn report_absent(table: &str, key: &str) -> ExitCode {
    eprintln!("braid: table {table:?} has no key {key:?}");
    exit::not_found()
}
