//! Writes of guests: a thread that is no worker writes one record in a separate transaction.
//!
//! A guest writes only what needs no wait: a record of a table in memory without secondary indexes
//! and expiry, if the write and its commit end in plain functions. Otherwise the attempt is undone,
//! and a worker runs the transaction. Results of guests never wait for the log, so guests write only
//! in databases without [`Durability::Group`].
//!
//! # Why this is a transaction like those of workers
//!
//! It uses the same functions, with the state of a worker that has no thread: a context with a name,
//! a mark of the log, a list of garbage. The place of the guest lends it that state
//! (`guest_places.rs`). Two publications differ:
//!
//! - *Epoch and horizon.* The admission of the guest publishes an epoch and the end of the log, and
//!   passes a fence. The begin stamp is read afterwards, so it is not earlier than the published
//!   bound. A task that waits for transactions which may have missed a change either sees the bound, or
//!   the guest sees the change, such as a new index or the drop of the table.
//! - *Readers.* The guest is not listed for the pruner. It follows no link below the head of a chain,
//!   and the pruner keeps heads.
//!
//! One operation needs no certification: a write that succeeds depends only on the version that it
//! replaces, and first-updater-wins protects that. A deletion that finds no record reads one snapshot.
//!
//! # Garbage
//!
//! Versions and nodes that the guest supersedes or unlinks stay with its place until a worker adopts
//! them. A guest that
//! finds too much there leaves the write to a worker, which wakes one that can adopt it.

use std::rc::Rc;
use std::sync::Arc;

use super::guest::Guest;
use crate::log::{self, MAX_GUEST_BLOCK_BYTES};
use crate::reclaim::GuestParticipant;
use crate::record::{MemoryRecords, Records};
use crate::sched::{Panic, contain};
use crate::transaction::commit::committing::UnfinishedCommit;
use crate::transaction::context::active_transaction::ActiveTransaction;
use crate::transaction::context::durability_level::Durability;
use crate::transaction::context::engine::Engine;
use crate::transaction::context::guest_places::{GuestPlaces, PlaceUse, max_guest_writers};
use crate::transaction::context::worker::WorkerTransactions;
use crate::transaction::context::write_intent::WriteIntent;

/// Maximum number of items in the list of garbage of one place.
const MAX_GARBAGE: usize = 1 << 14;

/// The state of a worker without a thread, for one guest at a time. Fields are dropped in order.
struct GuestWriter {
    participant: GuestParticipant,
    transactions: Rc<WorkerTransactions>,
}

// SAFETY: one thread at a time uses the state, under the lock of its place. References to it that are
// not counted atomically do not leave that thread: each write ends with one reference, which it
// asserts.
unsafe impl Send for GuestWriter {}

/// The guests that write to a database.
pub(crate) struct GuestWriters {
    engine: Arc<Engine>,
    places: GuestPlaces<GuestWriter>,
}

/// Result of an attempt: whether a record was written, or `None` if a worker must run the
/// transaction. It is an error if engine code panicked.
pub(crate) type GuestWrite = PlaceUse<Result<Option<bool>, Panic>>;

impl GuestWriters {
    pub(crate) fn new(engine: Arc<Engine>) -> Self {
        let first = engine.workers();
        let writer = |place| GuestWriter {
            participant: GuestParticipant::new(engine.domain.clone()),
            transactions: WorkerTransactions::new(engine.clone(), first + place),
        };
        let most = max_guest_writers(first, engine.durability, engine.read_only);
        let places = GuestPlaces::new((0..most).map(writer));
        Self { engine, places }
    }

    /// Returns whether guests may write at all.
    pub(crate) fn are_admitted(&self) -> bool {
        self.places.len() > 0
    }

    /// Writes a record on this thread. `None` if it cannot be a guest, or may not write this record.
    pub(crate) fn write(
        &self,
        records: &Records,
        key: &[u8],
        intent: WriteIntent<'_>,
        is_restricted: impl Fn() -> bool,
    ) -> Option<GuestWrite> {
        let table = self.writable(records, key, intent)?;
        let guest = self.engine.admit_guest_in(self.places.len())?;
        // After the admission, so that a caller who restricts writes waits for this guest otherwise.
        if is_restricted() {
            return None;
        }
        self.places.enter(guest.place(), |place| {
            let writer = place.as_ref().expect("the place is open");
            let written = contain(|| writer.write(&guest, (records, table), key, intent));
            if written.is_err() {
                // Memory cannot be trusted, so the state is leaked.
                std::mem::forget(place.take());
            }
            written
        })
    }

    /// The table, if a guest may write such a record.
    fn writable<'t>(
        &self,
        records: &'t Records,
        key: &[u8],
        intent: WriteIntent<'_>,
    ) -> Option<&'t MemoryRecords> {
        let value_bytes = intent.value().map_or(0, <[u8]>::len);
        let block_bytes = log::block_bytes(log::record_bytes(key.len(), value_bytes));
        let is_small =
            self.engine.durability == Durability::Volatile || block_bytes <= MAX_GUEST_BLOCK_BYTES;
        // Workers evict as fast as they allocate.
        let may_write = is_small && self.engine.owns(records) && !self.engine.memory_is_short();
        ActiveTransaction::plain_to_write(records).filter(|_| may_write)
    }

    /// Returns whether a worker must call `adopt` within a bounded time.
    #[inline(always)]
    pub(in crate::transaction) fn have_written(&self) -> bool {
        self.places.are_used()
    }

    /// Passes what guests have left to a worker, on its thread.
    pub(in crate::transaction) fn adopt(&self, worker: &WorkerTransactions) {
        self.places.visit(|guest| {
            guest.participant.pass_garbage();
            worker.garbage.borrow_mut().append(&mut guest.transactions.garbage.borrow_mut());
        });
        worker.memory.others_allocated.set(true);
        worker.pages.others_allocated.set(true);
    }

    /// Waits until no guest writes, and lets none begin.
    pub(crate) fn close(&self) {
        self.places.close();
    }
}

impl GuestWriter {
    /// Writes a record. `None` if a worker must do that; then nothing has changed.
    fn write(
        &self,
        guest: &Guest<'_>,
        (records, table): (&Records, &MemoryRecords),
        key: &[u8],
        intent: WriteIntent<'_>,
    ) -> Option<bool> {
        if self.transactions.garbage.borrow().len() >= MAX_GARBAGE {
            return None;
        }
        let _participant = self.participant.enter(guest.operation());
        let written = self.transactions.begin().ok().and_then(|transaction| {
            // A transaction that is dropped is undone.
            let written = match transaction.may_use(records) {
                true => transaction.write_plain(table, key, intent)?,
                false => return None,
            };
            match transaction.commit_at_once() {
                Ok(_) => Some(written),
                Err(UnfinishedCommit::Refused(..) | UnfinishedCommit::Untried(..)) => None,
                Err(UnfinishedCommit::Decided(..)) => unreachable!("no result waits for the log"),
            }
        });
        if self.transactions.engine().failure.has_begun() {
            // Nothing is undone any more.
            return None;
        }
        assert_eq!(self.transactions.active(), 0, "a guest ends its transaction");
        assert_eq!(Rc::strong_count(&self.transactions), 1, "no transaction is left");
        written
    }
}

impl Drop for GuestWriter {
    fn drop(&mut self) {
        let engine = self.transactions.engine();
        engine.leave(self.transactions.garbage.take(), Default::default());
    }
}
