//! Storage reads and writes inside tasks; `transfers.rs` describes their life.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::local::{WorkerLocal, local};
use super::panics::engine_call;
use super::services::services;
use super::transfers::{OnCompletion, TransferResult, Transfers};
use super::wait_cause::WaitCause;
use super::waiter::Waiter;
use crate::io::{AlignedBuffer, File, MappedPointer, Operation, WriteSource};

/// Returns the number of queued and running transfers of this worker's tasks.
///
/// # Panics
/// Outside a worker.
#[cfg(all(test, not(loom)))]
pub(super) fn transfers() -> usize {
    with_transfers(|_, transfers| transfers.open())
}

/// Returns the number of transfers that this worker's transactions wait for, excluding the engine's
/// [`upkeep`](super::upkeep).
///
/// # Panics
/// Outside a worker.
pub(crate) fn ordinary_transfers() -> usize {
    with_transfers(|_, transfers| transfers.ordinary())
}

/// Reads from `offset` of a file into `buffer`. Returns the buffer and the number of bytes read.
///
/// # Panics
/// Outside a worker.
pub(crate) async fn read(
    file: Arc<File>,
    offset: u64,
    buffer: AlignedBuffer,
) -> (io::Result<usize>, AlignedBuffer) {
    let (result, buffer) = Transfer::new(Operation::Read { file, offset, buffer }).await;
    (result, buffer.expect("reads give their buffer back"))
}

/// Writes all of `buffer` at `offset` of a file. The data is durable after the next [`sync`].
///
/// # Panics
/// Outside a worker.
pub(crate) async fn write(file: Arc<File>, offset: u64, buffer: AlignedBuffer) -> io::Result<()> {
    let source = WriteSource::Buffer(buffer);
    let (result, _) = Transfer::new(Operation::Write { file, offset, source, sync: false }).await;
    result.map(drop)
}

/// Starts a detached read from `offset` of a file into `buffer`. When it has completed, this worker
/// calls `then`, between its tasks, with the number of bytes read and the buffer.
///
/// # Panics
/// Outside a worker.
#[cfg_attr(loom, expect(dead_code, reason = "models have no files"))]
pub(crate) fn read_then(
    file: Arc<File>,
    offset: u64,
    buffer: AlignedBuffer,
    then: impl FnOnce(io::Result<usize>, AlignedBuffer) + 'static,
) {
    begin_detached(Operation::Read { file, offset, buffer }, move |(result, buffer)| {
        then(result, buffer.expect("reads give their buffer back"));
    });
}

/// Starts a detached write of all bytes of `mapping`, which must stay until it has completed, at
/// `offset` of a file. `then` is called as in [`read_then`].
///
/// # Panics
/// Outside a worker.
#[cfg_attr(loom, expect(dead_code, reason = "models have no files"))]
pub(crate) fn write_then<M: AsRef<[u8]> + Send + Sync + 'static>(
    file: Arc<File>,
    offset: u64,
    mapping: Arc<M>,
    then: impl FnOnce(io::Result<()>) + 'static,
) {
    let bytes = (*mapping).as_ref();
    let (pointer, bytes) = (MappedPointer(bytes.as_ptr()), bytes.len());
    let source = WriteSource::Mapped { mapping, pointer, bytes };
    begin_detached(Operation::Write { file, offset, source, sync: false }, |(result, _)| {
        then(result.map(drop));
    });
}

fn begin_detached(operation: Operation, callback: impl FnOnce(TransferResult) + 'static) {
    with_transfers(|local, transfers| {
        let urgent = local.urgent.get();
        let is_ordinary = !urgent && matches!(operation, Operation::Read { .. });
        let completion = OnCompletion::Callback { callback: Box::new(callback), is_ordinary };
        transfers.queue(completion, operation, urgent);
    });
}

/// Makes earlier writes to a file durable.
///
/// # Panics
/// Outside a worker.
pub(crate) async fn sync(file: Arc<File>) -> io::Result<()> {
    Transfer::new(Operation::Sync { file }).await.0.map(drop)
}

/// A transfer from or to storage, to await on a worker.
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
    type Output = TransferResult;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        with_transfers(|local, transfers| {
            match std::mem::replace(&mut this.state, TransferState::Over) {
                TransferState::New(operation) => {
                    let waiter = Waiter::polled(local, context);
                    let urgent = local.urgent.get();
                    let completion = OnCompletion::WakeTask { waiter, urgent };
                    let number = transfers.queue(completion, operation, urgent);
                    this.state = TransferState::Ticket(number);
                }
                TransferState::Ticket(number) => {
                    if let Some(done) = transfers.take(number) {
                        return Poll::Ready(done);
                    }
                    if !transfers.is_awaited(number, local, context) {
                        let waiter = Waiter::polled(local, context);
                        drop(transfers.replace_waiter(number, waiter));
                    }
                    this.state = TransferState::Ticket(number);
                }
                TransferState::Over => unreachable!("not polled again once it is over"),
            }
            local.suspend(WaitCause::Storage);
            Poll::Pending
        })
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        if let TransferState::Ticket(number) = self.state {
            engine_call(|| with_transfers(|_, transfers| transfers.abandon(number)));
        }
    }
}

/// Calls `look` with this thread's worker state and its transfers.
fn with_transfers<R>(look: impl FnOnce(&WorkerLocal, &Transfers) -> R) -> R {
    local(|local| {
        services(|services| match (local, services) {
            (Some(local), Some(services)) => look(local, &services.transfers),
            _ => panic!("only a worker's tasks reach storage"),
        })
    })
}
