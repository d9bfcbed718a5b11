//! Device of the simulated disk: performs operations in an order that depends on the seed, some
//! while tasks run, and the others when the worker would sleep.

use std::sync::Arc;
use std::time::Duration;

use super::super::transfer::{OperationProgress, SystemCall};
use super::super::{Completion, Device, Notify, Operation};
use super::in_flight::InFlightOperation;
use super::{SimulatedDisk, SimulatedDiskState, TIMEOUTS};

impl SimulatedDisk {
    /// Creates the device of the only worker or, in a controlled schedule, of one of several
    /// workers.
    pub(crate) fn device(&self) -> Box<dyn Device> {
        #[cfg(braid_simulation)]
        if crate::sync::controlled::takes_part() {
            return Box::new(super::scheduled::ScheduledDevice::new(self.clone()));
        }
        Box::new(SimulatedDevice::new(self.clone()))
    }
}

impl SimulatedDiskState {
    pub(super) fn delay(&mut self) -> u64 {
        1 + u64::from(self.random.u32(0..=self.faults.max_delay))
    }

    /// Performs one call of an operation that is due. Returns the completion if the operation has
    /// ended.
    pub(super) fn perform(&mut self, index: usize) -> Option<Completion> {
        let mut operation = self.operations.under_way.swap_remove(index);
        let Some(file) = operation.transfer.file().simulated_number() else {
            let answer = self.sync(None).map(|()| 0);
            return self.performed(operation, answer);
        };
        let answer = match operation.transfer.call() {
            SystemCall::Read { pointer, bytes, offset } => {
                // SAFETY: the transfer owns `bytes` writable bytes at `pointer`, exclusively.
                let into = unsafe { std::slice::from_raw_parts_mut(pointer, bytes) };
                self.read(file, offset, into)
            }
            SystemCall::Write { pointer, bytes, offset, sync } => {
                // SAFETY: the transfer keeps `bytes` bytes at `pointer` unchanged.
                let from = unsafe { std::slice::from_raw_parts(pointer, bytes) };
                self.write(file, offset, from, sync)
            }
            SystemCall::Sync => self.sync(Some(file)).map(|()| 0),
        };
        self.performed(operation, answer)
    }

    fn performed(
        &mut self,
        mut operation: InFlightOperation,
        answer: std::io::Result<usize>,
    ) -> Option<Completion> {
        let answer = match answer {
            Ok(bytes) => i32::try_from(bytes).expect("calls are shorter than 2 GiB"),
            Err(error) => -error.raw_os_error().expect("simulated errors have numbers"),
        };
        let completion = match operation.transfer.advance(answer) {
            None => {
                operation.due = self.operations.clock + self.delay();
                self.operations.under_way.push(operation);
                None
            }
            Some(result) => {
                let last = &mut self.operations.last_performed;
                self.counts.reordered += u64::from(operation.number < *last);
                *last = operation.number.max(*last);
                Some(operation.transfer.finish(result))
            }
        };
        self.happened();
        completion
    }
}

/// Device of the worker on a simulated disk.
#[derive(Debug)]
pub(crate) struct SimulatedDevice {
    disk: SimulatedDisk,
}

/// Wakes the device.
struct SimulatedNotify(SimulatedDisk);

impl Notify for SimulatedNotify {
    fn notify(&self) {
        self.0.0.state.lock().notified = true;
        self.0.0.notified.notify_all();
    }
}

impl SimulatedDevice {
    pub(super) fn new(disk: SimulatedDisk) -> Self {
        let mut state = disk.0.state.lock();
        assert!(!state.attached, "a simulated disk has one worker at a time");
        (state.attached, state.asleep, state.notified) = (true, false, false);
        drop(state);
        Self { disk }
    }

    /// Performs the operations that are due at `tick`.
    fn perform(
        &self,
        tick: impl FnOnce(&mut SimulatedDiskState) -> u64,
        deliver: &mut dyn FnMut(Completion),
    ) {
        let mut completions = Vec::new();
        let mut state = self.disk.0.state.lock();
        let tick = tick(&mut state);
        while let Some(index) = state.operations.next(tick) {
            completions.extend(state.perform(index));
        }
        drop(state);
        completions.into_iter().for_each(deliver);
    }
}

impl Device for SimulatedDevice {
    fn submit(&mut self, operation: Operation, token: u64) {
        let mut state = self.disk.0.state.lock();
        let due = state.operations.clock + state.delay();
        let number = state.operations.next_number();
        let transfer = OperationProgress::new(operation, token);
        state.operations.under_way.push(InFlightOperation {
            transfer,
            due,
            number,
            #[cfg(braid_simulation)]
            device: 0,
        });
    }

    fn poll(&mut self, deliver: &mut dyn FnMut(Completion)) {
        if self.outstanding() == 0 {
            return;
        }
        let tick = |state: &mut SimulatedDiskState| {
            state.operations.clock += 1;
            state.operations.clock
        };
        self.perform(tick, deliver);
    }

    fn wait(&mut self, timeout: Option<Duration>, deliver: &mut dyn FnMut(Completion)) {
        let mut state = self.disk.0.state.lock();
        if state.operations.under_way.is_empty() {
            if timeout.is_some() && state.timeouts_left > 0 {
                state.timeouts_left -= 1;
                return;
            }
            state.asleep = true;
            self.disk.0.settled.notify_all();
            while !state.notified {
                self.disk.0.notified.wait(&mut state);
            }
            (state.asleep, state.notified) = (false, false);
            state.timeouts_left = TIMEOUTS;
            return;
        }
        drop(state);
        let tick = |state: &mut SimulatedDiskState| {
            let under_way = &state.operations.under_way;
            let next = under_way.iter().map(|operation| operation.due).min();
            state.operations.clock = next.unwrap_or(0).max(state.operations.clock);
            state.operations.clock
        };
        self.perform(tick, deliver);
    }

    fn outstanding(&self) -> usize {
        self.disk.0.state.lock().operations.under_way.len()
    }

    fn notifier(&self) -> Arc<dyn Notify> {
        Arc::new(SimulatedNotify(self.disk.clone()))
    }
}

impl Drop for SimulatedDevice {
    fn drop(&mut self) {
        while self.outstanding() > 0 {
            self.wait(None, &mut drop);
        }
        self.disk.0.state.lock().attached = false;
        self.disk.0.settled.notify_all();
    }
}
