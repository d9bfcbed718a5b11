//! A file opened for aligned transfers.
//!
//! Direct transfers (`O_DIRECT`) go past the page cache. Where a file system refuses them the file
//! is opened without, and that is said once per process. The calls here block, and are for what is
//! outside the hot path; everything else goes through a [`super::Device`]. A file has a descriptor
//! while it is used and the process may have one more (`descriptors`).

use std::ops::Range;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::SECTOR_BYTES;
use super::descriptors::{Descriptor, PooledFile};
use super::simulated::Node;

/// A file that was opened, and the path it was opened by, which errors name.
#[derive(Debug)]
pub(crate) struct File {
    kind: Kind,
    path: PathBuf,
}

#[derive(Debug)]
enum Kind {
    /// Open as long as this lives: a directory.
    Unpooled(std::fs::File),
    Pooled(Arc<PooledFile>),
    Simulated(Node),
}

/// A file's descriptor, open while this lives and the [`File`] does.
#[derive(Debug)]
pub(super) enum OpenDescriptor {
    Unpooled(RawFd),
    Pooled(Arc<Descriptor>),
}

impl OpenDescriptor {
    pub(super) fn number(&self) -> RawFd {
        match self {
            Self::Unpooled(number) => *number,
            Self::Pooled(descriptor) => descriptor.number(),
        }
    }
}

/// What a file that is being opened is expected to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OpenMode {
    /// The file exists.
    Existing,
    /// The file is made, or emptied if it exists.
    Emptied,
    /// The file exists, or is made.
    ExistingOrNew,
    /// The file exists, and is only read.
    ReadOnly,
}

impl File {
    /// Wraps an open file, or directory.
    pub(super) fn unpooled(file: std::fs::File, path: PathBuf) -> Self {
        Self { kind: Kind::Unpooled(file), path }
    }

    /// A file, or the directory, of a simulated disk.
    pub(super) fn simulated(node: Node, path: PathBuf) -> Self {
        Self { kind: Kind::Simulated(node), path }
    }

    /// Whether others, in this process or another, have the file open to read only (`descriptors`).
    pub(crate) fn is_read_elsewhere(&self) -> bool {
        match &self.kind {
            Kind::Pooled(file) => file.is_read_elsewhere(),
            Kind::Unpooled(_) | Kind::Simulated(_) => false,
        }
    }

    /// Opens a file to read and write, unless the mode says otherwise, past the page cache where the file
    /// system allows.
    ///
    /// # Errors
    /// As `open(2)`.
    pub(super) fn open_direct(path: &Path, mode: OpenMode) -> std::io::Result<Self> {
        let kind = Kind::Pooled(PooledFile::open(path, mode)?);
        Ok(Self { kind, path: path.to_owned() })
    }

    /// The path the file was opened by.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The operating system's handle, for the devices that reach it, opened again if it was closed.
    ///
    /// # Errors
    /// As `open(2)`.
    pub(super) fn descriptor(&self) -> std::io::Result<OpenDescriptor> {
        match &self.kind {
            Kind::Unpooled(file) => Ok(OpenDescriptor::Unpooled(file.as_raw_fd())),
            Kind::Pooled(file) => file.descriptor().map(OpenDescriptor::Pooled),
            Kind::Simulated(_) => unreachable!("simulated files meet the simulated device only"),
        }
    }

    /// The same; `None` if opening it again must wait until operations under way are over.
    ///
    /// # Errors
    /// As `open(2)`.
    pub(super) fn descriptor_if_room(&self) -> std::io::Result<Option<OpenDescriptor>> {
        match &self.kind {
            Kind::Pooled(file) => Ok(file.descriptor_if_room()?.map(OpenDescriptor::Pooled)),
            _ => self.descriptor().map(Some),
        }
    }

    /// What the file is on its simulated disk.
    #[cfg(any(test, braid_simulation))]
    pub(super) fn node(&self) -> &Node {
        match &self.kind {
            Kind::Simulated(node) => node,
            _ => unreachable!("real files never meet the simulated device"),
        }
    }

    /// Bytes of the file.
    pub(crate) fn length(&self) -> std::io::Result<u64> {
        match &self.kind {
            Kind::Unpooled(file) => Ok(file.metadata()?.len()),
            Kind::Pooled(file) => Ok(file.descriptor()?.file().metadata()?.len()),
            Kind::Simulated(node) => Ok(node.length()),
        }
    }

