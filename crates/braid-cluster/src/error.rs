//! Errors of a cluster.

use std::time::Duration;

use crate::command::SubmissionId;
use crate::index::not_attached;
use crate::raft::NodeId;

/// A failed call. Only [`Error::CommitUnknown`] leaves open whether something was written; after
/// every other error nothing was.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No leader that reaches a majority answered before the deadline.
    ///
    /// Written: nothing. Remedy: call again when a majority of the nodes is connected.
    #[error("no majority of the nodes answered within {0:?}; call again when they are connected")]
    NoQuorum(Duration),
    /// The closure did not end before the deadline.
    ///
    /// Written: nothing. Remedy: do less in the closure, or raise the deadline.
    #[error("the call did not end within {0:?}; do less in it, or raise the deadline")]
    Timeout(Duration),
    /// The node is not a member of the cluster.
    ///
    /// Written: nothing. Remedy: add the node, or initialize the cluster.
    #[error("node {0} is not a member of a cluster; initialize the cluster or add the node to it")]
    NotMember(NodeId),
    /// The deadline passed after the transaction was sent and before its result was known.
    ///
    /// Written: the whole transaction, or nothing of it, possibly later. Remedy: read what it
    /// would have written, with [`Consistency::Linearizable`](crate::Consistency), before running
    /// it again.
    #[error(
        "the result of the transaction {id} was not known within {timeout:?}: it may commit or \
         not; read what it writes before running it again"
    )]
    CommitUnknown {
        /// Identity of the transaction, for logs.
        id: SubmissionId,
        /// The deadline.
        timeout: Duration,
    },
    /// The node has as many requests as its queue allows.
    ///
    /// Written: nothing. Remedy: call again later.
    #[error("the node has {0} requests in its queue, which is the limit; call again later")]
    Overloaded(usize),
    /// The transaction conflicted with others until the deadline.
    ///
    /// Written: nothing. Remedy: run it again later, or read and write less in it.
    #[error(
        "the transaction gave up after {attempts} attempts that conflicted; run it again later"
    )]
    Conflict {
        /// Number of attempts that failed.
        attempts: u32,
    },
    /// A transaction writes more than a log entry may hold.
    ///
    /// Written: nothing. Remedy: write less in each transaction.
    #[error("the transaction reads and writes {bytes} bytes, of {limit} at most; do less in it")]
    TooLarge {
        /// Encoded size of what it read and wrote.
        bytes: usize,
        /// Limit.
        limit: usize,
    },
    /// This node has not attached an index of a table that the transaction writes, or does not have
    /// all of its entries yet.
    ///
    /// Written: nothing. Remedy: call [`Cluster::index`](crate::Cluster::index) with the function of
    /// the index on each node after it starts, or drop the index.
    #[error(
        "this node has not attached the index {index:?} of table {table:?}, or still builds it, so it \
         cannot write the table; call Cluster::index with its key function, or Cluster::drop_index"
    )]
    IndexNotAttached {
        /// Name of the table.
        table: String,
        /// Name of the index.
        index: String,
    },
    /// The change does not fit the cluster's tables.
    ///
    /// Written: nothing. Remedy: correct the call.
    #[error("the cluster refuses the change: {0}")]
    Refused(String),
    /// A node belongs to another cluster, of another name or another id.
    ///
    /// Written: nothing. Remedy: correct the address or the name. Otherwise find out which of the two
    /// clusters has the data before the database of a node is replaced.
    #[error("a node belongs to another cluster: {0}")]
    OtherCluster(String),
    /// The member with the lowest number, which makes a new cluster, did not answer.
    ///
    /// Written: nothing, unless that node received the request. Remedy: start it, and call again.
    #[error(
        "node {node}, which makes the cluster, does not answer: {reason}; start it, and call again"
    )]
    NoFounder {
        /// The member with the lowest number.
        node: NodeId,
        /// The reason.
        reason: String,
    },
    /// A node does not understand a version of the protocol that the cluster uses or needs.
    ///
    /// Written: nothing. Remedy: upgrade the node.
    #[error("a version of the protocol is not understood: {0}")]
    Version(String),
    /// The node has an entry of the log, or of the certification window, that its program cannot
    /// decode. It applies nothing from there on, because it would differ from the other nodes.
    ///
    /// Written: nothing. Remedy: start the node with the program of the other nodes. If it runs that
    /// already, its database is damaged: remove the node, and add it with an empty database and a new
    /// number.
    #[error(
        "entry {index} of the log cannot be decoded: {reason}; start the node with the program of \
         the other nodes, or, if it runs that, add it again with an empty database and a new number"
    )]
    Undecodable {
        /// Index of the entry.
        index: u64,
        /// Reason, for people.
        reason: String,
    },
    /// The node stopped, because it was shut down or its database failed.
    ///
    /// Written: nothing. Remedy: start the node again, or call another one.
    #[error("the node has stopped: {0}")]
    Stopped(String),
    /// The options contradict each other or the database.
    ///
    /// Written: nothing. Remedy: correct the options.
    #[error("the cluster cannot be opened: {0}")]
    Options(String),
    /// The local database failed, or the closure returned an error of it.
    ///
    /// Written: nothing. Remedy: see [`braiddb::Error`].
    #[error(transparent)]
    Database(braiddb::Error),
}

impl From<braiddb::Error> for Error {
    fn from(error: braiddb::Error) -> Self {
        not_attached(&error).unwrap_or(Self::Database(error))
    }
}

/// A result whose error is [`enum@Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;
