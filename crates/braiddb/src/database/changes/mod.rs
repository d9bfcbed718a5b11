//! Change feeds: what is committed, transaction by transaction, in the order of commits (`docs/changes.md`).
//!
//! | file | what it is |
//! |---|---|
//! | `feed` | the feed as its user polls it |
//! | `follow` | on a worker: from the log's blocks to transactions |
//! | `tables` | which number is which table, at a place in the log |
//! | `parts` | from where on the log is needed |
//! | `snapshot` | the records that a feed may begin with |
//! | `slots` | what keeps the log for a feed that is not there |
//! | `item`, `token`, `wanted` | what is given, where to go on, of which tables |

mod feed;
mod follow;
mod item;
mod parts;
mod slots;
mod snapshot;
mod tables;
mod token;
mod wanted;

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use feed::{Feed, Progress, Source, Stage};
use futures_core::Stream;
pub use item::{Change, ChangeKind, ChangeTransaction};
pub use slots::ChangeSlot;
pub(super) use slots::Slots;
pub use token::{ChangeToken, TokenError};
pub use wanted::FeedTable;
use wanted::Wanted;

use super::Database;
use super::error::{ChangesError, Error, Misuse, Result};
use super::unfold::unfold;
use crate::log::{LogFiles, LogFreed, LogHold, Lsn};
use crate::transaction::Engine;

/// Bytes of log that a feed without a slot holds at most, unless told otherwise.
const HELD_BYTES: u64 = 1 << 30;

/// Where a change feed begins.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChangesFrom {
    /// With what is committed after [`Database::changes`] was called.
    Now,
    /// After what the token says was given.
    Token(ChangeToken),
    /// With all records there are, and then what is committed after.
    Snapshot,
    /// Where the slot of this name is ([`Database::create_change_slot`]).
    Slot(String),
}

impl From<ChangeToken> for ChangesFrom {
    fn from(token: ChangeToken) -> Self {
        Self::Token(token)
    }
}

type Transactions = Pin<Box<dyn Stream<Item = Result<ChangeTransaction>> + Send>>;

/// A change feed: a stream of transactions. It ends with an error, after which nothing comes: [`Error::Closed`] when the
/// database is closed. Only after [`Error::Overloaded`] it goes on, when it is asked again: there was no room for the snapshot
/// that it is to begin with.
///
/// It can be polled on any executor. What waits for the next item may be given up at any moment, and nothing is lost or given
/// twice by it.
///
/// ```
/// use braiddb::changes::ChangesFrom;
/// use braiddb::{Database, Options, Table};
///
/// # pollster::block_on(async {
/// # let directory = tempfile::tempdir()?;
/// let db = Database::open(directory.path(), Options::default())?;
/// let cities: Table<str, u64> = db.create_table("cities").await?;
/// let mut changes = db.changes(ChangesFrom::Now).tables([&cities]).hold_at_most(64 << 20);
/// db.put(&cities, "Maribor", &96_211).await?;
/// let transaction = changes.next().await?.expect("a feed ends with an error");
/// assert_eq!(transaction.changes.len(), 1);
///
/// // Where the next feed is to go on, whatever this one was given last.
/// let token = changes.token().expect("something was given");
/// db.put(&cities, "Ljubljana", &285_604).await?;
/// let mut changes = db.changes(ChangesFrom::Token(token));
/// let transaction = changes.next().await?.expect("a feed ends with an error");
/// assert_eq!(transaction.changes[0].key_as::<str>()?, "Ljubljana");
/// # Ok::<_, Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
#[must_use = "a feed gives nothing unless it is polled"]
pub struct Changes {
    source: FeedState,
    progress: Progress,
}

enum FeedState {
    Begun(Box<Feed>),
    Running(Transactions),
    Failed(Error),
    Over,
}

