//! Waiting for the log: for durability of a commit, and for log space.
//!
//! Each worker has a queue of its waiting transactions in LSN order. So an advance of the durable
//! LSN costs work per released transaction, not per waiting one (MosaicDB §5; ELEDA §4.4, callbacks
//! in LSN order).

use crate::log::{self, BlockPurpose, Lsn};
use crate::sched::{self, WaitCause};
use crate::transaction::context::active_transaction::ActiveTransaction;
use crate::transaction::context::durability_level::Durability;
use crate::transaction::context::engine::Engine;
use crate::transaction::context::error::OperationError;
use crate::transaction::context::worker::WorkerTransactions;
use crate::transaction::schedule::dead_segments::SupersededSegment;
use crate::transaction::schedule::waiters::GracePeriodWaiter;
use crate::transaction::sets::write_set::WriteSet;

/// Maximum size of the records of a transaction that prepares deletions, such as the drop of a
/// table. With more, it also writes data, which must not use the log space for deletions.
const MAX_PREPARING_BYTES: usize = 64 << 10;

/// Number of turns at which begin stamps are looked at to free segments of the log.
const MAX_LOOKS: usize = 32;

impl Engine {
    /// Returns whether a result that depends on the commit at `lsn` must wait until that commit is
    /// durable.
    #[inline(always)]
    pub(in crate::transaction) fn has_to_wait(&self, lsn: Lsn) -> bool {
        self.durability == Durability::Group && lsn >= self.log.durable()
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
        self.engine().has_to_wait(lsn)
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

    /// Waits until every transaction that is active now has ended, on all workers. Returns `false`
    /// if the database closes first, or if a snapshot is open and the caller does not wait for
    /// snapshots.
    ///
    /// # Errors
    /// The log's error if it has failed.
    pub(crate) async fn wait_for_grace_period(
        &self,
        waits_for_snapshots: bool,
    ) -> Result<bool, OperationError> {
        let engine = self.engine().clone();
        let now = engine.log.tail();
        while engine.horizon.oldest(engine.log.tail()) <= now {
            if let Some(error) = engine.log.poisoned() {
                return Err(OperationError::Log(error));
            }
            if engine.checkpoints.stopping() || !waits_for_snapshots && engine.has_snapshots() {
                return Ok(false);
            }
            if engine.log.tail() == now {
                // Without commits, later begin stamps would equal `now`. An empty block advances
                // the tail; a full log must grow for it.
                self.wait_for_space(log::block_bytes(0), BlockPurpose::Upkeep).await?;
                engine.log.append_empty_block(self.number());
            }
            self.park_for_grace_period(now, waits_for_snapshots).await;
        }
        Ok(true)
    }

    /// Waits until all active transactions began after `since`, or the reason to wait may have
    /// ended.
    async fn park_for_grace_period(&self, since: Lsn, waits_for_snapshots: bool) {
        let waiter = sched::current_waiter().await;
        let waiting = GracePeriodWaiter { since, waits_for_snapshots, waiter };
        self.grace_period_waiters.borrow_mut().push(waiting);
        sched::park(WaitCause::GracePeriod).await;
    }

    /// Returns the numbers of those segments of the log whose versions no transaction sees, now or
    /// later. Waits a few turns, because most transactions that see them end soon. The segments
    /// have `bytes` each.
    pub(crate) async fn unseen_segments(
        &self,
        segments: Vec<SupersededSegment>,
        bytes: u64,
    ) -> Vec<u64> {
        let engine = self.engine().clone();
        let (mut seen, mut unseen) = (segments, Vec::new());
        let mut last = seen.iter().map(|segment| segment.until).max().unwrap_or_default();
        for _ in 0..MAX_LOOKS {
            if engine.log.tail() == last {
                // Without commits, later begin stamps would equal earlier ones, and workers publish
                // them only once for a tail.
                engine.log.append_empty_block(self.number());
            }
            let tail = engine.log.tail();
            last = tail;
            engine.readers.request(tail);
            let stamps = engine.readers.all_stamps(tail);
            let is_unseen = |segment: &mut SupersededSegment| {
                stamps.are_unseen(Lsn(segment.number * bytes), segment.until)
            };
            unseen.extend(seen.extract_if(.., is_unseen).map(|segment| segment.number));
            if seen.is_empty() || engine.checkpoints.stopping() || engine.log.poisoned().is_some() {
                break;
            }
            // Until the next turn, at which workers publish their begin stamps.
            self.park_for_grace_period(Lsn::ZERO, true).await;
        }
        unseen
    }

    /// Resumes tasks whose grace period has ended, or all if the database is closing or the log has
    /// failed. Called at every turn, because the end of another worker's transaction is not
    /// announced. A worker with such waiters takes turns at bounded intervals.
    pub(in crate::transaction) fn release_grace_period_waiters(&self) {
        let mut waiters = self.grace_period_waiters.borrow_mut();
        if waiters.is_empty() {
            return;
        }
        let engine = self.engine();
        let look = engine.checkpoints.stopping() || engine.log.poisoned().is_some();
        let (tail, snapshots) = (engine.log.tail(), engine.has_snapshots());
        let oldest = engine.horizon.oldest(tail);
        let is_over = |waiting: &mut GracePeriodWaiter| {
            // If the tail has not moved since then, another empty block is needed.
            let goes_on = waiting.since < oldest || waiting.since == tail;
            look || goes_on || snapshots && !waiting.waits_for_snapshots
        };
        let over = waiters.extract_if(.., is_over);
        over.for_each(|waiting| sched::resume(waiting.waiter));
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
    #[inline]
    pub(super) fn block_purpose(&self, writes: &WriteSet) -> BlockPurpose {
        let prepares = || writes.log_bytes_up_to(MAX_PREPARING_BYTES) <= MAX_PREPARING_BYTES;
        let frees = writes.only_deletes() || (self.frees_space() && prepares());
        if frees { BlockPurpose::Deletion } else { BlockPurpose::Change }
    }

    /// Waits until the log has room for a block of `bytes`; fails if the log has failed or cannot
    /// grow.
    pub(in crate::transaction) async fn admit(&self, bytes: usize) -> Result<(), OperationError> {
        if let Some(error) = self.engine().log.poisoned() {
            return Err(OperationError::Log(error));
        }
        let purpose = self.block_purpose(&self.writes().borrow());
        self.worker().wait_for_space(bytes, purpose).await
    }
}
