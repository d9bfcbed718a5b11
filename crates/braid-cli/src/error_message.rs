//! Messages of errors, with advice about the command line.

use std::path::Path;

use braiddb::{Database, IndexError, LogError};

use crate::verb::path_error;

/// Maximum number of existing tables that the message about a missing table names.
const MAX_LISTED_TABLES: usize = 8;

/// The message of an error. Adds advice about the command line, which the engine does not know.
pub fn of(error: &anyhow::Error) -> String {
    let causes = error.chain().map(|cause| match cause.downcast_ref() {
        Some(braiddb::Error::TableNotFound(table)) => {
            format!("there is no table {table:?}; braid tables lists the tables")
        }
        // The engine names its own options.
        Some(braiddb::Error::Options(said)) if said.contains("memory_budget") => {
            format!("{said}; --memory sets the budget here, in MiB")
        }
        // Only the program has the function that computes the keys of its index.
        Some(braiddb::Error::Index(error)) => match &**error {
            IndexError::Detached { table, index } => format!(
                "only its program can write table {table:?}, because the program computes the keys \
                 of index {index:?}; the command can read the table"
            ),
            error => error.to_string(),
        },
        Some(braiddb::Error::Directory(log)) => match &**log {
            LogError::NotADatabase { path, reason } if is_free(path) => {
                let advice = "name its directory with --db or BRAID_DB, or create a database with \
                              braid import or braid put";
                not_a_database(path, reason, advice)
            }
            LogError::NotADatabase { path, reason }
                if reason.ends_with(path_error::IDENTITY_FILE) =>
            {
                let advice = "name the directory of the database with --db or BRAID_DB";
                not_a_database(path, reason, advice)
            }
            log => log.to_string(),
        },
        _ => cause.to_string(),
    });
    // Some errors repeat their cause.
    let message = causes.reduce(|message, cause| match message.ends_with(&cause) {
        true => message,
        false => format!("{message}: {cause}"),
    });
    message.expect("the chain begins with the error")
}

/// A table that a command names and that the database does not have.
#[derive(Debug)]
struct NoTable {
    name: String,
    existing: Vec<String>,
}

impl std::error::Error for NoTable {}

impl std::fmt::Display for NoTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { name, existing } = self;
        write!(f, "there is no table {name:?}; ")?;
        let listed = &existing[..existing.len().min(MAX_LISTED_TABLES)];
        let names = listed.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ");
        match existing.len() - listed.len() {
            0 if existing.is_empty() => f.write_str("the database has no tables"),
            0 => write!(f, "the database has {names}"),
            more => write!(f, "the database has {names} and {more} more, which braid tables lists"),
        }
    }
}

/// Adds the names of existing tables to the error of a command that names a missing table.
pub fn with_tables(db: &Database, error: anyhow::Error) -> anyhow::Error {
    let Some(braiddb::Error::TableNotFound(name)) = error.downcast_ref() else { return error };
    // Without them, the message refers to the command that lists them.
    let Ok(tables) = pollster::block_on(db.tables()) else { return error };
    let existing = tables.into_iter().map(|table| table.name).collect();
    NoTable { name: name.clone(), existing }.into()
}

/// Message of [`LogError::NotADatabase`] with the remedy for a command.
fn not_a_database(path: &Path, reason: &str, advice: &str) -> String {
    format!("{} does not hold a database: {reason}; {advice}", path.display())
}

/// Returns whether a database can be created at this path: it does not exist, or is an empty
/// directory.
fn is_free(path: &Path) -> bool {
    !path.exists() || path.read_dir().is_ok_and(|mut entries| entries.next().is_none())
}
