//! Secondary indexes for users: created while writes continue, attached after each opening,
//! dropped. `docs/indexes.md` explains their design and correctness.

mod create;
mod drop;
mod read;
mod row;
#[cfg(all(test, not(loom)))]
mod tests;

use std::marker::PhantomData;
use std::sync::Arc;

pub use read::{IndexEntries, IndexScan};
pub(super) use row::is_row_key;
pub use row::{IndexDescription, IndexStage};

use super::table::Table;
use crate::record::{IndexCode, Secondary, ShowKey};
use crate::types::{DecodeError, Key, KeyBuffer, TableKey, Value};

/// A secondary index with keys of type `S` on a table with keys of type `K` and values of type `V`.
/// Cloning is cheap. It is valid until its database is closed or the index is dropped.
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
///         assert_eq!((by_name.name(), by_name.table().name()), ("by_name", "names"));
///         Ok(())
///     })
/// }
/// ```
pub struct Index<S: ?Sized, K: ?Sized, V: ?Sized> {
    pub(super) table: Table<K, V>,
    pub(super) core: Arc<Secondary>,
    types: PhantomData<fn() -> Box<S>>,
}

impl<S: TableKey + ?Sized, K: TableKey + ?Sized, V: Value + ?Sized> Index<S, K, V> {
    /// Returns the same index with keys in which text and bytes are borrowed, like
    /// [`Table::borrowed`]; for an example see [`IndexKeys::push_borrowed`].
    pub fn borrowed<B>(&self) -> Index<B, K, V>
    where
        B: TableKey<Stored = S::Stored> + ?Sized,
    {
        Index { table: self.table.clone(), core: self.core.clone(), types: PhantomData }
    }

    fn new(table: &Table<K, V>, core: Arc<Secondary>) -> Self {
        Self { table: table.clone(), core, types: PhantomData }
    }
}

impl<S: ?Sized, K: ?Sized, V: ?Sized> Index<S, K, V> {
    /// Returns the index's name.
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
    ///         assert_eq!(by_name.name(), "by_name");
    ///         Ok(())
    ///     })
    /// }
    /// ```
    pub fn name(&self) -> &str {
        self.core.name()
    }

    /// Returns the table of the index.
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
    ///         db.put(by_name.table(), &1, "ada").await?;
    ///         assert_eq!(db.get(&names, &1).await?.as_deref(), Some("ada"));
    ///         Ok(())
    ///     })
    /// }
    /// ```
    pub fn table(&self) -> &Table<K, V> {
        &self.table
    }
}

impl<S: ?Sized, K: ?Sized, V: ?Sized> Clone for Index<S, K, V> {
    fn clone(&self) -> Self {
        Self { table: self.table.clone(), core: self.core.clone(), types: PhantomData }
    }
}

impl<S: ?Sized, K: ?Sized, V: ?Sized> std::fmt::Debug for Index<S, K, V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Index({:?} of {:?})", self.name(), self.table.name())
    }
}

/// Options for creating an index. Start from `IndexOptions::default()`.
///
/// ```
/// use braiddb::IndexOptions;
///
/// // The second version of the key function.
/// let options = IndexOptions::default().unique(true).version(1);
/// assert_eq!((options.unique, options.version), (true, 1));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, serde::Serialize)]
#[non_exhaustive]
pub struct IndexOptions {
    /// If true, no two records may have the same key. Default: false.
    pub unique: bool,
    /// The version of the key function. Raise it when the function returns other keys for the same
    /// value than before. An index of another version cannot be attached. Default: 0.
    pub version: u32,
}

impl IndexOptions {
    /// Sets [`IndexOptions::unique`].
    ///
    /// ```
    /// use braiddb::{Database, Error, IndexOptions, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let db = Database::in_memory(Options::default().workers(1))?;
    ///         let names: Table<u64, str> = db.create_table("names").await?;
    ///         let unique = IndexOptions::default().unique(true);
    ///         db.index(&names, "by_name", unique, |name: &str, keys| keys.push(name)).await?;
    ///         db.put(&names, &1, "ada").await?;
    ///         let again = db.put(&names, &2, "ada").await;
    ///         assert!(matches!(again, Err(Error::UniqueViolation(_))));
    ///         Ok(())
    ///     })
    /// }
    /// ```
    #[must_use]
    pub fn unique(mut self, unique: bool) -> Self {
        self.unique = unique;
        self
    }

    /// Sets [`IndexOptions::version`].
    ///
    /// ```
    /// use braiddb::{Database, Error, IndexOptions, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let db = Database::in_memory(Options::default().workers(1))?;
    ///         let names: Table<u64, str> = db.create_table("names").await?;
    ///         // Version 0 of the function did not convert names to lower case.
    ///         let lower = IndexOptions::default().version(1);
    ///         db.index(&names, "by_name", lower, |name: &str, keys| keys.push(&name.to_lowercase()))
    ///             .await?;
    ///         Ok(())
    ///     })
    /// }
    /// ```
    #[must_use]
    pub fn version(mut self, version: u32) -> Self {
        self.version = version;
        self
    }
}

