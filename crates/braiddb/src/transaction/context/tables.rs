//! The tables of a database by id, from their creation on.
//!
//! Invariants: a table stays listed until its engine is dropped, with two exceptions. If its creator
//! aborts, it is removed and its id is reused, since nothing committed refers to it. A dropped table
//! is removed once no other task has its address. An id belongs to one table at a time. Once
//! something of that table was committed, the id is never reused, not even after a restart:
//! checkpoints list the used ids, and the replayed catalog records contain later ones.
//!
//! # Freeing a dropped table
//!
//! After its records are deleted, these have the table's address without a reference to it:
//!
//! | holder | until |
//! |---|---|
//! | transactions that used it, and those that deleted its records; all have ended before the table is queued | no begin stamp in use is as old |
//! | lists of deleted records, of deferred rollbacks and of leaves to clean up; changes made for bulk operations | each is processed; the table counts them |
//! | retired record ids | each id is free again |
//! | lists of recent commits to paged tables | each worker has collected the changes of commits as old as the transactions above |
//! | lists of superseded versions | never used: only the pruner follows that address, and it ignores versions superseded before a horizon that a worker acted on. Each record was reclaimed under such a horizon |
//! | turns and operations in progress | the epochs of `reclaim` have passed. Meanwhile a turn may have put an entry with the address into a counted list, so the count is read again |
//!
//! All other users have a reference. Until the last handle is dropped, a table's memory remains.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use crate::log::Lsn;
use crate::planted::{Bug, is_planted};
use crate::record::Records;
use crate::rid::{CATALOG, TableId};
use crate::sync::statistic::{AtomicUsize, Ordering};
use crate::sync::{Mutex, RwLock};

/// The list of tables.
#[derive(Debug)]
pub(in crate::transaction) struct Tables {
    list: RwLock<TableList>,
    hand: Mutex<ClockHand>,
    /// Dropped tables without records that are not freed yet.
    dropped: Mutex<VecDeque<TableToFree>>,
    /// Number of those.
    dropped_count: AtomicUsize,
}

/// A dropped table without records, and the LSN after the last transactions that used it.
pub(in crate::transaction) type TableToFree = (Lsn, Arc<Records>);

/// Position of eviction's clock hand.
#[derive(Debug)]
struct ClockHand {
    table: TableId,
    /// Entries of the table that the hand has not passed in this round.
    left: u64,
}

#[derive(Debug)]
struct TableList {
    /// The tables that exist and were used.
    by_id: BTreeMap<u32, Arc<Records>>,
    /// Ids of other tables that exist or are being created. Their memory is allocated on first use.
    unused: BTreeSet<u32>,
    /// The smallest id that no table has had.
    next: u32,
    /// Ids below `next` of tables whose creation was rolled back.
    free: Vec<u32>,
}

impl Tables {
    pub(in crate::transaction) fn new() -> Self {
        let (by_id, free) = Default::default();
        let unused = BTreeSet::from([CATALOG.0]);
        let list = TableList { by_id, unused, next: CATALOG.0 + 1, free };
        let hand = ClockHand { table: TableId(0), left: 0 };
        let (dropped, dropped_count) = Default::default();
        Self { list: RwLock::new(list), hand: Mutex::new(hand), dropped, dropped_count }
    }

    /// Returns the table with this id; calls `make` if it was never used. If the table was dropped,
    /// the result is an unlisted table that no transaction may use.
    pub(super) fn get_or_make(&self, id: TableId, make: impl FnOnce() -> Records) -> Arc<Records> {
        if let Some(table) = self.list.read().by_id.get(&id.0) {
            return table.clone();
        }
        let mut list = self.list.write();
        let is_removed = id.0 < list.next && !list.unused.remove(&id.0);
        if is_removed && !list.by_id.contains_key(&id.0) {
            let table = make();
            table.drop_at(Lsn::ZERO);
            return Arc::new(table);
        }
        list.by_id.entry(id.0).or_insert_with(|| Arc::new(make())).clone()
    }

    /// Returns the table with this id for recovery, which does not know yet which tables exist;
    /// calls `make` if it is not listed.
    pub(super) fn recover(&self, id: TableId, make: impl FnOnce() -> Records) -> Arc<Records> {
        if let Some(table) = self.list.read().by_id.get(&id.0) {
            return table.clone();
        }
        self.list.write().by_id.entry(id.0).or_insert_with(|| Arc::new(make())).clone()
    }

    /// Ends recovery: only the catalog and the tables with these ids exist. The other recovered
    /// tables are empty, since they were dropped.
    pub(super) fn end_recovery(&self, mut existing: BTreeSet<u32>) {
        existing.insert(CATALOG.0);
        let gone = {
            let list = &mut *self.list.write();
            list.next =
                existing.last().map_or(list.next, |last| list.next.max(last.saturating_add(1)));
            list.unused.extend(existing);
            let listed = std::mem::take(&mut list.by_id);
            let (kept, gone) = listed.into_iter().partition(|(id, _)| list.unused.remove(id));
            list.by_id = kept;
            BTreeMap::into_values(gone)
        };
        gone.for_each(|table| self.free_unlisted(table));
    }

    /// Lists a recovered paged table. Replaces an empty one in memory with the same id, if listed:
    /// an earlier table, which was dropped.
    pub(in crate::transaction) fn replace(&self, table: Arc<Records>) {
        let before = {
            let mut list = self.list.write();
            list.unused.remove(&table.id.0);
            list.by_id.insert(table.id.0, table)
        };
        assert!(before.as_ref().is_none_or(|before| before.paged().is_none()), "listed once");
        before.into_iter().for_each(|table| self.free_unlisted(table));
    }

