//! openraft's network: its requests as messages of a [`Transport`].

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use openraft::error::{
    Fatal, NetworkError, RPCError, RaftError, ReplicationClosed, StreamingError, Unreachable,
};
use openraft::network::{Backoff, RPCOption, RaftNetwork, RaftNetworkFactory};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, VoteRequest, VoteResponse,
};
use openraft::{BasicNode, OptionalSend};

use crate::counters::count;
use crate::error::Error;
use crate::identity::LocalNode;
use crate::message::{Answer, Envelope, Header, Refusal, Request, encode};
use crate::raft::{NodeId, Snapshot, TypeConfig, Vote, storage_error};
use crate::replica::Replica;
use crate::snapshot::{SnapshotData, SnapshotReader};
use crate::transport::{CallError, Transport};

/// A chunk of a snapshot is sent again after this time without an answer.
const CHUNK_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest installation of a snapshot. After it the leader sends another one.
const INSTALL_TIMEOUT: Duration = Duration::from_secs(3600);

/// Sends messages of a node to others.
#[derive(Clone)]
pub struct Peers {
    pub local: Arc<LocalNode>,
    pub replica: Arc<Replica>,
    pub transport: Arc<dyn Transport>,
}

/// A request without a usable answer.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CallFailure {
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error(transparent)]
    NoAnswer(#[from] CallError),
}

impl CallFailure {
    /// Returns the error of a request that nodes refused.
    pub fn into_error(self) -> Error {
        match self {
            Self::Refused(Refusal::OtherCluster(reason)) => Error::OtherCluster(reason),
            Self::Refused(Refusal::Version(reason)) => Error::Version(reason),
            failure => Error::Refused(failure.to_string()),
        }
    }
}

impl Peers {
    /// Sends a request to a node.
    pub async fn call(
        &self,
        to: NodeId,
        address: &str,
        request: Request,
        timeout: Duration,
    ) -> Result<Answer, CallFailure> {
        let header = Header {
            version: self.replica.version(),
            cluster: self.local.cluster.clone(),
            id: self.local.id(),
            to: Some(to),
        };
        let envelope = Envelope { header, request };
        call(&*self.transport, address, &envelope, timeout).await
    }
}

/// Sends a request to an address.
pub async fn call(
    transport: &dyn Transport,
    address: &str,
    envelope: &Envelope,
    timeout: Duration,
) -> Result<Answer, CallFailure> {
    let answer = transport.call(address, encode(envelope), timeout).await?;
    let answer: Result<Answer, Refusal> =
        postcard::from_bytes(&answer).map_err(|error| CallError {
            address: address.to_owned(),
            reason: format!("its answer cannot be decoded: {error}"),
        })?;
    Ok(answer?)
}

impl RaftNetworkFactory<TypeConfig> for Peers {
    type Network = Peer;

    async fn new_client(&mut self, target: NodeId, node: &BasicNode) -> Peer {
        Peer { peers: self.clone(), target, address: node.addr.clone() }
    }
}

/// Connection of openraft to one node.
pub struct Peer {
    peers: Peers,
    target: NodeId,
    address: String,
}

/// An answer of another kind than the request asks for.
#[derive(Debug, thiserror::Error)]
#[error("node {0} answered another request")]
struct WrongAnswer(NodeId);

impl Peer {
    async fn call(&self, request: Request, timeout: Duration) -> Result<Answer, CallFailure> {
        self.peers.call(self.target, &self.address, request, timeout).await
    }

    /// Sends all chunks of a snapshot, and asks the node to install it.
    async fn send_snapshot(
        &self,
        vote: Vote,
        snapshot: Snapshot,
    ) -> Result<SnapshotResponse<NodeId>, StreamingError<TypeConfig, Fatal<NodeId>>> {
        let SnapshotData::Live(storage) = *snapshot.snapshot else {
            // Nodes store no snapshot of other nodes, so openraft never sends one.
            return Err(StreamingError::Unreachable(Unreachable::new(&WrongAnswer(self.target))));
        };
        let reader = SnapshotReader::begin(&storage).await;
        let mut reader = reader.map_err(|error| match error {
            // A table is being dropped or renamed: the snapshot is sent again.
            braiddb::Error::TableNotFound(_) => Unreachable::new(&error).into(),
            error => StreamingError::from(storage_error(error)),
        })?;
        let (transfer, mut number) = (fastrand::u64(..), 0);
        while let Some(chunk) = reader.next().await.map_err(storage_error)? {
            let request = Request::Chunk { transfer, number, chunk };
            self.call(request, CHUNK_TIMEOUT).await.map_err(|error| Unreachable::new(&error))?;
            number += 1;
        }
        let answer = self.call(Request::Install { transfer, vote }, INSTALL_TIMEOUT).await;
        match answer.map_err(|error| Unreachable::new(&error))? {
            Answer::Install(response) => {
                count(&self.peers.replica.counters.snapshots_sent);
                Ok(response)
            }
            _ => Err(StreamingError::Network(NetworkError::new(&WrongAnswer(self.target)))),
        }
    }
}

type RaftCallError = RPCError<NodeId, BasicNode, RaftError<NodeId>>;

fn call_error(error: CallFailure) -> RaftCallError {
    RPCError::Unreachable(Unreachable::new(&error))
}

impl RaftNetwork<TypeConfig> for Peer {
    async fn append_entries(
        &mut self,
        rpc: AppendEntriesRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<AppendEntriesResponse<NodeId>, RaftCallError> {
        let answer = self.call(Request::Append(rpc), option.hard_ttl()).await;
        match answer.map_err(call_error)? {
            Answer::Append(response) => Ok(response),
            _ => Err(NetworkError::new(&WrongAnswer(self.target)).into()),
        }
    }

    async fn vote(
        &mut self,
        rpc: VoteRequest<NodeId>,
        option: RPCOption,
    ) -> Result<VoteResponse<NodeId>, RaftCallError> {
        let answer = self.call(Request::Vote(rpc), option.hard_ttl()).await;
        match answer.map_err(call_error)? {
            Answer::Vote(response) => Ok(response),
            _ => Err(NetworkError::new(&WrongAnswer(self.target)).into()),
        }
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: Snapshot,
        cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        _option: RPCOption,
    ) -> Result<SnapshotResponse<NodeId>, StreamingError<TypeConfig, Fatal<NodeId>>> {
        tokio::select! {
            closed = cancel => Err(StreamingError::Closed(closed)),
            sent = self.send_snapshot(vote, snapshot) => sent,
        }
    }

    fn backoff(&self) -> Backoff {
        Backoff::new(std::iter::repeat(Duration::from_millis(100)))
    }
}
