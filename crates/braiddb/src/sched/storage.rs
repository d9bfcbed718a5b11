//! Reads of storage inside tasks (MosaicDB §4.1).
//!
//! A task's read is queued with its worker, which submits it to its device and resumes the task's
//! slot when it completes. At most so many reads are under way at a time; those beyond wait in
//! order without being issued. Invariants: a ticket is in use from the first poll of its read to
//! the later of the read's completion and the drop of its future; a read whose future is gone still
//! owns its buffer and file until it completes.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::local::{Cause, local};
use crate::io::{AlignedBuffer, Completion, Device, File, Operation};

/// Marks the tokens of housekeeping's operations among those of a worker's device; the others are
/// tasks' reads.
pub(crate) const HOUSEKEEPING_TOKEN: u64 = 1 << 63;

/// Where a read stands.
#[derive(Debug)]
enum Ticket {
    Free,
    /// Not issued yet.
    Queued {
        slot: u32,
        operation: Operation,
    },
    Issued {
        slot: u32,
    },
    /// Its future is gone.
    Abandoned,
    Done(io::Result<usize>, AlignedBuffer),
}

/// A worker's reads.
#[derive(Debug)]
pub(super) struct Reads(RefCell<ReadsState>);

#[derive(Debug)]
struct ReadsState {
    tickets: Vec<Ticket>,
    free: Vec<usize>,
    /// Tickets to be issued, in order; those of futures that are gone are freed when met.
    queue: VecDeque<usize>,
    issued: usize,
    most: usize,
}

impl Reads {
    /// At most `most` reads are under way at a time.
    pub(super) fn new(most: usize) -> Self {
        let (tickets, free, queue) = Default::default();
        Self(RefCell::new(ReadsState { tickets, free, queue, issued: 0, most: most.max(1) }))
    }

    /// Whether a completion is that of a task's read.
    pub(super) fn owns(completion: &Completion) -> bool {
        completion.token & HOUSEKEEPING_TOKEN == 0
    }

    /// Reads issued and not completed.
    pub(super) fn issued(&self) -> usize {
        self.0.borrow().issued
    }

    /// Whether reads wait that could be issued now.
    pub(super) fn are_due(&self) -> bool {
        let state = self.0.borrow();
        !state.queue.is_empty() && state.issued < state.most
    }

    /// Submits what is due.
    pub(super) fn issue(&self, device: &mut dyn Device) {
        let state = &mut *self.0.borrow_mut();
        while state.issued < state.most
            && let Some(number) = state.queue.pop_front()
        {
            match std::mem::replace(&mut state.tickets[number], Ticket::Free) {
                Ticket::Queued { slot, operation } => {
                    state.tickets[number] = Ticket::Issued { slot };
                    state.issued += 1;
                    device.submit(operation, number as u64);
                }
                Ticket::Abandoned => state.free.push(number),
                other => unreachable!("a queued ticket is {other:?}"),
            }
        }
    }

    /// Takes the completion of a read; returns the slot to be resumed.
    pub(super) fn complete(&self, completion: Completion) -> Option<u32> {
        let state = &mut *self.0.borrow_mut();
        let number = completion.token as usize;
        state.issued -= 1;
        match std::mem::replace(&mut state.tickets[number], Ticket::Free) {
            Ticket::Issued { slot } => {
                let buffer = completion.buffer.expect("reads give their buffer back");
                state.tickets[number] = Ticket::Done(completion.result, buffer);
                Some(slot)
            }
            Ticket::Abandoned => {
                state.free.push(number);
                None
            }
            other => unreachable!("a completed read's ticket is {other:?}"),
        }
    }

    fn queue(&self, slot: u32, operation: Operation) -> usize {
        let state = &mut *self.0.borrow_mut();
        let number = state.free.pop().unwrap_or_else(|| {
            state.tickets.push(Ticket::Free);
            state.tickets.len() - 1
        });
        state.tickets[number] = Ticket::Queued { slot, operation };
        state.queue.push_back(number);
        number
    }

    fn take(&self, number: usize) -> Option<(io::Result<usize>, AlignedBuffer)> {
        let state = &mut *self.0.borrow_mut();
        if !matches!(state.tickets[number], Ticket::Done(..)) {
            return None;
        }
        let Ticket::Done(result, buffer) =
            std::mem::replace(&mut state.tickets[number], Ticket::Free)
        else {
            unreachable!("seen just now")
        };
        state.free.push(number);
        Some((result, buffer))
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

/// Reads into `buffer` from `offset` of a file; gives the buffer back with the bytes read.
///
/// # Panics
/// Off the workers.
pub(crate) fn read(file: Arc<File>, offset: u64, buffer: AlignedBuffer) -> StorageRead {
    StorageRead { state: ReadState::New(Operation::Read { file, offset, buffer }) }
}

/// A read of storage, to be awaited on a worker.
#[derive(Debug)]
#[must_use = "a read happens when it is awaited"]
pub(crate) struct StorageRead {
    state: ReadState,
}

#[derive(Debug)]
enum ReadState {
    New(Operation),
    Ticket(usize),
    Over,
}

impl Future for StorageRead {
    type Output = (io::Result<usize>, AlignedBuffer);

    fn poll(mut self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<Self::Output> {
        local(|local| {
            let local = local.expect("only a worker's tasks read storage");
            match std::mem::replace(&mut self.state, ReadState::Over) {
                ReadState::New(operation) => {
                    let number = local.reads.queue(local.slot.get(), operation);
                    self.state = ReadState::Ticket(number);
                }
                ReadState::Ticket(number) => match local.reads.take(number) {
                    Some(done) => return Poll::Ready(done),
                    None => self.state = ReadState::Ticket(number),
                },
                ReadState::Over => unreachable!("not polled again once it is over"),
            }
            local.cause.set(Cause::Storage);
            Poll::Pending
        })
    }
}

impl Drop for StorageRead {
    fn drop(&mut self) {
        if let ReadState::Ticket(number) = self.state {
            local(|local| local.expect("tasks are dropped on their worker").reads.abandon(number));
        }
    }
}
