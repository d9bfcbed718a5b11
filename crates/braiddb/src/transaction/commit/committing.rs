//! Commit of a transaction: its decision, and its record in the log.
//!
//! A small transaction commits in a plain function, [`ActiveTransaction::commit_at_once`]. Only one
//! that has to wait for something, such as room in the log, does it in a future.
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
//! (`transaction/commit/ending.rs`). The result waits until the block is durable.

use std::rc::Rc;

use super::ending::MAX_WRITES_AT_ONCE;
use crate::log::{self, Lsn};
use crate::planted::{Bug, is_planted};
use crate::sched::{self, WaitCause, compiled_here};
use crate::transaction::context::active_transaction::ActiveTransaction;
use crate::transaction::context::counters::AbortCause;
use crate::transaction::context::durability_level::Durability;
use crate::transaction::context::error::OperationError;
use crate::transaction::context::fault::PanicPoint;
use crate::transaction::context::transaction_state::Conflict;
use crate::transaction::context::transaction_state::DecidedOutcome;
use crate::transaction::context::worker::WorkerTransactions;
use crate::transaction::memory::recent_commits::ChangesToList;
use crate::transaction::schedule::checkpoints::PartsRegistration;
use crate::transaction::sets::read_set::NamedKeys;
use crate::transaction::validation::certify::MIN_LARGE_READ_SET;
use crate::version::CommittingContext;

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

/// A decided commit, whose result must not be returned before what it depends on is durable.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DecidedCommit {
    /// The commit LSN, or the begin stamp of a transaction that wrote nothing.
    lsn: Lsn,
    /// The result waits for the durability of this commit.
    depends_on: Lsn,
    wrote: bool,
}

/// How far [`ActiveTransaction::commit_at_once`] came with a commit that it could not complete.
#[derive(Debug)]
pub(crate) enum UnfinishedCommit {
    /// Committed. The result depends on a commit that is not durable yet.
    Decided(DecidedCommit, Rc<WorkerTransactions>),
    /// The commit was refused. The transaction must be aborted.
    Refused(ActiveTransaction, OperationError),
    /// Nothing was done, because the commit may have to wait.
    Untried(ActiveTransaction),
}

impl UnfinishedCommit {
    /// Completes the commit, and waits until the result may be returned. Returns the commit LSN, or
    /// for a transaction that wrote nothing its begin stamp.
    ///
    /// # Errors
    /// Those of [`ActiveTransaction::commit`].
    pub(crate) async fn complete(self) -> Result<Lsn, OperationError> {
        match self {
            UnfinishedCommit::Decided(commit, worker) => worker.acknowledge(commit).await,
            UnfinishedCommit::Refused(transaction, error) => {
                transaction.abort().await;
                Err(error)
            }
            UnfinishedCommit::Untried(transaction) => transaction.commit_with_waits().await,
        }
    }
}

impl WorkerTransactions {
    /// Returns whether the result of a commit has to wait for the log.
    fn must_wait_for(&self, commit: DecidedCommit) -> bool {
        let is_own = commit.lsn == commit.depends_on;
        let bug = if is_own { Bug::EarlyAcknowledgement } else { Bug::ReadAheadOfDurable };
        self.has_to_wait(commit.depends_on) && !is_planted(bug)
    }

    /// Waits until the result of a commit may be returned.
    fn acknowledge(
        &self,
        commit: DecidedCommit,
    ) -> impl Future<Output = Result<Lsn, OperationError>> {
        compiled_here(async move {
            let DecidedCommit { lsn, depends_on, wrote } = commit;
            if self.must_wait_for(commit) {
                self.wait_to_answer(depends_on).await.map_err(|error| match error {
                    OperationError::Log(cause) if wrote => {
                        OperationError::CommitUnknown { lsn, cause }
                    }
                    error => error,
                })?;
            }
            Ok(lsn)
        })
    }
}

