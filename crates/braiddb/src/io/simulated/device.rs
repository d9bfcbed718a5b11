//! Device of the simulated disk: performs operations in an order that depends on the seed, some
//! while tasks run, and the others when the worker would sleep.

use std::sync::Arc;
use std::time::Duration;

use super::super::transfer::{OperationProgress, SystemCall};
use super::super::{Completion, Device, Notify, Operation};
use super::{
    HandleTarget, SECTOR_BYTES, SimulatedDisk, SimulatedDiskState, UnwrittenSectors, nodes,
};

/// Number of waits with a timeout that return immediately, without virtual time passing, before one
/// lasts until a wake-up. Otherwise a task that waits only for time would loop forever.
pub(super) const TIMEOUTS: u32 = 4;

/// An operation in flight.
#[derive(Debug)]
pub(super) struct InFlightOperation {
    pub(super) transfer: OperationProgress,
    /// Tick at which it is performed.
    pub(super) due: u64,
    /// Submission number.
    pub(super) number: u64,
    /// Device to which it was submitted.
    #[cfg(braid_simulation)]
    pub(super) device: usize,
}

/// Operations in flight of a device.
#[derive(Debug, Default)]
pub(super) struct InFlightOperations {
    pub(super) under_way: Vec<InFlightOperation>,
    submitted: u64,
    last_performed: u64,
    pub(super) clock: u64,
    /// Number of devices of controlled schedules so far; the device without a schedule has number
    /// 0.
    #[cfg(braid_simulation)]
    pub(super) devices: usize,
}

impl InFlightOperations {
    /// Returns the sectors that writes in flight will write.
    pub(super) fn unwritten(&self) -> UnwrittenSectors {
        let mut unwritten = UnwrittenSectors::new();
        for operation in &self.under_way {
            if let Some((file, offset, bytes)) = operation.transfer.unwritten() {
                let HandleTarget::File(file) = file.node().target else { continue };
                let first = (offset / SECTOR_BYTES as u64) as usize;
                let sectors = nodes::sectors(bytes).enumerate();
                let offsets = sectors.map(|(number, sector)| (first + number, sector));
                unwritten.entry(file).or_default().extend(offsets);
            }
        }
        unwritten
    }

    /// Returns the next submission number.
    pub(super) fn next_number(&mut self) -> u64 {
        self.submitted += 1;
        self.submitted
    }

    /// Returns the due time of a device's first operation.
    #[cfg(braid_simulation)]
    pub(super) fn first_due(&self, device: usize) -> Option<u64> {
        let of_device = self.under_way.iter().filter(|operation| operation.device == device);
        of_device.map(|operation| operation.due).min()
    }

    /// Returns the number of a device's operations in flight.
    #[cfg(braid_simulation)]
    pub(super) fn outstanding(&self, device: usize) -> usize {
        self.under_way.iter().filter(|operation| operation.device == device).count()
    }

    /// Returns the index of a device's operation that is performed next, if one is due at `tick`.
    #[cfg(braid_simulation)]
    pub(super) fn next_of(&self, device: usize, tick: u64) -> Option<usize> {
        let due = |&index: &usize| (self.under_way[index].due, self.under_way[index].number);
        let of_device = |index: &usize| self.under_way[*index].device == device;
        let next = (0..self.under_way.len()).filter(of_device).min_by_key(due)?;
        (self.under_way[next].due <= tick).then_some(next)
    }

    /// Returns the index of the operation that is performed next, if one is due at `tick`.
    fn next(&self, tick: u64) -> Option<usize> {
        let due = |&index: &usize| (self.under_way[index].due, self.under_way[index].number);
        let next = (0..self.under_way.len()).min_by_key(due)?;
        (self.under_way[next].due <= tick).then_some(next)
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
        let HandleTarget::File(file) = operation.transfer.file().node().target else {
            let answer = self.sync(HandleTarget::Names).map(|()| 0);
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
            SystemCall::Sync => self.sync(HandleTarget::File(file)).map(|()| 0),
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
