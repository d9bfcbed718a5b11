//! Test page for tests and models: latch, mapping table, chains and changes of the engine, over
//! slots of one word each. It implements the operations of transactions in the same way as `table`.

use std::sync::Arc;

use super::chain::{ChainBase, SeenValue, WalkEnd, WriteRefusal};
use super::change::ChangeRef;
use super::mapping::Mapping;
use crate::latch::{Latch, LatchGuard};
use crate::log::Lsn;
use crate::memory::MemoryCounters;
use crate::page::value::SlotValue;
use crate::planted::{Bug, is_planted};
use crate::reclaim::{self, Domain, OperationGuard};
use crate::rid::TableId;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::version::{Stamp, StatusTable, TransactionName, Undecided, View};

pub(super) const TABLE: TableId = TableId(7);
/// Slot value of a record that does not exist.
const ABSENT: u64 = u64::MAX;

/// A page and the state shared by its users. A record's key is its slot number, as one byte.
pub(super) struct TestPage {
    latch: Latch,
    slots: Box<[AtomicU64]>,
    mapping: AtomicU64,
    pub(super) status: StatusTable,
    /// The log, which is a counter here.
    pub(super) tail: AtomicU64,
    pub(super) domain: Arc<Domain>,
    /// Dropped after everything that was allocated with it.
    pub(super) memory: Arc<MemoryCounters>,
}

/// Result of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FoundRecord {
    pub(super) value: Option<u64>,
    pub(super) committed: Option<Lsn>,
    pub(super) below_newer: bool,
}

impl TestPage {
    pub(super) fn new(slots: &[Option<u64>], workers: usize, contexts: usize) -> Self {
        let memory = Arc::new(MemoryCounters::new());
        Self {
            latch: Latch::new(),
            slots: slots.iter().map(|value| AtomicU64::new(value.unwrap_or(ABSENT))).collect(),
            mapping: AtomicU64::new(0),
            status: StatusTable::new(workers, contexts),
            tail: AtomicU64::new(16),
            domain: Arc::new(Domain::new(workers, memory.clone())),
            memory,
        }
    }

    pub(super) fn tail(&self) -> Lsn {
        // SeqCst, as below: like the log's tail.
        Lsn(self.tail.load(Ordering::SeqCst))
    }

    /// Draws an LSN.
    pub(super) fn draw(&self) -> Lsn {
        Lsn(self.tail.fetch_add(8, Ordering::SeqCst))
    }

