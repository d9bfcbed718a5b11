//! Certification of what a transaction read: at its commit LSN, all of it is as it was when the
//! transaction began. So every transaction that writes might as well have run at its commit LSN alone,
//! and one that does not at its begin stamp (`docs/isolation.md`).
//!
//! It writes nothing that others read, and waits for nobody. Of those that are certified at once the one
//! with the smallest LSN fails only for something that is committed, or that has drawn an LSN this very
//! moment: so some transaction always gets on.

use super::context::Transaction;
use super::read_set::NamedKeys;
use crate::index::LeafEntry;
use crate::log::Lsn;
use crate::planted::{Bug, is_planted};
use crate::reclaim;
use crate::sched::{self, run_now};

/// How many records ahead an entry is prefetched, and the version it leads to.
const ENTRIES_AHEAD: usize = 16;
const HEADS_AHEAD: usize = 8;
/// Entries of the index that are looked at together.
pub(super) const BATCH: usize = 64;
/// Read sets that are larger are looked at before the commit LSN is drawn too, since the log waits for
/// whoever has drawn one.
pub(super) const LARGE_READ_SET: usize = if cfg!(braid_simulation) { 4 } else { 4096 };
/// Records of such a set that are looked at in one step.
const RECORDS_PER_STEP: usize = 16;

impl Transaction {
    /// Looks, without a suspension, whether what the transaction read is unchanged as of `until`.
    pub(super) fn certify(&self, until: Lsn) -> Result<(), NamedKeys> {
        #[cfg(feature = "experiment")]
        if self.mode().is_safety_net() {
            return self.pass_safety_net(until);
        }
        self.certify_up_to(until, usize::MAX)
    }

    /// As `certify`; a range in which more entries of the index than `most` are counts as changed.
    pub(super) fn certify_up_to(&self, until: Lsn, most: usize) -> Result<(), NamedKeys> {
        let reads = self.reads();
        self.certify_points(0, reads.points(), until)?;
        self.certify_paged(until)?;
        (0..reads.projections()).try_for_each(|number| self.certify_part(number, until))?;
        (0..reads.ranges()).try_for_each(|number| run_now(self.certify_range(number, until, most)))
    }

    /// As `certify`, as of now, for a set that is large: suspends. It only keeps a transaction that must
    /// fail from holding up the log.
    pub(super) async fn certify_ahead(&self) -> Result<(), NamedKeys> {
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
        let (reads, operation) = (self.reads(), reclaim::enter());
        let table = |number| {
            let point = reads.point(number);
            // SAFETY: tables live as long as the engine, which `self` holds, or are the transaction's own.
            (unsafe { point.table.get() }, point.rid)
        };
        for number in start..end {
            if number + ENTRIES_AHEAD < end {
                let (table, rid) = table(number + ENTRIES_AHEAD);
                table.prefetch_entry(rid);
            }
            if number + HEADS_AHEAD < end {
                let (table, rid) = table(number + HEADS_AHEAD);
                table.prefetch_newest(rid, &operation);
            }
            let (table, rid) = table(number);
            if !table.is_unchanged(rid, self.view(), until, &operation) {
                return Err(reads.name_point(number));
            }
        }
        Ok(())
    }

    /// Looks whether a record is unchanged, or has the same part as of `until`. The part is the user's to
    /// compute: a panic counts as another one.
    fn certify_part(&self, number: usize, until: Lsn) -> Result<(), NamedKeys> {
        let operation = reclaim::enter();
        let unchanged = self.reads().with_projection(number, |point, same| {
            // SAFETY: tables live as long as the engine, which `self` holds, or are the transaction's own.
            let table = unsafe { point.table.get() };
            if table.is_unchanged(point.rid, self.view(), until, &operation) {
                return true;
            }
            let value = table.value_before(point.rid, self.view(), until, &operation);
            value.is_some_and(|value| sched::contain(|| same(value)).unwrap_or(false))
        });
        if unchanged { Ok(()) } else { Err(self.reads().name_projection(number)) }
    }

    /// Reads a range again. What was entered in the index meanwhile counts, and so does every record of
    /// which the transaction saw nothing. With more than `most` entries it counts as changed.
    async fn certify_range(
        &self,
        number: usize,
        until: Lsn,
        mut most: usize,
    ) -> Result<(), NamedKeys> {
        let operation = reclaim::enter();
        let reads = self.reads();
        let cursor = reads.with_range(number, |table, low, high| {
            // SAFETY: tables live as long as the engine, which `self` holds, or are the transaction's own.
            let table = unsafe { table.get() };
            (table, table.index.cursor(low, high, false))
        });
        let Some((table, mut cursor)) = cursor else { return Ok(()) };
        if table.paged().is_some() {
            // Certified against what was committed lately.
            return Ok(());
        }
        let mut entries = Vec::<LeafEntry<'_>>::new();
        while cursor.next_batch(&operation, &mut entries, BATCH).await {
            let Some(left) = most.checked_sub(entries.len()) else {
                return Err(reads.name_range(number));
            };
            most = left;
            if until == Lsn::MAX {
                sched::count_steps((entries.len() / RECORDS_PER_STEP) as u32 + 1).await;
            }
            entries.iter().for_each(|entry| table.prefetch_entry(entry.rid));
            entries.iter().for_each(|entry| table.prefetch_newest(entry.rid, &operation));
            for entry in &entries {
                let unseen =
                    || run_now(async { table.find_now(entry.rid, self.view(), &operation) });
                if is_planted(Bug::UnseenNotCertified) && matches!(unseen(), Ok(None)) {
                    continue;
                }
                if !table.is_unchanged(entry.rid, self.view(), until, &operation) {
                    return Err(reads.name_range(number));
                }
            }
        }
        Ok(())
    }
}
