//! Storage transfers of a worker's tasks: tickets, order, limit (MosaicDB §4.1).
//!
//! A task's transfer is queued with its worker. The worker submits it to its device, and resumes
//! the task's slot when it completes. The number of transfers in flight is limited; the others wait
//! in order without being issued, with those of the engine's upkeep first. Invariants: a ticket is
//! in use from the first poll of its transfer until both the transfer has completed and its future
//! is dropped. A transfer whose future was dropped still owns its buffer and file until it
//! completes.
//!
//! A *detached* transfer finishes even if every operation that waits for it is dropped. It has a
//! callback for its result, which the worker runs between its tasks. A worker that must stop waits
//! for detached transfers. If the engine fails, callbacks that have not run are leaked.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::task::Context;

use super::local::WorkerLocal;
use super::waiter::Waiter;
use crate::io::{AlignedBuffer, Completion, Device, Operation};

/// Marks the device tokens of housekeeping operations; the others belong to tasks' transfers.
pub(crate) const HOUSEKEEPING_TOKEN: u64 = 1 << 63;

/// The state of a transfer.
#[derive(Debug)]
enum TransferTicket {
    Free,
    /// Not issued yet.
    Queued {
        completion: OnCompletion,
        operation: Operation,
    },
    Issued {
        completion: OnCompletion,
    },
    /// The future was dropped.
    Abandoned,
    Done(TransferResult),
}

/// The number of transferred bytes, and a read's buffer.
pub(super) type TransferResult = (io::Result<usize>, Option<AlignedBuffer>);

/// Receives the result of a detached transfer, on the worker.
pub(super) type CompletionCallback = Box<dyn FnOnce(TransferResult)>;

/// The action after a transfer has completed.
pub(super) enum OnCompletion {
    WakeTask { waiter: Waiter, urgent: bool },
    Callback { callback: CompletionCallback, is_ordinary: bool },
}

impl std::fmt::Debug for OnCompletion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::WakeTask { waiter, .. } => waiter.fmt(f),
            Self::Callback { .. } => f.write_str("a callback"),
        }
    }
}

/// The transfers of a worker's tasks.
#[derive(Debug)]
pub(super) struct Transfers {
    state: RefCell<TransfersState>,
    /// True if detached transfers may have completed without their callbacks having run; checked in
    /// every round.
    has_completed: Cell<bool>,
}

#[derive(Debug)]
struct TransfersState {
    tickets: Vec<TransferTicket>,
    free: Vec<usize>,
    /// Tickets to issue, in order. Tickets of dropped futures are freed when they are reached.
    queue: VecDeque<usize>,
    issued: usize,
    most: usize,
    /// Transfers that are not urgent and that tasks wait for, including detached reads.
    ordinary: usize,
    /// Detached transfers that have not completed, or whose callbacks have not run.
    detached: usize,
    completed: VecDeque<CompletedTransfer>,
}

/// A detached transfer that has completed.
struct CompletedTransfer {
    callback: CompletionCallback,
    done: TransferResult,
    is_ordinary: bool,
}

impl std::fmt::Debug for CompletedTransfer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Completed").field("done", &self.done).finish_non_exhaustive()
    }
}

impl Transfers {
    /// Limits the transfers in flight to `most`.
    pub(super) fn new(most: usize) -> Self {
        let (tickets, free, queue, completed) = Default::default();
        let (issued, ordinary, detached, most) = (0, 0, 0, most.max(1));
        let state =
            TransfersState { tickets, free, queue, issued, most, ordinary, detached, completed };
        Self { state: RefCell::new(state), has_completed: Cell::new(false) }
    }

    /// Returns whether a completion belongs to a task's transfer.
    pub(super) fn owns(completion: &Completion) -> bool {
        completion.token & HOUSEKEEPING_TOKEN == 0
    }

    /// Returns the number of issued and queued transfers.
    #[cfg(all(test, not(loom)))]
    pub(super) fn open(&self) -> usize {
        let state = self.state.borrow();
        state.issued + state.queue.len()
    }

    /// Returns the number of transfers that transactions wait for, including detached page loads,
    /// and excluding the engine's upkeep.
    pub(super) fn ordinary(&self) -> usize {
        self.state.borrow().ordinary
    }

    /// Returns the number of queued transfers that could be issued now.
    pub(super) fn due(&self) -> usize {
        let state = self.state.borrow();
        state.queue.len().min(state.most - state.issued)
    }

    /// Submits the transfers that are due.
    pub(super) fn issue(&self, device: &mut dyn Device) {
        let state = &mut *self.state.borrow_mut();
        while state.issued < state.most
            && let Some(number) = state.queue.pop_front()
        {
            match std::mem::replace(&mut state.tickets[number], TransferTicket::Free) {
                TransferTicket::Queued { completion, operation } => {
                    state.tickets[number] = TransferTicket::Issued { completion };
                    state.issued += 1;
                    device.submit(operation, number as u64);
                }
                TransferTicket::Abandoned => state.free.push(number),
                other => unreachable!("a queued ticket is {other:?}"),
            }
        }
    }

