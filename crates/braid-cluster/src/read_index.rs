//! Indices that linearizable reads wait for.
//!
//! The leader confirms with a majority that it still leads, and returns its commit index. Readers
//! that arrive while a question is under way share the next one.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot};

use crate::leader::Leader;
use crate::message::{Answer, Request};

/// Time without an answer after which the leader is asked again.
const ASK_TIMEOUT: Duration = Duration::from_secs(1);

/// An index, and the time before which everything it covers was committed.
#[derive(Clone, Copy, Debug)]
pub struct KnownIndex {
    pub index: u64,
    pub asked: Instant,
}

/// Asks the leader for readers.
#[derive(Clone, Debug)]
pub struct ReadIndices {
    queue: mpsc::UnboundedSender<oneshot::Sender<u64>>,
    last: Arc<Mutex<Option<KnownIndex>>>,
}

impl ReadIndices {
    /// Starts the task that asks. It ends with the last handle.
    pub fn start(leader: Leader) -> Self {
        let (queue, readers) = mpsc::unbounded_channel();
        let last = Arc::default();
        tokio::spawn(ask_all(leader, readers, Arc::clone(&last)));
        Self { queue, last }
    }

    /// Returns an index that covers everything committed before this call. Waits for a majority
    /// without a limit of time. `None` if the node stops.
    pub async fn current(&self) -> Option<u64> {
        let (reader, index) = oneshot::channel();
        self.queue.send(reader).ok()?;
        index.await.ok()
    }

    /// Returns the last index that the leader returned.
    pub fn last(&self) -> Option<KnownIndex> {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn ask_all(
    leader: Leader,
    mut queue: mpsc::UnboundedReceiver<oneshot::Sender<u64>>,
    last: Arc<Mutex<Option<KnownIndex>>>,
) {
    while let Some(first) = queue.recv().await {
        let mut readers = vec![first];
        // All of them arrived before the question.
        while let Ok(reader) = queue.try_recv() {
            readers.push(reader);
        }
        loop {
            let asked = Instant::now();
            if let Some(index) = ask(&leader).await {
                *last.lock().unwrap_or_else(PoisonError::into_inner) =
                    Some(KnownIndex { index, asked });
                for reader in readers {
                    // A reader may have given up at its deadline.
                    _ = reader.send(index);
                }
                break;
            }
            readers.retain(|reader| !reader.is_closed());
            if readers.is_empty() {
                break;
            }
            leader.pause().await;
        }
    }
}

async fn ask(leader: &Leader) -> Option<u64> {
    let target = leader.wait_known(ASK_TIMEOUT).await?;
    match leader.call(target, Request::ReadIndex, ASK_TIMEOUT).await {
        Ok(Answer::ReadIndex(index)) => Some(index),
        Ok(_) => None,
        Err(error) => {
            tracing::debug!("the leader gave no read index: {error}");
            None
        }
    }
}
