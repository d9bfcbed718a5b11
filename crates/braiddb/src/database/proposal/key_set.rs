//! Key sets: what a transaction read, or the keys that it wrote.
//!
//! The contents of the encoding:
//!
//! | bytes | contents |
//! |---|---|
//! | 4 | number of points |
//! | each point | space `u16`, key (length `u16`, bytes) |
//! | 4 | number of ranges |
//! | each range | space `u16`, low bound, high bound |
//! | each bound | 0: unbounded; 1: included, 2: excluded, and a key |

use std::ops::{Bound, Range};

use super::encoding::{
    Ascending, DamagedSet, KeySpace, Reader, Spaces, SpacesToEncode, add_count, add_key, open, seal,
};
use crate::sched::{self, run_now};

const KIND: u8 = b'K';

/// A set of keys: single keys and ranges of keys, of tables and of their secondary indexes, in their
/// encoded form. It contains what a transaction read ([`Proposal::reads`](super::Proposal::reads)),
/// or what it wrote ([`RowWrites::keys`](super::RowWrites::keys)).
///
/// A set is its own encoding, which has a version and a checksum and is the same on all machines.
///
/// ```
/// use braiddb::proposals::{DamagedSet, KeySet, KeySpace};
///
/// let set = KeySet::whole([KeySpace { table: "accounts", index: None }]);
/// assert_eq!((set.points().count(), set.ranges().count()), (0, 1));
/// assert!(!set.is_empty() && KeySet::default().is_empty());
///
/// let mut bytes = set.as_bytes().to_vec();
/// assert_eq!(KeySet::decode(&bytes), Ok(set));
/// bytes[7] ^= 1;
/// assert_eq!(KeySet::decode(&bytes), Err(DamagedSet::Checksum));
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct KeySet {
    bytes: Box<[u8]>,
    spaces: Spaces,
    /// Positions of the numbers of points and of ranges.
    points: usize,
    ranges: usize,
}

impl KeySet {
    /// Returns the encoding, for [`KeySet::decode`].
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Decodes a set.
    ///
    /// # Errors
    /// [`DamagedSet`] if the bytes are not exactly the encoding of a set.
    pub fn decode(bytes: &[u8]) -> Result<Self, DamagedSet> {
        let (spaces, mut reader) = open(bytes, KIND, "a set of keys")?;
        let (points, ranges) = check(&mut reader, &spaces).ok_or(DamagedSet::Malformed)?;
        Ok(Self { bytes: bytes.into(), spaces, points, ranges })
    }

    /// Returns the set of all keys of some spaces. A program that drops, renames or clears a table
    /// records it as written, which includes the table's indexes
    /// ([`OrderedCertifier::certify`](super::OrderedCertifier::certify)).
    ///
    /// # Panics
    /// Panics with more than 65,534 spaces, or a name of more than 65,534 bytes.
    pub fn whole<'s>(spaces: impl IntoIterator<Item = KeySpace<'s>>) -> Self {
        let mut set = KeySetBuilder::default();
        for space in spaces {
            let number = set.spaces.add(space).expect("there are at most 65,534 spaces");
            set.range(number, Bound::Unbounded, Bound::Unbounded);
        }
        run_now(set.build())
    }

    /// Returns whether the set has no keys and no ranges.
    pub fn is_empty(&self) -> bool {
        self.points().next().is_none() && self.ranges().next().is_none()
    }

    /// Returns the single keys, in order.
    pub fn points(&self) -> impl Iterator<Item = (KeySpace<'_>, &[u8])> {
        self.numbered_points().map(|(space, key)| (self.space(space), key))
    }

    /// Returns the ranges of keys, in order. A range may contain other keys of the set.
    pub fn ranges(&self) -> impl Iterator<Item = (KeySpace<'_>, Bound<&[u8]>, Bound<&[u8]>)> {
        self.numbered_ranges().map(|(space, low, high)| (self.space(space), low, high))
    }

    /// The number of single keys and ranges.
    pub(super) fn count(&self) -> u64 {
        let count = |at| Reader::at(&self.bytes, at).count().expect("checked");
        u64::from(count(self.points)) + u64::from(count(self.ranges))
    }

    /// All spaces, in the order of their numbers.
    pub(super) fn spaces(&self) -> impl Iterator<Item = KeySpace<'_>> {
        self.spaces.all(&self.bytes)
    }

    fn space(&self, number: u16) -> KeySpace<'_> {
        self.spaces.get(&self.bytes, number)
    }

    /// The single keys, with the numbers of their spaces.
    pub(super) fn numbered_points(&self) -> impl Iterator<Item = (u16, &[u8])> {
        let mut reader = Reader::at(&self.bytes, self.points);
        let count = reader.count().expect("checked");
        (0..count).map(move |_| read_point(&mut reader, &self.spaces).expect("checked"))
    }

    /// The ranges of keys, with the numbers of their spaces.
    pub(super) fn numbered_ranges(&self) -> impl Iterator<Item = EncodedRange<'_>> {
        let mut reader = Reader::at(&self.bytes, self.ranges);
        let count = reader.count().expect("checked");
        (0..count).map(move |_| read_range(&mut reader, &self.spaces).expect("checked"))
    }
}

