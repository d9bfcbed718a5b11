//! Extension of snapshots (LSA, the lazy snapshot algorithm): a transaction that meets a version newer than
//! its begin stamp looks whether all that it was told holds at the log's tail; if so, it goes on as if it had
//! begun there.
//!
//! Only those do that are bound to write: what they were told would have to hold at their commit anyway. One
//! that may turn out to have read only goes on in its snapshot, where it never fails.
//!
//! # Operations under way
//!
//! Every answer is noted in one stretch with the look at the begin stamp under which it was found. So at
//! an extension, each answer either is noted, and looked at again; or its operation is suspended, and finds
//! that the begin stamp is another one when it goes on: then it begins anew. A scan notes its whole
//! range before it reads ahead, so what it has read ahead holds at the new stamp too.
//!
//! # What stays allocated
//!
//! The horizon is bounded by the first begin stamp until the transaction is over: so what it was handed
//! while it had that one, and what an operation under way steps over, is freed no sooner than without
//! an extension. The pruner is told of the last begin stamp too, and cuts out nothing that it sees; and
//! what it listed before the extension ends at a tail that this worker told before, which is not later than
//! the new stamp.

use super::context::Transaction;
use super::doomed::Conflict;
use super::isolation::Mode;
use super::read_set::NamedKeys;
use crate::log::Lsn;
use crate::planted::{Bug, is_planted};

/// Entries of a read set that are looked at, at most, and entries of the index in their ranges.
pub(super) const MAX_NOTED: usize = 64;
/// Extensions of one attempt.
const MAX_EXTENSIONS: u32 = 64;

impl Transaction {
    /// Moves the begin stamp to the log's tail, if the transaction is to write and all it was told holds there;
    /// whether it did. Called without a suspension since the caller met a newer version.
    #[cold]
    pub(super) fn extend(&self) -> bool {
        (self.is_repeated() || !self.writes().borrow().is_empty()) && self.extend_writer()
    }

    /// As `extend`, of a transaction that has met a conflict: if that was for a newer version, and the
    /// operation wrote nothing, it may be tried again.
    #[cold]
    pub(super) fn extend_past_conflict(&self, wrote_nothing: bool) -> bool {
        if self.conflict_met() != Conflict::NewerWrite {
            return false;
        }
        let extended = wrote_nothing && self.extend_writer();
        self.replace_conflict(if extended { Conflict::None } else { Conflict::Write });
        extended
    }

    fn extend_writer(&self) -> bool {
        let few = self.reads().len() <= MAX_NOTED && self.extensions() < MAX_EXTENSIONS;
        // What was alive at its time need not be at a later one; and others may have told it at the new stamp what was not.
        let has_time = self.time_used().get();
        if !few || has_time || self.mode() != Mode::Serializable || self.stale().get().is_some() {
            return false;
        }
        let tail = self.engine().log.tail();
        if tail <= self.begin() || self.holds_at(tail).is_err() {
            return false;
        }
        self.begin_again(tail);
        self.worker().counters().extended.add(1);
        true
    }

    /// Looks, without a suspension, whether all that the transaction was told holds at `until`.
    fn holds_at(&self, until: Lsn) -> Result<(), NamedKeys> {
        if is_planted(Bug::ExtensionNotCertified) {
            return Ok(());
        }
        self.certify_up_to(until, MAX_NOTED)
    }
}
