//! Transactions of one operation each that are of several records.

use std::future::{Future, IntoFuture};

use futures_core::future::BoxFuture;

use super::Database;
use super::error::Result;
use super::table::{KeyRange, Table};
use super::transaction::{Transaction, encode_range};
use crate::transaction::ScanBounds;
use crate::types::{TableKey, Value};

/// A scan in a transaction of its own, to be awaited: [`Database::scan`].
#[must_use = "a scan does nothing unless it is awaited"]
pub struct OwnedScan<K: TableKey + ?Sized, V: ?Sized> {
    db: Database,
    table: Table<K::Stored, V>,
    bounds: ScanBounds,
    reverse: bool,
    limit: u64,
}

impl<K: TableKey + ?Sized, V: ?Sized> OwnedScan<K, V> {
    /// From the largest key to the smallest instead.
    ///
    /// ```
    /// # use braiddb::{Database, Error, Options, Table};
    /// # pollster::block_on(async {
    /// # let db = Database::in_memory(Options::default().workers(1))?;
    /// # let log: Table<u64, str> = db.create_table("log").await?;
    /// # for line in 0..10 {
    /// #     db.put(&log, &line, "a line").await?;
    /// # }
    /// let last = db.scan(&log, ..).rev().limit(1).await?;
    /// assert_eq!(last, [(9, "a line".to_owned())]);
    /// # Ok::<_, Error>(()) }).unwrap();
    /// ```
    pub fn rev(mut self) -> Self {
        self.reverse = true;
        self
    }

    /// At most `count` records.
    ///
    /// ```
    /// # use braiddb::{Database, Error, Options, Table};
    /// # pollster::block_on(async {
    /// # let db = Database::in_memory(Options::default().workers(1))?;
    /// # let log: Table<u64, str> = db.create_table("log").await?;
    /// # for line in 0..10 {
    /// #     db.put(&log, &line, "a line").await?;
    /// # }
    /// let some = db.scan(&log, 4..).limit(2).await?;
    /// assert_eq!(some, [(4, "a line".to_owned()), (5, "a line".to_owned())]);
    /// # Ok::<_, Error>(()) }).unwrap();
    /// ```
    pub fn limit(mut self, count: u64) -> Self {
        self.limit = self.limit.min(count);
        self
    }
}

impl<K: TableKey + ?Sized, V: Value + ?Sized> OwnedScan<K, V> {
    async fn collect(self) -> Result<Vec<(K::Decoded, V::Owned)>> {
        let Self { db, table, bounds, reverse, limit } = self;
        let body = async move |tx: &Transaction| {
            tx.collect_range(&table, bounds.clone(), reverse, limit).await
        };
        Ok(db.transaction().read_only(true).run(body).await?.value)
    }
}

impl Transaction {
    /// The records of a range that is encoded, each with a value of its own.
    pub(super) async fn collect_range<K, V>(
        &self,
        table: &Table<K, V>,
        ScanBounds { low, high }: ScanBounds,
        reverse: bool,
        limit: u64,
    ) -> Result<Vec<(K::Decoded, V::Owned)>>
    where
        K: TableKey + ?Sized,
        V: Value + ?Sized,
    {
        let scan = self.scan_encoded(table, low, high)?.limit(limit);
        let mut scan = if reverse { scan.rev() } else { scan };
        let mut records = Vec::new();
        while let Some((key, value)) = scan.next().await? {
            records.push((key, V::into_owned(value)));
        }
        Ok(records)
    }
}

impl<K: TableKey + ?Sized, V: Value + ?Sized> IntoFuture for OwnedScan<K, V>
where
    K::Stored: 'static,
{
    type Output = Result<Vec<(K::Decoded, V::Owned)>>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        let Self { db, table, bounds, reverse, limit } = self;
        // By the keys that are stored, which borrow nothing.
        Box::pin(OwnedScan::<K::Stored, V> { db, table, bounds, reverse, limit }.collect())
    }
}

impl<K: TableKey + ?Sized, V: ?Sized> std::fmt::Debug for OwnedScan<K, V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "OwnedScan({:?}, at most {})", self.table.name(), self.limit)
    }
}

impl Database {
    /// The records of a range, in the order of their keys and as of one moment, in a transaction of its own.
    ///
    /// All of them come in one vector, which is the program's memory and not counted by [`Options::memory_budget`]: where a
    /// range may be large, say a [limit](OwnedScan::limit), or go over it within [`Database::run`], by
    /// [`Scan::next`](crate::Scan::next) or [`Scan::visit`](crate::Scan::visit), which hold a few records at a time.
    ///
    /// ```
    /// # use braiddb::{Database, Error, Options, Table};
    /// # pollster::block_on(async {
    /// let db = Database::in_memory(Options::default().workers(1))?;
    /// let names: Table<u64, str> = db.create_table("names").await?;
    /// for (number, name) in [(1, "one"), (2, "two"), (3, "three")] {
    ///     db.put(&names, &number, name).await?;
    /// }
    /// assert_eq!(db.scan(&names, ..3).await?, [(1, "one".to_owned()), (2, "two".to_owned())]);
    /// assert_eq!(db.scan(&names, ..).rev().limit(1).await?, [(3, "three".to_owned())]);
    /// # Ok::<_, Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// As [`Transaction::scan`], [`Scan::next`](crate::Scan::next) and [`Database::run`].
    ///
    /// [`Options::memory_budget`]: crate::Options::memory_budget
    pub fn scan<K, V>(&self, table: &Table<K, V>, range: impl KeyRange<K>) -> OwnedScan<K, V>
    where
        K: TableKey + ?Sized,
        V: Value + ?Sized,
    {
        let (db, table, bounds) = (self.clone(), table.stored(), encode_range(&range));
        OwnedScan { db, table, bounds, reverse: false, limit: u64::MAX }
    }

