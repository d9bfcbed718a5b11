//! io_uring device: submissions are batched into one system call, and completions are read from
//! shared memory.
//!
//! Invariants:
//!
//! - A transfer is in `transfers` from `submit` until its completion is delivered, so the kernel
//!   never accesses freed memory.
//! - `in_kernel` of the transfers, at most [`RING_ENTRIES`], are in the kernel. The others wait in
//!   `queued`, or in `failed` if their file cannot be opened.
//! - A transfer waits for a descriptor only while others of the same device are in the kernel. The
//!   completion of one of these allows it to continue.
//! - Whenever the thread sleeps, a read of the event is in the ring, so a notification is a normal
//!   completion.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use io_uring::types::{Fd, FsyncFlags, SubmitArgs, Timespec};
use io_uring::{IoUring, opcode, squeue};

use super::notify::EventFd;
use super::transfer::{OperationProgress, SystemCall};
use super::{Completion, Device, Notify, Operation};

/// Maximum number of operations in the kernel; the completion ring has room for twice as many.
const RING_ENTRIES: u32 = 256;
/// Token of the event's read; other completions have the index of their transfer.
const EVENT: u64 = u64::MAX;

/// Ring of one worker.
pub(super) struct UringDevice {
    ring: IoUring,
    transfers: Vec<Option<OperationProgress>>,
    free: Vec<usize>,
    queued: VecDeque<usize>,
    /// Transfers whose file cannot be opened; their errors are delivered next.
    failed: Vec<(usize, std::io::Error)>,
    in_kernel: usize,
    outstanding: usize,
    event: Arc<EventFd>,
    /// Destination of the event's read; boxed, because the kernel writes to it.
    event_count: Box<u64>,
    event_armed: bool,
    /// A notification arrived outside `wait`; the next `wait` returns immediately.
    notified: bool,
}

impl UringDevice {
    pub(super) fn new() -> std::io::Result<Self> {
        // With these flags, completions are processed when the thread enters the kernel. A flag in
        // shared memory requests that, instead of an interrupt.
        let cooperative =
            IoUring::builder().setup_coop_taskrun().setup_taskrun_flag().build(RING_ENTRIES);
        let ring = match cooperative {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => IoUring::new(RING_ENTRIES)?,
            made => made?,
        };
        if !ring.params().is_feature_ext_arg() {
            return Err(std::io::Error::from(std::io::ErrorKind::Unsupported));
        }
        Ok(Self {
            ring,
            transfers: Vec::new(),
            free: Vec::new(),
            queued: VecDeque::new(),
            failed: Vec::new(),
            in_kernel: 0,
            outstanding: 0,
            event: Arc::new(EventFd::new(false)?),
            event_count: Box::new(0),
            event_armed: false,
            notified: false,
        })
    }

    /// Returns the submission entry of a transfer's next call.
    fn entry(transfer: &mut OperationProgress, descriptor: Fd, place: usize) -> squeue::Entry {
        let entry = match transfer.call() {
            SystemCall::Read { pointer, bytes, offset } => {
                opcode::Read::new(descriptor, pointer, bytes as u32).offset(offset).build()
            }
            SystemCall::Write { pointer, bytes, offset, sync } => {
                let flags = if sync { libc::RWF_DSYNC } else { 0 };
                opcode::Write::new(descriptor, pointer, bytes as u32)
                    .offset(offset)
                    .rw_flags(flags)
                    .build()
            }
            SystemCall::Sync => opcode::Fsync::new(descriptor).flags(FsyncFlags::DATASYNC).build(),
        };
        entry.user_data(place as u64)
    }

    /// Fills the submission ring from the queue.
    fn push(&mut self) {
        while self.in_kernel < RING_ENTRIES as usize
            && let Some(&place) = self.queued.front()
        {
            let transfer = self.transfers[place].as_mut().expect("queued transfers exist");
            let descriptor = match transfer.open(self.in_kernel > 0) {
                Ok(Some(descriptor)) => Fd(descriptor),
                Ok(None) => return,
                Err(error) => {
                    self.queued.pop_front();
                    self.failed.push((place, error));
                    continue;
                }
            };
            let entry = Self::entry(transfer, descriptor, place);
            // SAFETY: file and memory stay in `transfers` until the completion.
            if unsafe { self.ring.submission().push(&entry) }.is_err() {
                return;
            }
            self.queued.pop_front();
            self.in_kernel += 1;
        }
    }

