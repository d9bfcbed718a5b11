//! The tables of a database by id, from their creation on.
//!
//! Invariants: a table stays listed as long as its engine, with two exceptions. If its creator
//! aborts, it is removed and its id is reused, since nothing committed refers to it. A dropped table
//! in memory is removed once no other task has its address. An id belongs to one table at a time.
//! Once something of that table was committed, the id is never reused, not even after a restart:
//! checkpoints list the used ids, and the replayed catalog records contain later ones.
//!
//! # Freeing a dropped table in memory
//!
//! After its records are deleted, these have the table's address without a reference to it:
//!
//! | holder | until |
//! |---|---|
//! | transactions that used it, and those that deleted its records | no begin stamp in use is as old |
//! | lists of deleted records | each is processed; the table counts them |
//! | retired record ids | each id is free again |
//! | lists of superseded versions | never used: only the pruner follows that address, and it ignores versions superseded before a horizon that a worker acted on. Each record was reclaimed under such a horizon |
//! | turns and operations in progress | the epochs of `reclaim` have passed |
//!
//! All other users have a reference. Until the last handle is dropped, a table's memory remains.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use crate::log::Lsn;
use crate::planted::{Bug, is_planted};
use crate::record::Records;
use crate::rid::TableId;
use crate::sync::statistic::{AtomicUsize, Ordering};
use crate::sync::{Mutex, RwLock};

/// The list of tables.
#[derive(Debug)]
pub(in crate::transaction) struct Tables {
    list: RwLock<TableList>,
    hand: Mutex<ClockHand>,
    /// Dropped tables without records to be freed, and the LSN after the last transactions that used
    /// them.
    dropped: Mutex<VecDeque<(Lsn, Arc<Records>)>>,
    /// Number of those.
    dropped_count: AtomicUsize,
}

/// Position of eviction's clock hand.
#[derive(Debug)]
struct ClockHand {
    table: TableId,
    /// Entries of the table that the hand has not passed in this round.
    left: u64,
}

#[derive(Debug)]
struct TableList {
    /// The tables that exist. Ids of removed tables are not here, because there may be many.
    by_id: BTreeMap<u32, Arc<Records>>,
    /// Empty tables that recovery made for ids of dropped tables.
    replaced: Vec<Arc<Records>>,
    /// The smallest id that no table has had.
    next: u32,
    /// Ids below `next` of tables whose creation was rolled back.
    free: Vec<u32>,
    /// Ids of dropped tables that were removed.
    removed: BTreeSet<u32>,
}

impl Tables {
    pub(in crate::transaction) fn new() -> Self {
        // Id 0 is the catalog.
        let (by_id, replaced, free) = Default::default();
        let list = TableList { by_id, replaced, next: 1, free, removed: BTreeSet::new() };
        let hand = ClockHand { table: TableId(0), left: 0 };
        let (dropped, dropped_count) = Default::default();
        Self { list: RwLock::new(list), hand: Mutex::new(hand), dropped, dropped_count }
    }

    /// Returns the table with this id; calls `make` if it does not exist. If it was dropped, the
    /// result is an unlisted table that no transaction may use.
    pub(super) fn get_or_make(&self, id: TableId, make: impl FnOnce() -> Records) -> Arc<Records> {
        if let Some(table) = self.list.read().by_id.get(&id.0) {
            return table.clone();
        }
        let mut list = self.list.write();
        if list.removed.contains(&id.0) {
            let table = make();
            table.drop_at(Lsn::ZERO);
            return Arc::new(table);
        }
        list.by_id.entry(id.0).or_insert_with(|| Arc::new(make())).clone()
    }

    /// Lists a recovered table. Replaces an empty one of the same id, if listed: an earlier table,
    /// which was dropped.
    pub(in crate::transaction) fn replace(&self, table: Arc<Records>) {
        let list = &mut *self.list.write();
        let before = list.by_id.insert(table.id.0, table);
        assert!(before.as_ref().is_none_or(|before| before.paged().is_none()), "listed once");
        list.replaced.extend(before);
    }

    /// Allocates an unused id.
    pub(super) fn take_id(&self) -> TableId {
        let mut list = self.list.write();
        if let Some(id) = list.free.pop() {
            return TableId(id);
        }
        let id = list.next;
        list.next = id.checked_add(1).expect("fewer than 2^32 tables fit in memory");
        TableId(id)
    }

    /// Frees an id from `take_id`, and returns the table that was created for it.
    pub(in crate::transaction) fn release(&self, id: TableId) -> Option<Arc<Records>> {
        let mut list = self.list.write();
        list.free.push(id.0);
        list.by_id.remove(&id.0)
    }

    /// Marks ids up to `id` as used; for recovery.
    pub(in crate::transaction) fn raise(&self, id: TableId) {
        let mut list = self.list.write();
        list.next = list.next.max(id.0.saturating_add(1));
    }

