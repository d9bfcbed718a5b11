//! Tests of committed copies of leaves, against a model of the committed records.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Listing;
use crate::common::{PART_SECONDS, with_limit};
use crate::io::SimulatedDisk;
use crate::log::{Log, LogOptions, Lsn};
use crate::memory::MemoryCounters;
use crate::page::bulk::BulkWriteRefusal;
use crate::page::layout::MIN_PAGE_BYTES;
use crate::page::space::PageSpace;
use crate::page::table::{PagedTable, RecordBeforeWrite, WriteDecision, WriteResult};
use crate::page::tree::LeafRoom;
use crate::page::value::{LargeRef, SlotValue};
use crate::page::versions::ChangeRef;
use crate::page::zone::RUN_SLOTS;
use crate::reclaim::{self, Domain};
use crate::rid::TableId;
use crate::sched::run_now;
use crate::version::{Stamp, StatusTable, TransactionName, View};

const TABLE: TableId = TableId(3);
const KEYS: u64 = 60;
const TRANSACTIONS: usize = 40;

/// A value, or the number of a large value.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Value {
    Here(Vec<u8>),
    Elsewhere(u64),
}

impl Value {
    fn as_slot(&self) -> SlotValue<'_> {
        match self {
            Self::Here(bytes) => SlotValue::Here(bytes),
            Self::Elsewhere(number) => SlotValue::Elsewhere(LargeRef::numbered(*number, 1000)),
        }
    }
}

/// A table with transactions in sequence, some of which are never decided.
struct Bench {
    table: PagedTable,
    memory: Arc<MemoryCounters>,
    status: StatusTable,
    tail: Lsn,
    begun: usize,
    random: fastrand::Rng,
    committed: BTreeMap<Vec<u8>, Value>,
    /// Large values of writes that are undecided, or aborted and not rolled back.
    uncommitted: BTreeSet<u64>,
    numbers: u64,
}

impl Bench {
    fn new(seed: u64, memory: Arc<MemoryCounters>) -> Self {
        let space = PageSpace::new(MIN_PAGE_BYTES, 500, 500, None).unwrap();
        let table = run_now(PagedTable::create(space, TABLE, memory.clone())).unwrap();
        run_now(table.make_large()).unwrap();
        let (committed, uncommitted, begun, numbers) = Default::default();
        let (status, tail) = (StatusTable::new(1, TRANSACTIONS + 2), Lsn(100));
        let random = fastrand::Rng::with_seed(seed);
        Self { table, memory, status, tail, begun, random, committed, uncommitted, numbers }
    }

    fn begin(&mut self) -> TransactionName {
        self.begun += 1;
        self.status.begin(0, self.begun - 1)
    }

    fn commit_lsn(&mut self, name: TransactionName) -> Lsn {
        let committing = self.status.committing(name);
        let lsn = self.tail;
        self.tail = Lsn(lsn.0 + 8);
        committing.drew(lsn);
        committing.committed();
        lsn
    }

    /// Returns random keys with new values.
    fn writes(&mut self, most: usize) -> BTreeMap<Vec<u8>, Option<Value>> {
        let mut writes = BTreeMap::new();
        for _ in 0..self.random.usize(1..most) {
            let key = self.random.u64(..KEYS);
            let key = format!("{:03}{}", key, "k".repeat(key as usize % 12)).into_bytes();
            let value = match self.random.u8(..8) {
                0 | 1 => None,
                2 => {
                    self.numbers += 1;
                    Some(Value::Elsewhere(self.numbers))
                }
                _ => Some(Value::Here(vec![self.random.u8(..); self.random.usize(..=32)])),
            };
            writes.insert(key, value);
        }
        writes
    }

