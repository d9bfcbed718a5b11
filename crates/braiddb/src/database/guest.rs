//! Reads on the caller's thread. A read of one record that needs no wait is completed in the first
//! poll of its future, without a message to a worker, a wake-up or a system call.
//!
//! A worker takes over if the guest would have to wait (`transaction/operations/guest.rs`), if the
//! caller is a worker itself, and while a subscriber records the spans of transactions. A database
//! that is closed or has failed admits no guests, so its workers report the reason.

use std::cell::Cell;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::error::{Error, Result};
use super::handle::Database;
use super::span::TransactionSpan;
use crate::record::Records;
use crate::sched::{contain, on_worker};
use crate::sync::takes_part;
use crate::transaction::{AbortCause, GuestRead};

/// Number of reads on a thread after which one lets other tasks of its executor run. Futures that are
/// always ready would otherwise keep them waiting.
const READS_PER_PAUSE: u32 = 128;

thread_local! {
    /// Reads of guests on this thread, in all databases.
    static READS: Cell<u32> = const { Cell::new(0) };
}

impl Database {
    /// Reads a record on this thread, and passes its value to `read`, which may be user code.
    /// `None` if a worker must read it.
    pub(super) async fn read_as_guest<T>(
        &self,
        table: &Records,
        key: &[u8],
        read: impl FnOnce(&[u8]) -> Result<T>,
    ) -> Option<Result<Option<T>>> {
        if is_pause_due() {
            Pause { has_paused: false }.await;
        }
        self.read_now(table, key, read)
    }

    fn read_now<T>(
        &self,
        table: &Records,
        key: &[u8],
        read: impl FnOnce(&[u8]) -> Result<T>,
    ) -> Option<Result<Option<T>>> {
        let (workers, engine) = (&self.shared.workers, &self.shared.engine);
        if TransactionSpan::may_be_wanted() || !workers.admit_guests() {
            return None;
        }
        let guest = engine.admit_guest()?;
        // This is engine code: a panic in it stops the engine.
        let found = contain(|| guest.get(table, key));
        let found = found.inspect_err(|panic| workers.fail_on_caller(panic)).ok()?;
        let (result, aborted) = match found {
            GuestRead::Later => return None,
            GuestRead::Absent => (Ok(None), None),
            GuestRead::Found(value) => match contain(|| read(value)) {
                Ok(Ok(value)) => (Ok(Some(value)), None),
                Ok(Err(error)) => (Err(error), Some(AbortCause::Requested)),
                Err(panic) => (Err(Error::Panicked(panic.message)), Some(AbortCause::Panic)),
            },
        };
        if engine.failure.has_begun() {
            // Nothing is acknowledged any more.
            return None;
        }
        guest.count(aborted);
        Some(result)
    }
}

/// Counts a read on this thread. Returns whether it must first let other tasks run.
fn is_pause_due() -> bool {
    if on_worker() || takes_part() {
        // A worker shares its time itself. A schedule must be repeatable, and switches threads
        // anyway.
        return false;
    }
    let reads = READS.get().wrapping_add(1);
    READS.set(reads);
    reads.is_multiple_of(READS_PER_PAUSE)
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
