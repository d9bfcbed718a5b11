//! Transactions with typed operations.

use std::ops::Bound;

use super::encode::{check_key, encode, encode_for, encode_range, starting_with};
use super::error::{Error, MissingTable, Misuse, Result};
use super::scan::Scan;
use super::table::{KeyRange, Table};
use crate::record::{self, Records};
use crate::sched::{Contained, engine_call, engine_code};
use crate::transaction::{
    self, Engine, FoundValue, MAX_CONCURRENT_LOOKUPS, ReadNow, ScanBounds, SeenRecord, WriteIntent,
    unexpired_at,
};
use crate::types::{KeyBuffer, KeyPrefix, TableKey, Value};

/// An active transaction: a snapshot of the database, and the transaction's own writes on top.
///
/// Its closure runs on one worker, interleaved with other transactions at every `await`. Reads see
/// the state at the start of the transaction plus its own writes. References returned by reads are
/// valid while the transaction is active.
///
/// The future of every method may be dropped before it is ready, and the method called again. A
/// dropped read loses nothing. A write has taken effect exactly if its future became ready.
#[derive(Debug)]
pub struct Transaction {
    pub(super) core: transaction::ActiveTransaction,
    attempt: u32,
}

impl Transaction {
    pub(super) fn new(core: transaction::ActiveTransaction, attempt: u32) -> Self {
        if attempt > 1 {
            core.set_repeated();
        }
        Self { core, attempt }
    }

    pub(super) fn core(&self) -> &transaction::ActiveTransaction {
        &self.core
    }

    pub(super) fn core_mut(&mut self) -> &mut transaction::ActiveTransaction {
        &mut self.core
    }

    pub(super) fn into_core(self) -> transaction::ActiveTransaction {
        self.core
    }

    pub(super) fn engine(&self) -> &Engine {
        self.core.engine()
    }

    /// Returns the number of this attempt, starting at 1.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let db = Database::in_memory(Options::default().workers(1))?;
    ///         let names: Table<u64, str> = db.create_table("names").await?;
    ///         let attempts = db
    ///             .run(async move |tx| {
    ///                 if tx.attempt() > 3 {
    ///                     eprintln!("attempt {}", tx.attempt());
    ///                 }
    ///                 tx.put(&names, &1, "ada").await?;
    ///                 Ok(tx.attempt())
    ///             })
    ///             .await?;
    ///         assert_eq!(attempts, 1);
    ///         Ok(())
    ///     })
    /// }
    /// ```
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// Returns the LSN of the snapshot that the transaction sees.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let db = Database::in_memory(Options::default().workers(1))?;
    ///         let names: Table<u64, str> = db.create_table("names").await?;
    ///         db.put(&names, &1, "ada").await?;
    ///         let first = db.run(async |tx| Ok(tx.snapshot_lsn())).await?;
    ///         db.put(&names, &1, "bob").await?;
    ///         assert!(db.run(async |tx| Ok(tx.snapshot_lsn())).await? > first);
    ///         Ok(())
    ///     })
    /// }
    /// ```
    pub fn snapshot_lsn(&self) -> u64 {
        self.core.begin().0
    }

