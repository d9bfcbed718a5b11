//! The log on real files: written, reopened, damaged, failed.

mod corruption;
mod failure;
pub(crate) mod format;
mod full_disk;
mod growth;
mod read_ahead;
mod reopen;
mod speed;
mod threads;
mod trackers;

use std::path::Path;
use std::time::{Duration, Instant};

use super::flush::FlushTurn;
use super::*;
use crate::io::{Completion, Device, DeviceKind, open_device};
use crate::rid::{Rid, TableId};

const SMALL_SEGMENT: u64 = 256 << 10;

/// Keys and values of each block.
type Found = Vec<Vec<(Vec<u8>, Vec<u8>)>>;

/// A log with one worker, which the test simulates.
struct Bench {
    log: Log,
    flush: FlushState,
    device: Box<dyn Device>,
    /// The commits read at opening.
    found: Found,
}

fn options(path: &Path) -> LogOptions {
    LogOptions { segment_bytes: Some(SMALL_SEGMENT), ..LogOptions::new(path, 2) }
}

impl Bench {
    fn open(path: &Path) -> Result<Self, LogError> {
        Self::open_with(options(path), DeviceKind::Auto)
    }

    fn open_with(options: LogOptions, kind: DeviceKind) -> Result<Self, LogError> {
        let (log, mut reader) = Log::open(options)?;
        let found = read_all(&mut reader)?;
        log.resume_at(reader.end())?;
        let device = open_device(kind).unwrap();
        Ok(Self { log, flush: FlushState::default(), device, found })
    }

    /// Commits one record.
    fn commit(&mut self, key: &[u8], value: &[u8]) -> Lsn {
        let bytes = block_bytes(record_bytes(key.len(), value.len()));
        self.admit(bytes);
        let mut block = self.log.reserve(0, bytes);
        let lsn = block.lsn();
        block.append(TableId(7), RecordKind::Insert, Rid::new(lsn.0), key, value);
        block.finish_commit(None);
        lsn
    }

    /// Steps until a block of `bytes` is admitted.
    fn admit(&mut self, bytes: usize) {
        let deadline = Instant::now() + Duration::from_secs(30);
        while !self.log.admits(bytes, BlockPurpose::Change) {
            self.log.demand(bytes, BlockPurpose::Change);
            self.step();
            assert!(Instant::now() < deadline, "the log makes no room");
        }
    }

    fn step(&mut self) -> FlushTurn {
        let turn = self.log.turn(&mut self.flush, &mut *self.device, true);
        let (log, flush) = (&self.log, &mut self.flush);
        if turn.in_flight {
            let timeout = Some(Duration::from_secs(5));
            self.device.wait(timeout, &mut |done| log.complete(flush, done));
        }
        turn
    }

    /// Flushes everything.
    fn flush(&mut self) {
        let deadline = Instant::now() + Duration::from_secs(30);
        while self.log.durable() < self.log.tail() && self.log.poisoned().is_none() {
            self.step();
            assert!(Instant::now() < deadline, "the log makes no progress");
        }
    }
}

/// Reads the records of every commit.
fn read_all(reader: &mut LogReader) -> Result<Found, LogError> {
    let mut blocks = Vec::new();
    let mut position = Lsn::FIRST;
    while let Some(block) = reader.next_block()? {
        assert_eq!(block.lsn, position, "blocks lie end to end");
        assert!(block.durable <= block.lsn);
        position = block.end;
        let records = block.records().map(|(_, r)| (r.key.to_vec(), r.value.to_vec()));
        let records: Vec<_> = records.collect();
        if block.kind == BlockKind::Skip {
            assert!(records.is_empty());
        } else {
            blocks.push(records);
        }
    }
    assert_eq!(reader.end(), position);
    assert!(reader.next_block()?.is_none(), "the end stays the end");
    Ok(blocks)
}

fn numbered(number: u64) -> (Vec<u8>, Vec<u8>) {
    let value = vec![number as u8; (number * 37 % 900) as usize];
    (number.to_be_bytes().to_vec(), value)
}
