//! Common parts of the encodings of key sets and row writes (`docs/proposals.md`).
//!
//! | bytes | contents |
//! |---|---|
//! | 1 | kind |
//! | 1 | version |
//! | 2 | number of spaces |
//! | each space | table (length `u16`, UTF-8), index (the same; length 65535: none) |
//! | … | contents of the kind |
//! | 4 | CRC-32C of all bytes before |
//!
//! All numbers are little-endian. Spaces, and all lists of a kind, are strictly ascending, so that a
//! set has one encoding.

use std::ops::Range;

/// The version that this build writes and reads.
const VERSION: u8 = 1;
const CHECKSUM_BYTES: usize = 4;
/// Replaces the length of an index's name if a space is a table.
const NO_INDEX: u16 = u16::MAX;

/// Reason why bytes are not an encoded set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DamagedSet {
    /// The bytes encode something else.
    #[error("the bytes do not encode {expected}; pass the bytes of the same kind of set")]
    Kind {
        /// The requested kind of set.
        expected: &'static str,
    },
    /// Another version of the engine encoded the bytes.
    #[error(
        "the set has format version {found}, and this build reads version {supported}; use the \
         same version of braiddb on both sides"
    )]
    Version {
        /// Version of the bytes.
        found: u8,
        /// Version that this build reads.
        supported: u8,
    },
    /// Bytes are missing or changed.
    #[error("the encoded set is damaged: its checksum does not match; send it again")]
    Checksum,
    /// The checksum matches, but the contents violate the format.
    #[error("the encoded set violates the format; encode it with braiddb")]
    Malformed,
}

/// A space of keys: a table, or a secondary index of a table.
///
/// ```
/// use braiddb::proposals::KeySpace;
///
/// assert!(KeySpace { table: "a", index: None } < KeySpace { table: "a", index: Some("by_name") });
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeySpace<'s> {
    /// Name of the table. The catalog, which opening a table reads, is `braid.catalog`.
    pub table: &'s str,
    /// Name of the index; `None` for the table's records.
    pub index: Option<&'s str>,
}

/// The names of the spaces of an encoded set, by position in its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Spaces(Box<[SpaceNames]>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct SpaceNames {
    table: Range<usize>,
    index: Option<Range<usize>>,
}

impl Spaces {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns a space of a set with these bytes.
    pub(super) fn get<'b>(&self, bytes: &'b [u8], number: u16) -> KeySpace<'b> {
        let text = |range: &Range<usize>| {
            str::from_utf8(&bytes[range.clone()]).expect("checked when the set was decoded")
        };
        let SpaceNames { table, index } = &self.0[usize::from(number)];
        KeySpace { table: text(table), index: index.as_ref().map(text) }
    }

    /// Returns all spaces of a set with these bytes.
    pub(super) fn all<'b>(&self, bytes: &'b [u8]) -> impl Iterator<Item = KeySpace<'b>> {
        (0..self.0.len()).map(|number| self.get(bytes, number as u16))
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let count = u16::from_le_bytes(reader.array()?);
        let mut spaces = Vec::new();
        let mut last = None;
        for _ in 0..count {
            let table_bytes = u16::from_le_bytes(reader.array()?);
            let table = reader.text(table_bytes)?;
            let index = match u16::from_le_bytes(reader.array()?) {
                NO_INDEX => None,
                bytes => Some(reader.text(bytes)?),
            };
            let space = (&reader.bytes[table.clone()], index.clone().map(|at| &reader.bytes[at]));
            if last.replace(space) >= Some(space) {
                return None;
            }
            spaces.push(SpaceNames { table, index });
        }
        Some(Self(spaces.into()))
    }
}

/// The spaces of a set that is being built, in the order of their numbers.
#[derive(Debug, Default)]
pub(super) struct SpacesToEncode(Vec<(String, Option<String>)>);

impl SpacesToEncode {
    /// Adds a space. Returns its number, or `None` if a set cannot have so many.
    pub(super) fn add(&mut self, space: KeySpace<'_>) -> Option<u16> {
        let number = u16::try_from(self.0.len()).ok().filter(|number| *number < u16::MAX)?;
        self.0.push((space.table.to_owned(), space.index.map(str::to_owned)));
        Some(number)
    }

    /// Replaces the names of a space.
    pub(super) fn rename(&mut self, number: u16, table: String, index: Option<String>) {
        self.0[usize::from(number)] = (table, index);
    }

    pub(super) fn get(&self, number: u16) -> KeySpace<'_> {
        let (table, index) = &self.0[usize::from(number)];
        KeySpace { table, index: index.as_deref() }
    }

    /// Begins an encoding. Returns its bytes so far, the spaces in it, and the number there of each
    /// space, by its number here.
    pub(super) fn begin(&self, kind: u8) -> (Vec<u8>, Spaces, Vec<u16>) {
        let mut order: Vec<u16> = (0..self.0.len() as u16).collect();
        order.sort_unstable_by_key(|number| self.get(*number));
        order.dedup_by_key(|number| self.get(*number));
        let mut bytes = vec![kind, VERSION];
        bytes.extend_from_slice(&(order.len() as u16).to_le_bytes());
        let mut spaces = Vec::with_capacity(order.len());
        for number in &order {
            let KeySpace { table, index } = self.get(*number);
            let table = add_text(&mut bytes, table);
            let index = match index {
                Some(index) => Some(add_text(&mut bytes, index)),
                None => {
                    bytes.extend_from_slice(&NO_INDEX.to_le_bytes());
                    None
                }
            };
            spaces.push(SpaceNames { table, index });
        }
        let place = |number| {
            let found = order.binary_search_by_key(&self.get(number), |other| self.get(*other));
            found.expect("it is among them") as u16
        };
        let numbers = (0..self.0.len() as u16).map(place).collect();
        (bytes, Spaces(spaces.into()), numbers)
    }
}

