//! Commit.
//!
//! Once the log has room, a commit runs without suspension:
//!
//! 1. Set the state to `Committing`. No transaction with a begin stamp after the LSN may see
//!    `Active`.
//! 2. Draw the LSN: one `fetch_add` determines order, log space and address.
//! 3. Publish the LSN, check that no other transaction holds the priority token, and certify the
//!    read set as of the LSN. On failure the block is left empty and the transaction aborts.
//!    Snapshot isolation skips certification: first-updater-wins was decided at each write.
//! 4. Set the state to `Committed(lsn)`: visible to all that begin later (early lock release, ELEDA
//!    §2.3.2).
//! 5. Fill the log block.
//!
//! Then the versions are stamped, and superseded versions are added to the garbage list
//! (`transaction/ending.rs`). The result waits until the block is durable.

use super::certify::MIN_LARGE_READ_SET;
use super::checkpoints::PartsRegistration;
use super::context::ActiveTransaction;
use super::counters::AbortCause;
use super::ending::{DecidedOutcome, MAX_WRITES_AT_ONCE};
use super::engine::Durability;
use super::error::OperationError;
use super::fault::PanicPoint;
use super::read_set::NamedKeys;
use super::recent_commits::ChangesToList;
use crate::log::{self, Lsn};
use crate::planted::{Bug, is_planted};
use crate::sched::{self, WaitCause};
use crate::version::Stamp;

/// Reasons why a transaction may not commit at the LSN that it drew.
enum CommitRefusal {
    /// Its read set has changed.
    Changed(NamedKeys),
    /// Another transaction holds the priority token.
    TurnedAway,
}

impl From<NamedKeys> for CommitRefusal {
    fn from(changed: NamedKeys) -> Self {
        CommitRefusal::Changed(changed)
    }
}

/// The logged parts of a transaction that was too large for one block.
struct LoggedParts {
    first: Lsn,
    /// Dropped once the commit block is in the log.
    _noted: PartsRegistration,
}

impl ActiveTransaction {
    /// Commits. Returns the commit LSN, or for a transaction that wrote nothing its begin stamp.
    ///
    /// # Errors
    /// `Conflict` if an operation met one; `NotSerializable` if what it read has changed; the log's
    /// error if it failed. The transaction is then aborted. `CommitUnknown` if the log failed after
    /// the LSN was drawn: the commit block may or may not have reached the disk.
    pub(crate) async fn commit(mut self) -> Result<Lsn, OperationError> {
        let worker = self.worker().clone();
        let wrote = !self.writes().borrow().is_empty();
        let (lsn, depends_on) = match self.decide_commit(wrote).await {
            Ok(decided) => decided,
            Err(error) => {
                self.abort().await;
                return Err(error);
            }
        };
        while self.is_open() && !self.end_some(MAX_WRITES_AT_ONCE) {
            Self::end_step().await;
        }
        let bug =
            if lsn == depends_on { Bug::EarlyAcknowledgement } else { Bug::ReadAheadOfDurable };
        if worker.has_to_wait(depends_on) && !is_planted(bug) {
            worker.wait_to_answer(depends_on).await.map_err(|error| match error {
                OperationError::Log(cause) if wrote => OperationError::CommitUnknown { lsn, cause },
                error => error,
            })?;
        }
        Ok(lsn)
    }

    /// Decides the commit. Returns the LSN to report and the LSN to wait for.
    ///
    /// # Errors
    /// Those of `commit` but `CommitUnknown`. The caller must then abort.
    async fn decide_commit(&mut self, wrote: bool) -> Result<(Lsn, Lsn), OperationError> {
        if let Some(conflict) = self.lost() {
            return Err(conflict);
        }
        if let Some(error) = self.failed() {
            return Err(error);
        }
        if !wrote {
            #[cfg(feature = "experiment")]
            if self.mode().is_safety_net() {
                self.certify_reader().await?;
            }
            let told = (self.begin(), self.depends_on());
            self.finish_read_only();
            return Ok(told);
        }
        // Before space in the log is reserved, because reserved space must be used immediately.
        if self.reads().len() > MIN_LARGE_READ_SET && !self.mode().is_safety_net() {
            self.certify_ahead().await.map_err(|changed| self.fail(changed.into()))?;
        }
        let changes = self.changes_to_list().await;
        let parts = match self.make_room().await {
            Ok(parts) => parts,
            Err(error) => {
                self.set_abort_cause(AbortCause::Log);
                return Err(error);
            }
        };
        // The last moment: from here on nothing suspends until the transaction is decided.
        sched::unless_caller_gone().await;
        let committed = self.commit_now(parts.as_ref().map(|parts| parts.first), changes);
        let lsn = committed.map_err(|refused| self.fail(refused))?;
        Ok((lsn, lsn))
    }

    /// Certifies a read-only transaction with the serial safety net, at the LSN of an empty block.
    #[cfg(feature = "experiment")]
    async fn certify_reader(&self) -> Result<(), OperationError> {
        self.make_room().await?;
        let engine = self.engine();
        let _under_way = engine.enter_safety_net(self.worker().number());
        engine.status.committing(self.name());
        let block = (engine.durability != Durability::Volatile)
            .then(|| engine.log.reserve(self.worker().number(), log::block_bytes(0)));
        let lsn = block.as_ref().map_or_else(|| engine.log.advance_clock(), |block| block.lsn());
        engine.status.drew(self.name(), lsn);
        self.certify(lsn).map_err(|changed| self.fail(changed.into()))
    }

    fn fail(&self, refused: CommitRefusal) -> OperationError {
        match refused {
            CommitRefusal::TurnedAway => {
                self.set_abort_cause(AbortCause::Conflict);
                OperationError::YieldedToPriority
            }
            CommitRefusal::Changed(changed) => {
                self.set_abort_cause(AbortCause::Certification);
                OperationError::NotSerializable(Box::new(changed))
            }
        }
    }

