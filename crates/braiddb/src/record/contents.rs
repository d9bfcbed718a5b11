//! Contents of a table by location, counted by reading every entry of its array.

use super::MemoryRecords;
use super::read::NotReady;
use crate::reclaim::OperationGuard;
use crate::rid::Rid;
use crate::version::View;

/// Number of records, and the bytes of their values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Contents {
    /// Records whose value is resident.
    pub(crate) hot: u64,
    pub(crate) hot_bytes: u64,
    /// Records whose value is only in the log; their bytes are approximate.
    pub(crate) cold: u64,
    pub(crate) cold_bytes: u64,
}

impl MemoryRecords {
    /// Counts what `view` sees under up to `count` record ids from `from` on; returns the next id,
    /// if more may follow. Counting does not mark versions as referenced. A record whose commit is
    /// being decided is not counted.
    pub(crate) fn count_contents(
        &self,
        (from, count): (u64, u64),
        view: View<'_>,
        operation: &OperationGuard,
        contents: &mut Contents,
    ) -> Option<u64> {
        let end = self.rids().handed_out();
        let next = end.min(from.saturating_add(count));
        for number in from..next {
            match self.search(Rid::new(number), view, operation) {
                Ok(seen) => {
                    if let Some(value) = seen.and_then(|seen| seen.value()) {
                        contents.hot += 1;
                        contents.hot_bytes += value.len() as u64;
                    }
                }
                Err(NotReady::InLog(cold)) => {
                    contents.cold += 1;
                    contents.cold_bytes += cold.address.value_bytes() as u64;
                }
                Err(NotReady::Undecided) => {}
            }
        }
        (next < end).then_some(next)
    }
}
