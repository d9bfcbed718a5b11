//! Snapshots: a fixed state of the database that can be read for any length of time.
//!
//! A snapshot is an interactive read-only transaction without time limits. Each read of the
//! snapshot is a step of that transaction.

use std::future::Future;
use std::sync::Arc;

use super::encode::encode_checked;
use super::error::{Misuse, Result};
use super::handle::Database;
use super::interactive::InteractiveTransaction;
use super::table::Table;
use super::transaction::Transaction;
use crate::log::Lsn;
use crate::types::{TableKey, Value};

/// The state of the database at one moment. Any thread can read it until this handle and all its
/// clones are dropped. Cloning is cheap. Concurrent reads of one snapshot take turns on one worker;
/// to read in parallel, take several snapshots.
///
/// While the snapshot is held, it has these costs:
///
/// - For each record that changes, one older version stays in memory or in the log, independent of
///   the number of changes. In paged tables, every version since the snapshot stays.
/// - Operations that wait for all open transactions also wait for the snapshot: creating and
///   dropping indexes, [`Database::drop_table`] and [`Database::compact`]. The log is not compacted
///   automatically.
/// - It counts as an interactive transaction ([`Tuning::max_open`](crate::Tuning::max_open)). The
///   limits [`Options::interactive_idle`](crate::Options::interactive_idle) and
///   [`Options::interactive_age`](crate::Options::interactive_age) do not apply.
///
/// ```
/// use braiddb::{Database, Error, Options, Table, block_on};
///
/// fn main() -> Result<(), Error> {
///     block_on(async {
///         let db = Database::in_memory(Options::default().workers(1))?;
///         let stock: Table<str, u64> = db.create_table("stock").await?;
///         db.put(&stock, "apples", &3).await?;
///         let snapshot = db.snapshot().await?;
///         db.put(&stock, "apples", &2).await?;
///         db.put(&stock, "pears", &5).await?;
///         assert_eq!(snapshot.get(&stock, "apples").await?, Some(3));
///         let table = stock.clone();
///         assert_eq!(snapshot.run(async move |tx| tx.count(&table, ..).await).await?, 1);
///         Ok(())
///     })
/// }
/// ```
#[derive(Clone, Debug)]
pub struct Snapshot {
    transaction: Arc<InteractiveTransaction>,
    lsn: Lsn,
}

impl Database {
    /// Takes a snapshot of the database. It contains everything committed before the call.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let db = Database::in_memory(Options::default().workers(1))?;
    ///         let stock: Table<str, u64> = db.create_table("stock").await?;
    ///         db.put(&stock, "nails", &7).await?;
    ///         let snapshot = db.snapshot().await?;
    ///         db.delete(&stock, "nails").await?;
    ///         assert_eq!(snapshot.get(&stock, "nails").await?, Some(7));
    ///         Ok(())
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`Database::begin`]; [`Misuse::NeedsReadValidation`](crate::Misuse) if
    /// transactions are validated by the serial safety net, which does not support snapshots.
    pub async fn snapshot(&self) -> Result<Snapshot> {
        self.refuse_snapshots()?;
        let (transaction, lsn) = self.begin_unlimited().await?;
        Ok(Snapshot { transaction: Arc::new(transaction), lsn })
    }

    /// Takes a snapshot that also shows records which have expired and were not deleted yet, for a
    /// complete copy of the database. [`Transaction::expires_at_ms`] returns their time, with which
    /// [`Transaction::put_until`] writes the copies. So the clock of the copy decides when it hides
    /// them, not that of this database.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use std::sync::atomic::{AtomicU64, Ordering};
    /// use std::time::{Duration, UNIX_EPOCH};
    ///
    /// use braiddb::{Database, Error, Options, Table, TableOptions, Tuning, WallClock, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let hours = Arc::new(AtomicU64::new(500_000));
    ///         let shown = hours.clone();
    ///         let clock = WallClock::new(move || {
    ///             UNIX_EPOCH + Duration::from_hours(shown.load(Ordering::SeqCst))
    ///         });
    ///         let options = Options::default().workers(1).tuning(Tuning::default().wall_clock(clock));
    ///         let db = Database::in_memory(options)?;
    ///         let day = TableOptions::default().ttl(Duration::from_hours(24));
    ///         let sessions: Table<str, u64> = db.create_table_with("sessions", day).await?;
    ///         db.put(&sessions, "ada", &7).await?;
    ///         hours.fetch_add(25, Ordering::SeqCst);
    ///         assert_eq!(db.snapshot().await?.get(&sessions, "ada").await?, None);
    ///         assert_eq!(db.snapshot_with_expired().await?.get(&sessions, "ada").await?, Some(7));
    ///         Ok(())
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`Database::snapshot`].
    pub async fn snapshot_with_expired(&self) -> Result<Snapshot> {
        let snapshot = self.snapshot().await?;
        let show_expired = async |tx: &Transaction| {
            tx.core().take_earliest_time();
            Ok(())
        };
        snapshot.run(show_expired).await?;
        Ok(snapshot)
    }
}

