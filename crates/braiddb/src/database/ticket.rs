//! Transactions whose results are returned before they are durable, and the wait for it.

use super::error::{Error, Result};
use super::handle::Database;
use super::transaction::Transaction;
use super::transaction_builder::{Ending, Outcome, TransactionBuilder, TransactionOptions};
use crate::log::Lsn;
use crate::transaction::{Durability, WorkerTransactions};

/// Waits until a result is durable that was returned early.
/// [`TransactionBuilder::run_visible`] and [`Database::execute`] return it.
///
/// The log is written in order. So if a ticket is durable, all tickets with a smaller LSN are. Other
/// commits that wait for the log, and any ticket that is awaited, make a worker write the log.
/// Without these, it is written when about a mebibyte has gathered, or when the database is closed.
///
/// A ticket keeps its database open.
///
/// ```
/// use braiddb::{Database, Error, Options, Table, block_on};
///
/// fn main() -> Result<(), Error> {
///     block_on(async {
///         let db = Database::in_memory(Options::default().workers(1))?;
///         let names: Table<u64, str> = db.create_table("names").await?;
///         let put = async move |tx: &braiddb::Transaction| tx.put(&names, &1, "ada").await;
///         let (outcome, ticket) = db.transaction().run_visible(put).await?;
///         assert_eq!(ticket.lsn(), outcome.commit_lsn);
///         if !ticket.is_durable() {
///             ticket.durable().await?;
///         }
///         Ok(())
///     })
/// }
/// ```
#[derive(Clone, Debug)]
#[must_use = "the result may be lost in a crash until the ticket is durable"]
pub struct Ticket {
    db: Database,
    lsn: Lsn,
}

impl Ticket {
    pub(super) fn new(db: Database, lsn: u64) -> Self {
        Self { db, lsn: Lsn(lsn) }
    }

    /// Returns the LSN of the newest commit that the result depends on: the transaction's own, or
    /// for a transaction that wrote nothing the newest one of which it saw a record. It is 0 if the
    /// result depends on no commit.
    pub fn lsn(&self) -> u64 {
        self.lsn.0
    }

    /// Returns whether the result is durable. Without a log
    /// ([`Durability::Volatile`](crate::Durability)) nothing is lost but with the process, and the
    /// result counts as durable.
    pub fn is_durable(&self) -> bool {
        let engine = &self.db.shared.engine;
        engine.durability == Durability::Volatile
            || self.lsn == Lsn::ZERO
            || self.lsn < engine.log.durable()
    }

    /// Waits until the result is durable. Returns immediately if it is, or if the result depends on
    /// nothing. The future may be dropped and called again.
    ///
    /// For an example see [`TransactionBuilder::run_visible`].
    ///
    /// # Errors
    /// [`Error::Io`] or another error of the log if it failed before: the result may be lost. The
    /// database then accepts no more commits. [`Error::Closed`] if the database is closed.
    pub async fn durable(&self) -> Result<()> {
        if self.is_durable() {
            return Ok(());
        }
        let lsn = self.lsn;
        self.db.on_worker(async move || WorkerTransactions::current().wait_durable(lsn).await).await
    }
}

impl TransactionBuilder {
    /// Runs `body` like [`TransactionBuilder::run`], but returns as soon as the transaction is
    /// committed and visible to others, without waiting until it is durable. The [`Ticket`] waits
    /// for that.
    ///
    /// Until then, a crash may lose the transaction, and all later ones, but never an earlier one
    /// alone. Do not report the result to clients that rely on durability before.
    /// [`Durability::Relaxed`](crate::Durability) does the same for all transactions of a database,
    /// without tickets. An error is returned only after everything it depends on is durable, as
    /// [`Database::run`] does.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let directory = tempfile::tempdir().unwrap();
    ///         let db = Database::open(directory.path(), Options::default().workers(1))?;
    ///         let names: Table<u64, str> = db.create_table("names").await?;
    ///         let table = names.clone();
    ///         let put = async move |tx: &braiddb::Transaction| tx.put(&table, &1, "ada").await;
    ///         let (outcome, ticket) = db.transaction().run_visible(put).await?;
    ///         // Other transactions see the record now, and it will survive a crash after this:
    ///         ticket.durable().await?;
    ///         assert!(ticket.is_durable() && ticket.lsn() == outcome.commit_lsn);
    ///         Ok(())
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`Database::run`], except [`Error::CommitUnknown`].
    pub fn run_visible<T, F>(
        self,
        body: F,
    ) -> impl Future<Output = Result<(Outcome<T>, Ticket)>> + Send + use<T, F>
    where
        F: AsyncFn(&Transaction) -> Result<T> + Send + 'static,
        T: Send + 'static,
    {
        self.try_run_visible(body)
    }

    /// Like [`TransactionBuilder::run_visible`], for a closure with its own error type; see
    /// [`Database::try_run`].
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let db = Database::in_memory(Options::default().workers(1))?;
    ///         let names: Table<u64, str> = db.create_table("names").await?;
    ///         let put = db.transaction().try_run_visible(async move |tx| {
    ///             anyhow::ensure!(!tx.contains(&names, &1).await?, "the person exists");
    ///             Ok(tx.put(&names, &1, "ada").await?)
    ///         });
    ///         let (_, ticket) = put.await.unwrap();
    ///         ticket.durable().await?;
    ///         Ok(())
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`TransactionBuilder::run_visible`].
    pub fn try_run_visible<T, E, F>(
        self,
        body: F,
    ) -> impl Future<Output = Result<(Outcome<T>, Ticket), E>> + Send + use<T, E, F>
    where
        F: AsyncFn(&Transaction) -> Result<T, E> + Send + 'static,
        T: Send + 'static,
        E: From<Error> + Send + 'static,
    {
        let Self { db, options } = self;
        let options = TransactionOptions { ending: Ending::Visible, ..options };
        let run = Self { db: db.clone(), options }.try_run(body);
        async move {
            let outcome = run.await?;
            let ticket = Ticket::new(db, outcome.depends_on);
            Ok((outcome, ticket))
        }
    }
}
