//! Items of a change feed: transactions and their changes.

use std::sync::Arc;
use std::time::SystemTime;

use super::token::ChangeToken;
use crate::database::Result;
use crate::types::{TableKey, Value};

/// A committed transaction. In a feed that starts with a snapshot, also a piece of the snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChangeTransaction {
    /// The position of the commit in the log. For a piece of a snapshot, the LSN of the snapshot
    /// ([`Snapshot::lsn`](crate::Snapshot::lsn)).
    pub commit_lsn: u64,
    /// True for a piece of the snapshot that a feed starts with. All of its changes are insertions
    /// of records and creations of tables.
    pub snapshot: bool,
    /// The changes to the feed's tables. Changes of tables themselves come first, then the changes
    /// of records, in the order of the writes.
    pub changes: Vec<Change>,
    /// The resume point after this item and all items before it. `None` in every piece of a
    /// snapshot except the last: an incomplete snapshot cannot be resumed.
    pub token: Option<ChangeToken>,
}

/// A change of one record, or of a table itself.
///
/// ```
/// use braiddb::changes::ChangesFrom;
/// use braiddb::{Database, Options, Table, block_on};
///
/// fn main() -> Result<(), Box<dyn std::error::Error>> {
///     block_on(async {
///         let directory = tempfile::tempdir()?;
///         let db = Database::open(directory.path(), Options::default())?;
///         let cities: Table<str, u64> = db.create_table("cities").await?;
///         let mut changes = db.changes(ChangesFrom::Now).tables([&cities]);
///         db.put(&cities, "Maribor", &96_211).await?;
///         let transaction = changes.next().await?.expect("a feed ends with an error");
///         for change in &transaction.changes {
///             let key = change.key_as::<str>()?;
///             match change.kind.gives_value() {
///                 true => {
///                     println!("{} of {key}: {}", change.kind.name(), change.value_as::<u64>()?)
///                 }
///                 false => println!("{} of {key}", change.kind.name()),
///             }
///         }
///         Ok(())
///     })
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Change {
    /// The name of the table when the transaction committed. If the transaction renamed the table,
    /// the previous name.
    pub table: Arc<str>,
    /// The table's number, which never changes
    /// ([`TableDescription::id`](crate::tables::TableDescription::id)).
    pub table_id: u32,
    /// The kind of change.
    pub kind: ChangeKind,
    /// The record's key in its stored encoding ([`Change::key_as`]); empty for a table.
    pub key: Vec<u8>,
    /// The record's new value in its stored encoding ([`Change::value_as`]); empty for a deletion
    /// and for a table.
    pub value: Vec<u8>,
    /// The time at which the record expires, if the table's records expire
    /// ([`TableOptions::ttl`](crate::TableOptions::ttl)).
    pub expires_at: Option<SystemTime>,
}

/// The kind of a change to a record or a table.
///
/// ```
/// use braiddb::changes::ChangeKind;
///
/// assert_eq!(ChangeKind::Insert.name(), "insert");
/// assert!(ChangeKind::Insert.gives_value() && !ChangeKind::Delete.gives_value());
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ChangeKind {
    /// The record was created; no record had this key.
    Insert,
    /// The record has a new value. The old record may have expired without being deleted yet.
    Update,
    /// The record has this value, and may have existed before. Paged tables log all their writes
    /// this way ([`TableOptions::paged`](crate::TableOptions::paged)).
    Put,
    /// The record was deleted. In a paged table, or if the same transaction created it, the record
    /// may not have existed before. Expired records are reported as deleted when the workers delete
    /// them.
    Delete,
    /// The table was created.
    TableCreated,
    /// The table was published with records that the feed did not return, because it was filled as
    /// a staged table ([`StagedTable`](crate::StagedTable)). Read them with a
    /// [`Snapshot`](crate::Snapshot) or a feed that starts with one. Later changes follow in this
    /// feed.
    TablePublished,
    /// The table was dropped with all its records. The feed does not return the deletions of the
    /// records.
    TableDropped,
    /// The table has another name from this commit on.
    TableRenamed {
        /// The new name.
        to: Arc<str>,
    },
}

impl ChangeKind {
    /// Returns the name of the kind, such as `insert` or `table_created`.
    ///
    /// ```
    /// use braiddb::changes::ChangeKind;
    ///
    /// let renamed = ChangeKind::TableRenamed { to: "orders".into() };
    /// assert_eq!((ChangeKind::Update.name(), renamed.name()), ("update", "table_renamed"));
    /// ```
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Insert => "insert",
            Self::Update => "update",
            Self::Put => "put",
            Self::Delete => "delete",
            Self::TableCreated => "table_created",
            Self::TablePublished => "table_published",
            Self::TableDropped => "table_dropped",
            Self::TableRenamed { .. } => "table_renamed",
        }
    }

    /// Returns whether a change of this kind has a [`Change::value`].
    ///
    /// ```
    /// use braiddb::changes::ChangeKind;
    ///
    /// assert!(ChangeKind::Update.gives_value() && ChangeKind::Put.gives_value());
    /// assert!(!ChangeKind::Delete.gives_value() && !ChangeKind::TableCreated.gives_value());
    /// ```
    #[must_use]
    pub fn gives_value(&self) -> bool {
        matches!(self, Self::Insert | Self::Update | Self::Put)
    }
}

impl Change {
    /// Creates a change of a table itself.
    pub(super) fn of_table(table: Arc<str>, table_id: u32, kind: ChangeKind) -> Self {
        Self { table, table_id, kind, key: Vec::new(), value: Vec::new(), expires_at: None }
    }

    /// Decodes the record's key as this type.
    ///
    /// ```
    /// use braiddb::changes::ChangesFrom;
    /// use braiddb::{Database, Error, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let directory = tempfile::tempdir().unwrap();
    ///         let db = Database::open(directory.path(), Options::default().workers(1))?;
    ///         let orders: Table<(u64, String), str> = db.create_table("orders").await?;
    ///         let mut changes = db.changes(ChangesFrom::Now).tables([&orders]);
    ///         db.put(&orders, &(7, "ada".to_owned()), "nails").await?;
    ///         let transaction = changes.next().await?.expect("a feed ends with an error");
    ///         let (day, customer) = transaction.changes[0].key_as::<(u64, String)>()?;
    ///         assert_eq!((day, &*customer), (7, "ada"));
    ///         Ok(())
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// [`Error::Decode`](crate::Error::Decode).
    pub fn key_as<K: TableKey + ?Sized>(&self) -> Result<K::Decoded> {
        Ok(K::decode_key(&self.key)?)
    }

    /// Decodes the record's value as this type.
    ///
    /// ```
    /// use braiddb::changes::ChangesFrom;
    /// use braiddb::{Database, Error, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let directory = tempfile::tempdir().unwrap();
    ///         let db = Database::open(directory.path(), Options::default().workers(1))?;
    ///         let orders: Table<u64, str> = db.create_table("orders").await?;
    ///         let mut changes = db.changes(ChangesFrom::Now).tables([&orders]);
    ///         db.put(&orders, &7, "nails").await?;
    ///         let transaction = changes.next().await?.expect("a feed ends with an error");
    ///         assert_eq!(transaction.changes[0].value_as::<str>()?, "nails");
    ///         // Decoding as another type than the table's fails.
    ///         assert!(matches!(transaction.changes[0].value_as::<u64>(), Err(Error::Decode(_))));
    ///         Ok(())
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// [`Error::Decode`](crate::Error::Decode).
    pub fn value_as<V: Value + ?Sized>(&self) -> Result<V::Owned> {
        Ok(V::into_owned(V::decode(&self.value)?))
    }
}
