//! Pruning behind a long reader (Umbra MVCC §3.4, Steam): versions that only stand in its way are
//! unlinked and freed, so that chains stay as long as there are readers, whatever is written. Where
//! memory is short, versions that it sees give way to their headers: it reads their payload in the log.
//!
//! Each version that is superseded is in one worker's garbage list, and only that worker unlinks
//! it. While it does, nobody acts on a horizon: a chain whose oldest part a listed reader needs is
//! whole from its head to there. The protocol is at the head of `version/horizon.rs`.

use std::cmp::Reverse;

use super::garbage::Garbage;
use super::worker::WorkerTransactions;
use crate::log::Lsn;
use crate::record::{Cut, RecordsRef, may_lose_payload};
use crate::rid::Rid;
use crate::version::{Pruning, VersionRef};

/// Garbage that waits before a worker looks for what can be pruned, and the most it looks at in
/// one turn, so that transactions are never delayed for long.
const STRIDE: usize = if cfg!(braid_simulation) { 6 } else { 4096 };

/// Turns between two looks at garbage that is little, where memory is short.
const TURNS: u32 = 32;

/// A version that is to be cut out of its chain.
struct Superseded {
    table: RecordsRef,
    rid: Rid,
    superseded: Lsn,
    cut: Cut,
}

impl WorkerTransactions {
    /// Prunes among the garbage that waits, if there is much of it, or memory is short; `idle` if no task
    /// of the worker is ready.
    pub(super) fn prune(&self, idle: bool) {
        if self.engine().certifies_by_safety_net() {
            // Readers look for the version that took the place of what they saw.
            return;
        }
        let mut garbage = self.garbage.borrow_mut();
        let often = idle || self.turns.get().is_multiple_of(TURNS);
        let few = self.engine().memory_is_short() && often;
        if garbage.unexamined() < if few { 1 } else { STRIDE } {
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
        for _ in 0..STRIDE {
            // What superseded it is durable, and so is what is superseded.
            let Some((lsn, item)) = garbage.examine(stamps.recent().min(durable)) else { break };
            let Garbage::Superseded { table, rid, version } = item else {
                garbage.keep(lsn, item);
                continue;
            };
            // SAFETY: listed, so not freed yet.
            let superseded = unsafe { version.get() };
            let committed = superseded.stamp().lsn().expect("only commits are superseded");
            let mut header = None;
            if !stamps.is_only_stepped_over(committed, lsn) {
                let evict = self.engine().memory_is_short()
                    && stamps.sees(committed, lsn)
                    && may_lose_payload(superseded, durable);
                header = evict.then(|| VersionRef::allocate_evicted(&engine.memory, superseded));
                let version = header.unwrap_or(version);
                garbage.keep(lsn, Garbage::Superseded { table, rid, version });
                if !evict {
                    continue;
                }
            }
            cuts.push(Superseded { table, rid, superseded: lsn, cut: Cut { version, header } });
        }
        drop(garbage);
        self.cut(cuts, &pruning);
    }

    fn cut(&self, mut all: Vec<Superseded>, pruning: &Pruning<'_>) {
        let evicted = all.iter().filter(|one| one.cut.header.is_some()).count();
        self.counters().evicted.add(evicted as u64);
        self.counters().versions_pruned.add((all.len() - evicted) as u64);
        // SAFETY: tables live as long as the engine.
        let table = |one: &Superseded| unsafe { one.table.get() }.id;
        // By id, not by address: a schedule is to do the same each time.
        all.sort_unstable_by_key(|one| (table(one), one.rid, Reverse(one.superseded)));
        let mut cuts = Vec::new();
        for chain in all.chunk_by(|a, b| (a.table, a.rid) == (b.table, b.rid)) {
            cuts.clear();
            cuts.extend(chain.iter().map(|one| one.cut));
            // SAFETY: tables live as long as the engine. The versions are this worker's to free
            // and still linked, since only their owner cuts them out; a listed reader for whom the
            // chain is whole, as long as `pruning` lasts, steps over them, or sees those with a header.
            unsafe { chain[0].table.get().prune(chain[0].rid, &cuts, pruning) };
        }
    }
}
