//! Snapshot extension (LSA, the lazy snapshot algorithm). A transaction that meets a version newer
//! than its begin stamp validates its reads at the log's tail. If all of them still hold, it
//! continues as if it had begun there.
//!
//! Only transactions that are certain to write extend, because their reads must hold at commit
//! anyway. A transaction that may turn out to be read-only keeps its snapshot, where it never
//! fails.
//!
//! # Operations in progress
//!
//! Every result is noted without suspension after the check of the begin stamp under which it was
//! found. So at an extension, each result is either noted, and validated again, or its operation is
//! suspended. A suspended operation sees the changed begin stamp when it resumes, and starts over.
//! A scan notes its whole range before it reads ahead, so records read ahead hold at the new stamp
//! too.
//!
//! # What stays allocated
//!
//! The first begin stamp bounds the horizon until the transaction ends. So versions that it was
//! returned under that stamp, or that a running operation traverses, are freed no sooner than
//! without an extension. The pruner also receives the last begin stamp and removes no version that
//! it sees. Log that only snapshots keep is not freed as long as an extended transaction is open
//! that began before its last record was superseded. Versions listed by the pruner before the extension end at a tail that this worker
//! announced before, which is not later than the new stamp.

use crate::log::Lsn;
use crate::planted::{Bug, is_planted};
use crate::transaction::context::active_transaction::ActiveTransaction;
use crate::transaction::context::isolation::TransactionMode;
use crate::transaction::context::transaction_state::Conflict;
use crate::transaction::sets::read_set::NamedKeys;

/// Maximum number of read set entries, and of index entries in their ranges, that an extension
/// validates.
pub(super) const MAX_NOTED: usize = 64;
/// Maximum number of extensions per attempt.
const MAX_EXTENSIONS: u32 = 64;

impl ActiveTransaction {
    /// Moves the begin stamp to the log's tail, if the transaction is certain to write and all its
    /// reads hold there; returns whether it did. Must be called without suspension since the caller
    /// met a newer version.
    #[cold]
    pub(in crate::transaction) fn extend(&self) -> bool {
        (self.is_repeated() || !self.writes().borrow().is_empty()) && self.extend_writer()
    }

    /// Does what `extend` does, after a conflict. If a newer version caused it and the operation
    /// wrote nothing, the operation may be retried.
    #[cold]
    pub(in crate::transaction) fn extend_past_conflict(&self, wrote_nothing: bool) -> bool {
        if self.conflict_met() != Conflict::NewerWrite {
            return false;
        }
        let extended = wrote_nothing && self.extend_writer();
        self.replace_conflict(if extended { Conflict::None } else { Conflict::Write });
        extended
    }

    fn extend_writer(&self) -> bool {
        let few = self.reads().len() <= MAX_NOTED && self.extensions() < MAX_EXTENSIONS;
        // A record that was live at its time may be expired later, and others may have read so at
        // the new stamp.
        let has_time = self.time_used().get();
        if !few
            || has_time
            || self.mode() != TransactionMode::Serializable
            || self.doomed_by().is_some()
        {
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

    /// Validates, without suspension, that all reads of the transaction hold at `until`.
    fn holds_at(&self, until: Lsn) -> Result<(), NamedKeys> {
        if is_planted(Bug::ExtensionNotCertified) {
            return Ok(());
        }
        self.certify_up_to(until, MAX_NOTED)
    }
}
