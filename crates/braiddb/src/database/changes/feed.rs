//! Progress of a feed between two items: log reading on workers, and waits at the log tail.
//!
//! The feed runs on the executor that polls it, and keeps the database open only for short moments.
//! Between two jobs, no part of it is on a worker. When it waits for the log, its waker is
//! registered with the wakers of durability.

use std::collections::VecDeque;
use std::sync::Arc;

use super::follow::{FollowResult, Follower};
use super::item::ChangeTransaction;
use super::snapshot::SnapshotScan;
use super::table_selection::TableSelection;
use super::tables::KnownTables;
use super::token::ChangeToken;
use crate::database::workers::Workers;
use crate::database::{Database, Error, Result, TransactionEnd};
use crate::log::{LogHold, LogWatch, Lsn};
use crate::sync::Mutex;
use crate::transaction::WorkerTransactions;

/// The resume point of a feed after its last returned item, moved past commits to other tables.
pub(super) type Progress = Arc<Mutex<Option<ChangeToken>>>;

/// The database handle of a feed. It never keeps the database open: dropping the last user handle
/// closes the database, and a poll of the feed never does.
#[derive(Debug)]
pub(super) struct FeedDatabase {
    workers: Workers,
    watch: Arc<LogWatch>,
}

impl FeedDatabase {
    pub(super) fn new(db: &Database) -> Self {
        Self { workers: db.shared.workers.clone(), watch: db.shared.engine.watch.clone() }
    }

    /// Converts an error of a step of the snapshot's transaction. Only closing the database ends
    /// this transaction.
    fn unless_ended(&self, error: Error) -> Error {
        match error {
            Error::TransactionEnded(TransactionEnd::Finished) => self.workers.ended(),
            error => error,
        }
    }
}

/// A feed that has started.
#[derive(Debug)]
pub(super) struct Feed {
    pub(super) database: FeedDatabase,
    pub(super) token: ChangeToken,
    pub(super) hold: Arc<LogHold>,
    pub(super) selection: TableSelection,
    pub(super) progress: Progress,
    pub(super) stage: FeedStage,
    /// Transactions found but not yet returned.
    pub(super) ready: VecDeque<ChangeTransaction>,
}

#[derive(Debug)]
pub(super) enum FeedStage {
    /// The next step takes a snapshot.
    BeforeSnapshot,
    Snapshot(Box<SnapshotScan>),
    /// The next step follows the log. If the tables are unknown, they must be found out first;
    /// `attempts` counts the failed attempts.
    BeforeLog {
        tables: Option<KnownTables>,
        attempts: u32,
    },
    /// `more` is true if the log is durable beyond the followed part. Otherwise it was durable up
    /// to `position`. When every found transaction was returned, the feed resumes at `token`, if it
    /// has followed anything.
    Log {
        follower: Box<Follower>,
        token: Option<ChangeToken>,
        more: bool,
        position: Lsn,
    },
    /// A job is running. If its future is dropped or fails, the feed ends.
    Running,
}

impl FeedStage {
    /// The first stage of a feed that starts with the log.
    pub(super) fn before_log() -> Self {
        Self::BeforeLog { tables: None, attempts: 0 }
    }
}

impl Feed {
    /// Returns the next transaction, or the next piece of a snapshot.
    ///
    /// # Errors
    /// The error that ended the feed. Only after [`Error::Overloaded`] may the caller try again.
    pub(super) async fn next(&mut self) -> Result<ChangeTransaction> {
        loop {
            if let Some(transaction) = self.ready.pop_front() {
                *self.progress.lock() = transaction.token;
                return Ok(transaction);
            }
            self.stage = match std::mem::replace(&mut self.stage, FeedStage::Running) {
                FeedStage::BeforeSnapshot => match self.take_snapshot().await {
                    Err(Error::Overloaded) => {
                        self.stage = FeedStage::BeforeSnapshot;
                        return Err(Error::Overloaded);
                    }
                    taken => taken?,
                },
                FeedStage::Snapshot(snapshot) => self.read_snapshot(snapshot).await?,
                FeedStage::BeforeLog { tables, attempts } => {
                    self.begin_log(tables, attempts).await?
                }
                FeedStage::Log { follower, token, more, position } => {
                    if token.is_some() {
                        *self.progress.lock() = token;
                    }
                    if !more {
                        self.database.watch.beyond(position).await;
                    }
                    self.follow(follower).await?
                }
                FeedStage::Running => unreachable!("a failed feed has ended"),
            };
        }
    }

    /// Determines which tables exist, unless that is known. If a worker has no room for a
    /// transaction, another worker is tried a little later: the commits since the start of the feed
    /// must not be lost.
    async fn begin_log(&self, tables: Option<KnownTables>, attempts: u32) -> Result<FeedStage> {
        let (token, hold, selection) = (self.token, self.hold.clone(), self.selection.clone());
        let begin = async move || {
            let worker = WorkerTransactions::current();
            let mut follower = Box::new(Follower::new(worker.engine(), token, hold, selection));
            match tables {
                Some(tables) => follower.set_tables(tables),
                None => match follower.find_tables().await {
                    Err(Error::Overloaded) => {
                        worker.back_off(attempts).await;
                        return Ok(None);
                    }
                    found => found?,
                },
            }
            Ok(Some(follower))
        };
        Ok(match self.on_worker(begin).await? {
            Some(follower) => {
                FeedStage::Log { follower, token: None, more: true, position: Lsn::ZERO }
            }
            None => FeedStage::BeforeLog { tables: None, attempts: attempts.saturating_add(1) },
        })
    }

    async fn follow(&mut self, mut follower: Box<Follower>) -> Result<FeedStage> {
        let follow = async move || {
            let found = follower.follow().await;
            found.map(|found| (found, follower))
        };
        let (found, follower) = self.on_worker(follow).await?;
        let FollowResult { transactions, token, position, more } = found;
        // Everything found so far is in memory, so the log before it may be freed.
        self.hold.advance(token.resume);
        self.ready.extend(transactions);
        Ok(FeedStage::Log { follower, token: Some(token), more, position })
    }

    async fn take_snapshot(&mut self) -> Result<FeedStage> {
        let begun = SnapshotScan::begin(&self.database.workers, &self.selection).await;
        let scan = begun.map_err(|error| self.database.unless_ended(error))?;
        // The log is held from a point before the snapshot.
        self.token = self.token.given_before(scan.lsn());
        Ok(FeedStage::Snapshot(Box::new(scan)))
    }

    async fn read_snapshot(&mut self, mut scan: Box<SnapshotScan>) -> Result<FeedStage> {
        let changes = scan.next().await.map_err(|error| self.database.unless_ended(error))?;
        let (commit_lsn, is_over) = (scan.lsn().0, scan.is_over());
        let token = is_over.then_some(self.token);
        self.ready.push_back(ChangeTransaction { commit_lsn, snapshot: true, changes, token });
        Ok(match is_over {
            // Drops the scan, which releases the snapshot after its last piece.
            true => FeedStage::BeforeLog { tables: Some(scan.into_tables()), attempts: 0 },
            false => FeedStage::Snapshot(scan),
        })
    }

    /// Runs a job on some worker.
    async fn on_worker<T, F>(&self, job: impl FnOnce() -> F + Send + 'static) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + 'static,
    {
        let workers = &self.database.workers;
        workers.start(job)?.await.map_err(|_| workers.ended())?
    }
}
