//! Records that expire, as their user sees them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::error::{Misuse, Result};
use super::table::Table;
use super::transaction::{Transaction, encode, encode_for};
use super::{Database, refuse_on_worker};
use crate::record::Records;
use crate::sched::engine_code;
use crate::transaction::sweep_now;
use crate::types::{TableKey, Value};

impl Transaction {
    /// As [`Transaction::put`], to a table whose records expire ([`TableOptions::ttl`](crate::TableOptions::ttl)): this
    /// one lives for `ttl` instead of as long as others of its table, from the transaction's time on, until it is written
    /// again. At least a millisecond; what is longer than any clock goes is for ever.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use braiddb::{Database, Error, Options, Table, TableOptions};
    ///
    /// # let db = Database::in_memory(Options::default().workers(1))?;
    /// let left = db.run_blocking(async |tx| {
    ///     let day = TableOptions::default().ttl(Duration::from_hours(24));
    ///     let sessions: Table<str, u64> = tx.create_table_with("sessions", day).await?;
    ///     tx.put_with_ttl(&sessions, "guest", &7, Duration::from_mins(5)).await?;
    ///     let expiry = tx.expires_at(&sessions, "guest").await?.expect("just written");
    ///     Ok(expiry.duration_since(std::time::SystemTime::now()).unwrap_or_default())
    /// })?;
    /// assert!(left <= Duration::from_mins(5));
    /// # Ok::<_, Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Misuse::NotExpiring`]; as [`Transaction::put`].
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
        engine_code(self.core().put_for(records, &encode(key), &value, lifetime_ms)).await?;
        Ok(())
    }

    /// When a record expires; `None` if there is none. Of a table whose records do
    /// ([`TableOptions::ttl`](crate::TableOptions::ttl)).
    ///
    /// ```
    /// use std::time::{Duration, SystemTime};
    ///
    /// use braiddb::{Database, Error, Options, Table, TableOptions};
    ///
    /// # pollster::block_on(async {
    /// let db = Database::in_memory(Options::default().workers(1))?;
    /// let options = TableOptions::default().ttl(Duration::from_hours(1));
    /// let sessions: Table<str, str> = db.create_table_with("sessions", options).await?;
    /// let expires_at = db
    ///     .run(async move |tx| {
    ///         tx.put(&sessions, "ada", "signed in").await?;
    ///         tx.expires_at(&sessions, "ada").await
    ///     })
    ///     .await?;
    /// assert!(expires_at > Some(SystemTime::now()));
    /// # Ok::<_, Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// [`Misuse::NotExpiring`]; as [`Transaction::get`].
    pub async fn expires_at<K, V>(&self, table: &Table<K, V>, key: &K) -> Result<Option<SystemTime>>
    where
        K: TableKey + ?Sized,
        V: Value + ?Sized,
    {
        let records = self.expiring(table)?;
        let key = encode_for(records, key)?;
        let expiry = engine_code(self.core().expiry_of(records, &key)).await?;
        Ok(expiry.map(moment))
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
    /// Deletes records that have expired now, rather than when the workers come by ([`TableOptions::ttl`](crate::TableOptions::ttl));
    /// how many. Nobody's answers change by it: it gives back room, as before a backup. Records that others write
    /// meanwhile may be left; tables with indexes that are not attached are, and records whose keys in an index cannot be
    /// told, as its function panics, say. If the future is dropped, this goes on all the same.
    ///
    /// ```
    /// # use braiddb::{Database, Error, Options};
    /// # pollster::block_on(async {
    /// let db = Database::in_memory(Options::default().workers(1))?;
    /// assert_eq!(db.sweep_expired().await?, 0);
    /// # Ok::<_, Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// [`Misuse::WouldBlock`](crate::Misuse) from within a transaction, with which it might be in conflict; as [`Database::run`].
    pub async fn sweep_expired(&self) -> Result<u64> {
        refuse_on_worker()?;
        self.on_worker(sweep_now).await
    }
}

/// The moment so many milliseconds after 1970; what is beyond the system's clock is for ever.
pub(super) fn moment(milliseconds: u64) -> SystemTime {
    let moment = |after| UNIX_EPOCH.checked_add(Duration::from_millis(after));
    moment(milliseconds).or_else(|| moment(i64::MAX as u64)).expect("far away")
}
