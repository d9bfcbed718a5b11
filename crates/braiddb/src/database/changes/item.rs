//! What a feed gives: transactions, and what each of them changed.

use std::sync::Arc;
use std::time::SystemTime;

use super::token::ChangeToken;
use crate::database::Result;
use crate::types::{TableKey, Value};

/// A committed transaction, or of a feed that begins with a snapshot a piece of that.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChangeTransaction {
    /// Where in the log the transaction committed; of a piece of a snapshot, the LSN of the snapshot
    /// ([`Snapshot::lsn`](crate::Snapshot::lsn)).
    pub commit_lsn: u64,
    /// Whether this is a piece of the snapshot that a feed began with: all its changes are insertions of records, and creations of
    /// tables.
    pub snapshot: bool,
    /// What it did to the tables of the feed: what concerns tables as such first, then records, in the order in which they
    /// were written.
    pub changes: Vec<Change>,
    /// Where a feed goes on that has this and all before. None in the pieces of a snapshot but the last: who has only
    /// some of them has to begin again.
    pub token: Option<ChangeToken>,
}

/// What a transaction did to one record, or to a table as such.
///
/// ```
/// use braiddb::changes::ChangesFrom;
/// use braiddb::{Database, Options, Table};
///
/// # pollster::block_on(async {
/// # let directory = tempfile::tempdir()?;
/// let db = Database::open(directory.path(), Options::default())?;
/// let cities: Table<str, u64> = db.create_table("cities").await?;
/// let mut changes = db.changes(ChangesFrom::Now).tables([&cities]);
/// db.put(&cities, "Maribor", &96_211).await?;
/// let transaction = changes.next().await?.expect("a feed ends with an error");
/// for change in &transaction.changes {
///     let key = change.key_as::<str>()?;
///     match change.kind.gives_value() {
///         true => println!("{} of {key}: {}", change.kind.name(), change.value_as::<u64>()?),
///         false => println!("{} of {key}", change.kind.name()),
///     }
/// }
/// # Ok::<_, Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Change {
    /// The table, by the name that it had when the transaction committed; if that gave it another name, by the one
    /// before.
    pub table: Arc<str>,
    /// The table's number, which it keeps ([`TableDescription::id`](crate::tables::TableDescription::id)).
    pub table_id: u32,
    /// What was done.
    pub kind: ChangeKind,
    /// The record's key, as its type encodes it ([`Change::key_as`]); empty for a table.
    pub key: Vec<u8>,
    /// The record's value afterwards, as its type encodes it ([`Change::value_as`]); empty for a deletion and a table.
    pub value: Vec<u8>,
    /// When the record expires, in a table whose records do ([`TableOptions::ttl`](crate::TableOptions::ttl)).
    pub expires_at: Option<SystemTime>,
}

/// What was done to a record or a table.
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
    /// The record was made: there was none of this key.
    Insert,
    /// The record has another value; also one that had expired, and was not swept yet.
    Update,
    /// The record has this value, whether it was there before or not: so paged tables log it
    /// ([`TableOptions::paged`](crate::TableOptions::paged)).
    Put,
    /// There is no record of this key any more. There need not have been one, in a paged table, or where the same transaction
    /// had made it. Records that expire are deleted when they are swept.
    Delete,
    /// The table was created.
    TableCreated,
    /// The table was published, with records of which the feed gave none: it was filled as a staged one
    /// ([`StagedTable`](crate::StagedTable)). Read them, in a [`Snapshot`](crate::Snapshot) or by a feed that begins with one;
    /// changes since are among those that follow.
    TablePublished,
    /// The table was dropped, with all its records; of their deletion the feed gives nothing.
    TableDropped,
    /// The table has another name from here on.
    TableRenamed {
        /// Its new name.
        to: Arc<str>,
    },
}

impl ChangeKind {
    /// Its name, such as `insert` or `table_created`.
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

    /// Whether the record has [`Change::value`] afterwards.
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
    /// What concerns a table as such.
    pub(super) fn of_table(table: Arc<str>, table_id: u32, kind: ChangeKind) -> Self {
        Self { table, table_id, kind, key: Vec::new(), value: Vec::new(), expires_at: None }
    }

    /// The record's key, which must be of this type.
    ///
    /// ```
    /// # use braiddb::changes::ChangesFrom;
    /// # use braiddb::{Database, Error, Options, Table};
    /// # pollster::block_on(async {
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let db = Database::open(directory.path(), Options::default().workers(1))?;
    /// let orders: Table<(u64, String), str> = db.create_table("orders").await?;
    /// let mut changes = db.changes(ChangesFrom::Now).tables([&orders]);
    /// db.put(&orders, &(7, "ada".to_owned()), "nails").await?;
    /// let transaction = changes.next().await?.expect("a feed ends with an error");
    /// let (day, customer) = transaction.changes[0].key_as::<(u64, String)>()?;
    /// assert_eq!((day, &*customer), (7, "ada"));
    /// # Ok::<_, Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// [`Error::Decode`](crate::Error::Decode).
    pub fn key_as<K: TableKey + ?Sized>(&self) -> Result<K::Decoded> {
        Ok(K::decode_key(&self.key)?)
    }

    /// The record's value, which must be of this type.
    ///
    /// ```
    /// # use braiddb::changes::ChangesFrom;
    /// # use braiddb::{Database, Error, Options, Table};
    /// # pollster::block_on(async {
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let db = Database::open(directory.path(), Options::default().workers(1))?;
    /// # let orders: Table<u64, str> = db.create_table("orders").await?;
    /// let mut changes = db.changes(ChangesFrom::Now).tables([&orders]);
    /// db.put(&orders, &7, "nails").await?;
    /// let transaction = changes.next().await?.expect("a feed ends with an error");
    /// assert_eq!(transaction.changes[0].value_as::<str>()?, "nails");
    /// // Of another type than the table's.
    /// assert!(matches!(transaction.changes[0].value_as::<u64>(), Err(Error::Decode(_))));
    /// # Ok::<_, Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// [`Error::Decode`](crate::Error::Decode).
    pub fn value_as<V: Value + ?Sized>(&self) -> Result<V::Owned> {
        Ok(V::into_owned(V::decode(&self.value)?))
    }
}
