//! Read set: what a transaction read, as far as certification needs it.
//!
//! | result returned to the transaction | entry in the read set |
//! |---|---|
//! | a record, or its existence | the record's id |
//! | the absence of a record | the key, as a range of one |
//! | records of a range | the range, up to the last key returned |
//! | a projection of a record | the record's id, and a function that compares the projection |
//! | any result for a key of a paged table | the key, as a range of one |
//!
//! A successful write needs no entry: first-updater-wins protects the version it was installed on.
//! The id of a visible record stays valid while the transaction is active. The id of an absent
//! record may be reused, so absence is noted by key.

use std::cell::{Ref, RefCell, RefMut};
use std::ops::{Bound, Range};

use super::write_set::empty;
use crate::record::{MemoryRecords, Records, RecordsRef, ShowKey};
use crate::rid::Rid;
use crate::sched::Contained;

/// A record of a table in memory that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReadPoint {
    pub(in crate::transaction) table: RecordsRef<MemoryRecords>,
    pub(in crate::transaction) rid: Rid,
}

impl ReadPoint {
    #[inline(always)]
    pub(in crate::transaction) fn new(table: &MemoryRecords, rid: Rid) -> Self {
        Self { table: RecordsRef::new(table), rid }
    }
}

/// User code that returns whether a value has the same projection as the one that was read.
pub(crate) type ProjectionCheck = Contained<Box<dyn Fn(&[u8]) -> bool>>;

/// A record of which a projection was read.
struct Projection {
    point: ReadPoint,
    key: Range<usize>,
    same: ProjectionCheck,
}

impl std::fmt::Debug for Projection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Projection({:?})", self.point)
    }
}

/// A range of keys that was read. The bounds are positions in the set's key buffer.
#[derive(Clone, Debug)]
pub(super) struct ReadRange {
    pub(in crate::transaction) table: RecordsRef,
    low: Bound<Range<usize>>,
    high: Bound<Range<usize>>,
    /// False for a range that returned nothing, which needs no certification.
    counts: bool,
}

/// The read set of one transaction.
///
/// Invariant: every result that depends on other transactions' records is covered by a point, by a
/// range, or by one of the transaction's own writes.
#[derive(Debug, Default)]
pub(in crate::transaction) struct ReadSet(RefCell<RecordedReads>);

#[derive(Debug, Default)]
struct RecordedReads {
    points: Vec<ReadPoint>,
    /// The key of each point, while `names_points`.
    point_keys: Vec<Range<usize>>,
    ranges: Vec<ReadRange>,
    projections: Vec<Projection>,
    keys: Vec<u8>,
    names_points: bool,
    /// Set if something in a paged table was read.
    pages: bool,
    /// True unless it was cleared since it was last changed.
    changed: bool,
}

/// Number of a range in a read set.
#[derive(Clone, Copy, Debug)]
pub(in crate::transaction) struct RangeNumber(usize);

/// The table and keys that a conflict or a failed certification was about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NamedKeys {
    pub(crate) table: String,
    /// Bounds of the encoded keys; unbounded if points were noted without keys.
    pub(crate) keys: (Bound<Vec<u8>>, Bound<Vec<u8>>),
    /// Formats the keys.
    pub(crate) show_key: ShowKey,
}

impl NamedKeys {
    /// Names one record.
    pub(in crate::transaction) fn record(table: &Records, key: &[u8]) -> Self {
        let key = Bound::Included(key.to_vec());
        Self::between(table, (key.clone(), key))
    }

    /// Names all records of a table.
    pub(in crate::transaction) fn all(table: &Records) -> Self {
        Self::between(table, (Bound::Unbounded, Bound::Unbounded))
    }

    /// Names a range.
    fn between(table: &Records, keys: (Bound<Vec<u8>>, Bound<Vec<u8>>)) -> Self {
        Self { table: table.name().to_string(), keys, show_key: table.show_key() }
    }

    /// Names a record that a transaction read, by its key if that was noted.
    fn read(point: ReadPoint, key: Option<&[u8]>) -> Self {
        let key = key.map_or(Bound::Unbounded, |key| Bound::Included(key.to_vec()));
        // SAFETY: the transaction with this read set is active, and tables that it has used
        // exist.
        Self::between(unsafe { point.table.get() }, (key.clone(), key))
    }
}

