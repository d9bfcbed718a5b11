//! Blocking device, for systems where io_uring is forbidden. The submitting thread performs every
//! operation immediately, in `submit`.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::notify::EventFd;
use super::transfer::{OperationProgress, SystemCall};
use super::{Completion, Device, Notify, Operation};

/// Performs operations by blocking calls.
#[derive(Debug)]
pub(super) struct BlockingDevice {
    event: Arc<EventFd>,
    completed: VecDeque<Completion>,
}

impl BlockingDevice {
    pub(super) fn new() -> std::io::Result<Self> {
        Ok(Self { event: Arc::new(EventFd::new(true)?), completed: VecDeque::new() })
    }
}

/// Makes one call. Returns the bytes moved, or a negative error number.
fn perform(descriptor: i32, call: &SystemCall) -> i32 {
    let answer = match *call {
        // SAFETY: the transfer owns `bytes` writable bytes at `pointer`, exclusively.
        SystemCall::Read { pointer, bytes, offset } => unsafe {
            libc::pread(descriptor, pointer.cast(), bytes, offset as libc::off_t)
        },
        SystemCall::Write { pointer, bytes, offset, sync } => {
            let part = libc::iovec { iov_base: pointer.cast_mut().cast(), iov_len: bytes };
            let flags = if sync { libc::RWF_DSYNC } else { 0 };
            // SAFETY: the transfer keeps `bytes` readable bytes at `pointer`; the call only reads.
            unsafe { libc::pwritev2(descriptor, &raw const part, 1, offset as libc::off_t, flags) }
        }
        // SAFETY: takes no pointers.
        SystemCall::Sync => unsafe { libc::fdatasync(descriptor) as libc::ssize_t },
    };
    if answer < 0 {
        return -std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO);
    }
    i32::try_from(answer).expect("calls are shorter than 2 GiB")
}

impl Device for BlockingDevice {
    fn submit(&mut self, operation: Operation, token: u64) {
        let mut transfer = OperationProgress::new(operation, token);
        let result = match transfer.open(false) {
            Ok(descriptor) => {
                let descriptor = descriptor.expect("opened without waiting");
                loop {
                    let call = transfer.call();
                    if let Some(result) = transfer.advance(perform(descriptor, &call)) {
                        break result;
                    }
                }
            }
            Err(error) => Err(error),
        };
        self.completed.push_back(transfer.finish(result));
    }

    fn poll(&mut self, deliver: &mut dyn FnMut(Completion)) {
        while let Some(completion) = self.completed.pop_front() {
            deliver(completion);
        }
    }

    fn wait(&mut self, timeout: Option<Duration>, deliver: &mut dyn FnMut(Completion)) {
        if self.completed.is_empty() {
            let mut event =
                libc::pollfd { fd: self.event.descriptor(), events: libc::POLLIN, revents: 0 };
            // Rounded up, because a wait of less than a millisecond would return immediately and
            // spin.
            let milliseconds = timeout.map_or(-1, |timeout| {
                i32::try_from(timeout.as_micros().div_ceil(1000)).unwrap_or(i32::MAX)
            });
            // SAFETY: one descriptor, which stays valid through the call. An error, or an
            // interruption, is a spurious wake-up, which callers expect.
            unsafe { libc::poll(&raw mut event, 1, milliseconds) };
            self.event.take();
        }
        self.poll(deliver);
    }

    fn outstanding(&self) -> usize {
        self.completed.len()
    }

    fn notifier(&self) -> Arc<dyn Notify> {
        self.event.clone()
    }
}
