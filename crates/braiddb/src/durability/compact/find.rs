//! Search for live records in the victims: records whose entry in the indirection array points
//! there.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;

use crate::durability::STEPS_PER_TABLE;
use crate::log::Lsn;
use crate::reclaim::{self, OperationGuard};
use crate::record::{HeldLogRange, MemoryRecords, NewestVersion, Records};
use crate::rid::Rid;
use crate::sched::{self, WaitCause};
use crate::transaction::{OperationError, WorkerTransactions};
use crate::version::{Link, View};

/// Number of entries examined before the task yields.
pub(super) const ENTRIES_PER_TURN: usize = 256;
/// Number of entries that count as one step of a task: each may miss the cache twice.
const ENTRIES_PER_STEP: usize = 8;

/// Returns the number of steps of a task that `entries` count as.
pub(super) fn steps(entries: usize) -> u32 {
    entries.div_ceil(ENTRIES_PER_STEP) as u32
}

/// Segments to be freed.
#[derive(Debug)]
pub(super) struct Victims {
    segments: BTreeSet<u64>,
    segment_bytes: u64,
}

impl Victims {
    pub(super) fn new(segments: &[u64], segment_bytes: u64) -> Self {
        Self { segments: segments.iter().copied().collect(), segment_bytes }
    }

    /// Returns whether a victim contains a part of this extent of the log.
    pub(super) fn hold(&self, kept: HeldLogRange) -> bool {
        let segments = self.segment_of(kept.lsn)..=self.segment_of(kept.last());
        self.segments.range(segments).next().is_some()
    }

    pub(super) fn segment_of(&self, lsn: Lsn) -> u64 {
        lsn.0 / self.segment_bytes
    }
}

/// A record whose entry pointed to a victim.
#[derive(Clone, Copy, Debug)]
pub(super) struct RecordToMove {
    /// Index of the record's table in the list of tables.
    pub(super) table: u32,
    /// Length of the record, if its key is not unusually long.
    pub(super) bytes: u32,
    pub(super) rid: Rid,
    /// LSN of the record in a victim.
    pub(super) from: Lsn,
    pub(super) stage: MoveStage,
}

/// Progress of moving a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MoveStage {
    /// The record must be copied.
    Found,
    /// The copy is at this LSN.
    Copied(Lsn),
    /// The record's entry points to no victim.
    Settled,
}

impl RecordToMove {
    pub(super) fn kept(&self) -> HeldLogRange {
        HeldLogRange { lsn: self.from, expected_bytes: self.bytes as usize }
    }

    /// Restarts the move, for the record's current location.
    pub(super) fn restart(&mut self, kept: HeldLogRange) {
        *self = Self::new(self.table, self.rid, kept);
    }

    pub(super) fn new(table: u32, rid: Rid, kept: HeldLogRange) -> Self {
        let bytes = u32::try_from(kept.expected_bytes).expect("records are shorter");
        Self { table, bytes, rid, from: kept.lsn, stage: MoveStage::Found }
    }
}

/// Target of a record's entry.
#[derive(Clone, Copy, Debug)]
pub(super) enum EntryTarget {
    /// The entry points to no victim.
    Elsewhere,
    /// The entry points to an extent in a victim, by this link. Without a link, a write is in
    /// flight, and the extent becomes the target only if the write fails.
    ToVictim(Option<Link>, HeldLogRange),
    /// A transaction that is ending at this moment decides the target.
    Deciding,
}

/// Returns the target of a record's entry.
///
/// # Errors
/// `Unlogged` for a record that is not in the log.
pub(super) fn entry_target(
    table: &MemoryRecords,
    rid: Rid,
    view: View<'_>,
    victims: &Victims,
    operation: &OperationGuard,
) -> Result<EntryTarget, OperationError> {
    let (link, kept) = match table.newest(rid, view, operation) {
        NewestVersion::Gone | NewestVersion::InFlight(None) => return Ok(EntryTarget::Elsewhere),
        NewestVersion::Deciding => return Ok(EntryTarget::Deciding),
        NewestVersion::Unlogged => return Err(OperationError::Unlogged),
        NewestVersion::InFlight(Some(below)) => (None, below),
        NewestVersion::Committed(link, kept) => (Some(link), kept),
    };
    Ok(if victims.hold(kept) { EntryTarget::ToVictim(link, kept) } else { EntryTarget::Elsewhere })
}

/// Examines every entry once. Returns the records that point to a victim, or will if a write in
/// flight fails, in log order.
///
/// # Errors
/// `Unlogged` for a record that is not in the log.
pub(super) async fn find(
    worker: &Rc<WorkerTransactions>,
    tables: &[Arc<Records>],
    victims: &Victims,
) -> Result<Vec<RecordToMove>, OperationError> {
    let mut items = Vec::new();
    for (place, table) in (0..).zip(tables) {
        sched::count_steps(STEPS_PER_TABLE).await;
        let Some(table) = table.in_memory() else { continue };
        let bound = table.rids().handed_out();
        for first in (0..bound).step_by(ENTRIES_PER_TURN) {
            let rids = (first..bound.min(first + ENTRIES_PER_TURN as u64)).map(Rid::new);
            table.prefetch(rids.clone()).await;
            let mut left: Vec<Rid> = rids.collect();
            while !left.is_empty() {
                sched::count_steps(steps(left.len())).await;
                look_at(worker, table, &mut left, victims, |rid, kept| {
                    items.push(RecordToMove::new(place, rid, kept));
                })?;
                sched::yield_now(WaitCause::Memory).await;
            }
        }
    }
    // In log order.
    Ok(sched::sort(items, |one, other| one.from.cmp(&other.from)).await)
}

/// Examines entries and reports those that point to a victim. Leaves the entries in `rids` that
/// must be examined again.
fn look_at(
    worker: &Rc<WorkerTransactions>,
    table: &MemoryRecords,
    rids: &mut Vec<Rid>,
    victims: &Victims,
    mut found: impl FnMut(Rid, HeldLogRange),
) -> Result<(), OperationError> {
    let operation = reclaim::enter();
    let transaction = worker.begin().map_err(|_| OperationError::Overloaded)?;
    let mut again = Vec::new();
    for rid in rids.drain(..) {
        match entry_target(table, rid, transaction.view(), victims, &operation)? {
            EntryTarget::Elsewhere => {}
            EntryTarget::ToVictim(_, kept) => found(rid, kept),
            EntryTarget::Deciding => again.push(rid),
        }
    }
    transaction.end_uncounted();
    *rids = again;
    Ok(())
}
