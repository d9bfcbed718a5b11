//! File descriptor pool: a database has one file per segment, and a process has a limit of
//! descriptors.
//!
//! A [`PooledFile`] is identified by its path. Its descriptor is opened when an operation needs it,
//! and kept open afterwards. When the pool is full, files that were not used recently are closed,
//! of any database in the process. Half of the operating system's limit is left to the rest of the
//! program. Before the first file is closed, the soft limit is raised to the hard limit, once per
//! process.
//!
//! A file that is opened for reading only has a shared lock as long as it has a descriptor. The
//! lock does not change the disk. It shows the process that writes to the database that the file is
//! being read.
//!
//! Invariants:
//!
//! - An operation holds the [`Descriptor`] that it uses, so a descriptor is closed only when no
//!   operation uses it.
//! - A file is reopened only if the device and inode are the same.
//! - `open` counts all descriptors, including those that operations still use after their file was
//!   closed.

use std::collections::VecDeque;
use std::fs::TryLockError;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use super::OpenMode;
use crate::sync::statistic::{AtomicU64, Ordering};
use crate::sync::{Mutex, Once};

/// Number of descriptors that may stay open regardless of the limit.
const MIN_CAPACITY: u64 = 8;
/// Number of stale queue entries that are tolerated before the queue is swept.
const MAX_STALE: u64 = 64;

static POOL: DescriptorPool = DescriptorPool {
    queue: Mutex::new(VecDeque::new()),
    open: AtomicU64::new(0),
    reopened: AtomicU64::new(0),
};

/// Open files of all databases of the process.
struct DescriptorPool {
    /// Files with a descriptor, in the order in which they are considered for closing.
    queue: Mutex<VecDeque<Weak<PooledFile>>>,
    open: AtomicU64,
    reopened: AtomicU64,
}

/// Statistics of the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DescriptorPoolStats {
    /// Number of open descriptors.
    pub(crate) open: u64,
    /// Number of files that were opened again after they had been closed.
    pub(crate) reopened: u64,
}

/// Returns the statistics of the process's pool of open files.
pub(crate) fn pool_stats() -> DescriptorPoolStats {
    // Relaxed: statistics.
    DescriptorPoolStats {
        open: POOL.open.load(Ordering::Relaxed),
        reopened: POOL.reopened.load(Ordering::Relaxed),
    }
}

/// Closes every file that no operation uses.
#[cfg(test)]
pub(super) fn close_all_idle() {
    POOL.close_idle(u64::MAX);
}

/// An open descriptor, which is counted until it is dropped.
#[derive(Debug)]
pub(super) struct Descriptor(std::fs::File);

impl Descriptor {
    fn new(file: std::fs::File) -> Self {
        // Relaxed: a count, compared with a bound that need not be met exactly.
        POOL.open.fetch_add(1, Ordering::Relaxed);
        Self(file)
    }

    pub(super) fn file(&self) -> &std::fs::File {
        &self.0
    }

