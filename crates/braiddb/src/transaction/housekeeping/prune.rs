//! Pruning (Umbra MVCC §3.4, Steam): unlinks and frees versions that a long-running reader keeps
//! allocated but cannot see. So chains are no longer than the number of readers, whatever is
//! written. If memory is short, versions that it does see are replaced by their headers; the reader
//! then reads the payload in the log.
//!
//! Each superseded version is in one worker's garbage list, and only that worker unlinks it. While
//! it does, no worker acts on a horizon: if a listed reader needs a chain's oldest part, the chain
//! is complete from its head to there. The protocol is documented at the head of
//! `version/horizon.rs`.
//!
//! Changes of paged tables are unlinked before they are freed, so pruning them needs no such right
//! (`page/versions/prune.rs`). A worker prunes the chains in which it has changes. A chain also has
//! changes of other workers; those that are pruned are marked, so that their workers only free them.
//! Before-images that a reader sees stay.

use std::cmp::Reverse;

use crate::log::Lsn;
use crate::page::ChangeRef;
use crate::record::{Cut, MemoryRecords, RecordsRef, may_lose_payload};
use crate::rid::Rid;
use crate::transaction::context::worker::WorkerTransactions;
use crate::transaction::memory::garbage::Garbage;
use crate::version::{Pruning, VersionRef};

/// Minimum length of the garbage list before a worker prunes, and the maximum number of items it
/// examines per turn, so that transactions are never delayed for long.
const PRUNE_BATCH: usize = if cfg!(braid_simulation) { 6 } else { 4096 };

/// Minimum number of unexamined changes of paged tables before a worker prunes, and roughly the
/// maximum that it examines per turn. Their before-images may be long, so it is smaller.
const CHANGE_BATCH: usize = if cfg!(braid_simulation) { 6 } else { 1024 };

/// Maximum number of changes visited in chains per turn; chains not reached by then are examined
/// again later.
const MAX_VISITED: usize = 16 * CHANGE_BATCH;

/// Number of turns between prunes of a short garbage list if memory is short.
const TURNS_BETWEEN_PRUNES: u32 = 32;

/// A version to cut out of its chain.
struct SupersededVersion {
    table: RecordsRef<MemoryRecords>,
    rid: Rid,
    superseded: Lsn,
    cut: Cut,
}

impl WorkerTransactions {
    /// Prunes the garbage list, if it is long or memory is short. `idle` means that no task of the
    /// worker is ready.
    pub(in crate::transaction) fn prune(&self, idle: bool) {
        if self.engine().certifies_by_safety_net() {
            // Readers look for the version that superseded the one they saw.
            return;
        }
        let mut garbage = self.garbage.borrow_mut();
        let garbage = garbage.superseded();
        if !self.should_prune(garbage.unexamined_items(), PRUNE_BATCH, idle) {
            return;
        }
        let engine = self.engine();
        let tail = engine.log.tail();
        engine.readers.request(tail);
        // Otherwise another worker acts on the horizon; the garbage waits for the next turn.
        let Some(pruning) = engine.horizon.prune() else { return };
        let stamps = engine.readers.stamps(tail, &pruning);
        let durable = engine.log.durable();
        let mut cuts = Vec::new();
        for _ in 0..PRUNE_BATCH {
            // Both the superseding commit and the superseded version are durable.
            let limit = stamps.recent().min(durable);
            let Some((lsn, item)) = garbage.examine_if(|item| item.0 < limit) else { break };
            let Garbage::Superseded { table, rid, version } = item else {
                garbage.keep((lsn, item));
                continue;
            };
            // SAFETY: listed, so not freed yet.
            let superseded = unsafe { version.get() };
            let Some(committed) = superseded.stamp().lsn() else {
                // Its commit has many writes, and has not stamped it yet.
                garbage.keep((lsn, item));
                continue;
            };
            let mut header = None;
            if !stamps.is_only_stepped_over(committed, lsn) {
                let evict = self.engine().memory_is_short()
                    && stamps.sees(committed, lsn)
                    && may_lose_payload(superseded, durable);
                header = evict.then(|| VersionRef::allocate_evicted(&engine.memory, superseded));
                let version = header.unwrap_or(version);
                garbage.keep((lsn, Garbage::Superseded { table, rid, version }));
                if !evict {
                    continue;
                }
            }
            cuts.push(SupersededVersion {
                table,
                rid,
                superseded: lsn,
                cut: Cut { version, header },
            });
        }
        garbage.examine_again_if_due();
        self.cut(cuts, &pruning);
    }

