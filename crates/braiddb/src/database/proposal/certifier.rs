//! Certification of proposals in a given order.
//!
//! It applies the rule of the engine's own certification (`transaction/validation/certify.rs`): at
//! its place in the order, nothing that a transaction read or wrote has been written since its
//! snapshot. It does not use the engine's data. The engine compares versions and commit LSNs of one
//! process, and frees them by the begin stamps of its open transactions; both differ between
//! machines. Here the outcome depends only on the calls.

use std::collections::{BTreeMap, VecDeque};
use std::ops::{Bound, RangeBounds};

use smallvec::SmallVec;

use super::encoding::KeySpace;
use super::key_set::KeySet;

/// Decides, in the order of a log of entries, which proposals are still valid: those for which no
/// entry after their snapshot wrote anything that they read or wrote. All copies that make the same
/// calls come to the same results.
///
/// The certifier keeps the keys written by the last entries, its window. A proposal with an older
/// snapshot is refused. Memory is proportional to these keys;
/// [`OrderedCertifier::with_max_bytes`] limits it.
///
/// ```
/// use braiddb::proposals::{CertificationConflict, OrderedCertifier};
/// use braiddb::{Database, Error, Options, Table, block_on};
///
/// fn main() -> Result<(), Error> {
///     block_on(async {
///         let db = Database::in_memory(Options::default().workers(1))?;
///         let stock: Table<str, u64> = db.create_table("stock").await?;
///         let buy = async move |tx: &braiddb::Transaction| {
///             let left = tx.get(&stock, "apples").await?.unwrap_or(10);
///             tx.put(&stock, "apples", &(left - 1)).await
///         };
///         // Two clients execute at the state of entry 0.
///         let (first, second) = (db.execute(buy.clone()).await?, db.execute(buy).await?);
///
///         let mut certifier = OrderedCertifier::new(1000);
///         certifier
///             .certify(&first.reads, &first.writes.keys(), 0)
///             .expect("nothing was written since");
///         certifier.record(1, first.writes.keys());
///         let refused = certifier.certify(&second.reads, &second.writes.keys(), 0);
///         assert!(matches!(refused, Err(CertificationConflict::Changed { written_at: 1, .. })));
///
///         // Entries without writes count too. What is kept suffices to build an equal certifier.
///         certifier.advance(2);
///         let mut copy = OrderedCertifier::starting_at(1000, certifier.oldest_snapshot());
///         certifier.recorded().for_each(|(entry, keys)| copy.record(entry, keys.clone()));
///         copy.advance(certifier.newest());
///         assert_eq!(copy, certifier);
///         Ok(())
///     })
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderedCertifier {
    window: u64,
    /// Limit of `bytes`.
    max_bytes: u64,
    /// Sizes of the recorded sets.
    bytes: u64,
    /// The last entry, and the first from which on all written keys are known.
    newest: u64,
    oldest_snapshot: u64,
    /// The sets that were written after the oldest snapshot, in order.
    recorded: VecDeque<(u64, KeySet)>,
    /// Written keys by space, in the order of the spaces.
    spaces: Vec<WrittenSpace>,
}

/// The keys of a space that entries of the window have written. Never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
struct WrittenSpace {
    table: String,
    index: Option<String>,
    /// The last entry that wrote each key. Short keys are inside the nodes of the tree.
    keys: BTreeMap<SmallVec<[u8; 16]>, u64>,
    /// Ranges, with the entry that wrote each, oldest first.
    ranges: VecDeque<(u64, WrittenRange)>,
}

type WrittenRange = (Bound<Box<[u8]>>, Bound<Box<[u8]>>);

