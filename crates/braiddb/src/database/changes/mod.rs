//! Change feeds: committed transactions in commit order (`docs/changes.md`).
//!
//! | file | content |
//! |---|---|
//! | `feed` | the feed, as its user polls it |
//! | `follow` | the log follower on a worker: from log blocks to transactions |
//! | `tables` | the tables that exist at a position of the log |
//! | `parts` | the start of the log that is still needed |
//! | `past` | past transactions, without a feed |
//! | `snapshot` | the records that a feed may start with |
//! | `slots`, `slot_list` | named positions that hold the log for absent feeds |
//! | `item`, `token`, `table_selection` | returned items, resume points, selected tables |

mod feed;
mod follow;
mod item;
mod parts;
mod past;
mod pending;
mod slot_list;
mod slots;
mod snapshot;
mod table_selection;
mod tables;
mod token;

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use feed::{Feed, FeedDatabase, FeedStage, Progress};
use futures_core::Stream;
pub use item::{Change, ChangeKind, ChangeTransaction};
pub use past::PastChanges;
pub(super) use slot_list::Slots;
pub use slots::ChangeSlot;
pub use table_selection::FeedTable;
use table_selection::TableSelection;
pub use token::{ChangeToken, TokenError};

use super::error::{ChangesError, Error, Misuse, Result};
use super::handle::Database;
use super::unfold::unfold;
use crate::log::{LogFiles, LogFreed, LogHold, Lsn};
use crate::sched::BlockingProbe;
use crate::transaction::Engine;

/// Default limit of the log that a feed without a slot holds, in bytes.
const HELD_BYTES: u64 = 1 << 30;

/// The start of a change feed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChangesFrom {
    /// Starts with the first commit after the call of [`Database::changes`].
    Now,
    /// Resumes after the transactions covered by the token.
    Token(ChangeToken),
    /// Starts with all existing records, followed by all later commits.
    Snapshot,
    /// Starts at the position of the slot of this name ([`Database::create_change_slot`]).
    Slot(String),
}

impl From<ChangeToken> for ChangesFrom {
    fn from(token: ChangeToken) -> Self {
        Self::Token(token)
    }
}

type Transactions = Pin<Box<dyn Stream<Item = Result<ChangeTransaction>> + Send>>;

/// A change feed: a stream of transactions. An error ends the stream; closing the database ends it
/// with [`Error::Closed`]. [`Error::Overloaded`] is the exception: memory did not suffice for the
/// initial snapshot, and the stream continues when polled again.
///
/// Any executor can poll it. Dropping a future that waits for the next item is safe at any time: no
/// item is lost or repeated.
///
/// ```
/// use braiddb::changes::ChangesFrom;
/// use braiddb::{Database, Options, Table, block_on};
///
/// fn main() -> Result<(), Box<dyn std::error::Error>> {
///     block_on(async {
///         let directory = tempfile::tempdir()?;
///         let db = Database::open(directory.path(), Options::default())?;
///         let cities: Table<str, u64> = db.create_table("cities").await?;
///         let mut changes = db.changes(ChangesFrom::Now).tables([&cities]).hold_at_most(64 << 20);
///         db.put(&cities, "Maribor", &96_211).await?;
///         let transaction = changes.next().await?.expect("a feed ends with an error");
///         assert_eq!(transaction.changes.len(), 1);
///
///         // The resume point for the next feed.
///         let token = changes.token().expect("something was given");
///         db.put(&cities, "Ljubljana", &285_604).await?;
///         let mut changes = db.changes(ChangesFrom::Token(token));
///         let transaction = changes.next().await?.expect("a feed ends with an error");
///         assert_eq!(transaction.changes[0].key_as::<str>()?, "Ljubljana");
///         Ok(())
///     })
/// }
/// ```
#[must_use = "a feed does nothing unless it is polled"]
pub struct Changes {
    source: FeedState,
    probe: BlockingProbe,
    progress: Progress,
}

enum FeedState {
    Begun(Box<Feed>),
    Running(Transactions),
    Failed(Error),
    Over,
}

