//! Read-ahead of leaves, for operations that visit all leaves of a tree.

use std::ops::Bound;

use smallvec::SmallVec;

use super::PageTree;
use crate::page::error::{Interrupted, PageError};
use crate::page::map::PageId;
use crate::page::resident_set::{HeldPages, PageNeeds};

/// Maximum number of leaves that are loaded together.
const MAX_READ_AHEAD: usize = 32;

impl PageTree {
    /// Waits until the pages and frames that interrupted an operation on the leaf of `key` are
    /// available, together with those in `needs`. If that leaf is on disk, some of the following
    /// leaves are loaded with it: those for which `is_due` returns true.
    ///
    /// # Errors
    /// When the operation's own needs cannot be provided. Errors of leaves ahead are reported when
    /// the operation reaches them.
    pub(in crate::page) async fn hold_pages_ahead(
        &self,
        needs: &mut PageNeeds,
        key: &[u8],
        why: Interrupted,
        is_due: impl Fn(PageId) -> bool,
    ) -> Result<HeldPages, PageError> {
        if matches!(why, Interrupted::Absent(_)) {
            let cursor = self.cursor(Bound::Included(key), Bound::Unbounded, false);
            let most = MAX_READ_AHEAD.min(self.space.max_prefetched_pages());
            let ahead = cursor.leaves_ahead(most).into_iter().rev().filter(|id| is_due(*id));
            let mut all: SmallVec<[Interrupted; 8]> = ahead.map(Interrupted::Absent).collect();
            let mut more = needs.and(all.len());
            all.push(why);
            if let Ok(there) = self.space.hold_pages(&mut more, &all, None).await {
                needs.add(&[why]);
                return Ok(there);
            }
        }
        self.space.hold_pages(needs, &[why], None).await
    }
}
