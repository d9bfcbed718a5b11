//! A file opened for aligned transfers.
//!
//! Direct transfers (`O_DIRECT`) go past the page cache. Where a file system refuses them the file
//! is opened without, and that is said once per process. The calls here block, and are for what is
//! outside the hot path; everything else goes through a [`super::Device`].

use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::SECTOR_BYTES;
use super::simulated::Node;
use crate::sync::Once;

/// An open file and the path it was opened by, which errors name.
#[derive(Debug)]
pub(crate) struct File {
    kind: Kind,
    path: PathBuf,
}

#[derive(Debug)]
enum Kind {
    Real(std::fs::File),
    Simulated(Node),
}

/// What a file that is being opened is expected to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OpenMode {
    /// The file exists.
    Existing,
    /// The file is made, or emptied if it exists.
    Emptied,
}

impl File {
    /// Wraps an open file.
    pub(super) fn real(file: std::fs::File, path: PathBuf) -> Self {
        Self { kind: Kind::Real(file), path }
    }

    /// A file, or the directory, of a simulated disk.
    pub(super) fn simulated(node: Node, path: PathBuf) -> Self {
        Self { kind: Kind::Simulated(node), path }
    }

    /// Opens a file to read and write, past the page cache where the file system allows.
    ///
    /// # Errors
    /// As `open(2)`.
    pub(super) fn open_direct(path: &Path, mode: OpenMode) -> std::io::Result<Self> {
        let mut options = std::fs::OpenOptions::new();
        options.read(true).write(true);
        match mode {
            OpenMode::Existing => {}
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
                options.open(path)?
            }
            opened => opened?,
        };
        Ok(Self::real(file, path.to_owned()))
    }

    /// The path the file was opened by.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The operating system's handle, for the devices that reach it.
    pub(super) fn descriptor(&self) -> RawFd {
        match &self.kind {
            Kind::Real(file) => file.as_raw_fd(),
            Kind::Simulated(_) => unreachable!("simulated files meet the simulated device only"),
        }
    }

    /// What the file is on its simulated disk.
    pub(super) fn node(&self) -> &Node {
        match &self.kind {
            Kind::Real(_) => unreachable!("real files never meet the simulated device"),
            Kind::Simulated(node) => node,
        }
    }

    /// Bytes of the file.
    #[cfg(test)]
    pub(crate) fn length(&self) -> std::io::Result<u64> {
        match &self.kind {
            Kind::Real(file) => Ok(file.metadata()?.len()),
            Kind::Simulated(node) => Ok(node.length()),
        }
    }

    /// Reads from a sector on; returns how much there was before the end of the file.
    pub(crate) fn read_at(&self, buffer: &mut [u8], offset: u64) -> std::io::Result<usize> {
        let mut done = 0;
        while done < buffer.len() {
            let (rest, at) = (&mut buffer[done..], offset + done as u64);
            let read = match &self.kind {
                Kind::Real(file) => file.read_at(rest, at),
                Kind::Simulated(node) => node.read_at(rest, at),
            };
            match read {
                Ok(0) => break,
                Ok(bytes) => done += bytes,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            // Only the end of a file cuts a direct read inside a sector.
            if !done.is_multiple_of(SECTOR_BYTES) {
                break;
            }
        }
        Ok(done)
    }

    /// Reads from a sector on; an end of the file before all is read is an error.
    pub(crate) fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> std::io::Result<()> {
        if self.read_at(buffer, offset)? < buffer.len() {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        Ok(())
    }

    /// Writes whole sectors.
    pub(crate) fn write_all_at(&self, bytes: &[u8], offset: u64) -> std::io::Result<()> {
        match &self.kind {
            Kind::Real(file) => file.write_all_at(bytes, offset),
            Kind::Simulated(node) => node.write_all_at(bytes, offset),
        }
    }

    /// Makes what was written, or the names in a directory, durable.
    pub(crate) fn sync(&self) -> std::io::Result<()> {
        match &self.kind {
            Kind::Real(file) => file.sync_all(),
            Kind::Simulated(node) => node.sync(),
        }
    }

    /// Gives an empty file its length, and asks for the space.
    pub(crate) fn allocate(&self, bytes: u64) -> std::io::Result<()> {
        match &self.kind {
            Kind::Real(file) => allocate(file, bytes),
            Kind::Simulated(node) => node.allocate(bytes),
        }
    }
}

fn allocate(file: &std::fs::File, bytes: u64) -> std::io::Result<()> {
    // SAFETY: takes no pointers.
    if unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, bytes as libc::off_t) } == 0 {
        return Ok(());
    }
    let error = std::io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EOPNOTSUPP | libc::ENOSYS) => file.set_len(bytes),
        _ => Err(error),
    }
}
