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

use std::future::pending;
use std::time::Duration;

use openraft::error::Fatal;
use tokio::time::Instant;

use crate::cluster::Cluster;
use crate::error::Result;
use crate::leader::Leader;
use crate::message::{Answer, Refusal, Request};
use crate::network::CallFailure;
use crate::raft::{LogId, NodeId};

/// Writes wait for the transfer only while the target lacks at most this many entries.
const MAX_LACKING: u64 = 64;
/// Longest time that writes wait for a transfer, in heartbeats.
const MAX_PAUSE: u32 = 20;

impl Cluster {
    /// Lets another voter become the leader, for example before the leader is stopped. Writes wait
    /// until it has taken over, at most for 20 heartbeats.
    ///
    /// # Errors
    /// [`Error::NoQuorum`](crate::Error); [`Error::Refused`](crate::Error) with the reason, for
    /// example that the node does not answer. Then any node may be the leader, and the call can be repeated.
    pub async fn transfer_leadership(&self, node: NodeId) -> Result<()> {
        let begun = Instant::now();
        let left = || self.timeout.saturating_sub(begun.elapsed());
        let leader = self.inner.leader.wait_known(left()).await;
        let leader = leader.ok_or_else(|| self.no_leader())?;
        // The leader gives up before this call does.
        let request = Request::Transfer { node, timeout: left().mul_f64(0.8) };
        let answer = self.inner.leader.call(leader, request, left()).await;
        answer.map_err(CallFailure::into_error)?;
        let mut metrics = self.inner.raft.metrics();
        let known = metrics.wait_for(|metrics| metrics.current_leader == Some(node));
        // The node leads, and this one learns it with the next heartbeat.
        _ = tokio::time::timeout(left(), known).await;
        Ok(())
    }
}

impl Leader {
    /// Lets a voter take over the leadership of this node.
    pub async fn transfer(&self, node: NodeId, timeout: Duration) -> Result<Answer, Refusal> {
        let metrics = self.raft.metrics().borrow().clone();
        let members = metrics.membership_config.membership();
        if metrics.current_leader != Some(self.peers.local.number) {
            return Err(Refusal::NotLeader);
        }
        if node == self.peers.local.number {
            return Ok(Answer::Done);
        }
        let Some(target) =
            members.get_node(&node).filter(|_| members.voter_ids().any(|voter| voter == node))
        else {
            return Err(Refusal::Failed(format!("node {node} is not a voter of the cluster")));
        };
        let begun = Instant::now();
        let copied = tokio::time::timeout(timeout, self.wait_for_log(node, MAX_LACKING)).await;
        let slow = |_| {
            let lacks = format!("more than {MAX_LACKING} entries after {timeout:?}");
            Refusal::Failed(format!("node {node} does not answer, or lacks {lacks}"))
        };
        copied.map_err(slow)??;
        let limit =
            self.retry_pause.saturating_mul(MAX_PAUSE).min(timeout.saturating_sub(begun.elapsed()));
        let late =
            |_| Refusal::Failed(format!("node {node} did not become the leader within {limit:?}"));
        let handed_over = self.hand_over(node, &target.addr, limit);
        tokio::time::timeout(limit, handed_over).await.map_err(late)?
    }

    async fn hand_over(
        &self,
        node: NodeId,
        address: &str,
        limit: Duration,
    ) -> Result<Answer, Refusal> {
        let begun = Instant::now();
        let paused = self.service.intake.pause().await;
        self.wait_for_log(node, 0).await?;
        let timeout = limit.saturating_sub(begun.elapsed());
        let elected = self.peers.call(node, address, Request::Elect { timeout }, timeout);
        let mut metrics = self.raft.metrics();
        let stepped_down = async {
            // It fails if the node stops.
            _ = metrics
                .wait_for(|metrics| metrics.current_leader != Some(self.peers.local.number))
                .await;
            // Writes go to another node, or to this one if it is elected again.
            drop(paused);
            pending().await
        };
        tokio::select! {
            elected = elected => elected.map_err(|error| Refusal::Failed(error.to_string())),
            never = stepped_down => never,
        }
    }

    /// Waits until a node lacks at most this many entries of this leader's log.
    async fn wait_for_log(&self, node: NodeId, lacking: u64) -> Result<(), Refusal> {
        let committed = self.raft.with_raft_state(|state| state.committed).await;
        let committed = committed.map_err(|error| Refusal::Failed(error.to_string()))?;
        let index = |log_id: Option<LogId>| log_id.map_or(0, |log_id| log_id.index);
        let mut metrics = self.raft.metrics();
        let has_log = metrics.wait_for(|metrics| {
            let replication = metrics.replication.as_ref();
            let matching = replication.and_then(|nodes| *nodes.get(&node)?);
            let last = metrics.last_log_index.unwrap_or(0).max(index(committed));
            replication.is_none() || index(matching) + lacking >= last
        });
        let stopped = |_| Refusal::Failed("the node stops".to_owned());
        let leads = has_log.await.map_err(stopped)?.replication.is_some();
        if leads { Ok(()) } else { Err(Refusal::NotLeader) }
    }

    /// Begins elections until this node leads. Another node that is elected after them stays the
    /// leader.
    pub async fn become_leader(&self, timeout: Duration) -> Result<Answer, Refusal> {
        let node = self.peers.local.number;
        let mut metrics = self.raft.metrics();
        let elections = async {
            // Votes of an election that are under way when the next begins are lost, so the pauses
            // grow.
            let mut pause = self.retry_pause;
            loop {
                let failed = |error: Fatal<NodeId>| Refusal::Failed(error.to_string());
                self.raft.trigger().elect().await.map_err(failed)?;
                let vote = self.raft.with_raft_state(|state| *state.vote_ref()).await;
                let vote = vote.map_err(failed)?;
                let decided = metrics.wait_for(|metrics| {
                    let leader = metrics.current_leader;
                    leader == Some(node) || leader.is_some() && metrics.vote > vote
                });
                if let Ok(Ok(metrics)) = tokio::time::timeout(pause, decided).await {
                    return match metrics.current_leader {
                        Some(leader) if leader != node => {
                            Err(Refusal::Failed(format!("node {leader} was elected instead")))
                        }
                        _ => Ok(Answer::Done),
                    };
                }
                pause = pause.mul_f64(1.5);
            }
        };
        let late = |_| Refusal::Failed(format!("node {node} won no election within {timeout:?}"));
        tokio::time::timeout(timeout, elections).await.map_err(late)?
    }
}