/// Reason why a proposal is not valid. The proposer may execute its transaction again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CertificationConflict {
    /// The certifier no longer knows what was written after the snapshot.
    #[error(
        "the transaction was executed at entry {snapshot}, and only those since entry {oldest} can \
         be certified; execute it again"
    )]
    TooOld {
        /// The last entry that the proposal saw.
        snapshot: u64,
        /// The oldest snapshot that can be certified.
        oldest: u64,
    },
    /// An entry after the snapshot wrote something that the proposal read or wrote.
    #[error(
        "{} that the transaction used was written at entry {written_at}, after it was executed; \
         execute it again", place(table, index.as_deref(), key.as_deref())
    )]
    Changed {
        /// Name of the table.
        table: String,
        /// Name of the index, if an entry of an index was written.
        index: Option<String>,
        /// The encoded key; `None` if a range of keys was written.
        key: Option<Vec<u8>>,
        /// The entry that wrote it.
        written_at: u64,
    },
}

fn place(table: &str, index: Option<&str>, key: Option<&[u8]>) -> String {
    let of = match index {
        Some(index) => format!("index {index:?} of table {table:?}"),
        None => format!("table {table:?}"),
    };
    match key {
        Some(key) => format!("the key {} of {of}", key.escape_ascii()),
        None => format!("a range of {of}"),
    }
}

impl OrderedCertifier {
    /// Creates a certifier before the first entry, entry 1. Its window has this many entries, at
    /// least one.
    pub fn new(window: u64) -> Self {
        Self::starting_at(window, 0)
    }

    /// Creates a certifier that knows nothing about the entries up to and including `entry`.
    pub fn starting_at(window: u64, entry: u64) -> Self {
        let (recorded, spaces) = Default::default();
        let (newest, oldest_snapshot) = (entry, entry);
        let (window, max_bytes, bytes) = (window.max(1), u64::MAX, 0);
        Self { window, max_bytes, bytes, newest, oldest_snapshot, recorded, spaces }
    }

    /// Limits the memory of an empty certifier. When the recorded sets have more bytes, the oldest
    /// entries leave the window early, each as a whole. An entry that alone has more leaves it too.
    ///
    /// The size of a set is that of its encoding, plus 128 bytes, plus 64 for each key and range. It
    /// depends only on the set, so all copies with the same limit come to the same results. An equal
    /// copy begins at [`OrderedCertifier::oldest_snapshot`], like every copy.
    ///
    /// ```
    /// use braiddb::proposals::{KeySet, KeySpace, OrderedCertifier};
    ///
    /// let written = |table| KeySet::whole([KeySpace { table, index: None }]);
    /// // There is room for one of these sets.
    /// let mut certifier = OrderedCertifier::new(1000).with_max_bytes(300);
    /// certifier.record(1, written("a"));
    /// assert_eq!(certifier.oldest_snapshot(), 0);
    /// certifier.record(2, written("b"));
    /// assert_eq!((certifier.oldest_snapshot(), certifier.recorded().count()), (1, 1));
    /// ```
    #[must_use]
    pub fn with_max_bytes(self, max_bytes: u64) -> Self {
        Self { max_bytes, ..self }
    }

    /// Returns the last entry.
    pub fn newest(&self) -> u64 {
        self.newest
    }

    /// Returns the oldest snapshot that can be certified.
    pub fn oldest_snapshot(&self) -> u64 {
        self.oldest_snapshot
    }

    /// Decides whether a proposal is valid after everything recorded so far. `snapshot` is the last
    /// entry that it saw; an older one is safe, but may cause needless conflicts. `read` is what
    /// it read and `written` what it wrote.
    ///
    /// A set of all keys of a table ([`KeySet::whole`]) that was recorded counts as a write of all
    /// entries of the table's indexes too.
    ///
    /// # Errors
    /// The first conflict in the order of the keys: single keys before ranges, read before written.
    pub fn certify(
        &self,
        read: &KeySet,
        written: &KeySet,
        snapshot: u64,
    ) -> Result<(), CertificationConflict> {
        if snapshot < self.oldest_snapshot {
            let oldest = self.oldest_snapshot;
            return Err(CertificationConflict::TooOld { snapshot, oldest });
        }
        self.certify_set(read, snapshot)?;
        // Many transactions write exactly what they read.
        if written == read { Ok(()) } else { self.certify_set(written, snapshot) }
    }

