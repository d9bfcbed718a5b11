//! Braid on several machines: three to seven nodes, each an ordinary Braid database inside a
//! service, kept identical by Raft.
//!
//! Every node executes the closures of [`Cluster::run`] and [`Cluster::read`]. A transaction is
//! certified in the order of the Raft log on all nodes, so it is strictly serializable across them.
//! `docs/cluster.md` in the repository describes the guarantees, the protocol, and the limits.
//!
//! ```
//! use std::collections::BTreeMap;
//!
//! use braid_cluster::{Cluster, ClusterOptions, Consistency, MemoryNetwork};
//! use braiddb::{Database, Options, Table, Transaction};
//!
//! #[tokio::main]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let directory = tempfile::tempdir()?;
//!     let db = Database::open(directory.path(), Options::default().workers(1))?;
//!     // Nodes on machines use `GrpcTransport`.
//!     let transport = MemoryNetwork::default().transport("first");
//!     let cluster = Cluster::start(db, ClusterOptions::new("bank", 1), transport).await?;
//!     cluster.init(BTreeMap::from([(1, "first".to_owned())])).await?;
//!
//!     let accounts: Table<str, u64> = cluster.open_or_create_table("accounts").await?;
//!     let table = accounts.clone();
//!     let put = async move |tx: &Transaction| tx.put(&table, "Ada", &500).await;
//!     let outcome = cluster.run(put).await?;
//!     let read = async move |tx: &Transaction| tx.get(&accounts, "Ada").await;
//!     assert_eq!(cluster.read(Consistency::Session(outcome.token), read).await?, Some(500));
//!     cluster.shutdown().await;
//!     Ok(())
//! }
//! ```

#[cfg(doctest)]
#[doc = include_str!("../../../docs/cluster.md")]
struct ProgramsOfTheReference;

mod applier;
mod catalog;
mod client;
mod cluster;
mod command;
mod counters;
mod error;
mod grpc;
mod identity;
mod index;
mod intake;
mod leader;
mod leadership;
mod local_indexes;
mod log_store;
mod memory;
mod message;
#[cfg(feature = "metrics")]
mod metrics;
mod network;
mod options;
mod proposer;
mod raft;
mod read;
mod read_index;
mod received;
mod recover;
mod replica;
mod run;
mod service;
mod snapshot;
mod staged;
mod state_machine;
mod status;
mod storage;
mod submit;
mod transfer;
mod transport;
mod version;

#[cfg(test)]
mod agreement_tests;
#[cfg(test)]
mod index_tests;
#[cfg(test)]
mod leadership_tests;
#[cfg(test)]
mod machine_tests;
#[cfg(test)]
mod node_tests;
#[cfg(test)]
mod staged_tests;
#[cfg(test)]
mod storage_tests;

pub use client::{Client, ClientError};
pub use cluster::Cluster;
pub use command::SubmissionId;
pub use counters::AppliedCounts;
pub use error::{Error, Result};
pub use grpc::{GrpcTransport, Security, TlsFiles};
pub use memory::MemoryNetwork;
pub use options::ClusterOptions;
pub use raft::NodeId;
pub use read::{Consistency, Token};
pub use run::Outcome;
pub use service::Service;
pub use staged::StagedTable;
pub use status::{Role, Status};
pub use transport::{CallError, CallFuture, Transport};
