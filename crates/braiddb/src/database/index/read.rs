//! Reading through an index.

use std::marker::PhantomData;
use std::ops::Bound;

use super::Index;
use crate::database::encode::{after_prefix, starting_with};
use crate::database::error::{IndexError, Result};
use crate::database::table::KeyRange;
use crate::database::transaction::Transaction;
use crate::sched::engine_code;
use crate::transaction::{self, Direction, IndexHit, ScanBounds};
use crate::types::{Key, KeyBuffer, KeyPrefix, TableKey, Value};

/// A scan of an index. It returns the index key, the record's key and its value, sorted by index
/// key and then by record key. A record with several index keys in the range is returned once for
/// each.
///
/// ```
/// use braiddb::{Database, Error, IndexOptions, Options, Table, block_on};
///
/// fn main() -> Result<(), Error> {
///     block_on(async {
///         let db = Database::in_memory(Options::default().workers(1))?;
///         let names: Table<u64, str> = db.create_table("names").await?;
///         let by_name = db
///             .index(&names, "by_name", IndexOptions::default(), |name: &str, keys| {
///                 keys.push(name)
///             })
///             .await?;
///         for (number, name) in [(1, "ada"), (2, "bob"), (3, "eve")] {
///             db.put(&names, &number, name).await?;
///         }
///         let found = db
///             .run(async move |tx| {
///                 let (mut scan, mut found) =
///                     (tx.scan_by(&by_name, ..)?.rev().limit(2), Vec::new());
///                 while let Some((name, _number, _value)) = scan.next().await? {
///                     found.push(name);
///                 }
///                 Ok(found)
///             })
///             .await?;
///         assert_eq!(found, ["eve", "bob"]);
///         Ok(())
///     })
/// }
/// ```
pub struct IndexScan<'tx, S: ?Sized, K: ?Sized, V: ?Sized> {
    core: transaction::IndexRecordScan<'tx>,
    types: PhantomData<fn(&S, &K, &V)>,
}

/// A scan of the entries of an index. It returns the index key and the record's key, and does not
/// read the records.
///
/// ```
/// use braiddb::{Database, Error, IndexOptions, Options, Table, block_on};
///
/// fn main() -> Result<(), Error> {
///     block_on(async {
///         let db = Database::in_memory(Options::default().workers(1))?;
///         let names: Table<u64, str> = db.create_table("names").await?;
///         let by_name = db
///             .index(&names, "by_name", IndexOptions::default(), |name: &str, keys| {
///                 keys.push(name)
///             })
///             .await?;
///         for (number, name) in [(1, "ada"), (2, "bob"), (3, "eve")] {
///             db.put(&names, &number, name).await?;
///         }
///         let found = db
///             .run(async move |tx| {
///                 let (mut entries, mut found) =
///                     (tx.entries_by(&by_name, ..)?.rev().limit(2), Vec::new());
///                 while let Some((_name, number)) = entries.next().await? {
///                     found.push(number);
///                 }
///                 Ok(found)
///             })
///             .await?;
///         assert_eq!(found, [3, 2]);
///         Ok(())
///     })
/// }
/// ```
pub struct IndexEntries<'tx, S: ?Sized, K: ?Sized>(IndexScan<'tx, S, K, ()>);

