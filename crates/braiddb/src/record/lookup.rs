//! Lookup of a record: from its key to its newest version, with pauses where cache lines are
//! probably missing.

use super::indirection::IndirectionEntry;
use super::records::MemoryRecords;
use crate::index::{InsertionPlace, Lookup, LookupProgress};
use crate::reclaim::OperationGuard;
use crate::rid::Rid;
use crate::sched::{self, Stepped, Steps};

/// A lookup of a record in progress.
#[derive(Debug)]
pub(crate) struct RecordLookup<'a> {
    table: &'a MemoryRecords,
    index: Lookup<'a, 'a>,
    stage: LookupStage,
}

/// Where a lookup of a record has paused, or its result.
#[derive(Clone, Copy, Debug)]
enum LookupStage {
    /// Within the index.
    Index,
    /// The record's entry in the indirection array was prefetched.
    Entry(Rid),
    /// The newest version was prefetched.
    Found(Rid),
    /// The index does not contain the key.
    Absent,
}

impl MemoryRecords {
    /// Finds the record id of `key`, and prefetches the record's newest version. The id is not
    /// reused at least as long as the guard lasts. The error is the key's place in the index.
    #[inline(always)]
    pub(crate) fn look_up<'a>(
        &'a self,
        key: &'a [u8],
        operation: &'a OperationGuard,
    ) -> Stepped<RecordLookup<'a>> {
        let index = Lookup::new(key, operation);
        sched::stepped(RecordLookup { table: self, index, stage: LookupStage::Index })
    }

    /// Does what `look_up` does, without a pause.
    #[inline(always)]
    pub(crate) fn look_up_now<'g>(
        &self,
        key: &[u8],
        operation: &'g OperationGuard,
    ) -> Result<Rid, InsertionPlace<'g>> {
        self.index().find(key, operation)
    }
}

impl RecordLookup<'_> {
    #[inline(always)]
    fn advance_as<const PAUSES: bool>(&mut self) -> bool {
        let table = self.table;
        let rid = match self.stage {
            LookupStage::Index => match self.index.advance::<PAUSES>(table.index()) {
                LookupProgress::Found(rid) if PAUSES && table.array_is_cold() => {
                    sched::prefetch(table.array().pointer(rid));
                    self.stage = LookupStage::Entry(rid);
                    return false;
                }
                LookupProgress::Found(rid) => rid,
                LookupProgress::Absent => {
                    self.stage = LookupStage::Absent;
                    return true;
                }
                LookupProgress::Paused => return false,
            },
            LookupStage::Entry(rid) => rid,
            LookupStage::Found(_) | LookupStage::Absent => return true,
        };
        self.stage = LookupStage::Found(rid);
        // The head is not read: it may be freed by the next step.
        if PAUSES
            && table.versions_are_cold()
            && let IndirectionEntry::Version(head) = table.array().load(rid)
        {
            sched::prefetch(head.pointer());
            return false;
        }
        true
    }
}

impl<'a> Steps for RecordLookup<'a> {
    type Output = Result<Rid, InsertionPlace<'a>>;

    fn advance(&mut self) -> bool {
        if sched::interleaves() { self.advance_as::<true>() } else { self.advance_as::<false>() }
    }

    #[inline(always)]
    fn output(&self) -> Self::Output {
        match self.stage {
            LookupStage::Found(rid) => Ok(rid),
            LookupStage::Absent => Err(self.index.insertion_place()),
            LookupStage::Index | LookupStage::Entry(_) => unreachable!("it has not ended"),
        }
    }
}
