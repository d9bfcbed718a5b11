//! Shared state of a node: the database, the applied position, and calls that wait for decisions.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{RwLock, oneshot, watch};

use crate::applier::WINDOW_BYTES;
use crate::command::{Decision, SubmissionId};
use crate::counters::Counters;
use crate::identity::LocalNode;
use crate::received::ReceiveSlot;
use crate::staged::StagedTables;
use crate::storage::Storage;

/// Positions of at most this many applied entries are remembered. An execution with an older
/// snapshot is certified as if it had seen nothing, and therefore retried.
const MAX_POSITIONS: usize = 1 << 16;

/// Decision of a submission, and the index of its entry.
pub type Decided = (Decision, u64);

/// State that the state machine, the proposer and readers share.
#[derive(Debug)]
pub struct Replica {
    pub storage: Arc<Storage>,
    pub local: Arc<LocalNode>,
    pub receiving: ReceiveSlot,
    pub counters: Arc<Counters>,
    pub staged: StagedTables,
    /// Limit of the certification window, which tests lower on all nodes.
    pub window_bytes: u64,
    /// Held for writing while a snapshot replaces the contents.
    pub contents: RwLock<()>,
    /// Index of the last applied entry.
    applied: watch::Sender<u64>,
    /// Index of the last entry that may be visible.
    applying: AtomicU64,
    /// Held by the state machine until it has ended.
    pub machine: Arc<tokio::sync::Mutex<()>>,
    shared: Mutex<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    /// Index and commit LSN of applied entries, in the order of both.
    positions: VecDeque<(u64, u64)>,
    /// Submissions of this node whose entries are not applied yet.
    waiting: BTreeMap<SubmissionId, Waiting>,
}

#[derive(Debug)]
struct Waiting {
    sender: oneshot::Sender<Decided>,
    /// A leader may have received the submission.
    is_sent: bool,
}

impl Replica {
    pub fn new(storage: Arc<Storage>, local: Arc<LocalNode>) -> Arc<Self> {
        Self::with_window(storage, local, WINDOW_BYTES)
    }

    /// Creates the state of a node with another limit of the certification window.
    pub fn with_window(
        storage: Arc<Storage>,
        local: Arc<LocalNode>,
        window_bytes: u64,
    ) -> Arc<Self> {
        Arc::new(Self {
            window_bytes,
            storage,
            local,
            receiving: ReceiveSlot::default(),
            counters: Arc::default(),
            staged: StagedTables::default(),
            contents: RwLock::default(),
            applied: watch::Sender::new(0),
            applying: AtomicU64::new(0),
            machine: Arc::default(),
            shared: Mutex::default(),
        })
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        // No code that holds the lock can leave the state half changed.
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the index of the last applied entry.
    pub fn applied(&self) -> u64 {
        *self.applied.borrow()
    }

    /// Returns the version that the cluster uses.
    pub fn version(&self) -> u32 {
        self.local.version()
    }

    /// Returns a receiver of the index of the last applied entry.
    pub fn applied_watch(&self) -> watch::Receiver<u64> {
        self.applied.subscribe()
    }

    /// Waits until the entry with this index is applied.
    pub async fn wait_applied(&self, index: u64) {
        let mut applied = self.applied.subscribe();
        // The sender lives as long as `self`.
        _ = applied.wait_for(|applied| *applied >= index).await;
    }

    /// Sets the position of the node after it was opened or a snapshot was installed. Every snapshot
    /// of the database that begins from now on contains all entries up to here.
    pub fn reset_applied(&self, index: u64) {
        {
            let positions = &mut self.shared().positions;
            positions.clear();
            positions.push_back((index, 0));
        }
        self.applied.send_replace(index);
    }

    /// Notes that the changes of an entry are about to become visible.
    pub fn begin_applying(&self, index: u64) {
        self.applying.store(index, Ordering::SeqCst);
    }

    /// Returns the index of the last entry that a snapshot which exists may contain.
    pub fn newest(&self) -> u64 {
        self.applying.load(Ordering::SeqCst).max(self.applied())
    }

    /// Reports that an entry is applied by the commit at `lsn`.
    pub fn set_applied(&self, index: u64, lsn: u64) {
        {
            let positions = &mut self.shared().positions;
            positions.push_back((index, lsn));
            if positions.len() > MAX_POSITIONS {
                positions.pop_front();
            }
        }
        self.applied.send_replace(index);
    }

    /// Returns the index of the last entry that a snapshot at this LSN certainly contains.
    pub fn index_at(&self, snapshot_lsn: u64) -> u64 {
        let shared = self.shared();
        let newer = shared.positions.partition_point(|(_, lsn)| *lsn < snapshot_lsn);
        newer.checked_sub(1).map_or(0, |last| shared.positions[last].0)
    }

    /// Returns a receiver for the decision of a submission.
    pub fn expect_decision(&self, id: SubmissionId) -> oneshot::Receiver<Decided> {
        let (sender, receiver) = oneshot::channel();
        self.shared().waiting.insert(id, Waiting { sender, is_sent: false });
        receiver
    }

    /// Returns whether the submission's decision is still awaited.
    pub fn is_awaited(&self, id: SubmissionId) -> bool {
        self.shared().waiting.contains_key(&id)
    }

    /// Notes that a submission is about to be sent. Returns `false` if its call has ended: then
    /// it must not be sent.
    pub fn mark_sent(&self, id: SubmissionId) -> bool {
        let mut shared = self.shared();
        let waiting = shared.waiting.get_mut(&id);
        waiting.map(|waiting| waiting.is_sent = true).is_some()
    }

    /// Ends the wait for a decision. Returns whether the submission may have been sent.
    pub fn give_up(&self, id: SubmissionId) -> bool {
        self.shared().waiting.remove(&id).is_none_or(|waiting| waiting.is_sent)
    }

    /// Reports the decisions of an entry. Only the first decision of a submission counts.
    pub fn decide(
        &self,
        index: u64,
        decisions: impl IntoIterator<Item = (SubmissionId, Decision)>,
    ) {
        let mut shared = self.shared();
        for (id, decision) in decisions {
            if let Some(Waiting { sender, .. }) = shared.waiting.remove(&id) {
                // The receiver may have given up at its deadline.
                _ = sender.send((decision, index));
            }
        }
    }

    /// Ends the waits for submissions that were sent, without decisions.
    pub fn forget_submissions(&self) {
        self.shared().waiting.retain(|_, waiting| !waiting.is_sent);
    }
}