/// Adds a name with its length; returns its position.
fn add_text(bytes: &mut Vec<u8>, text: &str) -> Range<usize> {
    let length = u16::try_from(text.len()).expect("names of tables and indexes are short");
    bytes.extend_from_slice(&length.to_le_bytes());
    bytes.extend_from_slice(text.as_bytes());
    bytes.len() - text.len()..bytes.len()
}

/// Adds a key with its length.
pub(super) fn add_key(bytes: &mut Vec<u8>, key: &[u8]) {
    let length = u16::try_from(key.len()).expect("keys have at most MAX_KEY_BYTES");
    bytes.extend_from_slice(&length.to_le_bytes());
    bytes.extend_from_slice(key);
}

/// Adds the number of items of a list.
pub(super) fn add_count(bytes: &mut Vec<u8>, count: usize) {
    let count = u32::try_from(count).expect("a transaction writes fewer than 2^32 records");
    bytes.extend_from_slice(&count.to_le_bytes());
}

/// Ends an encoding.
pub(super) fn seal(mut bytes: Vec<u8>) -> Box<[u8]> {
    let sum = crc32c::crc32c(&bytes);
    bytes.extend_from_slice(&sum.to_le_bytes());
    bytes.into()
}

/// Checks the beginning and the checksum of an encoding. Returns its spaces, and a reader of what
/// follows them.
pub(super) fn open<'b>(
    bytes: &'b [u8],
    kind: u8,
    expected: &'static str,
) -> Result<(Spaces, Reader<'b>), DamagedSet> {
    let Some((content, sum)) = bytes.split_last_chunk::<CHECKSUM_BYTES>() else {
        return Err(DamagedSet::Checksum);
    };
    match *content {
        [] => return Err(DamagedSet::Checksum),
        [found, ..] if found != kind => return Err(DamagedSet::Kind { expected }),
        [_, found, ..] if found != VERSION => {
            return Err(DamagedSet::Version { found, supported: VERSION });
        }
        _ => {}
    }
    if crc32c::crc32c(content) != u32::from_le_bytes(*sum) {
        return Err(DamagedSet::Checksum);
    }
    let mut reader = Reader { bytes: content, at: 2 };
    let spaces = Spaces::read(&mut reader).ok_or(DamagedSet::Malformed)?;
    Ok((spaces, reader))
}

/// Reads an encoding. Each method returns `None` if the bytes violate the format.
#[derive(Clone, Debug)]
pub(super) struct Reader<'b> {
    bytes: &'b [u8],
    at: usize,
}

impl<'b> Reader<'b> {
    /// A reader of checked bytes from a position on.
    pub(super) fn at(bytes: &'b [u8], at: usize) -> Self {
        Self { bytes: &bytes[..bytes.len() - CHECKSUM_BYTES], at }
    }

    pub(super) fn position(&self) -> usize {
        self.at
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.at == self.bytes.len()
    }

    pub(super) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let array = *self.bytes.get(self.at..)?.first_chunk()?;
        self.at += N;
        Some(array)
    }

    pub(super) fn take(&mut self, count: usize) -> Option<&'b [u8]> {
        let taken = self.bytes.get(self.at..)?.get(..count)?;
        self.at += count;
        Some(taken)
    }

    pub(super) fn count(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.array()?))
    }

    pub(super) fn key(&mut self) -> Option<&'b [u8]> {
        let length = u16::from_le_bytes(self.array()?);
        self.take(length.into())
    }

    /// Reads the number of a space.
    pub(super) fn space(&mut self, spaces: &Spaces) -> Option<u16> {
        let number = u16::from_le_bytes(self.array()?);
        (usize::from(number) < spaces.len()).then_some(number)
    }

    fn text(&mut self, bytes: u16) -> Option<Range<usize>> {
        let text = self.take(bytes.into())?;
        str::from_utf8(text).ok()?;
        Some(self.at - text.len()..self.at)
    }
}

/// Checks that the items of a list are in strictly ascending order.
#[derive(Debug)]
pub(super) struct Ascending<T>(Option<T>);

impl<T: Ord> Ascending<T> {
    pub(super) fn new() -> Self {
        Self(None)
    }

    /// Returns `None` unless `next` is after all earlier items.
    pub(super) fn check(&mut self, next: T) -> Option<()> {
        let is_after = self.0.as_ref().is_none_or(|last| *last < next);
        self.0 = Some(next);
        is_after.then_some(())
    }
}