    /// Runs a transaction that commits, aborts with or without rollback, or stays undecided.
    fn transact(&mut self) {
        let (name, writes) = (self.begin(), self.writes(12));
        let mut made: Vec<(Vec<u8>, Option<Value>, ChangeRef)> = Vec::new();
        for (key, value) in writes {
            let operation = reclaim::enter();
            // SAFETY: active, or never decided.
            let view = unsafe { View::new(self.tail, name, &self.status) };
            let is_deletion = value.is_none();
            let slot = value.as_ref().map(Value::as_slot);
            let leaf = run_now(self.table.latch(&key, slot.map(SlotValue::cell_bytes))).unwrap();
            let written = self.table.write(leaf, &key, slot, view, &operation, |before| {
                match is_deletion && !before.exists {
                    true => WriteDecision::Refuse(()),
                    false => WriteDecision::Push(0),
                }
            });
            // A write to a record with another transaction's undecided change is refused.
            if let Ok(WriteResult::Pushed(change)) = written {
                made.push((key, value, change));
            }
        }
        let stamp_all = |stamp| {
            // SAFETY: retired below, or with the table.
            made.iter().for_each(|(.., change)| unsafe { change.get() }.set_stamp(stamp));
        };
        match self.random.u8(..5) {
            0 | 1 => {
                let lsn = self.commit_lsn(name);
                stamp_all(Stamp::committed(lsn));
                for (key, value, _) in made {
                    self.committed_is(key, value);
                }
            }
            2 => {
                stamp_all(Stamp::ABORTED);
                for (key, _, change) in made {
                    let mut leaf = run_now(self.table.tree().latch(&key, LeafRoom::NONE)).unwrap();
                    self.table.roll_back_on(&mut leaf, &key, &self.status);
                    drop(leaf);
                    // SAFETY: rolled back, and retired here only.
                    unsafe { change.retire_aborted(&self.memory) };
                }
                self.status.aborted(name);
            }
            // These records are not written again, because the change stays in flight.
            3 => self.note_uncommitted(made.into_iter().map(|(_, value, _)| value)),
            _ => {
                let lsn = self.commit_lsn(name);
                // Committed, although some of its changes have no final stamp yet.
                assert!(lsn < self.tail);
                for (key, value, change) in made {
                    self.committed_is(key, value);
                    if self.random.bool() {
                        // SAFETY: retired with the table.
                        unsafe { change.get() }.set_stamp(Stamp::committed(lsn));
                    }
                }
            }
        }
    }

    /// Runs a bulk operation that commits, aborts or stays undecided.
    fn bulk(&mut self) {
        let (name, writes) = (self.begin(), self.writes(60));
        let epoch = self.table.bulk().epochs.begin(name);
        let mut made = Vec::new();
        for (key, value) in writes {
            let operation = reclaim::enter();
            // SAFETY: active, or never decided.
            let view = unsafe { View::new(self.tail, name, &self.status) };
            let is_deletion = value.is_none();
            let slot = value.as_ref().map(Value::as_slot);
            let mut bytes = slot.map(SlotValue::cell_bytes);
            loop {
                let (table, applies) = (&self.table, |exists, _| exists || !is_deletion);
                let leaf = run_now(table.latch(&key, bytes)).unwrap();
                match table.write_bulk(leaf, &key, slot, epoch, view, &operation, applies) {
                    Ok(_) => made.push((key, value)),
                    Err(BulkWriteRefusal::Conflict | BulkWriteRefusal::TooLong) => {}
                    Err(BulkWriteRefusal::NoRoom(needed)) => {
                        bytes = Some(needed);
                        continue;
                    }
                }
                break;
            }
        }
        match self.random.u8(..3) {
            0 => {
                let lsn = self.commit_lsn(name);
                self.table.bulk().epochs.decide(Stamp::committed(lsn));
                for (key, value) in made {
                    self.committed_is(key, value);
                }
            }
            1 => {
                self.table.bulk().epochs.decide(Stamp::ABORTED);
                self.status.aborted(name);
            }
            _ => self.note_uncommitted(made.into_iter().map(|(_, value)| value)),
        }
    }

    fn committed_is(&mut self, key: Vec<u8>, value: Option<Value>) {
        match value {
            Some(value) => _ = self.committed.insert(key, value),
            None => _ = self.committed.remove(&key),
        }
    }

    fn note_uncommitted(&mut self, values: impl Iterator<Item = Option<Value>>) {
        self.uncommitted.extend(values.flatten().filter_map(|value| match value {
            Value::Elsewhere(number) => Some(number),
            Value::Here(_) => None,
        }));
    }

