//! Row writes: what a transaction wrote, by table and key.
//!
//! The contents of the encoding:
//!
//! | bytes | contents |
//! |---|---|
//! | 8 | time of the transaction, in milliseconds since 1970; 0 if no record expires |
//! | 4 | number of rows |
//! | each row | space `u16`, kind, key (length `u16`, bytes); expiry `u64`; value (length `u32`, bytes) |
//! | 4 | number of keys of index entries |
//! | each of these | space `u16`, key (length `u16`, bytes) |
//!
//! A row's kind is 0 (insert), 1 (update) or 2 (delete), plus 4 if the row has an expiry. A deleted
//! row has neither expiry nor value.

use std::ops::Range;

use super::encoding::{
    Ascending, DamagedSet, Reader, Spaces, SpacesToEncode, add_count, add_key, open, seal,
};
use super::key_set::{KeySet, KeySetBuilder};
use crate::sched::{self, run_now};

const KIND: u8 = b'W';
/// Flag of a row's kind: an expiry follows the key.
const EXPIRES: u8 = 4;

/// The effect of a transaction on a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RowWriteKind {
    /// The record did not exist, and now has a value.
    Insert,
    /// The record existed, and has another value.
    Update,
    /// The record does not exist any more. If the transaction also created it, it never existed.
    Delete,
}

/// A record that a transaction wrote, with its last value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RowWrite<'w> {
    /// Name of the table.
    pub table: &'w str,
    /// The encoded key.
    pub key: &'w [u8],
    /// The effect of the transaction.
    pub kind: RowWriteKind,
    /// The encoded value; `None` for a deletion.
    pub value: Option<&'w [u8]>,
    /// The time at which the record expires, in milliseconds since 1970; `None` for a deletion and
    /// for tables without a lifetime.
    pub expires_at_ms: Option<u64>,
}

/// The writes of a transaction: one row for each record, and the keys of the index entries that
/// these rows change. [`Database::execute`](crate::Database::execute) returns it, and
/// [`Transaction::apply`](crate::Transaction::apply) applies it.
///
/// A value of this type is its own encoding, which has a version and a checksum and is the same on
/// all machines.
///
/// ```
/// use braiddb::proposals::{RowWriteKind, RowWrites};
/// use braiddb::{Database, Error, Options, Table, block_on};
///
/// fn main() -> Result<(), Error> {
///     block_on(async {
///         let db = Database::in_memory(Options::default().workers(1))?;
///         let names: Table<u64, str> = db.create_table("names").await?;
///         let proposal = db.execute(async move |tx| tx.put(&names, &1, "ada").await).await?;
///         let writes = RowWrites::decode(proposal.writes.as_bytes()).expect("not damaged");
///         assert!(!writes.is_empty());
///         let row = writes.rows().next().expect("one row");
///         assert_eq!((row.table, row.kind), ("names", RowWriteKind::Insert));
///         assert_eq!((row.value, row.expires_at_ms), (Some(&b"ada"[..]), None));
///         assert_eq!(writes.time_ms(), 0);
///         assert_eq!(writes.keys().points().count(), 1);
///         Ok(())
///     })
/// }
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct RowWrites {
    bytes: Box<[u8]>,
    spaces: Spaces,
    /// Position of the time, which the rows follow.
    time: usize,
}

impl RowWrites {
    /// Returns the encoding, for [`RowWrites::decode`].
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Decodes row writes.
    ///
    /// # Errors
    /// [`DamagedSet`] if the bytes are not exactly the encoding of row writes.
    pub fn decode(bytes: &[u8]) -> Result<Self, DamagedSet> {
        let (spaces, mut reader) = open(bytes, KIND, "row writes")?;
        let time = reader.position();
        let is_table: Vec<_> = spaces.all(bytes).map(|space| space.index.is_none()).collect();
        check(&mut reader, &spaces, &is_table).ok_or(DamagedSet::Malformed)?;
        Ok(Self { bytes: bytes.into(), spaces, time })
    }

