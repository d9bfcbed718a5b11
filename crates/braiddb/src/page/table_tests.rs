//! Step-by-step tests of writes to records of paged tables.

use std::sync::Arc;

use super::space::PageSpace;
use super::table::{PagedTable, RecordBeforeWrite, WriteDecision, WriteResult};
use super::tree::LeafRoom;
use super::value::SlotValue;
use super::versions::{ChangeRef, WriteRefusal};
use crate::common::{PART_SECONDS, with_limit};
use crate::log::Lsn;
use crate::memory::MemoryCounters;
use crate::page::layout::MIN_PAGE_BYTES;
use crate::reclaim::{self, Domain};
use crate::rid::TableId;
use crate::sched::run_now;
use crate::version::{Stamp, StatusTable, View};

/// A transaction shortens a record, lengthens it again after a savepoint, and rolls back to the
/// savepoint. Another transaction performs that rollback, and its own write is refused. The bytes
/// for undoing the first write must stay reserved.
#[test]
fn a_refused_write_after_a_rollback_keeps_room_for_undo() {
    with_limit(PART_SECONDS, |_| {
        let memory = Arc::new(MemoryCounters::new());
        let domain = Arc::new(Domain::new(1, memory.clone()));
        let me = domain.participate();
        let status = StatusTable::new(1, 3);
        let space = PageSpace::new(MIN_PAGE_BYTES, 10, 10, None).unwrap();
        let table = run_now(PagedTable::create(space, TableId(3), memory.clone())).unwrap();
        let names = [0, 1, 2].map(|context| status.begin(0, context));
        let write = |begin: u64, name: usize, value: &[u8]| -> Result<ChangeRef, WriteRefusal> {
            let operation = reclaim::enter();
            // SAFETY: none of the transactions ends before the last write.
            let view = unsafe { View::new(Lsn(begin), names[name], &status) };
            let leaf = run_now(table.latch(b"key", Some(value.len()))).unwrap();
            let value = Some(SlotValue::Here(value));
            let push = |_: RecordBeforeWrite<'_>| WriteDecision::<()>::Push(0);
            match table.write(leaf, b"key", value, view, &operation, push)? {
                WriteResult::Pushed(change) => Ok(change),
                other => panic!("{other:?}"),
            }
        };
        // SAFETY: each is retired below, or with the table.
        let stamp = |change: ChangeRef, stamp| unsafe { change.get() }.set_stamp(stamp);
        stamp(write(100, 0, &[1; 32]).unwrap(), Stamp::committed(Lsn(100)));
        write(200, 1, &[2; 4]).unwrap();
        let behind = write(200, 1, &[3; 32]).unwrap();
        stamp(behind, Stamp::ABORTED);
        let refused = write(200, 2, &[4; 32]);
        assert!(matches!(refused, Err(WriteRefusal::Conflict)), "{refused:?}");
        {
            let leaf = run_now(table.tree().latch(b"key", LeafRoom::NONE)).unwrap();
            let reserved = leaf.page().reserved_bytes();
            assert!(reserved >= 32 - 4, "{reserved} bytes are reserved");
        }
        // SAFETY: rolled back above, and retired here only.
        unsafe { behind.retire_aborted(&memory) };
        drop(table);
        while me.turn() {}
    });
}
