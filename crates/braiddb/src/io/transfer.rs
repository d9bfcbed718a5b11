//! Transfer: an operation in progress, with its completed bytes and its next kernel call.
//!
//! Both devices perform operations through this type. It continues short transfers, ends a read at
//! the end of the file, and reports a write without progress as an error. It owns the operation,
//! with its file and memory, from submission to completion, and the file's descriptor from the
//! first call on.

use std::os::fd::RawFd;

use super::file::OpenDescriptor;
use super::{Completion, File, Operation, SECTOR_BYTES, WriteSource};

/// Maximum bytes of one call. The kernel takes lengths as 32 bits, and moves slightly less than 2
/// GiB at a time.
const MAX_CALL_BYTES: usize = 1 << 30;

/// One operation with the number of its completed bytes.
#[derive(Debug)]
pub(super) struct OperationProgress {
    operation: Operation,
    token: u64,
    done: usize,
    descriptor: Option<OpenDescriptor>,
}

/// One call to the kernel.
#[derive(Debug)]
pub(super) enum SystemCall {
    Read { pointer: *mut u8, bytes: usize, offset: u64 },
    Write { pointer: *const u8, bytes: usize, offset: u64, sync: bool },
    Sync,
}

impl WriteSource {
    /// Returns the address and the number of bytes.
    pub(super) fn bytes(&self) -> (*const u8, usize) {
        match self {
            Self::Buffer(buffer) => (buffer.as_ptr(), buffer.len()),
            Self::Mapped { pointer, bytes, .. } => (pointer.0, *bytes),
        }
    }
}

impl OperationProgress {
    pub(super) fn new(operation: Operation, token: u64) -> Self {
        Self { operation, token, done: 0, descriptor: None }
    }

    pub(super) fn file(&self) -> &File {
        match &self.operation {
            Operation::Read { file, .. }
            | Operation::Write { file, .. }
            | Operation::Sync { file } => file,
        }
    }

    /// Returns the file's descriptor, which stays open from then on. Returns `None` if `may_wait`
    /// is true and the process cannot open another file before other operations end.
    ///
    /// # Errors
    /// Errors of `open(2)`, if the file was closed in the interim.
    pub(super) fn open(&mut self, may_wait: bool) -> std::io::Result<Option<RawFd>> {
        if self.descriptor.is_none() {
            self.descriptor = match may_wait {
                true => self.file().descriptor_if_room()?,
                false => Some(self.file().descriptor()?),
            };
        }
        Ok(self.descriptor.as_ref().map(OpenDescriptor::number))
    }

    /// Returns the file, offset and bytes that are still to be written.
    #[cfg(any(test, braid_simulation))]
    pub(super) fn unwritten(&self) -> Option<(&File, u64, &[u8])> {
        let Operation::Write { file, offset, source, .. } = &self.operation else { return None };
        let (pointer, bytes) = source.bytes();
        // SAFETY: the source keeps its bytes, unchanged, until the write completes.
        let bytes = unsafe { std::slice::from_raw_parts(pointer, bytes) };
        Some((file, *offset + self.done as u64, &bytes[self.done..]))
    }

    /// Returns the next call to the kernel.
    pub(super) fn call(&mut self) -> SystemCall {
        let done = self.done;
        match &mut self.operation {
            Operation::Read { offset, buffer, .. } => {
                let offset = *offset + done as u64;
                let rest = &mut buffer[done..];
                let bytes = rest.len().min(MAX_CALL_BYTES);
                SystemCall::Read { pointer: rest.as_mut_ptr(), bytes, offset }
            }
            Operation::Write { offset, source, sync, .. } => {
                let (pointer, bytes) = source.bytes();
                assert!(done <= bytes, "at most all bytes are written");
                let offset = *offset + done as u64;
                // SAFETY: `done` is within the source.
                let pointer = unsafe { pointer.add(done) };
                let bytes = (bytes - done).min(MAX_CALL_BYTES);
                SystemCall::Write { pointer, bytes, offset, sync: *sync }
            }
            Operation::Sync { .. } => SystemCall::Sync,
        }
    }

    /// Processes the kernel's answer, bytes or a negative error number. Returns the operation's
    /// result when it has ended, and `None` if it continues.
    pub(super) fn advance(&mut self, answer: i32) -> Option<std::io::Result<usize>> {
        if answer < 0 {
            if -answer == libc::EINTR || -answer == libc::EAGAIN {
                return None;
            }
            return Some(Err(std::io::Error::from_raw_os_error(-answer)));
        }
        let moved = answer as usize;
        match &self.operation {
            Operation::Sync { .. } => Some(Ok(0)),
            Operation::Read { buffer, .. } => {
                self.done += moved;
                assert!(self.done <= buffer.len(), "at most the requested bytes are read");
                // A transfer ends within a sector only at the end of a file. Direct I/O could not
                // request the rest of the sector.
                let over = moved == 0
                    || self.done == buffer.len()
                    || !self.done.is_multiple_of(SECTOR_BYTES);
                over.then_some(Ok(self.done))
            }
            Operation::Write { source, .. } => {
                let (_, bytes) = source.bytes();
                self.done += moved;
                assert!(self.done <= bytes, "at most the requested bytes are written");
                if self.done == bytes {
                    return Some(Ok(bytes));
                }
                // A direct write continues at a sector boundary: an incomplete sector is written
                // again.
                let before = self.done - moved;
                self.done -= self.done % SECTOR_BYTES;
                (self.done <= before).then(|| Err(std::io::ErrorKind::WriteZero.into()))
            }
        }
    }

    /// Returns the completion, with the buffer of a read.
    pub(super) fn finish(self, result: std::io::Result<usize>) -> Completion {
        let buffer = match self.operation {
            Operation::Read { buffer, .. } => Some(buffer),
            Operation::Write { .. } | Operation::Sync { .. } => None,
        };
        Completion { token: self.token, result, buffer }
    }
}
