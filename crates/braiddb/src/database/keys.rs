//! Scans that return only keys.

use super::encode::encode_range;
use super::error::Result;
use super::scan::Scan;
use super::table::{KeyRange, Table};
use super::transaction::Transaction;
use crate::transaction::ScanBounds;
use crate::types::{TableKey, Value};

/// A scan of the keys of a range, in key order. It does not decode values, and does not read those
/// that are not in memory.
///
/// ```
/// use braiddb::{Database, Error, Options, Table, block_on};
///
/// fn main() -> Result<(), Error> {
///     block_on(async {
///         let db = Database::in_memory(Options::default().workers(1))?;
///         let names: Table<u64, str> = db.create_table("names").await?;
///         for key in 0..10 {
///             db.put(&names, &key, "ada").await?;
///         }
///         let found = db
///             .run(async move |tx| {
///                 let (mut keys, mut found) = (tx.keys(&names, ..8)?.rev().limit(3), Vec::new());
///                 while let Some(key) = keys.next().await? {
///                     found.push(key);
///                 }
///                 Ok(found)
///             })
///             .await?;
///         assert_eq!(found, [7, 6, 5]);
///         Ok(())
///     })
/// }
/// ```
pub struct Keys<'tx, K: ?Sized>(Scan<'tx, K, ()>);

impl Transaction {
    /// Returns the keys of the records in a range, in key order.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     let db = Database::in_memory(Options::default().workers(1))?;
    ///     let table: Table<u64, [u8]> = block_on(db.create_table("blobs"))?;
    ///     let newest = db.run_blocking(async move |tx| {
    ///         for key in 0..10 {
    ///             tx.put(&table, &key, &[0; 1000]).await?;
    ///         }
    ///         tx.keys(&table, ..7)?.rev().next().await
    ///     })?;
    ///     assert_eq!(newest, Some(6));
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// An error if the table belongs to another database.
    pub fn keys<K, V>(&self, table: &Table<K, V>, range: impl KeyRange<K>) -> Result<Keys<'_, K>>
    where
        K: TableKey + ?Sized,
        V: Value + ?Sized,
    {
        self.encoded_keys(table, encode_range(&range))
    }

    /// [`Transaction::keys`] for an encoded range.
    pub(super) fn encoded_keys<K, V>(
        &self,
        table: &Table<K, V>,
        bounds: ScanBounds,
    ) -> Result<Keys<'_, K>>
    where
        K: TableKey + ?Sized,
        V: Value + ?Sized,
    {
        let mut core = self.core.scan(self.records(table)?, bounds);
        core.set_keys_only();
        Ok(Keys(Scan::of(core)))
    }
}

impl<K: TableKey + ?Sized> Keys<'_, K> {
    /// Reverses the order: from the largest key to the smallest. Call this before the first `next`;
    /// otherwise the next call fails with [`Misuse::ScanBegun`](crate::Misuse).
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
    ///         let last = db.run(async move |tx| tx.keys(&log, ..)?.rev().next().await);
    ///         assert_eq!(last.await?, Some(9));
    ///         Ok(())
    ///     })
    /// }
    /// ```
    #[must_use]
    pub fn rev(self) -> Self {
        Self(self.0.rev())
    }

    /// Limits the scan to `count` keys.
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
    ///         let some = db.run(async move |tx| {
    ///             let (mut keys, mut some) = (tx.keys(&log, 4..)?.limit(2), Vec::new());
    ///             while let Some(key) = keys.next().await? {
    ///                 some.push(key);
    ///             }
    ///             Ok(some)
    ///         });
    ///         assert_eq!(some.await?, [4, 5]);
    ///         Ok(())
    ///     })
    /// }
    /// ```
    #[must_use]
    pub fn limit(self, count: u64) -> Self {
        Self(self.0.limit(count))
    }

    /// Returns the next key, or `None` after the last. Dropping the future or receiving an error
    /// loses no key: the next call returns the same key or tries it again.
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
    ///         let ends = db.run(async move |tx| {
    ///             let mut keys = tx.keys(&log, 9..)?;
    ///             Ok((keys.next().await?, keys.next().await?))
    ///         });
    ///         assert_eq!(ends.await?, (Some(9), None));
    ///         Ok(())
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// An error if a stored key does not decode.
    pub async fn next(&mut self) -> Result<Option<K::Decoded>> {
        // Skipped values are empty, like the encoding of the unit type.
        Ok(self.0.next().await?.map(|(key, ())| key))
    }

    /// Returns the next key in its stored encoding.
    pub(super) async fn next_encoded(&mut self) -> Result<Option<&[u8]>> {
        self.0.next_encoded().await
    }
}

impl<K: ?Sized> std::fmt::Debug for Keys<'_, K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Keys").field(&self.0).finish()
    }
}