impl Transaction {
    /// Scans the records with an index key in a range.
    ///
    /// ```
    /// use braiddb::{Database, Error, IndexOptions, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let db = Database::in_memory(Options::default().workers(1))?;
    ///         let names: Table<u64, str> = db.create_table("names").await?;
    ///         let by_name = db
    ///             .index(&names, "by_name", IndexOptions::default(), |name: &str, keys| {
    ///                 keys.push(name)
    ///             })
    ///             .await?;
    ///         for (number, name) in [(1, "ada"), (2, "bob"), (3, "ada")] {
    ///             db.put(&names, &number, name).await?;
    ///         }
    ///         let found = db
    ///             .run(async move |tx| {
    ///                 let mut scan = tx.scan_by(&by_name, "ada".to_owned()..="ada".to_owned())?;
    ///                 let mut found = Vec::new();
    ///                 while let Some((_name, number, _value)) = scan.next().await? {
    ///                     found.push(number);
    ///                 }
    ///                 Ok(found)
    ///             })
    ///             .await?;
    ///         assert_eq!(found, [1, 3]);
    ///         Ok(())
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// [`IndexError::NotFound`](crate::IndexError) if the index was dropped; [`Error::Conflict`](crate::Error::Conflict) if the transaction
    /// began before the index was built, and must be retried; an error if the table belongs to
    /// another database.
    pub fn scan_by<S, K, V>(
        &self,
        index: &Index<S, K, V>,
        range: impl KeyRange<S>,
    ) -> Result<IndexScan<'_, S, K, V>>
    where
        S: TableKey + ?Sized,
        K: TableKey + ?Sized,
        V: Value + ?Sized,
    {
        let core = self.index_scan(index, bounds_of(&range))?;
        Ok(IndexScan { core, types: PhantomData })
    }

    /// Scans the records with an index key that starts with `prefix`.
    ///
    /// ```
    /// use braiddb::{Database, Error, IndexOptions, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let db = Database::in_memory(Options::default().workers(1))?;
    ///         let names: Table<u64, str> = db.create_table("names").await?;
    ///         let by_name = db
    ///             .index(&names, "by_name", IndexOptions::default(), |name: &str, keys| {
    ///                 keys.push(name)
    ///             })
    ///             .await?;
    ///         db.put(&names, &1, "ada").await?;
    ///         db.put(&names, &2, "bob").await?;
    ///         let found = db
    ///             .run(async move |tx| {
    ///                 let mut scan = tx.scan_prefix_by(&by_name, "bo")?;
    ///                 Ok(scan.next().await?.map(|(_name, number, _value)| number))
    ///             })
    ///             .await?;
    ///         assert_eq!(found, Some(2));
    ///         Ok(())
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`Transaction::scan_by`].
    pub fn scan_prefix_by<S, K, V, P>(
        &self,
        index: &Index<S, K, V>,
        prefix: &P,
    ) -> Result<IndexScan<'_, S, K, V>>
    where
        S: TableKey + KeyPrefix<P> + ?Sized,
        K: TableKey + ?Sized,
        V: Value + ?Sized,
        P: ?Sized,
    {
        let mut start = KeyBuffer::new();
        S::encode_part_prefix(prefix, &mut start);
        let core = self.index_scan(index, starting_with(start))?;
        Ok(IndexScan { core, types: PhantomData })
    }

    /// Scans the index keys of a range and the keys of their records. Other contents of the records
    /// are neither read nor validated.
    ///
    /// ```
    /// use braiddb::{Database, Error, IndexOptions, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let db = Database::in_memory(Options::default().workers(1))?;
    ///         let names: Table<u64, str> = db.create_table("names").await?;
    ///         let by_name = db
    ///             .index(&names, "by_name", IndexOptions::default(), |name: &str, keys| {
    ///                 keys.push(name)
    ///             })
    ///             .await?;
    ///         db.put(&names, &1, "ada").await?;
    ///         db.put(&names, &2, "bob").await?;
    ///         let last =
    ///             db.run(async move |tx| tx.entries_by(&by_name, ..)?.rev().next().await).await?;
    ///         assert_eq!(last, Some(("bob".to_owned(), 2)));
    ///         Ok(())
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`Transaction::scan_by`].
    pub fn entries_by<S, K, V>(
        &self,
        index: &Index<S, K, V>,
        range: impl KeyRange<S>,
    ) -> Result<IndexEntries<'_, S, K>>
    where
        S: TableKey + ?Sized,
        K: TableKey + ?Sized,
        V: Value + ?Sized,
    {
        let mut core = self.index_scan(index, bounds_of(&range))?;
        core.set_keys_only();
        Ok(IndexEntries(IndexScan { core, types: PhantomData }))
    }

    /// Returns the key and the value of the record with this key in a unique index.
    ///
    /// ```
    /// use braiddb::{Database, Error, IndexOptions, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let db = Database::in_memory(Options::default().workers(1))?;
    ///         let names: Table<u64, str> = db.create_table("names").await?;
    ///         let unique = IndexOptions::default().unique(true);
    ///         let by_name =
    ///             db.index(&names, "by_name", unique, |name: &str, keys| keys.push(name)).await?;
    ///         db.put(&names, &1, "ada").await?;
    ///         let number = db
    ///             .run(async move |tx| {
    ///                 let found = tx.get_by(&by_name, "ada").await?;
    ///                 Ok(found.map(|(number, _name)| number))
    ///             })
    ///             .await?;
    ///         assert_eq!(number, Some(1));
    ///         Ok(())
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// [`IndexError::NotUnique`](crate::IndexError); the errors of [`Transaction::scan_by`] and [`Transaction::get`].
    pub async fn get_by<S, K, V>(
        &self,
        index: &Index<S, K, V>,
        key: &S,
    ) -> Result<Option<(K::Decoded, V::Ref<'_>)>>
    where
        S: TableKey + ?Sized,
        K: TableKey + ?Sized,
        V: Value + ?Sized,
    {
        let table = self.records(&index.table)?;
        if !index.core.is_unique() {
            let table = table.name().to_string();
            return Err(IndexError::NotUnique { table, index: index.name().to_owned() }.into());
        }
        self.core().check_usable(table, &index.core)?;
        let part = part_of(key);
        let found = engine_code(self.core().get_by_index(table, &index.core, &part)).await?;
        let Some((key, value)) = found else { return Ok(None) };
        Ok(Some((K::decode_key(&key)?, value.decode::<V>()?)))
    }

    fn index_scan<S, K, V>(
        &self,
        index: &Index<S, K, V>,
        bounds: ScanBounds,
    ) -> Result<transaction::IndexRecordScan<'_>>
    where
        S: TableKey + ?Sized,
        K: TableKey + ?Sized,
        V: Value + ?Sized,
    {
        self.records(&index.table)?;
        self.core().check_usable(&index.table.core, &index.core)?;
        Ok(self.core().scan_index(&index.table.core, &index.core, bounds))
    }
}

