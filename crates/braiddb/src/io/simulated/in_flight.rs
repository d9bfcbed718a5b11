//! Operations in flight on a simulated disk.

use std::collections::BTreeMap;

use super::super::SECTOR_BYTES;
use super::super::transfer::OperationProgress;
use super::nodes;

/// Unwritten sectors of files, by file.
pub(super) type UnwrittenSectors = BTreeMap<usize, Vec<(usize, nodes::Sector)>>;

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
    pub(super) last_performed: u64,
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
                let Some(file) = file.simulated_number() else { continue };
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
    pub(super) fn next(&self, tick: u64) -> Option<usize> {
        let due = |&index: &usize| (self.under_way[index].due, self.under_way[index].number);
        let next = (0..self.under_way.len()).min_by_key(due)?;
        (self.under_way[next].due <= tick).then_some(next)
    }
}