impl Database {
    /// What is committed from some point on, as a stream of whole transactions in the order of their commits, each given
    /// once it is durable, whatever [`Durability`](crate::Durability) says.
    ///
    /// The feed holds the log that it has still to read, up to [`Changes::hold_at_most`], as long as it lives. To go on
    /// later, also in another process, keep the [`ChangeToken`] of what was done, and let a slot hold the log
    /// ([`Database::create_change_slot`]).
    ///
    /// With its first feed or slot a database becomes one of format version 3, which earlier builds do not open: this writes
    /// and syncs a small file, once.
    ///
    /// ```
    /// use braiddb::changes::{ChangeKind, ChangesFrom};
    /// use braiddb::{Database, Error, Options};
    ///
    /// # pollster::block_on(async {
    /// # let directory = tempfile::tempdir()?;
    /// let db = Database::open(directory.path(), Options::default())?;
    /// let cities = db.create_table::<str, u64>("cities").await?;
    /// let mut changes = db.changes(ChangesFrom::Now).tables(["cities"]);
    /// db.put(&cities, "Maribor", &96_211).await?;
    ///
    /// let transaction = changes.next().await?.expect("a feed ends with an error");
    /// let change = &transaction.changes[0];
    /// assert_eq!((&*change.table, &change.kind), ("cities", &ChangeKind::Insert));
    /// assert_eq!(change.key_as::<str>()?, "Maribor");
    /// assert_eq!(change.value_as::<u64>()?, 96_211);
    ///
    /// // Later, also after a restart.
    /// let token = transaction.token.expect("every commit has one").to_string();
    /// db.delete(&cities, "Maribor").await?;
    /// let mut changes = db.changes(ChangesFrom::Token(token.parse()?));
    /// let transaction = changes.next().await?.expect("a feed ends with an error");
    /// assert_eq!(transaction.changes[0].kind, ChangeKind::Delete);
    /// # Ok::<_, Box<dyn std::error::Error>>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// Of the stream: [`ChangesError::LogGone`](crate::ChangesError) if what it needs of the log was freed; [`ChangesError::Token`](crate::ChangesError);
    /// [`ChangesError::SlotNotFound`](crate::ChangesError); [`Misuse::NoLog`](crate::Misuse), and for a snapshot as
    /// [`Database::snapshot`], [`Error::Overloaded`] among it, which does not end the stream; [`Misuse::ReadOnlyDatabase`](crate::Misuse); [`Error::Closed`]; [`Error::Failed`]; [`Error::Io`]; [`Error::Corrupt`].
    pub fn changes(&self, from: ChangesFrom) -> Changes {
        let progress = Progress::default();
        let source = match self.begin_feed(&from, progress.clone()) {
            Ok(feed) => FeedState::Begun(Box::new(feed)),
            Err(error) => FeedState::Failed(error),
        };
        Changes { source, progress }
    }

    fn begin_feed(&self, from: &ChangesFrom, progress: Progress) -> Result<Feed> {
        let (engine, files) = (&self.shared.engine, self.followed_log()?);
        let (token, hold) = match from {
            ChangesFrom::Now | ChangesFrom::Snapshot => begin_now(engine, &files, HELD_BYTES),
            ChangesFrom::Token(token) => begin_at(engine, &files, *token, HELD_BYTES)?,
            ChangesFrom::Slot(name) => self.begin_at_slot(name, &files)?,
        };
        let stage = match from {
            ChangesFrom::Snapshot => {
                self.refuse_snapshots()?;
                Stage::BeforeSnapshot
            }
            _ => Stage::before_log(),
        };
        Ok(Feed {
            source: Source::new(self),
            token,
            hold: Arc::new(hold),
            wanted: Wanted::default(),
            progress,
            stage,
            ready: Default::default(),
        })
    }

    /// The token of a slot, and the log held from there on, as much of it as the slot holds at least.
    fn begin_at_slot(&self, name: &str, files: &LogFiles) -> Result<(ChangeToken, LogHold)> {
        let (engine, slots) = (&self.shared.engine, &self.shared.slots);
        loop {
            let (token, most) = slots.start(name, files)?;
            match begin_at(engine, files, token, most.max(HELD_BYTES)) {
                // It was advanced in between, and what it does not need any more is gone.
                Err(Error::Changes(ChangesError::LogGone { .. }))
                    if slots.start(name, files)?.0 != token => {}
                begun => return begun,
            }
        }
    }

