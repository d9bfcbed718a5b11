//! An operation under way: what of it is done, and what is to be asked of the kernel next.
//!
//! Both devices drive operations through this: short transfers are continued, an end of file ends
//! a read, a write that makes no progress is an error. The operation, with its file and memory, is
//! owned here from submission to completion; so is the file's descriptor, from the first call on.

use std::os::fd::RawFd;

use super::file::OpenDescriptor;
use super::{Completion, File, Operation, SECTOR_BYTES, WriteSource};

/// The kernel takes lengths as 32 bits, and moves at most a little less than 2 GiB at once.
const MAX_CALL: usize = 1 << 30;

/// One operation and the bytes of it that are done.
#[derive(Debug)]
pub(super) struct Transfer {
    operation: Operation,
    token: u64,
    done: usize,
    descriptor: Option<OpenDescriptor>,
}

/// One call to the kernel.
#[derive(Debug)]
pub(super) enum Call {
    Read { pointer: *mut u8, bytes: usize, offset: u64 },
    Write { pointer: *const u8, bytes: usize, offset: u64, sync: bool },
    Sync,
}

impl WriteSource {
    /// The first byte, and how many.
    pub(super) fn bytes(&self) -> (*const u8, usize) {
        match self {
            Self::Buffer(buffer) => (buffer.as_ptr(), buffer.len()),
            Self::Mapped { pointer, bytes, .. } => (pointer.0, *bytes),
        }
    }
}

impl Transfer {
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

    /// The file's descriptor, kept open from now on; `None` if `may_wait`, and the process can have no
    /// more of them before other operations are over.
    ///
    /// # Errors
    /// As `open(2)`, if the file was closed meanwhile.
    pub(super) fn open(&mut self, may_wait: bool) -> std::io::Result<Option<RawFd>> {
        if self.descriptor.is_none() {
            self.descriptor = match may_wait {
                true => self.file().descriptor_if_room()?,
                false => Some(self.file().descriptor()?),
            };
        }
        Ok(self.descriptor.as_ref().map(OpenDescriptor::number))
    }

    /// What is left to write, and where.
    #[cfg(any(test, braid_simulation))]
    pub(super) fn unwritten(&self) -> Option<(&File, u64, &[u8])> {
        let Operation::Write { file, offset, source, .. } = &self.operation else { return None };
        let (pointer, bytes) = source.bytes();
        // SAFETY: the source keeps its bytes, unchanged, until the write completes.
        let bytes = unsafe { std::slice::from_raw_parts(pointer, bytes) };
        Some((file, *offset + self.done as u64, &bytes[self.done..]))
    }

    /// What is left to ask of the kernel.
    pub(super) fn call(&mut self) -> Call {
        let done = self.done;
        match &mut self.operation {
            Operation::Read { offset, buffer, .. } => {
                let offset = *offset + done as u64;
                let rest = &mut buffer[done..];
                let bytes = rest.len().min(MAX_CALL);
                Call::Read { pointer: rest.as_mut_ptr(), bytes, offset }
            }
            Operation::Write { offset, source, sync, .. } => {
                let (pointer, bytes) = source.bytes();
                assert!(done <= bytes, "no more is written than there is");
                let offset = *offset + done as u64;
                // SAFETY: `done` is within the source.
                let pointer = unsafe { pointer.add(done) };
                let bytes = (bytes - done).min(MAX_CALL);
                Call::Write { pointer, bytes, offset, sync: *sync }
            }
            Operation::Sync { .. } => Call::Sync,
        }
    }

    /// Takes the kernel's answer, bytes or a negative error number; the operation's result once
    /// it is over, `None` if it goes on.
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
                assert!(self.done <= buffer.len(), "no more is read than was asked for");
                // Only the end of a file cuts a transfer inside a sector; the rest of a direct
                // read could not be asked for.
                let over = moved == 0
                    || self.done == buffer.len()
                    || !self.done.is_multiple_of(SECTOR_BYTES);
                over.then_some(Ok(self.done))
            }
            Operation::Write { source, .. } => {
                let (_, bytes) = source.bytes();
                self.done += moved;
                assert!(self.done <= bytes, "no more is written than was asked for");
                if self.done == bytes {
                    return Some(Ok(bytes));
                }
                // A direct write goes on at a sector: what was cut is written again.
                let before = self.done - moved;
                self.done -= self.done % SECTOR_BYTES;
                (self.done <= before).then(|| Err(std::io::ErrorKind::WriteZero.into()))
            }
        }
    }

    /// Gives back what the operation owned.
    pub(super) fn finish(self, result: std::io::Result<usize>) -> Completion {
        let buffer = match self.operation {
            Operation::Read { buffer, .. } => Some(buffer),
            Operation::Write { .. } | Operation::Sync { .. } => None,
        };
        Completion { token: self.token, result, buffer }
    }
}
