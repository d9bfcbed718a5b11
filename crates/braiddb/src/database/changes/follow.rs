//! Log follower: turns blocks of the log into the transactions of a feed. It runs on a worker, as a
//! task among the transactions.
//!
//! It reads blocks in log order, which is commit order. It skips the parts of a large transaction
//! when it first meets them, and reads only these again at the transaction's commit. Memory thus
//! holds one transaction, the positions of the parts of open transactions, and a window of the log.

use std::sync::Arc;

use super::item::{Change, ChangeTransaction};
use super::parts::{BoundSample, OpenParts};
use super::pending::{PendingTransaction, TableHistory};
use super::table_selection::TableSelection;
use super::tables::KnownTables;
use super::token::{ChangeToken, TokenError, check_in_log};
use crate::database::run::read_on_worker;
use crate::database::{ChangesError, Error, Result};
use crate::log::{Block, BlockFollower, BlockKind, LogHold, Lsn};
use crate::planted::{Bug, is_planted};
use crate::sched::{self, WaitCause};
use crate::transaction::{Engine, OperationError, WorkerTransactions};

/// Approximate bytes of keys and values after which the found transactions are returned.
const GIVEN_BYTES: usize = 1 << 20;
/// Bytes of log that are followed in one call.
const PASSED_BYTES: u64 = 16 << 20;
/// Blocks read before the task yields to others.
const TURN: usize = 64;

/// The position of a feed in the log, and its state at that position.
#[derive(Debug)]
pub(super) struct Follower {
    blocks: BlockFollower,
    /// Reads parts again, at other positions of the log.
    parts: BlockFollower,
    hold: Arc<LogHold>,
    /// Where the feed started.
    token: ChangeToken,
    /// The last block read, and its checksum.
    met: Option<(Lsn, u32)>,
    /// The start of the next block.
    position: Lsn,
    /// True until the first block after the start of the feed is read.
    first: bool,
    open: OpenParts,
    tables: KnownTables,
    selection: TableSelection,
}

/// The result of following the log for a while.
#[derive(Debug)]
pub(super) struct FollowResult {
    pub(super) transactions: Vec<ChangeTransaction>,
    /// The resume point of a feed that has returned all found transactions.
    pub(super) token: ChangeToken,
    /// The end of the followed log; more may be durable.
    pub(super) position: Lsn,
    /// True if more of the log was already durable.
    pub(super) more: bool,
}

impl Follower {
    /// Creates a follower that starts at a token, with the log held from there.
    pub(super) fn new(
        engine: &Engine,
        token: ChangeToken,
        hold: Arc<LogHold>,
        selection: TableSelection,
    ) -> Self {
        let resume = token.resume;
        let store = engine.log.cold_store().expect("a held log has files");
        Self {
            blocks: BlockFollower::new(store.clone()),
            parts: BlockFollower::new(store),
            hold,
            token,
            met: None,
            position: resume,
            first: true,
            open: OpenParts::new(resume),
            tables: KnownTables::default(),
            selection,
        }
    }

    /// Sets the tables that existed at the follower's position.
    pub(super) fn set_tables(&mut self, tables: KnownTables) {
        self.tables = tables;
    }

    /// Determines which tables existed at the follower's position. It starts from the current
    /// tables and undoes the later changes of the catalog.
    ///
    /// # Errors
    /// As [`Self::follow`]; [`TokenError::OtherLog`]; [`Error::Overloaded`], after which the caller
    /// may try again.
    pub(super) async fn find_tables(&mut self) -> Result<()> {
        // Upkeep: a catalog row that is only on disk is read even under overload.
        let read = sched::upkeep(read_on_worker(async |tx| tx.tables().await));
        let (tables, now) = read.await?;
        let worker = WorkerTransactions::current();
        worker.wait_durable(Lsn(now.0 - 1)).await?;
        if let Some(files) = worker.engine().log.files() {
            check_in_log(&files, &self.token).await?;
        }
        let mut tables = KnownTables::new(&tables);
        let (position, mut history) = (self.position, TableHistory::new(self.token.given));
        let mut count = 0_usize;
        while self.position < now {
            history.add(&self.next_block(now).await?)?;
            count += 1;
            if count.is_multiple_of(TURN) {
                sched::yield_now(WaitCause::Memory).await;
            }
        }
        _ = history.take_back(&mut tables);
        (self.position, self.tables) = (position, tables);
        Ok(())
    }

