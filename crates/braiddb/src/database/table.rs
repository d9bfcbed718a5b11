//! Typed table handles, and ranges of typed keys.

use std::borrow::Borrow;
use std::marker::PhantomData;
use std::ops::{Bound, Range, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};
use std::sync::Arc;

use crate::record;
use crate::types::{Key, Value};

/// A table with keys of type `K` and values of type `V`; cheap to clone, and good for as long as
/// its database is open.
///
/// `K` and `V` may be unsized: `Table<str, [u8]>` maps strings to bytes.
pub struct Table<K: ?Sized, V: ?Sized> {
    pub(super) name: Arc<str>,
    pub(super) core: Arc<record::Records>,
    types: PhantomData<fn(&K, &V)>,
}

impl<K: Key + ?Sized, V: Value + ?Sized> Table<K, V> {
    pub(super) fn new(name: &str, core: Arc<record::Records>) -> Self {
        core.set_name(name);
        Self { name: name.into(), core, types: PhantomData }
    }
}

impl<K: ?Sized, V: ?Sized> Table<K, V> {
    /// The table's name.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl<K: Key + ?Sized, V: Value + ?Sized> Table<K, V> {
    /// The table with its keys and values as they are stored. What is written must be as the types encode
    /// it.
    pub fn encoded(&self) -> Table<[u8], [u8]> {
        Table { name: self.name.clone(), core: self.core.clone(), types: PhantomData }
    }
}

impl<K: ?Sized, V: ?Sized> Clone for Table<K, V> {
    fn clone(&self) -> Self {
        Self { name: self.name.clone(), core: self.core.clone(), types: PhantomData }
    }
}

impl<K: ?Sized, V: ?Sized> std::fmt::Debug for Table<K, V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Table({:?})", self.name)
    }
}

/// A range of keys: any of Rust's range expressions, or a pair of [`Bound`]s.
///
/// For a `Table<u64, _>`, `3..7` and `..`; for a `Table<str, _>`, `"a".."b"`.
pub trait KeyRange<K: ?Sized> {
    /// Where the range starts and ends.
    fn key_bounds(&self) -> (Bound<&K>, Bound<&K>);
}

impl<K: ?Sized> KeyRange<K> for RangeFull {
    fn key_bounds(&self) -> (Bound<&K>, Bound<&K>) {
        (Bound::Unbounded, Bound::Unbounded)
    }
}

impl<K: ?Sized, B: Borrow<K>> KeyRange<K> for Range<B> {
    fn key_bounds(&self) -> (Bound<&K>, Bound<&K>) {
        (Bound::Included(self.start.borrow()), Bound::Excluded(self.end.borrow()))
    }
}

impl<K: ?Sized, B: Borrow<K>> KeyRange<K> for RangeInclusive<B> {
    fn key_bounds(&self) -> (Bound<&K>, Bound<&K>) {
        (Bound::Included(self.start().borrow()), Bound::Included(self.end().borrow()))
    }
}

impl<K: ?Sized, B: Borrow<K>> KeyRange<K> for RangeFrom<B> {
    fn key_bounds(&self) -> (Bound<&K>, Bound<&K>) {
        (Bound::Included(self.start.borrow()), Bound::Unbounded)
    }
}

impl<K: ?Sized, B: Borrow<K>> KeyRange<K> for RangeTo<B> {
    fn key_bounds(&self) -> (Bound<&K>, Bound<&K>) {
        (Bound::Unbounded, Bound::Excluded(self.end.borrow()))
    }
}

impl<K: ?Sized, B: Borrow<K>> KeyRange<K> for RangeToInclusive<B> {
    fn key_bounds(&self) -> (Bound<&K>, Bound<&K>) {
        (Bound::Unbounded, Bound::Included(self.end.borrow()))
    }
}

impl<K: ?Sized, B: Borrow<K>> KeyRange<K> for (Bound<B>, Bound<B>) {
    fn key_bounds(&self) -> (Bound<&K>, Bound<&K>) {
        (self.0.as_ref().map(Borrow::borrow), self.1.as_ref().map(Borrow::borrow))
    }
}
