//! Admission of large writes: such a write waits until eviction has made room for its value in the
//! memory budget.
//!
//! On each worker, one write at a time waits for room, in order of arrival. Its bytes count as
//! memory in use from then until it ends, so that versions and pages are evicted for them. Versions
//! can be evicted only once they are durable, so the write waits for the log, too. It is admitted
//! without room if eviction can free little more: a value that is larger than the memory for
//! records is written alone. The number of waits is bounded, because open transactions may hold
//! versions for any time. Only the first large write of a transaction waits: its own versions stay
//! in memory until it ends.
//!
//! No deadlock is possible. A waiting write waits only for the log, for turns of workers, and for
//! the write before it in line, which also waits only for these. If the caller does not poll that
//! one, `OrderedAdmission::unblock` admits another.

use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use crate::log::Lsn;
use crate::memory::MemoryKind;
use crate::sched::{self, WaitCause};
use crate::sync::clock;
use crate::transaction::context::active_transaction::ActiveTransaction;
use crate::transaction::context::durability_level::Durability;
use crate::transaction::context::worker::WorkerTransactions;
use crate::transaction::context::write_intent::WriteIntent;
use crate::transaction::memory::budget::Budget;
use crate::transaction::schedule::ordered_admission::AdmissionPermit;
use crate::transaction::schedule::waiters::{AwaitedEvent, LargeWrites};

/// Minimum size of a value that is admitted before it is written, or copied from resident pages.
/// Less than this is allocated between two measurements of the memory in use.
pub(super) const MIN_LARGE_BYTES: usize = 256 << 10;
/// Maximum number of waits of one write, and the number of these that last for one turn only.
const MAX_WAITS: u32 = 64;
const WAITS_OF_ONE_TURN: u32 = 8;
/// Duration of a wait for eviction, in which pages are written.
const EVICTION_DELAY: Duration = Duration::from_millis(1);

/// The right to wait for room, which one write of a worker has at a time.
struct FirstInLine<'w> {
    writes: &'w LargeWrites,
    _permit: AdmissionPermit,
}

/// The room for the value of a large write, until this is dropped.
#[derive(Debug)]
pub(super) struct LargeWriteRoom {
    worker: Rc<WorkerTransactions>,
    budget: Arc<Budget>,
    bytes: u64,
    /// False while the write waits for room.
    is_granted: bool,
}

impl<'w> FirstInLine<'w> {
    async fn wait(worker: &'w WorkerTransactions) -> Self {
        let writes = &worker.large_writes;
        Self { writes, _permit: writes.line.admit(1).await }
    }
}

impl Drop for FirstInLine<'_> {
    fn drop(&mut self) {
        // The next write in line waits for its own events.
        self.writes.awaited.set(None);
    }
}

impl LargeWriteRoom {
    /// Counts the bytes as memory in use.
    fn request(worker: &Rc<WorkerTransactions>, budget: &Arc<Budget>, bytes: u64) -> Self {
        worker.engine().memory.count(MemoryKind::Reading, bytes as i64);
        budget.add_waiting(bytes);
        Self { worker: worker.clone(), budget: budget.clone(), bytes, is_granted: false }
    }

    /// Grants the room if it exists, or if `waited` and eviction can free little more. Returns
    /// whether it is granted.
    fn try_grant(&mut self, waited: bool) -> bool {
        let engine = self.worker.engine();
        let may_evict_pages = || engine.shared_pages().is_some_and(|pages| pages.has_surplus());
        let alone = waited && !may_evict_pages();
        let beside = engine.bytes_outside_allocator();
        self.is_granted = self.budget.grant(self.bytes, &engine.memory, beside, alone);
        self.is_granted
    }

    /// Grants the room although it may not exist.
    fn grant(&mut self) {
        if !std::mem::replace(&mut self.is_granted, true) {
            self.budget.remove_waiting(self.bytes);
        }
    }
}

impl Drop for LargeWriteRoom {
    fn drop(&mut self) {
        self.grant();
        self.worker.engine().memory.count(MemoryKind::Reading, -(self.bytes as i64));
    }
}

impl WorkerTransactions {
    /// Called at every turn, like `OrderedAdmission::unblock`. Returns whether another turn must
    /// follow.
    pub(in crate::transaction) fn unblock_large_writes(&self, idle: bool) -> bool {
        let writes = &self.large_writes;
        let Some(awaited) = writes.awaited.get() else {
            return writes.line.unblock(idle);
        };
        let log = &self.engine().log;
        let has_occurred = match awaited {
            AwaitedEvent::Durable(lsn) => log.durable() >= lsn || log.poisoned().is_some(),
            AwaitedEvent::Time(time) => clock::now() >= time,
        };
        if has_occurred {
            // The write is ready now, if its caller polls it.
            writes.awaited.set(None);
        }
        has_occurred
    }
}

impl WriteIntent<'_> {
    /// Returns whether the write needs admission by its size.
    #[inline(always)]
    pub(super) fn is_large(&self) -> bool {
        self.value().is_some_and(|value| value.len() >= MIN_LARGE_BYTES)
    }
}

impl ActiveTransaction {
    /// Waits until memory has room for the value of a large write, for a bounded time. The caller
    /// keeps the result until the value is stored. Boxed, so that other writes do not carry its
    /// state.
    #[cold]
    pub(super) fn admit_large_write(
        &self,
        bytes: usize,
    ) -> Pin<Box<dyn Future<Output = Option<LargeWriteRoom>> + '_>> {
        Box::pin(async move {
            let (worker, engine) = (self.worker(), self.engine());
            let budget = engine.budget().filter(|_| engine.durability != Durability::Volatile)?;
            if std::mem::replace(&mut self.writes().borrow_mut().has_large, true) {
                return None;
            }
            let _first = FirstInLine::wait(worker).await;
            let mut room = LargeWriteRoom::request(worker, budget, bytes as u64);
            for wait in 0..MAX_WAITS {
                if room.try_grant(wait >= WAITS_OF_ONE_TURN) {
                    return Some(room);
                }
                let tail = engine.log.tail();
                if wait < WAITS_OF_ONE_TURN {
                    sched::yield_now(WaitCause::Memory).await;
                } else if engine.log.durable() < tail {
                    worker.large_writes.awaited.set(Some(AwaitedEvent::Durable(tail)));
                    if worker.wait_durable(Lsn(tail.0 - 1)).await.is_err() {
                        // The commit reports the error.
                        break;
                    }
                } else {
                    wait_for_eviction(worker).await;
                }
            }
            room.grant();
            Some(room)
        })
    }
}

async fn wait_for_eviction(worker: &WorkerTransactions) {
    let until = clock::now() + EVICTION_DELAY;
    let timer = worker.timers.set(until, sched::current_waiter().await);
    while !timer.is_over() {
        worker.large_writes.awaited.set(Some(AwaitedEvent::Time(until)));
        sched::park(WaitCause::BackOff).await;
    }
}