impl ActiveTransaction {
    /// Commits. Returns the commit LSN, or for a transaction that wrote nothing its begin stamp.
    ///
    /// # Errors
    /// `Conflict` if an operation met one; `NotSerializable` if what it read has changed; the log's
    /// error if it failed. The transaction is then aborted. `CommitUnknown` if the log failed after
    /// the LSN was drawn: the commit block may or may not have reached the disk.
    pub(crate) async fn commit(self) -> Result<Lsn, OperationError> {
        match self.commit_at_once() {
            Ok(lsn) => Ok(lsn),
            Err(unfinished) => unfinished.complete().await,
        }
    }

    /// Commits without suspension, if nothing of it may have to wait. Returns the LSN at which it is
    /// committed, if the result may be returned.
    #[inline(always)]
    pub(crate) fn commit_at_once(self) -> Result<Lsn, UnfinishedCommit> {
        if self.is_touched() || self.has_lost() || self.mode().is_safety_net() {
            self.commit_touched()
        } else {
            self.commit_untouched()
        }
    }

    /// Commits a transaction whose context is untouched: it wrote nothing, and has nothing to free.
    #[inline(never)]
    fn commit_untouched(mut self) -> Result<Lsn, UnfinishedCommit> {
        let commit = self.count_read_only();
        self.engine().status.aborted(self.name());
        let context = self.take_context().expect("ends once");
        self.worker().end_untouched(context);
        self.answer(commit)
    }

    /// Returns whether the transaction has met a conflict, or an operation has failed halfway.
    #[inline(always)]
    fn has_lost(&self) -> bool {
        self.conflict_met() != Conflict::None || self.unfinished().is_some()
    }

    /// Returns the LSN of a decided commit, if the result may be returned.
    #[inline(always)]
    fn answer(self, commit: DecidedCommit) -> Result<Lsn, UnfinishedCommit> {
        if self.worker().must_wait_for(commit) {
            Err(UnfinishedCommit::Decided(commit, self.worker().clone()))
        } else {
            Ok(commit.lsn)
        }
    }

    #[inline(never)]
    fn commit_touched(mut self) -> Result<Lsn, UnfinishedCommit> {
        // Without writes, it may still have many versions that a rollback to a savepoint unlinked.
        let (writes, _) = self.ended_writes();
        let (is_small, is_empty) = (writes.is_small(MAX_WRITES_AT_ONCE), writes.is_empty());
        let changes_pages = !writes.paged.is_empty();
        if !is_small || self.has_lost() || self.has_many_undone(MAX_WRITES_AT_ONCE) {
            return Err(UnfinishedCommit::Untried(self));
        }
        let commit = if is_empty {
            #[cfg(feature = "experiment")]
            if self.mode().is_safety_net() {
                return Err(UnfinishedCommit::Untried(self));
            }
            let commit = self.commit_read_only();
            self.release();
            commit
        } else {
            let Some(bytes) = self.room_at_once() else {
                return Err(UnfinishedCommit::Untried(self));
            };
            let changes = changes_pages.then(|| self.changes_at_once());
            match self.commit_now(bytes, None, changes) {
                Ok(commit) => commit,
                Err(refusal) => {
                    let error = self.fail(refusal);
                    return Err(UnfinishedCommit::Refused(self, error));
                }
            }
        };
        if self.is_open() {
            let has_ended = self.end_some(MAX_WRITES_AT_ONCE);
            assert!(has_ended, "it has few writes");
        }
        self.answer(commit)
    }

    /// Returns the bytes of the records of a small transaction in the log, if it has few reads, its
    /// caller still waits, and the log has room for it.
    fn room_at_once(&self) -> Option<usize> {
        let writes = self.writes().borrow();
        if self.reads().len() > MIN_LARGE_READ_SET || sched::is_caller_gone() {
            return None;
        }
        let log = &self.engine().log;
        if self.engine().durability == Durability::Volatile {
            return Some(0);
        }
        let common_bytes = log.common_block_bytes();
        let records = writes.log_bytes_up_to(common_bytes);
        let bytes = log::block_bytes(records);
        let has_room = bytes <= common_bytes
            && log.poisoned().is_none()
            && log.admits(bytes, self.block_purpose(&writes));
        has_room.then_some(records)
    }

