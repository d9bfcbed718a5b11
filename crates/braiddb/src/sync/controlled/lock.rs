//! Locks, queues and cells for controlled schedules. A participating thread never blocks in the
//! kernel. It passes the baton on and tries again when the lock was released.
//!
//! Threads that do not participate use them as in the ordinary build. A lock is never shared by
//! both kinds of threads.

use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::panic::Location;
use std::time::Duration;

use super::finding::SwitchPoint;
use super::schedule::{part, point};

/// The resource that a thread waits for if a lock is taken.
fn resource_of<T: ?Sized>(lock: &T) -> usize {
    std::ptr::from_ref(lock).cast::<u8>() as usize
}

/// Announces that threads waiting for a resource may try again.
fn announce(resource: usize) {
    if let Some(part) = part() {
        part.announce(resource);
    }
}

/// Tries until it succeeds; waits for `resource` in between.
#[track_caller]
fn acquire<G>(resource: usize, mut attempt: impl FnMut() -> Option<G>) -> G {
    let place = Location::caller();
    loop {
        point(SwitchPoint::Lock);
        if let Some(guard) = attempt() {
            return guard;
        }
        part().expect("called by a participating thread").wait(resource, None, place);
    }
}

/// A guard that announces its release.
#[derive(Debug)]
pub(crate) struct Guard<G> {
    guard: ManuallyDrop<G>,
    resource: usize,
}

impl<G> Guard<G> {
    fn new(guard: G, resource: usize) -> Self {
        Self { guard: ManuallyDrop::new(guard), resource }
    }
}

impl<G> Drop for Guard<G> {
    fn drop(&mut self) {
        // SAFETY: dropped only here.
        unsafe { ManuallyDrop::drop(&mut self.guard) };
        announce(self.resource);
        point(SwitchPoint::Unlock);
    }
}

impl<G: Deref> Deref for Guard<G> {
    type Target = G::Target;

    fn deref(&self) -> &Self::Target {
        &self.guard
    }
}

impl<G: DerefMut> DerefMut for Guard<G> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.guard
    }
}

pub(crate) type MutexGuard<'l, T> = Guard<parking_lot::MutexGuard<'l, T>>;
pub(crate) type ReadGuard<'l, T> = Guard<parking_lot::RwLockReadGuard<'l, T>>;
pub(crate) type WriteGuard<'l, T> = Guard<parking_lot::RwLockWriteGuard<'l, T>>;

/// Mutex.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(parking_lot::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(parking_lot::Mutex::new(value))
    }

    #[track_caller]
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        let resource = resource_of(self);
        let guard =
            if part().is_some() { acquire(resource, || self.0.try_lock()) } else { self.0.lock() };
        Guard::new(guard, resource)
    }

    #[track_caller]
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        point(SwitchPoint::Lock);
        Some(Guard::new(self.0.try_lock()?, resource_of(self)))
    }

    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.0.get_mut()
    }
}

/// Condition variable.
#[derive(Debug, Default)]
pub(crate) struct Condvar(parking_lot::Condvar);

impl Condvar {
    pub(crate) const fn new() -> Self {
        Self(parking_lot::Condvar::new())
    }

    #[track_caller]
    pub(crate) fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        let Some(part) = part() else { return self.0.wait(&mut guard.guard) };
        let lock = parking_lot::MutexGuard::mutex(&guard.guard);
        announce(guard.resource);
        // SAFETY: locked again below, before the guard is used; no other thread runs before this
        // one is listed as waiting.
        unsafe { lock.force_unlock() };
        part.wait(resource_of(self), None, Location::caller());
        std::mem::forget(acquire(guard.resource, || lock.try_lock()));
    }

    /// Does what [`Self::wait`] does, for at most `limit`; participating threads ignore the limit.
    #[track_caller]
    pub(crate) fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, limit: Duration) -> Waited {
        if part().is_some() {
            self.wait(guard);
            return Waited { timed_out: false };
        }
        Waited { timed_out: self.0.wait_for(&mut guard.guard, limit).timed_out() }
    }

    pub(crate) fn notify_all(&self) {
        self.0.notify_all();
        announce(resource_of(self));
    }
}

/// Result of a wait with a limit.
pub(crate) struct Waited {
    timed_out: bool,
}

impl Waited {
    pub(crate) fn timed_out(&self) -> bool {
        self.timed_out
    }
}

/// Reader-writer lock.
#[derive(Debug, Default)]
pub(crate) struct RwLock<T>(parking_lot::RwLock<T>);

impl<T> RwLock<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(parking_lot::RwLock::new(value))
    }

    #[track_caller]
    pub(crate) fn read(&self) -> ReadGuard<'_, T> {
        let resource = resource_of(self);
        let guard =
            if part().is_some() { acquire(resource, || self.0.try_read()) } else { self.0.read() };
        Guard::new(guard, resource)
    }

    #[track_caller]
    pub(crate) fn write(&self) -> WriteGuard<'_, T> {
        let resource = resource_of(self);
        let guard = if part().is_some() {
            acquire(resource, || self.0.try_write())
        } else {
            self.0.write()
        };
        Guard::new(guard, resource)
    }
}

/// Mutex that is acquired in one call and released in another.
#[derive(Debug, Default)]
pub(crate) struct RawLock(Mutex<()>);

impl RawLock {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(()))
    }

    /// Acquires the lock.
    #[track_caller]
    pub(crate) fn acquire(&self) {
        std::mem::forget(self.0.lock());
    }

    /// Releases the lock.
    ///
    /// # Safety
    /// The calling thread has acquired it.
    pub(crate) unsafe fn release(&self) {
        // SAFETY: the caller's contract; its guard was forgotten.
        unsafe { self.0.0.force_unlock() };
        announce(resource_of(&self.0));
        point(SwitchPoint::Unlock);
    }
}

/// Unbounded queue.
#[derive(Debug, Default)]
pub(crate) struct SegQueue<T>(crossbeam_queue::SegQueue<T>);

impl<T> SegQueue<T> {
    pub(crate) const fn new() -> Self {
        Self(crossbeam_queue::SegQueue::new())
    }

    #[track_caller]
    pub(crate) fn push(&self, value: T) {
        point(SwitchPoint::Queue);
        self.0.push(value);
    }

    #[track_caller]
    pub(crate) fn pop(&self) -> Option<T> {
        point(SwitchPoint::Queue);
        self.0.pop()
    }

    #[track_caller]
    pub(crate) fn is_empty(&self) -> bool {
        point(SwitchPoint::Queue);
        self.0.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        point(SwitchPoint::Queue);
        self.0.len()
    }
}

/// A cell that is set once.
#[derive(Debug)]
pub(crate) struct OnceLock<T>(std::sync::OnceLock<T>);

impl<T> Default for OnceLock<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> OnceLock<T> {
    pub(crate) const fn new() -> Self {
        Self(std::sync::OnceLock::new())
    }

    #[track_caller]
    pub(crate) fn get(&self) -> Option<&T> {
        point(SwitchPoint::Queue);
        self.0.get()
    }

    #[track_caller]
    pub(crate) fn set(&self, value: T) -> Result<(), T> {
        point(SwitchPoint::Queue);
        self.0.set(value)
    }

    pub(crate) fn take(&mut self) -> Option<T> {
        self.0.take()
    }

    /// `make` must pass no switch point: others would find the cell being set, and block.
    #[track_caller]
    pub(crate) fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
        point(SwitchPoint::Queue);
        self.0.get_or_init(make)
    }
}
