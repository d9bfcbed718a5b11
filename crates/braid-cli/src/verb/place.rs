//! Files of records that are not where the arguments say: what is there instead.

use std::io::{Error, ErrorKind};
use std::path::Path;

/// What says that a directory holds a database.
pub const IDENTITY: &str = "braid.meta";

/// Why there is no such file, of an error that says so; `None` if it says something else.
pub fn missing(path: &Path, error: &Error) -> Option<String> {
    if !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) {
        return None;
    }
    // The last part of the path that is there; of a relative one all parts may be missing.
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

/// What a directory is that was named in the place of a file of records.
pub fn directory(path: &Path) -> String {
    let name = path.display();
    match path.join(IDENTITY).is_file() {
        true => format!("{name} is a directory that holds a database"),
        false => format!("{name} is a directory"),
    }
}