    /// The record with the smallest key, in a transaction of its own.
    ///
    /// ```
    /// # use braiddb::{Database, Error, Options, Table};
    /// # pollster::block_on(async {
    /// let db = Database::in_memory(Options::default().workers(1))?;
    /// let queue: Table<u64, str> = db.create_table("queue").await?;
    /// assert_eq!(db.first(&queue).await?, None);
    /// db.put(&queue, &7, "sweep").await?;
    /// db.put(&queue, &8, "mend").await?;
    /// assert_eq!(db.first(&queue).await?, Some((7, "sweep".to_owned())));
    /// assert_eq!(db.last(&queue).await?, Some((8, "mend".to_owned())));
    /// # Ok::<_, Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// As [`Transaction::first`] and [`Database::run`].
    pub fn first<K, V>(
        &self,
        table: &Table<K, V>,
    ) -> impl Future<Output = Result<Option<(K::Decoded, V::Owned)>>> + Send + use<K, V>
    where
        K: TableKey + ?Sized,
        V: Value + ?Sized,
    {
        let scan = self.scan(table, ..).limit(1);
        async move { Ok(scan.await?.pop()) }
    }

    /// The record with the largest key, in a transaction of its own.
    ///
    /// ```
    /// # use braiddb::{Database, Error, Options, Table};
    /// # pollster::block_on(async {
    /// # let db = Database::in_memory(Options::default().workers(1))?;
    /// let names: Table<u64, str> = db.create_table("names").await?;
    /// assert_eq!(db.last(&names).await?, None);
    /// for (number, name) in [(1, "ada"), (2, "bob")] {
    ///     db.put(&names, &number, name).await?;
    /// }
    /// assert_eq!(db.last(&names).await?, Some((2, "bob".to_owned())));
    /// # Ok::<_, Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// As [`Transaction::last`] and [`Database::run`].
    pub fn last<K, V>(
        &self,
        table: &Table<K, V>,
    ) -> impl Future<Output = Result<Option<(K::Decoded, V::Owned)>>> + Send + use<K, V>
    where
        K: TableKey + ?Sized,
        V: Value + ?Sized,
    {
        let scan = self.scan(table, ..).rev().limit(1);
        async move { Ok(scan.await?.pop()) }
    }

    /// How many records a range of keys has, in a transaction of its own; they are visited one by one, their values are
    /// not read. [`Database::len`] tells how many a whole table has without that.
    ///
    /// ```
    /// # use braiddb::{Database, Error, Options, Table};
    /// # pollster::block_on(async {
    /// let db = Database::in_memory(Options::default().workers(1))?;
    /// let log: Table<u64, str> = db.create_table("log").await?;
    /// for line in 0..10 {
    ///     db.put(&log, &line, "a line").await?;
    /// }
    /// assert_eq!(db.count(&log, 3..=5).await?, 3);
    /// assert_eq!(db.delete_range(&log, ..8).await?, 8);
    /// assert_eq!(db.count(&log, ..).await?, 2);
    /// # Ok::<_, Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// As [`Transaction::count`] and [`Database::run`].
    pub fn count<K, V>(
        &self,
        table: &Table<K, V>,
        range: impl KeyRange<K>,
    ) -> BoxFuture<'static, Result<u64>>
    where
        K: TableKey + ?Sized,
        V: Value + ?Sized,
    {
        let (db, table, bounds) = (self.clone(), table.stored(), encode_range(&range));
        Box::pin(async move {
            let body = async move |tx: &Transaction| {
                let ScanBounds { low, high } = bounds.clone();
                tx.scan_encoded(&table, low, high)?.count().await
            };
            Ok(db.transaction().read_only(true).run(body).await?.value)
        })
    }

    /// Deletes the records of a range of keys, all of them or none, in a transaction of its own, and returns how many they
    /// were. The transaction holds some 100 bytes for each until it is over: delete
    /// millions range by range. [`Database::clear`] empties a whole table of any size.
    ///
    /// ```
    /// # use braiddb::{Database, Error, Options, Table};
    /// # pollster::block_on(async {
    /// # let db = Database::in_memory(Options::default().workers(1))?;
    /// # let log: Table<u64, str> = db.create_table("log").await?;
    /// # for line in 0..10 {
    /// #     db.put(&log, &line, "a line").await?;
    /// # }
    /// assert_eq!(db.delete_range(&log, ..8).await?, 8);
    /// assert_eq!(db.delete_range(&log, ..8).await?, 0);
    /// assert_eq!(db.len(&log).await?, 2);
    /// # Ok::<_, Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// As [`Transaction::delete_range`] and [`Database::run`].
    pub fn delete_range<K, V>(
        &self,
        table: &Table<K, V>,
        range: impl KeyRange<K>,
    ) -> BoxFuture<'static, Result<u64>>
    where
        K: TableKey + ?Sized,
        V: Value + ?Sized,
    {
        let (db, table, bounds) = (self.clone(), table.stored(), encode_range(&range));
        Box::pin(async move {
            db.run(async move |tx| tx.delete_encoded_range(&table, bounds.clone()).await).await
        })
    }
}