    /// Ends an internal, uncounted transaction that wrote nothing. Where it matters, the caller
    /// waits until what it read is durable.
    pub(crate) fn end_uncounted(mut self) {
        assert!(self.writes().borrow().is_empty(), "it wrote nothing");
        self.end_without_writes();
        self.end_some(usize::MAX);
    }

    fn finish_read_only(&self) {
        let counters = self.worker().counters();
        counters.committed.add(1);
        counters.committed_read_only.add(1);
        self.end_without_writes();
    }

    fn end_without_writes(&self) {
        self.engine().status.aborted(self.name());
        self.decide_bulk(Stamp::ABORTED);
        self.set_outcome(DecidedOutcome::ReadOnly);
    }

    /// Waits until the log has room for the rest of the transaction. A transaction too large for
    /// one block logs its writes in parts here. The parts count only if its commit block follows. A
    /// bulk operation has already logged some parts.
    async fn make_room(&self) -> Result<Option<LoggedParts>, OperationError> {
        if self.engine().durability == Durability::Volatile {
            return Ok(None);
        }
        let engine = self.engine();
        let parts_of_bulk = self.log_rest_of_bulk().await?;
        let common_bytes = engine.log.common_block_bytes();
        let bytes = log::block_bytes(self.writes().borrow().log_bytes_up_to(common_bytes));
        if bytes <= common_bytes && parts_of_bulk.is_none() {
            self.admit(bytes).await?;
            return Ok(None);
        }
        let noted = engine.checkpoints.log_in_parts(|| engine.log.tail());
        let (mut first_part, mut logged) = (parts_of_bulk, 0);
        loop {
            sched::yield_now(WaitCause::Memory).await;
            let (some, bytes) = self.writes().borrow().part(logged, common_bytes);
            if some.is_empty() {
                self.admit(log::block_bytes(0)).await?;
                let first = first_part.expect("logged in parts");
                return Ok(Some(LoggedParts { first, _noted: noted }));
            }
            self.admit(bytes).await?;
            let writes = self.writes().borrow();
            let mut block = engine.log.reserve(self.worker().number(), bytes);
            logged = some.end;
            writes.append(&mut block, some);
            let first = *first_part.get_or_insert(block.lsn());
            block.finish_part(first);
        }
    }

    /// Draws the LSN and decides without suspension. The caller then ends the transaction.
    ///
    /// # Errors
    /// The reason why it may not commit. The caller must then abort it, and its block in the log is
    /// empty.
    fn commit_now(
        &mut self,
        first_part: Option<Lsn>,
        changes: ChangesToList,
    ) -> Result<Lsn, CommitRefusal> {
        let worker = self.worker().clone();
        let engine = worker.engine();
        #[cfg(feature = "experiment")]
        let _under_way = engine.enter_safety_net(worker.number());
        engine.status.committing(self.name());
        if is_planted(Bug::CertifiedBeforeDraw) && !self.mode().is_safety_net() {
            self.certify(Lsn::MAX)?;
        }
        self.list_changes(changes);
        let lsn = self.draw_and_decide(first_part).inspect_err(|_| self.unlist_changes())?;
        self.set_outcome(DecidedOutcome::Committed(lsn));
        for (table, expiry) in &self.writes().borrow().expiring {
            // The record is visible now. A sweep that missed it has ended or began earlier, and
            // will not note the expiry itself.
            // SAFETY: the engine is alive; if this transaction created the table, it is committing.
            unsafe { table.get() }.note_expiry(*expiry);
        }
        self.decide_bulk(Stamp::committed(lsn));
        #[cfg(feature = "experiment")]
        if self.mode().is_safety_net() {
            self.end_some(usize::MAX);
        }
        Ok(lsn)
    }

    /// Draws the commit LSN, and decides whether the transaction commits at it.
    ///
    /// # Errors
    /// Those of `decide`.
    fn draw_and_decide(&self, first_part: Option<Lsn>) -> Result<Lsn, CommitRefusal> {
        let engine = self.engine();

        let writes = self.writes().borrow();
        if engine.durability == Durability::Volatile {
            let lsn = engine.log.advance_clock();
            self.decide(lsn)?;
            Ok(lsn)
        } else {
            let is_logged = first_part.is_some();
            let total = if is_logged { 0 } else { writes.log_bytes_up_to(usize::MAX) };
            let mut block = engine.log.reserve(self.worker().number(), log::block_bytes(total));
            let lsn = block.lsn();
            engine.planted_panic.panic_if_planted(PanicPoint::Commit);
            // If it fails, the block is dropped and thus becomes an empty block.
            self.decide(lsn)?;
            if !is_logged {
                writes.append_all(&mut block);
            }
            block.finish_commit(first_part);
            Ok(lsn)
        }
    }

    /// Decides whether the transaction commits at the LSN that it drew.
    ///
    /// # Errors
    /// The reason why it does not.
    fn decide(&self, lsn: Lsn) -> Result<(), CommitRefusal> {
        let status = &self.engine().status;
        // First, so that of two concurrent certifications each knows whether the other precedes it.
        status.drew(self.name(), lsn);
        if self.engine().starvation_guard.is_taken_by_other(self.priority_token()) {
            return Err(CommitRefusal::TurnedAway);
        }
        if !is_planted(Bug::CertifiedBeforeDraw) || self.mode().is_safety_net() {
            self.certify(lsn)?;
        }
        self.open_created();
        status.committed(self.name());
        if self.priority_token() != 0 {
            self.engine().starvation_guard.release(self.priority_token());
        }
        Ok(())
    }
}
