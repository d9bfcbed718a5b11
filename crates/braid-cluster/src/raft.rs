//! Types with which openraft is instantiated. Only this module and those that implement openraft's
//! traits name its types.

use bytes::Bytes;
use openraft::{AnyError, BasicNode, StorageError, StorageIOError};
use serde::{Deserialize, Serialize};

use crate::snapshot::SnapshotData;

/// Number of a node, unique in its cluster for ever.
pub type NodeId = u64;

openraft::declare_raft_types!(
    /// Entries are encoded commands; a snapshot is a handle to a database or to received chunks.
    pub TypeConfig:
        D = EncodedCommand,
        R = (),
        NodeId = NodeId,
        Node = BasicNode,
        SnapshotData = SnapshotData,
);

/// An encoded [`Command`](crate::command::Command). It is decoded only where it is applied.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EncodedCommand(pub Bytes);

pub type Raft = openraft::Raft<TypeConfig>;
pub type Entry = openraft::Entry<TypeConfig>;
pub type LogId = openraft::LogId<NodeId>;
pub type Vote = openraft::Vote<NodeId>;
pub type Membership = openraft::StoredMembership<NodeId, BasicNode>;
pub type SnapshotMeta = openraft::SnapshotMeta<NodeId, BasicNode>;
pub type Snapshot = openraft::Snapshot<TypeConfig>;
pub type StorageResult<T> = Result<T, StorageError<NodeId>>;

/// Reports a failure of the database to openraft, which stops the node.
pub fn storage_error(error: impl std::error::Error + 'static) -> StorageError<NodeId> {
    StorageIOError::write(AnyError::new(&error)).into()
}
