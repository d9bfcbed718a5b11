//! `drop` and `rename`.

use std::process::ExitCode;

use anyhow::{Result, bail};
use braiddb::{Database, Error};

/// Drops a table.
pub fn drop(db: &Database, table: &str) -> Result<ExitCode> {
    let dropped = pollster::block_on(db.drop_table(table));
    if let Err(error @ Error::DiskFull(_)) = &dropped
        && let Ok(tables) = pollster::block_on(db.tables())
        && tables.iter().all(|other| other.name != table)
    {
        // The records that are left are deleted when the database is opened again.
        bail!(
            "table {table:?} is dropped, but some of its disk space is not free yet; the next \
             command that opens the database continues: {error}"
        )
    }
    finish(db, dropped)
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