    /// Handles the completion of a transfer. Returns the task to resume.
    pub(super) fn complete(&self, completion: Completion) -> Option<Waiter> {
        let state = &mut *self.state.borrow_mut();
        let number = completion.token as usize;
        state.issued -= 1;
        match std::mem::replace(&mut state.tickets[number], TransferTicket::Free) {
            TransferTicket::Issued { completion: OnCompletion::WakeTask { waiter, urgent } } => {
                state.ordinary -= usize::from(!urgent);
                state.tickets[number] =
                    TransferTicket::Done((completion.result, completion.buffer));
                Some(waiter)
            }
            TransferTicket::Issued {
                completion: OnCompletion::Callback { callback, is_ordinary },
            } => {
                state.free.push(number);
                let done = (completion.result, completion.buffer);
                state.completed.push_back(CompletedTransfer { callback, done, is_ordinary });
                self.has_completed.set(true);
                None
            }
            TransferTicket::Abandoned => {
                state.free.push(number);
                None
            }
            other => unreachable!("a completed transfer's ticket is {other:?}"),
        }
    }

    /// Runs the callbacks of detached transfers that have completed.
    #[inline]
    pub(super) fn run_callbacks(&self) {
        if self.has_completed.replace(false) {
            self.run_callbacks_of_completed();
        }
    }

    #[cold]
    fn run_callbacks_of_completed(&self) {
        loop {
            let next = self.state.borrow_mut().completed.pop_front();
            let Some(CompletedTransfer { callback, done, is_ordinary }) = next else { break };
            callback(done);
            let mut state = self.state.borrow_mut();
            state.detached -= 1;
            state.ordinary -= usize::from(is_ordinary);
        }
    }

    /// Leaks callbacks that have not run, after the engine has failed: they would return state to
    /// the engine that cannot be trusted.
    pub(super) fn leak(&self) {
        let state = &mut *self.state.borrow_mut();
        std::mem::forget(std::mem::take(&mut state.completed));
        for ticket in &mut state.tickets {
            if let TransferTicket::Queued { completion: OnCompletion::Callback { .. }, .. }
            | TransferTicket::Issued { completion: OnCompletion::Callback { .. } } = ticket
            {
                std::mem::forget(std::mem::replace(ticket, TransferTicket::Abandoned));
            }
        }
    }

    /// Returns whether detached transfers exist whose callbacks have not run.
    pub(super) fn has_detached(&self) -> bool {
        self.state.borrow().detached > 0
    }

    pub(super) fn queue(
        &self,
        completion: OnCompletion,
        operation: Operation,
        urgent: bool,
    ) -> usize {
        let state = &mut *self.state.borrow_mut();
        match &completion {
            OnCompletion::Callback { is_ordinary, .. } => {
                state.detached += 1;
                state.ordinary += usize::from(*is_ordinary);
            }
            OnCompletion::WakeTask { urgent, .. } => state.ordinary += usize::from(!urgent),
        }
        let number = state.free.pop().unwrap_or_else(|| {
            state.tickets.push(TransferTicket::Free);
            state.tickets.len() - 1
        });
        state.tickets[number] = TransferTicket::Queued { completion, operation };
        if urgent {
            state.queue.push_front(number);
        } else {
            state.queue.push_back(number);
        }
        number
    }

    /// Returns the result of a transfer, if it has ended.
    pub(super) fn take(&self, number: usize) -> Option<TransferResult> {
        let state = &mut *self.state.borrow_mut();
        match std::mem::replace(&mut state.tickets[number], TransferTicket::Free) {
            TransferTicket::Done(done) => {
                state.free.push(number);
                Some(done)
            }
            under_way => {
                state.tickets[number] = under_way;
                None
            }
        }
    }

    /// Returns whether the future polled with `context` is the registered waiter of a transfer in
    /// flight.
    pub(super) fn is_awaited(
        &self,
        number: usize,
        local: &WorkerLocal,
        context: &Context<'_>,
    ) -> bool {
        let state = &mut *self.state.borrow_mut();
        state.waiter(number).is_polled(local, context)
    }

    /// Registers another waiter for a transfer in flight, and returns the previous one. Both may be
    /// users' wakers, whose code may do anything, so they are neither created nor dropped here.
    pub(super) fn replace_waiter(&self, number: usize, waiter: Waiter) -> Waiter {
        std::mem::replace(self.state.borrow_mut().waiter(number), waiter)
    }

    pub(super) fn abandon(&self, number: usize) {
        let mut state = self.state.borrow_mut();
        let given_up = std::mem::replace(&mut state.tickets[number], TransferTicket::Abandoned);
        match &given_up {
            TransferTicket::Queued { completion, .. } | TransferTicket::Issued { completion } => {
                if let OnCompletion::WakeTask { urgent: false, .. } = completion {
                    state.ordinary -= 1;
                }
            }
            TransferTicket::Done(..) => {
                state.tickets[number] = TransferTicket::Free;
                state.free.push(number);
            }
            TransferTicket::Free | TransferTicket::Abandoned => {
                unreachable!("a future has its ticket")
            }
        }
        drop(state);
        // Its waiter may be a user's waker, whose code may do anything.
        drop(given_up);
    }
}

impl TransfersState {
    fn waiter(&mut self, number: usize) -> &mut Waiter {
        match &mut self.tickets[number] {
            TransferTicket::Queued {
                completion: OnCompletion::WakeTask { waiter, .. }, ..
            }
            | TransferTicket::Issued { completion: OnCompletion::WakeTask { waiter, .. } } => {
                waiter
            }
            other => unreachable!("a task's transfer is under way, and its ticket is {other:?}"),
        }
    }
}
