//! Records that transactions conflict on.

use std::ops::Bound;

use crate::record::ShowKey;
use crate::transaction::NamedKeys;
use crate::types::{DecodeError, TableKey};

/// Records of a conflict: one key or a range of keys that a transaction was about to write or had
/// read, and that another transaction wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Contended {
    /// Name of the table.
    pub table: String,
    /// Bounds of the encoded keys; both bounds are the key if it is a single one.
    pub keys: (Bound<Vec<u8>>, Bound<Vec<u8>>),
    show_key: ShowKey,
}

impl Contended {
    /// Decodes the key as this type. Returns `None` for a range of keys.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let db = Database::in_memory(Options::default().workers(1))?;
    ///         let seats: Table<(u64, String), u64> = db.create_table("seats").await?;
    ///         let seat = (7, "B".to_owned());
    ///         let (first, second) = (db.begin().await?, db.begin().await?);
    ///         first.put(&seats, &seat, &1).await?;
    ///         match second.put(&seats, &seat, &2).await {
    ///             Err(Error::Conflict { record: Some(record), .. }) => {
    ///                 assert_eq!(record.key_as::<(u64, String)>()?, Some(seat));
    ///             }
    ///             other => panic!("{other:?}"),
    ///         }
    ///         Ok(())
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// An error if the bytes encode no such key.
    pub fn key_as<K: TableKey + ?Sized>(&self) -> Result<Option<K::Decoded>, DecodeError> {
        match &self.keys {
            (Bound::Included(low), Bound::Included(high)) if low == high => {
                K::decode_key(low).map(Some)
            }
            _ => Ok(None),
        }
    }
}

impl From<NamedKeys> for Contended {
    fn from(records: NamedKeys) -> Self {
        let NamedKeys { table, keys, show_key } = records;
        Self { table, keys, show_key }
    }
}

/// Shows keys as [`Key::shown`](crate::Key::shown) returns them, or as their bytes.
impl std::fmt::Display for Contended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "table {:?}", self.table)?;
        match &self.keys {
            (Bound::Unbounded, Bound::Unbounded) => Ok(()),
            (Bound::Included(low), Bound::Included(high)) if low == high => {
                write!(f, ", key {}", self.show_key.show(low))
            }
            (low, high) => {
                let key = |bound: &Bound<Vec<u8>>, unbounded: &str| match bound {
                    Bound::Included(key) => self.show_key.show(key),
                    Bound::Excluded(key) => format!("{} (excluded)", self.show_key.show(key)),
                    Bound::Unbounded => unbounded.to_owned(),
                };
                let (low, high) = (key(low, "the first"), key(high, "the last"));
                write!(f, ", keys from {low} to {high}")
            }
        }
    }
}
