//! Requests that arrive from other nodes.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use openraft::error::{CheckIsLeaderError, RaftError};
use openraft::{BasicNode, ChangeMembers};
use tokio::sync::Mutex;

use crate::cluster::{Cluster, Inner};
use crate::error::Error;
use crate::identity::{ClusterId, FIND_OUT, LocalNode, name_cluster};
use crate::intake::Intake;
use crate::leadership::{while_leading, write_refusal};
use crate::message::{Answer, Header, MemberChange, NodeDescription, Refusal, Request, encode};
use crate::raft::{NodeId, Raft, Snapshot, Vote};
use crate::received::{self, IncomingSnapshot};
use crate::replica::Replica;
use crate::snapshot::{Chunk, SnapshotData, snapshot_meta};
use crate::version::check_understood;

/// Least index of reads in the term in which the node started.
///
/// A leader that restarts leads again without an election, and openraft does not know then which
/// entries were committed. All that this node committed are in its log, which it keeps while it
/// leads. In a later term, another leader may remove the end of that log.
#[derive(Clone, Copy, Debug)]
pub struct ReadFloor {
    pub(crate) term: u64,
    /// Index of the last entry in the log.
    pub(crate) index: u64,
}

/// Answers the requests of other nodes, and those of this node to itself.
pub struct Service {
    pub(crate) local: Arc<LocalNode>,
    pub(crate) raft: Raft,
    pub(crate) replica: Arc<Replica>,
    pub(crate) intake: Intake,
    pub(crate) read_floor: ReadFloor,
    /// The node, which holds this service.
    pub(crate) inner: Weak<Inner>,
    /// The snapshot transfer under way.
    pub(crate) incoming: Mutex<Option<(u64, IncomingSnapshot)>>,
    /// Held while a node is added, or the version of the cluster is raised.
    pub(crate) changing_members: Mutex<()>,
}

impl std::fmt::Debug for Service {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Service(node {} of {:?})", self.local.number, self.local.cluster)
    }
}

impl Service {
    /// Answers an encoded request.
    pub async fn handle(&self, message: Bytes) -> Bytes {
        encode(&self.answer(&message).await)
    }

    async fn answer(&self, message: &[u8]) -> Result<Answer, Refusal> {
        let damaged = |error| Refusal::Stranger(format!("a message cannot be decoded: {error}"));
        let (header, request) = postcard::take_from_bytes::<Header>(message).map_err(&damaged)?;
        self.check_header(&header)?;
        let request: Request = postcard::from_bytes(request).map_err(damaged)?;
        match header.to {
            // From nodes that are no members.
            Some(_) if matches!(request, Request::Describe | Request::Found { .. }) => {}
            Some(_) => self.check_id(header.id, request.admits()).await?,
            None if matches!(request, Request::Client { .. }) => {}
            None => return Err(Refusal::Stranger("the request names no node".to_owned())),
        }
        self.execute(request).await
    }

    /// Checks that a message is for this node, and that the node understands it.
    fn check_header(&self, header: &Header) -> Result<(), Refusal> {
        let Header { version, cluster, to, .. } = header;
        let LocalNode { cluster: own, number, .. } = &*self.local;
        if cluster != own {
            return Err(Refusal::OtherCluster(format!(
                "the request is for another cluster, {cluster:?}: this is node {number} of {own:?}; \
                 correct the address or the name of the cluster"
            )));
        }
        if to.is_some_and(|to| to != *number) {
            return Err(Refusal::Stranger(format!(
                "this is node {number} of {own:?}, and the request is for node {}",
                to.unwrap_or_default()
            )));
        }
        if !self.local.understands(*version) {
            return Err(Refusal::Version(format!(
                "node {number} of {own:?} understands {}, and the request has version {version}; use \
                 a program of another version",
                self.local.versions()
            )));
        }
        Ok(())
    }

    /// Checks that a message comes from a node of this cluster. A node that is no member learns the
    /// id of its cluster from the first message that admits it.
    async fn check_id(&self, id: Option<ClusterId>, admits: bool) -> Result<(), Refusal> {
        if id.is_some() && id == self.local.id() {
            return Ok(());
        }
        let failed = |error: &dyn std::fmt::Display| Refusal::Failed(error.to_string());
        let _changing = self.local.changing_id.lock().await;
        let is_member = self.raft.is_initialized().await.map_err(|error| failed(&error))?;
        match (id, self.local.id()) {
            (Some(id), Some(own)) if id == own => Ok(()),
            (Some(id), _) if admits && !is_member => {
                let set = self.local.set_id(&self.replica.storage, id).await;
                set.map_err(|error| failed(&error))
            }
            (id, own) => {
                let node = self.local.number;
                Err(Refusal::OtherCluster(format!(
                    "node {node} belongs to {}, and the sender to {}; {FIND_OUT}",
                    name_cluster(own),
                    name_cluster(id)
                )))
            }
        }
    }