impl<S: TableKey + ?Sized, K: TableKey + ?Sized, V: Value + ?Sized> IndexScan<'_, S, K, V> {
    /// Reverses the order: from the largest key to the smallest. Call this before the first `next`;
    /// otherwise the next call fails with [`Misuse::ScanBegun`](crate::Misuse).
    ///
    /// ```
    /// use braiddb::{Database, Error, IndexOptions, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let db = Database::in_memory(Options::default().workers(1))?;
    ///         let names: Table<u64, str> = db.create_table("names").await?;
    ///         let by_name = db
    ///             .index(&names, "by_name", IndexOptions::default(), |name: &str, keys| {
    ///                 keys.push(name)
    ///             })
    ///             .await?;
    ///         for (number, name) in [(1, "ada"), (2, "bob"), (3, "eve")] {
    ///             db.put(&names, &number, name).await?;
    ///         }
    ///         let last = db.run(async move |tx| {
    ///             let mut scan = tx.scan_by(&by_name, ..)?.rev();
    ///             Ok(scan.next().await?.map(|(name, ..)| name))
    ///         });
    ///         assert_eq!(last.await?.as_deref(), Some("eve"));
    ///         Ok(())
    ///     })
    /// }
    /// ```
    #[must_use]
    pub fn rev(mut self) -> Self {
        self.core.set_direction(Direction::Reverse);
        self
    }

    /// Limits the scan to `count` records.
    ///
    /// ```
    /// use braiddb::{Database, Error, IndexOptions, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let db = Database::in_memory(Options::default().workers(1))?;
    ///         let names: Table<u64, str> = db.create_table("names").await?;
    ///         let by_name = db
    ///             .index(&names, "by_name", IndexOptions::default(), |name: &str, keys| {
    ///                 keys.push(name)
    ///             })
    ///             .await?;
    ///         for (number, name) in [(1, "ada"), (2, "bob"), (3, "eve")] {
    ///             db.put(&names, &number, name).await?;
    ///         }
    ///         let some = db.run(async move |tx| {
    ///             let (mut scan, mut some) = (tx.scan_by(&by_name, ..)?.limit(2), Vec::new());
    ///             while let Some((name, ..)) = scan.next().await? {
    ///                 some.push(name);
    ///             }
    ///             Ok(some)
    ///         });
    ///         assert_eq!(some.await?, ["ada", "bob"]);
    ///         Ok(())
    ///     })
    /// }
    /// ```
    #[must_use]
    pub fn limit(mut self, count: u64) -> Self {
        self.core.limit(count);
        self
    }

    /// Returns the next record as index key, record key and value; `None` after the last. The value
    /// is valid until the next call.
    ///
    /// Dropping the future or receiving an error loses no record: the next call returns the same
    /// record or tries it again.
    ///
    /// ```
    /// use braiddb::{Database, Error, IndexOptions, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let db = Database::in_memory(Options::default().workers(1))?;
    ///         let names: Table<u64, str> = db.create_table("names").await?;
    ///         let by_name = db
    ///             .index(&names, "by_name", IndexOptions::default(), |name: &str, keys| {
    ///                 keys.push(name)
    ///             })
    ///             .await?;
    ///         for (number, name) in [(1, "ada"), (2, "bob"), (3, "eve")] {
    ///             db.put(&names, &number, name).await?;
    ///         }
    ///         let first = db.run(async move |tx| {
    ///             let mut scan = tx.scan_by(&by_name, ..)?;
    ///             Ok(scan.next().await?.map(|(name, number, value)| (name, number, value.to_owned())))
    ///         });
    ///         assert_eq!(first.await?, Some(("ada".to_owned(), 1, "ada".to_owned())));
    ///         Ok(())
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`Scan::next`](crate::Scan::next).
    pub async fn next(&mut self) -> Result<Option<(S::Decoded, K::Decoded, V::Ref<'_>)>> {
        if !engine_code(self.core.next()).await? {
            return Ok(None);
        }
        let IndexHit { part, primary, value } = self.core.current().expect("loaded");
        let record = (S::Stored::decode_part(part)?.0, K::decode_key(primary)?, V::decode(value)?);
        self.core.give();
        Ok(Some(record))
    }
}

