//! Database directory: creation, locking and listing, and opening, renaming and removal of its
//! files.
//!
//! Invariant: while a [`Directory`] exists and is not unlocked, its `LOCK` file is locked, so no
//! other process, and no other part of this process, uses it. A directory that was opened for
//! reading only is not locked, and nothing in it is changed through this type.

use std::fs::TryLockError;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::simulated::{SimulatedDisk, SimulatedLock};
use super::{File, OpenMode};
use crate::sync::Mutex;

/// File that is locked while a database in the directory is open.
pub(crate) const LOCK_NAME: &str = "LOCK";

/// An open, locked directory.
#[derive(Debug)]
pub(crate) struct Directory {
    handle: Arc<File>,
    read_only: bool,
    backend: DirectoryBackend,
}

#[derive(Debug)]
enum DirectoryBackend {
    Real { lock: Mutex<Option<std::fs::File>> },
    Simulated(SimulatedLock),
}

/// A directory cannot be used.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum DirectoryError {
    #[error("{0} is already open, in this process or another; close it there first")]
    AlreadyOpen(PathBuf),
    #[error("the directory {0} does not exist")]
    Missing(PathBuf),
    #[error("cannot {action} {path}: {source}")]
    Io { action: &'static str, path: PathBuf, source: Arc<std::io::Error> },
}

impl DirectoryError {
    pub(crate) fn io(action: &'static str, path: &Path, source: std::io::Error) -> Self {
        Self::Io { action, path: path.to_owned(), source: Arc::new(source) }
    }
}

