//! Counters of a node since its start.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

use crate::command::{Decision, SubmissionId};

/// Counters that the parts of a node increment.
#[derive(Debug, Default)]
pub struct Counters {
    pub committed_index: AtomicU64,
    pub entries: AtomicU64,
    pub committed: AtomicU64,
    pub conflicts: AtomicU64,
    pub refused: AtomicU64,
    pub snapshots_sent: AtomicU64,
    pub snapshots_installed: AtomicU64,
}

/// Increments a counter.
pub fn count(counter: &AtomicU64) {
    // Relaxed: readers of a counter read nothing that depends on it.
    counter.fetch_add(1, Ordering::Relaxed);
}

impl Counters {
    /// Counts the decisions of an entry.
    pub fn count_decisions(&self, decisions: &[(SubmissionId, Decision)]) {
        count(&self.entries);
        for (_, decision) in decisions {
            count(match decision {
                Decision::Committed => &self.committed,
                Decision::Conflict => &self.conflicts,
                Decision::Refused(_) => &self.refused,
            });
        }
    }

    /// Returns the index of the last entry that this node knows to be committed.
    pub fn committed_index(&self) -> u64 {
        // Relaxed: see `count`.
        self.committed_index.load(Ordering::Relaxed)
    }

    /// Returns the current values.
    pub fn applied(&self) -> AppliedCounts {
        // Relaxed: see `count`.
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        AppliedCounts {
            entries: read(&self.entries),
            committed: read(&self.committed),
            conflicts: read(&self.conflicts),
            refused: read(&self.refused),
            snapshots_sent: read(&self.snapshots_sent),
            snapshots_installed: read(&self.snapshots_installed),
        }
    }
}

/// Work of a node since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct AppliedCounts {
    /// Entries with transactions that the node applied. An entry contains the transactions of all
    /// nodes that waited together, so the average batch is all decisions divided by the entries.
    pub entries: u64,
    /// Transactions and creations of tables that committed, of all nodes.
    pub committed: u64,
    /// Attempts of all nodes that conflicted and were repeated.
    pub conflicts: u64,
    /// Changes of all nodes that the cluster's catalog refused.
    pub refused: u64,
    /// Snapshots that the node, as the leader, sent to others.
    pub snapshots_sent: u64,
    /// Snapshots that the node received and installed.
    pub snapshots_installed: u64,
}
