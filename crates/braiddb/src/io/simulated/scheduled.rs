//! Device of the simulated disk for one of several workers, in a controlled schedule. An operation
//! is due at a virtual time that depends on the seed, and a thread that waits for it passes the
//! baton to another thread.

use std::sync::Arc;
use std::time::Duration;

use super::super::transfer::OperationProgress;
use super::super::{Completion, Device, Notify, Operation};
use super::SimulatedDisk;
use super::in_flight::InFlightOperation;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::controlled;

/// Delay of an operation in microseconds, for each unit of delay in the disk's faults.
const DELAY_MICROSECONDS: u64 = 60;

/// Device of one worker.
#[derive(Debug)]
pub(super) struct ScheduledDevice {
    disk: SimulatedDisk,
    number: usize,
    wake: Arc<ScheduledNotify>,
}

/// Wakes the device.
#[derive(Debug)]
struct ScheduledNotify {
    notified: AtomicBool,
    resource: usize,
}

impl Notify for ScheduledNotify {
    fn notify(&self) {
        self.notified.store(true, Ordering::SeqCst);
        controlled::announce(self.resource);
    }
}

fn now() -> u64 {
    controlled::virtual_now().expect("a thread that takes part")
}

impl ScheduledDevice {
    pub(super) fn new(disk: SimulatedDisk) -> Self {
        let resource = controlled::new_resource();
        let number = {
            let mut state = disk.0.state.lock();
            state.operations.devices += 1;
            state.operations.devices
        };
        Self {
            disk,
            number,
            wake: Arc::new(ScheduledNotify { notified: AtomicBool::new(false), resource }),
        }
    }

    fn perform(&self, deliver: &mut dyn FnMut(Completion)) -> bool {
        let mut completions = Vec::new();
        let mut state = self.disk.0.state.lock();
        let now = now();
        state.operations.clock = state.operations.clock.max(now);
        while let Some(place) = state.operations.next_of(self.number, now) {
            completions.extend(state.perform(place));
        }
        drop(state);
        let any = !completions.is_empty();
        completions.into_iter().for_each(deliver);
        any
    }
}

impl Device for ScheduledDevice {
    fn submit(&mut self, operation: Operation, token: u64) {
        let mut state = self.disk.0.state.lock();
        let due = now() + state.delay() * DELAY_MICROSECONDS;
        let transfer = OperationProgress::new(operation, token);
        let number = state.operations.next_number();
        let device = self.number;
        state.operations.under_way.push(InFlightOperation { transfer, due, number, device });
    }

    fn poll(&mut self, deliver: &mut dyn FnMut(Completion)) {
        controlled::device_point();
        self.perform(deliver);
    }

    fn wait(&mut self, timeout: Option<Duration>, deliver: &mut dyn FnMut(Completion)) {
        controlled::device_point();
        let timeout = timeout.map(|timeout| now() + timeout.as_micros() as u64);
        loop {
            if self.wake.notified.swap(false, Ordering::SeqCst) {
                self.perform(deliver);
                return;
            }
            if self.perform(deliver) {
                return;
            }
            let now = now();
            if timeout.is_some_and(|timeout| timeout <= now) {
                return;
            }
            let due = self.disk.0.state.lock().operations.first_due(self.number);
            let deadline = [timeout, due].into_iter().flatten().min();
            // The flag is checked again: a notification since the first check was announced before
            // this thread waits.
            if self.wake.notified.load(Ordering::SeqCst) {
                continue;
            }
            let patience = deadline.map(|deadline| deadline.saturating_sub(now));
            controlled::wait_for(self.wake.resource, patience);
        }
    }

    fn outstanding(&self) -> usize {
        self.disk.0.state.lock().operations.outstanding(self.number)
    }

    fn notifier(&self) -> Arc<dyn Notify> {
        self.wake.clone()
    }
}

impl Drop for ScheduledDevice {
    fn drop(&mut self) {
        while self.outstanding() > 0 {
            self.wait(None, &mut drop);
        }
    }
}
