//! Transactions of one operation each on several records.

use std::future::{Future, IntoFuture};

use futures_core::future::BoxFuture;

use super::encode::{encode_range, starting_with};
use super::error::Result;
use super::handle::Database;
use super::table::{KeyRange, Table};
use super::transaction::Transaction;
use crate::transaction::{Direction, ScanBounds};
use crate::types::{KeyBuffer, KeyPrefix, TableKey, Value};

/// A scan in a separate transaction, which starts when awaited: see [`Database::scan`].
#[must_use = "a scan does nothing unless awaited"]
pub struct OwnedScan<K: TableKey + ?Sized, V: ?Sized> {
    db: Database,
    table: Table<K::Stored, V>,
    bounds: ScanBounds,
    reverse: bool,
    limit: u64,
}

impl<K: TableKey + ?Sized, V: ?Sized> OwnedScan<K, V> {
    /// Reverses the order: from the largest key to the smallest.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let db = Database::in_memory(Options::default().workers(1))?;
    ///         let log: Table<u64, str> = db.create_table("log").await?;
    ///         for line in 0..10 {
    ///             db.put(&log, &line, "a line").await?;
    ///         }
    ///         let last = db.scan(&log, ..).rev().limit(1).await?;
    ///         assert_eq!(last, [(9, "a line".to_owned())]);
    ///         Ok(())
    ///     })
    /// }
    /// ```
    pub fn rev(mut self) -> Self {
        self.reverse = true;
        self
    }

    /// Limits the scan to `count` records.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let db = Database::in_memory(Options::default().workers(1))?;
    ///         let log: Table<u64, str> = db.create_table("log").await?;
    ///         for line in 0..10 {
    ///             db.put(&log, &line, "a line").await?;
    ///         }
    ///         let some = db.scan(&log, 4..).limit(2).await?;
    ///         assert_eq!(some, [(4, "a line".to_owned()), (5, "a line".to_owned())]);
    ///         Ok(())
    ///     })
    /// }
    /// ```
    pub fn limit(mut self, count: u64) -> Self {
        self.limit = self.limit.min(count);
        self
    }
}

impl<K: TableKey + ?Sized, V: Value + ?Sized> OwnedScan<K, V> {
    async fn collect(self) -> Result<Vec<(K::Decoded, V::Owned)>> {
        let Self { db, table, bounds, reverse, limit } = self;
        let direction = if reverse { Direction::Reverse } else { Direction::Forward };
        let decode =
            |key: &[u8], value: &[u8]| Ok((K::decode_key(key)?, V::into_owned(V::decode(value)?)));
        let short = db.scan_as_guest(&table.core, &bounds, (direction, limit), decode).await;
        if let Some(result) = short {
            return result;
        }
        let body = async move |tx: &Transaction| {
            tx.collect_range(&table, bounds.clone(), reverse, limit).await
        };
        Ok(db.transaction().read_only(true).run(body).await?.value)
    }
}

impl Transaction {
    /// Returns the records of an encoded range, with owned values.
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
        // Uses the stored keys, which borrow nothing.
        Box::pin(OwnedScan::<K::Stored, V> { db, table, bounds, reverse, limit }.collect())
    }
}

impl<K: TableKey + ?Sized, V: ?Sized> std::fmt::Debug for OwnedScan<K, V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "OwnedScan({:?}, at most {})", self.table.name(), self.limit)
    }
}

impl Database {
    /// Returns the records of a range in key order, all from one moment, in a separate transaction.
    ///
    /// The result is one vector in the program's memory, which [`Options::memory_budget`] does not
    /// count. For a large range, set a [limit](OwnedScan::limit), or scan within [`Database::run`]
    /// by [`Scan::next`](crate::Scan::next) or [`Scan::visit`](crate::Scan::visit), which hold only
    /// a few records at a time.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let db = Database::in_memory(Options::default().workers(1))?;
    ///         let names: Table<u64, str> = db.create_table("names").await?;
    ///         for (number, name) in [(1, "one"), (2, "two"), (3, "three")] {
    ///             db.put(&names, &number, name).await?;
    ///         }
    ///         assert_eq!(db.scan(&names, ..3).await?, [(1, "one".to_owned()), (2, "two".to_owned())]);
    ///         assert_eq!(db.scan(&names, ..).rev().limit(1).await?, [(3, "three".to_owned())]);
    ///         Ok(())
    ///     })
    /// }
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

