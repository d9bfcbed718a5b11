//! Finding the records that the segments to be freed hold: those whose entries in the indirection arrays lead there.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;

use crate::log::Lsn;
use crate::reclaim::{self, OperationGuard};
use crate::record::{Kept, Newest, Records};
use crate::rid::Rid;
use crate::sched::{self, Cause};
use crate::transaction::{OperationError, WorkerTransactions};
use crate::version::{Link, View};

/// Entries looked at between two turns of others.
pub(super) const TURN: usize = 256;

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

    /// Whether one of them holds some of a stretch of the log.
    pub(super) fn hold(&self, kept: Kept) -> bool {
        let segments = self.segment_of(kept.lsn)..=self.segment_of(kept.last());
        self.segments.range(segments).next().is_some()
    }

    pub(super) fn segment_of(&self, lsn: Lsn) -> u64 {
        lsn.0 / self.segment_bytes
    }
}

/// A record whose entry led to a victim.
#[derive(Debug)]
pub(super) struct Item {
    /// The table's place among those that were looked at.
    pub(super) table: u32,
    /// Bytes that it takes, if its key is not unusually long.
    pub(super) bytes: u32,
    pub(super) rid: Rid,
    /// Where it is in a victim.
    pub(super) from: Lsn,
    pub(super) stage: Stage,
}

/// How far the move of a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// It is to be copied.
    Found,
    /// Its copy is at an LSN.
    Copied(Lsn),
    /// Its entry leads to no victim.
    Settled,
}

impl Item {
    pub(super) fn kept(&self) -> Kept {
        Kept { lsn: self.from, usual_bytes: self.bytes as usize }
    }

    /// Begins anew, for where the record is kept now.
    pub(super) fn restart(&mut self, kept: Kept) {
        *self = Self::new(self.table, self.rid, kept);
    }

    fn new(table: u32, rid: Rid, kept: Kept) -> Self {
        let bytes = u32::try_from(kept.usual_bytes).expect("records are shorter");
        Self { table, bytes, rid, from: kept.lsn, stage: Stage::Found }
    }
}

/// Where an entry leads.
#[derive(Clone, Copy, Debug)]
pub(super) enum EntryTarget {
    /// To no victim.
    Elsewhere,
    /// To what a victim holds some of, by this link; or to a write that is under way, and to that only
    /// if the write fails.
    ToVictim(Option<Link>, Kept),
    /// A transaction is ending at this moment, and decides it.
    Deciding,
}

/// Where the entry of a record leads.
///
/// # Errors
/// `Unlogged` for a record that the log does not have.
pub(super) fn entry_target(
    table: &Records,
    rid: Rid,
    view: View<'_>,
    victims: &Victims,
    operation: &OperationGuard,
) -> Result<EntryTarget, OperationError> {
    let (link, kept) = match table.newest(rid, view, operation) {
        Newest::Gone | Newest::InFlight(None) => return Ok(EntryTarget::Elsewhere),
        Newest::Deciding => return Ok(EntryTarget::Deciding),
        Newest::Unlogged => return Err(OperationError::Unlogged),
        Newest::InFlight(Some(below)) => (None, below),
        Newest::Committed(link, kept) => (Some(link), kept),
    };
    Ok(if victims.hold(kept) { EntryTarget::ToVictim(link, kept) } else { EntryTarget::Elsewhere })
}

/// Looks at every entry, once; returns what leads to a victim, or will if a write that is under way
/// fails, in the order of the log.
///
/// # Errors
/// `Unlogged` for a record that the log does not have.
pub(super) async fn find(
    worker: &Rc<WorkerTransactions>,
    tables: &[Arc<Records>],
    victims: &Victims,
) -> Result<Vec<Item>, OperationError> {
    let mut items = Vec::new();
    for (place, table) in (0..).zip(tables) {
        let bound = table.rids().handed_out();
        for first in (0..bound).step_by(TURN) {
            let rids = (first..bound.min(first + TURN as u64)).map(Rid::new);
            table.prefetch(rids.clone()).await;
            let mut left: Vec<Rid> = rids.collect();
            while !left.is_empty() {
                look_at(worker, table, &mut left, victims, |rid, kept| {
                    items.push(Item::new(place, rid, kept));
                })?;
                sched::yield_now(Cause::Memory).await;
            }
        }
    }
    items.sort_unstable_by_key(|item| item.from);
    Ok(items)
}

/// Looks at entries, and finds those that lead to a victim; leaves those in `rids` that are to be looked
/// at again.
fn look_at(
    worker: &Rc<WorkerTransactions>,
    table: &Records,
    rids: &mut Vec<Rid>,
    victims: &Victims,
    mut found: impl FnMut(Rid, Kept),
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
