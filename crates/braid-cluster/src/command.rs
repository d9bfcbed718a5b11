//! Commands in the Raft log, and what their application decides.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::raft::NodeId;

/// Identity of a submission. A node never uses one twice, also not after a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SubmissionId {
    /// The node that submitted it.
    pub node: NodeId,
    /// Random number of the node's current run.
    pub run: u64,
    /// Position among the submissions of the run.
    pub number: u64,
}

impl std::fmt::Display for SubmissionId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{:016x}-{}", self.node, self.run, self.number)
    }
}

/// A Raft entry: encoded [`Submission`]s, which are applied in order.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Command {
    pub submissions: Vec<Bytes>,
}

/// One request to change the contents of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Submission {
    pub id: SubmissionId,
    pub action: Action,
}

/// The change that a submission asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Action {
    Transaction(ExecutedTransaction),
    /// Has no effect if the table exists.
    CreateTable(ClusterTable),
}

/// A transaction that one node executed and every node certifies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecutedTransaction {
    /// Index of the last entry that the execution saw.
    pub base: u64,
    /// Encoded `KeySet` of what it read.
    pub reads: Bytes,
    /// Encoded `RowWrites`.
    pub writes: Bytes,
}

/// A table of the cluster, as listed in its catalog.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterTable {
    pub name: String,
    pub key_type: String,
    pub value_type: String,
    pub is_paged: bool,
}

/// Result of a submission, the same on every node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The change is applied.
    Committed,
    /// A key that the transaction read or wrote has changed since its base, or the base is older
    /// than the certification window. Nothing is written.
    Conflict,
    /// The change does not fit the cluster's catalog. Nothing is written.
    Refused(String),
}