    /// Reads from a sector on; returns how much there was before the end of the file.
    pub(crate) fn read_at(&self, buffer: &mut [u8], offset: u64) -> std::io::Result<usize> {
        let mut done = 0;
        while done < buffer.len() {
            let (rest, at) = (&mut buffer[done..], offset + done as u64);
            let read = match &self.kind {
                Kind::Unpooled(file) => file.read_at(rest, at),
                Kind::Pooled(file) => file.descriptor()?.file().read_at(rest, at),
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
            Kind::Unpooled(file) => file.write_all_at(bytes, offset),
            Kind::Pooled(file) => file.descriptor()?.file().write_all_at(bytes, offset),
            Kind::Simulated(node) => node.write_all_at(bytes, offset),
        }
    }

    /// Makes what was written, or the names in a directory, durable.
    pub(crate) fn sync(&self) -> std::io::Result<()> {
        match &self.kind {
            Kind::Unpooled(file) => file.sync_all(),
            Kind::Pooled(file) => file.descriptor()?.file().sync_all(),
            Kind::Simulated(node) => node.sync(),
        }
    }

    /// Bytes that are free on the file system of a directory; [`u64::MAX`] if it does not say.
    pub(super) fn available_bytes(&self) -> u64 {
        match &self.kind {
            Kind::Unpooled(file) => available_bytes(file).unwrap_or(u64::MAX),
            _ => u64::MAX,
        }
    }

    /// Cuts the file to a length, and gives back the space after it.
    pub(crate) fn truncate(&self, bytes: u64) -> std::io::Result<()> {
        match &self.kind {
            Kind::Unpooled(file) => file.set_len(bytes),
            Kind::Pooled(file) => file.descriptor()?.file().set_len(bytes),
            Kind::Simulated(node) => node.truncate(bytes),
        }
    }

    /// Gives back the space of a part of the file, of whole sectors, which reads as zeros from then on. The length stays.
    ///
    /// # Errors
    /// The operating system's; `Unsupported` if the file system cannot do that.
    pub(crate) fn give_back(&self, part: Range<u64>) -> std::io::Result<()> {
        match &self.kind {
            Kind::Unpooled(file) => give_back(file, part),
            Kind::Pooled(file) => give_back(file.descriptor()?.file(), part),
            Kind::Simulated(node) => node.give_back(part),
        }
    }

    /// The parts of the file that have space on the disk, in order; all of it if the file system does not say.
    pub(crate) fn parts_with_space(&self) -> std::io::Result<Vec<Range<u64>>> {
        match &self.kind {
            Kind::Unpooled(file) => parts_with_space(file),
            Kind::Pooled(file) => parts_with_space(file.descriptor()?.file()),
            Kind::Simulated(node) => Ok(node.parts_with_space()),
        }
    }

    /// The same file, under the path that it was renamed to.
    pub(super) fn renamed(&self, path: PathBuf) -> std::io::Result<Self> {
        match &self.kind {
            Kind::Unpooled(file) => Ok(Self::unpooled(file.try_clone()?, path)),
            Kind::Pooled(file) => Ok(Self { kind: Kind::Pooled(file.renamed(&path)), path }),
            Kind::Simulated(node) => Ok(node.renamed(path)),
        }
    }

    /// Gives a file at least a length, and asks for the space.
    pub(crate) fn allocate(&self, bytes: u64) -> std::io::Result<()> {
        match &self.kind {
            Kind::Unpooled(file) => allocate(file, bytes),
            Kind::Pooled(file) => allocate(file.descriptor()?.file(), bytes),
            Kind::Simulated(node) => node.allocate(bytes),
        }
    }
}

/// Bytes that are free on a file system, for others than the system's administrator.
fn available_bytes(file: &std::fs::File) -> Option<u64> {
    let mut said = std::mem::MaybeUninit::<libc::statvfs>::uninit();
    // SAFETY: writes to the struct, which lives through the call.
    if unsafe { libc::fstatvfs(file.as_raw_fd(), said.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: filled by the call, which succeeded.
    let said = unsafe { said.assume_init() };
    Some(said.f_bavail.saturating_mul(said.f_frsize))
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

fn give_back(file: &std::fs::File, part: Range<u64>) -> std::io::Result<()> {
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
        // SAFETY: takes no pointers. Nobody uses the file's position.
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
                // There is none behind.
                Some(libc::ENXIO) => return Ok(parts),
                // The file system does not say.
                Some(libc::EINVAL | libc::EOPNOTSUPP) => {
                    let all = 0..file.metadata()?.len();
                    return Ok(Vec::from([all]));
                }
                _ => return Err(error),
            },
        }
    }
}
