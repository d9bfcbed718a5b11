//! Waiting for the log: for durability of a commit, and for log space.
//!
//! Each worker has a queue of its waiting transactions in LSN order. So an advance of the durable
//! LSN costs work per released transaction, not per waiting one (MosaicDB §5; ELEDA §4.4, callbacks
//! in LSN order).

use std::collections::VecDeque;

use super::context::ActiveTransaction;
use super::engine::Durability;
use super::error::OperationError;
use super::worker::WorkerTransactions;
use crate::log::{self, BlockPurpose, Lsn};
use crate::planted::{Bug, is_planted};
use crate::sched::{self, WaitCause, Waiter};

/// Maximum size of the records of a transaction that prepares deletions, such as the drop of a
/// table. With more, it also writes data, which must not use the log space for deletions.
const MAX_PREPARING_BYTES: usize = 64 << 10;

/// For a planted bug: wake-ups at multiples of this LSN are lost.
const LOST_WAKE_UP: u64 = 1024;

/// Transactions of one worker that wait for the log.
///
/// Invariant: `commits` is sorted by LSN.
#[derive(Debug, Default)]
pub(super) struct CommitQueue {
    commits: VecDeque<(Lsn, Waiter)>,
    space: Vec<Waiter>,
}

impl CommitQueue {
    pub(super) fn is_empty(&self) -> bool {
        self.commits.is_empty() && self.space.is_empty()
    }

    fn push(&mut self, lsn: Lsn, waiter: Waiter) {
        // Commits arrive in LSN order; only readers of older versions are inserted further to the
        // front.
        let position =
            self.commits.iter().rposition(|(waits, _)| *waits <= lsn).map_or(0, |p| p + 1);
        self.commits.insert(position, (lsn, waiter));
    }

    /// Resumes waiters that the durable LSN releases, or all if the log has failed.
    pub(super) fn release(&mut self, durable: Lsn, failed: bool) {
        let is_due = |waiting: &mut (Lsn, Waiter)| failed || waiting.0 < durable;
        while let Some((lsn, waiter)) = self.commits.pop_front_if(is_due) {
            if is_planted(Bug::LostWakeUp) && lsn.0.is_multiple_of(LOST_WAKE_UP) {
                continue;
            }
            sched::resume(waiter);
        }
    }

    /// Resumes the waiters for log space, which check again.
    pub(super) fn release_space(&mut self) {
        self.space.drain(..).for_each(sched::resume);
    }
}

impl WorkerTransactions {
    /// Waits until a result that depends on the commit at `lsn` may be returned. With
    /// [`Durability::Group`] this waits until that commit is durable; otherwise it does not wait.
    ///
    /// # Errors
    /// The log's error if it failed first. The result must then not be returned, because the state
    /// it depends on may be lost in a crash.
    pub(crate) async fn wait_to_answer(&self, lsn: Lsn) -> Result<(), OperationError> {
        if self.has_to_wait(lsn) {
            self.wait_durable(lsn).await?;
        }
        Ok(())
    }

    /// Waits until a result that depends on any earlier commit may be returned.
    ///
    /// # Errors
    /// Those of [`Self::wait_to_answer`].
    pub(crate) async fn wait_for_all_before(&self) -> Result<(), OperationError> {
        // The tail is after the last block.
        self.wait_to_answer(Lsn(self.engine().log.tail().0 - 1)).await
    }

    /// Returns whether [`Self::wait_to_answer`] must wait, or must check for a failed log.
    #[inline(always)]
    pub(super) fn has_to_wait(&self, lsn: Lsn) -> bool {
        self.engine().durability == Durability::Group && lsn >= self.engine().log.durable()
    }

    /// Waits until the block at `lsn`, and so everything before it, is durable.
    ///
    /// # Errors
    /// The log's error if it failed first.
    pub(crate) async fn wait_durable(&self, lsn: Lsn) -> Result<(), OperationError> {
        let log = &self.engine().log;
        while lsn >= log.durable() {
            if let Some(error) = log.poisoned() {
                return Err(OperationError::Log(error));
            }
            let waiter = sched::current_waiter().await;
            self.commits.borrow_mut().push(lsn, waiter);
            // Raised before this last check, so an advance that the check misses wakes this worker.
            self.engine().waiting.raise(self.number());
            if lsn >= log.durable() && log.poisoned().is_none() {
                sched::park(WaitCause::Commit).await;
            }
        }
        Ok(())
    }