    fn certify_set(&self, set: &KeySet, snapshot: u64) -> Result<(), CertificationConflict> {
        let spaces: Vec<_> =
            set.spaces().map(|space| Some(&self.spaces[self.find(space).ok()?])).collect();
        for (space, key) in set.numbered_points() {
            if let Some(space) = spaces[usize::from(space)] {
                space.check_key(key, snapshot)?;
            }
        }
        for (space, low, high) in set.numbered_ranges() {
            if let Some(space) = spaces[usize::from(space)] {
                space.check_range(low, high, snapshot)?;
            }
        }
        // A read that found no index entry has no other trace of the table.
        for index in set.spaces().filter(|space| space.index.is_some()) {
            if let Ok(table) = self.find(KeySpace { index: None, ..index }) {
                self.spaces[table].check_whole(snapshot)?;
            }
        }
        Ok(())
    }

    /// Records what a valid proposal of an entry wrote. An entry may have several proposals, which
    /// are certified and recorded one after the other.
    ///
    /// # Panics
    /// Panics if the entry is older than the last one.
    pub fn record(&mut self, entry: u64, written: KeySet) {
        self.advance(entry);
        if entry <= self.oldest_snapshot || written.is_empty() {
            return;
        }
        for space in written.spaces() {
            if let Err(place) = self.find(space) {
                let (table, index) = (space.table.to_owned(), space.index.map(str::to_owned));
                let (keys, ranges) = Default::default();
                self.spaces.insert(place, WrittenSpace { table, index, keys, ranges });
            }
        }
        let places: Vec<_> =
            written.spaces().map(|space| self.find(space).expect("listed above")).collect();
        for (space, key) in written.numbered_points() {
            let keys = &mut self.spaces[places[usize::from(space)]].keys;
            match keys.get_mut(key) {
                Some(last) => *last = entry,
                None => _ = keys.insert(SmallVec::from_slice(key), entry),
            }
        }
        for (space, low, high) in written.numbered_ranges() {
            let ranges = &mut self.spaces[places[usize::from(space)]].ranges;
            ranges.push_back((entry, (low.map(Box::from), high.map(Box::from))));
        }
        self.bytes += size(&written);
        self.recorded.push_back((entry, written));
        while self.bytes > self.max_bytes {
            let (oldest, _) = self.recorded[0];
            self.forget_through(oldest);
        }
    }

    /// Notes that all entries up to `entry` were passed, also those without valid proposals. This
    /// moves the window: every copy must call it for the same entries.
    ///
    /// # Panics
    /// Panics if the entry is older than the last one.
    pub fn advance(&mut self, entry: u64) {
        assert!(entry >= self.newest, "entry {entry} follows entry {}", self.newest);
        self.newest = entry;
        self.forget_through(entry.saturating_sub(self.window));
    }

    /// Forgets what entries up to this one wrote.
    fn forget_through(&mut self, entry: u64) {
        let oldest = self.oldest_snapshot.max(entry);
        self.oldest_snapshot = oldest;
        while let Some((old, written)) = self.recorded.pop_front_if(|(old, _)| *old <= oldest) {
            self.bytes -= size(&written);
            self.forget(old, &written);
        }
    }

    /// Returns what was recorded in the window, oldest first. A program stores it, with
    /// [`OrderedCertifier::oldest_snapshot`] and [`OrderedCertifier::newest`], to build an equal
    /// certifier after a restart or on another machine.
    pub fn recorded(&self) -> impl Iterator<Item = (u64, &KeySet)> {
        self.recorded.iter().map(|(entry, written)| (*entry, written))
    }

    /// Forgets what the oldest recorded proposal wrote.
    fn forget(&mut self, entry: u64, written: &KeySet) {
        // A space may be gone with an earlier proposal of this entry.
        let places: Vec<_> = written.spaces().map(|space| self.find(space).ok()).collect();
        for (space, key) in written.numbered_points() {
            let Some(place) = places[usize::from(space)] else { continue };
            let keys = &mut self.spaces[place].keys;
            // A later entry, or an earlier proposal of this one, may have written the key too.
            if keys.get(key) == Some(&entry) {
                keys.remove(key);
            }
        }
        for place in places.into_iter().flatten() {
            let ranges = &mut self.spaces[place].ranges;
            while ranges.pop_front_if(|(old, _)| *old <= entry).is_some() {}
        }
        self.spaces.retain(|space| !space.keys.is_empty() || !space.ranges.is_empty());
    }

