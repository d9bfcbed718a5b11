//! Reads and writes of storage inside tasks (MosaicDB §4.1).
//!
//! A task's transfer is queued with its worker, which submits it to its device and resumes the task's
//! slot when it completes. At most so many are under way at a time; those beyond wait in order
//! without being issued, those of the engine's upkeep first. Invariants: a ticket is in use from the
//! first poll of its transfer to the later of the transfer's completion and the drop of its future; a
//! transfer whose future is gone still owns its buffer and file until it completes.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::local::{Cause, local};
use super::panics::FailOnPanic;
use super::waiter::Waiter;
use crate::io::{AlignedBuffer, Completion, Device, File, MappedPointer, Operation, WriteSource};

/// Marks the tokens of housekeeping's operations among those of a worker's device; the others are
/// tasks' transfers.
pub(crate) const HOUSEKEEPING_TOKEN: u64 = 1 << 63;

/// Where a transfer stands.
#[derive(Debug)]
enum Ticket {
    Free,
    /// Not issued yet.
    Queued {
        waiter: Waiter,
        operation: Operation,
    },
    Issued {
        waiter: Waiter,
    },
    /// Its future is gone.
    Abandoned,
    Done(Done),
}

/// How many bytes were moved, and a read's buffer.
type Done = (io::Result<usize>, Option<AlignedBuffer>);

/// A worker's transfers for its tasks.
#[derive(Debug)]
pub(super) struct Transfers(RefCell<TransfersState>);

#[derive(Debug)]
struct TransfersState {
    tickets: Vec<Ticket>,
    free: Vec<usize>,
    /// Tickets to be issued, in order; those of futures that are gone are freed when met.
    queue: VecDeque<usize>,
    issued: usize,
    most: usize,
}

impl Transfers {
    /// At most `most` are under way at a time.
    pub(super) fn new(most: usize) -> Self {
        let (tickets, free, queue) = Default::default();
        Self(RefCell::new(TransfersState { tickets, free, queue, issued: 0, most: most.max(1) }))
    }

    /// Whether a completion is that of a task's transfer.
    pub(super) fn owns(completion: &Completion) -> bool {
        completion.token & HOUSEKEEPING_TOKEN == 0
    }

    /// Transfers issued, and those that wait to be.
    pub(super) fn open(&self) -> usize {
        let state = self.0.borrow();
        state.issued + state.queue.len()
    }

    /// How many wait that could be issued now.
    pub(super) fn due(&self) -> usize {
        let state = self.0.borrow();
        state.queue.len().min(state.most - state.issued)
    }

    /// Submits what is due.
    pub(super) fn issue(&self, device: &mut dyn Device) {
        let state = &mut *self.0.borrow_mut();
        while state.issued < state.most
            && let Some(number) = state.queue.pop_front()
        {
            match std::mem::replace(&mut state.tickets[number], Ticket::Free) {
                Ticket::Queued { waiter, operation } => {
                    state.tickets[number] = Ticket::Issued { waiter };
                    state.issued += 1;
                    device.submit(operation, number as u64);
                }
                Ticket::Abandoned => state.free.push(number),
                other => unreachable!("a queued ticket is {other:?}"),
            }
        }
    }

    /// Takes the completion of a transfer; returns the task that is to be resumed.
    pub(super) fn complete(&self, completion: Completion) -> Option<Waiter> {
        let state = &mut *self.0.borrow_mut();
        let number = completion.token as usize;
        state.issued -= 1;
        match std::mem::replace(&mut state.tickets[number], Ticket::Free) {
            Ticket::Issued { waiter } => {
                state.tickets[number] = Ticket::Done((completion.result, completion.buffer));
                Some(waiter)
            }
            Ticket::Abandoned => {
                state.free.push(number);
                None
            }
            other => unreachable!("a completed transfer's ticket is {other:?}"),
        }
    }

    fn queue(&self, waiter: Waiter, operation: Operation, urgent: bool) -> usize {
        let state = &mut *self.0.borrow_mut();
        let number = state.free.pop().unwrap_or_else(|| {
            state.tickets.push(Ticket::Free);
            state.tickets.len() - 1
        });
        state.tickets[number] = Ticket::Queued { waiter, operation };
        if urgent {
            state.queue.push_front(number);
        } else {
            state.queue.push_back(number);
        }
        number
    }