    /// The files of a log that can be followed from now on.
    fn followed_log(&self) -> Result<LogFiles> {
        self.refuse_if_read_only()?;
        let engine = &self.shared.engine;
        let files = engine.log.files().ok_or(Misuse::NoLog)?;
        let _usable = engine.use_files().ok_or_else(|| self.ended())?;
        files.allow_moved()?;
        Ok(files)
    }
}

/// A token of this moment, and the log held from there on.
fn begin_now(engine: &Engine, files: &LogFiles, most: u64) -> (ChangeToken, LogHold) {
    loop {
        let follow_from = follow::sample(engine);
        // If transactions that were being logged in parts are over since, where they began may be freed.
        if let Ok(hold) = files.hold(follow_from.bound, most) {
            let (database, resume) = (files.database(), follow_from.bound);
            let token = ChangeToken { database, resume, given: resume, sum: 0 };
            return (token.given_before(follow_from.tail), hold);
        }
    }
}

/// The token, if it is good for this database, and the log held from there on.
fn begin_at(
    engine: &Engine,
    files: &LogFiles,
    token: ChangeToken,
    most: u64,
) -> Result<(ChangeToken, LogHold)> {
    check_token(engine, files, &token)?;
    match files.hold(token.resume, most) {
        Ok(hold) => Ok((token, hold)),
        Err(LogFreed { oldest }) => Err(Error::Changes(ChangesError::LogGone { oldest: oldest.0 })),
    }
}

fn check_token(engine: &Engine, files: &LogFiles, token: &ChangeToken) -> Result<(), TokenError> {
    if token.database != files.database() {
        return Err(TokenError::OtherDatabase);
    }
    let end = engine.log.tail();
    match token.resume.max(Lsn(token.given.0.saturating_add(1))) {
        Lsn(token) if token > end.0 => Err(TokenError::AheadOfLog { token, end: end.0 }),
        _ => Ok(()),
    }
}

impl Changes {
    /// Only the changes of these tables, by name or by handle; to be called before the feed is polled. Of a table that there is
    /// not, there are none until there is.
    ///
    /// ```
    /// # use braiddb::changes::ChangesFrom;
    /// # use braiddb::{Database, Error, Options, Table};
    /// # pollster::block_on(async {
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let db = Database::open(directory.path(), Options::default())?;
    /// let orders: Table<u64, str> = db.create_table("orders").await?;
    /// let by_name = db.changes(ChangesFrom::Snapshot).tables(&["orders", "customers"]);
    /// let by_handle = db.changes(ChangesFrom::Snapshot).tables([&orders]);
    /// # drop((by_name, by_handle));
    /// # Ok::<_, Error>(()) }).unwrap();
    /// ```
    pub fn tables<T: Into<FeedTable>>(mut self, tables: impl IntoIterator<Item = T>) -> Self {
        let mut tables = tables.into_iter().map(Into::into).peekable();
        if let FeedState::Begun(feed) = &mut self.source {
            if tables.peek().is_none() {
                feed.wanted = Wanted::none();
            }
            tables.for_each(|table| feed.wanted.add(table));
        }
        self
    }

    /// Bytes of log that the feed holds at most, from what it has to read next to the end; to be called before the feed is polled. Default:
    /// a gibibyte. A feed that is behind by more, and whose log is freed, ends with [`ChangesError::LogGone`](crate::ChangesError).
    ///
    /// ```
    /// # use braiddb::changes::ChangesFrom;
    /// # use braiddb::{Database, Error, Options, Table};
    /// # pollster::block_on(async {
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let db = Database::open(directory.path(), Options::default().workers(1))?;
    /// # let orders: Table<u64, str> = db.create_table("orders").await?;
    /// let mut changes = db.changes(ChangesFrom::Now).hold_at_most(64 << 20);
    /// db.put(&orders, &7, "nails").await?;
    /// assert!(changes.next().await?.is_some());
    /// # Ok::<_, Error>(()) }).unwrap();
    /// ```
    pub fn hold_at_most(self, bytes: u64) -> Self {
        if let FeedState::Begun(feed) = &self.source {
            feed.hold.set_max_bytes(bytes);
        }
        self
    }