    /// Commits a transaction that may have to wait first.
    async fn commit_with_waits(self) -> Result<Lsn, OperationError> {
        let worker = self.worker().clone();
        let commit = self.decide_and_end().await?;
        worker.acknowledge(commit).await
    }

    /// Commits without waiting for the log. Returns the commit LSN, or for a transaction that wrote
    /// nothing its begin stamp, and the newest commit that the result depends on.
    ///
    /// # Errors
    /// Those of `commit` but `CommitUnknown`.
    pub(crate) async fn commit_visibly(self) -> Result<(Lsn, Lsn), OperationError> {
        let DecidedCommit { lsn, depends_on, .. } = self.decide_and_end().await?;
        Ok((lsn, depends_on))
    }

    /// Decides the commit and ends the transaction.
    ///
    /// # Errors
    /// Those of `commit` but `CommitUnknown`. The transaction is then aborted.
    fn decide_and_end(mut self) -> impl Future<Output = Result<DecidedCommit, OperationError>> {
        compiled_here(async move {
            let commit = match self.decide_commit().await {
                Ok(commit) => commit,
                Err(error) => {
                    self.abort().await;
                    return Err(error);
                }
            };
            while self.is_open() && !self.end_some(MAX_WRITES_AT_ONCE) {
                Self::end_step().await;
            }
            Ok(commit)
        })
    }

    /// Decides the commit.
    ///
    /// # Errors
    /// Those of `commit` but `CommitUnknown`. The caller must then abort.
    async fn decide_commit(&mut self) -> Result<DecidedCommit, OperationError> {
        if let Some(conflict) = self.lost() {
            return Err(conflict);
        }
        if let Some(error) = self.unfinished() {
            return Err(error.clone());
        }
        if self.writes().borrow().is_empty() {
            #[cfg(feature = "experiment")]
            if self.mode().is_safety_net() {
                self.certify_reader().await?;
            }
            return Ok(self.commit_read_only());
        }
        // Before space in the log is reserved, because reserved space must be used immediately.
        if self.reads().len() > MIN_LARGE_READ_SET && !self.mode().is_safety_net() {
            self.certify_ahead().await.map_err(|changed| self.fail(changed.into()))?;
        }
        let changes = Some(self.changes_to_list().await).filter(|changes| !changes.is_empty());
        let parts = match self.make_room().await {
            Ok(parts) => parts,
            Err(error) => {
                self.set_abort_cause(AbortCause::Log);
                return Err(error);
            }
        };
        // The last moment: from here on nothing suspends until the transaction is decided.
        sched::unless_caller_gone().await;
        let first_part = parts.as_ref().map(|parts| parts.first);
        let is_volatile = self.engine().durability == Durability::Volatile;
        let bytes = match first_part {
            None if !is_volatile => self.writes().borrow().log_bytes_up_to(usize::MAX),
            _ => 0,
        };
        self.commit_now(bytes, first_part, changes).map_err(|refusal| self.fail(refusal))
    }

