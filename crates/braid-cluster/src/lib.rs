//! Braid on several machines: three to seven nodes, each an ordinary Braid database inside a
//! service, kept identical by Raft.

mod applier;
mod cluster;
mod command;
mod error;
mod grpc;
mod intake;
mod leader;
mod log_store;
mod memory;
mod message;
mod network;
mod options;
mod proposer;
mod raft;
mod read;
mod read_index;
mod received;
mod replica;
mod run;
mod service;
mod snapshot;
mod state_machine;
mod status;
mod storage;
mod submit;
mod transport;

#[cfg(test)]
mod machine_tests;
#[cfg(test)]
mod storage_tests;

pub use cluster::Cluster;
pub use command::SubmissionId;
pub use error::{Error, Result};
pub use grpc::{GrpcTransport, Security, TlsFiles};
pub use memory::MemoryNetwork;
pub use options::ClusterOptions;
pub use raft::NodeId;
pub use read::{Consistency, Token};
pub use run::Outcome;
pub use service::Service;
pub use status::Status;
pub use transport::{CallError, CallFuture, Transport};