    /// Describes this node.
    pub(crate) fn describe(&self, is_member: bool) -> NodeDescription {
        NodeDescription {
            oldest_version: *self.local.understood.start(),
            newest_version: *self.local.understood.end(),
            id: self.local.id().filter(|_| is_member),
        }
    }

    /// Executes a request.
    pub(crate) async fn execute(&self, request: Request) -> Result<Answer, Refusal> {
        let failed = |error: &dyn std::fmt::Display| Refusal::Failed(error.to_string());
        match request {
            Request::Append(request) => {
                let answer = self.raft.append_entries(request).await;
                Ok(Answer::Append(answer.map_err(|error| failed(&error))?))
            }
            Request::Vote(request) => {
                let answer = self.raft.vote(request).await;
                Ok(Answer::Vote(answer.map_err(|error| failed(&error))?))
            }
            Request::Chunk { transfer, number, chunk } => {
                self.receive(transfer, number, chunk).await
            }
            Request::Install { transfer, vote } => self.install(transfer, vote).await,
            Request::Submit(submissions) => {
                self.intake.append(submissions).await?;
                Ok(Answer::Done)
            }
            Request::ReadIndex => {
                // Asked for first: a read may be of an earlier term than one that is asked for later.
                let term = self.raft.metrics().borrow().current_term;
                let floor = (term <= self.read_floor.term).then_some(self.read_floor.index);
                let read = self.raft.get_read_log_id().await.map_err(|error| match error {
                    RaftError::APIError(CheckIsLeaderError::ForwardToLeader(_)) => {
                        Refusal::NotLeader
                    }
                    RaftError::APIError(CheckIsLeaderError::QuorumNotEnough(_)) => {
                        Refusal::NoQuorum
                    }
                    RaftError::Fatal(error) => failed(&error),
                })?;
                let committed = read.0.map_or(0, |log_id| log_id.index);
                Ok(Answer::ReadIndex(committed.max(floor.unwrap_or(0))))
            }
            Request::Describe => {
                let is_member = self.raft.is_initialized().await.map_err(|error| failed(&error))?;
                Ok(Answer::Node(self.describe(is_member)))
            }
            Request::Found { members, timeout } => {
                let founded = self.cluster()?.with_timeout(timeout).init(members).await;
                founded.map(|()| Answer::Done).map_err(|error| match error {
                    Error::OtherCluster(reason) => Refusal::OtherCluster(reason),
                    error => failed(&error),
                })
            }
            Request::RaiseVersion { id, version, timeout } => {
                self.cluster()?.inner.leader.raise_version(id, version, timeout).await
            }
            Request::Members(change) => self.change_members(change).await,
            Request::Transfer { node, timeout } => {
                self.cluster()?.inner.leader.transfer(node, timeout).await
            }
            Request::Elect { timeout } => self.cluster()?.inner.leader.become_leader(timeout).await,
            Request::Client { request, timeout } => {
                let cluster = self.cluster()?.with_timeout(timeout);
                // Boxed, because it may call this function.
                let answer = Box::pin(cluster.execute_for_client(request)).await;
                answer.map_err(|error| failed(&error))
            }
        }
    }

    fn cluster(&self) -> Result<Cluster, Refusal> {
        let inner = self.inner.upgrade();
        let inner = inner.ok_or_else(|| Refusal::Failed("the node stops".to_owned()))?;
        let timeout = inner.options.timeout;
        Ok(Cluster { inner, timeout })
    }