impl<S: TableKey + ?Sized, K: TableKey + ?Sized> IndexEntries<'_, S, K> {
    /// Reverses the order: from the largest key to the smallest. Call this before the first `next`;
    /// otherwise the next call fails with [`Misuse::ScanBegun`](crate::Misuse).
    ///
    /// ```
    /// use braiddb::{Database, Error, IndexOptions, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let db = Database::in_memory(Options::default().workers(1))?;
    ///         let names: Table<u64, str> = db.create_table("names").await?;
    ///         let by_name = db
    ///             .index(&names, "by_name", IndexOptions::default(), |name: &str, keys| {
    ///                 keys.push(name)
    ///             })
    ///             .await?;
    ///         for (number, name) in [(1, "ada"), (2, "bob"), (3, "eve")] {
    ///             db.put(&names, &number, name).await?;
    ///         }
    ///         let last = db.run(async move |tx| tx.entries_by(&by_name, ..)?.rev().next().await);
    ///         assert_eq!(last.await?, Some(("eve".to_owned(), 3)));
    ///         Ok(())
    ///     })
    /// }
    /// ```
    #[must_use]
    pub fn rev(self) -> Self {
        Self(self.0.rev())
    }

    /// Limits the scan to `count` entries.
    ///
    /// ```
    /// use braiddb::{Database, Error, IndexOptions, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let db = Database::in_memory(Options::default().workers(1))?;
    ///         let names: Table<u64, str> = db.create_table("names").await?;
    ///         let by_name = db
    ///             .index(&names, "by_name", IndexOptions::default(), |name: &str, keys| {
    ///                 keys.push(name)
    ///             })
    ///             .await?;
    ///         for (number, name) in [(1, "ada"), (2, "bob"), (3, "eve")] {
    ///             db.put(&names, &number, name).await?;
    ///         }
    ///         let some = db.run(async move |tx| {
    ///             let (mut entries, mut some) = (tx.entries_by(&by_name, ..)?.limit(2), Vec::new());
    ///             while let Some((_name, number)) = entries.next().await? {
    ///                 some.push(number);
    ///             }
    ///             Ok(some)
    ///         });
    ///         assert_eq!(some.await?, [1, 2]);
    ///         Ok(())
    ///     })
    /// }
    /// ```
    #[must_use]
    pub fn limit(self, count: u64) -> Self {
        Self(self.0.limit(count))
    }

    /// Returns the next entry as index key and record key; `None` after the last. Dropping the
    /// future or receiving an error loses no entry.
    ///
    /// ```
    /// use braiddb::{Database, Error, IndexOptions, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let db = Database::in_memory(Options::default().workers(1))?;
    ///         let names: Table<u64, str> = db.create_table("names").await?;
    ///         let by_name = db
    ///             .index(&names, "by_name", IndexOptions::default(), |name: &str, keys| {
    ///                 keys.push(name)
    ///             })
    ///             .await?;
    ///         for (number, name) in [(1, "ada"), (2, "bob"), (3, "eve")] {
    ///             db.put(&names, &number, name).await?;
    ///         }
    ///         let first = db.run(async move |tx| tx.entries_by(&by_name, ..)?.next().await);
    ///         assert_eq!(first.await?, Some(("ada".to_owned(), 1)));
    ///         Ok(())
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`Scan::next`](crate::Scan::next).
    pub async fn next(&mut self) -> Result<Option<(S::Decoded, K::Decoded)>> {
        let core = &mut self.0.core;
        if !engine_code(core.next()).await? {
            return Ok(None);
        }
        // The value is not decoded: only records that expire were read.
        let IndexHit { part, primary, .. } = core.current().expect("loaded");
        let entry = (S::Stored::decode_part(part)?.0, K::decode_key(primary)?);
        core.give();
        Ok(Some(entry))
    }
}

