//! The directory of a durable database under test: a given directory, or a temporary one that is
//! removed afterwards.

use std::path::{Path, PathBuf};

use clap::Args;
use tempfile::TempDir;

use crate::error::Error;

/// The location of a workload's databases, from the command line.
#[derive(Args, Clone, Debug)]
pub struct PlaceArguments {
    /// Put the databases (temporary ones) into this directory, to choose the disk.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

impl PlaceArguments {
    /// Creates a new directory there, which is removed afterwards.
    pub fn make(&self) -> Result<Place, Error> {
        Place::inside(self.dir.as_deref())
    }
}

/// A directory for databases.
#[derive(Debug)]
pub struct Place {
    path: PathBuf,
    /// Removes itself when dropped.
    temporary: Option<TempDir>,
}

impl Place {
    /// Creates a new directory inside `directory` (created if missing) or inside the system's
    /// temporary directory. The new directory is removed afterwards.
    pub fn inside(directory: Option<&Path>) -> Result<Self, Error> {
        let parent = directory.map_or_else(std::env::temp_dir, Path::to_owned);
        std::fs::create_dir_all(&parent).map_err(Error::file(&parent))?;
        let temporary = tempfile::Builder::new().prefix("braid-bench-").tempdir_in(&parent);
        let temporary = temporary.map_err(Error::file(&parent))?;
        Ok(Self { path: temporary.path().to_owned(), temporary: Some(temporary) })
    }

    /// Uses `directory` itself, which must be new or empty and is kept; without it, a temporary
    /// one.
    pub fn kept(directory: Option<&Path>) -> Result<Self, Error> {
        let Some(directory) = directory else { return Self::inside(None) };
        std::fs::create_dir_all(directory).map_err(Error::file(directory))?;
        let mut entries = std::fs::read_dir(directory).map_err(Error::file(directory))?;
        if entries.next().is_some() {
            return Err(Error::File {
                path: directory.to_owned(),
                source: std::io::Error::other("the directory is not empty; give a new one"),
            });
        }
        Ok(Self { path: directory.to_owned(), temporary: None })
    }

    /// Returns a path inside.
    pub fn join(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Returns a sentence about the location that readers of the figures need.
    pub fn describe(&self) -> String {
        let kept = if self.temporary.is_some() { "" } else { ", kept" };
        match in_memory(&self.path) {
            true => format!(
                "databases in {}, which is memory and no disk: a sync costs nothing there. \
                 Give --dir.",
                self.path.display()
            ),
            false => format!("databases in {}{kept}", self.path.display()),
        }
    }
}

/// Returns true if `path` is on a file system in memory.
#[cfg(target_os = "linux")]
fn in_memory(path: &Path) -> bool {
    use std::os::unix::ffi::OsStrExt;

    let Ok(path) = std::ffi::CString::new(path.as_os_str().as_bytes()) else { return false };
    let mut status = std::mem::MaybeUninit::<libc::statfs>::zeroed();
    // SAFETY: `path` is a C string, and `status` has room for one result.
    if unsafe { libc::statfs(path.as_ptr(), status.as_mut_ptr()) } != 0 {
        return false;
    }
    // SAFETY: the call succeeded, so it filled the struct; all zeros would be valid as well.
    let status = unsafe { status.assume_init() };
    status.f_type == libc::TMPFS_MAGIC
}

#[cfg(not(target_os = "linux"))]
fn in_memory(_: &Path) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn temporary_directories_are_removed_and_named_ones_kept() {
        let parent = tempfile::tempdir().unwrap();
        let inside = Place::inside(Some(parent.path())).unwrap();
        let path = inside.join("database");
        assert!(path.starts_with(parent.path()), "it is where it was asked to be");
        std::fs::create_dir(&path).unwrap();
        drop(inside);
        assert!(!path.exists(), "it is gone");

        let given = parent.path().join("given");
        let place = Place::kept(Some(&given)).unwrap();
        std::fs::write(place.join("file"), "x").unwrap();
        assert!(place.describe().contains("kept"));
        drop(place);
        assert!(given.join("file").exists(), "it is kept");
        assert!(Place::kept(Some(&given)).is_err(), "a used directory is refused");
    }
}
