//! Messages between the measuring process and the process of a node, one JSON document a line.

use std::collections::BTreeMap;
use std::path::PathBuf;

use braid_cluster::{NodeId, Status};
use serde::{Deserialize, Serialize};

use crate::histogram::Histogram;
use crate::usage::Usage;

/// Settings of a process, which it receives as its first line.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Setting {
    /// Number of the node; `None` for a database without a cluster.
    pub node: Option<NodeId>,
    /// Directory of the database.
    pub directory: PathBuf,
    /// Address on which the node listens.
    pub address: String,
    pub heartbeat_ms: u64,
    pub kept_entries: u64,
}

/// A request to the process of a node. The process answers it with one [`Reply`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Order {
    /// Makes the members a cluster.
    Init(BTreeMap<NodeId, String>),
    /// Writes this many records into the table of the loads.
    Fill(u64),
    /// Writes megabytes of large records.
    Write { megabytes: u64 },
    /// Runs a load.
    Run(Load),
    /// Commits one transaction, however long that takes.
    Commit,
    /// Returns the state of the node.
    Status,
    /// Waits until the node has applied the entry with this index.
    Await(u64),
}

/// Answer to an [`Order`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Reply {
    Done,
    Status(Box<Status>),
    Measured(Box<Measured>),
}

/// Clients that repeat one transaction.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Load {
    pub transaction: Kind,
    pub clients: u64,
    pub records: u64,
    pub warm_up: f64,
    pub seconds: f64,
}

/// Transaction of a load.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum Kind {
    /// Reads a random record and writes it. The probability of the record *i* is proportional to
    /// *i*<sup>-theta</sup>.
    Add { theta: f64 },
    /// Reads a random record.
    Read(Reads),
}

/// Consistency of the reads of a load.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum Reads {
    Linearizable,
    /// With the token of a transaction that ended before the load.
    Session,
    Stale,
}

/// Result of a load.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Measured {
    pub attempts: u64,
    pub failed: u64,
    /// Microseconds from the call to the acknowledgement, of each transaction.
    pub times: Histogram,
    /// Resources that the process used during the load.
    pub usage: Usage,
    /// Length of the load in seconds.
    pub seconds: f64,
}
