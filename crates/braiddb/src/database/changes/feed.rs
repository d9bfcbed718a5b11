//! What a feed does between two things that it gives: it has workers read the log, and waits where that ends.
//!
//! It runs wherever it is polled, and keeps the database open no more than for a moment. Between two pieces of work
//! nothing of it is on a worker: where it waits for the log, its waker is among those that are called when more is durable.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use super::follow::{Follower, Found};
use super::item::ChangeTransaction;
use super::snapshot::SnapshotScan;
use super::token::ChangeToken;
use super::wanted::Wanted;
use crate::database::{Database, Error, Result, Shared, ended};
use crate::log::{LogHold, LogWatch, Lsn};
use crate::sched::Failure;
use crate::sync::Mutex;

/// Where a feed is that was given nothing more than was.
pub(super) type Progress = Arc<Mutex<Option<ChangeToken>>>;

/// The database, which the feed does not keep open.
#[derive(Debug)]
pub(super) struct Source {
    shared: Weak<Shared>,
    failure: Arc<Failure>,
    watch: Arc<LogWatch>,
}

impl Source {
    pub(super) fn new(db: &Database) -> Self {
        let engine = &db.shared.engine;
        let (failure, watch) = (engine.failure.clone(), engine.watch.clone());
        Self { shared: Arc::downgrade(&db.shared), failure, watch }
    }

    fn database(&self) -> Result<Database> {
        let shared = self.shared.upgrade().ok_or_else(|| self.ended())?;
        Ok(Database { shared })
    }

    fn ended(&self) -> Error {
        ended(&self.failure)
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
    Snapshot(Box<(SnapshotScan, Follower)>),
    /// It is to be found out what tables there were.
    BeforeLog,
    /// `more` is durable than was followed, or else up to `position` it was.
    Log {
        follower: Box<Follower>,
        more: bool,
        position: Lsn,
    },
    /// Work is under way: if its future is given up, or fails, so is the feed.
    Elsewhere,
}

impl Feed {
    /// The next transaction, or piece of a snapshot.
    ///
    /// # Errors
    /// Why there is none: the feed is over then.
    pub(super) async fn next(&mut self) -> Result<ChangeTransaction> {
        loop {
            if let Some(transaction) = self.ready.pop_front() {
                *self.progress.lock() = transaction.token;
                return Ok(transaction);
            }
            match std::mem::replace(&mut self.stage, Stage::Elsewhere) {
                Stage::BeforeSnapshot => self.stage = self.take_snapshot().await?,
                Stage::Snapshot(snapshot) => self.stage = self.read_snapshot(snapshot).await?,
                Stage::BeforeLog => {
                    let mut follower = Box::new(self.follower()?);
                    let find = async move || {
                        let found = follower.find_tables().await;
                        found.map(|()| follower)
                    };
                    let follower = self.on_worker(find).await?;
                    self.stage = Stage::Log { follower, more: true, position: Lsn::ZERO };
                }
                Stage::Log { follower, more, position } => {
                    if !more {
                        self.source.watch.beyond(position).await;
                    }
                    self.stage = self.follow(follower).await?;
                }
                Stage::Elsewhere => unreachable!("a feed that failed is over"),
            }
        }
    }

    fn follower(&self) -> Result<Follower> {
        let db = self.source.database()?;
        Ok(Follower::new(&db.shared.engine, self.token, self.hold.clone(), self.wanted.clone()))
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
        if transactions.is_empty() {
            *self.progress.lock() = Some(token);
        }
        self.ready.extend(transactions);
        Ok(Stage::Log { follower, more, position })
    }

    async fn take_snapshot(&mut self) -> Result<Stage> {
        let db = self.source.database()?;
        let (scan, tables) = SnapshotScan::begin(db, &self.wanted).await?;
        // The log is held from before the snapshot on.
        self.token.given = Lsn(scan.lsn().0 - 1);
        let mut follower = self.follower()?;
        follower.set_tables(tables);
        Ok(Stage::Snapshot(Box::new((scan, follower))))
    }

    async fn read_snapshot(
        &mut self,
        mut snapshot: Box<(SnapshotScan, Follower)>,
    ) -> Result<Stage> {
        let piece = snapshot.0.next().await.map_err(|error| match error {
            Error::TransactionOver => self.source.ended(),
            error => error,
        })?;
        let Some(changes) = piece else {
            let (_, follower) = *snapshot;
            return Ok(Stage::Log { follower: follower.into(), more: true, position: Lsn::ZERO });
        };
        let token = snapshot.0.is_over().then_some(self.token);
        let commit_lsn = snapshot.0.lsn().0;
        self.ready.push_back(ChangeTransaction { commit_lsn, snapshot: true, changes, token });
        Ok(Stage::Snapshot(snapshot))
    }

    /// Has some worker do something.
    async fn on_worker<T, F>(&self, job: impl FnOnce() -> F + Send + 'static) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + 'static,
    {
        // The database is not kept open meanwhile: closing it ends what is under way.
        let done = self.source.database()?.start_on_worker(job)?;
        done.await.map_err(|_| self.source.ended())?
    }
}