    fn find(&self, space: KeySpace<'_>) -> Result<usize, usize> {
        self.spaces.binary_search_by(|listed| listed.space().cmp(&space))
    }
}

/// Memory of a recorded set without its encoding, about: the set, and each of its keys and ranges.
const SET_BYTES: u64 = 128;
const KEY_BYTES: u64 = 64;

/// Returns the size of a set for [`OrderedCertifier::with_max_bytes`].
fn size(set: &KeySet) -> u64 {
    SET_BYTES + set.as_bytes().len() as u64 + KEY_BYTES * set.count()
}

impl WrittenSpace {
    fn space(&self) -> KeySpace<'_> {
        KeySpace { table: &self.table, index: self.index.as_deref() }
    }

    fn changed(&self, key: Option<&[u8]>, written_at: u64) -> CertificationConflict {
        let (table, index) = (self.table.clone(), self.index.clone());
        CertificationConflict::Changed { table, index, key: key.map(<[u8]>::to_vec), written_at }
    }

    /// Checks that no entry after `snapshot` wrote the key.
    fn check_key(&self, key: &[u8], snapshot: u64) -> Result<(), CertificationConflict> {
        if let Some(&written_at) = self.keys.get(key).filter(|written_at| **written_at > snapshot) {
            return Err(self.changed(Some(key), written_at));
        }
        let contains = |(low, high): &WrittenRange| {
            let bounds = (low.as_ref().map(|key| &**key), high.as_ref().map(|key| &**key));
            RangeBounds::<[u8]>::contains(&bounds, key)
        };
        self.check_ranges(snapshot, contains)
    }

    /// Checks that no entry after `snapshot` wrote a key between two bounds.
    fn check_range(
        &self,
        low: Bound<&[u8]>,
        high: Bound<&[u8]>,
        snapshot: u64,
    ) -> Result<(), CertificationConflict> {
        if !may_contain(low, high) {
            return Ok(());
        }
        let mut between = self.keys.range::<[u8], _>((low, high));
        if let Some((key, &written_at)) = between.find(|(_, written_at)| **written_at > snapshot) {
            return Err(self.changed(Some(key), written_at));
        }
        let overlaps = |(other_low, other_high): &WrittenRange| {
            let (other_low, other_high) =
                (other_low.as_ref().map(|key| &**key), other_high.as_ref().map(|key| &**key));
            may_contain(other_low, other_high)
                && may_contain(low, other_high)
                && may_contain(other_low, high)
        };
        self.check_ranges(snapshot, overlaps)
    }

    /// Checks that no entry after `snapshot` wrote all keys of the space.
    fn check_whole(&self, snapshot: u64) -> Result<(), CertificationConflict> {
        self.check_ranges(snapshot, |range| *range == (Bound::Unbounded, Bound::Unbounded))
    }

    fn check_ranges(
        &self,
        snapshot: u64,
        is_hit: impl Fn(&WrittenRange) -> bool,
    ) -> Result<(), CertificationConflict> {
        let newer = self.ranges.iter().rev().take_while(|(written_at, _)| *written_at > snapshot);
        match newer.filter(|(_, range)| is_hit(range)).last() {
            Some((written_at, _)) => Err(self.changed(None, *written_at)),
            None => Ok(()),
        }
    }
}

/// Returns whether a key may be between two bounds.
fn may_contain(low: Bound<&[u8]>, high: Bound<&[u8]>) -> bool {
    match (low, high) {
        (Bound::Unbounded, _) => high != Bound::Excluded(&[]),
        (_, Bound::Unbounded) => true,
        (Bound::Included(low), Bound::Included(high)) => low <= high,
        (Bound::Included(low) | Bound::Excluded(low), Bound::Excluded(high))
        | (Bound::Excluded(low), Bound::Included(high)) => low < high,
    }
}
