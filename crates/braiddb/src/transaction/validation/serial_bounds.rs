//! Certification by the serial safety net: the two bounds of a transaction (`safety_net.rs`).

use super::certify::BATCH;
use crate::index::LeafEntry;
use crate::log::Lsn;
use crate::planted::{Bug, is_planted};
use crate::reclaim::{self, OperationGuard};
use crate::record::MemoryRecords;
use crate::rid::Rid;
use crate::sched::run_now;
use crate::transaction::context::active_transaction::ActiveTransaction;
use crate::transaction::context::engine::Engine;
use crate::transaction::context::safety_net::{CommitInProgress, SafetyNet};
use crate::transaction::sets::read_set::NamedKeys;
use crate::transaction::sets::write_set::WriteKind;
use crate::version::Link;

/// The two bounds of a transaction, as found so far.
#[derive(Debug)]
struct SerialBounds {
    commit: Lsn,
    /// η so far.
    after: Lsn,
    /// π so far, and the read that determined it.
    before: Lsn,
    read: Option<BoundingRead>,
}

#[derive(Clone, Copy, Debug)]
enum BoundingRead {
    Point(usize),
    Part(usize),
    Range(usize),
}

impl SerialBounds {
    /// Notes that the transaction follows a commit.
    fn comes_after(&mut self, commit: Lsn) {
        self.after = self.after.max(commit);
    }

    /// Notes that the transaction precedes everything that a commit with this bound precedes.
    fn comes_before(&mut self, bound: Lsn, read: BoundingRead) {
        if bound < self.before {
            (self.before, self.read) = (bound, Some(read));
        }
    }
}

impl Engine {
    /// Begins a worker's commit under the safety net, if it is in use; before the LSN is drawn.
    pub(in crate::transaction) fn enter_safety_net(
        &self,
        worker: usize,
    ) -> Option<CommitInProgress<'_>> {
        self.safety_net.as_ref().map(|net| net.enter(worker, self.log.tail()))
    }
}

impl ActiveTransaction {
    /// Decides whether the transaction may commit at `commit`, by the serial safety net.
    ///
    /// # Errors
    /// The read because of which it would precede a transaction that it also follows.
    pub(super) fn pass_safety_net(&self, commit: Lsn) -> Result<(), NamedKeys> {
        let engine = self.engine();
        let net = engine.safety_net.as_ref().expect("the transaction's mode says so");
        let number = self.worker().number();
        let in_progress = CommitInProgress(&net.in_progress[number]);
        in_progress.drew(commit);
        let mut bounds =
            SerialBounds { commit, after: self.depends_on(), before: commit, read: None };
        self.look_at_writes(net, &mut bounds);
        self.look_at_reads(net, &mut bounds);
        drop(in_progress);
        let SerialBounds { after, before, read, .. } = bounds;
        if before <= after {
            return Err(match read {
                Some(BoundingRead::Point(number)) => self.reads().name_point(number),
                Some(BoundingRead::Part(number)) => self.reads().name_projection(number),
                Some(BoundingRead::Range(number)) => self.reads().name_range(number),
                None => self.name_a_write(),
            });
        }
        if before < commit && !self.writes().borrow().is_empty() {
            net.publish_bound(commit, before, engine.horizon.oldest(engine.log.tail()));
        }
        Ok(())
    }

    /// Takes η from the readers of the records that the transaction overwrites.
    fn look_at_writes(&self, net: &SafetyNet, bounds: &mut SerialBounds) {
        let writes = self.writes().borrow();
        if writes.is_empty() {
            return;
        }
        if !is_planted(Bug::ReadersNotAwaited) {
            net.await_readers(self.worker().number(), bounds.commit);
        }
        for write in writes.writes().iter().filter(|write| write.kind != WriteKind::Void) {
            // SAFETY: tables that an active transaction has used exist.
            let table = unsafe { write.table.get() };
            bounds.comes_after(table.latest_reader(write.rid));
            if !write.existed() {
                bounds.comes_after(table.latest_range_reader());
            }
            if let Some(Link::Address(address)) = write.base() {
                bounds.comes_after(address.lsn());
            }
        }
    }

    /// Takes π from the transactions that overwrote what this one read, and stamps the reads.
    fn look_at_reads(&self, net: &SafetyNet, bounds: &mut SerialBounds) {
        let (reads, operation) = (self.reads(), reclaim::enter());
        let mut look = |table: &MemoryRecords, rid: Rid, read: BoundingRead| {
            let overwritten = table.overwritten_at(rid, self.view(), bounds.commit, &operation);
            if let Some(commit) = overwritten {
                bounds.comes_before(net.bound(commit), read);
            }
            table.note_reader(rid, bounds.commit);
        };
        for number in 0..reads.points() {
            let point = reads.all_points()[number];
            // SAFETY: tables that an active transaction has used exist.
            look(unsafe { point.table.get() }, point.rid, BoundingRead::Point(number));
        }
        for number in 0..reads.projections() {
            reads.with_projection(number, |point, _| {
                // SAFETY: tables that an active transaction has used exist.
                look(unsafe { point.table.get() }, point.rid, BoundingRead::Part(number));
            });
        }
        for number in 0..reads.ranges() {
            self.entries_of_range(number, &operation, |table, rid| {
                look(table, rid, BoundingRead::Range(number));
            });
        }
        for number in 0..reads.ranges() {
            reads.with_range(number, |table, _, _| {
                if let Some(table) = table.in_memory() {
                    bounds.comes_after(table.latest_reclaimed());
                    table.note_range_reader(bounds.commit);
                }
            });
        }
    }

    /// Calls `each` with the record of every index entry of a range.
    fn entries_of_range(
        &self,
        number: usize,
        operation: &OperationGuard,
        mut each: impl FnMut(&MemoryRecords, Rid),
    ) {
        let cursor = self.reads().with_range(number, |table, low, high| {
            let table = table.in_memory()?;
            Some((table, table.index().cursor(low, high, false)))
        });
        let Some((table, mut cursor)) = cursor.flatten() else { return };
        let mut entries = Vec::<LeafEntry<'_>>::new();
        while run_now(cursor.next_batch(operation, &mut entries, BATCH)) {
            entries.iter().for_each(|entry| each(table, entry.rid()));
        }
    }

    /// Names a record that the transaction wrote.
    fn name_a_write(&self) -> NamedKeys {
        let writes = self.writes().borrow();
        let write =
            writes.writes().first().expect("one that read nothing and wrote nothing passes");
        // SAFETY: tables that an active transaction has used exist.
        NamedKeys::record(unsafe { write.table.get() }, writes.key(write))
    }
}