    /// Returns the records whose keys start with `prefix`, like [`Database::scan`]. The prefix is
    /// text, bytes, or the first parts of a tuple.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let db = Database::in_memory(Options::default().workers(1))?;
    ///         let visits: Table<(String, u32), u64> = db.create_table("visits").await?;
    ///         db.put(&visits, &("help".to_owned(), 1), &30).await?;
    ///         db.put(&visits, &("start".to_owned(), 1), &500).await?;
    ///         let found = db.scan_prefix(&visits, &("help".to_owned(),)).await?;
    ///         assert_eq!(found, [(("help".to_owned(), 1), 30)]);
    ///         Ok(())
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`Database::scan`].
    pub fn scan_prefix<K, V, P>(&self, table: &Table<K, V>, prefix: &P) -> OwnedScan<K, V>
    where
        K: TableKey + KeyPrefix<P> + ?Sized,
        V: Value + ?Sized,
        P: ?Sized,
    {
        let mut start = KeyBuffer::new();
        K::encode_prefix(prefix, &mut start);
        let (db, table, bounds) = (self.clone(), table.stored(), starting_with(start));
        OwnedScan { db, table, bounds, reverse: false, limit: u64::MAX }
    }

    /// Returns the record with the smallest key, in a separate transaction.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let db = Database::in_memory(Options::default().workers(1))?;
    ///         let queue: Table<u64, str> = db.create_table("queue").await?;
    ///         assert_eq!(db.first(&queue).await?, None);
    ///         db.put(&queue, &7, "sweep").await?;
    ///         db.put(&queue, &8, "mend").await?;
    ///         assert_eq!(db.first(&queue).await?, Some((7, "sweep".to_owned())));
    ///         assert_eq!(db.last(&queue).await?, Some((8, "mend".to_owned())));
    ///         Ok(())
    ///     })
    /// }
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

    /// Returns the record with the largest key, in a separate transaction.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let db = Database::in_memory(Options::default().workers(1))?;
    ///         let names: Table<u64, str> = db.create_table("names").await?;
    ///         assert_eq!(db.last(&names).await?, None);
    ///         for (number, name) in [(1, "ada"), (2, "bob")] {
    ///             db.put(&names, &number, name).await?;
    ///         }
    ///         assert_eq!(db.last(&names).await?, Some((2, "bob".to_owned())));
    ///         Ok(())
    ///     })
    /// }
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

    /// Returns the number of records in a key range, in a separate transaction. It visits each
    /// record, but reads no values. [`Database::len`] returns the number for a whole table without
    /// visiting the records.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let db = Database::in_memory(Options::default().workers(1))?;
    ///         let log: Table<u64, str> = db.create_table("log").await?;
    ///         for line in 0..10 {
    ///             db.put(&log, &line, "a line").await?;
    ///         }
    ///         assert_eq!(db.count(&log, 3..=5).await?, 3);
    ///         assert_eq!(db.delete_range(&log, ..8).await?, 8);
    ///         assert_eq!(db.count(&log, ..).await?, 2);
    ///         Ok(())
    ///     })
    /// }
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

    /// Deletes all records of a key range in a separate transaction, and returns their number. The
    /// transaction needs about 100 bytes for each record until it ends; delete millions in several
    /// ranges. [`Database::clear`] empties a table of any size.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let db = Database::in_memory(Options::default().workers(1))?;
    ///         let log: Table<u64, str> = db.create_table("log").await?;
    ///         for line in 0..10 {
    ///             db.put(&log, &line, "a line").await?;
    ///         }
    ///         assert_eq!(db.delete_range(&log, ..8).await?, 8);
    ///         assert_eq!(db.delete_range(&log, ..8).await?, 0);
    ///         assert_eq!(db.len(&log).await?, 2);
    ///         Ok(())
    ///     })
    /// }
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