    /// Certifies a read-only transaction with the serial safety net, at the LSN of an empty block.
    #[cfg(feature = "experiment")]
    async fn certify_reader(&self) -> Result<(), OperationError> {
        self.make_room().await?;
        let engine = self.engine();
        let _under_way = engine.enter_safety_net(self.worker().number());
        let committing = engine.status.committing(self.name());
        let block = (engine.durability != Durability::Volatile)
            .then(|| engine.log.reserve(self.worker().number(), log::block_bytes(0)));
        let lsn = block.as_ref().map_or_else(|| engine.log.advance_clock(), |block| block.lsn());
        committing.drew(lsn);
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

    /// Decides the commit of a transaction that wrote nothing.
    fn commit_read_only(&self) -> DecidedCommit {
        self.end_without_writes();
        self.count_read_only()
    }

    #[inline(always)]
    fn count_read_only(&self) -> DecidedCommit {
        let counters = self.worker().counters();
        counters.committed.add(1);
        counters.committed_read_only.add(1);
        DecidedCommit { lsn: self.begin(), depends_on: self.depends_on(), wrote: false }
    }

    #[inline(always)]
    fn end_without_writes(&self) {
        self.engine().status.aborted(self.name());
        self.decide_bulk(None);
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
    /// `record_bytes` is the size of the records to log, except those of logged parts.
    ///
    /// # Errors
    /// The reason why it may not commit. The caller must then abort it, and its block in the log is
    /// empty.
    fn commit_now(
        &mut self,
        record_bytes: usize,
        first_part: Option<Lsn>,
        changes: Option<ChangesToList>,
    ) -> Result<DecidedCommit, CommitRefusal> {
        #[cfg(feature = "experiment")]
        let net_user = self.engine().certifies_by_safety_net().then(|| self.worker().clone());
        #[cfg(feature = "experiment")]
        let _under_way = net_user.as_ref().map(|one| one.engine().enter_safety_net(one.number()));
        let committing = self.engine().status.committing(self.name());
        if is_planted(Bug::CertifiedBeforeDraw) && !self.mode().is_safety_net() {
            self.certify(Lsn::MAX)?;
        }
        if let Some(changes) = changes {
            self.list_changes(changes);
        }
        let lsn = self
            .draw_and_decide(committing, record_bytes, first_part)
            .inspect_err(|_| self.unlist_changes())?;
        self.set_outcome(DecidedOutcome::Committed(lsn));
        for (table, expiry) in &self.ended_writes().0.expiring {
            // The record is visible now. A sweep that missed it has ended or began earlier, and
            // will not note the expiry itself.
            // SAFETY: the engine is alive; if this transaction created the table, it is committing.
            unsafe { table.get() }.note_expiry(*expiry);
        }
        self.decide_bulk(Some(lsn));
        #[cfg(feature = "experiment")]
        if self.mode().is_safety_net() {
            self.end_some(usize::MAX);
        }
        Ok(DecidedCommit { lsn, depends_on: lsn, wrote: true })
    }

    /// Draws the commit LSN, and decides whether the transaction commits at it.
    ///
    /// # Errors
    /// Those of `decide`.
    #[inline(always)]
    fn draw_and_decide(
        &self,
        committing: CommittingContext<'_>,
        record_bytes: usize,
        first_part: Option<Lsn>,
    ) -> Result<Lsn, CommitRefusal> {
        let engine = self.engine();
        if engine.durability == Durability::Volatile {
            let lsn = engine.log.advance_clock();
            self.decide(committing, lsn)?;
            Ok(lsn)
        } else {
            let bytes = log::block_bytes(record_bytes);
            let mut block = engine.log.reserve(self.worker().number(), bytes);
            let lsn = block.lsn();
            engine.planted_panic.panic_if_planted(PanicPoint::Commit);
            // If it fails, the block is dropped and thus becomes an empty block.
            self.decide(committing, lsn)?;
            if first_part.is_none() {
                self.writes().borrow().append_all(&mut block);
            }
            block.finish_commit(first_part);
            Ok(lsn)
        }
    }

    /// Decides whether the transaction commits at the LSN that it drew.
    ///
    /// # Errors
    /// The reason why it does not.
    #[inline(always)]
    fn decide(&self, committing: CommittingContext<'_>, lsn: Lsn) -> Result<(), CommitRefusal> {
        // First, so that of two concurrent certifications each knows whether the other precedes it.
        committing.drew(lsn);
        if self.engine().starvation_guard.is_taken_by_other(self.priority_token()) {
            return Err(CommitRefusal::TurnedAway);
        }
        if !is_planted(Bug::CertifiedBeforeDraw) || self.mode().is_safety_net() {
            self.certify(lsn)?;
        }
        if self.has_extras() {
            self.open_created();
        }
        committing.committed();
        if self.priority_token() != 0 {
            self.engine().starvation_guard.release(self.priority_token());
        }
        Ok(())
    }
}