impl Database {
    /// Fails if the database does not support snapshots.
    pub(super) fn refuse_snapshots(&self) -> Result<()> {
        if self.shared.engine.certifies_by_safety_net() {
            return Err(Misuse::NeedsReadValidation { feature: "snapshots" }.into());
        }
        Ok(())
    }
}

impl Snapshot {
    /// Returns the snapshot's LSN: the snapshot contains exactly the commits before it.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let db = Database::in_memory(Options::default().workers(1))?;
    ///         let names: Table<u64, str> = db.create_table("names").await?;
    ///         let before = db.snapshot().await?;
    ///         db.put(&names, &1, "ada").await?;
    ///         let after = db.snapshot().await?;
    ///         assert!(before.lsn() < after.lsn());
    ///         Ok(())
    ///     })
    /// }
    /// ```
    pub fn lsn(&self) -> u64 {
        self.lsn.0
    }

    /// Runs `body` on the snapshot, once. Writes in it fail with [`Misuse::ReadOnlyTransaction`](crate::Misuse). If the future
    /// is dropped after its first poll, `body` still runs to its end, before later calls.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let db = Database::in_memory(Options::default().workers(1))?;
    ///         let stock: Table<str, u64> = db.create_table("stock").await?;
    ///         for (article, pieces) in [("nails", 7), ("screws", 5)] {
    ///             db.put(&stock, article, &pieces).await?;
    ///         }
    ///         let snapshot = db.snapshot().await?;
    ///         db.clear(&stock).await?;
    ///         let pieces = snapshot.run(async move |tx| {
    ///             let (mut scan, mut pieces) = (tx.scan(&stock, ..)?, 0);
    ///             while let Some((_article, more)) = scan.next().await? {
    ///                 pieces += more;
    ///             }
    ///             Ok(pieces)
    ///         });
    ///         assert_eq!(pieces.await?, 12);
    ///         Ok(())
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// The error of the closure; [`Error::Panicked`](crate::Error::Panicked) if it panicked, which ends the snapshot for
    /// all its users; [`Error::Conflict`](crate::Error::Conflict) for an index that was not complete at the moment of the
    /// snapshot; [`TransactionEnd::Finished`](crate::TransactionEnd) if the database was closed; the errors of
    /// [`InteractiveTransaction::step`].
    pub fn run<T, F>(&self, body: F) -> impl Future<Output = Result<T>> + Send + use<T, F>
    where
        F: AsyncFnOnce(&Transaction) -> Result<T> + Send + 'static,
        T: Send + 'static,
    {
        let transaction = self.transaction.clone();
        async move { transaction.step(body).await }
    }

    /// Returns the value of `key` in the snapshot.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let db = Database::in_memory(Options::default().workers(1))?;
    ///         let stock: Table<str, u64> = db.create_table("stock").await?;
    ///         db.put(&stock, "nails", &7).await?;
    ///         let snapshot = db.snapshot().await?;
    ///         db.put(&stock, "nails", &6).await?;
    ///         assert_eq!(snapshot.get(&stock, "nails").await?, Some(7));
    ///         assert_eq!(snapshot.get(&stock, "screws").await?, None);
    ///         Ok(())
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`Transaction::get`] and [`Snapshot::run`].
    pub fn get<K, V>(
        &self,
        table: &Table<K, V>,
        key: &K,
    ) -> impl Future<Output = Result<Option<V::Owned>>> + Send + use<K, V>
    where
        K: TableKey + ?Sized,
        V: Value + ?Sized,
    {
        let (transaction, table, key) =
            (self.transaction.clone(), table.stored(), encode_checked(key));
        async move {
            let key = key?;
            transaction.step(async move |tx: &Transaction| tx.get_owned(&table, &key).await).await
        }
    }
}