/// Collects the index keys of one record.
///
/// ```
/// use braiddb::{Database, Error, IndexOptions, Options, Table, block_on};
///
/// fn main() -> Result<(), Error> {
///     block_on(async {
///         let db = Database::in_memory(Options::default().workers(1))?;
///         let names: Table<u64, str> = db.create_table("names").await?;
///         // One key for each word of a name.
///         let by_word = db
///             .index(&names, "by_word", IndexOptions::default(), |name: &str, keys| {
///                 name.split(' ').for_each(|word| keys.push(word));
///             })
///             .await?;
///         db.put(&names, &1, "ada lovelace").await?;
///         let found =
///             db.run(async move |tx| tx.entries_by(&by_word, ..)?.rev().next().await).await?;
///         assert_eq!(found, Some(("lovelace".to_owned(), 1)));
///         Ok(())
///     })
/// }
/// ```
pub struct IndexKeys<'k, S: ?Sized> {
    keys: &'k mut Vec<KeyBuffer>,
    types: PhantomData<fn(&S)>,
}

impl<S: Key + ?Sized> IndexKeys<'_, S> {
    /// Adds a key. Adding the same key again has no effect.
    ///
    /// The type of the index's keys is that of the pushed ones. For a field of type `String` push
    /// `&*value.field`: then the keys are `str`, and lookups take `&str`.
    ///
    /// ```
    /// use braiddb::{Database, Error, IndexKeys, IndexOptions, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let db = Database::in_memory(Options::default().workers(1))?;
    ///         let names: Table<u64, str> = db.create_table("names").await?;
    ///         // Names without letters are not in the index.
    ///         let first_letter = |name: &str, keys: &mut IndexKeys<'_, str>| {
    ///             if let Some(letter) = name.chars().find(|c| c.is_alphabetic()) {
    ///                 keys.push(&letter.to_string());
    ///             }
    ///         };
    ///         let by_letter =
    ///             db.index(&names, "by_letter", IndexOptions::default(), first_letter).await?;
    ///         db.put(&names, &1, "(ada)").await?;
    ///         db.put(&names, &2, "?").await?;
    ///         let found = db.run(async move |tx| tx.entries_by(&by_letter, ..)?.next().await).await?;
    ///         assert_eq!(found, Some(("a".to_owned(), 1)));
    ///         Ok(())
    ///     })
    /// }
    /// ```
    pub fn push(&mut self, key: &S) {
        self.push_borrowed(key);
    }

    /// Adds a tuple key whose text or byte parts are borrowed, for example from the value
    /// ([`TableKey`]).
    ///
    /// ```
    /// use braiddb::{Database, Error, IndexKeys, IndexOptions, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let db = Database::in_memory(Options::default().workers(1))?;
    ///         let names: Table<u64, str> = db.create_table("names").await?;
    ///         let extract = |name: &str, keys: &mut IndexKeys<'_, (String, u64)>| {
    ///             keys.push_borrowed(&(name, name.len() as u64));
    ///         };
    ///         let index =
    ///             db.index(&names, "by name and length", IndexOptions::default(), extract).await?;
    ///         db.put(&names, &1, "ada").await?;
    ///         let index = index.borrowed();
    ///         let found = db.run(async move |tx| {
    ///             tx.scan_by(&index, ("ada", 3)..)?.next().await.map(|found| found.is_some())
    ///         });
    ///         assert!(found.await?);
    ///         Ok(())
    ///     })
    /// }
    /// ```
    pub fn push_borrowed<B>(&mut self, key: &B)
    where
        B: TableKey<Stored = S> + ?Sized,
    {
        let mut part = KeyBuffer::new();
        key.encode_key_part(&mut part);
        self.keys.push(part);
    }
}

impl<S: ?Sized> std::fmt::Debug for IndexKeys<'_, S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "IndexKeys({} keys)", self.keys.len())
    }
}

/// Progress of an index build, as reported by
/// [`Database::index_watched`](super::Database::index_watched).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct IndexProgress {
    /// Records processed so far.
    pub records: u64,
    /// Approximate number of records in the table.
    pub total: u64,
}

/// Wraps the key function for the engine.
fn erase<S, V, F>(extract: F) -> IndexCode
where
    S: Key + ?Sized,
    V: Value + ?Sized,
    F: Fn(V::Ref<'_>, &mut IndexKeys<'_, S>) + Send + Sync + 'static,
{
    let extract = Box::new(move |value: &[u8], keys: &mut Vec<KeyBuffer>| {
        extract(V::decode(value)?, &mut IndexKeys { keys, types: PhantomData });
        Ok(())
    });
    let show_key = ShowKey(|part| match S::decode_part(part).ok()? {
        (key, []) => S::shown(&key),
        _ => None,
    });
    IndexCode { extract, split: split::<S>, show_key }
}

/// Returns the length of the index key at the start of an entry's key, in bytes.
fn split<S: Key + ?Sized>(entry: &[u8]) -> Result<usize, DecodeError> {
    let (_, rest) = S::decode_part(entry)?;
    let part_bytes = entry.len().checked_sub(rest.len());
    part_bytes.ok_or_else(|| DecodeError::new("a key of an index"))
}
