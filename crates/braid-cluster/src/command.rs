//! Commands in the Raft log, and what their application decides.

use std::time::Duration;

use braiddb::proposals::{DamagedSet, KeySet, RowWrites};
use braiddb::{IndexOptions, TableOptions};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::raft::{LogId, NodeId};

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
    /// A change of the catalog by a node that has applied the entries up to `base`. Conflicts if
    /// the catalog has changed since then, so it takes effect at most once.
    Catalog {
        base: u64,
        change: CatalogChange,
    },
    /// From here on, the cluster uses this version, if it used an older one. The leader has asked all
    /// members whether they understand it. Conflicts if the members have changed since then, also by
    /// another leader.
    SetVersion {
        version: u32,
        /// Log id of the configuration with the members that were asked.
        members: Option<LogId>,
    },
    /// The next rows of a staged table.
    Load(StagedRows),
}

/// Rows of a staged table, which no other transaction reads or writes. So they are not certified.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StagedRows {
    /// Id of the staged table.
    pub table: SubmissionId,
    /// Number of this part of the load. Parts are applied in this order, each once.
    pub number: u64,
    /// Encoded `RowWrites`.
    pub writes: Bytes,
}

/// A change of a table in the cluster's catalog.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CatalogChange {
    /// Has no effect if a table of this name exists.
    Create(ClusterTable),
    Drop(String),
    Rename {
        from: String,
        to: String,
    },
    /// Creates an index. Has no effect if the table has it.
    CreateIndex {
        table: String,
        /// Number of the table's creation.
        created: u64,
        index: ClusterIndex,
    },
    DropIndex {
        table: String,
        index: String,
        /// Number of the index's creation.
        created: u64,
    },
    /// Creates a staged table, which [`CatalogChange::Publish`] gives its name. Has no effect if it
    /// exists.
    Stage {
        id: SubmissionId,
        /// With the name under which it is published.
        table: ClusterTable,
    },
    Publish(SubmissionId),
    /// Drops a staged table.
    Discard(SubmissionId),
}

impl CatalogChange {
    /// Returns the version from which on nodes understand the change.
    pub fn version(&self) -> u32 {
        match self {
            Self::Create(_) => 1,
            _ => 2,
        }
    }

    /// Returns whether the change is a part of its entry's transaction.
    pub fn is_in_transaction(&self) -> bool {
        match self {
            Self::Create(_)
            | Self::CreateIndex { .. }
            | Self::DropIndex { .. }
            | Self::Stage { .. } => true,
            Self::Drop(_) | Self::Rename { .. } | Self::Publish(_) | Self::Discard(_) => false,
        }
    }
}

impl Action {
    /// Returns whether an entry with this action contains no other one. The node applies it
    /// in several local transactions, and again if it stops before the last one.
    pub fn is_alone(&self) -> bool {
        match self {
            Self::Transaction(_) | Self::SetVersion { .. } | Self::Load(_) => false,
            Self::Catalog { change, .. } => !change.is_in_transaction(),
        }
    }
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

impl ExecutedTransaction {
    /// Decodes what the transaction read, and what it wrote.
    ///
    /// # Errors
    /// [`DamagedSet`] if the program does not understand one of them.
    pub fn decode(&self) -> Result<(KeySet, RowWrites), DamagedSet> {
        Ok((KeySet::decode(&self.reads)?, RowWrites::decode(&self.writes)?))
    }
}

/// A table of the cluster, as listed in its catalog.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterTable {
    pub name: String,
    pub key_type: String,
    pub value_type: String,
    pub is_paged: bool,
    pub caches_cold: bool,
    /// Lifetime of the records, if they expire.
    pub ttl_ms: Option<u64>,
    /// Number of its creation in the order of the log, which the node that creates it leaves 0. It
    /// distinguishes the table from others that had the same name. A rename keeps it.
    pub created: u64,
}

impl ClusterTable {
    /// Describes a table with these options.
    pub fn new(name: &str, key_type: String, value_type: String, options: TableOptions) -> Self {
        let milliseconds = |ttl: Duration| u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
        Self {
            name: name.to_owned(),
            key_type,
            value_type,
            is_paged: options.paged,
            caches_cold: options.cache_cold,
            ttl_ms: options.ttl.map(milliseconds),
            created: 0,
        }
    }

    /// Returns the options with which a node creates the table.
    pub fn options(&self) -> TableOptions {
        let mut options = TableOptions::default();
        options.paged = self.is_paged;
        options.cache_cold = self.caches_cold;
        options.ttl = self.ttl_ms.map(Duration::from_millis);
        options
    }
}

/// An index of the cluster, as listed in its catalog. Each node keeps the entries itself, because
/// they follow from the records.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterIndex {
    pub name: String,
    /// Name of the type of its keys.
    pub key_type: String,
    pub is_unique: bool,
    /// Version of its key function.
    pub version: u32,
    /// Number of its creation in the order of the log, which the node that creates it leaves 0.
    pub created: u64,
}

impl ClusterIndex {
    /// Describes an index with these options.
    pub fn new(name: &str, key_type: String, options: IndexOptions) -> Self {
        let IndexOptions { unique: is_unique, version, .. } = options;
        Self { name: name.to_owned(), key_type, is_unique, version, created: 0 }
    }

    /// Returns whether both have the same entries if the records are the same.
    pub fn is_same(&self, other: &Self) -> bool {
        *self == Self { created: self.created, ..other.clone() }
    }

    /// Describes the index for an error.
    pub fn definition(&self) -> String {
        let unique = if self.is_unique { "unique" } else { "not unique" };
        format!("version {}, {unique}, with keys of type {}", self.version, self.key_type)
    }
}

/// A staged table, as listed in the cluster's catalog.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterStagedTable {
    pub id: SubmissionId,
    /// Name under which it is published.
    pub name: String,
    /// Number of the next part of its load.
    pub next: u64,
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