    /// The smallest id that no table has had.
    pub(super) fn next_id(&self) -> TableId {
        TableId(self.list.read().next)
    }

    /// All tables in order of their ids.
    pub(in crate::transaction) fn all(&self) -> Vec<Arc<Records>> {
        self.list.read().by_id.values().cloned().collect()
    }

    /// Queues a dropped table, whose records are deleted, to be freed. `used_until` is at or after
    /// the begin stamp of every transaction that used it.
    pub(in crate::transaction) fn free_later(&self, used_until: Lsn, table: Arc<Records>) {
        self.dropped.lock().push_back((used_until, table));
        // Relaxed: a hint; a worker that misses it looks again at a later turn.
        self.dropped_count.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns whether there are dropped tables that are not freed yet.
    pub(in crate::transaction) fn has_dropped(&self) -> bool {
        // Relaxed: a hint, see `free_later`.
        self.dropped_count.load(Ordering::Relaxed) > 0
    }

    /// Removes the dropped table that was queued first, if nothing has its address without a
    /// reference, except turns and operations in progress. No begin stamp in use is before `oldest`.
    pub(in crate::transaction) fn take_unused(&self, oldest: Lsn) -> Option<Arc<Records>> {
        let is_unused = |(used_until, table): &mut (Lsn, Arc<Records>)| {
            *used_until < oldest && (table.is_unused() || is_planted(Bug::DroppedTableFreedEarly))
        };
        let (_, table) = self.dropped.lock().pop_front_if(is_unused)?;
        // Relaxed: a hint, see `free_later`.
        self.dropped_count.fetch_sub(1, Ordering::Relaxed);
        let list = &mut *self.list.write();
        list.removed.insert(table.id.0);
        list.by_id.remove(&table.id.0);
        Some(table)
    }

    /// The next table, and the number of its entries, that the clock's hand passes over: one table
    /// after the other, so that each entry has its turn. `None` if only tables without entries came
    /// next; the hand has passed some of them.
    pub(in crate::transaction) fn next_stride(&self, most: u64) -> Option<(Arc<Records>, u64)> {
        /// Maximum number of tables without entries that one call passes over.
        const MAX_EMPTY_TABLES: usize = 256;
        let mut hand = self.hand.lock();
        for _ in 0..MAX_EMPTY_TABLES {
            let table = self.list.read().next_from(hand.table)?;
            if table.id != hand.table || hand.left == 0 {
                (hand.table, hand.left) = (table.id, table.rids().bound());
            }
            let count = hand.left.min(most);
            hand.left -= count;
            if hand.left == 0 {
                hand.table = TableId(table.id.0 + 1);
            }
            if count > 0 {
                return Some((table, count));
            }
        }
        None
    }
}

impl TableList {
    /// The first table with an id of at least `from`, or else the first of all.
    fn next_from(&self, from: TableId) -> Option<Arc<Records>> {
        let after = self.by_id.range(from.0..).next();
        after.or_else(|| self.by_id.first_key_value()).map(|(_, table)| table.clone())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::memory::MemoryCounters;

    fn add(tables: &Tables, memory: &Arc<MemoryCounters>, records: u64) -> Arc<Records> {
        let id = tables.take_id();
        let table = tables.get_or_make(id, || Records::new(id, memory.clone(), None, true));
        for _ in 0..records {
            table.take_rid().unwrap();
        }
        table
    }

    #[test]
    fn the_hand_comes_by_every_entry_once_a_round() {
        let (tables, memory) = (Tables::new(), Arc::new(MemoryCounters::new()));
        assert!(tables.next_stride(100).is_none());
        let sizes = [0, 1, 70, 0, 1000, 0];
        let all: Vec<_> = sizes.iter().map(|records| add(&tables, &memory, *records)).collect();
        let bounds: Vec<_> = all.iter().map(|table| table.rids().bound()).collect();
        assert_eq!(bounds.iter().sum::<u64>() * 8, memory.array_bytes());
        for _ in 0..3 {
            let mut seen = vec![0; all.len()];
            while seen.iter().sum::<u64>() * 8 < memory.array_bytes() {
                let (table, count) = tables.next_stride(100).expect("few tables are empty");
                assert!(count <= 100);
                seen[table.id.0 as usize - 1] += count;
            }
            assert_eq!(seen, bounds);
        }
    }

    #[test]
    fn many_empty_tables_are_passed_a_few_at_a_time() {
        let (tables, memory) = (Tables::new(), Arc::new(MemoryCounters::new()));
        (0..1000).for_each(|_| drop(add(&tables, &memory, 0)));
        let last = add(&tables, &memory, 1);
        let mut calls = 1;
        while tables.next_stride(64).is_none() {
            calls += 1;
        }
        assert_eq!(calls, 1001_usize.div_ceil(256));
        assert_eq!(tables.release(last.id).map(|table| table.id), Some(last.id));
        assert_eq!(tables.take_id(), last.id, "the id is used again");
    }
}
