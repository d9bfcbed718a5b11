//! Simulated disk: an in-memory disk with faults, deterministic by seed.
//!
//! It delays, reorders and shortens transfers, fails calls and syncs, and can be full. After any
//! operation it can compute the state after a crash, with unsynced writes dropped, torn and
//! reordered.
//!
//! Determinism: a database on such a disk has one worker. Its sleep ends with the next operation
//! that completes, without time passing. Other threads act only while the worker sleeps and no
//! operation is in flight ([`SimulatedDisk::settle`]), so nothing happens concurrently. In a
//! controlled schedule the database has several workers with a device each, and the schedule
//! decides the order of events.

mod device;
mod faults;
mod in_flight;
mod nodes;
#[cfg(braid_simulation)]
mod scheduled;
#[cfg(all(test, not(loom)))]
mod tests;

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

pub use faults::{CrashCounts, FaultCounts, Faults};
use in_flight::InFlightOperations;
use nodes::DiskNodes;

use super::file::SimulatedFile;
use super::{OpenMode, SECTOR_BYTES};
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Condvar, Mutex, clock};

/// Number of waits with a timeout that return immediately, without virtual time passing, before one
/// lasts until a wake-up. Otherwise a task that waits only for time would loop forever.
const TIMEOUTS: u32 = 4;

/// A simulated disk with one directory. Clones are handles of the same disk.
#[derive(Clone)]
pub struct SimulatedDisk(Arc<SharedDisk>);

struct SharedDisk {
    state: Mutex<SimulatedDiskState>,
    /// Signals that the worker sleeps or has ended.
    settled: Condvar,
    /// Signals that the worker must wake.
    notified: Condvar,
}

/// Callback that inspects the disk after each operation.
type DiskObserver = Box<dyn FnMut(&DiskMoment<'_>) + Send>;

struct SimulatedDiskState {
    random: fastrand::Rng,
    faults: Faults,
    counts: FaultCounts,
    nodes: DiskNodes,
    operations: InFlightOperations,
    watch: Option<DiskObserver>,
    locked: bool,
    /// True while a worker's device exists.
    attached: bool,
    asleep: bool,
    notified: bool,
    timeouts_left: u32,
}

/// The disk between two operations.
pub struct DiskMoment<'s> {
    operation: u64,
    nodes: &'s DiskNodes,
    operations: &'s InFlightOperations,
}

impl DiskMoment<'_> {
    /// Returns the number of operations so far.
    #[must_use]
    pub fn operation(&self) -> u64 {
        self.operation
    }

    /// Returns a disk in the state after a crash at this moment.
    #[must_use]
    pub fn crash(&self, seed: u64, counts: &mut CrashCounts) -> SimulatedDisk {
        let mut random = fastrand::Rng::with_seed(seed);
        let nodes = self.nodes.crash(&self.operations.unwritten(), &mut random, counts);
        SimulatedDisk::with(nodes, random)
    }

    /// Returns a disk in the state after the process is killed at this moment: what was written
    /// stays, and a later crash may still lose what was not synced. Operations in flight are lost.
    #[must_use]
    pub fn kill(&self, seed: u64) -> SimulatedDisk {
        SimulatedDisk::with(self.nodes.clone(), fastrand::Rng::with_seed(seed))
    }
}