    /// Returns whether the transaction wrote nothing.
    pub fn is_empty(&self) -> bool {
        self.rows().next().is_none()
    }

    /// Returns the written records, in the order of their tables and keys.
    pub fn rows(&self) -> impl Iterator<Item = RowWrite<'_>> {
        let mut reader = Reader::at(&self.bytes, self.time + size_of::<u64>());
        let count = reader.count().expect("checked");
        (0..count).map(move |_| {
            let (space, row) = read_row(&mut reader, &self.spaces).expect("checked");
            RowWrite { table: self.spaces.get(&self.bytes, space).table, ..row }
        })
    }

    /// Returns the time of the transaction in milliseconds since 1970, by which it decided which
    /// records had expired; 0 if it met no table with a lifetime.
    pub fn time_ms(&self) -> u64 {
        u64::from_le_bytes(Reader::at(&self.bytes, self.time).array().expect("checked"))
    }

    /// Returns the keys of all written rows and of all changed index entries.
    pub fn keys(&self) -> KeySet {
        let mut keys = KeySetBuilder::default();
        for space in self.spaces.all(&self.bytes) {
            keys.spaces.add(space).expect("this set has as many");
        }
        let mut reader = Reader::at(&self.bytes, self.time + size_of::<u64>());
        for _ in 0..reader.count().expect("checked") {
            let (space, row) = read_row(&mut reader, &self.spaces).expect("checked");
            keys.point(space, row.key);
        }
        for _ in 0..reader.count().expect("checked") {
            let space = reader.space(&self.spaces).expect("checked");
            keys.point(space, reader.key().expect("checked"));
        }
        run_now(keys.build())
    }
}

impl Default for RowWrites {
    fn default() -> Self {
        run_now(RowWritesBuilder::default().build(0))
    }
}

impl std::fmt::Debug for RowWrites {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let show = |row: RowWrite<'_>| {
            let value = row.value.map_or(0, <[u8]>::len);
            format!("{:?} {}[{}], {value} bytes", row.kind, row.table, row.key.escape_ascii())
        };
        f.debug_list().entries(self.rows().map(show)).finish()
    }
}

/// Reads a row. Returns it without its table, of which it returns the number.
fn read_row<'b>(reader: &mut Reader<'b>, spaces: &Spaces) -> Option<(u16, RowWrite<'b>)> {
    let space = reader.space(spaces)?;
    let [kind] = reader.array()?;
    let key = reader.key()?;
    let expires_at_ms = match kind & EXPIRES {
        0 => None,
        _ => Some(u64::from_le_bytes(reader.array()?)),
    };
    let kind = match kind & !EXPIRES {
        0 => RowWriteKind::Insert,
        1 => RowWriteKind::Update,
        2 if expires_at_ms.is_none() => RowWriteKind::Delete,
        _ => return None,
    };
    let value = match kind {
        RowWriteKind::Delete => None,
        RowWriteKind::Insert | RowWriteKind::Update => {
            let length = usize::try_from(reader.count()?).ok()?;
            Some(reader.take(length)?)
        }
    };
    Some((space, RowWrite { table: "", key, kind, value, expires_at_ms }))
}

/// Checks the contents of an encoding, given which spaces are tables.
fn check(reader: &mut Reader<'_>, spaces: &Spaces, is_table: &[bool]) -> Option<()> {
    reader.array::<{ size_of::<u64>() }>()?;
    let mut ascending = Ascending::new();
    for _ in 0..reader.count()? {
        let (space, row) = read_row(reader, spaces)?;
        if !is_table[usize::from(space)] {
            return None;
        }
        ascending.check((space, row.key))?;
    }
    let mut ascending = Ascending::new();
    for _ in 0..reader.count()? {
        let space = reader.space(spaces)?;
        if is_table[usize::from(space)] {
            return None;
        }
        ascending.check((space, reader.key()?))?;
    }
    reader.is_at_end().then_some(())
}

/// Bytes of values that are copied in one step.
pub(super) const BYTES_PER_STEP: usize = 1024;

