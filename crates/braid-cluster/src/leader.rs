//! Calls of the leader, whichever node it is.

use std::sync::Arc;
use std::time::Duration;

use crate::message::{Answer, Request};
use crate::network::{CallFailure, Peers};
use crate::raft::{NodeId, Raft};
use crate::service::Service;

/// Knows the current leader, and calls it.
#[derive(Clone)]
pub struct Leader {
    pub raft: Raft,
    pub peers: Peers,
    pub service: Arc<Service>,
    /// Pause before a call is repeated.
    pub retry_pause: Duration,
}

/// The node that led when it was looked up.
#[derive(Clone, Debug)]
pub struct LeaderNode {
    id: NodeId,
    address: String,
}

impl Leader {
    /// Returns the leader if this node knows it.
    pub fn known(&self) -> Option<LeaderNode> {
        let metrics = self.raft.metrics().borrow().clone();
        let id = metrics.current_leader?;
        let node = metrics.membership_config.membership().get_node(&id)?;
        Some(LeaderNode { id, address: node.addr.clone() })
    }

    /// Waits until the leader is known, at most for this time.
    pub async fn wait_known(&self, timeout: Duration) -> Option<LeaderNode> {
        let mut metrics = self.raft.metrics();
        let known = async {
            loop {
                if let Some(leader) = self.known() {
                    return Some(leader);
                }
                metrics.changed().await.ok()?;
            }
        };
        tokio::time::timeout(timeout, known).await.ok().flatten()
    }

    /// Calls the leader.
    pub async fn call(
        &self,
        leader: LeaderNode,
        request: Request,
        timeout: Duration,
    ) -> Result<Answer, CallFailure> {
        if leader.id != self.peers.local.number {
            return self.peers.call(leader.id, &leader.address, request, timeout).await;
        }
        match tokio::time::timeout(timeout, self.service.execute(request)).await {
            Ok(answer) => Ok(answer?),
            Err(_) => Err(CallFailure::NoAnswer(crate::transport::CallError {
                address: leader.address,
                reason: format!("the node itself did not answer within {timeout:?}"),
            })),
        }
    }

    /// Waits before a call is repeated, so that nodes without a leader do not flood each other.
    pub async fn pause(&self) {
        tokio::time::sleep(self.retry_pause.mul_f64(0.5 + fastrand::f64())).await;
    }

    /// Returns whether this node is a voter or learner of a cluster.
    pub fn is_member(&self) -> bool {
        let metrics = self.raft.metrics().borrow().clone();
        metrics.membership_config.membership().get_node(&self.peers.local.number).is_some()
    }
}
