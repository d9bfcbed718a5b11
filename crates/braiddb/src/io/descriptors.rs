//! The files that are kept open: a database has a file a segment, a process has a limit of descriptors.
//!
//! A [`PooledFile`] is a file by its path. Its descriptor is opened when an operation needs it, and
//! kept afterwards; when the process holds as many as it may, those that were not used lately are
//! closed, whatever database they belong to. Half of what the operating system allows is left to
//! the program around the databases. Before anything is closed, the soft limit is raised to the
//! hard one, once in the life of the process.
//!
//! A file that is opened to be read only is locked shared as long as it has a descriptor, which changes nothing on
//! disk: by that the process which writes to the database sees that it is read.
//!
//! Invariants: an operation holds the [`Descriptor`] it uses, so it is closed only when no operation
//! uses it; a file is reopened only as what it was, by device and inode; `open` counts the
//! descriptors there are, those in use by files that were closed meanwhile included.

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

/// Kept open however low the limit is.
const MIN_CAPACITY: u64 = 8;
/// Entries of closed files the queue may have beyond those of open ones before they are swept out.
const MAX_STALE: u64 = 64;

static POOL: Pool = Pool {
    queue: Mutex::new(VecDeque::new()),
    open: AtomicU64::new(0),
    reopened: AtomicU64::new(0),
};

/// The open files of all databases of the process.
struct Pool {
    /// Files with a descriptor, in the order in which they are considered for closing.
    queue: Mutex<VecDeque<Weak<PooledFile>>>,
    open: AtomicU64,
    reopened: AtomicU64,
}

/// What the pool has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PoolStats {
    /// Descriptors held now.
    pub(crate) open: u64,
    /// Files that were opened again after they had been closed.
    pub(crate) reopened: u64,
}

/// What the process's pool of open files holds and has done.
pub(crate) fn pool_stats() -> PoolStats {
    // Relaxed: statistics.
    PoolStats {
        open: POOL.open.load(Ordering::Relaxed),
        reopened: POOL.reopened.load(Ordering::Relaxed),
    }
}

/// Closes every file that no operation uses.
#[cfg(test)]
pub(super) fn close_all_idle() {
    POOL.close_idle(u64::MAX);
}

/// An open descriptor, counted while it lives.
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
        // Relaxed: see `new`.
        POOL.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A file by its path, open while it is used and there is room.
#[derive(Debug)]
pub(super) struct PooledFile {
    path: PathBuf,
    /// How it is opened again.
    mode: OpenMode,
    /// Device and inode.
    identity: (u64, u64),
    descriptor: Mutex<Option<Arc<Descriptor>>>,
    /// 1 if used since the pool last considered closing it.
    used: AtomicU64,
}

impl PooledFile {
    /// Opens a file to read and write, unless the mode says otherwise, past the page cache where the file
    /// system allows.
    ///
    /// # Errors
    /// As `open(2)`.
    pub(super) fn open(path: &Path, mode: OpenMode) -> io::Result<Arc<Self>> {
        let descriptor = POOL.open_file(path, mode, false)?.expect("opened whatever is in use");
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

    /// The same file, under the path that it was renamed to. The earlier one cannot be opened again.
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

    /// The descriptor, opened again if it was closed.
    ///
    /// # Errors
    /// As `open(2)`; if another file has the path now.
    pub(super) fn descriptor(self: &Arc<Self>) -> io::Result<Arc<Descriptor>> {
        self.acquire(false).map(|descriptor| descriptor.expect("opened whatever is in use"))
    }

    /// The descriptor, opened again if it was closed; `None` if that must wait until operations
    /// under way give theirs back.
    ///
    /// # Errors
    /// As [`Self::descriptor`].
    pub(super) fn descriptor_if_room(self: &Arc<Self>) -> io::Result<Option<Arc<Descriptor>>> {
        self.acquire(true)
    }

    /// Whether others have the file open to read only: they hold its lock shared.
    pub(super) fn is_read_elsewhere(self: &Arc<Self>) -> bool {
        let Ok(descriptor) = self.descriptor() else { return false };
        match descriptor.file().try_lock() {
            Ok(()) => {
                // Held for a moment only: who comes after it sees for itself whether the file is another one by then.
                _ = descriptor.file().unlock();
                false
            }
            Err(TryLockError::WouldBlock) => true,
            // A file system without locks: as above.
            Err(TryLockError::Error(_)) => false,
        }
    }

    fn acquire(self: &Arc<Self>, may_wait: bool) -> io::Result<Option<Arc<Descriptor>>> {
        // Relaxed: only says what was used lately. Looked at first, so that a file that is used all
        // the time is not written to.
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
            return Err(io::Error::other("another file has been put in its place"));
        }
        let descriptor = Arc::new(descriptor);
        *held = Some(descriptor.clone());
        drop(held);
        // Relaxed: a statistic.
        POOL.reopened.fetch_add(1, Ordering::Relaxed);
        POOL.enter(self);
        Ok(Some(descriptor))
    }