    /// Returns whether there are enough unexamined items: a batch, or any if memory is short.
    fn should_prune(&self, unexamined: usize, batch: usize, idle: bool) -> bool {
        let often = idle || self.turns.get().is_multiple_of(TURNS_BETWEEN_PRUNES);
        unexamined >= batch || unexamined > 0 && often && self.engine().memory_is_short()
    }

    /// Prunes the changes of this worker's recent commits to paged tables, if they are many or
    /// memory is short. `idle` means that no task of the worker is ready.
    pub(super) fn prune_changes(&self, idle: bool) {
        if self.commits_waiting.get() == 0 {
            return;
        }
        let engine = self.engine();
        let listed = &engine.recent[self.number()].commits;
        if !self.should_prune(listed.lock().unexamined(), CHANGE_BATCH, idle) {
            return;
        }
        let tail = engine.log.tail();
        engine.readers.request(tail);
        let stamps = engine.readers.all_stamps(tail);
        let durable = engine.log.durable();
        let limit = stamps.recent().min(durable);
        let (mut changes, entries) = listed.lock().unexamined_before(limit, CHANGE_BATCH);
        // Changes of one chain follow each other. Not by address: a simulated schedule must be
        // repeatable.
        changes.sort_unstable_by_key(|one| one.hash);
        let (mut last, mut visited) = (None::<ChangeRef>, 0);
        for change in changes.iter().map(|one| one.change) {
            // SAFETY: both are listed, so not retired.
            let is_done =
                unsafe { change.is_pruned() || last.is_some_and(|last| change.shares_chain(last)) };
            if !is_done && visited < MAX_VISITED {
                // SAFETY: listed, so not retired.
                visited += unsafe { change.prune_chain(&stamps, durable) };
                last = Some(change);
            }
        }
        let mut pruned = Vec::new();
        let gone = listed.lock().examine(entries, |one| pruned.push(one));
        self.commits_waiting.set(self.commits_waiting.get() - gone);
        self.counters().versions_pruned.add(pruned.len() as u64);
        self.collect_pruned(pruned);
    }

    fn cut(&self, mut all: Vec<SupersededVersion>, pruning: &Pruning<'_>) {
        let evicted = all.iter().filter(|one| one.cut.header.is_some()).count();
        self.counters().evicted.add(evicted as u64);
        self.counters().versions_pruned.add((all.len() - evicted) as u64);
        // SAFETY: each was superseded after a horizon, so its table exists (`tables.rs`).
        let table = |one: &SupersededVersion| unsafe { one.table.get() }.id;
        // By id, not by address: a simulated schedule must be repeatable.
        all.sort_unstable_by_key(|one| (table(one), one.rid, Reverse(one.superseded)));
        let mut cuts = Vec::new();
        for chain in all.chunk_by(|a, b| (a.table, a.rid) == (b.table, b.rid)) {
            cuts.clear();
            cuts.extend(chain.iter().map(|one| one.cut));
            // SAFETY: each was superseded after a horizon, so its table exists (`tables.rs`). They may
            // be freed only by this worker, and are still linked, since only their owner cuts them
            // out. A listed reader, for which the chain is complete while `pruning` lasts, steps over
            // them, or sees those with a header.
            unsafe { chain[0].table.get().prune(chain[0].rid, &cuts, pruning) };
        }
    }
}