    pub(super) fn view(&self, begin: Lsn, me: TransactionName) -> View<'_> {
        // SAFETY: tests collect only what no begin stamp in use needs.
        unsafe { View::new(begin, me, &self.status) }
    }

    /// Latches the page for a change.
    pub(super) fn latch(&self) -> LatchGuard<'_> {
        loop {
            let version = self.latch.version().expect("never obsolete");
            if let Ok(mut latched) = self.latch.acquire(version) {
                latched.changed();
                return latched;
            }
        }
    }

    /// Returns the word that references the mapping table.
    pub(super) fn word(&self) -> u64 {
        // Acquire pairs with the Release in `set_word`.
        self.mapping.load(Ordering::Acquire)
    }

    fn set_word(&self, _latched: &LatchGuard<'_>, word: u64) {
        // Release pairs with the Acquire in `word`.
        self.mapping.store(word, Ordering::Release);
    }

    pub(super) fn slot(&self, key: u8) -> Option<u64> {
        // Relaxed: under the page's version or its latch.
        let value = self.slots[usize::from(key)].load(Ordering::Relaxed);
        (value != ABSENT).then_some(value)
    }

    fn set_slot(&self, key: u8, value: Option<u64>) {
        // Relaxed: under the page's latch.
        self.slots[usize::from(key)].store(value.unwrap_or(ABSENT), Ordering::Relaxed);
    }

    /// Reads a record once. Returns an error if the outcome is undecided, or the page has changed
    /// concurrently.
    pub(super) fn read(
        &self,
        key: u8,
        view: View<'_>,
        operation: &OperationGuard,
    ) -> Result<FoundRecord, Undecided> {
        let Ok(version) = self.latch.version() else { return Err(Undecided) };
        let value = self.slot(key);
        // SAFETY: loaded with Acquire under the guard.
        let start = unsafe { Mapping::start(self.word(), &[key], operation) };
        if self.latch.validate(version).is_err() {
            return Err(Undecided);
        }
        let start = if is_planted(Bug::ChainLookedUpAfterValidation) {
            // SAFETY: `word` loads with Acquire, under the guard.
            unsafe { Mapping::start(self.word(), &[key], operation) }
        } else {
            start
        };
        let WalkEnd { value: seen, committed, own, below_newer } = start.see(view)?;
        assert!(!own || committed.is_none() && seen == SeenValue::OnPage);
        let value = match seen {
            SeenValue::OnPage => value,
            SeenValue::Before(before) => before.map(number_of),
        };
        Ok(FoundRecord { value, committed, below_newer })
    }

    /// Writes a record, if the transaction may. Returns the new change, or `None` if the
    /// transaction's own earlier change covers the write.
    pub(super) fn write(
        &self,
        key: u8,
        value: Option<u64>,
        view: View<'_>,
        push_always: bool,
    ) -> Result<Option<ChangeRef>, WriteRefusal> {
        let operation = reclaim::enter();
        let latched = self.latch();
        self.roll_back(&latched, key);
        // SAFETY: latched.
        if let Some(chain) = unsafe { Mapping::find(self.word(), &[key]) } {
            // SAFETY: latched, and rolled back just now.
            let base = unsafe { chain.base(view, &operation) }?;
            match base {
                ChainBase::Own(change) if !push_always => {
                    assert_eq!(change.stamp(), Stamp::in_flight(view.me));
                    self.set_slot(key, value);
                    return Ok(None);
                }
                ChainBase::Committed(lsn) => assert!(lsn < view.begin),
                ChainBase::Own(_) | ChainBase::Settled => {}
            }
        }
        // SAFETY: latched.
        let (chain, word) =
            unsafe { Mapping::find_or_make(self.word(), &self.memory, TABLE, &[key]) };
        self.set_word(&latched, word);
        let before = self.slot(key).map(u64::to_le_bytes);
        let before = before.as_ref().map(<[u8; 8]>::as_slice);
        // SAFETY: latched from before the value is read until it is written.
        let change = unsafe {
            chain.push(&self.memory, Stamp::in_flight(view.me), before.map(SlotValue::Here), 0)
        };
        chain.note_on_page(value.map_or(0, |_| size_of::<u64>()));
        self.set_slot(key, value);
        Ok(Some(change))
    }

    /// Rolls back what aborted transactions wrote to a record.
    pub(super) fn roll_back(&self, _latched: &LatchGuard<'_>, key: u8) {
        // SAFETY: latched.
        let Some(chain) = (unsafe { Mapping::find(self.word(), &[key]) }) else { return };
        // SAFETY: latched.
        unsafe {
            chain.roll_back(&self.status, |before| self.set_slot(key, before.map(number_of)));
        }
    }

    /// Aborts changes of a transaction, each of a different record.
    pub(super) fn abort(&self, changes: &[(u8, ChangeRef)]) {
        for (_, change) in changes {
            // SAFETY: retired below, and nowhere else.
            unsafe { change.get() }.set_stamp(Stamp::ABORTED);
        }
        for (key, change) in changes {
            {
                let latched = self.latch();
                self.roll_back(&latched, *key);
            }
            // SAFETY: rolled back above, and retired here only.
            unsafe { change.retire_aborted(&self.memory) };
        }
    }

    /// Commits with the same order of steps as a transaction.
    pub(super) fn commit(&self, name: TransactionName, changes: &[(u8, ChangeRef)]) -> Lsn {
        let committing = self.status.committing(name);
        let lsn = self.draw();
        committing.drew(lsn);
        committing.committed();
        for (_, change) in changes {
            // SAFETY: retired by this transaction's collector, later.
            unsafe { change.get() }.set_stamp(Stamp::committed(lsn));
        }
        lsn
    }

    /// Creates an empty chain for a key.
    #[cfg(loom)]
    pub(super) fn make_chain(&self, latched: &LatchGuard<'_>, key: u8) {
        // SAFETY: latched.
        let (_, word) = unsafe { Mapping::find_or_make(self.word(), &self.memory, TABLE, &[key]) };
        self.set_word(latched, word);
    }

    /// Removes empty chains from the mapping table, and returns their number.
    pub(super) fn prune(&self) -> usize {
        let latched = self.latch();
        let mut gone = 0;
        // SAFETY: latched.
        let word = unsafe { Mapping::prune(self.word(), |_| gone += 1) };
        self.set_word(&latched, word);
        gone
    }
}

/// Decodes a value.
fn number_of(value: SlotValue<'_>) -> u64 {
    match value {
        SlotValue::Here(bytes) => number(bytes),
        SlotValue::Elsewhere(large) => unreachable!("no test has {large:?}"),
    }
}

pub(super) fn number(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().expect("values of eight bytes"))
}
