//! Submissions of this node: from the queue to their decision.

use tokio::time::Instant;

use crate::cluster::Cluster;
use crate::command::{Action, Decision, Submission};
use crate::error::{Error, Result};
use crate::proposer::Outgoing;
use crate::replica::Decided;
use crate::storage::encode;

/// Largest encoded submission. An entry with it fits into a row of the log and a message.
const MAX_SUBMISSION_BYTES: usize = 8 << 20;

impl Cluster {
    /// Submits a change, and waits until this node has applied its entry.
    pub(crate) async fn submit(&self, action: Action, deadline: Instant) -> Result<Decided> {
        let id = self.new_id();
        let bytes = encode(&Submission { id, action });
        if bytes.len() > MAX_SUBMISSION_BYTES {
            return Err(Error::TooLarge { bytes: bytes.len(), limit: MAX_SUBMISSION_BYTES });
        }
        let replica = &self.inner.replica;
        let decision = replica.expect_decision(id);
        // A dropped call must not leave its wait behind.
        let wait = GiveUp { cluster: self, id };
        if !self.inner.proposer.submit(Outgoing { id, bytes: bytes.into() }) {
            return Err(Error::Overloaded(self.inner.options.max_requests));
        }
        let result = tokio::time::timeout_at(deadline, decision).await;
        match result {
            Ok(Ok((Decision::Refused(reason), _))) => Err(Error::Refused(reason)),
            Ok(Ok(decided)) => Ok(decided),
            Ok(Err(_)) | Err(_) if replica.give_up(wait.id) => {
                Err(Error::CommitUnknown { id, timeout: self.timeout })
            }
            Ok(Err(_)) | Err(_) => Err(self.no_leader()),
        }
    }
}

/// Ends a wait when its call ends.
struct GiveUp<'c> {
    cluster: &'c Cluster,
    id: crate::command::SubmissionId,
}

impl Drop for GiveUp<'_> {
    fn drop(&mut self) {
        self.cluster.inner.replica.give_up(self.id);
    }
}
