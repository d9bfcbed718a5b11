//! Files for aligned transfers.
//!
//! Direct transfers (`O_DIRECT`) bypass the page cache. If a file system does not support them, the
//! file is opened without, and a warning is logged once per process. The calls here block and are
//! used outside the hot path only; everything else uses a [`super::Device`]. A file has a
//! descriptor while it is used, and as long as the descriptor pool has room (`descriptors`).

use std::ops::Range;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::descriptors::{Descriptor, PooledFile};
use super::{OpenMode, SECTOR_BYTES};

/// Unit of the allocated size that the operating system reports.
const BLOCK_BYTES: u64 = 512;

/// An opened file, with the path by which it was opened, for error messages.
#[derive(Debug)]
pub(crate) struct File {
    kind: FileBackend,
    path: PathBuf,
}

#[derive(Debug)]
enum FileBackend {
    /// Open as long as this value exists: a directory or a scratch file.
    Unpooled(std::fs::File),
    Pooled(Arc<PooledFile>),
    Simulated(Arc<dyn SimulatedFile>),
}

/// A file's descriptor, open as long as this value and the [`File`] exist.
#[derive(Debug)]
pub(super) enum OpenDescriptor {
    Unpooled(RawFd),
    Pooled(Arc<Descriptor>),
}

/// A file, or the directory, of a simulated disk.
pub(super) trait SimulatedFile: std::fmt::Debug + Send + Sync {
    /// Returns the file's number on its disk; `None` for the directory.
    #[cfg(any(test, braid_simulation))]
    fn number(&self) -> Option<usize>;
    fn length(&self) -> u64;
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> std::io::Result<usize>;
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> std::io::Result<()>;
    fn sync(&self) -> std::io::Result<()>;
    fn truncate(&self, bytes: u64) -> std::io::Result<()>;
    fn deallocate(&self, part: Range<u64>) -> std::io::Result<()>;
    fn parts_with_space(&self) -> Vec<Range<u64>>;
    fn allocate(&self, bytes: u64) -> std::io::Result<()>;
}

impl OpenDescriptor {
    pub(super) fn number(&self) -> RawFd {
        match self {
            Self::Unpooled(number) => *number,
            Self::Pooled(descriptor) => descriptor.number(),
        }
    }
}

impl File {
    /// Wraps an open file or directory.
    pub(super) fn unpooled(file: std::fs::File, path: PathBuf) -> Self {
        Self { kind: FileBackend::Unpooled(file), path }
    }

    /// Creates a handle for a file, or the directory, of a simulated disk.
    pub(super) fn simulated(node: Arc<dyn SimulatedFile>, path: PathBuf) -> Self {
        Self { kind: FileBackend::Simulated(node), path }
    }

    /// Returns whether others, in this process or another, have the file open for reading only
    /// (`descriptors`).
    pub(crate) fn is_read_elsewhere(&self) -> bool {
        match &self.kind {
            FileBackend::Pooled(file) => file.is_read_elsewhere(),
            FileBackend::Unpooled(_) | FileBackend::Simulated(_) => false,
        }
    }

    /// Opens a file for reading and writing, unless the mode is read-only. Uses direct I/O where
    /// the file system supports it.
    ///
    /// # Errors
    /// Errors of `open(2)`.
    pub(super) fn open_direct(path: &Path, mode: OpenMode) -> std::io::Result<Self> {
        let kind = FileBackend::Pooled(PooledFile::open(path, mode)?);
        Ok(Self { kind, path: path.to_owned() })
    }

    /// Returns the path by which the file was opened.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the operating system's descriptor, for the devices that use it; reopened if it was
    /// closed.
    ///
    /// # Errors
    /// Errors of `open(2)`.
    pub(super) fn descriptor(&self) -> std::io::Result<OpenDescriptor> {
        match &self.kind {
            FileBackend::Unpooled(file) => Ok(OpenDescriptor::Unpooled(file.as_raw_fd())),
            FileBackend::Pooled(file) => file.descriptor().map(OpenDescriptor::Pooled),
            FileBackend::Simulated(_) => {
                unreachable!("simulated files meet the simulated device only")
            }
        }
    }

