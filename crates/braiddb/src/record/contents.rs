//! How much a table holds, and where: counted by looking at every entry of its array.

use super::Records;
use super::read::NotReady;
use crate::reclaim::OperationGuard;
use crate::rid::Rid;
use crate::version::View;

/// Records that were counted, and the bytes of their values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Contents {
    /// Those whose value is in memory.
    pub(crate) hot: u64,
    pub(crate) hot_bytes: u64,
    /// Those whose value is only in the log, and the bytes of these, about.
    pub(crate) cold: u64,
    pub(crate) cold_bytes: u64,
}

impl Records {
    /// Counts what `view` sees under the record ids from `from` on, `count` at most; the next id, if there may be more.
    /// What is looked at does not count as read. A record that is being decided at this moment is left out.
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
