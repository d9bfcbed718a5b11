//! State of a cluster as one node knows it.

use std::collections::BTreeMap;

use crate::raft::{NodeId, Raft};

/// State of a cluster as one node knows it, for people and metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Status {
    /// This node.
    pub node: NodeId,
    /// The leader, if one is known.
    pub leader: Option<NodeId>,
    /// Raft's term.
    pub term: u64,
    /// Index of the last entry in this node's log.
    pub last_log_index: u64,
    /// Index up to which this node has purged its log.
    pub purged_index: u64,
    /// Index of the last entry that this node has applied.
    pub applied_index: u64,
    /// Voters, with their addresses.
    pub voters: BTreeMap<NodeId, String>,
    /// Nodes that copy the contents and do not vote.
    pub learners: BTreeMap<NodeId, String>,
    /// Entries that each node has, if this node leads.
    pub replicated: BTreeMap<NodeId, u64>,
    /// Why the node has stopped, if it has.
    pub failure: Option<String>,
}

impl Status {
    pub(crate) fn of(raft: &Raft, applied_index: u64) -> Self {
        let metrics = raft.metrics().borrow().clone();
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
            leader: metrics.current_leader,
            term: metrics.current_term,
            last_log_index: metrics.last_log_index.unwrap_or(0),
            purged_index: matching(metrics.purged),
            applied_index,
            voters: of_voters,
            learners,
            replicated: replication.into_iter().map(|(node, id)| (node, matching(id))).collect(),
            failure: metrics.running_state.err().map(|failure| failure.to_string()),
        }
    }
}