    /// Like `descriptor`, but returns `None` if reopening must wait for operations in flight.
    ///
    /// # Errors
    /// Errors of `open(2)`.
    pub(super) fn descriptor_if_room(&self) -> std::io::Result<Option<OpenDescriptor>> {
        match &self.kind {
            FileBackend::Pooled(file) => Ok(file.descriptor_if_room()?.map(OpenDescriptor::Pooled)),
            _ => self.descriptor().map(Some),
        }
    }

    /// Returns the file's number on its simulated disk; `None` for the directory.
    #[cfg(any(test, braid_simulation))]
    pub(super) fn simulated_number(&self) -> Option<usize> {
        match &self.kind {
            FileBackend::Simulated(node) => node.number(),
            _ => unreachable!("real files never meet the simulated device"),
        }
    }

    /// Returns the length of the file in bytes.
    pub(crate) fn length(&self) -> std::io::Result<u64> {
        match &self.kind {
            FileBackend::Unpooled(file) => Ok(file.metadata()?.len()),
            FileBackend::Pooled(file) => Ok(file.descriptor()?.file().metadata()?.len()),
            FileBackend::Simulated(node) => Ok(node.length()),
        }
    }

    /// Reads from a sector boundary. Returns the bytes read, which are fewer at the end of the
    /// file.
    pub(crate) fn read_at(&self, buffer: &mut [u8], offset: u64) -> std::io::Result<usize> {
        let mut done = 0;
        while done < buffer.len() {
            let (rest, at) = (&mut buffer[done..], offset + done as u64);
            let read = match &self.kind {
                FileBackend::Unpooled(file) => file.read_at(rest, at),
                FileBackend::Pooled(file) => file.descriptor()?.file().read_at(rest, at),
                FileBackend::Simulated(node) => node.read_at(rest, at),
            };
            match read {
                Ok(0) => break,
                Ok(bytes) => done += bytes,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            // A direct read ends within a sector only at the end of the file.
            if !done.is_multiple_of(SECTOR_BYTES) {
                break;
            }
        }
        Ok(done)
    }

    /// Reads from a sector boundary. Returns an error if the file ends before the buffer is full.
    pub(crate) fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> std::io::Result<()> {
        if self.read_at(buffer, offset)? < buffer.len() {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        Ok(())
    }

    /// Writes whole sectors.
    pub(crate) fn write_all_at(&self, bytes: &[u8], offset: u64) -> std::io::Result<()> {
        match &self.kind {
            FileBackend::Unpooled(file) => file.write_all_at(bytes, offset),
            FileBackend::Pooled(file) => file.descriptor()?.file().write_all_at(bytes, offset),
            FileBackend::Simulated(node) => node.write_all_at(bytes, offset),
        }
    }

    /// Makes written data, or the names in a directory, durable.
    pub(crate) fn sync(&self) -> std::io::Result<()> {
        match &self.kind {
            FileBackend::Unpooled(file) => file.sync_all(),
            FileBackend::Pooled(file) => file.descriptor()?.file().sync_all(),
            FileBackend::Simulated(node) => node.sync(),
        }
    }

    /// Returns the free bytes on the file system of a directory; [`u64::MAX`] if unknown.
    pub(super) fn available_bytes(&self) -> u64 {
        match &self.kind {
            FileBackend::Unpooled(file) => available_bytes(file).unwrap_or(u64::MAX),
            _ => u64::MAX,
        }
    }

    /// Truncates the file to a length, and frees the space after it.
    pub(crate) fn truncate(&self, bytes: u64) -> std::io::Result<()> {
        match &self.kind {
            FileBackend::Unpooled(file) => file.set_len(bytes),
            FileBackend::Pooled(file) => file.descriptor()?.file().set_len(bytes),
            FileBackend::Simulated(node) => node.truncate(bytes),
        }
    }

    /// Deallocates the space of a part of the file, in whole sectors, which reads as zeros
    /// afterwards. The length does not change.
    ///
    /// # Errors
    /// Errors of the operating system; `Unsupported` if the file system cannot do that.
    pub(crate) fn deallocate(&self, part: Range<u64>) -> std::io::Result<()> {
        match &self.kind {
            FileBackend::Unpooled(file) => deallocate(file, part),
            FileBackend::Pooled(file) => deallocate(file.descriptor()?.file(), part),
            FileBackend::Simulated(node) => node.deallocate(part),
        }
    }

    /// Returns the parts of the file that have space on the disk, in order; the whole file if
    /// unknown.
    pub(crate) fn parts_with_space(&self) -> std::io::Result<Vec<Range<u64>>> {
        match &self.kind {
            FileBackend::Unpooled(file) => parts_with_space(file),
            FileBackend::Pooled(file) => parts_with_space(file.descriptor()?.file()),
            FileBackend::Simulated(node) => Ok(node.parts_with_space()),
        }
    }

    /// Returns the same file under the path to which it was renamed.
    pub(super) fn renamed(&self, path: PathBuf) -> std::io::Result<Self> {
        match &self.kind {
            FileBackend::Unpooled(file) => Ok(Self::unpooled(file.try_clone()?, path)),
            FileBackend::Pooled(file) => {
                Ok(Self { kind: FileBackend::Pooled(file.renamed(&path)), path })
            }
            FileBackend::Simulated(node) => Ok(Self::simulated(node.clone(), path)),
        }
    }

    /// Extends a file to at least this length, and allocates the space.
    pub(crate) fn allocate(&self, bytes: u64) -> std::io::Result<()> {
        match &self.kind {
            FileBackend::Unpooled(file) => allocate(file, bytes),
            FileBackend::Pooled(file) => allocate(file.descriptor()?.file(), bytes),
            FileBackend::Simulated(node) => node.allocate(bytes),
        }
    }
}

/// Returns the bytes that unprivileged users can still allocate on a file system.
fn available_bytes(file: &std::fs::File) -> Option<u64> {
    let mut said = std::mem::MaybeUninit::<libc::statvfs>::uninit();
    // SAFETY: writes to the struct, which stays valid through the call.
    if unsafe { libc::fstatvfs(file.as_raw_fd(), said.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: filled by the call, which succeeded.
    let said = unsafe { said.assume_init() };
    Some(said.f_bavail.saturating_mul(said.f_frsize))
}

fn allocate(file: &std::fs::File, bytes: u64) -> std::io::Result<()> {
    // A file system may allocate all that is left before it fails. Until that is freed, the writes
    // of others would fail.
    let missing = bytes.saturating_sub(file.metadata()?.blocks() * BLOCK_BYTES);
    if available_bytes(file).is_some_and(|available| available < missing) {
        return Err(std::io::Error::from_raw_os_error(libc::ENOSPC));
    }
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

fn deallocate(file: &std::fs::File, part: Range<u64>) -> std::io::Result<()> {
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    let (start, bytes) = (part.start as libc::off_t, (part.end - part.start) as libc::off_t);
    // SAFETY: takes no pointers.
    match unsafe { libc::fallocate(file.as_raw_fd(), mode, start, bytes) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

fn parts_with_space(file: &std::fs::File) -> std::io::Result<Vec<Range<u64>>> {
    let find = |from: u64, what| {
        // SAFETY: takes no pointers. The file's position is not used otherwise.
        let found = unsafe { libc::lseek(file.as_raw_fd(), from as libc::off_t, what) };
        u64::try_from(found).map_err(|_| std::io::Error::last_os_error())
    };
    let (mut parts, mut from) = (Vec::new(), 0);
    loop {
        match find(from, libc::SEEK_DATA) {
            Ok(start) => {
                let end = find(start, libc::SEEK_HOLE)?;
                parts.push(start..end);
                from = end;
            }
            Err(error) => match error.raw_os_error() {
                // No data follows.
                Some(libc::ENXIO) => return Ok(parts),
                // The file system does not support the query.
                Some(libc::EINVAL | libc::EOPNOTSUPP) => {
                    let all = 0..file.metadata()?.len();
                    return Ok(Vec::from([all]));
                }
                _ => return Err(error),
            },
        }
    }
}