    /// What came of a transfer; `None` if it is under way, and then `update` gets its waiter.
    fn take(&self, number: usize, update: impl FnOnce(&mut Waiter)) -> Option<Done> {
        let state = &mut *self.0.borrow_mut();
        match std::mem::replace(&mut state.tickets[number], Ticket::Free) {
            Ticket::Done(done) => {
                state.free.push(number);
                Some(done)
            }
            mut under_way => {
                if let Ticket::Queued { waiter, .. } | Ticket::Issued { waiter } = &mut under_way {
                    update(waiter);
                }
                state.tickets[number] = under_way;
                None
            }
        }
    }

    fn abandon(&self, number: usize) {
        let state = &mut *self.0.borrow_mut();
        match state.tickets[number] {
            Ticket::Queued { .. } | Ticket::Issued { .. } => {
                state.tickets[number] = Ticket::Abandoned;
            }
            Ticket::Done(..) => {
                state.tickets[number] = Ticket::Free;
                state.free.push(number);
            }
            Ticket::Free | Ticket::Abandoned => unreachable!("a future has its ticket"),
        }
    }
}

/// Transfers of this worker's tasks that are under way or wait to be.
///
/// # Panics
/// Off the workers.
pub(crate) fn transfers() -> usize {
    local(|local| local.expect("transfers are a worker's").transfers.open())
}

/// Reads into `buffer` from `offset` of a file; gives the buffer back with the bytes read.
///
/// # Panics
/// Off the workers.
pub(crate) async fn read(
    file: Arc<File>,
    offset: u64,
    buffer: AlignedBuffer,
) -> (io::Result<usize>, AlignedBuffer) {
    let (result, buffer) = Transfer::new(Operation::Read { file, offset, buffer }).await;
    (result, buffer.expect("reads give their buffer back"))
}

/// Writes all of `buffer` at `offset` of a file; it is durable after the next [`sync`].
///
/// # Panics
/// Off the workers.
pub(crate) async fn write(file: Arc<File>, offset: u64, buffer: AlignedBuffer) -> io::Result<()> {
    let source = WriteSource::Buffer(buffer);
    let (result, _) = Transfer::new(Operation::Write { file, offset, source, sync: false }).await;
    result.map(drop)
}

/// As [`write()`], of bytes that others hold too: they stay, with all that `mapping` is, until the write completes,
/// whatever becomes of this future.
///
/// # Panics
/// Off the workers.
#[cfg_attr(loom, expect(dead_code, reason = "models have no files"))]
pub(crate) async fn write_shared<M: AsRef<[u8]> + Send + Sync + 'static>(
    file: Arc<File>,
    offset: u64,
    mapping: Arc<M>,
) -> io::Result<()> {
    let bytes = (*mapping).as_ref();
    let (pointer, bytes) = (MappedPointer(bytes.as_ptr()), bytes.len());
    let source = WriteSource::Mapped { mapping, pointer, bytes };
    let (result, _) = Transfer::new(Operation::Write { file, offset, source, sync: false }).await;
    result.map(drop)
}

/// Makes what was written to a file durable.
///
/// # Panics
/// Off the workers.
pub(crate) async fn sync(file: Arc<File>) -> io::Result<()> {
    Transfer::new(Operation::Sync { file }).await.0.map(drop)
}

/// A transfer from or to storage, to be awaited on a worker.
#[derive(Debug)]
#[must_use = "a transfer happens when it is awaited"]
struct Transfer {
    state: TransferState,
}

impl Transfer {
    fn new(operation: Operation) -> Self {
        Self { state: TransferState::New(operation) }
    }
}

#[derive(Debug)]
enum TransferState {
    New(Operation),
    Ticket(usize),
    Over,
}

impl Future for Transfer {
    type Output = Done;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        local(|local| {
            let local = local.expect("only a worker's tasks reach storage");
            match std::mem::replace(&mut self.state, TransferState::Over) {
                TransferState::New(operation) => {
                    let waiter = Waiter::polled(local, context);
                    let number = local.transfers.queue(waiter, operation, local.urgent.get());
                    self.state = TransferState::Ticket(number);
                }
                TransferState::Ticket(number) => {
                    let update = |waiter: &mut Waiter| waiter.update(local, context);
                    if let Some(done) = local.transfers.take(number, update) {
                        return Poll::Ready(done);
                    }
                    self.state = TransferState::Ticket(number);
                }
                TransferState::Over => unreachable!("not polled again once it is over"),
            }
            local.suspend(Cause::Storage);
            Poll::Pending
        })
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        if let TransferState::Ticket(number) = self.state {
            let fail_on_panic = FailOnPanic::new();
            local(|local| {
                local.expect("tasks are dropped on their worker").transfers.abandon(number)
            });
            fail_on_panic.disarm();
        }
    }
}
