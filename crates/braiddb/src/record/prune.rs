//! Pruning of chains (Umbra MVCC §3.4, Steam): cuts out versions that an old reader only steps
//! over, and replaces those that it sees by their headers.

use super::indirection::IndirectionEntry;
use super::records::MemoryRecords;
use crate::reclaim;
use crate::rid::Rid;
use crate::version::{Link, Pruning, Version, VersionRef};

/// The pruning action for a superseded version.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cut {
    pub(crate) version: VersionRef,
    /// The header that replaces the version, if a reader still sees it.
    pub(crate) header: Option<VersionRef>,
}

impl MemoryRecords {
    /// Cuts versions, newest first, out of the chain of `rid`, and retires them.
    ///
    /// # Safety
    /// Each is linked in that chain and is not its newest committed version. No reader sees the
    /// versions without a header, now or later. A begin stamp in the last horizon that any worker
    /// acted on needs the last of them, or the version that it links to. So the chain is complete
    /// from the head to there, as long as `_pruning` lasts.
    pub(crate) unsafe fn prune(&self, rid: Rid, cuts: &[Cut], _pruning: &Pruning<'_>) {
        let _operation = reclaim::enter();
        let IndirectionEntry::Version(head) = self.array().load(rid) else {
            panic!("a record with a reader has a chain")
        };
        let mut left = cuts.iter().peekable();
        // SAFETY: the head just loaded, under the guard above.
        let mut newer: Version<'_> = unsafe { head.get() };
        while let Some(&&Cut { version: wanted, header }) = left.peek() {
            let Some(Link::Version(next)) = newer.next() else {
                panic!("every version to cut out is linked")
            };
            // SAFETY: linked, and not freed concurrently (the caller's contract).
            let version = unsafe { next.get() };
            if next != wanted {
                newer = version;
                continue;
            }
            // Readers that are at this version still continue through its own link.
            let behind = version.next();
            match header {
                None => newer.set_next(behind),
                Some(header) => {
                    // SAFETY: not shared yet.
                    let header = unsafe { header.get() };
                    header.set_next(behind);
                    newer.set_next(Some(Link::Version(header.reference())));
                    newer = header;
                }
            }
            left.next();
            // SAFETY: cut out just now by the only worker that may: one worker prunes at a time.
            unsafe { self.retire_version(wanted) };
        }
    }
}
