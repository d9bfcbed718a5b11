//! Unlinking versions from the middle of a chain (Umbra MVCC §3.4, Steam): those that an old
//! reader only steps over.

use super::indirection::Entry;
use super::table::Table;
use crate::reclaim;
use crate::rid::Rid;
use crate::version::{Link, Pruning, Version, VersionRef};

impl Table {
    /// Unlinks and retires `versions`, newest first, from the chain of `rid`.
    ///
    /// # Safety
    /// Each is linked in that chain, is not its newest committed one, and is seen by nobody now or
    /// later. A begin stamp from the last horizon that anybody acted on is older than all of them:
    /// for it the chain is whole from the head to the last of them, as long as `_pruning` lasts.
    pub(crate) unsafe fn unlink(&self, rid: Rid, versions: &[VersionRef], _pruning: &Pruning<'_>) {
        let _operation = reclaim::enter();
        let Entry::Version(head) = self.array().load(rid) else {
            panic!("a record with a reader has a chain")
        };
        let mut left = versions.iter().copied().peekable();
        // SAFETY: the head just loaded, under the guard above.
        let mut newer: Version<'_> = unsafe { head.get() };
        while let Some(&wanted) = left.peek() {
            let Some(Link::Version(next)) = newer.next() else {
                panic!("what is to be unlinked is linked")
            };
            // SAFETY: linked, and not freed meanwhile (the caller's contract).
            let version = unsafe { next.get() };
            if next != wanted {
                newer = version;
                continue;
            }
            // Those who stand on it still find their way on through its own link.
            newer.set_next(version.next());
            left.next();
            // SAFETY: unlinked just now, by the only one who may: one prunes at a time.
            unsafe { self.retire_version(wanted) };
        }
    }
}
