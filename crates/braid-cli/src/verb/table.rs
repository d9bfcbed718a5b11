//! `drop` and `rename`.

use std::process::ExitCode;

use anyhow::{Result, bail};
use braiddb::{Database, Error};

/// Drops a table.
pub fn drop(db: &Database, table: &str) -> Result<ExitCode> {
    finish(db, pollster::block_on(db.drop_table(table)))
}

/// Renames a table.
pub fn rename(db: &Database, table: &str, to: &str) -> Result<ExitCode> {
    finish(db, pollster::block_on(db.rename_table(table, to)))
}

fn finish(db: &Database, result: Result<(), Error>) -> Result<ExitCode> {
    match result {
        Ok(()) => {
            db.close()?;
            Ok(ExitCode::SUCCESS)
        }
        Err(Error::TableExists(name)) => {
            bail!("a table {name:?} already exists; drop it first, or choose another name")
        }
        Err(error) => Err(error.into()),
    }
}