    /// Queues an empty table to be freed that recovery made for the id of a dropped one.
    fn free_unlisted(&self, table: Arc<Records>) {
        table.drop_at(Lsn::ZERO);
        self.free_later(Lsn::ZERO, table);
    }

    /// Allocates an unused id.
    pub(super) fn take_id(&self) -> TableId {
        let mut list = self.list.write();
        let id = list.free.pop().unwrap_or(list.next);
        if id == list.next {
            list.next = id.checked_add(1).expect("fewer than 2^32 tables fit in memory");
        }
        list.unused.insert(id);
        TableId(id)
    }

    /// Frees an id from `take_id`, and returns the table that was created for it.
    pub(in crate::transaction) fn release(&self, id: TableId) -> Option<Arc<Records>> {
        let mut list = self.list.write();
        list.free.push(id.0);
        list.unused.remove(&id.0);
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

    /// Takes the dropped table that was queued first, if no begin stamp in use, of which the oldest
    /// is given, is as old as its transactions. The caller frees it with [`Self::free`] once the
    /// epochs of `reclaim` have passed. `is_collected` returns whether all changes of commits until
    /// an LSN were collected. Queues a table that is used last, so that it does not delay others.
    pub(in crate::transaction) fn take_unused(
        &self,
        oldest: Lsn,
        is_collected: impl Fn(Lsn) -> bool,
    ) -> Option<TableToFree> {
        let mut queue = self.dropped.lock();
        let taken = queue.pop_front_if(|(used_until, _)| *used_until < oldest)?;
        let (used_until, table) = &taken;
        let is_unused = (table.paged().is_none() || is_collected(*used_until)) && table.is_unused();
        if !is_unused && !is_planted(Bug::DroppedTableFreedEarly) {
            queue.push_back(taken);
            return None;
        }
        drop(queue);
        // Relaxed: a hint, see `free_later`.
        self.dropped_count.fetch_sub(1, Ordering::Relaxed);
        self.remove(&taken.1);
        Some(taken)
    }

    /// Frees a table from [`Self::take_unused`] after the epochs of `reclaim` have passed; queues it
    /// again if a turn that was in progress put its address into a list.
    pub(in crate::transaction) fn free(&self, (used_until, table): TableToFree) {
        if !table.is_unused() && !is_planted(Bug::DroppedTableFreedEarly) {
            return self.free_later(used_until, table);
        }
        assert!(table.is_unused(), "nothing uses table {} any more", table.id.0);
    }

    fn remove(&self, table: &Arc<Records>) {
        let list = &mut *self.list.write();
        // A recovered table may be listed under the same id.
        if list.by_id.get(&table.id.0).is_some_and(|listed| Arc::ptr_eq(listed, table)) {
            list.by_id.remove(&table.id.0);
        }
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
                let entries = table.in_memory().map_or(0, |table| table.rids().bound());
                (hand.table, hand.left) = (table.id, entries);
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
    use crate::version::StatusTable;

    fn add(tables: &Tables, memory: &Arc<MemoryCounters>, records: u64) -> Arc<Records> {
        let id = tables.take_id();
        let table = tables.get_or_make(id, || Records::new(id, memory.clone(), None, true));
        for _ in 0..records {
            table.in_memory().unwrap().take_rid().unwrap();
        }
        table
    }

    #[test]
    fn the_hand_comes_by_every_entry_once_a_round() {
        let (tables, memory) = (Tables::new(), Arc::new(MemoryCounters::new()));
        assert!(tables.next_stride(100).is_none());
        let sizes = [0, 1, 70, 0, 1000, 0];
        let all: Vec<_> = sizes.iter().map(|records| add(&tables, &memory, *records)).collect();
        let bounds: Vec<_> =
            all.iter().map(|table| table.in_memory().unwrap().rids().bound()).collect();
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

    /// A turn that was in progress when the table was taken may still use its address.
    #[test]
    fn a_dropped_table_that_is_listed_meanwhile_is_not_freed() {
        let (tables, memory) = (Tables::new(), Arc::new(MemoryCounters::new()));
        let table = add(&tables, &memory, 0);
        let freed = Arc::downgrade(&table);
        table.drop_at(Lsn::ZERO);
        table.count_listed();
        tables.free_later(Lsn(7), table);
        assert!(tables.take_unused(Lsn(7), |_| true).is_none(), "a transaction may use it");
        assert!(tables.take_unused(Lsn(8), |_| true).is_none(), "a list has its address");
        freed.upgrade().unwrap().uncount_listed();
        let taken = tables.take_unused(Lsn(8), |_| true).expect("it is not used");
        taken.1.count_listed();
        tables.free(taken);
        assert!(tables.has_dropped());
        freed.upgrade().unwrap().uncount_listed();
        let taken = tables.take_unused(Lsn(8), |_| true).expect("it is not used");
        tables.free(taken);
        assert!(!tables.has_dropped() && freed.upgrade().is_none());
    }

    /// A staged table may be discarded twice. A transaction that began in between may not use it, as
    /// the first call has already waited for older transactions.
    #[test]
    fn a_table_that_is_dropped_twice_admits_no_later_transactions() {
        let (tables, memory) = (Tables::new(), Arc::new(MemoryCounters::new()));
        let table = add(&tables, &memory, 0);
        let transaction = StatusTable::new(1, 1).begin(0, 0);
        table.drop_at(Lsn(5));
        table.drop_at(Lsn(9));
        assert!(table.may_be_used_by(transaction, Lsn(5)));
        assert!(!table.may_be_used_by(transaction, Lsn(7)));
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
