//! Snapshots: the database as it was at one moment, for as long as they are held.
//!
//! A snapshot is held by a transaction that does nothing: its begin stamp keeps the versions that the snapshot
//! sees. Whatever reads the snapshot is a transaction of its own, on any worker, that looks for versions by
//! that stamp.

use std::future::Future;
use std::sync::Arc;

use super::Database;
use super::error::{Error, Result};
use super::interactive::InteractiveTransaction;
use super::options::RunOptions;
use super::table::Table;
use super::transaction::{Transaction, encode_checked};
use crate::log::Lsn;
use crate::types::{Key, Value};

/// The database as it was at one moment, to be read from any thread, side by side, for as long as this or a clone
/// of it is held. Cheap to clone.
///
/// What it costs: of each record that is changed or deleted since, one older version stays in memory or
/// in the log until the snapshot is dropped, however often the record changes. Dropping and building
/// indexes, [`Database::drop_table`] and [`Database::compact`] wait for it, as they wait for all that is open.
/// It counts as an open transaction ([`Options::max_open`](crate::Options::max_open)), but neither
/// [`Options::interactive_idle`](crate::Options::interactive_idle) nor
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
    db: Database,
    lsn: Lsn,
    /// Keeps what the snapshot sees. Also held by each transaction that reads.
    holder: Arc<InteractiveTransaction>,
}

impl Database {
    /// The database as it is now, to be read later: what is committed when this is called is in it.
    ///
    /// # Errors
    /// As [`Database::begin`]; [`Error::Options`] where
    /// [`Certifier::SerialSafetyNet`](crate::Certifier) certifies, whose serial order has no snapshots.
    pub async fn snapshot(&self) -> Result<Snapshot> {
        if self.shared.engine.certifies_by_safety_net() {
            let message = "snapshots are for databases that certify by read validation";
            return Err(Error::Options(message.to_owned()));
        }
        let (holder, lsn) = self.begin_unlimited().await?;
        Ok(Snapshot { db: self.clone(), lsn, holder: Arc::new(holder) })
    }
}

impl Snapshot {
    /// What was committed before this LSN is in the snapshot, and nothing else.
    pub fn lsn(&self) -> u64 {
        self.lsn.0
    }

    /// Runs `body` as a transaction that reads the snapshot, on some worker; several may run side by side.
    /// Writes in it fail with [`Error::ReadOnly`].
    ///
    /// # Errors
    /// The closure's; [`Error::Conflict`] for an index that was not built yet at the moment of the snapshot; as
    /// [`Database::run`].
    pub fn run<T, F>(&self, body: F) -> impl Future<Output = Result<T>> + Send + use<T, F>
    where
        F: AsyncFn(&Transaction) -> Result<T> + Send + 'static,
        T: Send + 'static,
    {
        let (db, lsn, holder) = (self.db.clone(), self.lsn, self.holder.clone());
        async move {
            // It would not go better a second time.
            let options = RunOptions::default().read_only(true).max_attempts(1);
            let body = async move |tx: &Transaction| {
                // Held until this transaction is over: the closure outlives it.
                let _held = &holder;
                tx.core().read_as_of(lsn);
                body(tx).await
            };
            Ok(db.run_with(options, body).await?.value)
        }
    }

    /// The value of `key` in the snapshot.
    ///
    /// # Errors
    /// As [`Transaction::get`] and [`Snapshot::run`].
    pub fn get<K, V>(
        &self,
        table: &Table<K, V>,
        key: &K,
    ) -> impl Future<Output = Result<Option<V::Owned>>> + Send + use<K, V>
    where
        K: Key + ?Sized,
        V: Value + ?Sized,
    {
        let (snapshot, table, key) = (self.clone(), table.clone(), encode_checked(key));
        async move {
            let key = key?;
            snapshot.run(async move |tx: &Transaction| tx.get_owned(&table, &key).await).await
        }
    }
}