impl SimulatedDisk {
    /// Creates an empty disk without faults.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self::with(DiskNodes::default(), fastrand::Rng::with_seed(seed))
    }

    fn with(nodes: DiskNodes, random: fastrand::Rng) -> Self {
        let state = SimulatedDiskState {
            random,
            faults: Faults::default(),
            counts: FaultCounts::default(),
            nodes,
            operations: InFlightOperations::default(),
            watch: None,
            locked: false,
            attached: false,
            asleep: false,
            notified: false,
            timeouts_left: TIMEOUTS,
        };
        let (state, settled, notified) = (Mutex::new(state), Condvar::new(), Condvar::new());
        Self(Arc::new(SharedDisk { state, settled, notified }))
    }

    /// Returns a copy of the disk's current state, without faults and with all data durable.
    #[must_use]
    pub fn copy(&self, seed: u64) -> Self {
        let mut nodes = self.0.state.lock().nodes.clone();
        nodes.make_durable();
        Self::with(nodes, fastrand::Rng::with_seed(seed))
    }

    /// Returns a disk in the state after a crash now.
    #[must_use]
    pub fn crash(&self, seed: u64, counts: &mut CrashCounts) -> Self {
        let state = self.0.state.lock();
        let SimulatedDiskState {
            counts: FaultCounts { operations: operation, .. },
            nodes,
            operations,
            ..
        } = &*state;
        DiskMoment { operation: *operation, nodes, operations }.crash(seed, counts)
    }

    /// Sets the faults of the disk from now on.
    pub fn set_faults(&self, faults: Faults) {
        self.0.state.lock().faults = faults;
    }

    /// Returns the counts so far.
    #[must_use]
    pub fn counts(&self) -> FaultCounts {
        self.0.state.lock().counts
    }

    /// Calls `watch` after each operation, from the thread that performed it. The callback must
    /// access this disk only through its argument.
    pub fn watch(&self, watch: impl FnMut(&DiskMoment<'_>) + Send + 'static) {
        self.0.state.lock().watch = Some(Box::new(watch));
    }

    /// Removes the callback.
    pub fn unwatch(&self) {
        self.0.state.lock().watch = None;
    }

    /// Returns the names and the lengths of the files.
    #[must_use]
    pub fn files(&self) -> Vec<(String, u64)> {
        self.0.state.lock().nodes.list()
    }

    /// Flips bits of a byte without an operation. Returns `false` if the file has no such byte.
    pub fn flip(&self, name: &str, offset: u64, bits: u8) -> bool {
        self.0.state.lock().nodes.flip(name, offset, bits)
    }

    /// Waits until the worker of the database on this disk, if it exists, sleeps and no operation
    /// is in flight.
    pub fn settle(&self) {
        while !self.settles_within(Duration::from_secs(3600)) {}
    }

    /// Like [`Self::settle`], with a time limit. Returns `false` if the worker is still active.
    #[must_use]
    pub fn settles_within(&self, limit: Duration) -> bool {
        let until = clock::now() + limit;
        let mut state = self.0.state.lock();
        while state.attached && (!state.asleep || state.notified) {
            let left = until.saturating_duration_since(clock::now());
            if self.0.settled.wait_for(&mut state, left).timed_out() {
                return false;
            }
        }
        true
    }

    /// Locks the directory. Returns `None` if it is already locked.
    pub(super) fn lock(&self) -> Option<SimulatedLock> {
        let mut state = self.0.state.lock();
        let free = !std::mem::replace(&mut state.locked, true);
        free.then(|| SimulatedLock { disk: self.clone(), held: AtomicBool::new(true) })
    }
}

impl std::fmt::Debug for SimulatedDisk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SimulatedDisk")
    }
}

impl PartialEq for SimulatedDisk {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for SimulatedDisk {}

impl SimulatedDiskState {
    /// Returns whether an event of probability one in `one_in` happens now.
    fn strikes(&mut self, one_in: u32) -> bool {
        one_in != 0 && self.random.u32(0..one_in) == 0
    }

    /// Writes `bytes`, or a part of them. Returns the number of bytes written.
    fn write(
        &mut self,
        file: usize,
        offset: u64,
        bytes: &[u8],
        sync: bool,
    ) -> std::io::Result<usize> {
        self.counts.writes += 1;
        let fails = self.counts.writes == self.faults.failing_write;
        if (fails && !sync) || self.strikes(self.faults.errors) {
            self.counts.write_errors += 1;
            return Err(std::io::Error::from_raw_os_error(libc::EIO));
        }
        let mut moved = bytes.len();
        if bytes.len() > SECTOR_BYTES && self.strikes(self.faults.short_transfers) {
            self.counts.short_writes += 1;
            moved = self.random.usize(1..bytes.len() / SECTOR_BYTES) * SECTOR_BYTES;
        }
        self.room(file, offset..offset + moved as u64)?;
        let failed = sync && (fails || self.strikes(self.faults.failed_syncs));
        self.nodes.write(file, offset, &bytes[..moved], sync && !failed);
        if failed {
            self.counts.failed_syncs += 1;
            self.nodes.fail_sync(file, &mut self.random);
            return Err(std::io::Error::from_raw_os_error(libc::EIO));
        }
        Ok(moved)
    }

