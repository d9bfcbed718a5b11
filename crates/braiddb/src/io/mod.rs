//! Input and output: one interface to the disk, with several devices that implement it.
//!
//! A worker owns one [`Device`]. Operations are submitted with a token and return as
//! [`Completion`]s with that token. An operation owns its buffers and its file from submission to
//! completion, even if the future that requested it is dropped (MosaicDB §4.1).

mod blocking;
mod buffer;
mod descriptors;
mod directory;
mod file;
mod notify;
mod open_mode;
mod scratch;
#[cfg(any(test, braid_simulation))]
mod simulated;
#[cfg(not(any(test, braid_simulation)))]
#[path = "unsimulated.rs"]
mod simulated;
#[cfg(all(test, not(loom)))]
mod tests;
mod transfer;
mod uring;

use std::sync::Arc;
use std::time::Duration;

pub(crate) use buffer::AlignedBuffer;
pub(crate) use descriptors::pool_stats;
pub(crate) use directory::{Directory, DirectoryError, LOCK_NAME};
pub(crate) use file::File;
pub(crate) use open_mode::OpenMode;
#[cfg(not(any(test, braid_simulation)))]
pub(crate) use simulated::SimulatedDisk;
#[cfg(any(test, braid_simulation))]
pub use simulated::{CrashCounts, DiskMoment, FaultCounts, Faults, SimulatedDisk};

/// Alignment in bytes of offset, length and memory of every direct transfer.
pub(crate) const SECTOR_BYTES: usize = 4096;

/// Operation of a device.
#[derive(Debug)]
pub(crate) enum Operation {
    /// Reads `buffer.len()` bytes at `offset`.
    Read { file: Arc<File>, offset: u64, buffer: AlignedBuffer },
    /// Writes all of `source` at `offset`; with `sync` it is durable when it completes.
    Write { file: Arc<File>, offset: u64, source: WriteSource, sync: bool },
    /// Makes every completed write to `file` durable.
    Sync { file: Arc<File> },
}

/// Memory to be written. Its owner keeps it allocated and unchanged until the write completes.
#[derive(Debug)]
pub(crate) enum WriteSource {
    /// A buffer that belongs to the operation.
    Buffer(AlignedBuffer),
    /// Sector-aligned bytes of a shared mapping (the log's ring) that do not change until the write
    /// completes; the `Arc` keeps the mapping allocated.
    Mapped {
        #[expect(dead_code, reason = "held so that the mapping stays, never read")]
        mapping: Arc<dyn std::any::Any + Send + Sync>,
        pointer: MappedPointer,
        bytes: usize,
    },
}

/// An address inside a [`WriteSource::Mapped`] mapping.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MappedPointer(pub(crate) *const u8);

// SAFETY: the pointer is only read through by the device that owns the operation, while it holds
// the mapping's `Arc`, which is `Send + Sync`.
unsafe impl Send for MappedPointer {}

/// Result of an operation.
#[derive(Debug)]
pub(crate) struct Completion {
    /// Token given at submission.
    pub(crate) token: u64,
    /// Number of bytes moved: all requested bytes, except for a read that reaches the end of the
    /// file.
    pub(crate) result: std::io::Result<usize>,
    /// Buffer of a `Read`.
    pub(crate) buffer: Option<AlignedBuffer>,
}

/// Wakes a worker from [`Device::wait`]; callable from any thread, at any time.
pub(crate) trait Notify: Send + Sync {
    /// Makes the current or the next `wait` return soon.
    fn notify(&self);
}

/// Disk access of one worker.
pub(crate) trait Device: Send {
    /// Accepts an operation; it may start only at the next `poll` or `wait`.
    fn submit(&mut self, operation: Operation, token: u64);

    /// Starts submitted operations and delivers completed ones, without blocking. Makes no system
    /// call when nothing is outstanding.
    fn poll(&mut self, deliver: &mut dyn FnMut(Completion));

    /// Like `poll`, but sleeps in the kernel until a completion, a wake-up or `timeout`.
    fn wait(&mut self, timeout: Option<Duration>, deliver: &mut dyn FnMut(Completion));

    /// Returns the number of operations submitted and not yet delivered.
    fn outstanding(&self) -> usize;

    /// Returns the handle that wakes this device's `wait`.
    fn notifier(&self) -> Arc<dyn Notify>;
}

/// Kind of device for disk access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, serde::Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum DeviceKind {
    /// io_uring where the kernel allows it, blocking calls elsewhere.
    #[default]
    Auto,
    /// io_uring, or an error.
    Uring,
    /// Blocking calls.
    Blocking,
}

/// Opens a device for one worker.
///
/// # Errors
/// When the kernel refuses it. `Auto` then uses blocking calls, and logs a warning once.
pub(crate) fn open_device(kind: DeviceKind) -> std::io::Result<Box<dyn Device>> {
    match kind {
        DeviceKind::Uring => Ok(Box::new(uring::UringDevice::new()?)),
        DeviceKind::Blocking => Ok(Box::new(blocking::BlockingDevice::new()?)),
        DeviceKind::Auto => match uring::UringDevice::new() {
            Ok(device) => Ok(Box::new(device)),
            Err(error) => {
                static SAID: crate::sync::Once = crate::sync::Once::new();
                SAID.call_once(|| {
                    tracing::warn!("io_uring is not available ({error}): using blocking calls");
                });
                Ok(Box::new(blocking::BlockingDevice::new()?))
            }
        },
    }
}
