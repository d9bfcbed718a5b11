//! Transfer of leadership.
//!
//! openraft 0.9 has no request for it, but every voter may begin an election. It wins if its log
//! is complete and a majority votes for it. So the leader begins no entries until the target has
//! all of them, and then asks the target to begin an election.
//!
//! The first election only ends the old leader's role: voters refuse a candidate until they have
//! heard nothing from their leader for an election timeout. The leader itself steps down as soon as
//! an answer of the target shows the higher term. So the target begins elections until it has won
//! one. With three nodes the second one usually suffices: the target and the old leader are a
//! majority. All rules of Raft hold at each step; a transfer that fails leaves an election.

use std::time::Duration;

use crate::cluster::Cluster;
use crate::error::{Error, Result};
use crate::leader::Leader;
use crate::message::{Answer, Refusal, Request};
use crate::raft::{LogId, NodeId};

impl Cluster {
    /// Lets another voter become the leader, for example before the leader is stopped. Writes wait
    /// until it has taken over.
    ///
    /// # Errors
    /// [`Error::NoQuorum`]; [`Error::Refused`] with the reason, for example that the node does not
    /// answer. Then any node may be the leader.
    pub async fn transfer_leadership(&self, node: NodeId) -> Result<()> {
        let leader = self.inner.leader.wait_known(self.timeout).await;
        let leader = leader.ok_or_else(|| self.no_leader())?;
        // The leader gives up before this call does.
        let request = Request::Transfer { node, timeout: self.timeout.mul_f64(0.8) };
        let answer = self.inner.leader.call(leader, request, self.timeout).await;
        answer.map_err(|error| Error::Refused(error.to_string()))?;
        let mut metrics = self.inner.raft.metrics();
        let known = metrics.wait_for(|metrics| metrics.current_leader == Some(node));
        // The node leads, and this one learns it with the next heartbeat.
        _ = tokio::time::timeout(self.timeout, known).await;
        Ok(())
    }
}

impl Leader {
    /// Lets a voter take over the leadership of this node.
    pub async fn transfer(&self, node: NodeId, timeout: Duration) -> Result<Answer, Refusal> {
        let metrics = self.raft.metrics().borrow().clone();
        let members = metrics.membership_config.membership();
        if metrics.current_leader != Some(self.peers.node) {
            return Err(Refusal::NotLeader);
        }
        if node == self.peers.node {
            return Ok(Answer::Done);
        }
        let Some(target) =
            members.get_node(&node).filter(|_| members.voter_ids().any(|voter| voter == node))
        else {
            return Err(Refusal::Failed(format!("node {node} is not a voter of the cluster")));
        };
        let late = |_| {
            Refusal::Failed(format!("node {node} did not become the leader within {timeout:?}"))
        };
        tokio::time::timeout(timeout, self.hand_over(node, &target.addr, timeout))
            .await
            .map_err(late)?
    }

    async fn hand_over(
        &self,
        node: NodeId,
        address: &str,
        timeout: Duration,
    ) -> Result<Answer, Refusal> {
        let _paused = self.service.intake.pause().await;
        let committed = self.raft.with_raft_state(|state| state.committed).await;
        let committed = committed.map_err(|error| Refusal::Failed(error.to_string()))?;
        let index = |log_id: Option<LogId>| log_id.map_or(0, |log_id| log_id.index);
        let mut metrics = self.raft.metrics();
        let has_all = metrics.wait_for(|metrics| {
            let replication = metrics.replication.as_ref();
            let matching = replication.and_then(|nodes| *nodes.get(&node)?);
            let last = metrics.last_log_index.unwrap_or(0).max(index(committed));
            replication.is_none() || index(matching) >= last
        });
        let stopped = |_| Refusal::Failed("the node stops".to_owned());
        if has_all.await.map_err(stopped)?.replication.is_none() {
            return Err(Refusal::NotLeader);
        }
        let elected = self.peers.call(node, address, Request::Elect { timeout }, timeout).await;
        elected.map_err(|error| Refusal::Failed(error.to_string()))
    }

    /// Begins elections until this node leads.
    pub async fn become_leader(&self, timeout: Duration) -> Result<Answer, Refusal> {
        let node = self.peers.node;
        let mut metrics = self.raft.metrics();
        let elections = async {
            // Votes of an election that are under way when the next begins are lost, so the pauses
            // grow.
            let mut pause = self.retry_pause;
            loop {
                let begun = self.raft.trigger().elect().await;
                begun.map_err(|error| Refusal::Failed(error.to_string()))?;
                let leads = metrics.wait_for(|metrics| metrics.current_leader == Some(node));
                if let Ok(Ok(_)) = tokio::time::timeout(pause, leads).await {
                    return Ok(Answer::Done);
                }
                pause = pause.mul_f64(1.5);
            }
        };
        let late = |_| Refusal::Failed(format!("node {node} won no election within {timeout:?}"));
        tokio::time::timeout(timeout, elections).await.map_err(late)?
    }
}