    /// Returns an error if the disk has no space for a part of a file.
    fn room(&mut self, file: usize, part: Range<u64>) -> std::io::Result<()> {
        self.room_with(file, part, 0)
    }

    /// Returns an error if the disk has no space for all of a file and the file system's metadata.
    fn room_to_allocate(&mut self, file: usize, bytes: u64) -> std::io::Result<()> {
        self.room_with(file, 0..bytes, self.faults.metadata)
    }

    fn room_with(&mut self, file: usize, part: Range<u64>, extra: u64) -> std::io::Result<()> {
        let more = self.nodes.missing(file, part);
        let Faults { capacity, full_for, .. } = &mut self.faults;
        let needed = self.nodes.used() + more + extra;
        let is_full = *full_for > 0 || *capacity != 0 && needed > *capacity;
        if more > 0 && is_full {
            *full_for = full_for.saturating_sub(1);
            self.counts.full += 1;
            return Err(std::io::Error::from_raw_os_error(libc::ENOSPC));
        }
        Ok(())
    }

    fn read(&mut self, file: usize, offset: u64, into: &mut [u8]) -> std::io::Result<usize> {
        if self.strikes(self.faults.errors) {
            self.counts.read_errors += 1;
            return Err(std::io::Error::from_raw_os_error(libc::EIO));
        }
        let mut wanted = into.len();
        if wanted > SECTOR_BYTES && self.strikes(self.faults.short_transfers) {
            self.counts.short_reads += 1;
            wanted = self.random.usize(1..wanted / SECTOR_BYTES) * SECTOR_BYTES;
        }
        Ok(self.nodes.read(file, offset, &mut into[..wanted]))
    }

    /// Syncs a file, or the names.
    fn sync(&mut self, target: Option<usize>) -> std::io::Result<()> {
        let failed = self.strikes(self.faults.failed_syncs);
        self.counts.failed_syncs += u64::from(failed);
        match target {
            Some(file) if failed => self.nodes.fail_sync(file, &mut self.random),
            Some(file) => self.nodes.sync(file),
            None if failed => {}
            None => self.nodes.sync_names(),
        }
        if failed { Err(std::io::Error::from_raw_os_error(libc::EIO)) } else { Ok(()) }
    }

    /// Counts an operation and calls the callback.
    fn happened(&mut self) {
        self.counts.operations += 1;
        if let Some(mut watch) = self.watch.take() {
            watch(&DiskMoment {
                operation: self.counts.operations,
                nodes: &self.nodes,
                operations: &self.operations,
            });
            self.watch = Some(watch);
        }
    }
}

/// A handle of a file, or of the directory.
#[derive(Clone, Debug)]
pub(super) struct DiskHandle {
    disk: SimulatedDisk,
    /// The number of the file; `None` for the directory.
    number: Option<usize>,
}

impl DiskHandle {
    fn perform<T>(&self, act: impl FnOnce(&mut SimulatedDiskState) -> T) -> T {
        let mut state = self.disk.0.state.lock();
        let done = act(&mut state);
        state.happened();
        done
    }

    fn file(&self) -> usize {
        self.number().expect("bytes are moved from and to files")
    }
}

impl SimulatedFile for DiskHandle {
    fn number(&self) -> Option<usize> {
        self.number
    }

