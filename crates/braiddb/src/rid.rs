//! Identifiers of records and tables.

/// A stable logical record id: the position of the record's entry in its table's indirection
/// array. Updates never change it. Below 2^48, so that it fits into one word with a tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Rid(u64);

impl Rid {
    /// The smallest number that is not a record id.
    pub(crate) const LIMIT: u64 = 1 << 48;

    /// The record id with this number, which must be below `LIMIT`.
    pub(crate) fn new(number: u64) -> Self {
        assert!(number < Self::LIMIT, "record id {number} does not fit in 48 bits");
        Self(number)
    }

    /// Its number, an index into the indirection array.
    pub(crate) fn number(self) -> u64 {
        self.0
    }
}

/// The id of a table, unique for the life of a database; the catalog is table 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct TableId(pub(crate) u32);

/// The catalog, the table of tables.
pub(crate) const CATALOG: TableId = TableId(0);