    fn arm_event(&mut self) {
        if self.event_armed {
            return;
        }
        let descriptor = Fd(self.event.descriptor());
        let entry = opcode::Read::new(descriptor, (&raw mut *self.event_count).cast(), 8)
            .build()
            .user_data(EVENT);
        // SAFETY: `event_count` and the event outlive the ring: `drop` waits.
        self.event_armed = unsafe { self.ring.submission().push(&entry) }.is_ok();
    }

    /// Ends a transfer.
    fn finish(
        &mut self,
        place: usize,
        result: std::io::Result<usize>,
        deliver: &mut dyn FnMut(Completion),
    ) {
        let transfer = self.transfers[place].take().expect("a transfer ends once");
        self.free.push(place);
        self.outstanding -= 1;
        deliver(transfer.finish(result));
    }

    /// Delivers completed transfers, and continues short ones.
    fn reap(&mut self, deliver: &mut dyn FnMut(Completion)) {
        for (place, error) in std::mem::take(&mut self.failed) {
            self.finish(place, Err(error), deliver);
        }
        loop {
            let Some(entry) = self.ring.completion().next() else { break };
            if entry.user_data() == EVENT {
                self.event_armed = false;
                self.notified = true;
                continue;
            }
            let place = entry.user_data() as usize;
            assert!(self.in_kernel > 0, "completions are of transfers in the kernel");
            self.in_kernel -= 1;
            let transfer = self.transfers[place].as_mut().expect("the transfer is still here");
            match transfer.advance(entry.result()) {
                None => self.queued.push_back(place),
                Some(result) => self.finish(place, result, deliver),
            }
        }
    }

    fn must_enter(&mut self) -> bool {
        let submissions = self.ring.submission();
        !submissions.is_empty() || submissions.taskrun() || submissions.cq_overflow()
    }
}

impl Device for UringDevice {
    fn submit(&mut self, operation: Operation, token: u64) {
        let transfer = Some(OperationProgress::new(operation, token));
        let place = self.free.pop().unwrap_or(self.transfers.len());
        if place == self.transfers.len() {
            self.transfers.push(transfer);
        } else {
            assert!(self.transfers[place].is_none(), "free places are empty");
            self.transfers[place] = transfer;
        }
        self.outstanding += 1;
        self.queued.push_back(place);
    }

    fn poll(&mut self, deliver: &mut dyn FnMut(Completion)) {
        if self.outstanding == 0 {
            return;
        }
        self.push();
        if self.must_enter() {
            // After an error (busy, interrupted) the submissions stay in the ring for the next
            // call.
            _ = self.ring.submit();
        }
        self.reap(deliver);
    }

    fn wait(&mut self, timeout: Option<Duration>, deliver: &mut dyn FnMut(Completion)) {
        self.arm_event();
        self.push();
        if self.notified || !self.failed.is_empty() {
            self.notified = false;
            if self.must_enter() {
                _ = self.ring.submit();
            }
            self.reap(deliver);
            return;
        }
        // Errors (timed out, busy, interrupted) are spurious wake-ups.
        _ = match timeout {
            None => self.ring.submit_and_wait(1),
            Some(timeout) => {
                let timeout = Timespec::from(timeout);
                let arguments = SubmitArgs::new().timespec(&timeout);
                self.ring.submitter().submit_with_args(1, &arguments)
            }
        };
        self.reap(deliver);
        self.notified = false;
    }

    fn outstanding(&self) -> usize {
        self.outstanding
    }

    fn notifier(&self) -> Arc<dyn Notify> {
        self.event.clone()
    }
}

impl Drop for UringDevice {
    fn drop(&mut self) {
        // The kernel may still write to the transfers' memory, so it is freed only after all
        // transfers have ended, which each of them will.
        while self.outstanding > 0 {
            self.wait(None, &mut drop);
        }
        self.event.notify();
        while self.event_armed {
            _ = self.ring.submit_and_wait(1);
            self.reap(&mut drop);
        }
    }
}

impl std::fmt::Debug for UringDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "UringDevice({} outstanding)", self.outstanding)
    }
}
