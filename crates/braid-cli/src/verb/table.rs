//! `drop` and `rename`.

use std::process::ExitCode;

use anyhow::{Result, bail};
use braiddb::{Database, Error};

/// Drops a table.
pub fn drop(db: &Database, table: &str) -> Result<ExitCode> {
    let dropped = pollster::block_on(db.drop_table(table));
    finish_drop(db, table, dropped)
}

/// Reports the result of a drop. After an error the table may be dropped nevertheless.
fn finish_drop(db: &Database, table: &str, dropped: Result<(), Error>) -> Result<ExitCode> {
    if let Err(error) = &dropped
        && !matches!(error, Error::TableNotFound(_))
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

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Arc;

    use braiddb::{LogError, MissingTable, Options};
    use pollster::block_on;

    use super::*;
    use crate::error_message;
    use crate::limit::{PART_SECONDS, with_limit};

    /// The catalog decides, not the error.
    #[test]
    fn a_failed_drop_reports_whether_the_table_is_dropped() {
        with_limit(PART_SECONDS, |_| {
            let db = Database::in_memory(Options::default().workers(1)).unwrap();
            block_on(db.create_table::<u64, str>("t")).unwrap();
            let grow = |kind: io::ErrorKind| {
                let cause = Arc::new(io::Error::from(kind));
                Arc::new(LogError::CannotGrow { action: "extend", path: "log".into(), cause })
            };
            let full = Error::DiskFull(grow(io::ErrorKind::StorageFull));
            let refused = Error::Io(grow(io::ErrorKind::FileTooLarge));
            let report = |error: &Error| {
                error_message::of(&finish_drop(&db, "t", Err(error.clone())).unwrap_err())
            };
            for error in [&full, &refused] {
                let said = report(error);
                assert!(said.contains("the log cannot grow"), "{said}");
                assert!(!said.contains("is dropped"), "{said}");
            }
            block_on(db.drop_table("t")).unwrap();
            for error in [&full, &refused] {
                let said = report(error);
                assert!(
                    said.starts_with(
                        "table \"t\" is dropped, but some of its disk space is not free yet; the \
                         next command that opens the database continues: the log cannot grow"
                    ),
                    "{said}"
                );
            }
            let said = report(&MissingTable::new("t").into());
            assert!(said.starts_with("there is no table \"t\""), "{said}");
            db.close().unwrap();
        });
    }
}