impl Default for KeySet {
    fn default() -> Self {
        run_now(KeySetBuilder::default().build())
    }
}

impl std::fmt::Debug for KeySet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let show = |bound: Bound<&[u8]>| bound.map(|key| key.escape_ascii().to_string());
        let points = self.points().map(|(space, key)| (space, key.escape_ascii().to_string()));
        let ranges = self.ranges().map(|(space, low, high)| (space, show(low), show(high)));
        f.debug_list().entries(points).entries(ranges).finish()
    }
}

/// A range with the number of its space.
pub(super) type EncodedRange<'b> = (u16, Bound<&'b [u8]>, Bound<&'b [u8]>);

fn read_point<'b>(reader: &mut Reader<'b>, spaces: &Spaces) -> Option<(u16, &'b [u8])> {
    Some((reader.space(spaces)?, reader.key()?))
}

fn read_range<'b>(reader: &mut Reader<'b>, spaces: &Spaces) -> Option<EncodedRange<'b>> {
    Some((reader.space(spaces)?, read_bound(reader)?, read_bound(reader)?))
}

fn read_bound<'b>(reader: &mut Reader<'b>) -> Option<Bound<&'b [u8]>> {
    Some(match reader.array()? {
        [0] => Bound::Unbounded,
        [1] => Bound::Included(reader.key()?),
        [2] => Bound::Excluded(reader.key()?),
        _ => return None,
    })
}

/// Checks the contents of an encoding. Returns the positions of its lists.
fn check(reader: &mut Reader<'_>, spaces: &Spaces) -> Option<(usize, usize)> {
    let points = reader.position();
    let mut ascending = Ascending::new();
    for _ in 0..reader.count()? {
        ascending.check(read_point(reader, spaces)?)?;
    }
    let ranges = reader.position();
    let mut ascending = Ascending::new();
    for _ in 0..reader.count()? {
        let (space, low, high) = read_range(reader, spaces)?;
        ascending.check((space, rank(low), rank(high)))?;
    }
    reader.is_at_end().then_some((points, ranges))
}

/// Orders bounds, in the order of the encoding.
fn rank(bound: Bound<&[u8]>) -> (u8, &[u8]) {
    match bound {
        Bound::Unbounded => (0, &[]),
        Bound::Included(key) => (1, key),
        Bound::Excluded(key) => (2, key),
    }
}

/// A bound whose key a builder keeps.
type KeptBound = Bound<Range<usize>>;

/// Collects keys in any order.
#[derive(Debug, Default)]
pub(super) struct KeySetBuilder {
    pub(super) spaces: SpacesToEncode,
    keys: Vec<u8>,
    points: Vec<(u16, Range<usize>)>,
    ranges: Vec<(u16, KeptBound, KeptBound)>,
}

impl KeySetBuilder {
    /// Adds a key of the space with this number.
    pub(super) fn point(&mut self, space: u16, key: &[u8]) {
        let key = self.keep(key);
        self.points.push((space, key));
    }

    /// Adds a range; as a single key, if it is one.
    pub(super) fn range(&mut self, space: u16, low: Bound<&[u8]>, high: Bound<&[u8]>) {
        if let (Bound::Included(low), Bound::Included(high)) = (low, high)
            && low == high
        {
            return self.point(space, low);
        }
        let (low, high) = (low.map(|key| self.keep(key)), high.map(|key| self.keep(key)));
        self.ranges.push((space, low, high));
    }

    fn keep(&mut self, key: &[u8]) -> Range<usize> {
        self.keys.extend_from_slice(key);
        self.keys.len() - key.len()..self.keys.len()
    }

    /// Encodes the set, in steps.
    pub(super) async fn build(self) -> KeySet {
        let Self { spaces, keys, points, ranges } = self;
        let (mut bytes, spaces, numbers) = spaces.begin(KIND);
        let number = |space: u16| numbers[usize::from(space)];
        let points: Vec<(u16, &[u8])> =
            points.into_iter().map(|(space, key)| (number(space), &keys[key])).collect();
        let mut points = sched::sort(points, Ord::cmp).await;
        points.dedup();
        let points_at = bytes.len();
        add_count(&mut bytes, points.len());
        for (space, key) in points {
            sched::count_steps(1).await;
            bytes.extend_from_slice(&space.to_le_bytes());
            add_key(&mut bytes, key);
        }
        let bound = |bound: KeptBound| bound.map(|key| &keys[key]);
        let ranges: Vec<_> = ranges
            .into_iter()
            .map(|(space, low, high)| (number(space), rank(bound(low)), rank(bound(high))))
            .collect();
        let mut ranges = sched::sort(ranges, Ord::cmp).await;
        ranges.dedup();
        let ranges_at = bytes.len();
        add_count(&mut bytes, ranges.len());
        for (space, low, high) in ranges {
            sched::count_steps(1).await;
            bytes.extend_from_slice(&space.to_le_bytes());
            for (kind, key) in [low, high] {
                bytes.push(kind);
                if kind > 0 {
                    add_key(&mut bytes, key);
                }
            }
        }
        KeySet { bytes: seal(bytes), spaces, points: points_at, ranges: ranges_at }
    }
}