    /// Follows the log up to its durable end, or for a bounded amount.
    ///
    /// # Errors
    /// [`ChangesError::LogGone`](crate::ChangesError); errors of the log; an error if a catalog row does not decode.
    pub(super) async fn follow(&mut self) -> Result<FollowResult> {
        let worker = WorkerTransactions::current();
        let engine = worker.engine();
        let (mut transactions, mut bytes, begin) = (Vec::new(), 0, self.position);
        let until = match is_planted(Bug::FedAheadOfDurable) {
            true => engine.log.tail(),
            false => engine.log.durable(),
        };
        let mut count = 0_usize;
        while self.position < until
            && bytes < GIVEN_BYTES
            && self.position.0 - begin.0 < PASSED_BYTES
        {
            let block = self.next_block(until).await?;
            self.met = Some((block.lsn, block.sum));
            match block.kind {
                BlockKind::Part { first_part } => {
                    self.open.meet_part(first_part, (block.lsn, block.end));
                }
                BlockKind::Commit { first_part } => {
                    let parts = first_part.map(|first| (first, self.open.meet_commit(first)));
                    if block.lsn > self.token.given
                        && let Some(transaction) = self.transaction(&block, parts).await?
                    {
                        bytes += transaction.changes.iter().map(bytes_of).sum::<usize>();
                        transactions.push(transaction);
                    }
                }
                BlockKind::Moved | BlockKind::Skip => {}
            }
            // Runs after the block was handled: the block may commit a transaction that would be
            // forgotten otherwise.
            self.open.settle(self.position, || sample(engine));
            count += 1;
            if count.is_multiple_of(TURN) {
                sched::yield_now(WaitCause::Memory).await;
            }
        }
        self.open.settle(self.position, || sample(engine));
        if self.position == begin
            && let Some(error) = engine.log.poisoned()
        {
            return Err(error.into());
        }
        if self.position >= engine.log.durable() {
            // The next block may take long to arrive, so the buffer is freed.
            self.blocks.forget();
        }
        self.parts.forget();
        let (position, more) = (self.position, self.position < engine.log.durable());
        Ok(FollowResult { transactions, token: self.token(), position, more })
    }

    /// Returns the resume point after all blocks read so far.
    fn token(&self) -> ChangeToken {
        let resume = self.open.needed_from(self.position);
        match self.met {
            Some((given, sum)) if given > self.token.given => {
                ChangeToken { resume, given, sum, ..self.token }
            }
            _ => ChangeToken { resume, ..self.token },
        }
    }

    /// Returns the next block and moves past it.
    async fn next_block(&mut self, until: Lsn) -> Result<Block> {
        self.refuse_if_over()?;
        let block = self.blocks.block(self.position, until).await;
        let block = match self.hold.from() {
            // The segment may have been reused since it was read.
            None => return Err(self.gone()),
            Some(_) => block.map_err(|error| match self.first {
                true if error.is_corrupt() => {
                    TokenError::NotInLog { token: self.position.0 }.into()
                }
                _ => Error::from(OperationError::storage(error)),
            })?,
        };
        (self.position, self.first) = (block.end, false);
        Ok(block)
    }

    /// Fails if the feed no longer exists.
    fn refuse_if_over(&self) -> Result<()> {
        // The feed owns the other handle of the hold.
        let is_alone = Arc::strong_count(&self.hold) == 1;
        let stopping = WorkerTransactions::current().engine().checkpoints.stopping();
        if is_alone || stopping { Err(Error::Closed) } else { Ok(()) }
    }

    fn gone(&self) -> Error {
        let files = WorkerTransactions::current().engine().log.files();
        let oldest = files.expect("a held log has files").oldest();
        Error::Changes(ChangesError::LogGone { oldest: oldest.0 })
    }

    /// Returns the changes of a transaction to the feed's tables; `None` without any.
    async fn transaction(
        &mut self,
        commit: &Block,
        parts: Option<(Lsn, Vec<(Lsn, Lsn)>)>,
    ) -> Result<Option<ChangeTransaction>> {
        let pending = self.collect(commit, parts).await?;
        let damaged = |reason| {
            let store = WorkerTransactions::current().engine().log.cold_store();
            let store = store.expect("a log that was read has files");
            OperationError::storage(store.damaged(commit.lsn, reason)).into()
        };
        let token = ChangeToken { resume: self.open.needed_from(commit.end), ..self.token };
        pending.into_transaction(commit, token, &mut self.tables, &self.selection, damaged)
    }

    /// Collects what a transaction wrote. `parts` contains the position of the first part, and the
    /// parts met so far.
    async fn collect(
        &mut self,
        commit: &Block,
        parts: Option<(Lsn, Vec<(Lsn, Lsn)>)>,
    ) -> Result<PendingTransaction> {
        let mut pending = PendingTransaction::default();
        if let Some((first, parts)) = parts {
            if parts.first().is_none_or(|(start, _)| *start != first) {
                // A valid token of this log never lies between the parts of a transaction that it
                // has yet to return.
                return Err(TokenError::OtherLog { token: self.token.given.0 }.into());
            }
            for (number, part) in parts.into_iter().enumerate() {
                self.refuse_if_over()?;
                if number % TURN == TURN - 1 {
                    sched::yield_now(WaitCause::Memory).await;
                }
                let part = self.parts.block_again(part).await;
                if self.hold.from().is_none() {
                    return Err(self.gone());
                }
                let part = part.map_err(OperationError::storage)?;
                pending.add(&part, &self.tables, &self.selection)?;
            }
        }
        pending.add(commit, &self.tables, &self.selection)?;
        Ok(pending)
    }
}

/// Returns the current state of transactions that are being logged in parts.
pub(super) fn sample(engine: &Engine) -> BoundSample {
    let mut tail = Lsn::ZERO;
    let bound = engine.checkpoints.replay_from(|| {
        tail = engine.log.tail();
        tail
    });
    BoundSample { tail, bound }
}

/// Returns the approximate memory use of a change, in bytes.
fn bytes_of(change: &Change) -> usize {
    size_of::<Change>() + change.key.len() + change.value.len()
}
