//! Deferred work of a worker: queues of items that a task of the worker processes later.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::page::{LargeRef, LargeValues, PendingCleanup};
use crate::record::RecordsRef;
use crate::sync::clock;
use crate::types::KeyBuffer;

/// Delay before the next attempt after a page could not be loaded or written.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// A queue of work that at most one task of the worker processes.
#[derive(Debug)]
pub(super) struct DeferredWork<T> {
    pub(super) queue: RefCell<VecDeque<T>>,
    is_running: Cell<bool>,
    /// The time of the next attempt, after one failed.
    retry_at: Cell<Option<Instant>>,
}

impl<T> Default for DeferredWork<T> {
    fn default() -> Self {
        let (queue, is_running, retry_at) = Default::default();
        Self { queue, is_running, retry_at }
    }
}

impl<T> DeferredWork<T> {
    /// Notes that the task starts.
    ///
    /// # Errors
    /// The task is not needed or is running; or it is not due before the returned time.
    pub(super) fn start(&self, is_needed: bool) -> Result<(), Option<Instant>> {
        if !is_needed || self.is_running.get() {
            return Err(None);
        }
        let at = self.retry_at.get();
        if at.is_some_and(|at| clock::now() < at) {
            return Err(at);
        }
        self.is_running.set(true);
        Ok(())
    }

    /// Notes that the task has ended.
    pub(super) fn end(&self) {
        self.is_running.set(false);
    }

    /// Postpones the next attempt. Returns its time.
    pub(super) fn retry_later(&self) -> Option<Instant> {
        self.retry_at.set(Some(clock::now() + RETRY_DELAY));
        self.retry_at.get()
    }

    /// Postpones the next attempt, which begins with another item: its pages may be loadable.
    pub(super) fn retry_others_first(&self) {
        let mut queue = self.queue.borrow_mut();
        if !queue.is_empty() {
            queue.rotate_left(1);
        }
        self.retry_later();
    }
}

/// A leaf to clean up: the one that covers a key of a table.
#[derive(Debug)]
pub(super) struct LeafCleanup {
    pub(super) table: RecordsRef,
    pub(super) key: KeyBuffer,
    pub(super) what: PendingCleanup,
}

/// A value to remove.
pub(super) type DiscardedValue = (Arc<LargeValues>, LargeRef);
