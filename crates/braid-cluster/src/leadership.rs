//! Waits for answers of openraft that end with the leadership of the node.
//!
//! openraft answers a write when it has applied the entry, or when another leader has replaced it.
//! A node that loses its role and then receives the place of the entry in a snapshot does neither,
//! so openraft never answers. The same holds for a node that removed itself.

use openraft::BasicNode;
use openraft::ServerState;
use openraft::error::{ClientWriteError, RaftError};

use crate::message::Refusal;
use crate::raft::{NodeId, Raft};

/// Error of a write through openraft.
pub type WriteError = RaftError<NodeId, ClientWriteError<NodeId, BasicNode>>;

/// Returns the answer of openraft to a write, which must begin with its first poll.
///
/// # Errors
/// [`Refusal::NotLeader`] if the node does not lead; then nothing happens. [`Refusal::Failed`] if it
/// loses its role before the answer; then the write may still take effect.
pub async fn while_leading<T>(
    raft: &Raft,
    answer: impl Future<Output = Result<T, Refusal>>,
) -> Result<T, Refusal> {
    let mut server = raft.server_metrics();
    let vote = {
        let now = server.borrow_and_update();
        if now.state != ServerState::Leader {
            return Err(Refusal::NotLeader);
        }
        now.vote
    };
    let lost = server.wait_for(|now| now.state != ServerState::Leader || now.vote != vote);
    tokio::select! {
        // An answer that has come counts.
        biased;
        answer = answer => answer,
        _ = lost => Err(Refusal::Failed(
            "the leader lost its role before it knew the result, so the change may take effect or \
             not; look at the state of the cluster, or call again"
                .to_owned(),
        )),
    }
}

/// Converts the error of a write through openraft.
pub fn write_refusal(error: WriteError) -> Refusal {
    match error {
        RaftError::APIError(ClientWriteError::ForwardToLeader(_)) => Refusal::NotLeader,
        RaftError::APIError(ClientWriteError::ChangeMembershipError(error)) => {
            Refusal::Failed(error.to_string())
        }
        RaftError::Fatal(error) => Refusal::Failed(error.to_string()),
    }
}
