//! Pruning behind a long reader (Umbra MVCC §3.4, Steam): versions that only stand in its way are
//! unlinked and freed, so that chains stay as long as there are readers, whatever is written.
//!
//! Each version that is superseded is in one worker's garbage list, and only that worker unlinks
//! it. While it does, nobody acts on a horizon: a chain whose oldest part a listed reader needs is
//! whole from its head to there. The protocol is at the head of `version/horizon.rs`.

use super::garbage::Garbage;
use super::worker::Worker;
use crate::log::Lsn;
use crate::record::TableRef;
use crate::rid::Rid;
use crate::version::{BeginStamps, Pruning, VersionRef};

/// Garbage that waits before a worker looks for what can be pruned, and the most it looks at in
/// one turn, so that transactions are never delayed for long.
const STRIDE: usize = if cfg!(braid_simulation) { 6 } else { 4096 };

/// A version that nobody sees.
struct Unseen {
    table: TableRef,
    rid: Rid,
    superseded: Lsn,
    version: VersionRef,
}

impl Worker {
    /// Prunes among the garbage that waits, if there is much of it.
    pub(super) fn prune(&self) {
        let mut garbage = self.garbage.borrow_mut();
        if garbage.unexamined() < STRIDE {
            return;
        }
        let engine = self.engine();
        let tail = engine.log.tail();
        engine.readers.ask(tail);
        // Otherwise somebody acts on the horizon; the garbage waits for the next turn.
        let Some(pruning) = engine.horizon.prune() else { return };
        let stamps = engine.readers.stamps(tail, &pruning);
        let mut unseen = Vec::new();
        for _ in 0..STRIDE {
            let Some((lsn, item)) = garbage.examine(stamps.recent()) else { break };
            match is_unseen(lsn, item, &stamps) {
                Some(version) => unseen.push(version),
                None => garbage.keep(lsn, item),
            }
        }
        drop(garbage);
        self.unlink(unseen, &pruning);
    }

    fn unlink(&self, mut unseen: Vec<Unseen>, pruning: &Pruning<'_>) {
        self.counters().versions_pruned.add(unseen.len() as u64);
        let order =
            |one: &Unseen| (one.table.address(), one.rid, std::cmp::Reverse(one.superseded));
        unseen.sort_unstable_by_key(order);
        let mut versions = Vec::new();
        for chain in unseen.chunk_by(|a, b| (a.table, a.rid) == (b.table, b.rid)) {
            versions.clear();
            versions.extend(chain.iter().map(|one| one.version));
            // SAFETY: tables live as long as the engine. The versions are this worker's to free
            // and still linked, since only their owner unlinks them; a listed reader for whom the
            // chain is whole, as long as `pruning` lasts, steps over them.
            unsafe { chain[0].table.get().unlink(chain[0].rid, &versions, pruning) };
        }
    }
}

fn is_unseen(superseded: Lsn, item: Garbage, stamps: &BeginStamps) -> Option<Unseen> {
    let Garbage::Superseded { table, rid, version } = item else { return None };
    // SAFETY: listed, so not freed yet.
    let committed = unsafe { version.get() }.stamp().lsn().expect("only commits are superseded");
    let unseen = stamps.only_pass(committed, superseded);
    unseen.then_some(Unseen { table, rid, superseded, version })
}
