//! Error messages for paths that do not name a file of records: missing files, directories.

use std::io::{Error, ErrorKind};
use std::path::Path;

/// The file that identifies a directory as a database.
pub const IDENTITY_FILE: &str = "braid.meta";

/// Describes why a file does not exist, or returns `None` for errors of another kind.
pub fn missing(path: &Path, error: &Error) -> Option<String> {
    if !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) {
        return None;
    }
    // The longest existing prefix of the path. It is empty if no part of a relative path exists.
    let there = path.ancestors().skip(1).find(|part| part.as_os_str().is_empty() || part.exists());
    let directory = path.parent().filter(|directory| there != Some(directory));
    Some(match (there, directory) {
        (Some(file), _) if file.is_file() => {
            format!("{} is a file, not a directory", file.display())
        }
        (_, Some(directory)) => format!("there is no directory {}", directory.display()),
        _ => format!("there is no file {}", path.display()),
    })
}

/// Describes a directory that was named instead of a file of records.
pub fn directory(path: &Path) -> String {
    let name = path.display();
    match path.join(IDENTITY_FILE).is_file() {
        true => format!("{name} is a directory that holds a database"),
        false => format!("{name} is a directory"),
    }
}
