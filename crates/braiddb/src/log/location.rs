//! Check whether a directory contains a database or may become one. It runs before anything in the
//! directory is changed, so that a database is never created among files of another program.

use std::path::Path;

use super::LogError;
use super::identity::{META_NAME, RESERVE_NAME, SOCKET_NAME, UNFINISHED_SUFFIX};
use crate::io::LOCK_NAME;

/// Start and end of the names of checkpoint files.
pub(crate) const CHECKPOINT_NAME: &str = "checkpoint";
pub(crate) const CHECKPOINT_SUFFIX: &str = ".ckpt";

/// Returns whether this is the name of a database's file, complete or not.
pub(super) fn is_own(name: &str) -> bool {
    let name = name.strip_suffix(UNFINISHED_SUFFIX).unwrap_or(name);
    [LOCK_NAME, META_NAME, RESERVE_NAME, SOCKET_NAME, CHECKPOINT_NAME].contains(&name)
        || name.ends_with(".seg")
        || is_checkpoint(name)
}

/// Returns whether this is the name of a complete checkpoint.
pub(super) fn is_checkpoint(name: &str) -> bool {
    name.starts_with(CHECKPOINT_NAME) && name.ends_with(CHECKPOINT_SUFFIX)
}

/// Rejects a path that contains no database and may not become one: a file; a directory with other
/// files; or, if no database may be created, a directory that is missing or has no `braid.meta`.
///
/// # Errors
/// `NotADatabase`; errors of the operating system.
pub(super) fn check(path: &Path, create: bool) -> Result<(), LogError> {
    let refuse = |reason: String| Err(LogError::NotADatabase { path: path.to_owned(), reason });
    let failed = |error| LogError::io("list", path, 0, error);
    // A file that cannot be accessed must not be treated as missing.
    let is_there =
        |path: &Path| path.try_exists().map_err(|error| LogError::io("look at", path, 0, error));
    let exists = is_there(path)?;
    if exists && !path.is_dir() {
        return refuse("it is a file".to_owned());
    }
    if !exists {
        return if create { Ok(()) } else { refuse("no such directory exists".to_owned()) };
    }
    if is_there(&path.join(META_NAME))? {
        return Ok(());
    }
    if !create {
        return refuse(format!("it has no {META_NAME}"));
    }
    for entry in std::fs::read_dir(path).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        if !name.to_str().is_some_and(is_own) {
            return refuse(format!(
                "it holds files of another program, such as {}",
                name.display()
            ));
        }
    }
    Ok(())
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::{Log, LogOptions};
    use super::*;

    fn message(path: &Path, create: bool) -> String {
        let options = LogOptions { create, ..LogOptions::new(path, 1) };
        Log::open(options).map(drop).unwrap_err().to_string()
    }

    fn names(path: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(path).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn nothing_is_touched_where_no_database_may_be_made() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        assert!(message(path, false).contains("it has no braid.meta"));
        assert!(names(path).is_empty(), "a refused opening leaves no lock file behind");
        std::fs::write(path.join("thesis.new"), "years of work").unwrap();
        for create in [false, true] {
            let message = message(path, create);
            assert!(message.contains("does not hold a database"), "{message}");
        }
        assert!(message(path, true).contains("thesis.new"));
        assert_eq!(names(path), ["thesis.new"]);
        assert!(message(&path.join("thesis.new"), true).contains("it is a file"));
        assert!(message(&path.join("missing"), false).contains("no such directory"));
    }

    #[test]
    fn other_files_beside_a_database_stay() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        drop(Log::open(LogOptions::new(path, 1)).unwrap());
        for name in ["notes.new", "checkpoint.new"] {
            std::fs::write(path.join(name), "text").unwrap();
        }
        drop(Log::open(LogOptions::new(path, 1)).unwrap());
        let names = names(path);
        assert!(names.contains(&"notes.new".to_owned()), "{names:?}");
        assert!(!names.contains(&"checkpoint.new".to_owned()), "unfinished, so removed: {names:?}");
    }
}
