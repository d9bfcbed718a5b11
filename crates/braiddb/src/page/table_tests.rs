//! Step-by-step tests of writes to records of paged tables.

use std::sync::Arc;

use super::space::PageSpace;
use super::table::{PagedTable, RecordBeforeWrite, WriteDecision, WriteResult};
use super::tree::LeafRoom;
use super::value::SlotValue;
use super::versions::{ChangeRef, WriteRefusal, links_followed};
use crate::common::{PART_SECONDS, with_limit};
use crate::log::Lsn;
use crate::memory::MemoryCounters;
use crate::page::layout::MIN_PAGE_BYTES;
use crate::reclaim::{self, Domain};
use crate::rid::TableId;
use crate::sched::run_now;
use crate::version::{Stamp, StatusTable, TransactionName, View};

/// A table with one leaf, and transactions that write its record `key`.
struct OneRecord {
    memory: Arc<MemoryCounters>,
    status: StatusTable,
    names: [TransactionName; 3],
    table: PagedTable,
}

impl OneRecord {
    fn new(memory: Arc<MemoryCounters>) -> Self {
        let status = StatusTable::new(1, 3);
        let space = PageSpace::new(MIN_PAGE_BYTES, 10, 10, None).unwrap();
        let table = run_now(PagedTable::create(space, TableId(3), memory.clone())).unwrap();
        let names = [0, 1, 2].map(|context| status.begin(0, context));
        Self { memory, status, names, table }
    }

    /// Writes the record as a transaction that makes a change at each write.
    fn write(&self, begin: u64, name: usize, value: &[u8]) -> Result<ChangeRef, WriteRefusal> {
        let operation = reclaim::enter();
        // SAFETY: none of the transactions ends before the last write.
        let view = unsafe { View::new(Lsn(begin), self.names[name], &self.status) };
        let leaf = run_now(self.table.latch(b"key", Some(value.len()))).unwrap();
        let value = Some(SlotValue::Here(value));
        let push = |_: RecordBeforeWrite<'_>| WriteDecision::<()>::Push(0);
        match self.table.write(leaf, b"key", value, view, &operation, push)? {
            WriteResult::Pushed(change) => Ok(change),
            other => panic!("{other:?}"),
        }
    }

    fn reserved_bytes(&self) -> usize {
        run_now(self.table.tree().latch(b"key", LeafRoom::NONE)).unwrap().page().reserved_bytes()
    }
}

fn stamp(change: ChangeRef, stamp: Stamp) {
    // SAFETY: each is retired later, or with the table.
    unsafe { change.get() }.set_stamp(stamp);
}

/// A transaction shortens a record, lengthens it again after a savepoint, and rolls back to the
/// savepoint. Another transaction performs that rollback, and its own write is refused. The bytes
/// for undoing the first write must stay reserved.
#[test]
fn a_refused_write_after_a_rollback_keeps_room_for_undo() {
    with_limit(PART_SECONDS, |_| {
        let memory = Arc::new(MemoryCounters::new());
        let domain = Arc::new(Domain::new(1, memory.clone()));
        let me = domain.participate();
        let record = OneRecord::new(memory);
        stamp(record.write(100, 0, &[1; 32]).unwrap(), Stamp::committed(Lsn(100)));
        record.write(200, 1, &[2; 4]).unwrap();
        let behind = record.write(200, 1, &[3; 32]).unwrap();
        stamp(behind, Stamp::ABORTED);
        let refused = record.write(200, 2, &[4; 32]);
        assert!(matches!(refused, Err(WriteRefusal::Conflict)), "{refused:?}");
        let reserved = record.reserved_bytes();
        assert!(reserved >= 32 - 4, "{reserved} bytes are reserved");
        // SAFETY: rolled back above, and retired here only.
        unsafe { behind.retire_aborted(&record.memory) };
        drop(record);
        while me.turn() {}
    });
}

/// A transaction writes a record after each of many savepoints. A write does not visit the changes
/// of the earlier ones, and reserves room for the longest value that a rollback restores. The next
/// transaction does not reserve room for it.
#[test]
fn a_write_does_not_visit_earlier_changes_of_its_transaction() {
    const WRITES: u64 = 1000;
    with_limit(PART_SECONDS, |_| {
        let memory = Arc::new(MemoryCounters::new());
        let domain = Arc::new(Domain::new(1, memory.clone()));
        let me = domain.participate();
        let record = OneRecord::new(memory);
        stamp(record.write(100, 0, &[1; 32]).unwrap(), Stamp::committed(Lsn(100)));
        let before = links_followed();
        let changes: Vec<_> = (0..WRITES)
            .map(|number| {
                let change = record.write(200, 1, &[2; 16][..(4 + number % 8) as usize]).unwrap();
                let reserved = record.reserved_bytes();
                assert!(reserved >= 32 - 4 - (number % 8) as usize, "{reserved} bytes, {number}");
                change
            })
            .collect();
        let followed = links_followed() - before;
        assert!(followed <= 4 * WRITES, "{followed} links for {WRITES} writes");
        for change in changes {
            stamp(change, Stamp::committed(Lsn(300)));
        }
        record.write(400, 2, &[3; 4]).unwrap();
        let leaf = run_now(record.table.latch(b"key", None)).unwrap();
        let reserved = leaf.reserved_for(b"key").unwrap();
        assert!(reserved <= 16, "{reserved} bytes are reserved for a value of 11");
        drop(leaf);
        drop(record);
        while me.turn() {}
    });
}