impl Database {
    /// Returns a change feed: a stream of whole transactions in commit order, starting at `from`.
    /// Each transaction is returned once it is durable, with every setting of
    /// [`Durability`](crate::Durability).
    ///
    /// While it exists, the feed holds the log that it has yet to read, up to
    /// [`Changes::hold_at_most`]. To resume later, also in another process, store the
    /// [`ChangeToken`] of the processed transactions, and create a slot that holds the log
    /// ([`Database::create_change_slot`]).
    ///
    /// The first feed or slot upgrades a database to format version 3, which earlier builds do not
    /// open. The upgrade writes and syncs one small file.
    ///
    /// ```
    /// use braiddb::changes::{ChangeKind, ChangesFrom};
    /// use braiddb::{Database, Options, block_on};
    ///
    /// fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     block_on(async {
    ///         let directory = tempfile::tempdir()?;
    ///         let db = Database::open(directory.path(), Options::default())?;
    ///         let cities = db.create_table::<str, u64>("cities").await?;
    ///         let mut changes = db.changes(ChangesFrom::Now).tables(["cities"]);
    ///         db.put(&cities, "Maribor", &96_211).await?;
    ///
    ///         let transaction = changes.next().await?.expect("a feed ends with an error");
    ///         let change = &transaction.changes[0];
    ///         assert_eq!((&*change.table, &change.kind), ("cities", &ChangeKind::Insert));
    ///         assert_eq!(change.key_as::<str>()?, "Maribor");
    ///         assert_eq!(change.value_as::<u64>()?, 96_211);
    ///
    ///         // Resumes later, also after a restart.
    ///         let token = transaction.token.expect("every commit has one").to_string();
    ///         db.delete(&cities, "Maribor").await?;
    ///         let mut changes = db.changes(ChangesFrom::Token(token.parse()?));
    ///         let transaction = changes.next().await?.expect("a feed ends with an error");
    ///         assert_eq!(transaction.changes[0].kind, ChangeKind::Delete);
    ///         Ok(())
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// The stream returns these errors:
    ///
    /// - [`ChangesError::LogGone`](crate::ChangesError) if the log that it needs was freed
    /// - [`ChangesError::Token`](crate::ChangesError) if the token is not valid for this database
    /// - [`ChangesError::SlotNotFound`](crate::ChangesError)
    /// - [`Misuse::NoLog`](crate::Misuse) if the database has no log
    /// - for a snapshot, the errors of [`Database::snapshot`]; [`Error::Overloaded`] does not end
    ///   the stream
    /// - [`Misuse::ReadOnlyDatabase`](crate::Misuse), [`Error::Closed`], [`Error::Failed`], [`Error::Io`]
    pub fn changes(&self, from: ChangesFrom) -> Changes {
        let progress = Progress::default();
        let source = match self.begin_feed(&from, progress.clone()) {
            Ok(feed) => FeedState::Begun(Box::new(feed)),
            Err(error) => FeedState::Failed(error),
        };
        Changes { source, probe: self.shared.workers.probe(), progress }
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
                FeedStage::BeforeSnapshot
            }
            _ => FeedStage::before_log(),
        };
        Ok(Feed {
            database: FeedDatabase::new(self),
            token,
            hold: Arc::new(hold),
            selection: TableSelection::default(),
            progress,
            stage,
            ready: Default::default(),
        })
    }

    /// Returns the token of a slot, and a hold on the log from there, of at least the slot's size.
    fn begin_at_slot(&self, name: &str, files: &LogFiles) -> Result<(ChangeToken, LogHold)> {
        let (engine, slots) = (&self.shared.engine, &self.shared.slots);
        loop {
            let (token, most) = slots.start(name, files)?;
            match begin_at(engine, files, token, most.max(HELD_BYTES)) {
                // The slot was advanced in between, and the log that it no longer needs was freed.
                Err(Error::Changes(ChangesError::LogGone { .. }))
                    if slots.start(name, files)?.0 != token => {}
                begun => return begun,
            }
        }
    }

    /// Returns the log files, prepared for change feeds.
    fn followed_log(&self) -> Result<LogFiles> {
        self.refuse_if_read_only()?;
        let engine = &self.shared.engine;
        let files = engine.log.files().ok_or(Misuse::NoLog)?;
        let _usable = engine.use_files().ok_or_else(|| self.ended())?;
        files.allow_moved()?;
        Ok(files)
    }
}

/// Returns a token of the current position, and a hold on the log from there.
fn begin_now(engine: &Engine, files: &LogFiles, most: u64) -> (ChangeToken, LogHold) {
    loop {
        let follow_from = follow::sample(engine);
        // If transactions that were being logged in parts have ended since, the log at their start
        // may already be freed.
        if let Ok(hold) = files.hold(follow_from.bound, most) {
            let (database, resume) = (files.database(), follow_from.bound);
            let token = ChangeToken { database, resume, given: resume, sum: 0 };
            return (token.given_before(follow_from.tail), hold);
        }
    }
}

