//! Scans as their user sees them: typed, one record after another.

use std::marker::PhantomData;
use std::ops::Bound;

use super::error::Result;
use super::table::Table;
use crate::transaction::{self, Bounds, Direction};
use crate::types::{Key, KeyBuffer, Value};

/// A scan over the records of a range, in the order of their keys.
pub struct Scan<'tx, K: ?Sized, V: ?Sized> {
    core: transaction::Scan<'tx>,
    left: u64,
    types: PhantomData<fn(&K, &V)>,
}

impl<'tx, K: Key + ?Sized, V: Value + ?Sized> Scan<'tx, K, V> {
    pub(super) fn new(
        transaction: &'tx transaction::Transaction,
        table: &Table<K, V>,
        low: Bound<KeyBuffer>,
        high: Bound<KeyBuffer>,
    ) -> Self {
        let core = transaction.scan(&table.core, Bounds { low, high });
        Self { core, left: u64::MAX, types: PhantomData }
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
        self.left = count;
        self.core.expect_records(count);
        self
    }

    /// The next record, or `None` after the last.
    ///
    /// # Errors
    /// When stored bytes do not decode.
    pub async fn next(&mut self) -> Result<Option<(K::Owned, V::Ref<'tx>)>> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        let Some((key, value)) = self.core.next().await? else {
            self.left = 0;
            return Ok(None);
        };
        Ok(Some((K::decode(&key)?, V::decode(value)?)))
    }
}

impl<K: ?Sized, V: ?Sized> std::fmt::Debug for Scan<'_, K, V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Scan(at most {} more)", self.left)
    }
}
