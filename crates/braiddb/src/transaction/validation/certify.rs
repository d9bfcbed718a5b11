//! Certification (validation of the read set): at its commit LSN, everything that a transaction
//! read is unchanged since it began. So every transaction that writes could have run alone at its
//! commit LSN, and a read-only one at its begin stamp (`docs/isolation.md`).
//!
//! Certification writes nothing shared and never waits. Of concurrent certifications, the one with
//! the smallest LSN fails only because of a commit, or of a transaction that is drawing its LSN at
//! that moment. So some transaction always makes progress.

use crate::index::LeafEntry;
use crate::log::Lsn;
use crate::planted::{Bug, is_planted};
use crate::reclaim;
use crate::sched::{self, run_now};
use crate::transaction::context::active_transaction::ActiveTransaction;
use crate::transaction::sets::read_set::{NamedKeys, ReadPoint};

/// Prefetch distance, in records, of an indirection entry and of the version that it references.
const ENTRY_PREFETCH_DISTANCE: usize = 16;
const HEAD_PREFETCH_DISTANCE: usize = 8;
/// Index entries that are checked together.
pub(in crate::transaction) const BATCH: usize = 64;
/// Larger read sets are also validated before the commit LSN is drawn, because the log waits for
/// every transaction that has drawn one.
pub(in crate::transaction) const MIN_LARGE_READ_SET: usize =
    if cfg!(braid_simulation) { 4 } else { 4096 };
/// Records of a large read set that are validated in one step.
const RECORDS_PER_STEP: usize = 16;

impl ActiveTransaction {
    /// Checks, without suspension, that what the transaction read is unchanged as of `until`.
    #[inline]
    pub(in crate::transaction) fn certify(&self, until: Lsn) -> Result<(), NamedKeys> {
        #[cfg(feature = "experiment")]
        if self.mode().is_safety_net() {
            return self.pass_safety_net(until);
        }
        if self.reads().len() == 0 { Ok(()) } else { self.certify_up_to(until, usize::MAX) }
    }

    /// As `certify`. A range with more than `most` index entries counts as changed.
    pub(super) fn certify_up_to(&self, until: Lsn, most: usize) -> Result<(), NamedKeys> {
        let reads = self.reads();
        self.certify_points(0, reads.points(), until)?;
        self.certify_paged(until)?;
        (0..reads.projections()).try_for_each(|number| self.certify_part(number, until))?;
        (0..reads.ranges()).try_for_each(|number| run_now(self.certify_range(number, until, most)))
    }

    /// Validates a large read set as of now; may suspend. This only keeps a transaction that must
    /// fail from delaying the log.
    pub(in crate::transaction) async fn certify_ahead(&self) -> Result<(), NamedKeys> {
        let (points, ranges) = (self.reads().points(), self.reads().ranges());
        for start in (0..points).step_by(RECORDS_PER_STEP) {
            sched::count_steps(1).await;
            self.certify_points(start, points.min(start + RECORDS_PER_STEP), Lsn::MAX)?;
        }
        for number in 0..self.reads().projections() {
            sched::count_steps(1).await;
            self.certify_part(number, Lsn::MAX)?;
        }
        for number in 0..ranges {
            self.certify_range(number, Lsn::MAX, usize::MAX).await?;
        }
        Ok(())
    }

    fn certify_points(&self, start: usize, end: usize, until: Lsn) -> Result<(), NamedKeys> {
        let (points, operation) = (self.reads().all_points(), reclaim::enter());
        let (view, points) = (self.view(), &points[start..end]);
        let table = |point: &ReadPoint| {
            // SAFETY: tables that an active transaction has used exist.
            unsafe { point.table.get() }
        };
        // The records of a small read set are still cached.
        let prefetches = points.len() > ENTRY_PREFETCH_DISTANCE;
        for (number, point) in points.iter().enumerate() {
            if prefetches {
                if let Some(point) = points.get(number + ENTRY_PREFETCH_DISTANCE) {
                    table(point).prefetch_entry(point.rid);
                }
                if let Some(point) = points.get(number + HEAD_PREFETCH_DISTANCE) {
                    table(point).prefetch_newest(point.rid, &operation);
                }
            }
            let (table, rid) = (table(point), point.rid);
            if !table.has_unchanged_head(rid, view, &operation)
                && !table.is_unchanged(rid, view, until, &operation)
            {
                return Err(self.reads().name_point(start + number));
            }
        }
        Ok(())
    }

    /// Checks that a record is unchanged, or that its projection is the same as of `until`. User
    /// code computes the projection; a panic counts as a changed one.
    fn certify_part(&self, number: usize, until: Lsn) -> Result<(), NamedKeys> {
        let operation = reclaim::enter();
        let unchanged = self.reads().with_projection(number, |point, same| {
            // SAFETY: tables that an active transaction has used exist.
            let table = unsafe { point.table.get() };
            if table.is_unchanged(point.rid, self.view(), until, &operation) {
                return true;
            }
            let value = table.value_before(point.rid, self.view(), until, &operation);
            value.is_some_and(|value| sched::contain(|| same(value)).unwrap_or(false))
        });
        if unchanged { Ok(()) } else { Err(self.reads().name_projection(number)) }
    }

    /// Reads a range again. Entries inserted since then count, as does every record that the
    /// transaction did not see. A range with more than `most` entries counts as changed.
    async fn certify_range(
        &self,
        number: usize,
        until: Lsn,
        mut most: usize,
    ) -> Result<(), NamedKeys> {
        let operation = reclaim::enter();
        let reads = self.reads();
        let cursor = reads.with_range(number, |table, low, high| {
            let table = table.in_memory()?;
            Some((table, table.index().cursor(low, high, false)))
        });
        // Paged tables are certified against the recent commits.
        let Some((table, mut cursor)) = cursor.flatten() else { return Ok(()) };
        let mut entries = Vec::<LeafEntry<'_>>::new();
        while cursor.next_batch(&operation, &mut entries, BATCH).await {
            let Some(left) = most.checked_sub(entries.len()) else {
                return Err(reads.name_range(number));
            };
            most = left;
            if until == Lsn::MAX {
                sched::count_steps((entries.len() / RECORDS_PER_STEP) as u32 + 1).await;
            }
            entries.iter().for_each(|entry| table.prefetch_entry(entry.rid()));
            entries.iter().for_each(|entry| table.prefetch_newest(entry.rid(), &operation));
            for entry in &entries {
                let unseen =
                    || run_now(async { table.find_now(entry.rid(), self.view(), &operation) });
                if is_planted(Bug::UnseenNotCertified) && matches!(unseen(), Ok(None)) {
                    continue;
                }
                if !table.is_unchanged(entry.rid(), self.view(), until, &operation) {
                    return Err(reads.name_range(number));
                }
            }
        }
        Ok(())
    }
}
