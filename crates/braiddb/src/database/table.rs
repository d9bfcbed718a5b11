//! Typed table handles and ranges of typed keys.

use std::borrow::Borrow;
use std::marker::PhantomData;
use std::ops::{Bound, Range, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};
use std::sync::Arc;

use super::error::{Error, RecordKey};
use crate::record::{self, ShowKey};
use crate::types::{Key, KeyBuffer, TableKey, Value};

/// A table with keys of type `K` and values of type `V`. Cloning is cheap. The handle is valid
/// while its database is open.
///
/// `K` and `V` may be unsized: `Table<str, [u8]>` maps strings to bytes. Text and bytes in tuple
/// keys may be borrowed: lookups in a `Table<(&str, u64), V>` need no owned text ([`TableKey`]).
pub struct Table<K: ?Sized, V: ?Sized> {
    pub(super) name: Arc<str>,
    pub(super) core: Arc<record::Records>,
    types: Types<K, V>,
}

/// The types of a handle. They are covariant in lifetimes, so the keys of one operation may be
/// borrowed for it (`TableKey`).
type Types<K, V> = PhantomData<fn() -> (Box<K>, Box<V>)>;

impl<K: TableKey + ?Sized, V: Value + ?Sized> Table<K, V> {
    pub(super) fn new(name: &str, core: Arc<record::Records>) -> Self {
        core.set_first_name(name);
        Self { name: name.into(), core, types: PhantomData }
    }

    /// Creates a handle with the types with which the table was created.
    pub(super) fn of_its_types(name: &str, core: Arc<record::Records>) -> Self {
        core.set_show_key(ShowKey(|bytes| K::Stored::shown(&K::decode_key(bytes).ok()?)));
        Self::new(name, core)
    }
}

impl<K: ?Sized, V: ?Sized> Table<K, V> {
    /// Returns the table's name.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let db = Database::in_memory(Options::default().workers(1))?;
    ///         let names: Table<u64, str> = db.create_table("names").await?;
    ///         assert_eq!(names.name(), "names");
    ///         Ok(())
    ///     })
    /// }
    /// ```
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl<K: TableKey + ?Sized, V: Value + ?Sized> Table<K, V> {
    /// Returns the error [`Error::KeyNotFound`] for a key of this table, for a program that needs a
    /// record which `get` did not find.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let db = Database::in_memory(Options::default().workers(1))?;
    ///         let names: Table<u64, str> = db.create_table("names").await?;
    ///         let name = db.get(&names, &7).await?.ok_or_else(|| names.key_not_found(&7));
    ///         let message = name.unwrap_err().to_string();
    ///         assert!(message.starts_with("table \"names\" has no record with the key 7"));
    ///         Ok(())
    ///     })
    /// }
    /// ```
    #[cold]
    pub fn key_not_found(&self, key: &K) -> Error {
        let mut encoded = KeyBuffer::new();
        key.encode_key(&mut encoded);
        let key = self.core.encoded_key(&encoded);
        Error::KeyNotFound(Box::new(RecordKey { table: self.name.to_string(), key }))
    }

    /// Returns the table with its keys and values in their stored encoding. Written keys and values
    /// must be valid encodings of the table's types.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let db = Database::in_memory(Options::default().workers(1))?;
    ///         let names: Table<u64, str> = db.create_table("names").await?;
    ///         db.put(&names, &1, "ada").await?;
    ///         let encoded = names.encoded();
    ///         assert_eq!(db.get(&encoded, &1_u64.to_be_bytes()).await?.as_deref(), Some(&b"ada"[..]));
    ///         Ok(())
    ///     })
    /// }
    /// ```
    pub fn encoded(&self) -> Table<[u8], [u8]> {
        self.with_types()
    }

    /// Returns the same table with keys in which text and bytes are borrowed ([`TableKey`]). The
    /// compiler infers `B` from the use.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let db = Database::in_memory(Options::default().workers(1))?;
    ///         let sold: Table<(String, u64), u64> = db.create_table("sold").await?;
    ///         db.put(&sold, &("eu".to_owned(), 7), &40).await?;
    ///         let region = "eu";
    ///         assert_eq!(db.get(&sold.borrowed(), &(region, 7)).await?, Some(40));
    ///         Ok(())
    ///     })
    /// }
    /// ```
    pub fn borrowed<B>(&self) -> Table<B, V>
    where
        B: TableKey<Stored = K::Stored> + ?Sized,
    {
        self.with_types()
    }
}

impl<K: TableKey + ?Sized, V: Value + ?Sized> Table<K, V> {
    /// Returns the same table with its stored key type: a handle that borrows nothing.
    pub(super) fn stored(&self) -> Table<K::Stored, V> {
        self.with_types()
    }
}

impl<K: ?Sized, V: ?Sized> Table<K, V> {
    /// Returns the same table with other types of the same encoding.
    pub(super) fn with_types<L: ?Sized, W: ?Sized>(&self) -> Table<L, W> {
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
///
/// ```
/// use std::ops::Bound;
///
/// use braiddb::KeyRange;
///
/// let bounds = KeyRange::<u64>::key_bounds(&(3..7));
/// assert_eq!(bounds, (Bound::Included(&3), Bound::Excluded(&7)));
/// ```
pub trait KeyRange<K: ?Sized> {
    /// Returns the start and the end of the range.
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
