//! Deferred work of a worker: queues of items that a task of the worker processes later.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::page::{LargeRef, LargeValues, PendingCleanup};
use crate::planted::{Bug, is_planted};
use crate::record::{PagedRecords, RecordsRef};
use crate::sync::clock;
use crate::types::KeyBuffer;

/// Delay before the next attempt after a page could not be loaded or written. The end of a checkpoint
/// ends it, because that makes room on a full disk.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// A queue of work that at most one task of the worker processes.
#[derive(Debug)]
pub(in crate::transaction) struct DeferredWork<T> {
    pub(in crate::transaction) queue: RefCell<VecDeque<T>>,
    is_running: Cell<bool>,
    /// After an attempt failed: the time of the next one, and the number of checkpoints that had
    /// ended.
    retry_at: Cell<Option<(Instant, u64)>>,
    /// Set if the task may request a checkpoint: the attempt is not due to one. Otherwise two queues
    /// could request checkpoints for each other without end.
    may_request: Cell<bool>,
}

impl<T> Default for DeferredWork<T> {
    fn default() -> Self {
        let (queue, is_running, retry_at) = Default::default();
        Self { queue, is_running, retry_at, may_request: Cell::new(true) }
    }
}

impl<T> DeferredWork<T> {
    /// Notes that the task starts. `ended` is the number of checkpoints that have ended.
    ///
    /// # Errors
    /// The task is not needed or is running; or it is not due before the returned time.
    pub(in crate::transaction) fn start(
        &self,
        is_needed: bool,
        ended: u64,
    ) -> Result<(), Option<Instant>> {
        if !is_needed || self.is_running.get() {
            return Err(None);
        }
        let delay = self.retry_at.get().filter(|(at, _)| clock::now() < *at);
        let waits = |before| before == ended || is_planted(Bug::DeferredWorkNotRetried);
        if let Some((at, _)) = delay.filter(|(_, before)| waits(*before)) {
            return Err(Some(at));
        }
        self.may_request.set(delay.is_none());
        self.is_running.set(true);
        Ok(())
    }

    /// Returns whether the task may request a checkpoint.
    pub(in crate::transaction) fn may_request_checkpoint(&self) -> bool {
        self.may_request.get()
    }

    /// Notes that the task has ended.
    pub(in crate::transaction) fn end(&self) {
        self.is_running.set(false);
    }

    /// Postpones the next attempt for a time, or until more than `ended` checkpoints have ended.
    /// Returns the end of that time.
    pub(in crate::transaction) fn retry_later(&self, ended: u64) -> Instant {
        // So long that on a slow machine the delay does not replace the omitted retry.
        let factor = if is_planted(Bug::DeferredWorkNotRetried) { 1000 } else { 1 };
        let at = clock::now() + RETRY_DELAY * factor;
        self.retry_at.set(Some((at, ended)));
        at
    }

    /// Postpones the next attempt, which begins with another item: its pages may be loadable.
    pub(in crate::transaction) fn retry_others_first(&self, ended: u64) {
        let mut queue = self.queue.borrow_mut();
        if !queue.is_empty() {
            queue.rotate_left(1);
        }
        self.retry_later(ended);
    }
}

/// A leaf to clean up: the one that covers a key of a table.
#[derive(Debug)]
pub(in crate::transaction) struct LeafCleanup {
    pub(in crate::transaction) table: RecordsRef<PagedRecords>,
    pub(in crate::transaction) key: KeyBuffer,
    pub(in crate::transaction) what: PendingCleanup,
}

/// A value to remove.
pub(in crate::transaction) type DiscardedValue = (Arc<LargeValues>, LargeRef);

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn work_is_retried_once_a_checkpoint_has_ended_but_requests_none() {
        let work = DeferredWork::<u64>::default();
        work.start(true, 1).unwrap();
        assert_eq!(work.start(true, 1), Err(None), "it is running");
        assert!(work.may_request_checkpoint());
        let at = work.retry_later(1);
        work.end();
        assert_eq!(work.start(true, 1), Err(Some(at)));
        assert_eq!(work.start(false, 2), Err(None));
        work.start(true, 2).unwrap();
        assert!(!work.may_request_checkpoint(), "this attempt is due to a checkpoint");
    }
}