    pub(super) fn number(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        // Relaxed: a count, as in `new`.
        POOL.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A file identified by its path; open while it is used, and afterwards while the pool has room.
#[derive(Debug)]
pub(super) struct PooledFile {
    path: PathBuf,
    /// Mode for reopening.
    mode: OpenMode,
    /// Device and inode.
    identity: (u64, u64),
    descriptor: Mutex<Option<Arc<Descriptor>>>,
    /// 1 if used since the pool last considered closing it.
    used: AtomicU64,
}

impl PooledFile {
    /// Opens a file for reading and writing, unless the mode is read-only. Uses direct I/O where
    /// the file system supports it.
    ///
    /// # Errors
    /// Errors of `open(2)`.
    pub(super) fn open(path: &Path, mode: OpenMode) -> io::Result<Arc<Self>> {
        let descriptor =
            POOL.open_file(path, mode, false)?.expect("opened even if all others are in use");
        let metadata = descriptor.file().metadata()?;
        let mode = if mode == OpenMode::ReadOnly { OpenMode::ReadOnly } else { OpenMode::Existing };
        let file = Arc::new(Self {
            path: path.to_owned(),
            mode,
            identity: (metadata.dev(), metadata.ino()),
            descriptor: Mutex::new(Some(Arc::new(descriptor))),
            used: AtomicU64::new(1),
        });
        POOL.enter(&file);
        Ok(file)
    }

    /// Returns the same file under the path to which it was renamed. The previous `PooledFile`
    /// cannot be reopened.
    pub(super) fn renamed(&self, path: &Path) -> Arc<Self> {
        let descriptor = self.descriptor.lock().clone();
        let open = descriptor.is_some();
        let file = Arc::new(Self {
            path: path.to_owned(),
            mode: self.mode,
            identity: self.identity,
            descriptor: Mutex::new(descriptor),
            used: AtomicU64::new(1),
        });
        if open {
            POOL.enter(&file);
        }
        file
    }

    /// Returns the descriptor, reopened if it was closed.
    ///
    /// # Errors
    /// Errors of `open(2)`; or another file has the path now.
    pub(super) fn descriptor(self: &Arc<Self>) -> io::Result<Arc<Descriptor>> {
        self.acquire(false)
            .map(|descriptor| descriptor.expect("opened even if all others are in use"))
    }

    /// Returns the descriptor, reopened if it was closed. Returns `None` if that must wait until
    /// operations in flight release their descriptors.
    ///
    /// # Errors
    /// The errors of [`Self::descriptor`].
    pub(super) fn descriptor_if_room(self: &Arc<Self>) -> io::Result<Option<Arc<Descriptor>>> {
        self.acquire(true)
    }

    /// Returns whether others have the file open for reading only: they have a shared lock on it.
    pub(super) fn is_read_elsewhere(self: &Arc<Self>) -> bool {
        let Ok(descriptor) = self.descriptor() else { return false };
        match descriptor.file().try_lock() {
            Ok(()) => {
                // Held only briefly. A reader that fails to lock the file in this moment checks the
                // file's header anyway.
                _ = descriptor.file().unlock();
                false
            }
            Err(TryLockError::WouldBlock) => true,
            // A file system without locks; readers check the file's header.
            Err(TryLockError::Error(_)) => false,
        }
    }

    fn acquire(self: &Arc<Self>, may_wait: bool) -> io::Result<Option<Arc<Descriptor>>> {
        // Relaxed: a hint of recent use. Loaded first, so that the flag of a frequently used file
        // is not stored again.
        if self.used.load(Ordering::Relaxed) == 0 {
            self.used.store(1, Ordering::Relaxed);
        }
        let mut held = self.descriptor.lock();
        if let Some(descriptor) = &*held {
            return Ok(Some(descriptor.clone()));
        }
        let Some(descriptor) = POOL.open_file(&self.path, self.mode, may_wait)? else {
            return Ok(None);
        };
        let metadata = descriptor.file().metadata()?;
        if (metadata.dev(), metadata.ino()) != self.identity {
            return Err(io::Error::other("another file has replaced it"));
        }
        let descriptor = Arc::new(descriptor);
        *held = Some(descriptor.clone());
        drop(held);
        // Relaxed: a statistic.
        POOL.reopened.fetch_add(1, Ordering::Relaxed);
        POOL.enter(self);
        Ok(Some(descriptor))
    }

    /// Takes the descriptor if no operation uses it.
    fn release_idle(&self) -> DescriptorTakeResult {
        let Some(mut held) = self.descriptor.try_lock() else { return DescriptorTakeResult::InUse };
        match held.take() {
            None => DescriptorTakeResult::Closed,
            // Clones are made under the lock only, so no other exists or can be created.
            Some(descriptor) if Arc::strong_count(&descriptor) == 1 => {
                DescriptorTakeResult::Idle(descriptor)
            }
            Some(descriptor) => {
                *held = Some(descriptor);
                DescriptorTakeResult::InUse
            }
        }
    }
}

/// Result of an attempt to take a file's descriptor.
enum DescriptorTakeResult {
    /// The caller closes it.
    Idle(Arc<Descriptor>),
    InUse,
    /// The file had no descriptor.
    Closed,
}

impl DescriptorPool {
    /// Records that a file has a descriptor.
    fn enter(&self, file: &Arc<PooledFile>) {
        let mut queue = self.queue.lock();
        // Relaxed: bounds the memory of entries of dropped files.
        if queue.len() as u64 > 2 * self.open.load(Ordering::Relaxed) + MAX_STALE {
            queue.retain(|file| file.strong_count() > 0);
        }
        queue.push_back(Arc::downgrade(file));
    }

    /// Opens a file, after closing others if necessary. If all others are in use, it is opened
    /// anyway, unless the caller may wait.
    fn open_file(
        &self,
        path: &Path,
        mode: OpenMode,
        may_wait: bool,
    ) -> io::Result<Option<Descriptor>> {
        // Relaxed: the bound need not be met exactly.
        let over = |capacity| (self.open.load(Ordering::Relaxed) + 1).saturating_sub(capacity);
        let excess = match over(capacity()) {
            0 => 0,
            _ => {
                raise_limit();
                over(capacity())
            }
        };
        if excess > 0 && self.close_idle(excess) == 0 && may_wait {
            return Ok(None);
        }
        loop {
            match open_direct(path, mode) {
                Err(error) if is_out_of_descriptors(&error) => {
                    let more = raise_limit() || self.close_idle(1) > 0;
                    match (more, may_wait) {
                        (true, _) => {}
                        (false, true) => return Ok(None),
                        (false, false) => return Err(error),
                    }
                }
                opened => return opened.map(|file| Some(Descriptor::new(file))),
            }
        }
    }

    /// Closes up to `most` files that no operation uses, least recently used first. Returns their
    /// number.
    fn close_idle(&self, most: u64) -> u64 {
        let mut idle = Vec::new();
        let mut queue = self.queue.lock();
        // The first round may find that all were used.
        for _ in 0..2 * queue.len() {
            if idle.len() as u64 == most {
                break;
            }
            let Some(entry) = queue.pop_front() else { break };
            let Some(file) = entry.upgrade() else { continue };
            // Relaxed: a hint, as in `PooledFile::acquire`.
            if file.used.swap(0, Ordering::Relaxed) == 1 {
                queue.push_back(entry);
                continue;
            }
            match file.release_idle() {
                DescriptorTakeResult::Idle(descriptor) => idle.push(descriptor),
                DescriptorTakeResult::InUse => queue.push_back(entry),
                DescriptorTakeResult::Closed => {}
            }
        }
        drop(queue);
        // The descriptors are closed here, without the lock.
        idle.len() as u64
    }
}

/// Returns whether the process, or the system, has reached its limit of open files.
fn is_out_of_descriptors(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

/// Returns the soft and the hard limit of descriptors.
fn limits() -> Option<libc::rlimit> {
    let mut limits = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: writes to the struct, which stays valid through the call.
    let asked = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limits) };
    (asked == 0).then_some(limits)
}

/// Returns the maximum number of descriptors in the pool.
fn capacity() -> u64 {
    limits().map_or(MIN_CAPACITY, |limits| (limits.rlim_cur / 2).max(MIN_CAPACITY))
}

/// Raises the soft limit to the hard limit, on the first call. Returns whether it did.
fn raise_limit() -> bool {
    static RAISED: Once = Once::new();
    let mut raised = false;
    RAISED.call_once(|| {
        let Some(libc::rlimit { rlim_cur: soft, rlim_max: hard }) = limits() else { return };
        let limits = libc::rlimit { rlim_cur: hard, rlim_max: hard };
        // SAFETY: reads the struct, which stays valid through the call.
        let set = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limits) };
        raised = soft < hard && set == 0;
        if raised {
            tracing::info!(
                "raised the limit of open files from {soft} to {hard}: the log has many segments"
            );
        } else {
            tracing::warn!(
                "the log has more segments than the limit of {soft} open files allows to keep \
                 open: files are closed and opened again as they are needed; a higher limit \
                 (ulimit -n, LimitNOFILE) avoids that"
            );
        }
    });
    raised
}

/// Opens a file for reading and writing, unless the mode is read-only. Uses direct I/O where the
/// file system supports it.
fn open_direct(path: &Path, mode: OpenMode) -> io::Result<std::fs::File> {
    let mut options = std::fs::OpenOptions::new();
    options.read(true).write(mode != OpenMode::ReadOnly);
    match mode {
        OpenMode::Existing | OpenMode::ReadOnly => {}
        OpenMode::Emptied => _ = options.create(true).truncate(true),
        OpenMode::ExistingOrNew => _ = options.create(true),
    }
    let opened = match options.clone().custom_flags(libc::O_DIRECT).open(path) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            static LIMIT_LOGGED: Once = Once::new();
            LIMIT_LOGGED.call_once(|| {
                let path = path.display();
                tracing::warn!("no direct I/O on the file system of {path}: using its cache");
            });
            options.open(path)
        }
        opened => opened,
    }?;
    if mode == OpenMode::ReadOnly {
        // Shows the process that writes to the database not to reuse the file. A failure is
        // harmless, because readers compare what they read with the file's header.
        _ = opened.try_lock_shared();
    }
    Ok(opened)
}