    /// Takes the descriptor away if no operation uses it.
    fn release_idle(&self) -> Released {
        let Some(mut held) = self.descriptor.try_lock() else { return Released::InUse };
        match held.take() {
            None => Released::Closed,
            // Others are made under the lock only, so there is none and will be none.
            Some(descriptor) if Arc::strong_count(&descriptor) == 1 => Released::Idle(descriptor),
            Some(descriptor) => {
                *held = Some(descriptor);
                Released::InUse
            }
        }
    }
}

/// What became of an attempt to take a file's descriptor away.
enum Released {
    /// It is the caller's to close.
    Idle(Arc<Descriptor>),
    InUse,
    /// There was none.
    Closed,
}

impl Pool {
    /// Notes that a file has a descriptor.
    fn enter(&self, file: &Arc<PooledFile>) {
        let mut queue = self.queue.lock();
        // Relaxed: a bound of the memory of files that are gone.
        if queue.len() as u64 > 2 * self.open.load(Ordering::Relaxed) + MAX_STALE {
            queue.retain(|file| file.strong_count() > 0);
        }
        queue.push_back(Arc::downgrade(file));
    }

    /// Opens a file, if need be after closing others. Where all others are in use, it is opened
    /// nonetheless, unless the caller may wait.
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

    /// Closes up to `most` files that no operation uses, those first that were not used lately; how
    /// many there were.
    fn close_idle(&self, most: u64) -> u64 {
        let mut idle = Vec::new();
        let mut queue = self.queue.lock();
        // The first time around may only find that all were used.
        for _ in 0..2 * queue.len() {
            if idle.len() as u64 == most {
                break;
            }
            let Some(entry) = queue.pop_front() else { break };
            let Some(file) = entry.upgrade() else { continue };
            // Relaxed: see `PooledFile::acquire`.
            if file.used.swap(0, Ordering::Relaxed) == 1 {
                queue.push_back(entry);
                continue;
            }
            match file.release_idle() {
                Released::Idle(descriptor) => idle.push(descriptor),
                Released::InUse => queue.push_back(entry),
                Released::Closed => {}
            }
        }
        drop(queue);
        // Closed here, without the lock.
        idle.len() as u64
    }
}

/// Whether a process, or the machine, has as many files open as it may.
fn is_out_of_descriptors(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

/// How many descriptors the process may have, and how many it could allow itself.
fn limits() -> Option<libc::rlimit> {
    let mut limits = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: writes to the struct, which lives through the call.
    let asked = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limits) };
    (asked == 0).then_some(limits)
}

/// How many descriptors the pool may hold.
fn capacity() -> u64 {
    limits().map_or(MIN_CAPACITY, |limits| (limits.rlim_cur / 2).max(MIN_CAPACITY))
}

/// Raises the soft limit to the hard one, the first time it is called; whether it did.
fn raise_limit() -> bool {
    static RAISED: Once = Once::new();
    let mut raised = false;
    RAISED.call_once(|| {
        let Some(libc::rlimit { rlim_cur: soft, rlim_max: hard }) = limits() else { return };
        let limits = libc::rlimit { rlim_cur: hard, rlim_max: hard };
        // SAFETY: reads the struct, which lives through the call.
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
                 (ulimit -n, LimitNOFILE) saves that"
            );
        }
    });
    raised
}

/// Opens a file to read and write, unless the mode says otherwise, past the page cache where the file system allows.
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
            static SAID: Once = Once::new();
            SAID.call_once(|| {
                let path = path.display();
                tracing::warn!("no direct I/O on the file system of {path}: using its cache");
            });
            options.open(path)
        }
        opened => opened,
    }?;
    if mode == OpenMode::ReadOnly {
        // Tells the process that writes to the database, if there is one, not to use the file anew. It is no
        // harm if it cannot be told: what is read is held against the file's header.
        _ = opened.try_lock_shared();
    }
    Ok(opened)
}