    /// The next transaction. After the error with which the feed ends, `None`; after [`Error::Overloaded`] it goes on.
    ///
    /// If the future is dropped, nothing is lost: the next call gives what this one would have given.
    ///
    /// ```
    /// # use braiddb::changes::ChangesFrom;
    /// # use braiddb::{Database, Error, Options, Table};
    /// # pollster::block_on(async {
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let db = Database::open(directory.path(), Options::default().workers(1))?;
    /// # let orders: Table<u64, str> = db.create_table("orders").await?;
    /// let mut changes = db.changes(ChangesFrom::Now).tables([&orders]);
    /// db.put(&orders, &7, "nails").await?;
    /// let transaction = changes.next().await?.expect("a feed ends with an error");
    /// assert_eq!(transaction.changes.len(), 1);
    /// db.close()?;
    /// assert!(matches!(changes.next().await, Err(Error::Closed)));
    /// assert_eq!(changes.next().await?, None);
    /// # Ok::<_, Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// As [`Database::changes`].
    pub async fn next(&mut self) -> Result<Option<ChangeTransaction>> {
        std::future::poll_fn(|context| Pin::new(&mut *self).poll_next(context)).await.transpose()
    }

    /// Where a feed goes on that has what this one has given. While this one waits, that moves on past what it need not
    /// give: so that a slot can be advanced also where hardly anything is committed to the tables of the feed. `None` until
    /// something was given, or was waited for; and within a snapshot.
    ///
    /// ```
    /// # use braiddb::changes::ChangesFrom;
    /// # use braiddb::{Database, Error, Options, Table};
    /// # pollster::block_on(async {
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let db = Database::open(directory.path(), Options::default().workers(1))?;
    /// # let orders: Table<u64, str> = db.create_table("orders").await?;
    /// let mut changes = db.changes(ChangesFrom::Now).tables([&orders]);
    /// assert_eq!(changes.token(), None);
    /// db.put(&orders, &7, "nails").await?;
    /// changes.next().await?;
    /// let token = changes.token().expect("something was given");
    /// // Where this one goes on, another one does.
    /// let more = db.changes(ChangesFrom::Token(token)).tables([&orders]);
    /// # drop(more);
    /// # Ok::<_, Error>(()) }).unwrap();
    /// ```
    #[must_use]
    pub fn token(&self) -> Option<ChangeToken> {
        *self.progress.lock()
    }
}

impl Stream for Changes {
    type Item = Result<ChangeTransaction>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            match std::mem::replace(&mut self.source, FeedState::Over) {
                FeedState::Over => return Poll::Ready(None),
                FeedState::Failed(error) => return Poll::Ready(Some(Err(error))),
                FeedState::Begun(feed) => self.source = FeedState::Running(run(*feed)),
                FeedState::Running(mut transactions) => {
                    let next = transactions.as_mut().poll_next(context);
                    let over = |error: &Error| !matches!(error, Error::Overloaded);
                    if !matches!(&next, Poll::Ready(Some(Err(error))) if over(error)) {
                        self.source = FeedState::Running(transactions);
                    }
                    return next;
                }
            }
        }
    }
}

/// The feed as a stream, which ends with its first error that is not [`Error::Overloaded`].
fn run(feed: Feed) -> Transactions {
    Box::pin(unfold(feed, async |mut feed: Feed| {
        match feed.next().await {
            Ok(transaction) => Some((Ok(transaction), Some(feed))),
            // It is where it was.
            Err(Error::Overloaded) => Some((Err(Error::Overloaded), Some(feed))),
            Err(error) => Some((Err(error), None)),
        }
    }))
}

impl std::fmt::Debug for Changes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Changes({:?})", self.token())
    }
}