    fn length(&self) -> u64 {
        self.disk.0.state.lock().nodes.length(self.file())
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> std::io::Result<usize> {
        self.perform(|state| state.read(self.file(), offset, buffer))
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> std::io::Result<()> {
        let mut done = 0;
        while done < bytes.len() {
            let (rest, at) = (&bytes[done..], offset + done as u64);
            done += self.perform(|state| state.write(self.file(), at, rest, false))?;
        }
        Ok(())
    }

    fn sync(&self) -> std::io::Result<()> {
        self.perform(|state| state.sync(self.number))
    }

    fn truncate(&self, bytes: u64) -> std::io::Result<()> {
        self.perform(|state| {
            state.nodes.truncate(self.file(), bytes);
            Ok(())
        })
    }

    fn deallocate(&self, part: Range<u64>) -> std::io::Result<()> {
        self.perform(|state| {
            state.nodes.deallocate(self.file(), part);
            Ok(())
        })
    }

    fn parts_with_space(&self) -> Vec<Range<u64>> {
        self.disk.0.state.lock().nodes.parts_with_space(self.file())
    }

    fn allocate(&self, bytes: u64) -> std::io::Result<()> {
        self.perform(|state| {
            state.room_to_allocate(self.file(), bytes)?;
            state.nodes.allocate(self.file(), bytes);
            Ok(())
        })
    }
}

/// Lock on the disk's directory.
#[derive(Debug)]
pub(super) struct SimulatedLock {
    disk: SimulatedDisk,
    held: AtomicBool,
}

impl SimulatedLock {
    /// Releases the lock.
    pub(super) fn unlock(&self) {
        // AcqRel: everything done under the lock happens before the release.
        if self.held.swap(false, Ordering::AcqRel) {
            self.disk.0.state.lock().locked = false;
        }
    }

    /// Returns the directory as a file.
    pub(super) fn handle(&self) -> Arc<dyn SimulatedFile> {
        Arc::new(self.node())
    }

    fn node(&self) -> DiskHandle {
        DiskHandle { disk: self.disk.clone(), number: None }
    }

    fn perform<T>(
        &self,
        act: impl FnOnce(&mut SimulatedDiskState) -> std::io::Result<T>,
    ) -> std::io::Result<T> {
        self.node().perform(act)
    }

    pub(super) fn open(
        &self,
        name: &str,
        mode: OpenMode,
    ) -> std::io::Result<Arc<dyn SimulatedFile>> {
        let file = self.perform(|state| match mode {
            OpenMode::Emptied => Ok(state.nodes.create(name)),
            OpenMode::Existing | OpenMode::ReadOnly => state.existing(name),
            OpenMode::ExistingOrNew => {
                Ok(state.nodes.find(name).unwrap_or_else(|| state.nodes.create(name)))
            }
        })?;
        Ok(Arc::new(DiskHandle { disk: self.disk.clone(), number: Some(file) }))
    }

    pub(super) fn rename(&self, from: &str, to: &str) -> std::io::Result<()> {
        self.perform(|state| {
            state.existing(from)?;
            state.nodes.rename(from, to);
            Ok(())
        })
    }

    pub(super) fn remove(&self, name: &str) -> std::io::Result<()> {
        self.perform(|state| {
            state.existing(name)?;
            state.nodes.remove(name);
            Ok(())
        })
    }

    /// Returns the free bytes; [`u64::MAX`] if the disk has no bound.
    pub(super) fn available_bytes(&self) -> u64 {
        let state = self.disk.0.state.lock();
        match state.faults.capacity {
            0 => u64::MAX,
            sectors => sectors.saturating_sub(state.nodes.used()) * SECTOR_BYTES as u64,
        }
    }

    pub(super) fn list(&self) -> Vec<String> {
        self.disk.files().into_iter().map(|(name, _)| name).collect()
    }
}

impl SimulatedDiskState {
    fn existing(&self, name: &str) -> std::io::Result<usize> {
        self.nodes.find(name).ok_or_else(|| std::io::Error::from_raw_os_error(libc::ENOENT))
    }
}

impl Drop for SimulatedLock {
    fn drop(&mut self) {
        self.unlock();
    }
}