impl<S: ?Sized, K: ?Sized, V: ?Sized> std::fmt::Debug for IndexScan<'_, S, K, V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "IndexScan(at most {} more)", self.core.left())
    }
}

impl<S: ?Sized, K: ?Sized> std::fmt::Debug for IndexEntries<'_, S, K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("IndexEntries").field(&self.0).finish()
    }
}

/// Encodes a key as the first part of a tuple.
fn part_of<S: TableKey + ?Sized>(key: &S) -> KeyBuffer {
    let mut part = KeyBuffer::new();
    key.encode_key_part(&mut part);
    part
}

/// Returns the bounds of the entries for a range of index keys. The entries of one key start with
/// its encoded part, and no encoded part is a prefix of another.
fn bounds_of<S: TableKey + ?Sized>(range: &impl KeyRange<S>) -> ScanBounds {
    let (low, high) = range.key_bounds();
    let low = match low {
        Bound::Unbounded => Bound::Unbounded,
        Bound::Included(key) => Bound::Included(part_of(key)),
        Bound::Excluded(key) => match after_prefix(&part_of(key)) {
            Bound::Excluded(next) => Bound::Included(next),
            // No entry follows.
            _ => Bound::Excluded(last_possible()),
        },
    };
    let high = match high {
        Bound::Unbounded => Bound::Unbounded,
        Bound::Included(key) => after_prefix(&part_of(key)),
        Bound::Excluded(key) => Bound::Excluded(part_of(key)),
    };
    ScanBounds { low, high }
}

/// Returns a key that is larger than any key a table accepts.
fn last_possible() -> KeyBuffer {
    let mut key = KeyBuffer::new();
    key.extend_from_slice(&[u8::MAX; crate::index::MAX_KEY_BYTES]);
    key
}
