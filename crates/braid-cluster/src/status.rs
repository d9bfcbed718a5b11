//! State of a cluster as one node knows it.

use std::collections::BTreeMap;
use std::sync::Arc;

use openraft::{BasicNode, ServerState};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::counters::{AppliedCounts, Counters};
use crate::identity::LocalNode;
use crate::raft::{NodeId, Raft};
use crate::replica::Replica;

/// Role of a node in Raft.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Role {
    /// Orders the transactions of all nodes.
    Leader,
    /// Votes, and copies the leader's log.
    Follower,
    /// Asks the others for their votes.
    Candidate,
    /// Copies the leader's log without a vote, or is not a member yet.
    Learner,
    /// Has stopped.
    Stopped,
}

impl std::fmt::Display for Role {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::Leader => "leader",
            Self::Follower => "follower",
            Self::Candidate => "candidate",
            Self::Learner => "learner",
            Self::Stopped => "stopped",
        })
    }
}

/// State of a cluster as one node knows it, for people and metrics.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Status {
    /// This node.
    pub node: NodeId,
    /// Role of this node.
    pub role: Role,
    /// The leader, if one is known.
    pub leader: Option<NodeId>,
    /// Id of the cluster; `None` before the node is a member.
    pub cluster_id: Option<String>,
    /// Version of the protocol that the cluster uses.
    pub version: u32,
    /// Raft's term.
    pub term: u64,
    /// Index of the last entry in this node's log.
    pub last_log_index: u64,
    /// Index up to which this node has purged its log.
    pub purged_index: u64,
    /// Index of the last entry that this node knows to be committed; 0 after a restart until a
    /// leader sends it.
    pub committed_index: u64,
    /// Index of the last entry that this node has applied.
    pub applied_index: u64,
    /// Voters, with their addresses.
    pub voters: BTreeMap<NodeId, String>,
    /// Nodes that copy the contents and do not vote.
    pub learners: BTreeMap<NodeId, String>,
    /// Entries that each node has, if this node leads.
    pub replicated: BTreeMap<NodeId, u64>,
    /// Work of this node since its start.
    pub counts: AppliedCounts,
    /// Why the node has stopped, if it has.
    pub failure: Option<String>,
}

/// The parts of a node that its status shows. They hold no handle of the database.
#[derive(Clone, Debug)]
pub struct StatusSource {
    metrics: watch::Receiver<openraft::RaftMetrics<NodeId, BasicNode>>,
    local: Arc<LocalNode>,
    counters: Arc<Counters>,
    applied: watch::Receiver<u64>,
}

impl StatusSource {
    pub fn new(raft: &Raft, replica: &Replica) -> Self {
        Self {
            metrics: raft.metrics(),
            local: replica.local.clone(),
            counters: replica.counters.clone(),
            applied: replica.applied_watch(),
        }
    }
}

impl Status {
    /// Returns the number of entries of this node's log that a member lacks, if this node leads
    /// and the member has answered it.
    #[must_use]
    pub fn lag(&self, member: NodeId) -> Option<u64> {
        let replicated = self.replicated.get(&member)?;
        Some(self.last_log_index.saturating_sub(*replicated))
    }

    pub(crate) fn of(source: &StatusSource) -> Self {
        let metrics = source.metrics.borrow().clone();
        let members = metrics.membership_config.membership();
        let voters: Vec<NodeId> = members.voter_ids().collect();
        let (mut of_voters, mut learners) = (BTreeMap::new(), BTreeMap::new());
        for (id, node) in members.nodes() {
            let list = if voters.contains(id) { &mut of_voters } else { &mut learners };
            list.insert(*id, node.addr.clone());
        }
        let replication = metrics.replication.unwrap_or_default();
        let matching = |log_id: Option<crate::raft::LogId>| log_id.map_or(0, |log_id| log_id.index);
        Self {
            node: metrics.id,
            role: match metrics.state {
                ServerState::Leader => Role::Leader,
                // Raft reports this state, too, until it has started.
                ServerState::Follower if !voters.contains(&metrics.id) => Role::Learner,
                ServerState::Follower => Role::Follower,
                ServerState::Candidate => Role::Candidate,
                ServerState::Learner => Role::Learner,
                ServerState::Shutdown => Role::Stopped,
            },
            leader: metrics.current_leader,
            cluster_id: source.local.id().map(|id| id.to_string()),
            version: source.local.version(),
            term: metrics.current_term,
            last_log_index: metrics.last_log_index.unwrap_or(0),
            purged_index: matching(metrics.purged),
            committed_index: source.counters.committed_index(),
            applied_index: *source.applied.borrow(),
            voters: of_voters,
            learners,
            replicated: replication.into_iter().map(|(node, id)| (node, matching(id))).collect(),
            counts: source.counters.applied(),
            failure: metrics.running_state.err().map(|failure| failure.to_string()),
        }
    }
}