    /// Waits until every transaction that is active now has ended, on all workers; `false` if the
    /// database closes first.
    ///
    /// # Errors
    /// The log's error if it has failed.
    pub(crate) async fn wait_for_grace_period(&self) -> Result<bool, OperationError> {
        let engine = self.engine().clone();
        let now = engine.log.tail();
        while engine.horizon.oldest(engine.log.tail()) <= now {
            if let Some(error) = engine.log.poisoned() {
                return Err(OperationError::Log(error));
            }
            if engine.checkpoints.stopping() {
                return Ok(false);
            }
            if engine.log.tail() == now {
                // Without commits, later begin stamps would equal `now`. An empty block advances
                // the tail; a full log must grow for it.
                self.wait_for_space(log::block_bytes(0), BlockPurpose::Upkeep).await?;
                engine.log.append_empty_block(self.number());
            }
            let waiter = sched::current_waiter().await;
            self.grace_period_waiters.borrow_mut().push((now, waiter));
            sched::park(WaitCause::GracePeriod).await;
        }
        Ok(true)
    }

    /// Resumes tasks whose grace period has ended, or all if the database is closing or the log has
    /// failed. Called at every turn, because the end of another worker's transaction is not
    /// announced. A worker with such waiters takes turns at bounded intervals.
    pub(super) fn release_grace_period_waiters(&self) {
        let mut waiters = self.grace_period_waiters.borrow_mut();
        if waiters.is_empty() {
            return;
        }
        let engine = self.engine();
        let look = engine.checkpoints.stopping() || engine.log.poisoned().is_some();
        let tail = engine.log.tail();
        let oldest = engine.horizon.oldest(tail);
        // If the tail has not moved since then, another empty block is needed.
        let is_over = |waiting: &mut (Lsn, Waiter)| look || waiting.0 < oldest || waiting.0 == tail;
        waiters.extract_if(.., is_over).for_each(|(_, waiter)| sched::resume(waiter));
    }

    /// Waits until the log has room for a block of `bytes`.
    ///
    /// # Errors
    /// The log's error if it has failed; `Refused`, or `NoRoomToDelete` for a deletion, if the log
    /// would have to grow, and could not since this call.
    pub(crate) async fn wait_for_space(
        &self,
        bytes: usize,
        purpose: BlockPurpose,
    ) -> Result<(), OperationError> {
        let log = &self.engine().log;
        let seen = log.refusals(purpose);
        while !log.admits(bytes, purpose) {
            if let Some(error) = log.poisoned() {
                return Err(OperationError::Log(error));
            }
            if let Some(error) = log.refused(bytes, purpose, seen) {
                return Err(match purpose {
                    BlockPurpose::Deletion => OperationError::NoRoomToDelete(error),
                    BlockPurpose::Change | BlockPurpose::Upkeep => OperationError::Refused(error),
                });
            }
            let waiter = sched::current_waiter().await;
            self.commits.borrow_mut().space.push(waiter);
            self.engine().waiting.raise(self.number());
            // The worker's next turn handles the demand, and no worker sleeps without a turn.
            log.demand(bytes, purpose);
            let refused = log.refused(bytes, purpose, seen).is_some();
            if !log.admits(bytes, purpose) && log.poisoned().is_none() && !refused {
                sched::park(WaitCause::LogSpace).await;
            }
        }
        Ok(())
    }
}

impl ActiveTransaction {
    /// Waits until everything that the transaction returned so far may leave the engine.
    ///
    /// # Errors
    /// Those of [`WorkerTransactions::wait_to_answer`].
    pub(crate) async fn wait_to_answer(&self) -> Result<(), OperationError> {
        self.worker().wait_to_answer(self.depends_on()).await
    }

    /// The purpose of the log space for the transaction's writes.
    pub(super) fn block_purpose(&self) -> BlockPurpose {
        let writes = self.writes().borrow();
        let prepares = || writes.log_bytes_up_to(MAX_PREPARING_BYTES) <= MAX_PREPARING_BYTES;
        let frees = writes.only_deletes() || (self.frees_space() && prepares());
        if frees { BlockPurpose::Deletion } else { BlockPurpose::Change }
    }

    /// Waits until the log has room for a block of `bytes`; fails if the log has failed or cannot
    /// grow.
    pub(super) async fn admit(&self, bytes: usize) -> Result<(), OperationError> {
        if let Some(error) = self.engine().log.poisoned() {
            return Err(OperationError::Log(error));
        }
        let purpose = self.block_purpose();
        self.worker().wait_for_space(bytes, purpose).await
    }
}
