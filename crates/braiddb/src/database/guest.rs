//! Reads and writes on the caller's thread. A read of one record or of a short range that needs no
//! wait is completed in the first poll of its future, without a message to a worker, a wake-up or a
//! system call. So is a write of one record, unless its result must wait for the log. At times a
//! write wakes a worker for the garbage and the log.
//!
//! A worker takes over if the guest would have to wait (`transaction/operations/guest.rs`), if the
//! caller is a worker itself, and while a subscriber records the spans of transactions. A database
//! that is closed or has failed admits no guests, so its workers report the reason.

use std::cell::Cell;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::error::{Error, Result};
use super::handle::{Database, Shared};
use super::span::TransactionSpan;
use super::write::EncodedWrite;
use crate::record::Records;
use crate::sched::{contain, on_worker, refusing_waits};
use crate::sync::{takes_part, thread};
use crate::transaction::{AbortCause, Direction, Guest, GuestRead, GuestWrite, ScanBounds};

/// Number of operations on a thread after which one lets other tasks of its executor run. Futures
/// that are always ready would otherwise keep them waiting.
const OPERATIONS_PER_PAUSE: u32 = 128;

thread_local! {
    /// Operations of guests on this thread, in all databases.
    static OPERATIONS: Cell<u32> = const { Cell::new(0) };
}

impl Database {
    /// Reads a record on this thread, and passes its value to `decode`, which may be user code.
    /// `None` if a worker must read it.
    pub(super) async fn read_as_guest<T>(
        &self,
        table: &Records,
        key: &[u8],
        decode: impl FnOnce(&[u8]) -> Result<T>,
    ) -> Option<Result<Option<T>>> {
        pause_if_due().await;
        self.with_guest(|guest| match self.engine_part(|| guest.get(table, key))? {
            GuestRead::Later => None,
            GuestRead::Absent => Some(Ok(None)),
            GuestRead::Found(value) => Some(user_part(|| decode(value).map(Some))),
        })
    }

    /// Scans a short range as `read_as_guest` reads a record.
    pub(super) async fn scan_as_guest<T>(
        &self,
        table: &Records,
        bounds: &ScanBounds,
        (direction, limit): (Direction, u64),
        decode: impl Fn(&[u8], &[u8]) -> Result<T>,
    ) -> Option<Result<Vec<T>>> {
        pause_if_due().await;
        self.with_guest(|guest| {
            let found = self.engine_part(|| guest.scan(table, bounds, direction, limit))??;
            Some(user_part(|| found.iter().map(|(key, value)| decode(key, value)).collect()))
        })
    }

    /// Writes a record on this thread. `None` if a worker must run the transaction.
    pub(super) async fn write_as_guest(&self, write: &EncodedWrite) -> Option<bool> {
        let Shared { engine, workers, guests, .. } = &*self.shared;
        if !guests.are_admitted() {
            return None;
        }
        pause_if_due().await;
        // A transaction that is dropped while its thread unwinds is not undone, because the engine may
        // be the cause. A destructor of the caller that writes is not.
        let unwinds = thread::panicking();
        if unwinds || TransactionSpan::may_be_wanted() || !workers.admit_guest_writes() {
            return None;
        }
        // A panic hook of the program may run inside. It must not wait for this guest.
        let attempt = refusing_waits(|| write.run_as_guest(guests, || self.is_restricted()));
        let GuestWrite { result, must_ring } = attempt?;
        // Before a worker flushes what the guest has logged.
        let written = result.inspect_err(|panic| workers.fail_on_caller(panic)).ok()?;
        if must_ring {
            workers.ring();
        }
        // After a failure, nothing is acknowledged.
        written.filter(|_| !engine.failure.has_begun())
    }

    /// Makes this thread a guest while it calls `read`.
    fn with_guest<T>(
        &self,
        read: impl FnOnce(&Guest<'_>) -> Option<Result<T>>,
    ) -> Option<Result<T>> {
        let engine = &self.shared.engine;
        if TransactionSpan::may_be_wanted() || !self.shared.workers.admit_guests() {
            return None;
        }
        let guest = engine.admit_guest()?;
        let result = read(&guest)?;
        if engine.failure.has_begun() {
            // Nothing is acknowledged any more.
            return None;
        }
        guest.count(match &result {
            Ok(_) => None,
            Err(Error::Panicked(_)) => Some(AbortCause::Panic),
            Err(_) => Some(AbortCause::Requested),
        });
        Some(result)
    }

    /// Runs engine code. A panic in it stops the engine; the result is then `None`.
    fn engine_part<T>(&self, code: impl FnOnce() -> T) -> Option<T> {
        contain(code).inspect_err(|panic| self.shared.workers.fail_on_caller(panic)).ok()
    }
}

/// Runs code of the caller's types. A panic in it is an error of the read. It must not wait for
/// workers: they may wait until the guest has ended.
fn user_part<T>(code: impl FnOnce() -> Result<T>) -> Result<T> {
    contain(|| refusing_waits(code)).unwrap_or_else(|panic| Err(Error::Panicked(panic.message)))
}

/// Lets other tasks of the executor run first, once in a number of operations.
async fn pause_if_due() {
    if is_pause_due() {
        Pause { has_paused: false }.await;
    }
}

/// Counts an operation on this thread. Returns whether it must first let other tasks run.
fn is_pause_due() -> bool {
    if on_worker() || takes_part() {
        // A worker shares its time itself. A schedule must be repeatable, and switches threads
        // anyway.
        return false;
    }
    let operations = OPERATIONS.get().wrapping_add(1);
    OPERATIONS.set(operations);
    operations.is_multiple_of(OPERATIONS_PER_PAUSE)
}

/// Returns to the caller's executor once, to be polled again immediately.
struct Pause {
    has_paused: bool,
}

impl Future for Pause {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if std::mem::replace(&mut self.has_paused, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }
}
