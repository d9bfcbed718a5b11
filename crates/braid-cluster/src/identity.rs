//! Identity of a node: its number, its cluster, and the versions that it understands.

use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::raft::NodeId;
use crate::storage::{Storage, row};

/// Version that a cluster uses until it is raised. It is the same for all programs.
pub const FIRST_VERSION: u32 = 1;
/// Oldest version of messages and log entries that this program understands.
pub const OLDEST_VERSION: u32 = 1;
/// Newest version of messages and log entries that this program understands. Version 2 has drops
/// and renames of tables.
pub const NEWEST_VERSION: u32 = 2;

/// Random number of a cluster, made by [`Cluster::init`](crate::Cluster::init). It distinguishes
/// clusters of the same name.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterId(u128);

impl ClusterId {
    /// Returns an id that no cluster has.
    pub fn random() -> Self {
        Self(fastrand::Rng::new().u128(..))
    }
}

impl std::fmt::Display for ClusterId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl std::fmt::Debug for ClusterId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self}")
    }
}

/// Remedy of an error that names two clusters. Either of them may be the right one.
pub const FIND_OUT: &str =
    "correct the address, or find out which of the two clusters has the data";

/// Names the cluster of a node for errors.
pub fn name_cluster(id: Option<ClusterId>) -> String {
    id.map_or("no cluster".to_owned(), |id| format!("the cluster with the id {id}"))
}

/// Stored identity: the cluster and the node to which a database belongs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    pub cluster: String,
    pub node: NodeId,
    /// `None` until the node is a member.
    pub id: Option<ClusterId>,
}

/// The identity of a running node.
#[derive(Debug)]
pub struct LocalNode {
    pub cluster: String,
    pub number: NodeId,
    /// Versions that the node understands.
    pub understood: RangeInclusive<u32>,
    /// Version that the cluster uses.
    version: AtomicU32,
    id: Mutex<Option<ClusterId>>,
    /// Held while the id is set.
    pub changing_id: tokio::sync::Mutex<()>,
}

impl LocalNode {
    pub fn new(identity: Identity, understood: RangeInclusive<u32>) -> Self {
        let Identity { cluster, node: number, id } = identity;
        let (id, changing_id) = (Mutex::new(id), Default::default());
        let version = AtomicU32::new(FIRST_VERSION);
        Self { cluster, number, understood, version, id, changing_id }
    }

    /// Returns the version that the cluster uses.
    pub fn version(&self) -> u32 {
        self.version.load(Ordering::SeqCst)
    }

    /// Sets the version that the cluster uses.
    pub fn set_version(&self, version: u32) {
        self.version.store(version, Ordering::SeqCst);
    }

    /// Returns the id of the cluster, if the node has learnt it.
    pub fn id(&self) -> Option<ClusterId> {
        *self.id.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the id of the cluster, and returns when it is durable. The caller holds `changing_id`.
    pub async fn set_id(&self, storage: &Storage, id: ClusterId) -> Result<()> {
        let (cluster, node) = (self.cluster.clone(), self.number);
        storage.set_state_row(row::IDENTITY, &Identity { cluster, node, id: Some(id) }).await?;
        *self.id.lock().unwrap_or_else(PoisonError::into_inner) = Some(id);
        Ok(())
    }

    /// Checks that the node understands a version.
    pub fn understands(&self, version: u32) -> bool {
        self.understood.contains(&version)
    }

    /// Describes the versions that the node understands.
    pub fn versions(&self) -> String {
        format!("versions {} to {}", self.understood.start(), self.understood.end())
    }
}
