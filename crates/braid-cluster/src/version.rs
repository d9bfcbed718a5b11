//! The version of the protocol that all members use. The leader raises it when it is needed and
//! all members understand it, so nodes of one version apart work together.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use bytes::Bytes;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::cluster::Cluster;
use crate::command::{Action, Submission, SubmissionId};
use crate::error::Result;
use crate::identity::{ClusterId, FIND_OUT, name_cluster};
use crate::leader::Leader;
use crate::message::{Answer, NodeDescription, Refusal, Request};
use crate::network::{CallFailure, Peers};
use crate::raft::{LogId, NodeId};
use crate::storage::encode;

/// Time in which a node must describe itself.
const DESCRIBE_TIMEOUT: Duration = Duration::from_secs(2);
/// Time without an answer after which the leader is asked again to raise the version. It suffices
/// for the descriptions of all nodes.
const RAISE_TIMEOUT: Duration = Duration::from_secs(4);

impl Cluster {
    /// Returns when the cluster uses at least this version.
    ///
    /// # Errors
    /// [`Error::Version`](crate::Error) if a member does not understand it.
    pub(crate) async fn require_version(&self, version: u32, deadline: Instant) -> Result<()> {
        if self.inner.replica.version() >= version {
            return Ok(());
        }
        let (id, leader) = (self.new_id(), &self.inner.leader);
        loop {
            let left = || deadline.saturating_duration_since(Instant::now());
            let known = leader.wait_known(left()).await.ok_or_else(|| self.no_leader())?;
            // Another node may lead before an answer comes.
            let limit = left().min(RAISE_TIMEOUT);
            // The leader gives up before this call does.
            let request = Request::RaiseVersion { id, version, timeout: limit.mul_f64(0.8) };
            match leader.call(known, request, limit).await {
                Ok(_) => return Ok(()),
                Err(CallFailure::NoAnswer(_) | CallFailure::Refused(Refusal::NotLeader))
                    if !left().is_zero() =>
                {
                    // At most until the deadline.
                    _ = tokio::time::timeout(left(), leader.pause()).await;
                }
                Err(CallFailure::Refused(Refusal::NotLeader)) => return Err(self.no_leader()),
                Err(failure) => return Err(failure.into_error()),
            }
        }
    }
}

impl Leader {
    /// Appends an entry from which on the cluster uses a version, if all members understand it.
    /// After `timeout` it appends nothing.
    pub async fn raise_version(
        &self,
        id: SubmissionId,
        version: u32,
        timeout: Duration,
    ) -> Result<Answer, Refusal> {
        let deadline = Instant::now() + timeout;
        let late = |_| {
            Refusal::Failed(format!(
                "the leader could not raise the version of the cluster within {timeout:?}, because \
                 it adds a node, or a node does not answer; call again"
            ))
        };
        loop {
            // This leader adds no node in between that does not understand it.
            let begun = async {
                let adding = self.service.changing_members.lock().await;
                self.check_members(version).await.map(|members| (adding, members))
            };
            let begun = tokio::time::timeout_at(deadline, begun).await;
            let (_adding, members) = begun.map_err(late)??;
            let submission = Submission { id, action: Action::SetVersion { version, members } };
            self.service.intake.append(vec![Bytes::from(encode(&submission))]).await?;
            // Otherwise another leader, or a removal, has changed the members.
            if self.service.replica.version() >= version {
                return Ok(Answer::Done);
            }
        }
    }

    /// Checks that all members understand a version. Returns the log id of their configuration.
    async fn check_members(&self, version: u32) -> Result<Option<LogId>, Refusal> {
        let (log_id, members) = {
            let metrics = self.raft.metrics().borrow().clone();
            if metrics.current_leader != Some(self.peers.local.number) {
                return Err(Refusal::NotLeader);
            }
            let members = metrics.membership_config.membership().nodes();
            let members = members.map(|(node, at)| (*node, at.addr.clone())).collect();
            (*metrics.membership_config.log_id(), members)
        };
        let described = describe_all(&self.peers, members).await;
        let own = (self.peers.local.number, Ok(self.service.describe(true)));
        for (node, description) in described.into_iter().chain([own]) {
            let description = description.map_err(|error| {
                Refusal::Version(format!(
                    "the cluster needs version {version}, and node {node} cannot be asked whether it \
                     understands it: {error}; start the node or remove it"
                ))
            })?;
            if description.newest_version < version {
                return Err(Refusal::Version(format!(
                    "the cluster needs version {version}, and node {node} understands versions up to \
                     {}; upgrade the node",
                    description.newest_version
                )));
            }
        }
        Ok(log_id)
    }

    /// Checks that a node may be added: it understands the version of the cluster, and belongs to no
    /// other one. Returns the versions that it understands.
    pub async fn check_new_node(
        &self,
        node: NodeId,
        address: &str,
    ) -> Result<RangeInclusive<u32>, Refusal> {
        let asked = describe(&self.peers, node, address).await.map_err(|error| match error {
            CallFailure::Refused(refusal) => refusal,
            error @ CallFailure::NoAnswer(_) => Refusal::Failed(error.to_string()),
        });
        let NodeDescription { newest_version, oldest_version, id } = asked?;
        let understood = oldest_version..=newest_version;
        check_understood(node, &understood, self.service.replica.version())?;
        match id {
            Some(id) if Some(id) != self.peers.local.id() => {
                Err(other_member(node, id, self.peers.local.id()))
            }
            _ => Ok(understood),
        }
    }
}

/// Checks that a node which is added understands the version of the cluster.
pub fn check_understood(
    node: NodeId,
    understood: &RangeInclusive<u32>,
    version: u32,
) -> Result<(), Refusal> {
    if understood.contains(&version) {
        return Ok(());
    }
    Err(Refusal::Version(format!(
        "node {node} understands versions {} to {}, and the cluster uses version {version}; start \
         the node with another program",
        understood.start(),
        understood.end()
    )))
}

/// The refusal of a node that is a member of another cluster.
pub fn other_member(node: NodeId, id: ClusterId, own: Option<ClusterId>) -> Refusal {
    let (theirs, own) = (name_cluster(Some(id)), name_cluster(own));
    Refusal::OtherCluster(format!(
        "node {node} is a member of {theirs}, and this node of {own}; {FIND_OUT}"
    ))
}

/// Asks nodes, except this one, for their descriptions, all at the same time.
pub async fn describe_all(
    peers: &Peers,
    nodes: BTreeMap<NodeId, String>,
) -> Vec<(NodeId, Result<NodeDescription, CallFailure>)> {
    let mut asked = JoinSet::new();
    for (node, address) in nodes {
        if node != peers.local.number {
            let peers = peers.clone();
            asked.spawn(async move { (node, describe(&peers, node, &address).await) });
        }
    }
    asked.join_all().await
}

async fn describe(
    peers: &Peers,
    node: NodeId,
    address: &str,
) -> Result<NodeDescription, CallFailure> {
    match peers.call(node, address, Request::Describe, DESCRIBE_TIMEOUT).await? {
        Answer::Node(description) => Ok(description),
        _ => Err(Refusal::Failed("the node answered another request".to_owned()).into()),
    }
}
