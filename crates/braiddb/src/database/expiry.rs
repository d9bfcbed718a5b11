//! Public operations on records that expire.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::blocking::refuse_on_worker;
use super::encode::{encode, encode_for};
use super::error::{Misuse, Result};
use super::handle::Database;
use super::table::Table;
use super::transaction::Transaction;
use crate::record::Records;
use crate::sched::engine_code;
use crate::transaction::{ExpiryRule, WriteIntent, sweep_now};
use crate::types::{TableKey, Value};

impl Transaction {
    /// Works like [`Transaction::put`], with a lifetime for this record. The table must have been
    /// created with a lifetime ([`TableOptions::ttl`](crate::TableOptions::ttl)). The record
    /// expires `ttl` after the transaction's time; the next write sets a new lifetime. The minimum
    /// is one millisecond. A lifetime beyond the range of the clock never ends.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use braiddb::{Database, Error, Options, Table, TableOptions};
    ///
    /// fn main() -> Result<(), Error> {
    ///     let db = Database::in_memory(Options::default().workers(1))?;
    ///     let left = db.run_blocking(async |tx| {
    ///         let day = TableOptions::default().ttl(Duration::from_hours(24));
    ///         let sessions: Table<str, u64> = tx.create_table_with("sessions", day).await?;
    ///         tx.put_with_ttl(&sessions, "guest", &7, Duration::from_mins(5)).await?;
    ///         let expiry = tx.expires_at(&sessions, "guest").await?.expect("just written");
    ///         Ok(expiry.duration_since(std::time::SystemTime::now()).unwrap_or_default())
    ///     })?;
    ///     assert!(left <= Duration::from_mins(5));
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// [`Misuse::NotExpiring`](crate::Misuse) if the table's records do not expire; the errors of [`Transaction::put`].
    pub async fn put_with_ttl<K, V>(
        &self,
        table: &Table<K, V>,
        key: &K,
        value: &V::Input,
        ttl: Duration,
    ) -> Result<()>
    where
        K: TableKey + ?Sized,
        V: Value + ?Sized,
    {
        let (records, value) = (self.expiring(table)?, V::encode(value)?);
        let lifetime_ms = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX).max(1);
        let (key, intent) = (encode(key), WriteIntent::Put(&value));
        let rule = ExpiryRule::Lifetime(lifetime_ms);
        engine_code(self.core().write(records, &key, intent, Some(rule))).await?;
        Ok(())
    }

    /// Works like [`Transaction::put`], for a copy of a record that expires at a given time, in
    /// milliseconds since 1970. [`Transaction::expires_at_ms`] returns that of the original.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use braiddb::{Database, Error, Options, Table, TableOptions, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let db = Database::in_memory(Options::default().workers(1))?;
    ///         let options = TableOptions::default().ttl(Duration::from_hours(1));
    ///         let sessions: Table<str, u64> = db.create_table_with("sessions", options).await?;
    ///         let copies: Table<str, u64> = db.create_table_with("copies", options).await?;
    ///         db.put(&sessions, "ada", &7).await?;
    ///         db.run(async move |tx| {
    ///             let expiry = tx.expires_at_ms(&sessions, "ada").await?.expect("just written");
    ///             tx.put_until(&copies, "ada", &7, expiry).await?;
    ///             assert_eq!(tx.expires_at_ms(&copies, "ada").await?, Some(expiry));
    ///             Ok(())
    ///         })
    ///         .await?;
    ///         Ok(())
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`Transaction::put_with_ttl`].
    pub async fn put_until<K, V>(
        &self,
        table: &Table<K, V>,
        key: &K,
        value: &V::Input,
        expires_at_ms: u64,
    ) -> Result<()>
    where
        K: TableKey + ?Sized,
        V: Value + ?Sized,
    {
        let (records, value) = (self.expiring(table)?, V::encode(value)?);
        let (key, intent) = (encode(key), WriteIntent::Put(&value));
        let rule = ExpiryRule::Applied { expiry: expires_at_ms, now: self.core().time() };
        engine_code(self.core().write(records, &key, intent, Some(rule))).await?;
        Ok(())
    }

    /// Returns the time at which a record expires in milliseconds since 1970, or `None` if the
    /// record does not exist. See [`Transaction::put_until`].
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use braiddb::{Database, Error, Options, Table, TableOptions, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let db = Database::in_memory(Options::default().workers(1))?;
    ///         let options = TableOptions::default().ttl(Duration::from_hours(1));
    ///         let sessions: Table<str, u64> = db.create_table_with("sessions", options).await?;
    ///         let absent = db.run(async move |tx| tx.expires_at_ms(&sessions, "ada").await);
    ///         assert_eq!(absent.await?, None);
    ///         Ok(())
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`Transaction::expires_at`].
    pub async fn expires_at_ms<K, V>(&self, table: &Table<K, V>, key: &K) -> Result<Option<u64>>
    where
        K: TableKey + ?Sized,
        V: Value + ?Sized,
    {
        let records = self.expiring(table)?;
        let key = encode_for(records, key)?;
        Ok(engine_code(self.core().expiry_of(records, &key)).await?)
    }

    /// Returns the time at which a record expires, or `None` if the record does not exist. The
    /// table must have been created with a lifetime
    /// ([`TableOptions::ttl`](crate::TableOptions::ttl)).
    ///
    /// ```
    /// use std::time::{Duration, SystemTime};
    ///
    /// use braiddb::{Database, Error, Options, Table, TableOptions, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let db = Database::in_memory(Options::default().workers(1))?;
    ///         let options = TableOptions::default().ttl(Duration::from_hours(1));
    ///         let sessions: Table<str, str> = db.create_table_with("sessions", options).await?;
    ///         let expires_at = db
    ///             .run(async move |tx| {
    ///                 tx.put(&sessions, "ada", "signed in").await?;
    ///                 tx.expires_at(&sessions, "ada").await
    ///             })
    ///             .await?;
    ///         assert!(expires_at > Some(SystemTime::now()));
    ///         Ok(())
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// [`Misuse::NotExpiring`](crate::Misuse) if the table's records do not expire; the errors of [`Transaction::get`].
    pub async fn expires_at<K, V>(&self, table: &Table<K, V>, key: &K) -> Result<Option<SystemTime>>
    where
        K: TableKey + ?Sized,
        V: Value + ?Sized,
    {
        Ok(self.expires_at_ms(table, key).await?.map(moment))
    }

    fn expiring<'t, K, V>(&self, table: &'t Table<K, V>) -> Result<&'t Records>
    where
        K: TableKey + ?Sized,
        V: Value + ?Sized,
    {
        let records = self.records(table)?;
        if records.expires() {
            return Ok(records);
        }
        Err(Misuse::NotExpiring(table.name().to_owned()).into())
    }
}

