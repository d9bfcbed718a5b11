//! What a feed does between two things that it gives: it has workers read the log, and waits where that ends.
//!
//! It runs wherever it is polled, and keeps the database open no more than for a moment. Between two pieces of work
//! nothing of it is on a worker: where it waits for the log, its waker is among those that are called when more is durable.

use std::collections::VecDeque;
use std::sync::Arc;

use super::follow::{Follower, Found};
use super::item::ChangeTransaction;
use super::snapshot::SnapshotScan;
use super::tables::KnownTables;
use super::token::ChangeToken;
use super::wanted::Wanted;
use crate::database::retry::back_off;
use crate::database::workers::Workers;
use crate::database::{Database, Error, Result, TransactionEnd};
use crate::log::{LogHold, LogWatch, Lsn};
use crate::sync::Mutex;
use crate::transaction::WorkerTransactions;

/// Where a feed is that was given nothing more than was.
pub(super) type Progress = Arc<Mutex<Option<ChangeToken>>>;

/// The database, which the feed does not keep open, not for a moment: who drops its last handle finds it closed
/// afterwards, and no poll of a feed closes it.
#[derive(Debug)]
pub(super) struct Source {
    workers: Workers,
    watch: Arc<LogWatch>,
}

impl Source {
    pub(super) fn new(db: &Database) -> Self {
        Self { workers: db.shared.workers.clone(), watch: db.shared.engine.watch.clone() }
    }

    /// An error of a step of the snapshot's transaction, which nobody ends but the end of the database.
    fn unless_ended(&self, error: Error) -> Error {
        match error {
            Error::TransactionEnded(TransactionEnd::Finished) => self.workers.ended(),
            error => error,
        }
    }
}

/// A feed that has begun.
#[derive(Debug)]
pub(super) struct Feed {
    pub(super) source: Source,
    pub(super) token: ChangeToken,
    pub(super) hold: Arc<LogHold>,
    pub(super) wanted: Wanted,
    pub(super) progress: Progress,
    pub(super) stage: Stage,
    /// Found, and not given yet.
    pub(super) ready: VecDeque<ChangeTransaction>,
}

#[derive(Debug)]
pub(super) enum Stage {
    /// A snapshot is to be taken.
    BeforeSnapshot,
    Snapshot(Box<SnapshotScan>),
    /// The log is to be followed. If it is not known what tables there were, that is to be found out; so many attempts at
    /// it were made in vain.
    BeforeLog {
        tables: Option<KnownTables>,
        attempts: u32,
    },
    /// `more` is durable than was followed, or else up to `position` it was. Once all is given that was found, a feed goes on
    /// at `token`, if it has followed anything.
    Log {
        follower: Box<Follower>,
        token: Option<ChangeToken>,
        more: bool,
        position: Lsn,
    },
    /// Work is under way: if its future is given up, or fails, so is the feed.
    Elsewhere,
}

impl Stage {
    /// Of a feed that begins with the log.
    pub(super) fn before_log() -> Self {
        Self::BeforeLog { tables: None, attempts: 0 }
    }
}

impl Feed {
    /// The next transaction, or piece of a snapshot.
    ///
    /// # Errors
    /// Why there is none: the feed is over then. Only [`Error::Overloaded`] says that it may be asked again.
    pub(super) async fn next(&mut self) -> Result<ChangeTransaction> {
        loop {
            if let Some(transaction) = self.ready.pop_front() {
                *self.progress.lock() = transaction.token;
                return Ok(transaction);
            }
            self.stage = match std::mem::replace(&mut self.stage, Stage::Elsewhere) {
                Stage::BeforeSnapshot => match self.take_snapshot().await {
                    Err(Error::Overloaded) => {
                        self.stage = Stage::BeforeSnapshot;
                        return Err(Error::Overloaded);
                    }
                    taken => taken?,
                },
                Stage::Snapshot(snapshot) => self.read_snapshot(snapshot).await?,
                Stage::BeforeLog { tables, attempts } => self.begin_log(tables, attempts).await?,
                Stage::Log { follower, token, more, position } => {
                    if token.is_some() {
                        *self.progress.lock() = token;
                    }
                    if !more {
                        self.source.watch.beyond(position).await;
                    }
                    self.follow(follower).await?
                }
                Stage::Elsewhere => unreachable!("a feed that failed is over"),
            };
        }
    }

    /// Finds out what tables there were, unless that is known. A worker that has no room for a transaction is no reason to
    /// lose what was committed since the feed began: another one is asked, a little later.
    async fn begin_log(&self, tables: Option<KnownTables>, attempts: u32) -> Result<Stage> {
        let (token, hold, wanted) = (self.token, self.hold.clone(), self.wanted.clone());
        let begin = async move || {
            let worker = WorkerTransactions::current();
            let mut follower = Box::new(Follower::new(worker.engine(), token, hold, wanted));
            match tables {
                Some(tables) => follower.set_tables(tables),
                None => match follower.find_tables().await {
                    Err(Error::Overloaded) => {
                        back_off(&worker, attempts).await;
                        return Ok(None);
                    }
                    found => found?,
                },
            }
            Ok(Some(follower))
        };
        Ok(match self.on_worker(begin).await? {
            Some(follower) => Stage::Log { follower, token: None, more: true, position: Lsn::ZERO },
            None => Stage::BeforeLog { tables: None, attempts: attempts.saturating_add(1) },
        })
    }

    async fn follow(&mut self, mut follower: Box<Follower>) -> Result<Stage> {
        let follow = async move || {
            let found = follower.follow().await;
            found.map(|found| (found, follower))
        };
        let (found, follower) = self.on_worker(follow).await?;
        let Found { transactions, token, position, more } = found;
        // What was found is in memory.
        self.hold.advance(token.resume);
        self.ready.extend(transactions);
        Ok(Stage::Log { follower, token: Some(token), more, position })
    }

    async fn take_snapshot(&mut self) -> Result<Stage> {
        let begun = SnapshotScan::begin(&self.source.workers, &self.wanted).await;
        let scan = begun.map_err(|error| self.source.unless_ended(error))?;
        // The log is held from before the snapshot on.
        self.token = self.token.given_before(scan.lsn());
        Ok(Stage::Snapshot(Box::new(scan)))
    }

    async fn read_snapshot(&mut self, mut scan: Box<SnapshotScan>) -> Result<Stage> {
        let changes = scan.next().await.map_err(|error| self.source.unless_ended(error))?;
        let (commit_lsn, is_over) = (scan.lsn().0, scan.is_over());
        let token = is_over.then_some(self.token);
        self.ready.push_back(ChangeTransaction { commit_lsn, snapshot: true, changes, token });
        Ok(match is_over {
            // What the snapshot keeps is let go with its last piece.
            true => Stage::BeforeLog { tables: Some(scan.into_tables()), attempts: 0 },
            false => Stage::Snapshot(scan),
        })
    }

    /// Has some worker do something.
    async fn on_worker<T, F>(&self, job: impl FnOnce() -> F + Send + 'static) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + 'static,
    {
        let workers = &self.source.workers;
        workers.start(job)?.await.map_err(|_| workers.ended())?
    }
}