    async fn receive(&self, transfer: u64, number: u64, chunk: Chunk) -> Result<Answer, Refusal> {
        let failed = |error: braiddb::Error| Refusal::Failed(error.to_string());
        let mut incoming = self.incoming.lock().await;
        if number == 0 && incoming.as_ref().is_none_or(|(current, _)| *current != transfer) {
            // A transfer that its sender gave up makes room.
            *incoming = None;
            let begun = self.replica.receiving.begin(self.replica.storage.clone()).await;
            let begun = begun.map_err(failed)?;
            let busy = || Refusal::Busy("it installs another snapshot".to_owned());
            *incoming = Some((transfer, begun.ok_or_else(busy)?));
        }
        match &mut *incoming {
            // The answer to a chunk was lost, and it is sent again.
            Some((current, snapshot)) if *current == transfer && number < snapshot.chunks() => {
                Ok(Answer::Done)
            }
            Some((current, snapshot)) if *current == transfer && number == snapshot.chunks() => {
                snapshot.push(chunk).await.map_err(failed)?;
                Ok(Answer::Done)
            }
            _ => Err(Refusal::Busy("it receives another snapshot".to_owned())),
        }
    }

    async fn install(&self, transfer: u64, vote: Vote) -> Result<Answer, Refusal> {
        let incoming = self.incoming.lock().await.take_if(|(current, _)| *current == transfer);
        let complete = incoming.and_then(|(_, snapshot)| snapshot.complete());
        let Some(complete) = complete else {
            return Err(Refusal::Busy("it has not all chunks of the snapshot".to_owned()));
        };
        let failed = |error: &dyn std::fmt::Display| Refusal::Failed(error.to_string());
        let storage = &self.replica.storage;
        received::mark(storage, &complete).await.map_err(|error| failed(&error))?;
        let applied = complete.applied.clone();
        let meta = snapshot_meta(&applied);
        let snapshot = Snapshot { meta, snapshot: Box::new(SnapshotData::Received(complete)) };
        // After an error, the mark stays for the next start.
        let answer = self.raft.install_full_snapshot(vote, snapshot).await;
        let answer = answer.map_err(|error| failed(&error))?;
        received::unmark(storage, &applied).await.map_err(|error| failed(&error))?;
        Ok(Answer::Install(answer))
    }

    async fn change_members(&self, change: MemberChange) -> Result<Answer, Refusal> {
        let change = match change {
            MemberChange::Add { node, address, timeout } => {
                let _raising = self.changing_members.lock().await;
                let leader = self.cluster()?.inner.leader.clone();
                let understood = leader.check_new_node(node, &address).await?;
                self.add_learner(node, address, understood, timeout).await?;
                ChangeMembers::AddVoterIds(BTreeSet::from([node]))
            }
            MemberChange::Remove { node } => ChangeMembers::RemoveVoters(BTreeSet::from([node])),
        };
        self.change_configuration(change).await?;
        Ok(Answer::Done)
    }

    async fn change_configuration(
        &self,
        change: ChangeMembers<NodeId, BasicNode>,
    ) -> Result<(), Refusal> {
        let changed =
            async { self.raft.change_membership(change, false).await.map_err(write_refusal) };
        while_leading(&self.raft, changed).await.map(drop)
    }

    /// Adds a node without a vote, and waits until it has the log. A voter that cannot be reached
    /// would count for majorities.
    pub(crate) async fn add_learner(
        &self,
        node: NodeId,
        address: String,
        understood: RangeInclusive<u32>,
        timeout: Duration,
    ) -> Result<(), Refusal> {
        let copied = async {
            let learner = self.raft.add_learner(node, BasicNode::new(address), false).await;
            let needed = learner.map_err(write_refusal)?.log_id;
            // Another leader may have raised the version before this entry, and did not ask the node.
            // An entry that raises it later needs the answer of this member.
            check_understood(node, &understood, self.replica.version())?;
            let mut metrics = self.raft.metrics();
            let has_log = metrics.wait_for(|metrics| {
                let replication = metrics.replication.as_ref();
                let matching = replication.and_then(|nodes| *nodes.get(&node)?);
                matching.is_some_and(|log_id| log_id.index >= needed.index)
            });
            let in_time = tokio::time::timeout(timeout, has_log).await;
            Ok(matches!(in_time, Ok(Ok(_))))
        };
        let refusal = match while_leading(&self.raft, copied).await {
            Ok(true) => return Ok(()),
            Ok(false) => {
                let late = format!("node {node} did not copy the contents within {timeout:?}");
                Refusal::Failed(late)
            }
            Err(refusal @ Refusal::Version(_)) => refusal,
            Err(refusal) => return Err(refusal),
        };
        self.change_configuration(ChangeMembers::RemoveNodes(BTreeSet::from([node]))).await?;
        Err(refusal)
    }
}