impl RecordedReads {
    fn keep(&mut self, key: &[u8]) -> Range<usize> {
        let start = self.keys.len();
        self.keys.extend_from_slice(key);
        start..self.keys.len()
    }

    #[cold]
    fn keep_point_key(&mut self, key: &[u8]) {
        let key = self.keep(key);
        self.point_keys.push(key);
    }

    fn keep_bound(&mut self, bound: Bound<&[u8]>) -> Bound<Range<usize>> {
        bound.map(|key| self.keep(key))
    }

    fn bound<'r>(&'r self, bound: &Bound<Range<usize>>) -> Bound<&'r [u8]> {
        bound.as_ref().map(|place| &self.keys[place.clone()])
    }
}

impl ReadSet {
    #[inline(always)]
    fn change(&self) -> RefMut<'_, RecordedReads> {
        let mut reads = self.0.borrow_mut();
        reads.changed = true;
        reads
    }

    /// Sets whether the keys of records are noted too, so that an error can name them.
    pub(in crate::transaction) fn name_points(&self, names: bool) {
        self.change().names_points = names;
    }

    /// Returns whether conflicts name their keys.
    pub(in crate::transaction) fn names_points(&self) -> bool {
        self.0.borrow().names_points
    }

    /// Notes that a record with this key was read.
    #[inline]
    pub(in crate::transaction) fn note_point(&self, point: ReadPoint, key: &[u8]) {
        let reads = &mut *self.change();
        if reads.points.last() == Some(&point) {
            return;
        }
        reads.points.push(point);
        if reads.names_points {
            reads.keep_point_key(key);
        }
    }

    /// Notes that a projection of a record was read.
    pub(in crate::transaction) fn note_part(
        &self,
        point: ReadPoint,
        key: &[u8],
        same: ProjectionCheck,
    ) {
        let reads = &mut *self.change();
        let key = reads.keep(key);
        reads.projections.push(Projection { point, key, same });
    }

    /// Notes that no record has this key.
    pub(in crate::transaction) fn note_absent(&self, table: RecordsRef, key: &[u8]) {
        let reads = &mut *self.change();
        let key = Bound::Included(reads.keep(key));
        reads.ranges.push(ReadRange { table, low: key.clone(), high: key, counts: true });
    }

    /// Notes that a key was read, with or without a record.
    pub(in crate::transaction) fn note_key(&self, table: &Records, key: &[u8]) {
        self.note_absent(RecordsRef::new(table), key);
        self.change().pages |= table.paged().is_some();
    }

    /// Returns whether something in a paged table was read.
    pub(in crate::transaction) fn reads_pages(&self) -> bool {
        self.0.borrow().pages
    }

    /// Notes that a range of keys was read, or will be.
    pub(in crate::transaction) fn note_range(
        &self,
        table: &Records,
        low: Bound<&[u8]>,
        high: Bound<&[u8]>,
    ) -> RangeNumber {
        let reads = &mut *self.change();
        let (low, high) = (reads.keep_bound(low), reads.keep_bound(high));
        reads.pages |= table.paged().is_some();
        let table = RecordsRef::new(table);
        reads.ranges.push(ReadRange { table, low, high, counts: true });
        RangeNumber(reads.ranges.len() - 1)
    }

    /// Reduces a range to the part up to `reached`, from its low end or in reverse; or to nothing.
    pub(in crate::transaction) fn trim(
        &self,
        number: RangeNumber,
        reached: Option<&[u8]>,
        reverse: bool,
    ) {
        let reads = &mut *self.change();
        let Some(key) = reached else {
            reads.ranges[number.0].counts = false;
            return;
        };
        let bound = Bound::Included(reads.keep(key));
        let range = &mut reads.ranges[number.0];
        *(if reverse { &mut range.low } else { &mut range.high }) = bound;
    }

    /// Number of entries to certify.
    pub(in crate::transaction) fn len(&self) -> usize {
        let reads = self.0.borrow();
        reads.points.len() + reads.ranges.len() + reads.projections.len()
    }

    pub(in crate::transaction) fn points(&self) -> usize {
        self.0.borrow().points.len()
    }

    pub(in crate::transaction) fn ranges(&self) -> usize {
        self.0.borrow().ranges.len()
    }

    /// The records that were read.
    pub(in crate::transaction) fn all_points(&self) -> Ref<'_, [ReadPoint]> {
        Ref::map(self.0.borrow(), |reads| &*reads.points)
    }

    pub(in crate::transaction) fn projections(&self) -> usize {
        self.0.borrow().projections.len()
    }

    /// Calls `look` with the record of a projection and its comparison function.
    pub(in crate::transaction) fn with_projection<T>(
        &self,
        number: usize,
        look: impl FnOnce(ReadPoint, &ProjectionCheck) -> T,
    ) -> T {
        let projection = &self.0.borrow().projections[number];
        look(projection.point, &projection.same)
    }

    /// Names a projection.
    pub(in crate::transaction) fn name_projection(&self, number: usize) -> NamedKeys {
        let reads = self.0.borrow();
        let projection = &reads.projections[number];
        NamedKeys::read(projection.point, Some(&reads.keys[projection.key.clone()]))
    }

    /// Calls `look` with a range and its bounds, unless it is excluded.
    pub(in crate::transaction) fn with_range<'s, T>(
        &'s self,
        number: usize,
        look: impl FnOnce(&'s Records, Bound<&[u8]>, Bound<&[u8]>) -> T,
    ) -> Option<T> {
        let reads = self.0.borrow();
        let range = &reads.ranges[number];
        // SAFETY: the transaction is active until its set is cleared, and tables that it has used
        // exist.
        let table = unsafe { range.table.get() };
        let look = || look(table, reads.bound(&range.low), reads.bound(&range.high));
        range.counts.then(look)
    }

    /// Names a point.
    pub(in crate::transaction) fn name_point(&self, number: usize) -> NamedKeys {
        let reads = self.0.borrow();
        let key = reads.point_keys.get(number).map(|key| &reads.keys[key.clone()]);
        NamedKeys::read(reads.points[number], key)
    }

    /// Names a range.
    pub(in crate::transaction) fn name_range(&self, number: usize) -> NamedKeys {
        let name = |table: &_, low: Bound<&[u8]>, high: Bound<&[u8]>| {
            NamedKeys::between(table, (low.map(<[u8]>::to_vec), high.map(<[u8]>::to_vec)))
        };
        self.with_range(number, name).expect("it is certified")
    }

    /// Calls `each` with the reads that have these numbers: a single key as a range of one. The keys
    /// of records must have been noted. Returns whether more follow.
    pub(in crate::transaction) fn visit(
        &self,
        numbers: Range<usize>,
        mut each: impl FnMut(&Records, Bound<&[u8]>, Bound<&[u8]>),
    ) -> bool {
        let (points, parts) = {
            let reads = self.0.borrow();
            assert_eq!(reads.points.len(), reads.point_keys.len(), "keys of records were noted");
            (reads.points.len(), reads.projections.len())
        };
        let all = points + parts + self.ranges();
        for number in numbers.start..numbers.end.min(all) {
            if let Some(range) = number.checked_sub(points + parts) {
                self.with_range(range, &mut each);
                continue;
            }
            let reads = self.0.borrow();
            let (point, key) = match number.checked_sub(points) {
                None => (reads.points[number], &reads.point_keys[number]),
                Some(part) => (reads.projections[part].point, &reads.projections[part].key),
            };
            let key = Bound::Included(&reads.keys[key.clone()]);
            // SAFETY: the transaction is active until its set is cleared, and tables that it has used
            // exist.
            each(unsafe { point.table.get() }, key, key);
        }
        numbers.end < all
    }

    /// Empties the set, and keeps little of its memory: thousands of sets exist.
    #[inline(always)]
    pub(in crate::transaction) fn clear(&mut self) {
        let reads = self.0.get_mut();
        if std::mem::take(&mut reads.changed) {
            reads.clear();
        }
    }
}

impl RecordedReads {
    #[inline(never)]
    fn clear(&mut self) {
        const MAX_RETAINED: usize = 256;
        let reads = self;
        reads.names_points = false;
        empty(&mut reads.points, MAX_RETAINED);
        empty(&mut reads.point_keys, MAX_RETAINED);
        // User destructors run here; their panics are contained.
        reads.projections.clear();
        empty(&mut reads.ranges, MAX_RETAINED);
        empty(&mut reads.keys, 16 * MAX_RETAINED);
        reads.pages = false;
    }
}