impl Directory {
    /// Opens and locks a directory; creates it and its parents if `create` is true.
    ///
    /// # Errors
    /// `AlreadyOpen` if it is locked; `Missing` if it does not exist and `create` is false.
    pub(crate) fn open(path: &Path, create: bool) -> Result<Self, DirectoryError> {
        // Files are opened by their paths later, so the path must not depend on the working
        // directory.
        let path =
            std::path::absolute(path).map_err(|error| DirectoryError::io("find", path, error))?;
        let path = path.as_path();
        if !path.is_dir() {
            if !create {
                return Err(DirectoryError::Missing(path.to_owned()));
            }
            std::fs::create_dir_all(path)
                .map_err(|error| DirectoryError::io("create", path, error))?;
            if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
                std::fs::File::open(parent)
                    .and_then(|parent| parent.sync_all())
                    .map_err(|error| DirectoryError::io("sync", parent, error))?;
            }
        }
        let handle =
            std::fs::File::open(path).map_err(|error| DirectoryError::io("open", path, error))?;
        let lock_path = path.join(LOCK_NAME);
        let lock = std::fs::OpenOptions::new()
            .create(true)
            .write(true)
            .truncate(false)
            .open(&lock_path)
            .map_err(|error| DirectoryError::io("open", &lock_path, error))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(DirectoryError::AlreadyOpen(path.to_owned()));
            }
            Err(TryLockError::Error(error)) => {
                return Err(DirectoryError::io("lock", &lock_path, error));
            }
        }
        let handle = Arc::new(File::unpooled(handle, path.to_owned()));
        let backend = DirectoryBackend::Real { lock: Mutex::new(Some(lock)) };
        Ok(Self { handle, read_only: false, backend })
    }

    /// Opens a directory for reading only; others may change it concurrently.
    ///
    /// # Errors
    /// `Missing`; errors of the operating system.
    pub(crate) fn open_read_only(path: &Path) -> Result<Self, DirectoryError> {
        let path =
            std::path::absolute(path).map_err(|error| DirectoryError::io("find", path, error))?;
        if !path.is_dir() {
            return Err(DirectoryError::Missing(path));
        }
        let handle =
            std::fs::File::open(&path).map_err(|error| DirectoryError::io("open", &path, error))?;
        let handle = Arc::new(File::unpooled(handle, path));
        let backend = DirectoryBackend::Real { lock: Mutex::new(None) };
        Ok(Self { handle, read_only: true, backend })
    }

    /// Opens and locks the only directory of a simulated disk.
    ///
    /// # Errors
    /// `AlreadyOpen`.
    pub(crate) fn open_simulated(disk: &SimulatedDisk) -> Result<Self, DirectoryError> {
        let path = PathBuf::from("simulated");
        let lock = disk.lock().ok_or_else(|| DirectoryError::AlreadyOpen(path.clone()))?;
        let handle = Arc::new(File::simulated(lock.handle(), path));
        Ok(Self { handle, read_only: false, backend: DirectoryBackend::Simulated(lock) })
    }

    /// Opens the directory of a simulated disk for reading only. It is locked, so that it is not
    /// written concurrently.
    ///
    /// # Errors
    /// `AlreadyOpen`.
    pub(crate) fn open_simulated_read_only(disk: &SimulatedDisk) -> Result<Self, DirectoryError> {
        Ok(Self { read_only: true, ..Self::open_simulated(disk)? })
    }

    /// Returns an error if the directory is open for reading only.
    fn may_change(&self, action: &'static str, path: &Path) -> Result<(), DirectoryError> {
        if self.read_only {
            let refused = std::io::ErrorKind::ReadOnlyFilesystem.into();
            return Err(DirectoryError::io(action, path, refused));
        }
        Ok(())
    }

    /// Releases the lock of the directory, which must not be used through this value any more.
    pub(crate) fn unlock(&self) {
        match &self.backend {
            DirectoryBackend::Real { lock } => {
                // Closing the file is not enough: a child process that another thread has just
                // forked shares it until it runs its program. An error leaves the lock to that.
                _ = lock.lock().take().map(|lock| lock.unlock());
            }
            DirectoryBackend::Simulated(lock) => lock.unlock(),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        self.handle.path()
    }

    /// Returns the directory as a file, whose sync makes names durable.
    pub(crate) fn handle(&self) -> &Arc<File> {
        &self.handle
    }

    /// Opens a file of the directory for reading and writing, or for reading only if the directory
    /// is. Uses direct I/O where possible.
    pub(crate) fn open_file(&self, name: &str, mode: OpenMode) -> Result<File, DirectoryError> {
        let path = self.path().join(name);
        let mode = match mode {
            OpenMode::Existing if self.read_only => OpenMode::ReadOnly,
            OpenMode::Existing | OpenMode::ReadOnly => mode,
            OpenMode::Emptied | OpenMode::ExistingOrNew => {
                self.may_change("create", &path)?;
                mode
            }
        };
        let opened = match &self.backend {
            DirectoryBackend::Real { .. } => File::open_direct(&path, mode),
            DirectoryBackend::Simulated(lock) => {
                let node = lock.open(name, mode);
                node.map(|node| File::simulated(node, path.clone()))
            }
        };
        let action = if mode == OpenMode::Emptied { "create" } else { "open" };
        opened.map_err(|error| DirectoryError::io(action, &path, error))
    }

    /// Creates a file without a name, which is deleted when it is closed. It is not in this
    /// directory, which may be read-only.
    pub(crate) fn open_scratch(&self) -> Result<File, DirectoryError> {
        let made = match &self.backend {
            DirectoryBackend::Real { .. } => File::scratch(),
            DirectoryBackend::Simulated(_) => Err(std::io::ErrorKind::Unsupported.into()),
        };
        made.map_err(|error| DirectoryError::io("make a file in", &std::env::temp_dir(), error))
    }

    /// Renames a file, and replaces a file that has the new name.
    pub(crate) fn rename(&self, from: &str, to: &str) -> Result<(), DirectoryError> {
        let path = self.path().join(from);
        self.may_change("rename", &path)?;
        let renamed = match &self.backend {
            DirectoryBackend::Real { .. } => std::fs::rename(&path, self.path().join(to)),
            DirectoryBackend::Simulated(lock) => lock.rename(from, to),
        };
        renamed.map_err(|error| DirectoryError::io("rename", &path, error))
    }

    /// Renames an open file, and replaces a file that has the new name. Returns the file under its
    /// new name.
    pub(crate) fn rename_file(&self, file: &File, to: &str) -> Result<File, DirectoryError> {
        let path = file.path();
        let from = path.file_name().and_then(std::ffi::OsStr::to_str);
        self.rename(from.expect("files are opened by names that are text"), to)?;
        let renamed = file.renamed(self.path().join(to));
        renamed.map_err(|error| DirectoryError::io("rename", path, error))
    }

    /// Removes a file.
    pub(crate) fn remove(&self, name: &str) -> Result<(), DirectoryError> {
        let path = self.path().join(name);
        self.may_change("remove", &path)?;
        let removed = match &self.backend {
            DirectoryBackend::Real { .. } => std::fs::remove_file(&path),
            DirectoryBackend::Simulated(lock) => lock.remove(name),
        };
        removed.map_err(|error| DirectoryError::io("remove", &path, error))
    }

    /// Makes the names in the directory durable.
    pub(crate) fn sync(&self) -> Result<(), DirectoryError> {
        self.handle.sync().map_err(|error| DirectoryError::io("sync", self.path(), error))
    }

    /// Returns the bytes that unprivileged users can still allocate on the file system;
    /// [`u64::MAX`] if unknown.
    pub(crate) fn available_bytes(&self) -> u64 {
        match &self.backend {
            DirectoryBackend::Real { .. } => self.handle.available_bytes(),
            DirectoryBackend::Simulated(lock) => lock.available_bytes(),
        }
    }

    /// Returns the names in the directory that are valid text, sorted.
    pub(crate) fn list(&self) -> Result<Vec<String>, DirectoryError> {
        let failed = |error| DirectoryError::io("list", self.path(), error);
        let mut names = Vec::new();
        match &self.backend {
            DirectoryBackend::Real { .. } => {
                for entry in std::fs::read_dir(self.path()).map_err(failed)? {
                    names.extend(entry.map_err(failed)?.file_name().into_string());
                }
            }
            DirectoryBackend::Simulated(lock) => names = lock.list(),
        }
        names.sort();
        Ok(names)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// A child process shares all open files between `fork` and `exec`.
    #[test]
    fn the_lock_is_released_although_another_process_shares_its_file() {
        let path = tempfile::tempdir().unwrap();
        let first = Directory::open(path.path(), true).unwrap();
        let DirectoryBackend::Real { lock } = &first.backend else { panic!("a real directory") };
        let _shared = lock.lock().as_ref().unwrap().try_clone().unwrap();
        let second = Directory::open(path.path(), true);
        assert!(matches!(second, Err(DirectoryError::AlreadyOpen(_))));
        first.unlock();
        Directory::open(path.path(), true).unwrap().unlock();
    }
}
