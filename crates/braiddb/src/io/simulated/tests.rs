//! Tests of the data that the simulated disk keeps and loses.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::*;
use crate::common::{PART_SECONDS, with_limit};
use crate::io::{AlignedBuffer, Completion, Device, Directory, Operation, WriteSource};

const CRASHES: u64 = 400;

fn sector(byte: u8) -> AlignedBuffer {
    let mut sector = AlignedBuffer::zeroed(SECTOR_BYTES);
    sector.fill(byte);
    sector
}

/// Returns the disk after several crashes that follow `act`.
fn crashes(act: impl FnOnce(&Directory)) -> Vec<SimulatedDisk> {
    let disk = SimulatedDisk::new(1);
    let directory = Directory::open_simulated(&disk).unwrap();
    act(&directory);
    let state = disk.0.state.lock();
    let moment = DiskMoment { operation: 0, nodes: &state.nodes, operations: &state.operations };
    (0..CRASHES).map(|seed| moment.crash(seed, &mut CrashCounts::default())).collect()
}

/// Returns the first byte of a file, if the file exists and is not empty.
fn first_byte(disk: &SimulatedDisk, name: &str) -> Option<u8> {
    let directory = Directory::open_simulated(disk).unwrap();
    let file = directory.open_file(name, OpenMode::Existing).ok()?;
    let mut buffer = sector(0xff);
    (file.read_at(&mut buffer, 0).unwrap() > 0).then(|| buffer[0])
}

#[test]
fn synced_data_survives_a_crash() {
    with_limit(PART_SECONDS, |_| {
        let disks = crashes(|directory| {
            let file = directory.open_file("f", OpenMode::Emptied).unwrap();
            file.write_all_at(&sector(7), 0).unwrap();
            file.sync().unwrap();
            directory.sync().unwrap();
        });
        assert!(disks.iter().all(|disk| first_byte(disk, "f") == Some(7)));
    });
}

#[test]
fn unsynced_data_may_survive_a_crash() {
    with_limit(PART_SECONDS, |_| {
        let disks = crashes(|directory| {
            let file = directory.open_file("f", OpenMode::Emptied).unwrap();
            file.write_all_at(&sector(1), 0).unwrap();
            file.sync().unwrap();
            directory.sync().unwrap();
            file.write_all_at(&sector(2), 0).unwrap();
        });
        let found: BTreeSet<_> = disks.iter().map(|disk| first_byte(disk, "f")).collect();
        assert_eq!(found, BTreeSet::from([Some(1), Some(2)]));
    });
}

#[test]
fn names_are_lost_without_a_sync_of_the_directory() {
    with_limit(PART_SECONDS, |_| {
        let disks = crashes(|directory| {
            let file = directory.open_file("a", OpenMode::Emptied).unwrap();
            file.write_all_at(&sector(3), 0).unwrap();
            file.sync().unwrap();
            directory.sync().unwrap();
            directory.rename("a", "b").unwrap();
        });
        let names = |disk: &SimulatedDisk| disk.files().into_iter().map(|(name, _)| name).collect();
        let found: BTreeSet<Vec<String>> = disks.iter().map(names).collect();
        assert_eq!(found, BTreeSet::from([vec!["a".to_owned()], vec!["b".to_owned()]]));
    });
}

#[test]
fn in_flight_writes_are_sometimes_torn() {
    with_limit(PART_SECONDS, |_| {
        let disk = SimulatedDisk::new(1);
        let directory = Directory::open_simulated(&disk).unwrap();
        let file = Arc::new(directory.open_file("f", OpenMode::Emptied).unwrap());
        directory.sync().unwrap();
        let mut device = disk.device();
        let source = WriteSource::Buffer(sector(5));
        device.submit(Operation::Write { file: file.clone(), offset: 0, source, sync: true }, 1);
        let mut counts = CrashCounts::default();
        {
            let state = disk.0.state.lock();
            let moment =
                DiskMoment { operation: 0, nodes: &state.nodes, operations: &state.operations };
            for seed in 0..CRASHES {
                _ = moment.crash(seed, &mut counts);
            }
        }
        assert!(counts.torn > 0 && counts.dropped > 0 && counts.kept > 0, "{counts:?}");
        finish(&mut *device);
        let mut buffer = sector(0);
        file.read_exact_at(&mut buffer, 0).unwrap();
        assert!(buffer.iter().all(|byte| *byte == 5));
    });
}

fn finish(device: &mut dyn Device) -> Vec<Completion> {
    let mut completions = Vec::new();
    while device.outstanding() > 0 {
        device.wait(None, &mut |completion| completions.push(completion));
    }
    completions
}

#[test]
fn every_fault_strikes() {
    with_limit(PART_SECONDS, |_| {
        let disk = SimulatedDisk::new(1);
        let directory = Directory::open_simulated(&disk).unwrap();
        let file = Arc::new(directory.open_file("f", OpenMode::Emptied).unwrap());
        disk.set_faults(Faults {
            errors: 10,
            failed_syncs: 10,
            short_transfers: 4,
            max_delay: 9,
            capacity: 60,
            metadata: 0,
            failing_write: 3,
            full_for: 3,
        });
        let mut device = disk.device();
        for number in 0..400u64 {
            let (file, offset) = (file.clone(), number % 64 * SECTOR_BYTES as u64);
            let buffer = AlignedBuffer::zeroed(4 * SECTOR_BYTES);
            let operation = match number % 3 {
                0 => Operation::Read { file, offset, buffer },
                1 => Operation::Sync { file },
                _ => Operation::Write {
                    file,
                    offset,
                    source: WriteSource::Buffer(buffer),
                    sync: true,
                },
            };
            device.submit(operation, number);
        }
        assert_eq!(finish(&mut *device).len(), 400);
        let counts = disk.counts();
        let all = [
            counts.reordered,
            counts.short_reads,
            counts.short_writes,
            counts.read_errors,
            counts.write_errors,
            counts.failed_syncs,
            counts.full,
        ];
        assert!(all.iter().all(|count| *count > 0), "{counts:?}");
    });
}