    #[inline(always)]
    pub(super) fn records<'t, K, V>(&self, table: &'t Table<K, V>) -> Result<&'t Records>
    where
        K: TableKey + ?Sized,
        V: Value + ?Sized,
    {
        // The handle of an uncommitted table may have left its creator's closure.
        if self.engine().owns(&table.core) && self.core.may_use(&table.core) {
            return Ok(&table.core);
        }
        Err(self.why_not_usable(&table.core, table.name()))
    }

    #[cold]
    fn why_not_usable(&self, table: &record::Records, name: &str) -> Error {
        if self.engine().owns(table) {
            MissingTable::new(name).into()
        } else {
            Error::Misuse(Misuse::ForeignTable(name.to_owned()))
        }
    }

    /// Returns the value of `key`.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     let db = Database::in_memory(Options::default().workers(1))?;
    ///     let names: Table<str, u64> = block_on(db.create_table("names"))?;
    ///     db.run_blocking(async move |tx| {
    ///         tx.put(&names, "ada", &7).await?;
    ///         assert_eq!(tx.get(&names, "ada").await?, Some(7));
    ///         assert_eq!(tx.get(&names, "ben").await?, None);
    ///         Ok(())
    ///     })?;
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// An error if the stored bytes do not decode, the table belongs to another database, or the
    /// key is too long for any record.
    #[inline(always)]
    pub fn get<'tx, K, V>(
        &'tx self,
        table: &Table<K, V>,
        key: &K,
    ) -> impl Future<Output = Result<Option<V::Ref<'tx>>>>
    where
        K: TableKey + ?Sized,
        V: Value + ?Sized,
    {
        self.read(table, key)
    }

    /// Calls `read` with the value of `key`, and returns its result; `None` if the table has no
    /// record with this key.
    ///
    /// Values in memory and in the log are lent without a copy. `get` copies text, bytes and other
    /// values that borrow if they may not stay allocated until the transaction ends: those of
    /// tables with a log, and those that the transaction has written. `read` must be fast, because
    /// it runs on a worker.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     let db = Database::in_memory(Options::default().workers(1))?;
    ///     let people: Table<u64, str> = block_on(db.create_table("people"))?;
    ///     db.run_blocking(async move |tx| {
    ///         tx.put(&people, &1, "Ada Lovelace").await?;
    ///         assert_eq!(tx.get_with(&people, &1, |name| name.len()).await?, Some(12));
    ///         assert_eq!(tx.get_with(&people, &2, |name| name.len()).await?, None);
    ///         Ok(())
    ///     })?;
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub async fn get_with<K, V, T, F>(
        &self,
        table: &Table<K, V>,
        key: &K,
        read: F,
    ) -> Result<Option<T>>
    where
        K: TableKey + ?Sized,
        V: Value + ?Sized,
        F: FnOnce(V::Ref<'_>) -> T,
    {
        let records = self.records(table)?;
        let key = encode_for(records, key)?;
        let mut found = ReadNow::Later;
        if let Some(records) = engine_call(|| self.core.may_read_now(records)) {
            found = engine_call(|| self.core.get_now(records, &key));
        }
        if let ReadNow::Later = found {
            found = engine_code(self.core.get_interleaved(records, &key)).await;
        }
        match found {
            ReadNow::Found(found) => Ok(Some(read(V::decode(found.bytes())?))),
            ReadNow::Absent => Ok(None),
            ReadNow::Later => {
                let found = engine_code(self.core.get(records, &key)).await?;
                Ok(found.map(|found| V::decode(found.bytes()).map(read)).transpose()?)
            }
        }
    }

    /// Returns a part of the value of `key`, computed by `part`. If a serializable transaction
    /// reads only this part, changes to the rest of the record do not abort it.
    ///
    /// `part` may be called again at commit, while other transactions wait for this one. It must be
    /// fast, and must always return the same result for the same value. If it panics at commit, the
    /// result counts as changed.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     let db = Database::in_memory(Options::default().workers(1))?;
    ///     let people: Table<u64, str> = block_on(db.create_table("people"))?;
    ///     let initial = db.run_blocking(async move |tx| {
    ///         tx.put(&people, &1, "Ada Lovelace").await?;
    ///         tx.get_part(&people, &1, |name| name.chars().next()).await
    ///     })?;
    ///     assert_eq!(initial, Some(Some('A')));
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub async fn get_part<K, V, T, F>(
        &self,
        table: &Table<K, V>,
        key: &K,
        part: F,
    ) -> Result<Option<T>>
    where
        K: TableKey + ?Sized,
        V: Value + ?Sized,
        T: PartialEq + Clone + 'static,
        F: Fn(V::Ref<'_>) -> T + 'static,
    {
        let records = self.records(table)?;
        let key = encode_for(records, key)?;
        let Some((found, seen)) = engine_code(self.core.get_unnoted(records, &key, true)).await?
        else {
            return Ok(None);
        };
        let stored = (found.bytes(), seen);
        let unexpired = engine_call(|| self.core.unexpired_or_noted(records, &key, stored));
        let Some(value) = unexpired else { return Ok(None) };
        let seen_part = part(V::decode(value)?);
        if let SeenRecord::Others { point: Some(point), .. } = seen {
            let before = seen_part.clone();
            let time = self.core.time_for(records);
            let same = move |stored: &[u8]| {
                unexpired_at(time, stored)
                    .is_some_and(|value| V::decode(value).is_ok_and(|now| part(now) == before))
            };
            let same = Contained::new(Box::new(same) as Box<_>);
            engine_call(|| self.core.note_part(point, &key, same));
        } else {
            engine_call(|| self.core.note_seen(records, &key, seen));
        }
        Ok(Some(seen_part))
    }

    /// Returns whether a record with this key exists.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     let db = Database::in_memory(Options::default().workers(1))?;
    ///     let names: Table<str, u64> = block_on(db.create_table("names"))?;
    ///     db.run_blocking(async move |tx| {
    ///         tx.put(&names, "ada", &7).await?;
    ///         assert!(tx.contains(&names, "ada").await? && !tx.contains(&names, "ben").await?);
    ///         Ok(())
    ///     })?;
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// An error if the table belongs to another database, or the key is too long for any record.
    pub async fn contains<K, V>(&self, table: &Table<K, V>, key: &K) -> Result<bool>
    where
        K: TableKey + ?Sized,
        V: Value + ?Sized,
    {
        let records = self.records(table)?;
        let key = encode_for(records, key)?;
        Ok(engine_code(self.core.contains(records, &key)).await?)
    }

    /// Returns the values of many keys, in the order of the keys. The lookups hide each other's
    /// cache misses even if the worker has nothing else to run (CoroBase §4.6).
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let db = Database::in_memory(Options::default().workers(1))?;
    ///         let names: Table<u64, str> = db.create_table("names").await?;
    ///         db.put(&names, &1, "ada").await?;
    ///         let found = db
    ///             .run(async move |tx| {
    ///                 let found = tx.multi_get(&names, &[1, 2, 3]).await?;
    ///                 Ok(found.into_iter().map(|name| name.map(str::to_owned)).collect::<Vec<_>>())
    ///             })
    ///             .await?;
    ///         assert_eq!(found, [Some("ada".to_owned()), None, None]);
    ///         Ok(())
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub async fn multi_get<'k, K, V>(
        &self,
        table: &Table<K, V>,
        keys: impl IntoIterator<Item = &'k K>,
    ) -> Result<Vec<Option<V::Ref<'_>>>>
    where
        K: TableKey + ?Sized + 'k,
        V: Value + ?Sized,
    {
        let records = self.records(table)?;
        let mut keys = keys.into_iter();
        let mut values = Vec::with_capacity(keys.size_hint().0);
        loop {
            let some = keys.by_ref().take(MAX_CONCURRENT_LOOKUPS);
            let some: Vec<_> = some.map(|key| encode_for(records, key)).collect::<Result<_>>()?;
            if some.is_empty() {
                return Ok(values);
            }
            for bytes in engine_code(self.core.multi_get(records, &some)).await? {
                values.push(bytes.map(V::decode).transpose()?);
            }
        }
    }

    /// Deletes a record. Returns `false` if no record with this key exists.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     let db = Database::in_memory(Options::default().workers(1))?;
    ///     let names: Table<str, u64> = block_on(db.create_table("names"))?;
    ///     db.run_blocking(async move |tx| {
    ///         tx.put(&names, "ada", &7).await?;
    ///         assert!(tx.delete(&names, "ada").await? && !tx.delete(&names, "ada").await?);
    ///         Ok(())
    ///     })?;
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// [`Error::Conflict`].
    pub async fn delete<K, V>(&self, table: &Table<K, V>, key: &K) -> Result<bool>
    where
        K: TableKey + ?Sized,
        V: Value + ?Sized,
    {
        self.write_encoded(table, &encode(key), WriteIntent::Delete).await
    }

    /// Returns the decoded, owned value of an encoded key.
    pub(super) async fn get_owned<K, V>(
        &self,
        table: &Table<K, V>,
        key: &[u8],
    ) -> Result<Option<V::Owned>>
    where
        K: TableKey + ?Sized,
        V: Value + ?Sized,
    {
        let records = self.records(table)?;
        check_key(records, key)?;
        let found = engine_code(self.core.get(records, key)).await?;
        let owned = |found: FoundValue<'_>| V::decode(found.bytes()).map(V::into_owned);
        Ok(found.map(owned).transpose()?)
    }

    /// Scans the records of a key range, in key order.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table};
    ///
    /// fn main() -> Result<(), Error> {
    ///     let db = Database::in_memory(Options::default().workers(1))?;
    ///     let sum: u64 = db.run_blocking(async |tx| {
    ///         let table: Table<u64, u64> = tx.create_table("squares").await?;
    ///         for n in 0..10 {
    ///             tx.insert(&table, &n, &(n * n)).await?;
    ///         }
    ///         let (mut scan, mut sum) = (tx.scan(&table, 2..5)?, 0);
    ///         while let Some((_, square)) = scan.next().await? {
    ///             sum += square;
    ///         }
    ///         Ok(sum)
    ///     })?;
    ///     assert_eq!(sum, 4 + 9 + 16);
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// An error if the table belongs to another database.
    pub fn scan<K, V>(&self, table: &Table<K, V>, range: impl KeyRange<K>) -> Result<Scan<'_, K, V>>
    where
        K: TableKey + ?Sized,
        V: Value + ?Sized,
    {
        let ScanBounds { low, high } = encode_range(&range);
        self.scan_encoded(table, low, high)
    }

    pub(super) fn scan_encoded<K, V>(
        &self,
        table: &Table<K, V>,
        low: Bound<KeyBuffer>,
        high: Bound<KeyBuffer>,
    ) -> Result<Scan<'_, K, V>>
    where
        K: TableKey + ?Sized,
        V: Value + ?Sized,
    {
        self.records(table)?;
        Ok(Scan::new(&self.core, table, low, high))
    }

    /// Scans the records whose keys start with `prefix`, in key order. The prefix is text, bytes,
    /// or the first parts of a tuple.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     let db = Database::in_memory(Options::default().workers(1))?;
    ///     let names: Table<str, u64> = block_on(db.create_table("names"))?;
    ///     db.run_blocking(async move |tx| {
    ///         for (name, number) in [("ada", 1), ("adam", 2), ("ben", 3)] {
    ///             tx.put(&names, name, &number).await?;
    ///         }
    ///         assert_eq!(tx.scan_prefix(&names, "ada")?.count().await?, 2);
    ///         Ok(())
    ///     })?;
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// An error if the table belongs to another database.
    pub fn scan_prefix<K, V, P>(&self, table: &Table<K, V>, prefix: &P) -> Result<Scan<'_, K, V>>
    where
        K: TableKey + KeyPrefix<P> + ?Sized,
        V: Value + ?Sized,
        P: ?Sized,
    {
        let mut start = KeyBuffer::new();
        K::encode_prefix(prefix, &mut start);
        let ScanBounds { low, high } = starting_with(start);
        self.scan_encoded(table, low, high)
    }

    /// Returns the record with the smallest key.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     let db = Database::in_memory(Options::default().workers(1))?;
    ///     let names: Table<str, u64> = block_on(db.create_table("names"))?;
    ///     db.run_blocking(async move |tx| {
    ///         assert_eq!(tx.first(&names).await?, None);
    ///         tx.put(&names, "ben", &2).await?;
    ///         tx.put(&names, "ada", &1).await?;
    ///         assert_eq!(tx.first(&names).await?, Some(("ada".to_owned(), 1)));
    ///         Ok(())
    ///     })?;
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub async fn first<K, V>(&self, table: &Table<K, V>) -> Result<Option<(K::Decoded, V::Ref<'_>)>>
    where
        K: TableKey + ?Sized,
        V: Value + ?Sized,
    {
        self.scan(table, ..)?.limit(1).into_first().await
    }

    /// Returns the record with the largest key.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     let db = Database::in_memory(Options::default().workers(1))?;
    ///     let names: Table<str, u64> = block_on(db.create_table("names"))?;
    ///     db.run_blocking(async move |tx| {
    ///         tx.put(&names, "ben", &2).await?;
    ///         tx.put(&names, "ada", &1).await?;
    ///         assert_eq!(tx.last(&names).await?, Some(("ben".to_owned(), 2)));
    ///         Ok(())
    ///     })?;
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub async fn last<K, V>(&self, table: &Table<K, V>) -> Result<Option<(K::Decoded, V::Ref<'_>)>>
    where
        K: TableKey + ?Sized,
        V: Value + ?Sized,
    {
        self.scan(table, ..)?.rev().limit(1).into_first().await
    }
}
