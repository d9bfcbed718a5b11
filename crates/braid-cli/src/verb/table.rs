//! `drop` and `rename`.

use std::process::ExitCode;

use anyhow::{Result, bail};
use braiddb::{Database, Error};

/// Drops a table.
pub fn drop(db: &Database, table: &str) -> Result<ExitCode> {
    ended(db, pollster::block_on(db.drop_table(table)))
}

/// Gives a table another name.
pub fn rename(db: &Database, table: &str, to: &str) -> Result<ExitCode> {
    ended(db, pollster::block_on(db.rename_table(table, to)))
}

fn ended(db: &Database, result: Result<(), Error>) -> Result<ExitCode> {
    match result {
        Ok(()) => {
            db.close()?;
            Ok(ExitCode::SUCCESS)
        }
        Err(Error::TableExists(name)) => {
            bail!("there is a table {name:?} already; drop it first, or give another name")
        }
        Err(error) => Err(error.into()),
    }
}