/// Collects writes in the order in which the transaction made them.
#[derive(Debug, Default)]
pub(super) struct RowWritesBuilder {
    pub(super) spaces: SpacesToEncode,
    bytes: Vec<u8>,
    rows: Vec<CollectedRow>,
    entries: Vec<(u16, Range<usize>)>,
}

/// A write of a row. A later one of the same row replaces its result.
#[derive(Debug)]
struct CollectedRow {
    space: u16,
    key: Range<usize>,
    existed: bool,
    value: Option<Range<usize>>,
    expires_at_ms: Option<u64>,
}

impl RowWritesBuilder {
    /// Adds a write of a table's record, which leaves the value, if any.
    pub(super) fn row(
        &mut self,
        space: u16,
        key: &[u8],
        existed: bool,
        value: Option<(&[u8], Option<u64>)>,
    ) {
        let key = self.keep(key);
        let expires_at_ms = value.and_then(|(_, expiry)| expiry);
        let value = value.map(|(value, _)| self.keep(value));
        self.rows.push(CollectedRow { space, key, existed, value, expires_at_ms });
    }

    /// Adds a write of an index entry.
    pub(super) fn entry(&mut self, space: u16, key: &[u8]) {
        let key = self.keep(key);
        self.entries.push((space, key));
    }

    fn keep(&mut self, bytes: &[u8]) -> Range<usize> {
        self.bytes.extend_from_slice(bytes);
        self.bytes.len() - bytes.len()..self.bytes.len()
    }

    /// Encodes the writes, in steps.
    pub(super) async fn build(self, time_ms: u64) -> RowWrites {
        let Self { spaces, bytes: kept, rows, entries } = self;
        let (mut bytes, spaces, numbers) = spaces.begin(KIND);
        let number = |space: u16| numbers[usize::from(space)];
        let time = bytes.len();
        bytes.extend_from_slice(&time_ms.to_le_bytes());
        let key = |row: &CollectedRow| (number(row.space), &kept[row.key.clone()]);
        // Writes of the same row stay in order.
        let rows: Vec<&CollectedRow> =
            sched::sort(rows.iter().collect(), |one, other| key(one).cmp(&key(other))).await;
        let (count_at, mut count) = (bytes.len(), 0_u32);
        add_count(&mut bytes, 0);
        for of_row in rows.chunk_by(|one, next| key(one) == key(next)) {
            let (CollectedRow { existed, .. }, last) = (of_row[0], of_row[of_row.len() - 1]);
            let value = last.value.clone().map(|value| &kept[value]);
            let steps = 1 + value.map_or(0, <[u8]>::len) / BYTES_PER_STEP;
            sched::count_steps(steps as u32).await;
            let kind = match (existed, value) {
                (_, None) => RowWriteKind::Delete,
                (true, Some(_)) => RowWriteKind::Update,
                (false, Some(_)) => RowWriteKind::Insert,
            };
            let (space, key) = key(last);
            bytes.extend_from_slice(&space.to_le_bytes());
            bytes.push(kind as u8 | if last.expires_at_ms.is_some() { EXPIRES } else { 0 });
            add_key(&mut bytes, key);
            bytes.extend(last.expires_at_ms.into_iter().flat_map(u64::to_le_bytes));
            if let Some(value) = value {
                add_count(&mut bytes, value.len());
                bytes.extend_from_slice(value);
            }
            count += 1;
        }
        bytes[count_at..count_at + size_of::<u32>()].copy_from_slice(&count.to_le_bytes());
        let entries: Vec<(u16, &[u8])> =
            entries.into_iter().map(|(space, key)| (number(space), &kept[key])).collect();
        let mut entries = sched::sort(entries, Ord::cmp).await;
        entries.dedup();
        add_count(&mut bytes, entries.len());
        for (space, key) in entries {
            sched::count_steps(1).await;
            bytes.extend_from_slice(&space.to_le_bytes());
            add_key(&mut bytes, key);
        }
        RowWrites { bytes: seal(bytes), spaces, time }
    }
}
