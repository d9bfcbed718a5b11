//! A file opened for aligned transfers.

use std::os::fd::{AsRawFd, RawFd};
use std::path::{Path, PathBuf};

/// An open file and the path it was opened by, which errors name.
#[derive(Debug)]
pub(crate) struct File {
    file: std::fs::File,
    path: PathBuf,
}

impl File {
    /// Wraps an open file.
    pub(crate) fn new(file: std::fs::File, path: PathBuf) -> Self {
        Self { file, path }
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
