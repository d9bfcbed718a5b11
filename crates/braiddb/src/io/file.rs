//! A file opened for aligned transfers.
//!
//! Direct transfers (`O_DIRECT`) go past the page cache. Where a file system refuses them the file
//! is opened without, and that is said once per process.

use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Once;

/// An open file and the path it was opened by, which errors name.
#[derive(Debug)]
pub(crate) struct File {
    file: std::fs::File,
    path: PathBuf,
}

/// What [`File::open_direct`] expects to find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OpenMode {
    /// The file exists.
    Existing,
    /// The file does not exist, and is made.
    New,
    /// The file is made, or emptied if it exists.
    Emptied,
}

impl File {
    /// Wraps an open file.
    pub(crate) fn new(file: std::fs::File, path: PathBuf) -> Self {
        Self { file, path }
    }

    /// Opens a file to read and write, past the page cache where the file system allows.
    ///
    /// # Errors
    /// As `open(2)`.
    pub(crate) fn open_direct(path: &Path, mode: OpenMode) -> std::io::Result<Self> {
        let mut options = std::fs::OpenOptions::new();
        options.read(true).write(true);
        match mode {
            OpenMode::Existing => {}
            OpenMode::New => _ = options.create_new(true),
            OpenMode::Emptied => _ = options.create(true).truncate(true),
        }
        let direct = options.clone().custom_flags(libc::O_DIRECT).open(path);
        let file = match direct {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                static SAID: Once = Once::new();
                SAID.call_once(|| {
                    let path = path.display();
                    tracing::warn!("no direct I/O on the file system of {path}: using its cache");
                });
                // The refused open may have made the file.
                if mode == OpenMode::New {
                    options.create_new(false).create(true);
                }
                options.open(path)?
            }
            opened => opened?,
        };
        Ok(Self::new(file, path.to_owned()))
    }

    /// The path the file was opened by.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The operating system's handle, for devices.
    pub(crate) fn descriptor(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    /// The file itself, for calls outside the hot path.
    pub(crate) fn inner(&self) -> &std::fs::File {
        &self.file
    }
}
