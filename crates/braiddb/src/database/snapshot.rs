//! Snapshots: the database as it was at one moment, for as long as they are held.
//!
//! A snapshot is an interactive transaction that only reads and has no limits of time: whatever reads the
//! snapshot is one of its steps.

use std::future::Future;
use std::sync::Arc;

use super::Database;
use super::error::{Misuse, Result};
use super::interactive::InteractiveTransaction;
use super::table::Table;
use super::transaction::{Transaction, encode_checked};
use crate::log::Lsn;
use crate::types::{TableKey, Value};

/// The database as it was at one moment, to be read from any thread for as long as this or a clone of it is held.
/// Cheap to clone. Those who read one snapshot at a time take turns, on one worker; what is to be read side by
/// side takes a snapshot each.
///
/// What it costs: of each record that is changed or deleted since, one older version stays in memory or
/// in the log until the snapshot is dropped, however often the record changes; in paged tables, every version
/// since. What waits for all open transactions waits for it: creating and dropping indexes,
/// [`Database::drop_table`], [`Database::compact`]; and the log's segments are not compacted by themselves
/// meanwhile. It counts as an interactive transaction ([`Tuning::max_open`](crate::Tuning)), but
/// neither [`Options::interactive_idle`](crate::Options::interactive_idle) nor
/// [`Options::interactive_age`](crate::Options::interactive_age) ends it.
///
/// ```
/// # use braiddb::{Database, Error, Options, Table};
/// # pollster::block_on(async {
/// let db = Database::in_memory(Options::default().workers(1))?;
/// let stock: Table<str, u64> = db.create_table("stock").await?;
/// db.put(&stock, "apples", &3).await?;
/// let snapshot = db.snapshot().await?;
/// db.put(&stock, "apples", &2).await?;
/// db.put(&stock, "pears", &5).await?;
/// assert_eq!(snapshot.get(&stock, "apples").await?, Some(3));
/// let table = stock.clone();
/// assert_eq!(snapshot.run(async move |tx| tx.count(&table, ..).await).await?, 1);
/// # Ok::<_, Error>(()) }).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct Snapshot {
    transaction: Arc<InteractiveTransaction>,
    lsn: Lsn,
}

impl Database {
    /// The database as it is now, to be read later: what is committed when this is called is in it.
    ///
    /// ```
    /// # use braiddb::{Database, Error, Options, Table};
    /// # pollster::block_on(async {
    /// # let db = Database::in_memory(Options::default().workers(1))?;
    /// let stock: Table<str, u64> = db.create_table("stock").await?;
    /// db.put(&stock, "nails", &7).await?;
    /// let snapshot = db.snapshot().await?;
    /// db.delete(&stock, "nails").await?;
    /// assert_eq!(snapshot.get(&stock, "nails").await?, Some(7));
    /// # Ok::<_, Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// As [`Database::begin`]; [`Misuse::NeedsReadValidation`] where
    /// [`Certifier::SerialSafetyNet`](crate::Certifier) certifies, whose serial order has no snapshots.
    pub async fn snapshot(&self) -> Result<Snapshot> {
        self.refuse_snapshots()?;
        let (transaction, lsn) = self.begin_unlimited().await?;
        Ok(Snapshot { transaction: Arc::new(transaction), lsn })
    }
}

impl Database {
    /// Refuses snapshots if the serial safety net certifies: its serial order has none.
    pub(super) fn refuse_snapshots(&self) -> Result<()> {
        if self.shared.engine.certifies_by_safety_net() {
            return Err(Misuse::NeedsReadValidation { feature: "snapshots" }.into());
        }
        Ok(())
    }
}

impl Snapshot {
    /// What was committed before this LSN is in the snapshot, and nothing else.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table};
    ///
    /// # pollster::block_on(async {
    /// let db = Database::in_memory(Options::default().workers(1))?;
    /// let names: Table<u64, str> = db.create_table("names").await?;
    /// let before = db.snapshot().await?;
    /// db.put(&names, &1, "ada").await?;
    /// let after = db.snapshot().await?;
    /// assert!(before.lsn() < after.lsn());
    /// # Ok::<_, Error>(()) }).unwrap();
    /// ```
    pub fn lsn(&self) -> u64 {
        self.lsn.0
    }

    /// Runs `body` on the snapshot, once. Writes in it fail with [`Misuse::ReadOnlyTransaction`](crate::Misuse). If the future is dropped
    /// after its first poll, `body` runs to its end all the same, before those that come after it.
    ///
    /// ```
    /// # use braiddb::{Database, Error, Options, Table};
    /// # pollster::block_on(async {
    /// # let db = Database::in_memory(Options::default().workers(1))?;
    /// # let stock: Table<str, u64> = db.create_table("stock").await?;
    /// for (article, pieces) in [("nails", 7), ("screws", 5)] {
    ///     db.put(&stock, article, &pieces).await?;
    /// }
    /// let snapshot = db.snapshot().await?;
    /// db.clear(&stock).await?;
    /// let pieces = snapshot.run(async move |tx| {
    ///     let (mut scan, mut pieces) = (tx.scan(&stock, ..)?, 0);
    ///     while let Some((_article, more)) = scan.next().await? {
    ///         pieces += more;
    ///     }
    ///     Ok(pieces)
    /// });
    /// assert_eq!(pieces.await?, 12);
    /// # Ok::<_, Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// The closure's; [`Error::Panicked`](crate::Error) if it panicked, which ends the snapshot for all; [`Error::Conflict`](crate::Error) for
    /// an index that was not built yet at the moment of the snapshot; [`TransactionEnd::Finished`](crate::TransactionEnd) when the database
    /// was closed; as [`InteractiveTransaction::step`].
    pub fn run<T, F>(&self, body: F) -> impl Future<Output = Result<T>> + Send + use<T, F>
    where
        F: AsyncFnOnce(&Transaction) -> Result<T> + Send + 'static,
        T: Send + 'static,
    {
        let transaction = self.transaction.clone();
        async move { transaction.step(body).await }
    }

    /// The value of `key` in the snapshot.
    ///
    /// ```
    /// # use braiddb::{Database, Error, Options, Table};
    /// # pollster::block_on(async {
    /// # let db = Database::in_memory(Options::default().workers(1))?;
    /// # let stock: Table<str, u64> = db.create_table("stock").await?;
    /// db.put(&stock, "nails", &7).await?;
    /// let snapshot = db.snapshot().await?;
    /// db.put(&stock, "nails", &6).await?;
    /// assert_eq!(snapshot.get(&stock, "nails").await?, Some(7));
    /// assert_eq!(snapshot.get(&stock, "screws").await?, None);
    /// # Ok::<_, Error>(()) }).unwrap();
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
