//! Benchmark of a hole tracker without a disk: the cost of reserving blocks, filling them and
//! finding the prefix.

use std::time::{Duration, Instant};

use super::Lsn;
use super::block::MAX_COMMON_BLOCK_BYTES;
use super::extent::BlockPurpose;
use super::record::BLOCK_ALIGNMENT;
use super::ring::MAX_RING;
use super::ring::Ring;
use super::space::Space;
use super::tracker::{AnyTracker, HoleTracker};
use crate::sync::{Mutex, clock, thread, yield_thread};

/// Blocks that a thread fills between two turns as leader.
const BLOCKS_PER_TURN: u64 = 16;

/// Drives a hole tracker alone. Threads reserve and fill blocks in a ring as fast as possible. Each
/// thread in turn looks for the prefix, which counts as durable immediately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TrackerDrive {
    /// The tracker.
    pub tracker: HoleTracker,
    /// Number of threads that fill blocks; at most 256. Default: 1.
    pub threads: usize,
    /// Size of a block in bytes; rounded up to a multiple of 8, at most 256 KiB. Default: 128.
    pub block_bytes: u64,
    /// Duration of the run. Default: 100 ms.
    pub period: Duration,
}

/// The result of a run.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct TrackerDriveResult {
    /// Blocks that passed through the ring.
    pub blocks: u64,
    /// Duration of the run.
    pub elapsed: Duration,
    /// Bytes by which Grasshopper advanced by crawling.
    pub crawled_bytes: u64,
    /// Bytes by which Grasshopper advanced by hopping.
    pub hopped_bytes: u64,
}

impl TrackerDrive {
    /// Creates a run with the defaults.
    pub fn new(tracker: HoleTracker) -> Self {
        Self { tracker, threads: 1, block_bytes: 128, period: Duration::from_millis(100) }
    }

    /// Sets [`TrackerDrive::threads`].
    #[must_use]
    pub fn threads(self, threads: usize) -> Self {
        Self { threads: threads.clamp(1, 256), ..self }
    }

    /// Sets [`TrackerDrive::block_bytes`].
    #[must_use]
    pub fn block_bytes(self, bytes: u64) -> Self {
        let most = MAX_COMMON_BLOCK_BYTES as u64;
        let block_bytes = bytes.clamp(1, most).next_multiple_of(BLOCK_ALIGNMENT as u64);
        Self { block_bytes, ..self }
    }

    /// Sets [`TrackerDrive::period`].
    #[must_use]
    pub fn period(self, period: Duration) -> Self {
        Self { period, ..self }
    }

    /// Runs the benchmark.
    ///
    /// # Errors
    /// Errors of the operating system, if it has no memory for the ring.
    pub fn run(self) -> std::io::Result<TrackerDriveResult> {
        let least = Space::<AnyTracker>::min_ring_bytes(self.threads) + self.block_bytes;
        let ring_bytes = least.max(128 << 20).next_power_of_two().min(MAX_RING);
        let tracker = AnyTracker::new(self.tracker, self.threads, ring_bytes);
        let space = Space::new(self.threads, ring_bytes, tracker);
        space.start(Lsn::FIRST, Lsn::FIRST);
        let drive =
            SharedDrive { space, ring: Ring::new(ring_bytes as usize)?, leader: Mutex::new(()) };
        // Touches the ring's pages before the clock starts.
        let page = [0; 4096];
        for at in (0..ring_bytes).step_by(page.len()) {
            // SAFETY: no other thread has the ring yet.
            unsafe { drive.ring.copy_in(at, &page) };
        }
        let begin = clock::now();
        thread::scope(|scope| {
            for filler in 0..self.threads {
                let drive = &drive;
                scope.spawn(move || drive.fill(filler, self.block_bytes, begin + self.period));
            }
        });
        drive.lead();
        let (elapsed, advances) = (begin.elapsed(), drive.space.tracker.advances());
        let end = drive.space.released();
        assert_eq!(end, drive.space.tail(), "every block was found");
        let blocks = (end.0 - Lsn::FIRST.0) / self.block_bytes;
        let (crawled_bytes, hopped_bytes) = (advances.crawled, advances.hopped);
        Ok(TrackerDriveResult { blocks, elapsed, crawled_bytes, hopped_bytes })
    }
}

/// The state shared by the threads.
struct SharedDrive {
    space: Space<AnyTracker>,
    ring: Ring,
    leader: Mutex<()>,
}

impl SharedDrive {
    fn fill(&self, filler: usize, bytes: u64, end: Instant) {
        let block = vec![filler as u8; bytes as usize];
        for number in 0_u64.. {
            if number.is_multiple_of(BLOCKS_PER_TURN) && clock::now() >= end {
                break;
            }
            while !self.space.admits(bytes, BlockPurpose::Change) {
                self.lead();
                yield_thread();
            }
            let lsn = self.space.reserve(filler, bytes);
            // SAFETY: the range is reserved, so only this thread accesses it until it is filled.
            unsafe { self.ring.copy_in(lsn.0, &block) };
            self.space.filled(filler, lsn, bytes, self.space.released());
            if number.is_multiple_of(BLOCKS_PER_TURN) {
                self.lead();
            }
        }
    }

    fn lead(&self) {
        if let Some(_leading) = self.leader.try_lock() {
            let found = self.space.buffered();
            // A bound may be below an earlier one.
            if found > self.space.released() {
                self.space.release(found);
            }
        }
    }
}
