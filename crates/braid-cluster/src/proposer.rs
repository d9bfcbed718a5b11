//! Sends the submissions of this node to the leader, in batches, until they are decided.
//!
//! A batch is sent again after a lost answer or a change of the leader. That is safe: a submission
//! that stands in the log twice takes effect at most once, because it conflicts with itself.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Semaphore, mpsc};

use crate::command::SubmissionId;
use crate::leader::Leader;
use crate::message::Request;
use crate::replica::Replica;

/// No submission is added to a batch that has this many bytes.
const BATCH_BYTES: usize = 512 << 10;
/// Batches of this node that may be under way at the same time. Later submissions
/// wait for the next batch, so the size of batches adapts to the round trip.
const MAX_BATCHES: usize = 2;
/// Time without an answer after which a batch is sent again.
const SEND_TIMEOUT: Duration = Duration::from_secs(2);

/// An encoded submission.
#[derive(Clone, Debug)]
pub struct Outgoing {
    pub id: SubmissionId,
    pub bytes: Bytes,
}

/// Handle of the queue. The queue ends with its last handle.
#[derive(Clone, Debug)]
pub struct Proposer(mpsc::Sender<Outgoing>);

impl Proposer {
    /// Starts the queue.
    pub fn start(replica: Arc<Replica>, leader: Leader, capacity: usize) -> Self {
        let (sender, receiver) = mpsc::channel(capacity);
        tokio::spawn(send_all(replica, leader, receiver));
        Self(sender)
    }

    /// Enqueues a submission; `false` if the queue is full or has ended.
    pub fn submit(&self, outgoing: Outgoing) -> bool {
        self.0.try_send(outgoing).is_ok()
    }
}

async fn send_all(replica: Arc<Replica>, leader: Leader, mut queue: mpsc::Receiver<Outgoing>) {
    let slots = Arc::new(Semaphore::new(MAX_BATCHES));
    loop {
        let slot = slots.clone().acquire_owned().await.expect("the semaphore is never closed");
        let Some(first) = queue.recv().await else { return };
        let (mut batch, mut bytes, mut next) = (Vec::new(), 0, Some(first));
        while let Some(outgoing) = next {
            bytes += outgoing.bytes.len();
            batch.push(outgoing);
            next = if bytes < BATCH_BYTES { queue.try_recv().ok() } else { None };
        }
        let (replica, leader) = (replica.clone(), leader.clone());
        tokio::spawn(async move {
            send(&replica, &leader, batch).await;
            drop(slot);
        });
    }
}

/// Sends a batch until the leader has committed it, or all its calls have ended.
async fn send(replica: &Replica, leader: &Leader, mut batch: Vec<Outgoing>) {
    loop {
        let Some(target) = leader.wait_known(SEND_TIMEOUT).await else {
            batch.retain(|outgoing| replica.is_awaited(outgoing.id));
            if batch.is_empty() {
                return;
            }
            leader.pause().await;
            continue;
        };
        batch.retain(|outgoing| replica.mark_sent(outgoing.id));
        if batch.is_empty() {
            return;
        }
        let submissions = batch.iter().map(|outgoing| outgoing.bytes.clone()).collect();
        match leader.call(target, Request::Submit(submissions), SEND_TIMEOUT).await {
            Ok(_) => return,
            Err(error) => {
                tracing::debug!("a batch of {} submissions is sent again: {error}", batch.len());
                leader.pause().await;
            }
        }
    }
}
