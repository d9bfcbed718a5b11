//! Messages of errors, with advice about the command line.

use std::path::Path;

use braiddb::{IndexError, LogError, MissingTable};

use crate::verb::path_error;

/// The message of an error. Adds advice about the command line, which the engine does not know.
pub fn of(error: &anyhow::Error) -> String {
    let causes = error.chain().map(|cause| match cause.downcast_ref() {
        Some(braiddb::Error::TableNotFound(missing)) => no_table(missing),
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

/// Message about a table that a command names and that the database does not have.
fn no_table(missing: &MissingTable) -> String {
    let existing = match missing.existing.as_deref() {
        None => "braid tables lists the tables".to_owned(),
        Some([]) => "the database has no tables".to_owned(),
        Some(existing) => {
            let names: Vec<String> = existing.iter().map(|name| format!("{name:?}")).collect();
            let more = if missing.has_more { " and more, which braid tables lists" } else { "" };
            format!("the database has {}{more}", names.join(", "))
        }
    };
    format!("there is no table {:?}; {existing}", missing.name)
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
