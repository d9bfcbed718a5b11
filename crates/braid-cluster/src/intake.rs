//! The leader's queue of submissions: those that wait together become one Raft entry.
//!
//! openraft 0.9 writes an entry to disk before it takes the next. So while one entry is under way,
//! submissions gather, and the size of entries adapts to the disk and the network.

use std::sync::Arc;

use braiddb::proposals::RowWrites;
use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

use crate::command::{Action, Command, Submission};
use crate::leadership::{while_leading, write_refusal};
use crate::message::Refusal;
use crate::raft::{EncodedCommand, Raft};
use crate::storage::encode;

/// No submission is added to an entry that has this many bytes.
const ENTRY_BYTES: usize = 1 << 20;
/// Entries that may be under way at the same time.
const MAX_ENTRIES: u32 = 2;
/// Batches that wait.
const QUEUE: usize = 1024;

struct Waiting {
    submissions: Vec<Bytes>,
    /// True if the entry may contain nothing else.
    is_alone: bool,
    reply: oneshot::Sender<Result<(), Refusal>>,
}

/// Handle of the queue. The queue ends with its last handle.
#[derive(Clone)]
pub struct Intake {
    queue: mpsc::Sender<Waiting>,
    /// One for each entry that may be under way.
    slots: Arc<Semaphore>,
}

impl Intake {
    /// Starts the queue.
    pub fn start(raft: Raft) -> Self {
        let (sender, receiver) = mpsc::channel(QUEUE);
        let slots = Arc::new(Semaphore::new(MAX_ENTRIES as usize));
        tokio::spawn(append_all(raft, receiver, slots.clone()));
        Self { queue: sender, slots }
    }

    /// Waits until no entry is under way, and begins none until the result is dropped.
    pub async fn pause(&self) -> OwnedSemaphorePermit {
        let slots = self.slots.clone().acquire_many_owned(MAX_ENTRIES).await;
        slots.expect("the semaphore is never closed")
    }

    /// Appends submissions to the log if this node leads, and returns when they are committed.
    pub async fn append(&self, submissions: Vec<Bytes>) -> Result<(), Refusal> {
        let mut parts: Vec<(Vec<Bytes>, bool)> = Vec::new();
        for bytes in submissions {
            let submission = decode(&bytes)?;
            match (parts.last_mut(), submission.action.is_alone()) {
                (Some((part, false)), false) => part.push(bytes),
                (_, is_alone) => parts.push((vec![bytes], is_alone)),
            }
        }
        let mut results = Vec::new();
        for (submissions, is_alone) in parts {
            let (reply, result) = oneshot::channel();
            let busy = |_| Refusal::Busy(format!("{QUEUE} batches wait for the leader"));
            self.queue.try_send(Waiting { submissions, is_alone, reply }).map_err(busy)?;
            results.push(result);
        }
        for result in results {
            result.await.unwrap_or_else(|_| Err(Refusal::Failed("the node stops".to_owned())))?;
        }
        Ok(())
    }
}

/// Decodes all parts of a submission: a node stops at an entry that it cannot decode.
fn decode(bytes: &[u8]) -> Result<Submission, Refusal> {
    let undecodable = |reason: &dyn std::fmt::Display| {
        Refusal::Stranger(format!("a submission cannot be decoded: {reason}"))
    };
    let submission: Submission =
        postcard::from_bytes(bytes).map_err(|error| undecodable(&error))?;
    match &submission.action {
        Action::Transaction(executed) => {
            executed.decode().map_err(|damage| undecodable(&damage))?;
        }
        Action::Load(rows) => {
            RowWrites::decode(&rows.writes).map_err(|damage| undecodable(&damage))?;
        }
        Action::Catalog { .. } | Action::SetVersion { .. } => {}
    }
    Ok(submission)
}

async fn append_all(raft: Raft, mut queue: mpsc::Receiver<Waiting>, slots: Arc<Semaphore>) {
    let mut held = None;
    loop {
        let first = match held.take() {
            Some(first) => first,
            None => match queue.recv().await {
                Some(first) => first,
                None => return,
            },
        };
        // Held only while an entry is under way, so that all slots are free while none is.
        let slot = slots.clone().acquire_owned().await.expect("the semaphore is never closed");
        let (mut command, mut replies, mut bytes) = (Command::default(), Vec::new(), 0);
        let mut next = Some(first);
        while let Some(Waiting { submissions, is_alone, reply }) = next {
            bytes += submissions.iter().map(Bytes::len).sum::<usize>();
            command.submissions.extend(submissions);
            replies.push(reply);
            next = if bytes < ENTRY_BYTES && !is_alone { queue.try_recv().ok() } else { None };
            // The next entry begins with it.
            held = next.take_if(|next| next.is_alone);
        }
        let raft = raft.clone();
        tokio::spawn(async move {
            let command = EncodedCommand(encode(&command).into());
            let write = async { raft.client_write(command).await.map(drop).map_err(write_refusal) };
            let result = while_leading(&raft, write).await;
            drop(slot);
            for reply in replies {
                // A sender that gave up has dropped its receiver.
                _ = reply.send(result.clone());
            }
        });
    }
}
