//! Options of one transaction, and the builder through which callers set them. The methods that
//! start a transaction are in `run.rs`, `interactive.rs`, `bulk.rs` and `source.rs`.

use super::error::Error;
use super::handle::Database;
use crate::transaction::{Engine, Isolation, TransactionMode};

/// How the engine runs one transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TransactionOptions {
    /// At least 1.
    pub(super) max_attempts: u32,
    /// `None`: the isolation level of the database.
    pub(super) isolation: Option<Isolation>,
    pub(super) read_only: bool,
    pub(super) ending: Ending,
    /// The transaction may write although writes are restricted.
    pub(super) may_write: bool,
}

/// How the engine ends a transaction whose closure succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// It commits, and its result is returned once everything it depends on is durable.
    Durable,
    /// It commits, and its result is returned once the commit is decided.
    Visible,
    /// It aborts, and its result is returned immediately.
    Abort,
}

impl TransactionOptions {
    /// Options of the engine's own transactions.
    pub(super) const DEFAULT: Self = Self {
        max_attempts: 64,
        isolation: None,
        read_only: false,
        ending: Ending::Durable,
        may_write: true,
    };
    pub(super) const READ_ONLY: Self = Self { read_only: true, ..Self::DEFAULT };

    /// Returns the mode of a transaction that begins now.
    pub(super) fn mode(self, engine: &Engine) -> TransactionMode {
        // An executed transaction does not commit.
        let may_write = self.may_write || self.ending == Ending::Abort;
        match self.read_only {
            true => TransactionMode::ReadOnly,
            false if !may_write && engine.write_restriction.is_set() => TransactionMode::Restricted,
            false => self.isolation.unwrap_or(engine.isolation).into(),
        }
    }
}

/// Runs a transaction with an isolation level, a number of attempts, or read-only.
/// [`Database::transaction`] returns it.
///
/// The methods that run a closure return an [`Outcome`]: the closure's value, the number of
/// attempts and the commit LSN. A builder can be cloned and used again.
///
/// ```
/// use braiddb::{Database, Error, Isolation, Options, Table, block_on};
///
/// fn main() -> Result<(), Error> {
///     block_on(async {
///         let db = Database::in_memory(Options::default().workers(1))?;
///         let names: Table<u64, str> = db.create_table("names").await?;
///         let table = names.clone();
///         let outcome = db
///             .transaction()
///             .isolation(Isolation::Snapshot)
///             .max_attempts(5)
///             .run(async move |tx| tx.put(&table, &1, "ada").await)
///             .await?;
///         assert_eq!(outcome.attempts, 1);
///
///         let tx = db.transaction().read_only(true).begin().await?;
///         assert_eq!(tx.get(&names, &1).await?.as_deref(), Some("ada"));
///         Ok(())
///     })
/// }
/// ```
#[derive(Clone, Debug)]
#[must_use = "a builder starts no transaction; call `run` or `begin`"]
pub struct TransactionBuilder {
    pub(super) db: Database,
    pub(super) options: TransactionOptions,
}

impl Database {
    /// Returns a builder that sets the options of one transaction and then runs it.
    ///
    /// [`Database::run`], [`Database::try_run`], [`Database::run_blocking`], [`Database::begin`],
    /// [`Database::run_bulk`] and [`Database::run_source`] use the default options.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let db = Database::in_memory(Options::default().workers(1))?;
    ///         let names: Table<u64, str> = db.create_table("names").await?;
    ///         let count =
    ///             db.transaction().read_only(true).run(async move |tx| tx.count(&names, ..).await);
    ///         assert_eq!(count.await?.value, 0);
    ///         Ok(())
    ///     })
    /// }
    /// ```
    pub fn transaction(&self) -> TransactionBuilder {
        TransactionBuilder { db: self.clone(), options: self.options() }
    }

    /// Returns the options of this handle's transactions.
    pub(super) fn options(&self) -> TransactionOptions {
        TransactionOptions { may_write: self.may_write, ..TransactionOptions::DEFAULT }
    }
}

impl TransactionBuilder {
    /// Sets how often the closure may run when it meets conflicts; 0 counts as 1. Default: 64.
    ///
    /// The delay between attempts grows from the length of other transactions to a quarter of a
    /// second. 64 attempts take about six seconds if another transaction writes a record
    /// continuously. Interactive transactions, bulk operations and sources ignore this option.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let db = Database::in_memory(Options::default().workers(1))?;
    ///         let names: Table<str, u64> = db.create_table("names").await?;
    ///         let once = db.transaction().max_attempts(1);
    ///         let outcome = once.run(async move |tx| tx.put(&names, "ada", &7).await).await?;
    ///         assert_eq!(outcome.attempts, 1);
    ///         Ok(())
    ///     })
    /// }
    /// ```
    pub fn max_attempts(mut self, max_attempts: u32) -> Self {
        self.options.max_attempts = max_attempts.max(1);
        self
    }

    /// Sets the isolation level. Default: [`Options::isolation`](crate::Options::isolation).
    ///
    /// ```
    /// use braiddb::{Database, Error, Isolation, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let db = Database::in_memory(Options::default().workers(1))?;
    ///         let names: Table<str, u64> = db.create_table("names").await?;
    ///         let snapshot = db.transaction().isolation(Isolation::Snapshot);
    ///         snapshot.run(async move |tx| tx.put(&names, "ada", &7).await).await?;
    ///         Ok(())
    ///     })
    /// }
    /// ```
    pub fn isolation(mut self, isolation: Isolation) -> Self {
        self.options.isolation = Some(isolation);
        self
    }

    /// Sets whether the transaction only reads. Default: `false`.
    ///
    /// A read-only transaction never fails because of other transactions, and the engine does not
    /// track its reads. It is serializable under both isolation levels. Its writes fail with
    /// [`Misuse::ReadOnlyTransaction`](crate::Misuse).
    ///
    /// ```
    /// use braiddb::{Database, Error, Misuse, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let db = Database::in_memory(Options::default().workers(1))?;
    ///         let names: Table<str, u64> = db.create_table("names").await?;
    ///         let reading = db.transaction().read_only(true);
    ///         let put = reading.run(async move |tx| tx.put(&names, "ada", &7).await).await;
    ///         assert!(matches!(put, Err(Error::Misuse(Misuse::ReadOnlyTransaction))));
    ///         Ok(())
    ///     })
    /// }
    /// ```
    pub fn read_only(mut self, read_only: bool) -> Self {
        self.options.read_only = read_only;
        self
    }
}

/// A committed transaction: its value, its attempts and its position in the log.
/// [`TransactionBuilder::run`] returns it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Outcome<T> {
    /// The value that the closure returned.
    pub value: T,
    /// How often the closure ran: 1 without conflicts.
    pub attempts: u32,
    /// The LSN at which the transaction committed, or at which it read if it wrote nothing.
    pub commit_lsn: u64,
    /// The newest commit that the result depends on, its own included; 0 if none. Only known if
    /// the result was returned early.
    pub(super) depends_on: u64,
}

/// Cause of a failed transaction.
pub(super) enum TransactionFailure<E> {
    /// The closure returned this error.
    Closure(E),
    /// The engine failed the transaction.
    Engine(Error),
}

impl<E: From<Error>> TransactionFailure<E> {
    pub(super) fn into_error(self) -> E {
        match self {
            TransactionFailure::Closure(error) => error,
            TransactionFailure::Engine(error) => error.into(),
        }
    }
}
