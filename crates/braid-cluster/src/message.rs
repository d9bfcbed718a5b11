//! Messages between nodes, and their encoding.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, VoteRequest, VoteResponse,
};
use serde::{Deserialize, Serialize};

use crate::command::SubmissionId;
use crate::identity::ClusterId;
use crate::raft::{NodeId, TypeConfig, Vote};
use crate::read::Consistency;
use crate::snapshot::Chunk;
use crate::status::Status;

/// The first part of a message, the same in all versions: a node refuses what is meant for others,
/// or what it does not understand, before it decodes the rest.
#[derive(Debug, Serialize, Deserialize)]
pub struct Header {
    /// Version in which the request is encoded.
    pub version: u32,
    /// Name of the cluster, from the options of the sender.
    pub cluster: String,
    /// Id of the cluster. A client and a node that is no member know none.
    pub id: Option<ClusterId>,
    /// The node that is called. A client knows only an address, and names no node.
    pub to: Option<NodeId>,
}

/// A request with its header.
#[derive(Debug, Serialize, Deserialize)]
pub struct Envelope {
    pub header: Header,
    pub request: Request,
}

#[derive(Debug, Serialize, Deserialize)]
pub enum Request {
    Append(AppendEntriesRequest<TypeConfig>),
    Vote(VoteRequest<NodeId>),
    /// A chunk of a snapshot stream. Chunk 0 begins the transfer.
    Chunk {
        transfer: u64,
        number: u64,
        chunk: Chunk,
    },
    /// Installs the snapshot of which all chunks are sent.
    Install {
        transfer: u64,
        vote: Vote,
    },
    /// Encoded submissions for the leader to append.
    Submit(Vec<Bytes>),
    /// Asks the leader for the index that a linearizable read must wait for.
    ReadIndex,
    /// Asks the leader for a change of the members.
    Members(MemberChange),
    /// Asks the leader to let a voter become the leader.
    Transfer {
        node: NodeId,
        timeout: Duration,
    },
    /// Asks a voter to become the leader.
    Elect {
        timeout: Duration,
    },
    /// Asks a node for its description.
    Describe,
    /// Asks the member with the lowest number to make a cluster.
    Found {
        members: BTreeMap<NodeId, String>,
        timeout: Duration,
    },
    /// Asks the leader to let the cluster use a version.
    RaiseVersion {
        id: SubmissionId,
        version: u32,
        /// After this time, the leader appends nothing.
        timeout: Duration,
    },
    /// A request of a client, to any node.
    Client {
        request: ClientRequest,
        timeout: Duration,
    },
}

impl Request {
    /// Returns whether the request comes from a node that leads, or asks to lead, a cluster with
    /// this node as a member.
    pub fn admits(&self) -> bool {
        matches!(self, Self::Append(_) | Self::Vote(_) | Self::Chunk { .. } | Self::Install { .. })
    }
}

/// Versions and cluster of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeDescription {
    pub oldest_version: u32,
    pub newest_version: u32,
    /// Id of its cluster, if it is a member of one.
    pub id: Option<ClusterId>,
}

/// A change of the cluster's members.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MemberChange {
    /// Adds a node, which first copies the contents and then becomes a voter. If it has not copied
    /// them within `timeout`, it is not added.
    Add { node: NodeId, address: String, timeout: Duration },
    /// Removes a node.
    Remove { node: NodeId },
}

/// A call of [`Client`](crate::Client).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ClientRequest {
    Init(BTreeMap<NodeId, String>),
    Add { node: NodeId, address: String },
    Remove { node: NodeId },
    Transfer { node: NodeId },
    Status,
    Put { table: String, key: String, value: String },
    Get { table: String, key: String, consistency: Consistency },
    DropTable { table: String },
    RenameTable { from: String, to: String },
}

impl ClientRequest {
    /// Returns the version from which on nodes understand the request.
    pub fn version(&self) -> u32 {
        match self {
            Self::DropTable { .. } | Self::RenameTable { .. } => 2,
            _ => 1,
        }
    }
}

#[derive(Debug, Serialize, Deserialize)]
pub enum Answer {
    Append(AppendEntriesResponse<NodeId>),
    Vote(VoteResponse<NodeId>),
    /// The chunk is stored, or the submissions are committed, or the members are changed, or the
    /// leadership is transferred, or the request of the client is executed.
    Done,
    Install(SnapshotResponse<NodeId>),
    ReadIndex(u64),
    Status(Status),
    Node(NodeDescription),
    Value(Option<String>),
}

/// Why a node does not fulfil a request. Nothing has happened, except after `Failed`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Refusal {
    /// Another node is the leader, or none is known.
    #[error("the node is not the leader")]
    NotLeader,
    /// The leader cannot reach a majority.
    #[error("the leader does not reach a majority of the nodes")]
    NoQuorum,
    /// The message is not for this node.
    #[error("the request is meant for another node, or damaged: {0}")]
    Stranger(String),
    /// One of the nodes belongs to another cluster.
    #[error("{0}")]
    OtherCluster(String),
    /// A node does not understand a version.
    #[error("{0}")]
    Version(String),
    /// The node cannot take the request now.
    #[error("the node is busy: {0}")]
    Busy(String),
    /// The request failed.
    #[error("{0}")]
    Failed(String),
}

/// Encodes a message.
pub fn encode(message: &impl Serialize) -> Bytes {
    crate::storage::encode(message).into()
}