/// Returns the token if it is valid for this database, and a hold on the log from there.
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
    /// Restricts the feed to these tables, by name or by handle. Call this before the first poll. A
    /// table that does not exist yet has changes only after its creation.
    ///
    /// ```
    /// use braiddb::changes::ChangesFrom;
    /// use braiddb::{Database, Error, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let directory = tempfile::tempdir().unwrap();
    ///         let db = Database::open(directory.path(), Options::default())?;
    ///         let orders: Table<u64, str> = db.create_table("orders").await?;
    ///         let by_name = db.changes(ChangesFrom::Snapshot).tables(&["orders", "customers"]);
    ///         let by_handle = db.changes(ChangesFrom::Snapshot).tables([&orders]);
    ///         assert!(by_name.token().is_none() && by_handle.token().is_none());
    ///         Ok(())
    ///     })
    /// }
    /// ```
    pub fn tables<T: Into<FeedTable>>(mut self, tables: impl IntoIterator<Item = T>) -> Self {
        let mut tables = tables.into_iter().map(Into::into).peekable();
        if let FeedState::Begun(feed) = &mut self.source {
            if tables.peek().is_none() {
                feed.selection = TableSelection::none();
            }
            tables.for_each(|table| feed.selection.add(table));
        }
        self
    }

    /// Sets the maximum size of the log that the feed holds, in bytes, from its next read position
    /// to the log tail. Call this before the first poll. Default: one gibibyte. A feed that falls
    /// further behind ends with [`ChangesError::LogGone`](crate::ChangesError) once the log is freed.
    ///
    /// ```
    /// use braiddb::changes::ChangesFrom;
    /// use braiddb::{Database, Error, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let directory = tempfile::tempdir().unwrap();
    ///         let db = Database::open(directory.path(), Options::default().workers(1))?;
    ///         let orders: Table<u64, str> = db.create_table("orders").await?;
    ///         let mut changes = db.changes(ChangesFrom::Now).hold_at_most(64 << 20);
    ///         db.put(&orders, &7, "nails").await?;
    ///         assert!(changes.next().await?.is_some());
    ///         Ok(())
    ///     })
    /// }
    /// ```
    pub fn hold_at_most(self, bytes: u64) -> Self {
        if let FeedState::Begun(feed) = &self.source {
            feed.hold.set_max_bytes(bytes);
        }
        self
    }

    /// Returns the next transaction. Returns `None` after the error that ended the feed. After
    /// [`Error::Overloaded`] and [`Misuse::WouldBlock`] the feed can be polled again.
    ///
    /// Dropping the future loses nothing: the next call returns the same item.
    ///
    /// ```
    /// use braiddb::changes::ChangesFrom;
    /// use braiddb::{Database, Error, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let directory = tempfile::tempdir().unwrap();
    ///         let db = Database::open(directory.path(), Options::default().workers(1))?;
    ///         let orders: Table<u64, str> = db.create_table("orders").await?;
    ///         let mut changes = db.changes(ChangesFrom::Now).tables([&orders]);
    ///         db.put(&orders, &7, "nails").await?;
    ///         let transaction = changes.next().await?.expect("a feed ends with an error");
    ///         assert_eq!(transaction.changes.len(), 1);
    ///         db.close()?;
    ///         assert!(matches!(changes.next().await, Err(Error::Closed)));
    ///         assert_eq!(changes.next().await?, None);
    ///         Ok(())
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`Database::changes`].
    pub async fn next(&mut self) -> Result<Option<ChangeTransaction>> {
        std::future::poll_fn(|context| Pin::new(&mut *self).poll_next(context)).await.transpose()
    }

    /// Returns the resume point after all items returned so far. While the feed waits, the resume
    /// point moves past commits to other tables. A slot can therefore be advanced even if the
    /// feed's tables rarely change. Returns `None` within a snapshot, and before the feed has
    /// returned an item or waited for one.
    ///
    /// ```
    /// use braiddb::changes::ChangesFrom;
    /// use braiddb::{Database, Error, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let directory = tempfile::tempdir().unwrap();
    ///         let db = Database::open(directory.path(), Options::default().workers(1))?;
    ///         let orders: Table<u64, str> = db.create_table("orders").await?;
    ///         let mut changes = db.changes(ChangesFrom::Now).tables([&orders]);
    ///         assert_eq!(changes.token(), None);
    ///         db.put(&orders, &7, "nails").await?;
    ///         changes.next().await?;
    ///         let token = changes.token().expect("something was given");
    ///         // Another feed continues from the same point.
    ///         let mut more = db.changes(ChangesFrom::Token(token)).tables([&orders]);
    ///         db.put(&orders, &8, "screws").await?;
    ///         assert_eq!(more.next().await?.expect("a change").changes[0].key_as::<u64>()?, 8);
    ///         Ok(())
    ///     })
    /// }
    /// ```
    #[must_use]
    pub fn token(&self) -> Option<ChangeToken> {
        *self.progress.lock()
    }
}

impl Stream for Changes {
    type Item = Result<ChangeTransaction>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if std::task::ready!(self.probe.before_poll(context)).is_err() {
            return Poll::Ready(Some(Err(Error::Misuse(Misuse::WouldBlock))));
        }
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

/// Returns the feed as a stream that ends with its first error except [`Error::Overloaded`].
fn run(feed: Feed) -> Transactions {
    Box::pin(unfold(feed, async |mut feed: Feed| {
        match feed.next().await {
            Ok(transaction) => Some((Ok(transaction), Some(feed))),
            // The feed keeps its position.
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