impl Database {
    /// Deletes expired records immediately, instead of waiting for the workers
    /// ([`TableOptions::ttl`](crate::TableOptions::ttl)), and returns their number. Query results
    /// do not change, because expired records are invisible. Use it to free space, for example
    /// before a backup.
    ///
    /// Some expired records may remain: records that other transactions write at the same time,
    /// records of tables with detached indexes, and records whose index keys cannot be computed,
    /// for example because the index function panics. If the future is dropped, the sweep
    /// continues.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let db = Database::in_memory(Options::default().workers(1))?;
    ///         assert_eq!(db.sweep_expired().await?, 0);
    ///         Ok(())
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// [`Misuse::WouldBlock`](crate::Misuse) if called within a transaction, with which it might conflict; the
    /// errors of [`Database::run`].
    pub async fn sweep_expired(&self) -> Result<u64> {
        refuse_on_worker()?;
        self.on_worker(sweep_now).await
    }
}

/// Converts milliseconds since 1970 to a time. A time beyond the system's clock means that the
/// record never expires.
pub(super) fn moment(milliseconds: u64) -> SystemTime {
    let moment = |after| UNIX_EPOCH.checked_add(Duration::from_millis(after));
    moment(milliseconds).or_else(|| moment(i64::MAX as u64)).expect("far away")
}
