//! Scans as their user sees them: typed, one record after another.

use std::marker::PhantomData;
use std::ops::Bound;

use super::error::Result;
use super::table::Table;
use crate::sched::engine_code;
use crate::transaction::{self, Bounds, Direction};
use crate::types::{Key, KeyBuffer, Value};

/// A scan over the records of a range, in the order of their keys.
///
/// It holds a few records at a time: what it gave is released as it goes on, so that a range of any
/// size can be scanned.
pub struct Scan<'tx, K: ?Sized, V: ?Sized> {
    core: transaction::Scan<'tx>,
    types: PhantomData<fn(&K, &V)>,
}

impl<'tx, K: Key + ?Sized, V: Value + ?Sized> Scan<'tx, K, V> {
    pub(super) fn new(
        transaction: &'tx transaction::Transaction,
        table: &Table<K, V>,
        low: Bound<KeyBuffer>,
        high: Bound<KeyBuffer>,
    ) -> Self {
        Self::of(transaction.scan(&table.core, Bounds { low, high }))
    }

    pub(super) fn of(core: transaction::Scan<'tx>) -> Self {
        Self { core, types: PhantomData }
    }

    /// From the largest key to the smallest instead; to be called before the first `next`.
    #[must_use]
    pub fn rev(mut self) -> Self {
        self.core.set_direction(Direction::Reverse);
        self
    }

    /// At most `count` records.
    #[must_use]
    pub fn limit(mut self, count: u64) -> Self {
        self.core.limit(count);
        self
    }

    /// The next record, or `None` after the last. The value is good until the next call; see
    /// [`Value::into_owned`] for one that stays.
    ///
    /// Dropping the future loses no record: the next call gives the one that this would have given.
    /// So does an error, and the record it is about is tried again.
    ///
    /// ```
    /// # use braiddb::{Database, Error, Options, Table};
    /// # let db = Database::in_memory(Options::default().workers(1))?;
    /// # let table: Table<u64, str> = pollster::block_on(db.create_table("names"))?;
    /// let longest = db.run_blocking(async move |tx| {
    ///     tx.put(&table, &1, "one").await?;
    ///     tx.put(&table, &3, "three").await?;
    ///     let (mut scan, mut longest) = (tx.scan(&table, ..)?, String::new());
    ///     while let Some((_, name)) = scan.next().await? {
    ///         if name.len() > longest.len() {
    ///             longest = name.to_owned();
    ///         }
    ///     }
    ///     Ok(longest)
    /// })?;
    /// assert_eq!(longest, "three");
    /// # Ok::<_, Error>(())
    /// ```
    ///
    /// # Errors
    /// When stored bytes do not decode; [`Error::Log`](crate::Error::Log) when they cannot be read;
    /// [`Error::Overloaded`](crate::Error::Overloaded).
    pub async fn next(&mut self) -> Result<Option<(K::Owned, V::Ref<'_>)>> {
        if !engine_code(self.core.next()).await? {
            return Ok(None);
        }
        let (key, value) = self.core.current().expect("loaded");
        let record = (K::decode(key)?, V::decode(value)?);
        self.core.give();
        Ok(Some(record))
    }

    /// The next key as it is stored.
    pub(super) async fn next_encoded(&mut self) -> Result<Option<&KeyBuffer>> {
        if !engine_code(self.core.next()).await? {
            return Ok(None);
        }
        self.core.give();
        Ok(self.core.current().map(|(key, _)| key))
    }

    /// The first record, with a value that is good while the transaction is active.
    pub(super) async fn into_first(self) -> Result<Option<(K::Owned, V::Ref<'tx>)>> {
        let Some((key, value)) = engine_code(self.core.into_first()).await? else {
            return Ok(None);
        };
        Ok(Some((K::decode(&key)?, V::decode(value)?)))
    }
}

impl<K: ?Sized, V: ?Sized> std::fmt::Debug for Scan<'_, K, V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Scan(at most {} more)", self.core.left())
    }
}
