//! Messages of errors, with advice about the command line.

use std::path::Path;

use braiddb::LogError;

use crate::verb::path_error;

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

/// Message of [`LogError::NotADatabase`] with the remedy for a command.
fn not_a_database(path: &Path, reason: &str, advice: &str) -> String {
    format!("{} does not hold a database: {reason}; {advice}", path.display())
}

/// Returns whether a database can be created at this path: it does not exist, or is an empty
/// directory.
fn is_free(path: &Path) -> bool {
    !path.exists() || path.read_dir().is_ok_and(|mut entries| entries.next().is_none())
}
