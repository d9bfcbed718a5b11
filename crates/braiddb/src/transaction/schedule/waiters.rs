//! Tasks of a worker that wait for an event that its turns look for: the log, room for a large
//! write, or the end of older transactions.

use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Instant;

use super::ordered_admission::OrderedAdmission;
use crate::log::Lsn;
use crate::planted::{Bug, is_planted};
use crate::sched::{self, Waiter};

/// A task that waits until all active transactions began after `since`.
#[derive(Debug)]
pub(in crate::transaction) struct GracePeriodWaiter {
    pub(in crate::transaction) since: Lsn,
    pub(in crate::transaction) waits_for_snapshots: bool,
    pub(in crate::transaction) waiter: Waiter,
}

/// For a planted bug: wake-ups at multiples of this LSN are lost.
const LOST_WAKE_UP: u64 = 1024;

/// Transactions of one worker that wait for the log.
///
/// Invariant: `commits` is sorted by LSN.
#[derive(Debug, Default)]
pub(in crate::transaction) struct CommitQueue {
    commits: VecDeque<(Lsn, Waiter)>,
    pub(in crate::transaction) space: Vec<Waiter>,
}

impl CommitQueue {
    pub(in crate::transaction) fn is_empty(&self) -> bool {
        self.commits.is_empty() && self.space.is_empty()
    }

    pub(in crate::transaction) fn push(&mut self, lsn: Lsn, waiter: Waiter) {
        // Commits arrive in LSN order; only readers of older versions are inserted further to the
        // front.
        let position =
            self.commits.iter().rposition(|(waits, _)| *waits <= lsn).map_or(0, |p| p + 1);
        self.commits.insert(position, (lsn, waiter));
    }

    /// Resumes waiters that the durable LSN releases, or all if the log has failed.
    pub(in crate::transaction) fn release(&mut self, durable: Lsn, failed: bool) {
        let is_due = |waiting: &mut (Lsn, Waiter)| failed || waiting.0 < durable;
        while let Some((lsn, waiter)) = self.commits.pop_front_if(is_due) {
            if is_planted(Bug::LostWakeUp) && lsn.0.is_multiple_of(LOST_WAKE_UP) {
                continue;
            }
            sched::resume(waiter);
        }
    }

    /// Resumes the waiters for log space, which check again.
    pub(in crate::transaction) fn release_space(&mut self) {
        self.space.drain(..).for_each(sched::resume);
    }
}

/// Large writes of one worker that wait for room.
#[derive(Debug)]
pub(in crate::transaction) struct LargeWrites {
    pub(in crate::transaction) line: Rc<OrderedAdmission>,
    /// The event that the first write in line waits for.
    pub(in crate::transaction) awaited: Cell<Option<AwaitedEvent>>,
}

/// An event that will occur without any transaction's progress.
#[derive(Clone, Copy, Debug)]
pub(in crate::transaction) enum AwaitedEvent {
    /// The log is durable up to this LSN, or has failed.
    Durable(Lsn),
    Time(Instant),
}

impl Default for LargeWrites {
    fn default() -> Self {
        Self { line: OrderedAdmission::one_at_a_time(), awaited: Cell::default() }
    }
}