    /// Compares copies of all leaves with the model. Returns how many more slots the leaves have
    /// than the copies.
    fn check(&mut self) -> usize {
        let me = self.begin();
        // SAFETY: active for as long as this runs.
        let view = unsafe { View::new(self.tail, me, &self.status) };
        let (mut low, mut found) = (Some(Vec::new()), BTreeMap::new());
        let (mut left_out, mut slots) = (BTreeSet::new(), 0);
        while let Some(key) = low.take() {
            let operation = reclaim::enter();
            let leaf = run_now(self.table.tree().latch(&key, LeafRoom::NONE)).unwrap();
            let copy = self.table.committed_copy(&leaf, view, &operation).unwrap();
            let page = copy.page.page();
            page.check();
            assert_eq!(page.find_disorder(), None);
            for place in 0..page.count() {
                let mut cell = Vec::new();
                page.copy_value(place, &mut cell);
                let value = match page.value_bytes(place) {
                    1000 => Value::Elsewhere(u64::from_le_bytes(cell[..].try_into().unwrap())),
                    _ => Value::Here(cell),
                };
                found.insert(page.key(place).to_vec(), value);
            }
            left_out.extend(copy.left_out.iter().map(|large| large.number()));
            slots += leaf.count();
            low = leaf.high_fence().map(|high| high.to_vec());
        }
        assert_eq!(found, self.committed);
        for value in self.committed.values() {
            if let Value::Elsewhere(number) = value {
                assert!(!left_out.contains(number), "a record has it");
            }
        }
        assert!(self.uncommitted.is_subset(&left_out), "no record may have it");
        self.status.aborted(me);
        slots - found.len()
    }
}

/// Transactions that are committed, in flight, or aborted with and without rollback, and a bulk
/// operation between them, on leaves that are split. Copies have the committed records, and report
/// the large values that they omit.
#[test]
fn copies_of_leaves_have_what_is_committed() {
    with_limit(PART_SECONDS, |_| {
        let mut left = 0;
        for seed in 0..300 {
            let memory = Arc::new(MemoryCounters::new());
            let domain = Arc::new(Domain::new(1, memory.clone()));
            let me = domain.participate();
            let mut bench = Bench::new(seed, memory);
            let with_bulk = bench.random.usize(..2 * (TRANSACTIONS - 10));
            for number in 0..TRANSACTIONS - 10 {
                if number == with_bulk {
                    bench.bulk();
                }
                bench.transact();
                if number % 8 == 7 {
                    left += bench.check();
                }
            }
            drop(bench);
            while me.turn() {}
        }
        assert!(left > 1000, "{left} slots were of what is not committed");
    });
}

/// Any number of leaves may have undecided records only. The walk examines few of them at a time
/// although it lists none, so that the worker can run other tasks.
#[test]
fn leaves_on_which_nothing_is_committed_are_looked_at_a_few_at_a_time() {
    with_limit(PART_SECONDS, |_| {
        let options = LogOptions { disk: Some(SimulatedDisk::new(1)), ..LogOptions::new("x", 1) };
        let log = Log::open(options).unwrap().0;
        let files = log.cold_store().unwrap().files();
        let memory = Arc::new(MemoryCounters::new());
        let domain = Arc::new(Domain::new(1, memory.clone()));
        let me = domain.participate();
        let space = PageSpace::new(MIN_PAGE_BYTES, 500, 500, Some(files)).unwrap();
        let table = run_now(PagedTable::create(space.clone(), TABLE, memory)).unwrap();
        let status = StatusTable::new(1, 2);
        let (writer, reader) = (status.begin(0, 0), status.begin(0, 1));
        // SAFETY: neither is decided as long as this runs.
        let view_of = |name| unsafe { View::new(Lsn(100), name, &status) };
        for key in 0..2000_u64 {
            let (key, value) = (key.to_be_bytes(), SlotValue::Here(&[7; 8]));
            let (operation, view) = (reclaim::enter(), view_of(writer));
            let leaf = run_now(table.latch(&key, Some(value.cell_bytes()))).unwrap();
            let push = |_: RecordBeforeWrite<'_>| WriteDecision::<()>::Push(0);
            let written = table.write(leaf, &key, Some(value), view, &operation, push);
            assert!(matches!(written, Ok(WriteResult::Pushed(_))));
        }
        let (leaves, mut looks) = (table.leaves() as usize, 1);
        assert!(leaves > 4 * RUN_SLOTS, "{leaves} leaves");
        let mut listing = Listing::begin(space).unwrap();
        let (mut walk, mut listed) = (table.walk_leaves(), Vec::new());
        while run_now(walk.list_some(&mut listing, view_of(reader), &mut listed)).unwrap() {
            looks += 1;
        }
        assert!(looks >= leaves / RUN_SLOTS, "{looks} looks at {leaves} leaves");
        assert_eq!(listed.len(), 1, "one image for all");
        drop((listing, table));
        while me.turn() {}
    });
}
